"""What is published: for the user alone, to several readers, never in the way of the one who publishes."""

import errno
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from sdk.errors import DeviceFailed, OutputFailed, UsageError
from sdk.telemetry import places, publisher
from sdk.telemetry.metrics import Frames, Identity, Link, Metrics, Supply, Traffic
from sdk.telemetry.places import NameTaken, Untrusted
from sdk.telemetry.publisher import LOSSES, READERS, Publisher
from sdk.telemetry.reader import LONGEST, Reader, published
from tests.amount import amount


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A runtime directory with a short path."""
    found = Path(tempfile.mkdtemp(prefix="tl-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(found))
    yield found
    shutil.rmtree(found)


def eventually(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def raw(path):
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(os.fspath(path))  # waits while the queue is full
    link.settimeout(5)
    return link


def numbers(reader, last):
    """The numbers that a reader gets, up to the last."""
    found = []
    while last not in found:
        line = reader.line(5)
        assert line is not None
        if line["metrics"] is not None:
            found.append(line["metrics"])
    return found


# -- lines --------------------------------------------------------------------------------------------------


def test_several_readers_get_what_is_published(runtime):
    identity = Identity("usb-2-1.4", "A7", "gfx1100")
    with Publisher("usb", identity, target="amd-gfx1100") as one:
        assert one.name == "usb-2-1.4"
        assert (runtime / "towline" / "usb-2-1.4.sock").exists()
        (seen,) = published()
        assert seen.about["chip"] == "gfx1100"
        assert seen.about["target"] == "amd-gfx1100"
        assert seen.about["pid"] == os.getpid()
        assert all(map(seen.is_called, ("usb", "usb-2-1.4", "A7", "usb:A7", str(os.getpid()))))
        assert not seen.is_called("usb:B1")
        assert seen.is_kind("usb")
        assert not seen.is_kind("emulated")
        readers = [Reader(seen.path) for _ in range(3)]
        for number in range(50):
            one.publish({"metrics": number})
            if number == 20:
                readers.append(Reader(seen.path))
        for reader in readers:
            found = numbers(reader, 49)
            assert found == sorted(set(found))
        one.close("that was all")
        for reader in readers:
            assert reader.line(5)["metrics"] == 49
            assert reader.ended == "that was all"
            assert reader.line(5) is None
            reader.close()
    assert list((runtime / "towline").iterdir()) == []
    assert published() == []


def test_who_comes_late_gets_the_latest_at_once():
    with Publisher("emulated") as one:
        one.publish({"metrics": 7})
        eventually(lambda: not one._fresh)
        with Reader(published()[0].path) as reader:
            began = time.monotonic()
            assert reader.line(5)["metrics"] == 7
            assert time.monotonic() - began < 1


def test_a_publisher_that_dies_ends_its_readers():
    script = "from sdk.telemetry.publisher import Publisher; Publisher('emulated', name='dies'); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
        eventually(published)
        with Reader(published()[0].path) as reader:
            process.kill()
            while reader.ended is None:
                reader.line(5)
        assert "has ended" in reader.ended


# -- the directory and its sockets ---------------------------------------------------------------------------


def test_only_the_user_may_use_them(runtime):
    before = os.umask(0)
    try:
        with Publisher("emulated", name="one"):
            assert stat.S_IMODE((runtime / "towline").stat().st_mode) == 0o700
            assert stat.S_IMODE((runtime / "towline" / "one.sock").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_the_directory_is_that_of_platformdirs(runtime, monkeypatch):
    platformdirs = pytest.importorskip("platformdirs")
    if not sys.platform.startswith("linux"):
        pytest.skip("the rule of other systems differs")
    assert str(places.directory()) == platformdirs.user_runtime_dir("towline")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(runtime))
    if not Path(f"/run/user/{os.getuid()}").exists():
        assert places.directory(make=True) == runtime / f"runtime-{os.getuid()}" / "towline"
        assert stat.S_IMODE((runtime / f"runtime-{os.getuid()}").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_may_use_is_refused(runtime, mode):
    (runtime / "towline").mkdir()
    (runtime / "towline").chmod(mode)
    for use in (lambda: Publisher("emulated"), published):
        with pytest.raises(Untrusted) as caught:
            use()
        assert caught.value.where == str(runtime / "towline")


def test_a_directory_of_another_user_is_refused(runtime, monkeypatch):
    (runtime / "towline").mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(runtime / "towline", 1234, 1234)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 1234)
        monkeypatch.setattr(places, "_base", lambda: runtime)
    for use in (lambda: Publisher("emulated"), published):
        with pytest.raises(Untrusted):
            use()


def test_links_and_files_in_the_place_of_the_directory_are_refused(runtime):
    other = runtime / "other"
    other.mkdir(mode=0o700)
    (runtime / "towline").symlink_to(other)
    with pytest.raises(Untrusted):
        Publisher("emulated")
    (runtime / "towline").unlink()
    (runtime / "towline").write_text("")
    with pytest.raises(Untrusted):
        published()


def test_a_runtime_directory_that_others_may_write_is_not_used(runtime, monkeypatch):
    runtime.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(runtime))
    assert places.directory().parent != runtime


def test_another_user_on_the_other_end_is_refused_by_both_sides(monkeypatch):
    with Publisher("emulated", name="one"):
        (seen,) = published()
        with monkeypatch.context() as patch:
            patch.setattr(places, "peer", lambda link: (1, os.getuid() + 1))
            with pytest.raises(Untrusted) as caught:
                Reader(seen.path)
            assert caught.value.where == str(seen.path)
            with raw(seen.path) as link:
                assert link.recv(100) == b""
        with Reader(seen.path) as reader:
            assert reader.line(5) is not None


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="this kernel does not report who it is")
def test_the_kernel_reports_who_is_on_the_other_end():
    with Publisher("emulated", name="one"), raw(published()[0].path) as link:
        assert places.peer(link) == (os.getpid(), os.getuid())


def test_a_socket_that_is_another_users_is_not_read(runtime):
    if os.getuid() != 0:
        pytest.skip("only root gives files away")
    with Publisher("emulated", name="one"):
        path = runtime / "towline" / "one.sock"
        os.chown(path, 1234, 1234)
        with pytest.raises(Untrusted):
            Reader(path)


def dead_socket(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(os.fspath(path))
        left.listen()


def test_sockets_of_dead_processes_are_removed(runtime):
    folder = runtime / "towline"
    folder.mkdir(mode=0o700)
    dead_socket(folder / "same.sock")
    dead_socket(folder / "other.sock")
    (folder / "notes.txt").write_text("mine")
    assert published() == []
    with Publisher("emulated", name="same"):
        assert sorted(one.name for one in folder.iterdir()) == ["notes.txt", "same.sock"]
        assert [one.about["name"] for one in published()] == ["same"]


def test_a_live_name_is_refused_and_goes_on():
    with Publisher("emulated", name="one") as one:
        with pytest.raises(NameTaken) as caught:
            Publisher("emulated", name="one")
        assert caught.value.where.endswith("one.sock")
        one.publish({"metrics": 1})
        with Reader(published()[0].path) as reader:
            assert numbers(reader, 1)


def test_a_name_whose_queue_is_full_is_live(runtime, monkeypatch):
    """Its process is stopped: nothing accepts, and still its name is taken."""
    monkeypatch.setattr("sdk.telemetry.reader.PATIENCE", 0.05)
    folder = runtime / "towline"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stopped:
        stopped.bind(os.fspath(folder / "one.sock"))
        stopped.listen(0)
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(10)]
        for link in waiting:
            link.setblocking(False)
        assert errno.EAGAIN in [link.connect_ex(os.fspath(folder / "one.sock")) for link in waiting]
        with pytest.raises(NameTaken):
            Publisher("emulated", name="one")
        assert published() == []
        for link in waiting:
            link.close()


def test_names_made_for_one_process_differ():
    with Publisher("emulated?gpu=gfx1100") as one, Publisher("emulated") as two:
        assert one.name == f"emulated-{os.getpid()}"
        assert two.name == f"emulated-{os.getpid()}-2"
        assert len(published()) == 2


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_what_is_no_socket_is_left_alone(runtime, make):
    (runtime / "towline").mkdir(mode=0o700)
    path = runtime / "towline" / "one.sock"
    make(path)
    with pytest.raises(OutputFailed) as caught:
        Publisher("emulated", name="one")
    assert caught.value.where == str(path)
    assert path.exists()
    assert published() == []


@pytest.mark.parametrize("name", ["", "../one", "a/b", ".hidden", "x" * 49, "ä"])
def test_names_that_are_none(name):
    with pytest.raises(UsageError):
        Publisher("emulated", name=name)


def test_a_path_that_is_too_long(runtime, monkeypatch):
    deep = runtime / ("d" * 100)
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises(OutputFailed) as caught:
        Publisher("emulated", name="one")
    assert caught.value.where.endswith("one.sock")


def test_a_directory_that_cannot_be_made(runtime, monkeypatch):
    monkeypatch.setattr(places, "_base", lambda: runtime / "no" / "such")
    with pytest.raises(OutputFailed):
        Publisher("emulated")


# -- bad readers --------------------------------------------------------------------------------------------


def test_a_reader_that_does_not_read_loses_lines_and_is_dropped():
    with Publisher("emulated", name="one") as one:
        path = published()[0].path
        with raw(path) as slow, Reader(path) as good:
            eventually(lambda: len(one._readers) == 2)
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            filler = "x" * 2000
            longest = 0.0
            for number in range(LOSSES + 200):
                began = time.thread_time()
                one.publish({"metrics": number, "filler": filler})
                longest = max(longest, time.thread_time() - began)
                while (line := good.line(5))["metrics"] != number:
                    assert line is not None
            assert longest < 0.01
            eventually(lambda: len(one._readers) == 1)
            one.publish({"metrics": -1})
            assert numbers(good, -1)
            data = b""
            while part := slow.recv(1 << 16):
                data += part
            assert data.count(b"\n") < LOSSES + 200


def test_lines_that_leave_in_parts_are_whole():
    """A line larger than what the kernel takes at a time, to a reader that pauses."""
    with Publisher("emulated", name="one") as one, Reader(published()[0].path) as reader:
        reader.line(5)
        filler = "y" * 50_000
        for number in range(8):
            one.publish({"metrics": number, "filler": filler})
            time.sleep(0.01)
            line = reader.line(5)
            assert line["filler"] == filler
            assert line["metrics"] <= number


def test_what_readers_send_is_ignored_and_bounded():
    with Publisher("emulated", name="one") as one:
        path = published()[0].path
        with raw(path) as rude, Reader(path) as good:
            rude.sendall(b'{"schema": 1, "end": "no"}\n\x00\xff' * 10)
            one.publish({"metrics": 1})
            assert numbers(good, 1)
            assert len(one._readers) == 2
            rude.settimeout(5)
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                rude.sendall(b"?" * (4 << 20))
            one.publish({"metrics": 2})
            assert numbers(good, 2)
            eventually(lambda: len(one._readers) == 1)


def test_a_reader_that_closed_its_own_half_still_reads():
    """As `nc -U` does behind the end of its input."""
    with Publisher("emulated", name="one") as one, raw(published()[0].path) as link:
        link.shutdown(socket.SHUT_WR)
        eventually(lambda: len(one._readers) == 1)
        time.sleep(0.02)
        one.publish({"metrics": 5})
        data = b""
        while b'"metrics": 5' not in data:
            part = link.recv(4096)
            assert part
            data += part


def test_a_flood_of_connections_is_bounded():
    with Publisher("emulated", name="one") as one:
        path = published()[0].path
        with Reader(path) as good:
            links = []
            for _ in range(READERS + 5):
                links.append(raw(path))
            eventually(lambda: len(one._readers) == READERS)
            refused = [link for link in links if "takes no more" in link.recv(4096).decode()]
            assert len(refused) == 6
            one.publish({"metrics": 1})
            assert numbers(good, 1)
            for link in links:
                link.close()
            eventually(lambda: len(one._readers) == 1)
        with Reader(path) as again:
            assert again.line(5) is not None


@pytest.mark.slow
def test_publishing_goes_on_through_everything_at_once():
    """Threads that connect, send garbage, hang and leave; one reader sees the last line all the same."""
    with Publisher("emulated", name="one") as one:
        path = published()[0].path
        ended = threading.Event()

        def plague(number):
            while not ended.is_set():
                try:
                    with raw(path) as link:
                        if number % 3 == 0:
                            link.sendall(os.urandom(3000))
                        elif number % 3 == 1:
                            link.recv(10)
                        else:
                            time.sleep(0.05)
                except OSError:
                    time.sleep(0.001)

        with Reader(path) as good:
            threads = [threading.Thread(target=plague, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            longest = 0.0
            end = time.monotonic() + amount(2, 20)
            number = 0
            try:
                while time.monotonic() < end:
                    began = time.thread_time()
                    one.publish({"metrics": number})
                    longest = max(longest, time.thread_time() - began)
                    number += 1
                    time.sleep(0.005)
                    while good.line(0) is not None:
                        pass
                one.publish({"metrics": "last"})
                assert numbers(good, "last")
            finally:
                ended.set()
                for thread in threads:
                    thread.join()
        assert longest < 0.01
        eventually(lambda: not one._readers)


# -- bad publishers -----------------------------------------------------------------------------------------


@pytest.fixture
def impostor(runtime):
    """Sends the bytes it is called with to the first who connects; returns the path."""
    threads, listeners = [], []

    def serve(data, *, stays=False):
        (runtime / "towline").mkdir(mode=0o700, exist_ok=True)
        path = runtime / "towline" / "bad.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.fspath(path))
        listener.listen()
        listeners.append(listener)

        def answer():
            link, _ = listener.accept()
            with link:
                try:
                    link.sendall(data)
                    if stays:
                        link.recv(1)
                except OSError:
                    pass

        threads.append(threading.Thread(target=answer))
        threads[-1].start()
        return path

    yield serve
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n",
        b"{}\n",
        b"[1, 2]\n",
        b'{"schema": 99, "publisher": {}, "metrics": null}\n',
        b'{"schema": 1, "publisher": 3, "metrics": null}\n',
        b"[" * 5000 + b"\n",
        b"\xff\xfe\n",
        b"x" * (LONGEST + 2),
        b"",
    ],
)
def test_lines_that_are_not_understood(impostor, data):
    path = impostor(data)
    with pytest.raises(DeviceFailed) as caught:
        Reader(path)
    assert caught.value.where == str(path)


def test_a_line_without_an_end_is_given_up(impostor):
    path = impostor(b"x" * (LONGEST + 2), stays=True)
    began = time.monotonic()
    with pytest.raises(DeviceFailed):
        Reader(path)
    assert time.monotonic() - began < 1.5  # and not when its patience is over


def test_a_publisher_that_says_nothing(impostor, monkeypatch):
    monkeypatch.setattr("sdk.telemetry.reader.PATIENCE", 0.05)
    path = impostor(b"", stays=True)
    with pytest.raises(DeviceFailed):
        Reader(path)


def test_a_stopped_publisher_is_waited_for_and_no_longer(runtime):
    script = "from sdk.telemetry.publisher import Publisher; Publisher('emulated', name='stops'); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
        try:
            eventually(published)
            with Reader(published()[0].path) as reader:
                reader.line(1)
                process.send_signal(signal.SIGSTOP)
                began = time.monotonic()
                assert reader.line(0.05) is None
                assert reader.ended is None
                assert time.monotonic() - began < 1
            with pytest.raises(NameTaken):
                Publisher("emulated", name="stops")
        finally:
            process.kill()


# -- figures ------------------------------------------------------------------------------------------------


def test_unknown_figures_are_none():
    document = Metrics().to_json()
    assert document.pop("clocks_mhz") == {}
    assert set(document.values()) == {None}


def test_figures_are_plain_json():
    found = Metrics(
        time=1.5,
        watts=12,
        clocks_mhz={"GFXCLK": 500},
        link=Link(16.0, 4),
        traffic=Traffic(5, 6, 7, 8).since(Traffic(1, 1, 1, 1)),
        supply=Supply(11.9, 3.5, True),
    )
    document = json.loads(json.dumps(found.to_json()))
    assert document["link"] == {"generation": 4, "rate_gt": 16.0, "lanes": 4}
    assert document["traffic"] == {"transfers": 4, "bytes_in": 5, "bytes_out": 6, "errors": 7}
    assert document["supply"] == {"volts": 11.9, "amperes": 3.5, "fault": True}
    assert Link(0.0, 1).generation is None


def test_a_rate_is_that_of_the_last_frames_and_falls_when_they_stop():
    frames = Frames()
    assert frames.rate(0.0) is None
    for number in range(200):
        frames.ended(100 + number / 20)
    last = 100 + 199 / 20
    assert frames.count == 200
    assert frames.rate(last) == pytest.approx(20)
    assert frames.rate(last + 0.04) == pytest.approx(20)
    assert frames.rate(last + 63 / 20) == pytest.approx(10)
    frames.restart()
    assert (frames.count, frames.rate(last)) == (0, None)
    frames.ended(5.0)
    frames.ended(5.0)
    assert frames.rate(5.0) is None


def test_the_publishers_thread_ends_with_it():
    before = threading.active_count()
    one = Publisher("emulated")
    one.close()
    one.close()
    one.publish({"metrics": 1})
    assert threading.active_count() == before
    assert publisher.READERS == READERS

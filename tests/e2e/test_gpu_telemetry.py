"""Figures of the emulated card behind the emulated bridge, beside its work."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sdk import artifact, compiler
from sdk.errors import DeviceFailed
from sdk.session import Session
from sdk.stream import Stream
from sdk.target import Measures, OpenOptions
from sdk.targets import open_device
from sdk.telemetry.metrics import Supply
from sdk.telemetry.publisher import Publisher
from sdk.telemetry.reader import published
from tests.amount import amount
from tests.e2e.test_gpu_recovery import DEVICE, frame, network
from tests.terminal import COLUMNS, Terminal
from towline.cli import gpu_top, main
from usbgpu.bridge.base import BaseBridge

LOOP = 3e-6
"""Seconds by which the firmware may see a condition earlier or later: its polls are some 2 us apart."""


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    found = Path(tempfile.mkdtemp(prefix="tl-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(found))
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)
    yield found
    shutil.rmtree(found)


@pytest.fixture(scope="module")
def compiled():
    return compiler.compile(network(), "amd-gfx1100")


@pytest.fixture(scope="module")
def card(compiled):
    """A device with a session on it, for tests that do not disturb it."""
    device = open_device("amd-gfx1100", DEVICE, OpenOptions())
    with Session(compiled, opened=device) as session:
        yield device, session


# -- figures ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_figures_of_a_session_on_a_card(card):
    device, session = card
    assert isinstance(device, Measures)
    before = session.last_metrics
    session.step(frame(0))
    found = session.metrics()
    assert 0 < found.watts < 400
    assert found.gpu_celsius > 20
    assert found.memory_celsius > 20
    assert found.clocks_mhz["GFXCLK"] > 1000
    assert found.time == pytest.approx(session.clock.now())
    link = device._gpu.info().link
    assert (found.link.lanes, found.link.rate_gt) == (link.lanes, link.rate)
    assert found.link.generation == 3
    assert found.frames == before.frames + 1
    assert found.traffic.errors == 0
    assert found.traffic.transfers > before.traffic.transfers
    assert found.traffic.bytes_out > before.traffic.bytes_out
    assert found.supply.volts == pytest.approx(12, abs=0.5)
    identity = session.identify()
    assert (identity.place, identity.chip) == ("usb-1-1", "gfx1100")
    assert identity.serial


def test_traffic_is_what_goes_over_the_cable(card):
    device, session = card
    calls = []
    transport = device._gpu.card.bridge.transport
    transport.observers.append(lambda call, outcome: calls.append((call, outcome)))
    before = session.last_metrics.traffic
    session.step(frame(1))
    session.identify()
    added = session.last_metrics.traffic.since(before)
    transport.observers.pop()
    assert added.transfers == len(calls) > 4
    assert added.bytes_out == sum(len(call.data) for call, _ in calls)
    assert added.bytes_in == sum(len(outcome.data) for _, outcome in calls)


@pytest.mark.slow
def test_a_reading_computes_what_was_submitted_first(card):
    _, session = card
    session.reset()
    expected = [session.step(frame(number)) for number in range(6)]
    session.reset()
    tickets = [session.submit(frame(number), step=True) for number in range(6)]
    found = [session.collect(ticket) for ticket in tickets[:2]]  # of a list of four, the first
    assert session.metrics().watts > 0
    found += (session.collect(ticket) for ticket in tickets[2:])
    for one, other in zip(found, expected, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in other)


def test_the_supply_is_the_bridges(card, monkeypatch):
    _, session = card
    monkeypatch.setattr(BaseBridge, "supply", lambda bridge: Supply(11.5, 6.25, True))
    assert session.metrics().supply == Supply(11.5, 6.25, True)


def test_a_reading_takes_two_short_lists(card):
    """What docs/telemetry.md states; and a request, where the dock measures its supply."""
    _, session = card
    session.metrics()
    before, began = session.last_metrics.traffic, session.clock.now()
    session.metrics()
    assert session.clock.now() - began < 0.9e-3
    found = session.last_metrics
    assert found.traffic.since(before).transfers == (4 if found.supply is None else 5)


@pytest.mark.slow
def test_errors_of_the_cable_are_counted(compiled):
    with Session(compiled, DEVICE) as session:
        session.step(frame(0))
        assert session.last_metrics.traffic.errors == 0
        session.injects.inject("bulk-error@1")
        with pytest.raises(DeviceFailed):
            session.step(frame(1))
        session.recover()
        session.step(frame(1))
        found = session.metrics()
        assert found.traffic.errors >= 1
        assert found.frames == 2


@pytest.mark.slow
def test_a_reading_that_fails_is_recovered_from(compiled):
    with Session(compiled, DEVICE) as session:
        session.step(frame(0))
        session.injects.inject("bulk-error@1")
        with pytest.raises(DeviceFailed):
            session.metrics()
        with pytest.raises(DeviceFailed):  # nothing runs there until it was recovered
            session.step(frame(1))
        assert session.recover().kind == "warm"
        session.injects.inject("pcie-drop@0ms+50ms")
        session.clock.sleep(0.001)
        with pytest.raises(DeviceFailed):
            session.metrics()
        assert session.recover().kind == "cold"
        assert session.metrics().link.lanes == 4


# -- latencies ----------------------------------------------------------------------------------------------


def streamed(session, count, telemetry):
    """Latencies of so many frames at 20 a second, the readings, and the results."""
    taken = []
    stream = Stream(session, rate=20, deadline=0.045, telemetry=telemetry, readings=taken.append)
    results = list(stream.run([frame(number % 7) for number in range(count)]))
    assert {result.status for result in results} == {"ok"}
    return np.array([result.latency for result in results]), taken, results


@pytest.mark.slow
def test_latencies_with_and_without_readings(card):
    """They differ by the phase of the firmware's loop, as those of two frames do without readings."""
    _, session = card
    session.metrics()  # so that the card is not checked within the next second
    without, taken, plain = streamed(session, 8, None)
    assert len(taken) <= 1
    found, taken, results = streamed(session, 8, 0.05)
    assert len(taken) >= 5
    assert np.abs(found - without).max() < LOOP
    for one, other in zip(results, plain, strict=True):
        assert all(np.array_equal(one.outputs[name], other.outputs[name]) for name in other.outputs)


@pytest.mark.slow
def test_no_frame_waits_for_a_reading_in_a_longer_stream(compiled):
    """Without readings in gaps, the card is checked before a frame once a second, and that frame waits."""
    count = amount(60, 400)
    with Session(compiled, DEVICE) as session:
        without, checks, _ = streamed(session, count, None)
    with Session(compiled, DEVICE) as session:
        found, taken, _ = streamed(session, count, 0.5)
    usual = np.median(without)
    waited = without > usual + 100e-6
    assert len(checks) == waited.sum() == pytest.approx(count / 20, abs=2)
    assert np.all(found < usual + LOOP)
    assert len(taken) == pytest.approx(count / 20 / 0.5, abs=2)
    assert np.abs(found - without)[~waited].max() < LOOP


@pytest.mark.slow
def test_frames_without_a_rate_overlap_as_before(compiled):
    """There is no gap: the card's own check makes the readings, once a second of its time."""
    times, counts = [], []
    for telemetry in (None, 0.5):
        taken = []
        with Session(compiled, DEVICE) as session:
            stream = Stream(session, telemetry=telemetry, readings=taken.append)
            began = session.clock.now()
            list(stream.run([frame(number % 7) for number in range(64)]))
            times.append(session.clock.now() - began)
        counts.append(len(taken))
    assert counts == [0, 1]
    assert times[1] - times[0] < 6e-3  # before the first frame


# -- towline gpu top ----------------------------------------------------------------------------------------


def top(capsys, *argv):
    code = main(["gpu", "top", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


LINE = {
    "metrics": {
        "watts": 87,
        "gpu_celsius": 61,
        "memory_celsius": 70,
        "clocks_mhz": {"GFXCLK": 2498, "UCLK": 1249},
        "link": {"generation": 3, "rate_gt": 8.0, "lanes": 2},
        "traffic": {"transfers": 1234567, "bytes_in": 10**9, "bytes_out": 10**10, "errors": 3},
        "supply": {"volts": 11.87, "amperes": 7.5, "fault": True},
        "frames": 123456,
        "frames_per_second": 19.98,
    },
    "stream": {
        "state": "recovering",
        "rate": 20.0,
        "frames": {"ok": 123450, "late": 4, "fallback": 2, "dropped": 0},
        "event": {"time": 5.5, "kind": "supply", "cause": "the supply sags"},
    },
}


def test_nothing_publishes(capsys):
    code, out, err = top(capsys)
    assert (code, out) == (3, "")
    assert "towline stream" in err
    assert "--device" in err
    code, out, _ = top(capsys, "--json")
    assert json.loads(out)["error"]["code"] == "device-missing"
    code, out, _ = top(capsys, "--list", "--json")
    assert (code, json.loads(out)["result"]) == (0, {"publishers": []})


def test_a_line_as_json_and_as_text(capsys):
    with Publisher("usb:A7", name="one") as one:
        one.publish(LINE)
        deadline = time.monotonic() + 5
        while one._fresh and time.monotonic() < deadline:
            time.sleep(0.001)
        code, out, _ = top(capsys, "--json", "--count", "1")
        first, last = (json.loads(line) for line in out.splitlines())
        assert code == 0
        assert first["metrics"] == LINE["metrics"]
        assert first["schema"] == 1
        assert last["result"]["lines"] == 1
        code, out, _ = top(capsys, "--count", "1")
        heading, row = out.splitlines()
        assert code == 0
        assert len(heading) <= COLUMNS >= len(row)
        assert dict(zip(heading.split(), row.split(), strict=True)) == {
            "state": "recovering",
            "watts": "87",
            "GPU°C": "61",
            "mem°C": "70",
            "MHz": "2498",
            "PCIe": "8x2",
            "volts": "11.87",
            "frame/s": "20.0",
            "transfers": "1234567",
            "errors": "3",
        }


def test_what_publishes_later_is_waited_for(capsys):
    with ThreadPoolExecutor() as pool:
        found = pool.submit(lambda: time.sleep(0.1) or Publisher("emulated", name="late"))
        code, out, _ = top(capsys, "--device", "late", "--wait", "20s", "--count", "1", "--json")
        found.result().close()
    assert code == 0
    assert json.loads(out.splitlines()[0])["publisher"]["name"] == "late"
    assert top(capsys, "--wait", "10ms")[0] == 3


def test_one_of_several_is_chosen(capsys):
    with Publisher("usb:A7", name="one") as one, Publisher("emulated", name="two"):
        one.publish(LINE)
        code, out, err = top(capsys)
        assert (code, out) == (2, "")
        assert "one (usb:A7" in err
        assert "two (emulated" in err
        code, out, _ = top(capsys, "--list")
        assert [line.split()[0] for line in out.splitlines()] == ["name", "one", "two"]
        for device, name in (("usb:A7", "one"), ("usb", "one"), ("two", "two"), ("emulated", "two")):
            code, out, _ = top(capsys, "--device", device, "--json", "--count", "1")
            assert code == 0
            assert json.loads(out.splitlines()[0])["publisher"]["name"] == name
        with Publisher("usb:B8", name="three"):
            assert top(capsys, "--device", "usb")[0] == 2


@pytest.mark.slow
def test_a_card_without_an_owner_is_opened(capsys, monkeypatch):
    monkeypatch.setattr("towline.cli.gpu_top.INTERVAL", 0.01)
    code, out, _ = top(capsys, "--device", DEVICE, "--json", "--count", "3")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(lines) == 4
    assert all(line["metrics"]["link"]["lanes"] == 4 for line in lines[:3])
    assert lines[0]["publisher"]["chip"] == "gfx1100"
    assert lines[1]["metrics"]["time"] > lines[0]["metrics"]["time"]
    assert top(capsys, "--device", "nonsense")[0] == 2


def test_a_directory_that_is_not_the_users_is_an_error(capsys, runtime):
    (runtime / "towline").mkdir(mode=0o755)
    (runtime / "towline").chmod(0o755)
    code, _, err = top(capsys)
    assert code == 1
    assert str(runtime / "towline") in err


@pytest.mark.parametrize("given", [["--publish", "a", "--no-publish"], ["--publish", "../x"]])
def test_a_stream_with_a_wrong_name(compiled, tmp_path, capsys, given):
    artifact.save(compiled, tmp_path / "net.tow")
    assert main(["stream", str(tmp_path / "net.tow"), "--frames", "1", *given]) == 2
    capsys.readouterr()


@pytest.mark.slow
def test_a_stream_that_cannot_publish_goes_on_unless_it_was_asked(compiled, tmp_path, capsys, runtime):
    artifact.save(compiled, tmp_path / "net.tow")
    (runtime / "towline").touch()
    argv = ["stream", str(tmp_path / "net.tow"), "--device", DEVICE, "--frames", "1"]
    assert main(argv) == 0
    assert str(runtime / "towline") in capsys.readouterr().err
    assert main([*argv, "--publish", "mine"]) == 1


def test_the_picture_fits_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    about = {"name": "one", "pid": 12, "device": "usb:A7\x1b[2J", "serial": "A7", "chip": "gfx1100"}
    shown = gpu_top.picture({"publisher": about, **LINE}).splitlines()
    assert max(map(len, shown)) <= COLUMNS
    assert "\x1b" not in "".join(shown)
    rows = {line[:11].strip(): line[13:] for line in shown}
    assert rows["supply"] == "11.87 V, 7.50 A, it reports a fault"
    assert rows["PCIe link"] == "generation 3, 8 GT/s, 2 lanes"
    assert rows["cable"] == "1,234,567 transfers, 1.0 GB in, 10.0 GB out, 3 errors"
    assert rows["last event"] == "supply at 5.500 s: the supply sags"
    unknown = gpu_top.picture({"publisher": about, "metrics": None, "stream": None})
    assert "supply" not in unknown


# -- in a terminal ------------------------------------------------------------------------------------------


@pytest.fixture
def stream(compiled, tmp_path):
    """`towline stream` in a process of its own, for as long as the test takes."""
    artifact.save(compiled, tmp_path / "net.tow")
    command = [sys.executable, "-m", "towline", "stream", str(tmp_path / "net.tow"), "--device", DEVICE]
    with subprocess.Popen(
        [*command, "--rate", "20", "--frames", "100000", "--publish", "dock"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        end = time.monotonic() + 30
        while not published():
            assert time.monotonic() < end
            time.sleep(0.05)
        yield process
        process.kill()


@pytest.mark.slow
def test_beside_a_stream_in_a_terminal(stream):
    terminal = Terminal("gpu", "top")
    try:
        terminal.until("running at 20 a second")
        seen = terminal.until(" a second\nstream")
        rows = {line[:13].strip(): line[13:] for line in seen.splitlines()}
        assert rows["device"] == DEVICE
        assert rows["card"].startswith("gfx1100, serial ")
        assert re.fullmatch("generation [34], (8|16) GT/s, 4 lanes", rows["PCIe link"])
        assert rows["power"].endswith("rpm")
        assert rows["temperature"].startswith("GPU ")
        assert rows["cable"].endswith(" 0 errors")
        assert rows["stream"].startswith("running at 20 a second; ")
        page = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
        (shown,) = re.findall(r"^```console\n(.*?)^```", page, re.M | re.S)
        assert [line[:13].strip() for line in shown.splitlines()] == list(rows)
        heights = len(terminal.screen.lines)
        time.sleep(1.5)
        stream.send_signal(signal.SIGINT)
        seen = terminal.until("the stream has ended")
        assert len(terminal.screen.lines) <= heights + 2  # it was drawn in place
        assert max(map(len, terminal.screen.lines)) <= COLUMNS
        assert terminal.raw.count("frames  ") > 2
        assert terminal.end() == 0
    finally:
        terminal.close()


@pytest.mark.slow
def test_ctrl_c_and_a_stream_that_is_killed(stream):
    terminal = Terminal("gpu", "top", "--device", "dock")
    try:
        terminal.until("running at 20 a second")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.raw
    finally:
        terminal.close()
    terminal = Terminal("gpu", "top")
    try:
        terminal.until("running at 20 a second")
        stream.send_signal(signal.SIGSTOP)
        terminal.until("no news for ")
        stream.send_signal(signal.SIGCONT)
        end = time.monotonic() + 10
        while "no news" in terminal.screen.text:
            assert time.monotonic() < end
            terminal.read(0.1)
        stream.kill()
        terminal.until("has ended")
        assert terminal.end() == 0
    finally:
        terminal.close()
    with Publisher("emulated", name="dock"):  # the socket that was left is no obstacle
        assert [one.about["name"] for one in published()] == ["dock"]

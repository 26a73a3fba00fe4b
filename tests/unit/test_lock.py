"""The lock on a device: between processes, within one, and after a holder was killed."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sdk import files
from sdk.errors import DeviceFailed, OutputFailed
from usbgpu.transport import DeviceBusy, lock
from usbgpu.transport.lock import DeviceLock

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from usbgpu.transport.lock import DeviceLock
lock = DeviceLock("usb-1-1")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def runtime(monkeypatch, tmp_path):
    monkeypatch.setenv("TOWLINE_LOCKS", str(tmp_path))
    return tmp_path


def test_another_process_holds_it_until_it_is_killed():
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DeviceBusy) as busy:
            DeviceLock("usb-1-1")
        assert busy.value.where == "usb-1-1"
        assert f"process {holder.pid} " in str(busy.value)
        DeviceLock("usb-1-2").release()
    finally:
        holder.kill()
        holder.communicate()
    DeviceLock("usb-1-1").release()


def test_within_a_process(runtime):
    held = DeviceLock("usb-1-1")
    assert held.path == runtime / f"towline-{os.getuid()}-usb-1-1.lock"
    assert stat.S_IMODE(held.path.stat().st_mode) == 0o600
    assert held.path.read_text() == f"{os.getpid()}\n"
    with pytest.raises(DeviceBusy, match="this process"):
        DeviceLock("usb-1-1")
    held.release()
    held.release()
    assert held.path.read_text() == "", "the file stays: removing it would let two hold it"
    DeviceLock("usb-1-1").release()


def test_a_forked_child_neither_keeps_nor_releases_the_lock():
    held = DeviceLock("usb-1-1")
    child_may_end, end_child = os.pipe()
    released, say_released = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end_child)
        held.release()
        os.write(say_released, b"!")
        os._exit(0)
    os.read(released, 1)
    with pytest.raises(DeviceBusy, match="this process"):
        DeviceLock("usb-1-1")
    os.waitpid(child, 0)
    child = os.fork()
    if child == 0:
        os.close(end_child)
        os.read(child_may_end, 1)
        os._exit(0)
    held.release()
    DeviceLock("usb-1-1").release()
    os.close(end_child)
    os.waitpid(child, 0)


def test_a_file_system_without_locks(monkeypatch):
    def refuse(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(DeviceFailed, match="No locks available"):
        DeviceLock("usb-1-1")


def test_a_lock_that_cannot_be_made(runtime):
    (runtime / f"towline-{os.getuid()}-usb-1-1.lock").symlink_to(runtime / "elsewhere")
    with pytest.raises(DeviceFailed):
        DeviceLock("usb-1-1")
    assert not (runtime / "elsewhere").exists()


def test_all_processes_of_a_user_look_in_one_place(runtime, monkeypatch):
    """Whatever a service, cron and a login shell have in their environments."""
    monkeypatch.delenv("TOWLINE_LOCKS")
    (runtime / "usual").mkdir()
    monkeypatch.setattr(lock, "USUAL", runtime / "usual")
    places = []
    for shell in (False, True):
        monkeypatch.setattr("tempfile.tempdir", str(runtime / f"temporary-{shell}"))
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        if shell:
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
        places.append(lock.directory())
    assert places == [runtime / "usual"] * 2


def test_where_the_usual_place_is_missing(runtime, monkeypatch):
    monkeypatch.delenv("TOWLINE_LOCKS")
    monkeypatch.setattr(lock, "USUAL", runtime / "usual")
    monkeypatch.setattr("tempfile.tempdir", str(runtime / "temporary"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert lock.directory() == runtime
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / "gone"))
    assert lock.directory() == runtime / "temporary"


def test_without_any_directory_for_it(runtime, monkeypatch):
    monkeypatch.delenv("TOWLINE_LOCKS")
    monkeypatch.setattr(lock, "USUAL", runtime / "usual")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
    with pytest.raises(DeviceFailed, match="No usable temporary directory") as caught:
        DeviceLock("usb-1-1")
    assert "TOWLINE_LOCKS" in str(caught.value.hint)
    with pytest.raises(OutputFailed, match="No usable temporary directory"), files.scratch_directory():
        pass

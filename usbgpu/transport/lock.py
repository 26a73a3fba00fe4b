"""One process at a time: a lock on a real device.

Two programs that use one bridge would get each other's answers, and could interrupt a flasher in the middle
of an erase. The kernel's claim of an interface does not cover control requests, so there is a lock file for
every device, named after the port that it is plugged into, and locked with flock: the kernel releases it when
its holder ends, in any way. The file holds the holder's process id, for the message, and is not deleted.

All processes of a user have to look for the files in one place: a login shell, a service and cron have not
the same XDG_RUNTIME_DIR or TMPDIR. So that is /run/lock, which is for such files (Filesystem Hierarchy
Standard 3.0, /run and /var/lock), where the system has it and lets users write there, as Debian does.
Processes of other users are kept out by the permissions of the device.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

from sdk import settings
from sdk.errors import DeviceFailed
from usbgpu.transport.errors import DeviceBusy

LOCKS = Path("/proc/locks")
USUAL = Path("/run/lock")


def directory() -> Path:
    """Where this user's lock files are.

    Raises:
        DeviceFailed: the directory cannot be made.
    """
    wanted = settings.LOCKS.value()
    if wanted is not None:
        return Path(wanted)
    if os.access(USUAL, os.W_OK | os.X_OK):
        return USUAL
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime)
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as problem:
        raise DeviceFailed(
            f"the device's lock cannot be made: {problem.strerror}",
            hint=f"set {settings.LOCKS.name} to a directory that you may write",
        ) from problem


class DeviceLock:
    """A device that is ours until `release`.

    Args:
        name: of the device: letters, digits, dots and dashes.

    Raises:
        DeviceBusy: another process has it, or this one has it already.
        DeviceFailed: the file cannot be made.
    """

    def __init__(self, name: str) -> None:
        self.path = _path(name)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self.path, flags, 0o600)
        except OSError as problem:
            raise DeviceFailed(
                f"the device's lock cannot be made: {problem.strerror}",
                where=str(self.path),
                hint=f"set {settings.LOCKS.name} to a directory that you may write",
            ) from problem
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = self._read()
            os.close(self._file)
            raise _busy(name, holder, self.path) from None
        except OSError as problem:
            os.close(self._file)
            raise DeviceFailed(
                f"the device's lock cannot be taken: {problem.strerror}",
                where=str(self.path),
                hint=f"set {settings.LOCKS.name} to a directory on a local disk",
            ) from problem
        self.name = name
        self._owner = os.getpid()
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Release the device. Idempotent."""
        if self._file >= 0:
            if self._owner == os.getpid():  # else a forked child's copy, and its parent still has the device
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, 0)
                    fcntl.flock(self._file, fcntl.LOCK_UN)  # although a forked child may have it open too
            os.close(self._file)
            self._file = -1

    def _read(self) -> int | None:
        """The holder's process id; None if it has not been written yet."""
        text = os.pread(self._file, 32, 0).strip()
        return int(text) if text.isdigit() else None


def holder(name: str) -> int | None:
    """The process that has a device; None if none has, or the system does not say (Linux does).

    Nothing is locked meanwhile: a program that opens the device would find it in use.

    Args:
        name: of the device, as for `DeviceLock`.
    """
    try:
        found = os.lstat(_path(name))
        locks = LOCKS.read_text("ascii").splitlines()
    except OSError:  # it was never opened; or another system
        return None
    for line in locks:  # proc_locks(5): number, kind, whether advisory, access, process, place
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{found.st_ino}"):
            return int(words[4])
    return None


def _path(name: str) -> Path:
    return directory() / f"towline-{os.getuid()}-{name}.lock"


def _busy(name: str, holder: int | None, path: Path) -> DeviceBusy:
    if holder == os.getpid():
        return DeviceBusy("this process has the device open already", where=name, hint="close it first")
    who = f"process {holder}" if holder is not None else "another process"
    return DeviceBusy(f"{who} is using the device", where=name, hint=f"end it and try again (lock: {path})")

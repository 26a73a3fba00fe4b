"""Where figures are published: sockets in a directory of the user's alone.

The directory is `towline` in the user's runtime directory: XDG_RUNTIME_DIR, else /run/user/UID, else
runtime-UID in the directory for temporary files. That is the rule of platformdirs, which the core install
does not have. Only its owner may enter it (mode 0700), the sockets in it have mode 0600, and where the
kernel reports who is on the other end (Linux: SO_PEERCRED), both sides check that it is the same user.

A socket is alive if something listens on it. Its owner binds it and begins to listen while it holds a lock on
the directory, and what is left of dead processes is removed under the same lock: so what does not listen then
is dead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sdk.errors import DeviceFailed, OutputFailed
from sdk.telemetry.names import require_name

SUFFIX = ".sock"
MOST_PATH = 103
"""Bytes of a socket's path: macOS has room for so many, Linux for four more."""
WAITING = 16
"""Connections that may wait to be accepted."""
LOCK_PATIENCE = 2.0
"""Seconds of the wall's time; the lock is held for some system calls."""
WRITE, ANY = 0o022, 0o077
"""Permissions of others."""


class NameTaken(DeviceFailed):
    """A live process publishes under this name."""

    code = "name-taken"


class Untrusted(DeviceFailed):
    """A directory, a socket or the process behind it is not the user's alone."""

    code = "untrusted-socket"


def directory(*, make: bool = False) -> Path:
    """Where this user's sockets are; it need not be there, unless `make` asks for it.

    Raises:
        Untrusted: it is not the user's alone.
        OutputFailed: it cannot be made.
    """
    base = _base()
    place = base / "towline"
    for one, others in ((base, WRITE), (place, ANY)):
        if make:
            try:
                os.mkdir(one, 0o700)
            except FileExistsError:
                pass
            except OSError as problem:
                raise OutputFailed(
                    f"the directory for sockets cannot be made: {problem.strerror}",
                    where=str(one),
                    hint="set XDG_RUNTIME_DIR to a directory that is yours alone",
                ) from problem
        _require_own(one, others)
    return place


def _base() -> Path:
    """The user's runtime directory, which has to be checked."""
    user = os.getuid()
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    for place in (named, f"/run/user/{user}"):
        if os.path.isabs(place) and _is_own(place):
            return Path(place)
    return Path(tempfile.gettempdir()) / f"runtime-{user}"


def _is_own(place: str) -> bool:
    with contextlib.suppress(OSError):
        found = os.lstat(place)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & WRITE
    return False


def _require_own(place: Path, others: int) -> None:
    """Refuse a directory that is another user's, or to which others have one of these permissions.

    One that is not there is good.
    """
    try:
        found = os.lstat(place)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise Untrusted(f"it cannot be looked at: {problem.strerror}", where=str(place)) from problem
    wrong = ""
    if not stat.S_ISDIR(found.st_mode):
        wrong = "it is not a directory"
    elif found.st_uid != os.getuid():
        wrong = f"it belongs to user {found.st_uid}"
    elif found.st_mode & others:
        wrong = f"other users may use it: its mode is {stat.S_IMODE(found.st_mode):04o}"
    if wrong:
        raise Untrusted(
            f"{wrong}, and sockets are kept in a directory of the user's alone",
            where=str(place),
            hint="remove it, or set XDG_RUNTIME_DIR to a directory that is yours alone (mode 0700)",
        )


def listen(name: str) -> tuple[socket.socket, Path]:
    """Make a socket of that name, and listen on it. What dead processes left is removed.

    Raises:
        NameTaken: a live process has it.
        OutputFailed: something is there that is no socket, or the socket cannot be made.
        UsageError: as `names.require_name`.
        Untrusted: as `directory`.
    """
    require_name(name)
    folder = directory(make=True)
    path = folder / f"{name}{SUFFIX}"
    if len(os.fsencode(path)) > MOST_PATH:
        raise OutputFailed(
            f"a socket's path has at most {MOST_PATH} bytes",
            where=str(path),
            hint="set a shorter XDG_RUNTIME_DIR",
        )
    with _locked(folder):
        for old in folder.glob(f"*{SUFFIX}"):
            if _is_dead(old):
                old.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise OutputFailed(
                    "is there already, and is not a socket",
                    where=str(path),
                    hint="remove it, or choose a name",
                )
            raise NameTaken(
                "a live process publishes under this name",
                where=str(path),
                hint="choose another name (--publish NAME); `towline gpu top` lists what publishes",
            )
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.bind(os.fspath(path))
            os.chmod(path, 0o600)
            listener.listen(WAITING)
        except OSError as problem:
            listener.close()
            raise OutputFailed(
                f"the socket cannot be made: {problem.strerror}",
                where=str(path),
                hint="set XDG_RUNTIME_DIR to a directory on a local disk that is yours alone",
            ) from problem
    return listener, path


def live() -> list[Path]:
    """The sockets on which a process listens, by name. Changes nothing.

    Raises:
        Untrusted: as `directory`.
    """
    folder = directory()
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if _is_socket(path) and not _is_dead(path))


def connect(path: Path, seconds: float) -> socket.socket:
    """Connect to a socket that this user publishes on.

    Args:
        path: of the socket.
        seconds: of the wall's time that it may take.

    Raises:
        Untrusted: it is not this user's.
        DeviceFailed: nothing listens there, or it does not accept.
    """
    _require_own(path.parent, ANY)
    try:
        found = os.lstat(path)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
            raise Untrusted("it is not a socket of this user", where=str(path))
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as problem:
        raise DeviceFailed(f"nothing publishes here: {problem.strerror}", where=str(path)) from problem
    try:
        link.settimeout(seconds)
        _connect(link, path, time.monotonic() + seconds)
        require_own_peer(link, str(path))
    except OSError as problem:
        link.close()
        raise DeviceFailed(
            f"the process that publishes here does not answer: {problem.strerror or problem}", where=str(path)
        ) from problem
    except BaseException:
        link.close()
        raise
    return link


def _connect(link: socket.socket, path: Path, end: float) -> None:
    """Connect; a full queue is waited for, which the system does not do for a socket with a time-out."""
    while True:
        try:
            return link.connect(os.fspath(path))
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
        time.sleep(0.01)


def peer(link: socket.socket) -> tuple[int, int] | None:
    """Process and user on the other end of a socket; None where the kernel does not report them."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    data = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process, user, _ = struct.unpack("3i", data)
    return process, user


def require_own_peer(link: socket.socket, where: str) -> None:
    """Refuse another user on the other end. Raises Untrusted."""
    found = peer(link)
    if found is not None and found[1] != os.getuid():
        raise Untrusted(f"the other end belongs to user {found[1]}, not to this user", where=where)


def remove(path: Path) -> None:
    """Remove the socket of this process."""
    with contextlib.suppress(OSError):
        path.unlink()


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_dead(path: Path) -> bool:
    """Whether it is a socket on which nothing listens."""
    if not _is_socket(path):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except OSError as problem:
            return problem.errno == errno.ECONNREFUSED
    return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The lock on the directory, which the kernel releases with the process."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise OutputFailed(
                        "another process holds the lock on the directory for sockets", where=str(folder)
                    ) from None
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)

"""Commands on a phone and files to it: by adb, or by ssh. Both are the system's own programs."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sdk import files, toolchain
from sdk.errors import BuildFailed, DeviceFailed, DeviceMissing, TowlineError, UsageError

PATIENCE = 15
"""Seconds for a connection."""
ENDED = 75
"""Status of the phone's program when its input ended: runner/main.c."""
ALIVE, SILENT = 5, 3
"""Seconds between ssh's questions to the host, and how many without an answer end the connection."""
FILES = 600
"""Seconds for a file, and for a command that only manages files."""


@dataclass(frozen=True)
class Said:
    """What a command answered.

    Attributes:
        status: its exit status; None if the connection ended before it did.
        out, err: what it printed.
    """

    status: int | None
    out: str
    err: str


class Link(Protocol):
    """A way to a phone.

    Attributes:
        where: for errors, for example "adb 1A2B3C".
        medium: for hints, what may be bad: "the cable or the network".
        home: the directory for ours, as a shell on the phone writes it.
    """

    where: str
    medium: str
    home: str

    def shell(self, script: str, timeout: float | None = FILES) -> Said:
        """Run a shell script on the phone; its input stays open until it ends.

        Raises:
            DeviceMissing: the phone refuses us, or is not there.
            DeviceFailed: it does not answer within `timeout` seconds.
        """

    def send(self, local: Path, remote: str) -> str:
        """Write a file; what went wrong, in words, or "". Raises as `shell`."""

    def fetch(self, remote: str, local: Path) -> str:
        """Read a file; likewise."""


_STATUS = "towline-status "
_CONTENT = "towline-content"


def _script(script: str) -> str:
    # The phone's login shell may be any, and it may print a greeting.
    return f"sh -c {shlex.quote(f'echo; ({script}); s=$?; echo; echo {_STATUS}$s')}"


def _said(done: subprocess.CompletedProcess[str]) -> Said:
    before, mark, after = done.stdout.replace("\r\n", "\n").rpartition(f"\n{_STATUS}")
    status = int(after.strip()) if mark and after.strip().isdigit() else None
    return Said(status, before if mark else done.stdout, done.stderr)


def _run(
    tool: str, args: Sequence[str], timeout: float | None, where: str
) -> subprocess.CompletedProcess[str]:
    """Run adb or ssh; its standard input is open and silent until it ends.

    Its outputs are files: adb leaves a server behind, which would keep pipes open.
    """
    argv = toolchain.command(tool, args)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=err)
        except OSError as problem:
            raise BuildFailed(f"it could not be started: {problem.strerror}", where=tool) from None
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise DeviceFailed(
                f"the phone did not answer within {timeout:g} s",
                where=where,
                hint="is it asleep or unplugged?",
            ) from None
        finally:
            if process.stdin is not None:
                process.stdin.close()
            if process.poll() is None:
                process.kill()
                process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return subprocess.CompletedProcess(argv, process.returncode, *texts)


# -- adb ------------------------------------------------------------------------------------------------

_STATES = {
    "unauthorized": (
        "the phone has not authorised this computer",
        "unlock the phone and accept its dialogue 'Allow USB debugging?'; adb kill-server asks again",
    ),
    "offline": ("the phone is offline for adb", "unplug it and plug it in again; adb reconnect"),
    "no permissions": (
        "this user may not open the phone's USB device",
        "sudo apt-get install android-sdk-platform-tools-common (udev rules), then plug the phone in again",
    ),
}


class Adb:
    """An Android phone with USB debugging.

    Args:
        serial: which one; None for the only one.

    Raises:
        ToolMissing: there is no adb.
        DeviceMissing: no such phone, or it is not ready.
        UsageError: several, and no serial number.
    """

    medium = "the cable or the network"
    home = "/data/local/tmp/towline-push"

    def __init__(self, serial: str | None) -> None:
        self.where = "adb"
        listed = _run("adb", ["devices"], FILES, self.where)
        if listed.returncode:
            raise DeviceMissing(f"adb devices failed: {listed.stderr.strip()}", where="adb")
        # A serial number may have spaces (evidence: published, of phones by Wi-Fi and of some vendors).
        _, _, rows = listed.stdout.partition("List of devices attached")
        listing = [row.partition("\t") for row in rows.splitlines()]
        phones = {name: state for name, tab, state in listing if tab}
        if serial is None:
            if len(phones) > 1:
                raise UsageError(
                    f"adb has {len(phones)} phones: {', '.join(phones)}",
                    hint=f"name one: --adb {shlex.quote(next(iter(phones)))}",
                )
            serial = next(iter(phones), None)
        if serial is None or serial not in phones:
            raise DeviceMissing(
                "adb has no phone" + (f" {serial}" if serial else ""),
                where="adb",
                hint="plug it in, and switch USB debugging on in its developer options; adb devices lists it",
            )
        self._serial = serial
        self.where = f"adb {serial}"
        state = phones[serial].strip()
        if state.startswith("no permissions"):  # adb appends what to read
            state = "no permissions"
        if state != "device":
            message, hint = _STATES.get(
                state, (f"the phone is in the state {state!r}", "start Android on it")
            )
            raise DeviceMissing(message, where=self.where, hint=hint)

    def shell(self, script: str, timeout: float | None = FILES) -> Said:
        return _said(self._adb("shell", _script(script), timeout=timeout))

    def send(self, local: Path, remote: str) -> str:
        return self._copied("push", str(local), remote)

    def fetch(self, remote: str, local: Path) -> str:
        return self._copied("pull", remote, str(local))

    def _copied(self, *args: str) -> str:
        done = self._adb(*args)
        return (done.stderr or done.stdout).strip() or "adb failed" if done.returncode else ""

    def _adb(self, *args: str, timeout: float | None = FILES) -> subprocess.CompletedProcess[str]:
        return _run("adb", ["-s", self._serial, *args], timeout, self.where)


# -- ssh ------------------------------------------------------------------------------------------------

_REFUSALS = (
    (
        "host key verification failed",
        "the host's key is not known, or has changed",
        "log in once by hand: {0}",
    ),
    ("permission denied", "the host refuses this user", "it takes keys only here: ssh-copy-id, then {0}"),
    ("could not resolve", "there is no such host", "check the name, or give an address"),
    (
        "connection refused",
        "nothing answers ssh there",
        "start sshd on the phone; Termux has it at port 8022",
    ),
    ("timed out", "the host does not answer", "is it on, and in the same network?"),
    ("no route", "the host cannot be reached", "is it on, and in the same network?"),
)


class Ssh:
    """A phone that runs Linux, or Termux; keys only, no password is asked for.

    Args:
        host: as ssh takes it: a name of its configuration, user@host, or ssh://user@host:port.

    Raises:
        ToolMissing: there is no ssh.
        UsageError: that is no host.
    """

    medium = "the network"
    home = '"${XDG_CACHE_HOME:-$HOME/.cache}/towline-push"'

    def __init__(self, host: str) -> None:
        if not host or host.startswith("-"):
            raise UsageError(f"{host!r} is not a host", hint="for example --ssh user@phone")
        self.where = f"ssh {host}"
        self._host = host
        toolchain.find("ssh")

    def shell(self, script: str, timeout: float | None = FILES) -> Said:
        done = self._ssh(_script(script), timeout)
        said = _said(done)
        if said.status is None and done.returncode == 255:
            self._explain(done.stderr)
        return said

    def send(self, local: Path, remote: str) -> str:
        with local.open("rb") as file:
            return self._piped(f"cat > {remote}", stdin=file)

    def fetch(self, remote: str, local: Path) -> str:
        # As for `shell`, the login shell may print a greeting.
        with tempfile.TemporaryFile() as file:
            command = f"echo && echo {_CONTENT} && exec cat {remote}"
            if problem := self._piped(command, stdin=subprocess.DEVNULL, stdout=file):
                return problem
            file.seek(0)
            _, mark, content = file.read().partition(f"\n{_CONTENT}\n".encode())
        if not mark:
            return "the host's shell answered something else than the file"
        files.write(local, content)
        return ""

    def _piped(self, command: str, **streams: object) -> str:
        argv = toolchain.command("ssh", [*self._options(), f"exec sh -c {shlex.quote(command)}"])
        streams.setdefault("stdout", subprocess.DEVNULL)
        try:
            done = subprocess.run(  # type: ignore[call-overload]
                argv, stderr=subprocess.PIPE, timeout=FILES, check=False, **streams
            )
        except subprocess.TimeoutExpired:
            return f"nothing came within {FILES} s"
        said: str = done.stderr.decode(errors="replace").strip()
        return said or f"ssh ended with {done.returncode}" if done.returncode else ""

    def _options(self) -> list[str]:
        # A network that goes silent ends no connection by itself.
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": PATIENCE,
            "ServerAliveInterval": ALIVE,
            "ServerAliveCountMax": SILENT,
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["-T", *words, "--", self._host]

    def _ssh(self, command: str, timeout: float | None) -> subprocess.CompletedProcess[str]:
        return _run("ssh", [*self._options(), command], timeout, self.where)

    def _explain(self, stderr: str) -> None:
        for sign, meaning, hint in _REFUSALS:
            if sign in stderr.lower():
                raise DeviceMissing(
                    f"{meaning}: {_last_line(stderr)}", where=self.where, hint=hint.format(self.where)
                )


def _last_line(text: str) -> str:
    return next(reversed([line.strip() for line in text.splitlines() if line.strip()]), "it said nothing")


def ended(link: Link, said: Said) -> DeviceFailed:
    """The error of a connection that ended before what ran on the phone."""
    return DeviceFailed(
        f"the connection to the phone ended: {_last_line(said.err or said.out)}",
        where=link.where,
        hint=f"check {link.medium}; the program ends, and removes its files, when the phone notices",
    )


def attempt(action: Callable[[], object]) -> None:
    """Do something on a phone that may be gone: what fails is left."""
    with contextlib.suppress(TowlineError):
        action()

"""A process on the DSP: found, started, given objects to load, ended.

Order (evidence: published, Qualcomm's library and an open runtime on an SD845): open the node, create a
process with the shell (the program that every process on a DSP is; its file belongs to the DSP's firmware),
announce the listener, `remotectl.open` of an object's URI, calls. An unsigned process takes any object, and
is what retail devices allow on their compute DSP; a signed one takes objects signed for the device.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from dsp.hexagon.fastrpc.android import AndroidNode
from dsp.hexagon.fastrpc.channel import Channel, DspError
from dsp.hexagon.fastrpc.listener import Listener
from dsp.hexagon.fastrpc.mainline import MainlineNode
from dsp.hexagon.fastrpc.memory import DmaBuffer
from dsp.hexagon.fastrpc.node import Node
from dsp.hexagon.fastrpc.system import SystemCalls
from dsp.hexagon.fastrpc.uapi import DOMAINS, Attribute
from sdk.errors import DeviceFailed, DeviceMissing, UsageError

REMOTECTL, CURRENT_PROCESS = 0, 4
"""Handles of modules that every process has (evidence: published). 1 is the kernel's own."""
OPEN, CLOSE, EXIT = 0, 1, 2

LIBRARY_PATH = "DSP_LIBRARY_PATH"
"""Environment variable with directories of the DSP's files, semicolons between: Qualcomm's name for it."""
LIBRARY_DIRECTORIES = (
    *("/usr/lib/dsp/{0}", "/usr/lib/dsp", "/usr/lib/qcom/{0}", "/usr/lib/rfsa/adsp"),
    *("/vendor/dsp/{0}", "/vendor/dsp", "/dsp/{0}", "/dsp"),
)
"""Where distributions and devices keep them, by domain (evidence: published)."""
DEVICE_LIBRARIES = "/usr/share/qcom"
"""And linux-msm's collection: SOC/VENDOR/DEVICE/dsp/DOMAIN."""

NODES: dict[str, type[Node]] = {node.kind: node for node in (MainlineNode, AndroidNode)}
"""In the order in which they are tried."""

ERROR_TEXT = 255

EXAMPLES = (
    "for example fastrpc, fastrpc?domain=cdsp, fastrpc?domain=adsp, fastrpc?pd=signed, "
    "fastrpc?node=android, fastrpc?node=mainline, fastrpc?contexts=1"
)
"""Of device strings."""

log = logging.getLogger(__name__)


class ConnectionLost(DeviceFailed):
    """The kernel refused a request in a way after which a new connection may work."""


class Place(NamedTuple):
    """Where a DSP may be, and the kind of process there; `signed` None: by the shell that is there."""

    path: str
    domain: str
    signed: bool | None
    node: type[Node]


@dataclass(frozen=True)
class Choice:
    """What a device string asks for.

    Attributes:
        domain: "cdsp" or "adsp"; None for the compute DSP, or the audio DSP where there is no other.
        signed: whether the process takes only signed objects; None for what the DSP offers.
        node: "mainline" or "android": the kernel's driver; None for the one that is there, mainline's first.
        contexts: HVX contexts that share an inference, 1 or 2; None for as many as program and DSP have.
    """

    domain: str | None = None
    signed: bool | None = None
    node: str | None = None
    contexts: int | None = None

    @staticmethod
    def parse(device: str) -> Choice:
        """Of "fastrpc", or "fastrpc?domain=cdsp&pd=signed&node=android".

        Raises:
            UsageError: another device, or an unknown option.
        """
        kind, asked, options_text = device.partition("?")
        if kind != "fastrpc":
            raise UsageError(f"{device!r} is no device of FastRPC", hint=EXAMPLES)
        choice = {}
        for option in options_text.split("&") if asked else ():
            key, _, value = option.partition("=")
            options = {
                "domain": tuple(DOMAINS),
                "pd": ("signed", "unsigned"),
                "node": tuple(NODES),
                "contexts": ("1", "2"),
            }
            if value not in options.get(key, ()):
                raise UsageError(
                    f"unknown option {option!r} in the device {device!r}",
                    hint=EXAMPLES,
                )
            choice[key] = value
        signed = choice["pd"] == "signed" if "pd" in choice else None
        contexts = int(choice["contexts"]) if "contexts" in choice else None
        return Choice(choice.get("domain"), signed, choice.get("node"), contexts)

    def places(self) -> list[Place]:
        """What to try, in this order; only the compute DSP takes unsigned objects."""
        places = []
        for node in [NODES[self.node]] if self.node else NODES.values():
            for domain in [self.domain] if self.domain else ["cdsp", "adsp"]:
                usual = None if node.signed_by_shell and domain == "cdsp" else domain == "adsp"
                signed = usual if self.signed is None else self.signed
                places += [Place(p, domain, signed, node) for p in node.paths(domain, signed=bool(signed))]
        return places


class Domain:
    """A process on the DSP; a context manager.

    One program may have one at a time (guess: older DSPs know it by the program's process).

    Args:
        system: the seam.
        choice: which DSP, and which kind of process.
        files: the objects it may load, by name.

    Attributes:
        name: "cdsp" or "adsp".
        node: the open node.
        channel: for calls.

    Raises:
        DeviceMissing: there is no such DSP, no shell for it, or no permission to use it.
        ConnectionLost: it did not start; a second attempt may succeed.
        DeviceFailed: it did not start.
    """

    def __init__(self, system: SystemCalls, choice: Choice, files: Mapping[str, bytes]) -> None:
        self._closed = False
        self._listener: Listener | None = None
        self._shell_buffer: DmaBuffer | None = None
        self.node, signed = _open_node(system, choice)
        self.name = self.node.domain
        self.channel = Channel(self.node)
        try:
            directories = library_directories(self.name)
            shell, self._signed = _shell(self.name, signed, directories)
            self._create(shell)
            listener = Listener(self.channel, files, directories)
            with self._explained("the start of its listener"):
                listener.start()
            self._listener = listener
        except BaseException:
            self.close()
            raise

    def open(self, file: str, entry: str) -> int:
        """Have an object of `files` loaded: the handle for calls.

        Raises:
            DeviceFailed: it does not load, with the loader's own message.
        """
        uri = f"file:///{file}?{entry}&_modver=1.0&_dom={self.name}"
        with self._explained("the loading of the network"):
            (handle, error), (text,) = self.channel.call(
                REMOTECTL, OPEN, "the loading of the network", (), [uri.encode() + b"\0"], 2, [ERROR_TEXT]
            )
        if error:
            said = text.split(b"\0")[0].decode("utf-8", "replace")
            raise refused_by_loader(self.name, error - (error >> 31 << 32), said, self._remedy())
        return handle

    def release(self, handle: int) -> None:
        """Unload what `open` loaded."""
        self.channel.call(REMOTECTL, CLOSE, "the unloading of the network", (handle,), (), 1, [ERROR_TEXT])

    def close(self) -> None:
        """End the process."""
        if self._closed:
            return
        self._closed = True
        if self._listener is not None:
            # The process ends instead of answering: any result is accepted. The listener's call ends too.
            with contextlib.suppress(OSError, DspError):
                self.channel.call(CURRENT_PROCESS, EXIT, "the end of its process")
            if not self._listener.join(seconds=2):
                # Keep the descriptors: its next call must not go to another file that gets their numbers.
                log.warning("the listener still waits; the process on the DSP ends with this program")
                return
        self.node.close()
        if self._shell_buffer is not None:
            self._shell_buffer.close()

    def __enter__(self) -> Domain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    # -- starting ---------------------------------------------------------------------------------------

    def _create(self, shell: Path) -> None:
        try:
            content = shell.read_bytes()
        except OSError as error:
            raise DeviceMissing(
                f"the DSP's shell cannot be read: {error.strerror}", where=str(shell)
            ) from error
        with self._explained("the start of a process", len(content)):
            self.node.prepare()
            # Kept open as long as the node: mainline's driver keeps its map, and until 6.18 uses it for any
            # later buffer with the same descriptor (evidence: published, "Fix fastrpc_map_lookup operation").
            self._shell_buffer = buffer = DmaBuffer(self.node, len(content))
            buffer.write(content)
            result = self.node.create(buffer.argument, signed=self._signed)
            if result:
                raise DspError(result, "the start of a process")
        log.info("a process on the %s, from %s, by %s", self.name, shell, self.node.path)

    @contextlib.contextmanager
    def _explained(self, what: str, shell_bytes: int = 0) -> Iterator[None]:
        """The kernel's errors, and the DSP's, become the device's, with what to do."""
        try:
            with self.kernel(what, shell_bytes):
                yield
        except DspError as error:
            raise DeviceFailed(error.message, where=self.name, hint=self._remedy()) from error

    @contextlib.contextmanager
    def kernel(self, what: str, shell_bytes: int = 0) -> Iterator[None]:
        """The kernel's errors become the device's.

        Raises:
            ConnectionLost: a new connection may work.
            DeviceFailed: any other error.
        """
        try:
            yield
        except OSError as error:
            number = error.errno or 0
            reason = error.strerror or os.strerror(number)
            raise refused_by_kernel(type(self.node), self.name, what, number, reason, shell_bytes) from error

    def _remedy(self) -> str:
        """What to do about a refusal by the DSP, from the capabilities that it reports."""
        capability = self.node.capability
        return remedy(
            signed=self._signed,
            unsigned=capability(Attribute.UNSIGNED_PD_SUPPORT),
            architecture=capability(Attribute.ARCH_VER),
        )


# -- refusals: of a session, and of the phone's program ------------------------------------------------------


def refused_by_kernel(
    node: type[Node], domain: str, what: str, number: int, reason: str, shell_bytes: int = 0
) -> DeviceFailed:
    """The error of a request with this errno; a ConnectionLost if a new connection may work."""
    message, hint = node.explain(number, domain, shell_bytes)
    kind = ConnectionLost if number in node.lost else DeviceFailed
    return kind(f"the kernel refused {what}: {reason}{message}", where=domain, hint=hint)


def refused_by_loader(domain: str, error: int, said: str, hint: str) -> DeviceFailed:
    """The error of an object that the DSP's loader does not take."""
    message = f"the DSP's loader refused the network: error {error}: {said or 'nothing'}"
    return DeviceFailed(message, where=domain, hint=hint)


def remedy(*, signed: bool, unsigned: int | None = None, architecture: int | None = None) -> str:
    """What to do about a refusal by the DSP; the capabilities that it reports are None if unknown."""
    if signed:
        return (
            "a signed process takes objects that are signed for this device, or a test signature "
            "(testsig-0x....so for its serial number, where the fuses allow it) in a directory of "
            f"{LIBRARY_PATH}; "
            + ("use fastrpc?pd=unsigned" if unsigned else "this needs the device's manufacturer")
        )
    if unsigned == 0:
        return (
            "this DSP reports that it has no unsigned processes (capability UNSIGNED_PD_SUPPORT is 0): "
            "use fastrpc?pd=signed with a test signature for the device"
        )
    known = f"; the DSP is a v{architecture & 0xFF:x}" if architecture else ""
    return (
        "the shell must be from exactly the firmware that the DSP runs (dmesg and `strings` of both show "
        f"the build), and the network compiled for a DSP no newer than this{known}"
    )


def not_opened(problems: Sequence[tuple[str, type[Node], int]]) -> DeviceMissing:
    """The error of nodes of which none may be opened, with each driver's hint: (path, node, errno)."""
    first = {node: (path, number) for path, node, number in reversed(problems)}
    (where, number), *others = [first[node] for node in NODES.values() if node in first]
    message = f"cannot be opened: {os.strerror(number)}"
    message += "".join(f"; nor {path}: {os.strerror(number)}" for path, number in others)
    hints = [node.access(first[node][1], first[node][0]) for node in NODES.values() if node in first]
    return DeviceMissing(message, where=where, hint="; or: ".join(hints))


def no_node(choice: Choice) -> DeviceMissing:
    """The error of a machine that has none."""
    first = {place.node: place.path for place in reversed(choice.places())}
    kinds = sorted(first, key=list(NODES.values()).index)
    return DeviceMissing(
        "there is no FastRPC node: this is not a Snapdragon, or its DSP is not running",
        where=" or ".join(first[kind] for kind in kinds),
        hint=f"needed: {'; or '.join(kind.needs for kind in kinds)}",
    )


def shells(domain: str, signed: bool | None) -> dict[bool, str]:
    """Names of the programs that every process on the DSP runs, by whether it takes only signed objects."""
    kinds = [False, True] if signed is None else [signed]
    return {kind: f"fastrpc_shell_{'' if kind else 'unsigned_'}{DOMAINS[domain]}" for kind in kinds}


def no_shell(domain: str, signed: bool | None, where: str, remedy: str) -> DeviceMissing:
    """The error of a DSP without one."""
    return DeviceMissing(
        f"the DSP's shell {' or '.join(shells(domain, signed).values())} was not found{where}",
        hint="it belongs to the DSP's firmware: copy /vendor/dsp from the device's own system, or use "
        f"linux-msm's hexagon-dsp-binaries for this device, and set {LIBRARY_PATH} {remedy}",
    )


# -- what there is -------------------------------------------------------------------------------------------


def _open_node(system: SystemCalls, choice: Choice) -> tuple[Node, bool | None]:
    """The first node that exists and that we may open, and which kind of process it is for."""
    problems = []
    for path, domain, signed, node in choice.places():
        try:
            return node(system, path, domain), signed
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENXIO):
                problems.append((path, node, error.errno or 0))
    raise not_opened(problems) if problems else no_node(choice)


def nodes() -> list[tuple[str, bool, str]]:
    """(path, whether this program may open it, else what to do) of the nodes that exist."""
    found = {}
    for path, _, _, node in Choice().places():
        if os.path.exists(path):
            mode = os.R_OK if node.flags & os.O_ACCMODE == os.O_RDONLY else os.R_OK | os.W_OK
            usable = os.access(path, mode)
            found[path] = (path, usable, "" if usable else node.access(errno.EACCES, path))
    return list(found.values())


def library_directories(domain: str) -> list[Path]:
    """The existing directories where the DSP's own files may be, the user's first."""
    own = [Path(name) for name in os.environ.get(LIBRARY_PATH, "").split(";") if name]
    standard = [Path(name.format(domain)) for name in LIBRARY_DIRECTORIES]
    devices = sorted(Path(DEVICE_LIBRARIES).glob(f"*/*/*/dsp/{domain}"))
    # Not Path.is_dir, which raises where a directory on the way may not be searched.
    return [directory for directory in [*own, *standard, *devices] if os.path.isdir(directory)]


def _shell(domain: str, signed: bool | None, directories: Sequence[Path]) -> tuple[Path, bool]:
    """The program that every process on the DSP runs, and whether its processes take only signed objects.

    Raises:
        DeviceMissing: it was not found.
    """
    for kind, name in shells(domain, signed).items():
        for directory in directories:
            if os.path.isfile(directory / name):
                return directory / name, kind
    where = f" in {', '.join(map(str, directories))}" if directories else ""
    raise no_shell(domain, signed, where, "to the directory")

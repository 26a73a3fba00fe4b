"""A process on the DSP: found, started, given objects to load, ended.

Order (evidence: published, Qualcomm's library and an open runtime on an SD845): open the node, `INIT_CREATE`
with the shell (the program that every process on a DSP is; its file belongs to the DSP's firmware), announce
the listener, `remotectl.open` of an object's URI, calls. An unsigned process takes any object, and is what
retail devices allow on their compute DSP; a signed one takes objects signed for the device.
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

from dsp.hexagon.fastrpc.channel import Channel, DspError
from dsp.hexagon.fastrpc.listener import Listener
from dsp.hexagon.fastrpc.system import DmaBuffer, SystemCalls
from dsp.hexagon.fastrpc.uapi import (
    DOMAINS,
    MODE_UNSIGNED_MODULE,
    SHELL_BYTES_MAX,
    Attribute,
    Capability,
    InitCreate,
    Request,
)
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

VENDOR_NODES = ("/dev/adsprpc-smd", "/dev/adsprpc-smd-secure")
"""Of Android's vendor kernels, which use other requests."""

ERROR_TEXT = 255

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """What a device string asks for.

    Attributes:
        domain: "cdsp" or "adsp"; None for the compute DSP, or the audio DSP where there is no other.
        signed: whether the process takes only signed objects; None for what the DSP offers.
    """

    domain: str | None = None
    signed: bool | None = None

    @staticmethod
    def parse(device: str) -> Choice:
        """Of "fastrpc", or "fastrpc?domain=cdsp&pd=signed".

        Raises:
            UsageError: an unknown option.
        """
        choice = {}
        for option in device.partition("?")[2].split("&") if "?" in device else ():
            key, _, value = option.partition("=")
            known = {"domain": tuple(DOMAINS), "pd": ("signed", "unsigned")}.get(key, ())
            if value not in known:
                raise UsageError(
                    f"unknown option {option!r} in the device {device!r}",
                    hint="for example fastrpc, fastrpc?domain=cdsp, fastrpc?domain=adsp, fastrpc?pd=signed",
                )
            choice[key] = value
        signed = choice["pd"] == "signed" if "pd" in choice else None
        return Choice(choice.get("domain"), signed)

    def nodes(self) -> list[tuple[str, str, bool]]:
        """(node, domain, signed) to try, in this order; only the compute DSP takes unsigned objects."""
        plans = []
        for domain in [self.domain] if self.domain else ["cdsp", "adsp"]:
            signed = domain == "adsp" if self.signed is None else self.signed
            names = [f"/dev/fastrpc-{domain}", f"/dev/fastrpc-{domain}-secure"]
            plans += [(name, domain, signed) for name in (reversed(names) if signed else names)]
        return plans


class Domain:
    """A process on the DSP; a context manager.

    One program may have one at a time (guess: older DSPs know it by the program's process).

    Args:
        system: the seam.
        choice: which DSP, and which kind of process.
        files: the objects it may load, by name.

    Attributes:
        name: "cdsp" or "adsp".
        channel: for calls.

    Raises:
        DeviceMissing: there is no such DSP, no shell for it, or no permission to use it.
        DeviceFailed: it did not start.
    """

    def __init__(self, system: SystemCalls, choice: Choice, files: Mapping[str, bytes]) -> None:
        self._closed = False
        self._listener: Listener | None = None
        self._shell_buffer: DmaBuffer | None = None
        descriptor, self.name, self._signed = _open_node(system, choice)
        self.channel = Channel(system, descriptor)
        try:
            directories = library_directories(self.name)
            self._create(_shell(self.name, self._signed, directories))
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
            said = text.split(b"\0")[0].decode("utf-8", "replace") or "nothing"
            raise DeviceFailed(
                f"the DSP's loader refused the network: error {error - (error >> 31 << 32)}: {said}",
                where=self.name,
                hint=self._remedy(),
            )
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
        self.channel.system.close(self.channel.descriptor)
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
        system, descriptor = self.channel.system, self.channel.descriptor
        attributes = 0 if self._signed else MODE_UNSIGNED_MODULE
        with self._explained("the start of a process", shell):
            # Kept open as long as the node: the driver keeps its map, and until 6.18 uses it for any later
            # buffer with the same descriptor (evidence: published, "Fix fastrpc_map_lookup operation").
            self._shell_buffer = buffer = DmaBuffer(system, descriptor, len(content))
            buffer.write(content)
            create = InitCreate(buffer.nbytes, buffer.descriptor, attributes, 0, buffer.address)
            result = system.ioctl(descriptor, Request.INIT_CREATE, create)
            if result:
                raise DspError(result, "the start of a process")
        log.info("a process on the %s, from %s", self.name, shell)

    @contextlib.contextmanager
    def _explained(self, what: str, shell: Path | None = None) -> Iterator[None]:
        try:
            yield
        except DspError as error:
            raise DeviceFailed(error.message, where=self.name, hint=self._remedy()) from error
        except OSError as error:
            message, hint = self._kernel_refusal(error.errno or 0, shell)
            raise DeviceFailed(
                f"the kernel refused {what}: {error.strerror}{message}", where=self.name, hint=hint
            ) from error

    def _kernel_refusal(self, number: int, shell: Path | None) -> tuple[str, str]:
        """What an error of the kernel means here, and what to do."""
        if number == errno.ECONNREFUSED:
            return ": the node starts only unsigned processes, or its DSP starts none", (
                f"use fastrpc?pd=unsigned on the cdsp, or get access to /dev/fastrpc-{self.name}-secure for "
                "a signed one"
            )
        if number == errno.EINVAL and shell is not None and shell.stat().st_size > SHELL_BYTES_MAX:
            return f": the shell has {shell.stat().st_size:,} bytes", (
                "kernels before mid 2024 take at most 2 MiB: use a newer kernel"
            )
        if number in (errno.EPIPE, errno.ETIMEDOUT):
            return ": the DSP is down, or does not answer", (
                "see /sys/class/remoteproc/*/state and dmesg; write start to the state that is offline"
            )
        return "", "dmesg has the driver's reason"

    def _remedy(self) -> str:
        """What to do about a refusal by the DSP, from the capabilities that it reports."""
        unsigned = self.capability(Attribute.UNSIGNED_PD_SUPPORT)
        if self._signed:
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
        architecture = self.capability(Attribute.ARCH_VER)
        known = f"; the DSP is a v{architecture & 0xFF:x}" if architecture else ""
        return (
            "the shell must be from exactly the firmware that the DSP runs (dmesg and `strings` of both show "
            f"the build), and the network compiled for a DSP no newer than this{known}"
        )

    def capability(self, attribute: Attribute) -> int | None:
        """A capability that the DSP reports; None if it, or the kernel, does not report it."""
        query = Capability(DOMAINS[self.name], attribute, 0xFFFF_FFFF)
        try:
            if self.channel.system.ioctl(self.channel.descriptor, Request.GET_DSP_INFO, query):
                return None
        except OSError:
            return None
        return int(query.domain if query.capability == 0xFFFF_FFFF else query.capability)


def _open_node(system: SystemCalls, choice: Choice) -> tuple[int, str, bool]:
    """(descriptor, domain, signed) of the first node that exists and that we may open."""
    problems = []
    for node, domain, signed in choice.nodes():
        try:
            return system.open(node), domain, signed
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENXIO):
                problems.append((node, error))
    if not problems:
        return _no_node(system, choice)
    node, problem = problems[0]
    hints = {
        errno.EACCES: f"as root: chgrp to one of your groups and chmod g+rw {node}; permanently, by a udev "
        'rule SUBSYSTEM=="misc", KERNEL=="fastrpc-*", GROUP="render", MODE="0660"',
        errno.EBUSY: "end the program that uses the DSP: the DSP has its maximum number of processes",
    }
    hint = hints.get(problem.errno or 0, "dmesg has the driver's reason")
    raise DeviceMissing(f"cannot be opened: {problem.strerror}", where=node, hint=hint)


def _no_node(system: SystemCalls, choice: Choice) -> tuple[int, str, bool]:
    for node in VENDOR_NODES:
        try:
            system.close(system.open(node))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENXIO):
                continue
        raise DeviceMissing(
            "this is an Android vendor's kernel, whose FastRPC requests differ from mainline's",
            where=node,
            hint="boot a mainline kernel (postmarketOS, Debian); docs/phone.md has more",
        )
    node = choice.nodes()[0][0]
    raise DeviceMissing(
        "there is no FastRPC node: this is not a Snapdragon, or its DSP is not running",
        where=node,
        hint="needed: CONFIG_QCOM_FASTRPC, a device tree with the DSP's fastrpc node, and its firmware; "
        "see dmesg and /sys/class/remoteproc/*/state",
    )


def library_directories(domain: str) -> list[Path]:
    """The existing directories where the DSP's own files may be, the user's first."""
    own = [Path(name) for name in os.environ.get(LIBRARY_PATH, "").split(";") if name]
    standard = [Path(name.format(domain)) for name in LIBRARY_DIRECTORIES]
    devices = sorted(Path(DEVICE_LIBRARIES).glob(f"*/*/*/dsp/{domain}"))
    # Not Path.is_dir, which raises where a directory on the way may not be searched.
    return [directory for directory in [*own, *standard, *devices] if os.path.isdir(directory)]


def _shell(domain: str, signed: bool, directories: Sequence[Path]) -> Path:
    """The program that every process on the DSP runs.

    Raises:
        DeviceMissing: it was not found.
    """
    name = f"fastrpc_shell_{'' if signed else 'unsigned_'}{DOMAINS[domain]}"
    for directory in directories:
        if os.path.isfile(directory / name):
            return directory / name
    raise DeviceMissing(
        f"the DSP's shell {name} was not found"
        + (f" in {', '.join(map(str, directories))}" if directories else ""),
        hint="it belongs to the DSP's firmware: copy /vendor/dsp from the device's own system, or use "
        f"linux-msm's hexagon-dsp-binaries for this device, and set {LIBRARY_PATH} to the directory",
    )

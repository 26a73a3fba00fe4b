"""The FastRPC driver of Android's vendor kernels: /dev/adsprpc-smd. Not yet run on hardware.

Order of a session, and what is asked in it: trace (an open runtime that ran on a Snapdragon 845). What the
driver answers: published (the vendor's adsprpc.c, Linux 4.9). That runtime passed its buffers as handles,
which its code on the DSP mapped with HAP_mmap. Here they are buffers of the call with a descriptor, as on
mainline's node, and the driver maps them (published: the driver; Qualcomm's library does so with memory that
a program registered): the network's object needs nothing of the DSP's image for that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Sequence

from dsp.hexagon.fastrpc import uapi_android as uapi
from dsp.hexagon.fastrpc.marshal import Scalars
from dsp.hexagon.fastrpc.node import DMA_HEAP, NO_DESCRIPTOR, Argument, Node, heap_buffer, require_zero
from dsp.hexagon.fastrpc.uapi import DOMAINS, MODE_UNSIGNED_MODULE, SHELL_BYTES_MAX
from dsp.hexagon.fastrpc.uapi_android import AndroidRequest as Request

ION = "/dev/ion"
PATHS = ("/dev/adsprpc-smd", "/dev/adsprpc-smd-secure")
DRIVER_LOG = "dmesg | grep adsprpc, as root, has the driver's reason"


class AndroidNode(Node):
    """A node of a vendor's driver. One node serves all DSPs."""

    kind = "android"
    needs = "an Android vendor's kernel for a Snapdragon"
    signed_by_shell = True
    # Programs may not open it for writing (published: its mode is 0664).
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    # EPERM is -1, which the driver answers to any failed check; a DSP that restarted resets the connection.
    lost = frozenset({errno.EPERM, errno.ECONNRESET})

    @staticmethod
    def paths(domain: str, *, signed: bool) -> list[str]:
        # The first serves the compute DSP alone, in drivers that have both (published).
        return list(PATHS if domain == "cdsp" else PATHS[::-1])

    @staticmethod
    def access(number: int, path: str) -> str:
        if number in (errno.EACCES, errno.EPERM):
            return SELINUX
        return DRIVER_LOG

    def prepare(self) -> None:
        self._require_zero(Request.GETINFO, uapi.Info(DOMAINS[self.domain]))
        control = uapi.Control(uapi.CONTROL_KALLOC)
        self._require_zero(Request.CONTROL, control)
        if not control.value:
            raise OSError(errno.ENOTTY, f"{os.strerror(errno.ENOTTY)}: the driver has no kalloc")

    def create(self, shell: Argument, *, signed: bool) -> int:
        init = uapi.Init(uapi.INIT_CREATE, shell.address, shell.nbytes, shell.descriptor, 0, 0, NO_DESCRIPTOR)
        if signed:
            return self._ioctl(Request.INIT, init)
        return self._ioctl(Request.INIT_ATTRS, uapi.InitAttrs(init, MODE_UNSIGNED_MODULE, 0))

    def invoke(self, handle: int, scalars: Scalars, arguments: Sequence[Argument]) -> int:
        count = len(arguments)
        table = (uapi.RemoteArg * count)(
            *(uapi.RemoteArg(address, nbytes) for address, nbytes, _ in arguments)
        )
        call = uapi.Invoke(handle, scalars.word, ctypes.addressof(table) if arguments else 0)
        if all(descriptor == NO_DESCRIPTOR for *_, descriptor in arguments):
            return self._ioctl(Request.INVOKE, call)
        fds = (ctypes.c_int32 * count)(*(descriptor for *_, descriptor in arguments))
        # No attributes: 1, a buffer without an address on the DSP, is for handles alone.
        attributes = (ctypes.c_uint32 * count)()
        mapped = uapi.InvokeAttrs(call, ctypes.addressof(fds), ctypes.addressof(attributes))
        return self._ioctl(Request.INVOKE_ATTRS, mapped)

    def allocate(self, nbytes: int) -> int:
        buffer = heap_buffer(self.system, nbytes)
        if buffer is not None:
            return buffer
        try:
            ion = self.system.open(ION, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            reason = f"{error.strerror}: no memory for buffers from {DMA_HEAP} or {ION}"
            raise OSError(error.errno, reason) from error
        try:
            return self._allocate_ion(ion, nbytes)
        finally:
            self.system.close(ion)

    def _allocate_ion(self, ion: int, nbytes: int) -> int:
        old = uapi.IonAllocate(nbytes, os.sysconf("SC_PAGESIZE"), uapi.ION_HEAP_SYSTEM, uapi.ION_CACHED)
        try:
            require_zero(self.system.ioctl(ion, Request.ION_ALLOC, old))
        except OSError as error:
            # Later ones do not know the request, or refuse its size.
            if error.errno not in (errno.ENOTTY, errno.EINVAL):
                raise
            new = uapi.IonAllocateNew(nbytes, uapi.ION_HEAP_SYSTEM, uapi.ION_CACHED)
            require_zero(self.system.ioctl(ion, Request.ION_ALLOC_NEW, new))
            return int(new.fd)
        try:
            share = uapi.IonShare(old.handle, -1)
            require_zero(self.system.ioctl(ion, Request.ION_SHARE, share))
            return int(share.fd)
        finally:  # the descriptor keeps the buffer
            require_zero(self.system.ioctl(ion, Request.ION_FREE, uapi.IonHandle(old.handle)))

    def forget(self, buffer: Argument) -> None:
        # The driver ends its map with each call; should one keep it, a later buffer with this descriptor
        # would be taken for this one (inferred). It refuses where there is no map.
        with contextlib.suppress(OSError):
            request = uapi.MunmapFd(buffer.descriptor, 0, buffer.address, buffer.nbytes)
            self._ioctl(Request.MUNMAP_FD, request)

    def grow(self, flags: int, nbytes: int) -> int:
        request = uapi.Mmap(NO_DESCRIPTOR, flags, 0, nbytes, 0)
        self._require_zero(Request.MMAP, request)
        return int(request.vaddrout)

    def shrink(self, address: int, nbytes: int) -> None:
        self._require_zero(Request.MUNMAP, uapi.Munmap(address, nbytes))

    def capability(self, attribute: int) -> int | None:
        """None: the drivers of the Snapdragon 845's time have no request for it."""
        return None

    @staticmethod
    def explain(number: int, domain: str, shell_bytes: int) -> tuple[str, str]:
        if number == errno.EACCES:
            return ": the system's policy forbids it", SELINUX
        if number == errno.ECONNREFUSED:
            return ": this program may start only unsigned processes", "use fastrpc?pd=unsigned"
        if number == errno.ENOTTY:
            return "", "the kernel is too old for this: it needs a driver as that of Linux 4.9, or later"
        if number == errno.EPERM and shell_bytes >= SHELL_BYTES_MAX:
            return f": the shell has {shell_bytes:,} bytes", (
                f"drivers of that time take less than 2 MiB; else: {DRIVER_LOG}"
            )
        if number == errno.EPERM:
            return ": the driver's answer to any failure", (
                f"{DRIVER_LOG}; a DSP that only the system may use needs {PATHS[1]}, thus root"
            )
        if number == errno.ECONNRESET:
            return ": the DSP restarted", f"{DRIVER_LOG}; if it crashes again, report the network"
        return "", DRIVER_LOG

    def _require_zero(self, request: Request, argument: ctypes.Structure) -> None:
        require_zero(self._ioctl(request, argument))

    def _ioctl(self, request: Request, argument: ctypes.Structure) -> int:
        try:
            result = self.system.ioctl(self.descriptor, request, argument)
        except OSError as error:
            if error.errno != errno.ENOTTY:
                raise
            raise OSError(errno.ENOTTY, f"{error.strerror}: the driver has no {request.name}") from error
        if result == errno.ECONNRESET:  # as a positive number (published)
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return result


SELINUX = (
    "on Android only the system's own programs may use the DSP: run as root, by adb root or su; if "
    "dmesg | grep avc names the node, SELinux refused it: setenforce 0 on a test device"
)
"""Evidence: inferred, from Android's public policies."""

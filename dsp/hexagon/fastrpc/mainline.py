"""Mainline's FastRPC driver: /dev/fastrpc-cdsp and its like (evidence: published, drivers/misc/fastrpc.c)."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence

from dsp.hexagon.fastrpc.marshal import Scalars
from dsp.hexagon.fastrpc.node import Argument, Node, heap_buffer, require_zero
from dsp.hexagon.fastrpc.uapi import (
    DOMAINS,
    MODE_UNSIGNED_MODULE,
    SHELL_BYTES_MAX,
    AllocDmaBuf,
    Capability,
    InitCreate,
    Invoke,
    InvokeArg,
    ReqMmap,
    ReqMunmap,
    Request,
)

UNSET = 0xFFFF_FFFF


class MainlineNode(Node):
    """A node of mainline's driver."""

    kind = "mainline"
    needs = (
        "CONFIG_QCOM_FASTRPC, a device tree with the DSP's fastrpc node, and its firmware; see dmesg and "
        "/sys/class/remoteproc/*/state"
    )
    flags = os.O_RDWR | os.O_CLOEXEC
    signed_by_shell = False

    @staticmethod
    def paths(domain: str, *, signed: bool) -> list[str]:
        paths = [f"/dev/fastrpc-{domain}", f"/dev/fastrpc-{domain}-secure"]
        return paths[::-1] if signed else paths

    @staticmethod
    def access(number: int, path: str) -> str:
        if number == errno.EACCES:
            return (
                f"as root: chgrp to one of your groups and chmod g+rw {path}; permanently, by a udev rule "
                'SUBSYSTEM=="misc", KERNEL=="fastrpc-*", GROUP="render", MODE="0660"'
            )
        if number == errno.EBUSY:
            return "end the program that uses the DSP: the DSP has its maximum number of processes"
        return "dmesg has the driver's reason"

    def prepare(self) -> None:
        """Nothing: the path says which DSP."""

    def create(self, shell: Argument, *, signed: bool) -> int:
        attributes = 0 if signed else MODE_UNSIGNED_MODULE
        request = InitCreate(shell.nbytes, shell.descriptor, attributes, 0, shell.address)
        return self.system.ioctl(self.descriptor, Request.INIT_CREATE, request)

    def invoke(self, handle: int, scalars: Scalars, arguments: Sequence[Argument]) -> int:
        table = (InvokeArg * len(arguments))(*(InvokeArg(*argument, 0) for argument in arguments))
        request = Invoke(handle, scalars.word, ctypes.addressof(table) if arguments else 0)
        return self.system.ioctl(self.descriptor, Request.INVOKE, request)

    def allocate(self, nbytes: int) -> int:
        buffer = heap_buffer(self.system, nbytes)
        if buffer is not None:
            return buffer
        own = AllocDmaBuf(-1, 0, nbytes)
        require_zero(self.system.ioctl(self.descriptor, Request.ALLOC_DMA_BUFF, own))
        return int(own.fd)

    def forget(self, buffer: Argument) -> None:
        """Nothing: the driver has no request for it."""

    def grow(self, flags: int, nbytes: int) -> int:
        request = ReqMmap(-1, flags, 0, nbytes, 0)
        require_zero(self.system.ioctl(self.descriptor, Request.MMAP, request))
        return int(request.vaddrout)

    def shrink(self, address: int, nbytes: int) -> None:
        require_zero(self.system.ioctl(self.descriptor, Request.MUNMAP, ReqMunmap(address, nbytes)))

    def capability(self, attribute: int) -> int | None:
        query = Capability(DOMAINS[self.domain], attribute, UNSET)
        try:
            if self.system.ioctl(self.descriptor, Request.GET_DSP_INFO, query):
                return None
        except OSError:
            return None
        # Kernels before mid 2024 put the answer where the domain is.
        return int(query.domain if query.capability == UNSET else query.capability)

    @staticmethod
    def explain(number: int, domain: str, shell_bytes: int) -> tuple[str, str]:
        if number == errno.ECONNREFUSED:
            return ": the node starts only unsigned processes, or its DSP starts none", (
                "use fastrpc?pd=unsigned on the cdsp, or get access to "
                f"/dev/fastrpc-{domain}-secure for a signed one"
            )
        if number == errno.EINVAL and shell_bytes > SHELL_BYTES_MAX:
            return f": the shell has {shell_bytes:,} bytes", (
                "kernels before mid 2024 take at most 2 MiB: use a newer kernel"
            )
        if number in (errno.EPIPE, errno.ETIMEDOUT):
            return ": the DSP is down, or does not answer", (
                "see /sys/class/remoteproc/*/state and dmesg; write start to the state that is offline"
            )
        return "", "dmesg has the driver's reason; a DSP that crashed restarts by itself"

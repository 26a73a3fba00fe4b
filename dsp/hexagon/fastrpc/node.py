"""The seam between one FastRPC driver and another: what mainline's node and Android's do differently."""

from __future__ import annotations

import abc
import errno
import os
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from dsp.hexagon.fastrpc.marshal import Scalars
from dsp.hexagon.fastrpc.system import SystemCalls
from dsp.hexagon.fastrpc.uapi import DmaHeapAlloc, Request

NO_DESCRIPTOR = -1
DMA_HEAP = "/dev/dma_heap/system"


class Argument(NamedTuple):
    """A buffer of a call: its address, its bytes, its descriptor if the DSP maps it."""

    address: int
    nbytes: int
    descriptor: int = NO_DESCRIPTOR


class Node(abc.ABC):
    """An open FastRPC node. Results are the DSP's: 0, or an AEE code; every method may raise OSError.

    Args:
        system: the seam to the kernel.
        path: the node's.
        domain: "cdsp" or "adsp".

    Attributes:
        system, path, domain: as given.
        descriptor: the open node's.

    Raises:
        OSError: it cannot be opened.
    """

    kind: ClassVar[str]
    """Its name in a device string."""
    needs: ClassVar[str]
    """What a machine needs in order to have it."""
    flags: ClassVar[int]
    """For `open`."""
    signed_by_shell: ClassVar[bool]
    """Whether a process on the cdsp is signed where it has no shell for unsigned ones, as older DSPs."""
    lost: ClassVar[frozenset[int]] = frozenset()
    """The errors after which a new connection may work."""

    def __init__(self, system: SystemCalls, path: str, domain: str) -> None:
        self.system, self.path, self.domain = system, path, domain
        self.descriptor = system.open(path, self.flags)

    def close(self) -> None:
        """Close the node; its process ends. Later requests fail, also if a file gets the number again."""
        self.system.close(self.descriptor)
        self.descriptor = NO_DESCRIPTOR

    @staticmethod
    @abc.abstractmethod
    def paths(domain: str, *, signed: bool) -> list[str]:
        """The paths at which a domain's nodes may be, the best one first."""

    @staticmethod
    @abc.abstractmethod
    def access(number: int, path: str) -> str:
        """What to do where a node exists and cannot be opened."""

    @abc.abstractmethod
    def prepare(self) -> None:
        """What comes before the process."""

    @abc.abstractmethod
    def create(self, shell: Argument, *, signed: bool) -> int:
        """Start a process."""

    @abc.abstractmethod
    def invoke(self, handle: int, scalars: Scalars, arguments: Sequence[Argument]) -> int:
        """Make a call."""

    @abc.abstractmethod
    def allocate(self, nbytes: int) -> int:
        """The descriptor of a new DMA buffer of whole pages."""

    @abc.abstractmethod
    def forget(self, buffer: Argument) -> None:
        """A buffer that was passed to the DSP is about to be closed."""

    @abc.abstractmethod
    def grow(self, flags: int, nbytes: int) -> int:
        """More heap for the process: its address on the DSP."""

    @abc.abstractmethod
    def shrink(self, address: int, nbytes: int) -> None:
        """Take it back."""

    @abc.abstractmethod
    def capability(self, attribute: int) -> int | None:
        """A capability that the DSP reports; None if it, or the kernel, does not report it."""

    @staticmethod
    @abc.abstractmethod
    def explain(number: int, domain: str, shell_bytes: int) -> tuple[str, str]:
        """What an error of the kernel means, and what to do; `shell_bytes` where a process was to start."""


def heap_buffer(system: SystemCalls, nbytes: int) -> int | None:
    """A buffer of the kernel's own heap; None where programs may not use it."""
    try:
        # Read-only is enough, and all that Android allows (evidence: published, AOSP's libdmabufheap).
        heap = system.open(DMA_HEAP, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        request = DmaHeapAlloc(nbytes, 0, os.O_RDWR | os.O_CLOEXEC, 0)
        require_zero(system.ioctl(heap, Request.DMA_HEAP_ALLOC, request))
        return int(request.fd)
    finally:
        system.close(heap)


def require_zero(result: int) -> None:
    """Raises OSError for any other."""
    if result:
        raise OSError(errno.EIO, f"the request answered {result:#x}")

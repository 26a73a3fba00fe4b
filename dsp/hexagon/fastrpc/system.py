"""The seam to the kernel: open, ioctl, map. The tests put a model of the kernel and the DSP in its place."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dsp.hexagon.fastrpc.uapi import (
    SYNC_END,
    SYNC_READ,
    SYNC_WRITE,
    AllocDmaBuf,
    DmaBufSync,
    DmaHeapAlloc,
    Request,
)

DMA_HEAP = "/dev/dma_heap/system"


class SystemCalls(Protocol):
    """What is needed of the operating system."""

    def open(self, path: str) -> int:
        """A descriptor of a device node. Raises: OSError."""

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""

    def ioctl(self, descriptor: int, request: Request, argument: ctypes.Structure | None) -> int:
        """0, or the DSP's own error: an AEE code, unsigned. Raises: OSError, the kernel's error."""

    def map(self, descriptor: int, nbytes: int) -> mmap.mmap:
        """A DMA buffer's memory, shared. Raises: OSError."""


class LinuxCalls:
    """The calls of the Linux kernel that runs this process."""

    def __init__(self) -> None:
        # Not fcntl.ioctl: that treats any negative result as -1. The driver passes a DSP's error on
        # unchanged, 0x8000_0400 and up, negative as an int; errno then keeps its old value.
        self._ioctl = ctypes.CDLL(None, use_errno=True).ioctl
        self._ioctl.restype = ctypes.c_int

    def open(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def ioctl(self, descriptor: int, request: Request, argument: ctypes.Structure | None) -> int:
        pointer = None if argument is None else ctypes.byref(argument)
        while True:
            ctypes.set_errno(0)
            result = self._ioctl(ctypes.c_int(descriptor), ctypes.c_ulong(request), pointer)
            number = ctypes.get_errno()
            if result != -1 or not number:
                return int(result) & 0xFFFF_FFFF
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number))

    def map(self, descriptor: int, nbytes: int) -> mmap.mmap:
        return mmap.mmap(descriptor, nbytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


class DmaBuffer:
    """Memory that can be passed to the DSP by its descriptor; a context manager.

    From the kernel's heap for that, or where programs may not use it, from the FastRPC driver.

    Args:
        system: the seam.
        device: the FastRPC node's descriptor.
        nbytes: whole pages are allocated.

    Attributes:
        nbytes, descriptor: as the kernel knows it.

    Raises:
        OSError: there is no memory, or no permission to use it.
    """

    def __init__(self, system: SystemCalls, device: int, nbytes: int) -> None:
        self._system = system
        self.nbytes = max(nbytes, 1)
        whole = -(-self.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.descriptor = _allocate(system, device, whole)
        try:
            self._memory = system.map(self.descriptor, whole)
        except BaseException:
            system.close(self.descriptor)
            raise
        self._data: NDArray[np.uint8] | None = np.frombuffer(self._memory, np.uint8, self.nbytes)
        self.address = int(self._data.ctypes.data)

    def write(self, data: bytes | memoryview) -> None:
        """Put bytes at the buffer's start."""
        with self._access(SYNC_WRITE):
            self._memory[: len(data)] = data

    def read(self) -> bytes:
        """The buffer's bytes."""
        with self._access(SYNC_READ):
            return self._memory[: self.nbytes]

    @contextlib.contextmanager
    def _access(self, direction: int) -> Iterator[None]:
        self._sync(direction)
        try:
            yield
        finally:
            self._sync(direction | SYNC_END)

    def _sync(self, flags: int) -> None:
        # The driver's own buffers are coherent, and some kernels do not implement the request for them.
        with contextlib.suppress(OSError):
            self._system.ioctl(self.descriptor, Request.DMA_BUF_SYNC, DmaBufSync(flags))

    def close(self) -> None:
        if self._data is not None:
            self._data = None  # it holds the mapping
            self._memory.close()
            self._system.close(self.descriptor)

    def __enter__(self) -> DmaBuffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def _allocate(system: SystemCalls, device: int, nbytes: int) -> int:
    try:
        heap = system.open(DMA_HEAP)
    except OSError:
        own = AllocDmaBuf(-1, 0, nbytes)
        _require_zero(system.ioctl(device, Request.ALLOC_DMA_BUFF, own))
        return int(own.fd)
    try:
        request = DmaHeapAlloc(nbytes, 0, os.O_RDWR | os.O_CLOEXEC, 0)
        _require_zero(system.ioctl(heap, Request.DMA_HEAP_ALLOC, request))
        return int(request.fd)
    finally:
        system.close(heap)


def _require_zero(result: int) -> None:
    if result:
        raise OSError(errno.EIO, f"the allocation answered {result:#x}")

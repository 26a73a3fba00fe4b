"""The seam to the kernel: open, ioctl, map. The tests put a model of the kernel and the DSP in its place."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import Protocol


class SystemCalls(Protocol):
    """What is needed of the operating system."""

    def open(self, path: str, flags: int) -> int:
        """A descriptor of a device node. Raises: OSError."""

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""

    def ioctl(self, descriptor: int, request: int, argument: ctypes.Structure | None) -> int:
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

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def ioctl(self, descriptor: int, request: int, argument: ctypes.Structure | None) -> int:
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

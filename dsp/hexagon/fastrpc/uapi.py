"""Mainline's interface: structures and requests of misc/fastrpc.h, linux/dma-heap.h and linux/dma-buf.h.

`uapi_android` has those of Android's vendor kernels; the heap and its buffers are the same there. Structures
are little-endian and the same for 32-bit and 64-bit processes. Evidence: published (those headers, Linux 6.1
and later).
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from typing import TypeVar

from sdk.errors import InternalError

S = TypeVar("S", bound=type[ctypes.Structure])


def sized(size: int) -> Callable[[S], S]:
    """A structure that has this many bytes in the header; the import fails if it has not."""

    def check(struct: S) -> S:
        if ctypes.sizeof(struct) != size:
            raise InternalError(f"{struct.__name__} has {ctypes.sizeof(struct)} bytes, not {size}")
        return struct

    return check


U32, S32, U64 = ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64


@sized(16)
class AllocDmaBuf(ctypes.LittleEndianStructure):
    """In: flags, size. Out: the descriptor of a DMA buffer; closing it frees the buffer."""

    _fields_ = (("fd", S32), ("flags", U32), ("size", U64))


@sized(24)
class InvokeArg(ctypes.LittleEndianStructure):
    """A buffer of a call. With `fd` -1 the kernel copies it; with that of a DMA buffer the DSP maps it."""

    _fields_ = (("ptr", U64), ("length", U64), ("fd", S32), ("attr", U32))


@sized(16)
class Invoke(ctypes.LittleEndianStructure):
    """A call: of which module, its scalars, and the address of as many `InvokeArg`."""

    _fields_ = (("handle", U32), ("sc", U32), ("args", U64))


@sized(24)
class InitCreate(ctypes.LittleEndianStructure):
    """A process on the DSP: its shell, in memory and in a DMA buffer."""

    _fields_ = (("filelen", U32), ("filefd", S32), ("attrs", U32), ("siglen", U32), ("file", U64))


@sized(32)
class ReqMmap(ctypes.LittleEndianStructure):
    """Kernel memory for the heap of the process on the DSP; out: its address there."""

    _fields_ = (("fd", S32), ("flags", U32), ("vaddrin", U64), ("size", U64), ("vaddrout", U64))


@sized(16)
class ReqMunmap(ctypes.LittleEndianStructure):
    """Releases the same memory."""

    _fields_ = (("vaddrout", U64), ("size", U64))


@sized(28)
class Capability(ctypes.LittleEndianStructure):
    """A capability of the DSP; kernels before mid 2024 put the answer where `domain` is."""

    _fields_ = (("domain", U32), ("attribute_id", U32), ("capability", U32), ("reserved", U32 * 4))


@sized(24)
class DmaHeapAlloc(ctypes.LittleEndianStructure):
    """linux/dma-heap.h."""

    _fields_ = (("len", U64), ("fd", U32), ("fd_flags", U32), ("heap_flags", U64))


@sized(8)
class DmaBufSync(ctypes.LittleEndianStructure):
    """linux/dma-buf.h: brackets what the CPU does with a buffer, so that caches agree."""

    _fields_ = (("flags", U64),)


SYNC_READ, SYNC_WRITE, SYNC_END = 1, 2, 4


def request(kind: int, letter: str, number: int, struct: type[ctypes.Structure] | None) -> int:
    """asm-generic/ioctl.h: direction, size, letter and number."""
    size = 0 if struct is None else ctypes.sizeof(struct)
    return kind << 30 | size << 16 | ord(letter) << 8 | number


NONE, WRITE, BOTH = 0, 1, 3


class Request(enum.IntEnum):
    """Requests by their names in the headers.

    FREE_DMA_BUFF (2) is declared and not implemented: the descriptor is closed. INIT_ATTACH joins the DSP's
    own process, where nothing can be loaded, and is for daemons.
    """

    ALLOC_DMA_BUFF = request(BOTH, "R", 1, AllocDmaBuf)
    INVOKE = request(BOTH, "R", 3, Invoke)
    INIT_ATTACH = request(NONE, "R", 4, None)
    INIT_CREATE = request(BOTH, "R", 5, InitCreate)
    MMAP = request(BOTH, "R", 6, ReqMmap)
    MUNMAP = request(BOTH, "R", 7, ReqMunmap)
    GET_DSP_INFO = request(BOTH, "R", 13, Capability)
    DMA_HEAP_ALLOC = request(BOTH, "H", 0, DmaHeapAlloc)
    DMA_BUF_SYNC = request(WRITE, "b", 0, DmaBufSync)


MODE_UNSIGNED_MODULE = 1 << 3
"""`InitCreate.attrs`: a process that runs unsigned code, with fewer rights."""
MMAP_ADD_PAGES = 0x1000
"""`ReqMmap.flags`: more heap; the only kind that every mainline kernel accepts from a program."""
SHELL_BYTES_MAX = 2 << 20
"""The largest shell that kernels before mid 2024 take; later ones take 5 MiB."""


class Attribute(enum.IntEnum):
    """`Capability.attribute_id` (evidence: published, Qualcomm's remote.h)."""

    UNSIGNED_PD_SUPPORT = 1
    HVX_SUPPORT_128B = 3
    ARCH_VER = 6


DOMAINS = {"adsp": 0, "cdsp": 3}
"""The DSPs that may run networks, and their numbers; those of the modem and the sensors may not."""

"""The interface of Android's vendor kernels: /dev/adsprpc-smd, and ION for memory.

Structures of a 64-bit process, little-endian, with natural alignment. Evidence of layouts and numbers: trace
(an open runtime that ran on a Snapdragon 845) and published (the vendor's adsprpc_shared.h, Linux 4.9);
`IonAllocateNew`: published (ion.h of Linux 4.14). Numbers and sizes of some requests are those of other
requests on mainline's node: INVOKE has the number of mainline's ALLOC_DMA_BUFF.
"""

from __future__ import annotations

import ctypes
import enum

from dsp.hexagon.fastrpc.uapi import BOTH, S32, U32, U64, request, sized


@sized(16)
class RemoteArg(ctypes.LittleEndianStructure):
    """A buffer of a call."""

    _fields_ = (("pv", U64), ("len", U64))


@sized(16)
class Invoke(ctypes.LittleEndianStructure):
    """A call: of which module, its scalars, and the address of as many `RemoteArg`."""

    _fields_ = (("handle", U32), ("sc", U32), ("pra", U64))


@sized(32)
class InvokeAttrs(ctypes.LittleEndianStructure):
    """A call with the addresses of a descriptor (-1: the kernel copies) and of attributes for each buffer."""

    _fields_ = (("inv", Invoke), ("fds", U64), ("attrs", U64))


@sized(32)
class Mmap(ctypes.LittleEndianStructure):
    """Kernel memory for the heap of the process on the DSP; out: its address there."""

    _fields_ = (("fd", S32), ("flags", U32), ("vaddrin", U64), ("size", U64), ("vaddrout", U64))


@sized(16)
class Munmap(ctypes.LittleEndianStructure):
    """Releases the same memory."""

    _fields_ = (("vaddrout", U64), ("size", U64))


@sized(24)
class MunmapFd(ctypes.LittleEndianStructure):
    """Releases what the driver keeps of a buffer."""

    _fields_ = (("fd", S32), ("flags", U32), ("va", U64), ("len", U64))


@sized(40)
class Init(ctypes.LittleEndianStructure):
    """A process on the DSP: its shell, in memory and in a buffer. `mem` is for kernels without kalloc."""

    _fields_ = (
        *(("flags", U32), ("file", U64), ("filelen", U32), ("filefd", S32)),
        *(("mem", U64), ("memlen", U32), ("memfd", S32)),
    )


@sized(48)
class InitAttrs(ctypes.LittleEndianStructure):
    """The same with attributes of the process."""

    _fields_ = (("init", Init), ("attrs", S32), ("siglen", U32))


@sized(4)
class Info(ctypes.LittleEndianStructure):
    """In: the DSP's number. Out: whether it has an SMMU."""

    _fields_ = (("domain", U32),)


@sized(12)
class Control(ctypes.LittleEndianStructure):
    """In: what is asked. Out, for kalloc: in `value`, whether the kernel allocates the process's memory."""

    _fields_ = (("req", U32), ("value", U32), ("level", U32))


@sized(32)
class IonAllocate(ctypes.LittleEndianStructure):
    """ION before Linux 4.12. Out: a handle."""

    _fields_ = (("len", U64), ("align", U64), ("heap_id_mask", U32), ("flags", U32), ("handle", S32))


@sized(4)
class IonHandle(ctypes.LittleEndianStructure):
    """A handle to release."""

    _fields_ = (("handle", S32),)


@sized(8)
class IonShare(ctypes.LittleEndianStructure):
    """In: a handle. Out: the descriptor of its buffer."""

    _fields_ = (("handle", S32), ("fd", S32))


@sized(24)
class IonAllocateNew(ctypes.LittleEndianStructure):
    """ION from Linux 4.12 on, which has no handles. Out: the descriptor of a buffer."""

    _fields_ = (("len", U64), ("heap_id_mask", U32), ("flags", U32), ("fd", U32), ("unused", U32))


class AndroidRequest(enum.IntEnum):
    """Requests by their names in the header. INVOKE_FD (4) is INVOKE_ATTRS without attributes."""

    INVOKE = request(BOTH, "R", 1, Invoke)
    MMAP = request(BOTH, "R", 2, Mmap)
    MUNMAP = request(BOTH, "R", 3, Munmap)
    INIT = request(BOTH, "R", 6, Init)
    INVOKE_ATTRS = request(BOTH, "R", 7, InvokeAttrs)
    GETINFO = request(BOTH, "R", 8, Info)
    INIT_ATTRS = request(BOTH, "R", 10, InitAttrs)
    CONTROL = request(BOTH, "R", 12, Control)
    MUNMAP_FD = request(BOTH, "R", 13, MunmapFd)
    ION_ALLOC = request(BOTH, "I", 0, IonAllocate)
    ION_ALLOC_NEW = request(BOTH, "I", 0, IonAllocateNew)
    ION_FREE = request(BOTH, "I", 1, IonHandle)
    ION_SHARE = request(BOTH, "I", 4, IonShare)


INIT_CREATE = 1
"""`Init.flags`: a process of our own."""
CONTROL_KALLOC = 3
"""`Control.req`."""
ION_HEAP_SYSTEM = 1 << 25
"""`heap_id_mask`."""
ION_CACHED = 1
"""`flags`: the driver does the cache's maintenance around a call."""

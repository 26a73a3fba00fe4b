"""Sums of what is on a card by a kernel of its own, to be compared with the host's: kernels/checksum.cl.

Data in transit have USB's and PCIe's own checks only, and a bridge or dock may damage them in between.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sdk.opencl.calls import KernelSource
from usbgpu.seam import Launch
from usbgpu.target.plan import SUMMED, SUMMERS, KernelPlan

Sums = NDArray[np.uint32]

KERNEL = KernelSource("checksum", "checksum", SUMMERS)
SUM = 4
"""Bytes that the sum of a block takes."""
AT_ONCE = 4 * SUMMED
"""Bytes that are summed in one go: they stay in the processor's cache."""


def blocks(nbytes: int) -> int:
    """How many sums so many bytes have."""
    return -(-nbytes // SUMMED)


def sums(parts: Iterable[bytes | bytearray | memoryview]) -> Sums:
    """The sums of bytes that come in parts, uint32."""
    found: list[Sums] = []
    place, rest = 0, b""
    for part in parts:
        data = memoryview(part).cast("B")
        if rest:
            taken = SUMMED - len(rest)
            rest += data[:taken]
            data = data[taken:]
            if len(rest) < SUMMED:
                continue
            found.append(_sums(rest, place))
            place += SUMMED
        whole = data.nbytes // SUMMED * SUMMED
        for start in range(0, whole, AT_ONCE):
            piece = data[start : min(start + AT_ONCE, whole)]
            found.append(_sums(piece, place))
            place += piece.nbytes
        rest = bytes(data[whole:])
    found.append(_sums(rest, place))
    return np.concatenate(found)


def _sums(data: bytes | memoryview, start: int) -> Sums:
    """Of bytes from a block's start on."""
    filled = bytes(data) + bytes(-len(data) % 4) if len(data) % 4 else data  # the last word's rest is 0
    x = np.frombuffer(filled, "<u4").astype(np.uint32)
    x ^= np.arange(start // 4, start // 4 + len(x), dtype=np.uint32) * np.uint32(0x9E3779B1)
    x ^= x >> 16
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> 13
    x *= np.uint32(0xC2B2AE35)
    x ^= x >> 16
    return np.add.reduceat(x, np.arange(0, len(x), SUMMED // 4), dtype=np.uint32) if len(x) else x


def launch(name: str, kernel: KernelPlan, code: int, data: int, nbytes: int, to: int) -> Launch:
    """The launch that sums memory; addresses are multiples of 4.

    Args:
        name: for errors.
        kernel: KERNEL, as it was compiled.
        code: GPU address of the code image.
        data: GPU address of what is summed.
        nbytes: of it, 1 or more.
        to: GPU address of the sums.
    """
    arguments = struct.pack("<QQII", data, to, *divmod(nbytes, 4))
    return Launch(
        name=name,
        code=code + kernel.entry,
        rsrc1=kernel.rsrc1,
        rsrc2=kernel.rsrc2,
        rsrc3=kernel.rsrc3,
        scratch=kernel.scratch,
        kernarg=arguments.ljust(kernel.kernarg, b"\0"),
        groups=(blocks(nbytes), 1, 1),
        threads=(kernel.threads, 1, 1),
    )

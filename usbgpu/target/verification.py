"""What arrived on a card, compared with what was sent; and what came back, with what is there.

A kernel sums the memory (kernels/checksum.cl): for weights and code once, when they are loaded, for inputs
and outputs in every inference if that is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from usbgpu.seam import Buffer, Gpu, Launch, Read, TransferDamaged
from usbgpu.target import checksum
from usbgpu.target.checksum import SUM, Sums, blocks
from usbgpu.target.plan import SUMMED, KernelPlan


@dataclass(frozen=True)
class Region:
    """A part of a buffer that is summed.

    Attributes:
        what: it holds, for errors: "weights".
        buffer, offset, nbytes: where; the offset is a multiple of 4.
    """

    what: str
    buffer: Buffer
    offset: int
    nbytes: int


Claim = tuple[Region, Sums]
"""A region, and the sums of what it should hold."""


LAUNCHES = 4096
"""Bytes for the sums of launches: those of 64 MiB."""


class Verifier:
    """Sums regions of a card's memory.

    Args:
        gpu: its GPU.
        kernel: that of `checksum.KERNEL`; None if the program has none: then there are no regions.
        code: GPU address of the code image that it is in.
        room: the sums that regions have together, at most; launches have room of their own.

    Attributes:
        buffer: for the sums; to be freed.

    Raises:
        Unsupported: there is no memory for them.
    """

    def __init__(self, gpu: Gpu, kernel: KernelPlan | None, code: int, room: int) -> None:
        self._kernel = kernel
        self._code = code
        self.buffer = gpu.allocate(room * SUM + LAUNCHES)

    # -- seam.Summing -----------------------------------------------------------------------------------

    def launch(self, address: int, nbytes: int) -> Launch:
        assert self._kernel is not None
        to = self.buffer.address + self.buffer.size - LAUNCHES
        return checksum.launch("checksum of the launches", self._kernel, self._code, address, nbytes, to)

    def sums(self, nbytes: int) -> Read:
        return Read(self.buffer, self.buffer.size - LAUNCHES, blocks(nbytes) * SUM)

    def compare(self, sent: bytes, sums: bytes) -> None:
        if checksum.sums([sent]).astype("<u4").tobytes() != sums:
            raise TransferDamaged("the launches were damaged in transit")

    # ---------------------------------------------------------------------------------------------------

    def launches(self, regions: Sequence[Region]) -> list[Launch]:
        """Launches that sum these regions."""
        at, found = self.buffer.address, []
        for region in regions:
            assert self._kernel is not None
            name, address = f"checksum of the {region.what}", region.buffer.address + region.offset
            found.append(checksum.launch(name, self._kernel, self._code, address, region.nbytes, at))
            at += blocks(region.nbytes) * SUM
        return found

    def reads(self, regions: Sequence[Region]) -> list[Read]:
        """Where the sums of these regions are; nothing if there are none."""
        size = sum(blocks(region.nbytes) for region in regions) * SUM
        return [Read(self.buffer, 0, size)] if size else []

    def check(self, claims: Sequence[Claim], found: Sequence[bytes]) -> None:
        """Compare what should be there with what was read of `reads`, in the same order.

        Raises:
            TransferDamaged: they differ.
        """
        got = np.frombuffer(b"".join(found), "<u4")
        for region, sums in claims:
            wrong = np.flatnonzero(got[: len(sums)] != sums)
            got = got[len(sums) :]
            if len(wrong):
                raise TransferDamaged(
                    f"{len(wrong)} of {len(sums)} blocks of the {region.what} were damaged in transit, the "
                    f"first of them from byte {wrong[0] * SUMMED:,} on"
                )

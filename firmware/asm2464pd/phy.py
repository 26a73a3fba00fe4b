"""The PHY set-up: 42 updates of each USB SerDes lane, and 341 writes to the PCIe PHY and switch (DPX = 1).

The meaning of the values is not known. They come from the open firmware, which is said to have them from
traces of the vendor's firmware. Without the set-up of the lanes the chip on a board reports no link event at
all; without the last write, to `0x6025`, no TLP leaves it. The order is kept: 341 writes go to 244 addresses.
Where an address is written several times, the later value replaces the earlier one on purpose (a bit is
pulsed, or a first value corrected once its neighbours are set).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sdk.facts.registers import Evidence, FactError

EVIDENCE = Evidence.HARDWARE
"""The grade of every value here."""
SOURCE = "open firmware, usb.h and pcie_tuning.h"


@dataclass(frozen=True, slots=True)
class Update:
    """A read-modify-write of one byte: `value & keep | put`.

    Attributes:
        offset: from the first byte of a lane.
        keep: bits that are kept.
        put: bits that are set.
    """

    offset: int
    keep: int
    put: int

    def apply(self, value: int) -> int:
        """The byte after the update."""
        return value & self.keep | self.put


@dataclass(frozen=True, slots=True)
class Write:
    """A plain write of one byte with DPX = 1."""

    address: int
    value: int


USB_LANES = (0xC280, 0xC300)
"""First XDATA address of each USB SerDes lane; both have the same set-up."""
USB_LANE_SIZE = 0x80

# fmt: off
USB_LANE_SETUP = tuple(Update(*update) for update in (
    (0x02, 0x1F, 0xA0), (0x03, 0xF3, 0x00), (0x04, 0x8F, 0x40), (0x05, 0x0F, 0x60), (0x06, 0xF0, 0x07),
    (0x07, 0x1F, 0x60), (0x09, 0x0F, 0x90), (0x0B, 0xC0, 0x0A), (0x0C, 0xFD, 0x00), (0x10, 0xE0, 0x03),
    (0x11, 0xE0, 0x08), (0x12, 0x1F, 0x20), (0x13, 0xF3, 0x04), (0x14, 0xFF, 0x06), (0x15, 0xF0, 0x0C),
    (0x16, 0xF0, 0x0F), (0x17, 0x1F, 0x40), (0x19, 0x0F, 0x80), (0x1A, 0xF0, 0x0E), (0x1B, 0xC0, 0x00),
    (0x1C, 0xFD, 0x02), (0x20, 0xE0, 0x03), (0x21, 0xE0, 0x08), (0x22, 0xE0, 0x0A), (0x23, 0xFC, 0x02),
    (0x24, 0xF0, 0x07), (0x25, 0xF0, 0x0F), (0x26, 0xF0, 0x0B), (0x27, 0x1F, 0x40), (0x29, 0x0F, 0x80),
    (0x2A, 0xFF, 0x01), (0x2B, 0xC0, 0x00), (0x2C, 0xFD, 0x02), (0x3C, 0xFD, 0x00), (0x43, 0xC3, 0x1C),
    (0x45, 0xF0, 0x0B), (0x46, 0xF0, 0x0D), (0x49, 0x80, 0x41), (0x4A, 0xFE, 0x00), (0x4C, 0xF1, 0x0E),
    (0x4E, 0xFF, 0x40), (0x5B, 0xE0, 0x1B),
))
"""The updates of a USB lane, in order."""

# The PCIe side has four lanes, each with two blocks of registers, called A and B here; every list below has
# (offset, value) pairs in one of them.
PCIE_LANES = ((0x6000, 0x7800), (0x6400, 0x7900), (0x6800, 0x7A00), (0x6C00, 0x7B00))
"""First addresses of blocks A and B of each PCIe lane, DPX = 1."""
PCIE_ROUTING = Write(0x6025, 0x80)
"""The last write: enables downstream TLPs."""

_B_FIRST = ((0x9B, 0x10), (0x9B, 0x90))
_A_FIRST = (
    (0x00, 0xC0), (0x04, 0x2B), (0x06, 0x41), (0x07, 0x81), (0x59, 0x41), (0x5A, 0x00), (0x0A, 0x11),
    (0x42, 0xBF), (0x05, 0x8A),
)
_B_SECOND = ((0x64, 0x0F), (0xBF, 0xB0), (0xBF, 0x30), (0x67, 0xD0))
_B_THIRD = ((0x40, 0x01), (0x01, 0x7C), (0x11, 0x7C), (0x21, 0xF0), (0x31, 0xF0))
_B_FOURTH = (
    (0x34, 0x07), (0x35, 0x6D), (0x26, 0x3A), (0x36, 0x57), (0x06, 0x73), (0x16, 0x73), (0x26, 0x7A),
    (0x36, 0x77), (0x37, 0x6F), (0x46, 0x74), (0x46, 0x64), (0x46, 0x44), (0x46, 0x04), (0x1D, 0x40),
    (0x2D, 0x40), (0x3D, 0x4A), (0x1A, 0x44), (0x3A, 0x4D), (0x1B, 0x4A), (0x3B, 0x4F), (0x0C, 0x17),
    (0x1C, 0x17), (0x02, 0xE8), (0x22, 0x30), (0x32, 0x30), (0x6C, 0x0C), (0x6C, 0x6C),
)
_A_FOURTH = (
    (0x20, 0x60), (0x20, 0x10), (0x21, 0xF2), (0x21, 0x42), (0x22, 0xC6), (0x22, 0x26), (0x23, 0xED),
    (0x23, 0xA9), (0x24, 0xEC), (0x24, 0xCC), (0x25, 0x7D), (0x25, 0x41), (0x26, 0xDF), (0x27, 0xDA),
    (0x27, 0xDE), (0x28, 0x20), (0x28, 0x00), (0x29, 0x61), (0x29, 0x31), (0x2A, 0xA4), (0x2A, 0x74),
    (0x2B, 0xE9), (0x2B, 0xC9),
)
_B_FOURTH_LAST = ((0x85, 0xA6),)
_B_FIFTH = ((0x87, 0x10), (0x88, 0x08), (0x07, 0xEF), (0x17, 0xEF), (0x37, 0x4F), (0x12, 0xA8), (0x2C, 0x17))
_A_FIFTH = ((0x26, 0xD1),)
_B_FIFTH_LAST = ((0x2A, 0x46), (0x0D, 0x5A), (0x1D, 0x50), (0x2D, 0x50), (0x3D, 0x5A))
# fmt: on
_B_FIFTH_0B = (0x56, 0x5C)
"""The only value that differs between lanes: offset 0x0B of block B, in the first two and in the last two."""


@dataclass(frozen=True, slots=True)
class LaneWrite:
    """A write to one register of a lane.

    Attributes:
        block: 0 for block A, 1 for block B.
    """

    block: int
    offset: int
    value: int


@dataclass(frozen=True, slots=True)
class Pass:
    """A series of writes, made to one lane after another.

    Attributes:
        lanes: the indices of `PCIE_LANES`.
        steps: the writes to each, in order.
    """

    lanes: range
    steps: tuple[LaneWrite, ...]


def _a(writes: tuple[tuple[int, int], ...]) -> tuple[LaneWrite, ...]:
    return tuple(LaneWrite(0, offset, value) for offset, value in writes)


def _b(writes: tuple[tuple[int, int], ...]) -> tuple[LaneWrite, ...]:
    return tuple(LaneWrite(1, offset, value) for offset, value in writes)


_ALL = range(len(PCIE_LANES))
PCIE_PASSES: tuple[Pass, ...] = (
    Pass(_ALL, _b(_B_FIRST) + _a(_A_FIRST)),
    Pass(_ALL, _b(_B_SECOND)),
    Pass(_ALL, _b(_B_THIRD)),
    Pass(_ALL, _b(_B_FOURTH) + _a(_A_FOURTH) + _b(_B_FOURTH_LAST)),
    *(
        Pass(lanes, _b(_B_FIFTH) + _a(_A_FIFTH) + _b(((0x0B, value), *_B_FIFTH_LAST)))
        for lanes, value in zip((range(2), range(2, 4)), _B_FIFTH_0B, strict=True)
    ),
)
"""The set-up of the PCIe lanes, in order; `PCIE_ROUTING` comes after it."""


def _pcie_writes() -> Iterator[Write]:
    for each in PCIE_PASSES:
        for lane in each.lanes:
            for step in each.steps:
                yield Write(PCIE_LANES[lane][step.block] + step.offset, step.value)
    yield PCIE_ROUTING


PCIE_SETUP: tuple[Write, ...] = tuple(_pcie_writes())
"""The 341 writes, in order."""
PCIE_FINAL: dict[int, int] = {write.address: write.value for write in PCIE_SETUP}
"""The final value at each of the 244 addresses."""

if any(update.offset >= USB_LANE_SIZE or max(update.keep, update.put) > 0xFF for update in USB_LANE_SETUP):
    raise FactError("USB_LANE_SETUP: an update does not fit its lane or a byte")
if any(write.value > 0xFF or write.address > 0xFFFF for write in PCIE_SETUP):
    raise FactError("PCIE_SETUP: a write does not fit the plane or a byte")

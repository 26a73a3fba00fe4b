"""Programs for the copy engine: packets one after the other, as a ring or an indirect buffer takes them.

Packets and their units are those of `facts.sdma`. What this driver relies on beyond them (grade: inferred
from published drivers that do the same): packets begin in order, and FENCE writes its dword when everything
before it has been written. So what must not begin before a copy has ended comes after a FENCE and a
POLL_REGMEM of its dword, or writes to the same side of PCIe, where order is kept.
"""

from __future__ import annotations

import struct

from sdk.errors import InternalError
from usbgpu.amd.facts.sdma import FOR_EVER, FUNCTIONS, IB_ALIGNMENT, IB_PACKET_END, PACKETS

COPY_LIMIT = 1 << 30
"""Bytes of one COPY_LINEAR."""
WRITE_LIMIT = 1 << 12
"""Dwords of one WRITE_UNTILED that are put into a program at most."""
UNCACHED = 3
"""FENCE.mtype: not cached in L2."""
EQUAL, AT_LEAST = FUNCTIONS.index("=="), FUNCTIONS.index(">=")
POLL_INTERVAL = 4
"""Of POLL_REGMEM, as published drivers have it."""
ALL = 0xFFFF_FFFF


class Program:
    """Packets in order. Addresses are the GPU's, in bytes; sizes are bytes.

    Attributes:
        dwords: so far.
    """

    def __init__(self) -> None:
        self.dwords: list[int] = []

    def __len__(self) -> int:
        """Dwords."""
        return len(self.dwords)

    def pack(self) -> bytes:
        """As they are in memory."""
        return struct.pack(f"<{len(self.dwords)}I", *self.dwords)

    def copy(self, source: int, target: int, size: int) -> None:
        """Copy memory."""
        for start in range(0, size, COPY_LIMIT):
            part = min(COPY_LIMIT, size - start)
            self._add("COPY_LINEAR", count=part - 1, src_addr=source + start, dst_addr=target + start)

    def write(self, target: int, data: bytes) -> None:
        """Write whole dwords that are in the program itself."""
        for start in range(0, len(data), 4 * WRITE_LIMIT):
            part = data[start : start + 4 * WRITE_LIMIT]
            dwords = struct.unpack(f"<{len(part) // 4}I", part)
            self._add("WRITE_UNTILED", dst_addr=target + start, count=len(dwords) - 1)
            self.dwords += dwords

    def fill(self, target: int, size: int, value: int = 0) -> None:
        """Fill memory with a dword; address and size are multiples of 4."""
        for start in range(0, size, COPY_LIMIT):
            part = min(COPY_LIMIT, size - start)
            self._add("CONSTANT_FILL", fillsize=2, dst_addr=target + start, src_data=value, count=part - 1)

    def fence(self, address: int, value: int) -> None:
        """Write a dword, once everything before it has been written."""
        self._add("FENCE", mtype=UNCACHED, addr=address, data=value & ALL)

    def poll(self, address: int, value: int, function: int = EQUAL) -> None:
        """Wait until a dword of memory is `value`, or compares with it by another one of FUNCTIONS."""
        self._add(
            "POLL_REGMEM",
            func=function,
            mem_poll=1,
            addr=address,
            value=value & ALL,
            mask=ALL,
            interval=POLL_INTERVAL,
            retry_count=FOR_EVER,
        )

    def poll_register(self, index: int, value: int) -> None:
        """Wait until a register, by its index in dwords, is `value`."""
        self._add(
            "POLL_REGMEM",
            func=EQUAL,
            addr=4 * index,
            value=value & ALL,
            mask=ALL,
            interval=POLL_INTERVAL,
            retry_count=FOR_EVER,
        )

    def indirect(self, address: int, dwords: int, place: int) -> None:
        """Execute an indirect buffer.

        Args:
            address: of the buffer, a multiple of 32 bytes.
            dwords: that it has.
            place: in dwords, where in its ring this program will begin: the packet ends at a multiple of 8.
        """
        packet = PACKETS["INDIRECT"]
        self.dwords += [0] * (-(place + len(self) + packet.size) % IB_PACKET_END)  # NOPs
        if address % IB_ALIGNMENT:
            raise InternalError(f"an indirect buffer at {address:#x}")
        self._add("INDIRECT", priv=1, ib_base=address, ib_size=dwords)

    def _add(self, name: str, **parts: int) -> None:
        self.dwords += PACKETS[name].pack(**parts)

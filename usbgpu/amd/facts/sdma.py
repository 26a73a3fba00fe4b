"""Packets of the copy engines SDMA 6 (gfx11) and SDMA 7 (gfx12).

Sources: Linux 6.12, `sdma_v6_0_0_pkt_open.h` (MIT) for the layouts; it serves both generations. What differs
in SDMA 7, from `sdma_v7_0.c` (MIT): register writes give a byte address, a linear copy whose `cpv` bit is set
has an eighth dword (compression), and a fill has the bit `compress`. Units of counts: `sdma_v6_0.c` and
`ac_cmdbuf_sdma.c` of Mesa. What no source says has its grade beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from usbgpu.amd.facts.describe import Packet, parts

ANY = -1
"""Sub-opcode of packets that ignore it."""


@dataclass(frozen=True, slots=True)
class SdmaPacket(Packet):
    """A kind of packet; `size` and `parts` are of all of it, without what a count adds.

    Attributes:
        op: bits 7:0 of the header.
        sub_op: bits 15:8, or ANY.
    """

    op: int
    sub_op: int

    def pack(self, **values: int) -> list[int]:
        """The dwords of a packet. Raises FactError: no such part, or a number that does not fit."""
        words = self.filled(values)
        words[0] |= self.op | max(self.sub_op, 0) << 8
        return words


def _packets(text: str) -> dict[str, SdmaPacket]:
    """Packets from lines `NAME OP SUB_OP SIZE PART:DWORD:SHIFT:WIDTH...`, with * for any sub-opcode."""
    packets = {}
    for line in text.strip().split("\n"):
        name, op, sub_op, size, *rest = line.split()
        packets[name] = SdmaPacket(
            name, int(size), parts(rest), int(op), ANY if sub_op == "*" else int(sub_op)
        )
    return packets


PACKETS: Mapping[str, SdmaPacket] = _packets("""
NOP 0 * 1 count:0:16:14
COPY_LINEAR 1 0 7 tmz:0:18:1 cpv:0:19:1 backwards:0:25:1 broadcast:0:27:1 count:1:0:30 dst_sw:2:16:2 src_sw:2:24:2 src_addr:3:0:64 dst_addr:5:0:64
WRITE_UNTILED 2 0 4 tmz:0:18:1 cpv:0:28:1 dst_addr:1:0:64 count:3:0:20
INDIRECT 4 * 6 vmid:0:16:4 priv:0:31:1 ib_base:1:0:64 ib_size:3:0:20 csa_addr:4:0:64
FENCE 5 * 4 mtype:0:16:3 sys:0:20:1 snp:0:22:1 addr:1:0:64 data:3:0:32
TRAP 6 * 2 int_context:1:0:28
POLL_REGMEM 8 0 6 hdp_flush:0:26:1 func:0:28:3 mem_poll:0:31:1 addr:1:0:64 value:3:0:32 mask:4:0:32 interval:5:0:16 retry_count:5:16:12
COND_EXE 9 * 5 addr:1:0:64 reference:3:0:32 exec_count:4:0:14
ATOMIC 10 * 8 loop:0:16:1 atomic_op:0:25:7 addr:1:0:64 src_data:3:0:64 cmp_data:5:0:64 loop_interval:7:0:13
CONSTANT_FILL 11 0 5 compress:0:16:1 fillsize:0:30:2 dst_addr:1:0:64 src_data:3:0:32 count:4:0:30
TIMESTAMP_SET 13 0 3 init_data:1:0:64
TIMESTAMP_GET 13 1 3 write_addr:1:0:64
TIMESTAMP_GET_GLOBAL 13 2 3 write_addr:1:0:64
SRBM_WRITE 14 * 3 byte_en:0:28:4 addr:1:0:18 apertureid:1:20:12 byte_addr:1:0:32 data:2:0:32
GCR_REQ 17 * 5 base_va_31_7:1:7:25 base_va_47_32:2:0:16 gcr_control_15_0:2:16:16 gcr_control_18_16:3:0:3 limit_va_31_7:3:7:25 limit_va_47_32:4:0:16 vmid:4:24:4
""")  # noqa: E501
"""By name. SDMA 6 takes `addr` of SRBM_WRITE, an index of dwords; SDMA 7 `byte_addr`. All counts but NOP's
are one less than the number: bytes of COPY_LINEAR and CONSTANT_FILL, dwords of WRITE_UNTILED."""

BY_OPCODE: Mapping[tuple[int, int], SdmaPacket] = {
    (packet.op, packet.sub_op): packet for packet in PACKETS.values()
}
"""By opcode and sub-opcode, which may be ANY."""

NOT_MODELLED: Mapping[int, str] = {7: "SEM", 12: "PTEPDE", 15: "PRE_EXE", 16: "GPUVM_INV", 32: "DUMMY_TRAP"}
"""Opcodes that the engines have and that are not in PACKETS."""

FUNCTIONS: tuple[str, ...] = ("always", "<", "<=", "==", "!=", ">=", ">")
"""POLL_REGMEM.func: value & mask on the left, reference on the right (as WAIT_REG_MEM of the command
processor, `nvd.h`; grade: inferred, the kernel uses == and a published driver >= and ==)."""

FOR_EVER = 0xFFF
"""POLL_REGMEM.retry_count: poll without end (grade: inferred: what all drivers write)."""

FILL_BYTES: Mapping[int, int] = {0: 1, 1: 2, 2: 4}
"""Bytes of the pattern by CONSTANT_FILL.fillsize. 2 is a dword (Mesa); 0 and 1 are guesses."""

ATOMIC_64, ATOMIC_NO_RETURN = 1 << 5, 1 << 6
"""Bits of ATOMIC.atomic_op: 64-bit operation; without the old value being returned."""
ATOMICS: Mapping[int, str] = {
    0x07: "swap",
    0x08: "cmpswap",
    0x0F: "add",
    0x10: "sub",
    0x11: "smin",
    0x12: "umin",
    0x13: "smax",
    0x14: "umax",
    0x15: "and",
    0x16: "or",
    0x17: "xor",
    0x18: "inc",
    0x19: "dec",
}
"""The rest of ATOMIC.atomic_op (`TC_OP_ATOMIC_*` of `soc21_enum.h`)."""

IB_ALIGNMENT = 32
"""Bytes: where indirect buffers begin (`sdma_v6_0.c`)."""
IB_PACKET_END = 8
"""Dwords: an INDIRECT packet ends at a multiple of so many in its ring (`sdma_v6_0.c`)."""
HANG_COUNT_SECONDS = 0.1
"""Unit of WATCHDOG_CNTL.QUEUE_HANG_COUNT (`sdma_v6_0.c`)."""
RESP_MODE = 3
"""What UTCL1_CNTL.RESP_MODE is set to (`sdma_v6_0.c`)."""


def packet(header: int) -> SdmaPacket | None:
    """The kind of packet that a header begins; None if it is not in PACKETS."""
    op, sub_op = header & 0xFF, header >> 8 & 0xFF
    return BY_OPCODE.get((op, ANY)) or BY_OPCODE.get((op, sub_op))


def length(header: int, generation: int) -> int:
    """Dwords of a packet by its header alone; WRITE_UNTILED has count + 1 more. 0 if it is not a packet.

    Args:
        header: its first dword.
        generation: 11 or 12.
    """
    kind = packet(header)
    if kind is None:
        return 0
    if kind.name == "COPY_LINEAR" and generation >= 12 and header >> 19 & 1:
        return kind.size + 1
    return kind.size + (kind.get([header], "count") if kind.name == "NOP" else 0)

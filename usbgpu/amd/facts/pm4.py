"""Packets of the command processor (PM4), as far as a compute queue uses them.

Sources: Linux 6.12, `nvd.h` (opcodes, selectors, cache actions), `soc21_enum.h` and `soc24_enum.h` (events),
`gfx_v11_0.c` and `gfx_v12_0.c` (layouts in use), all MIT; Mesa's `sid.h` and `radv_cs.c` for COPY_DATA's
selectors, the chain bit and DISPATCH_INDIRECT of compute queues; a published driver's boot trace for the
values that are in use on both chips. What no source says has its grade beside it. Both generations have the
same packets; gfx12 has no GLM cache, and its cache actions for it do nothing (inferred: the kernel leaves
them out of its fence).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sdk.facts.registers import FactError
from usbgpu.amd.facts.describe import Packet, parts


@dataclass(frozen=True, slots=True)
class Pm4Packet(Packet):
    """A kind of packet; `size` and `parts` are of its body.

    Attributes:
        opcode: bits 15:8 of the header.
        data: whether data follows.
    """

    opcode: int
    data: bool

    def pack(self, *data: int, **values: int) -> list[int]:
        """Header and body; `data` follow the parts.

        Raises:
            FactError: no such part, a number that does not fit, or data missing or where none belong.
        """
        if bool(data) != self.data and self.name != "NOP":
            raise FactError(f"{self.name} {'needs' if self.data else 'takes no'} data")
        body = [*self.filled(values), *data]
        return [header(self.opcode, len(body)) if body else ONE_DWORD_NOP, *body]


COUNT_LIMIT = 0x3FFF
"""The largest count; in a NOP it stands for a packet without a body (`gfx_v11_0.c`)."""
ONE_DWORD_NOP = 0xFFFF_1000
TYPE_2 = 2
"""Type of packets that are one dword of padding."""
TYPE_3 = 3


def header(opcode: int, size: int) -> int:
    """The header of a type-3 packet with a body of `size` dwords, 1 to 0x3fff."""
    return TYPE_3 << 30 | (size - 1) << 16 | opcode << 8


def kind(word: int) -> int:
    """The type of the packet that a header begins."""
    return word >> 30


def opcode(word: int) -> int:
    """The opcode in a type-3 header."""
    return word >> 8 & 0xFF


def body_size(word: int) -> int:
    """Dwords that follow a header of type 2 or 3."""
    if kind(word) == TYPE_2 or word & 0xFFFF_FF00 == ONE_DWORD_NOP:
        return 0
    return (word >> 16 & COUNT_LIMIT) + 1


def _packets(text: str) -> dict[str, Pm4Packet]:
    """Packets from lines `NAME OPCODE SIZE PART:DWORD:SHIFT:WIDTH...`; a + behind the size if data follow."""
    packets = {}
    for line in text.strip().split("\n"):
        name, number, size, *rest = line.split()
        packets[name] = Pm4Packet(name, int(size.rstrip("+")), parts(rest), int(number, 16), "+" in size)
    return packets


PACKETS: Mapping[str, Pm4Packet] = _packets("""
NOP 10 0+
DISPATCH_DIRECT 15 4 DIM_X:0:0:32 DIM_Y:1:0:32 DIM_Z:2:0:32 INITIATOR:3:0:32
DISPATCH_INDIRECT 16 3 ADDR:0:0:64 INITIATOR:2:0:32
WRITE_DATA 37 3+ DST_SEL:0:8:4 ONE_ADDR:0:16:1 WR_CONFIRM:0:20:1 CACHE_POLICY:0:25:2 ENGINE_SEL:0:30:2 DST_ADDR:1:0:64
WAIT_REG_MEM 3C 6 FUNCTION:0:0:3 MEM_SPACE:0:4:2 OPERATION:0:6:2 ENGINE:0:8:2 ADDR:1:0:64 REG1:1:0:32 REG2:2:0:32 REFERENCE:3:0:32 MASK:4:0:32 POLL_INTERVAL:5:0:16
INDIRECT_BUFFER 3F 3 IB_BASE:0:0:64 IB_SIZE:2:0:20 CHAIN:2:20:1 PRE_ENB:2:21:1 VALID:2:23:1 VMID:2:24:4 CACHE_POLICY:2:28:2 INHERIT_VMID:2:30:1
COPY_DATA 40 5 SRC_SEL:0:0:4 DST_SEL:0:8:4 SRC_CACHE_POLICY:0:13:2 COUNT_SEL:0:16:1 WR_CONFIRM:0:20:1 DST_CACHE_POLICY:0:25:2 ENGINE_SEL:0:30:2 SRC_ADDR:1:0:64 IMM_DATA:1:0:64 DST_ADDR:3:0:64
EVENT_WRITE 46 1 EVENT_TYPE:0:0:6 EVENT_INDEX:0:8:4
RELEASE_MEM 49 7 EVENT_TYPE:0:0:6 EVENT_INDEX:0:8:4 GLM_WB:0:12:1 GLM_INV:0:13:1 GLV_INV:0:14:1 GL1_INV:0:15:1 GL2_US:0:16:1 GL2_RANGE:0:17:2 GL2_DISCARD:0:19:1 GL2_INV:0:20:1 GL2_WB:0:21:1 SEQ:0:22:2 CACHE_POLICY:0:25:2 EXECUTE:0:28:1 DST_SEL:1:16:2 INT_SEL:1:24:3 DATA_SEL:1:29:3 ADDR:2:0:64 DATA:4:0:64 INT_CTXID:6:0:32
DMA_DATA 50 6 ENGINE_SEL:0:0:1 SRC_CACHE_POLICY:0:13:2 DST_SEL:0:20:2 DST_CACHE_POLICY:0:25:2 SRC_SEL:0:29:2 CP_SYNC:0:31:1 SRC_ADDR:1:0:64 DATA:1:0:32 DST_ADDR:3:0:64 BYTE_COUNT:5:0:26 SAS:5:26:1 DAS:5:27:1 SAIC:5:28:1 DAIC:5:29:1 RAW_WAIT:5:30:1
ACQUIRE_MEM 58 7 COHER_SIZE:1:0:64 COHER_BASE:3:0:64 POLL_INTERVAL:5:0:16 GLI_INV:6:0:2 GL1_RANGE:6:2:2 GLM_WB:6:4:1 GLM_INV:6:5:1 GLK_WB:6:6:1 GLK_INV:6:7:1 GLV_INV:6:8:1 GL1_INV:6:9:1 GL2_US:6:10:1 GL2_RANGE:6:11:2 GL2_DISCARD:6:13:1 GL2_INV:6:14:1 GL2_WB:6:15:1 SEQ:6:16:2 RANGE_IS_PA:6:18:1
SET_SH_REG 76 1+ REG_OFFSET:0:0:16 INDEX:0:28:4
SET_UCONFIG_REG 79 1+ REG_OFFSET:0:0:16
WAIT_REG_MEM64 93 8 FUNCTION:0:0:3 MEM_SPACE:0:4:2 OPERATION:0:6:2 ENGINE:0:8:2 ADDR:1:0:64 REG1:1:0:32 REG2:2:0:32 REFERENCE:3:0:64 MASK:5:0:64 POLL_INTERVAL:7:0:16
""")  # noqa: E501
"""By name. Register addresses are indices of dwords; coherency sizes and bases count 256 bytes (inferred)."""

BY_OPCODE: Mapping[int, Pm4Packet] = {packet.opcode: packet for packet in PACKETS.values()}

NOT_MODELLED: Mapping[int, str] = {
    0x11: "SET_BASE", 0x12: "CLEAR_STATE", 0x1D: "ATOMIC_GDS", 0x1E: "ATOMIC_MEM", 0x20: "SET_PREDICATION",
    0x21: "REG_RMW", 0x22: "COND_EXEC", 0x23: "PRED_EXEC", 0x28: "CONTEXT_CONTROL",
    0x32: "INDIRECT_BUFFER_PRIV", 0x39: "MEM_SEMAPHORE", 0x42: "PFP_SYNC_ME", 0x45: "COND_WRITE",
    0x59: "REWIND", 0x5A: "INTERRUPT", 0x5D: "PRIME_UTCL2", 0x5E: "LOAD_UCONFIG_REG", 0x5F: "LOAD_SH_REG",
    0x68: "SET_CONFIG_REG", 0x69: "SET_CONTEXT_REG", 0x77: "SET_SH_REG_OFFSET", 0x78: "SET_QUEUE_REG",
    0x7A: "SET_UCONFIG_REG_INDEX", 0x90: "FRAME_CONTROL", 0x95: "HDP_FLUSH", 0x98: "INVALIDATE_TLBS",
    0x99: "AQL_PACKET", 0x9A: "DMA_DATA_FILL_MULTI", 0x9B: "SET_SH_REG_INDEX", 0xA0: "SET_RESOURCES",
    0xA1: "MAP_PROCESS", 0xA2: "MAP_QUEUES", 0xA3: "UNMAP_QUEUES", 0xA4: "QUERY_STATUS", 0xA5: "RUN_LIST",
}  # fmt: skip
"""Opcodes that exist and are not in PACKETS."""

SH_REGISTERS = range(0x2C00, 0x3000)
"""What SET_SH_REG reaches: indices of dwords; REG_OFFSET counts from the first."""
UCONFIG_REGISTERS = range(0xC000, 0xC400)
"""The same of SET_UCONFIG_REG."""

FUNCTIONS: tuple[str, ...] = ("always", "<", "<=", "==", "!=", ">=", ">")
"""WAIT_REG_MEM.FUNCTION: value & mask on the left, reference on the right."""
WAIT, WRITE_WAIT = 0, 1
"""WAIT_REG_MEM.OPERATION: wait; write the reference to REG1, then wait for REG2."""

EVENTS: Mapping[str, int] = {
    "CACHE_FLUSH_TS": 0x04,
    "CACHE_FLUSH": 0x06,
    "CS_PARTIAL_FLUSH": 0x07,
    "CACHE_FLUSH_AND_INV_TS_EVENT": 0x14,
    "CACHE_FLUSH_AND_INV_EVENT": 0x16,
    "CS_CONTEXT_DONE": 0x23,
    "BOTTOM_OF_PIPE_TS": 0x28,
    "CS_DONE": 0x2F,
}
"""VGT_EVENT_TYPE, those for compute."""
EVENT_INDICES: Mapping[str, int] = {
    "CACHE_FLUSH_TS": 5,
    "CACHE_FLUSH": 0,
    "CS_PARTIAL_FLUSH": 4,
    "CACHE_FLUSH_AND_INV_TS_EVENT": 5,
    "CACHE_FLUSH_AND_INV_EVENT": 0,
    "CS_CONTEXT_DONE": 0,
    "BOTTOM_OF_PIPE_TS": 5,
    "CS_DONE": 6,
}
"""EVENT_INDEX that belongs to an event: 5 end of pipe, 6 end of shader, 4 partial flush."""
DATA_SELECTS: Mapping[int, str] = {0: "none", 1: "32-bit", 2: "64-bit", 3: "GPU clock", 4: "system clock"}
"""RELEASE_MEM.DATA_SEL. Both clocks count 100 MHz here (the second: guess)."""
INTERRUPT_SELECTS: Mapping[int, str] = {0: "none", 1: "interrupt", 2: "after the write", 3: "write only"}
"""RELEASE_MEM.INT_SEL; 3 confirms the write without an interrupt (Mesa)."""

COPY_SOURCES: Mapping[int, str] = {0: "register", 1: "memory", 2: "memory", 5: "immediate", 9: "GPU clock"}
"""COPY_DATA.SRC_SEL; 2 is memory through GL2."""
COPY_TARGETS: Mapping[int, str] = {0: "register", 1: "memory", 2: "memory", 5: "memory"}
"""COPY_DATA.DST_SEL and WRITE_DATA.DST_SEL."""
DMA_SOURCES: Mapping[int, str] = {0: "memory", 2: "data", 3: "memory"}
"""DMA_DATA.SRC_SEL; 3 is memory through GL2."""
DMA_TARGETS: Mapping[int, str] = {0: "memory", 3: "memory"}
"""DMA_DATA.DST_SEL."""

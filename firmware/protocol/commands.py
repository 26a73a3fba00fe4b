"""The command list: many operations of the bridge in one round trip. Only our firmware has it.

A host opens list mode with the request LIST (requests.py), which sets the sequence number of the first list.
Then everything travels on the bulk endpoints:

    EP 0x02   a list: LIST_HEADER, operations, LIST_TRAILER; at most LIST_BYTES. Then the payload of its
              operations, in their order. Lists and payload begin at the start of a packet.
    EP 0x81   the list's result: the results of its operations, in their order, each rounded up to a dword,
              then RESULT_TRAILER. It ends with a short packet (an empty one, if the last packet is full).

List and payload may be one transfer: what follows the end of either in its last packet is padding. A packet
shorter than the maximum ends a transfer, so it is the last of a list or of an operation's payload.

Receiving. A list is copied into memory packet by packet and checked: magic, length, checksum, sequence
number. If a check fails, no part of the list runs. Otherwise its sequence number is used up, even if the list
fails, and the next list has the number after it (modulo 2^16). Every list has exactly one result, even one
that is refused. The firmware takes the next list from the bulk buffer only when the host has read the result.

Running. Operations run in order until the first that fails; the trailer gives the operation, the cause and
the address. The result has everything produced before.

After a list that was refused or failed, the host may still be sending its payload, and the firmware does not
know where that ends. So packets are dropped, without an answer, until one begins with a LIST_HEADER of the
expected sequence number. A list that is damaged in this state has no result. A host that gets none, or has
lost count, opens list mode again: this aborts what is running and resets all state of list mode. A bus reset,
a cleared halt and a request that uses the bulk endpoints in another way do so too, and close list mode.

Payload of block writes comes in packets of PAYLOAD_HEADER and dwords, numbered from 0 within the operation. A
host fills each but the last; the firmware takes the dwords of a packet up to the number still needed. A
packet with a wrong number is not written, one with a wrong checksum has already been; both end the list, and
the trailer names the packet. Payload of slot transfers has no header.

Results wait in RESULT_BYTES of memory until the host reads them. So a host that first sends a list with all
its payload and then reads is never blocked if the result, trailer included, has at most RESULT_BYTES. It must
read a longer result while it sends.

The hardware does not report the end of a slot transfer. Towards the SRAM, the device reports it by a fence,
which the list waits for before it continues with other payload or ends: EP 0x02 may carry nothing else until
then. Towards the host, the host reports it by a packet of payload without dwords, which SYNC or the next
SLOT_IN waits for: EP 0x81 may carry nothing else until then. If a list fails between SLOT_IN and SYNC, INFO
reports the cause, and a bus reset frees the endpoint: nothing else disarms the engine.

Checksums are Fletcher's with two sums modulo 256, over the whole list or the packet without its padding; the
two check bytes make both sums 0.

All numbers are little-endian. Everything here is defined by this project, so it needs no other evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

from sdk.facts.registers import Evidence, FactError
from sdk.facts.structures import Member, Struct

API_LEVEL = 0x0101
"""Reported in bcdDevice and in INFO. The high byte changes when older hosts would misread the protocol."""
LIST_BYTES = 0x4000
"""Bytes of the longest list, header and trailer included."""
RESULT_BYTES = 0x1000
"""Bytes of results, trailer included, that are kept until the host reads them."""

OURS = "this project's protocol"
"""The source of these facts."""


def _struct(name: str, size: int, doc: str, *members: Member) -> Struct:
    return Struct(name, size, members, doc, Evidence.HARDWARE, OURS)


LIST_HEADER = _struct(
    "LIST_HEADER",
    8,
    "Starts a command list.",
    Member("magic", 2, fixed=0x4C54),
    Member("sequence", 2, "one more than that of the last list that ran"),
    Member("length", 2, "bytes of the list with header and trailer, a multiple of 8"),
    Member("reserved", 2, "zeros", raw=True),
)
LIST_TRAILER = _struct(
    "LIST_TRAILER",
    8,
    "Ends a command list.",
    Member("reserved", 6, "zeros", raw=True),
    Member("check", 2, "the check bytes", raw=True),
)
PAYLOAD_HEADER = _struct(
    "PAYLOAD_HEADER",
    4,
    "Starts a packet of payload.",
    Member("number", 2, "of the packet within its operation, from 0"),
    Member("check", 2, "the check bytes", raw=True),
)
RESULT_TRAILER = _struct(
    "RESULT_TRAILER",
    16,
    "Ends a result.",
    Member("magic", 2, fixed=0x5254),
    Member("sequence", 2, "the list's; for a refused list, the number that was expected"),
    Member(
        "cause",
        1,
        "why the list ended",
        values={
            0x00: "done",
            0x01: "unsupported request",
            0x02: "completer abort",
            0x03: "configuration retry",
            0x04: "completion timeout",
            0x05: "no completion",
            0x06: "condition timeout",
            0x07: "link down",
            0x10: "bad opcode",
            0x11: "bad operand",
            0x20: "bad header",
            0x21: "bad sequence",
            0x22: "bad checksum",
            0x23: "bad payload",
        },
    ),
    Member("opcode", 1, "of the operation that failed"),
    Member("index", 2, "of the operation that failed, from 0; the number of operations if none failed"),
    Member("address", 8, "the operation's; for bad payload, the packet's number"),
)
INFO = _struct(
    "INFO",
    32,
    "The answer to the request INFO.",
    Member("api_level", 2, "API_LEVEL"),
    Member("list_bytes", 2, "LIST_BYTES"),
    Member("result_bytes", 2, "RESULT_BYTES"),
    Member("ltssm", 1, "PCIE_LTSSM as it is now"),
    Member("link_rate", 1, "PCIE_LINK_RATE as it is now"),
    Member("uptime", 4, "milliseconds since the firmware started"),
    Member("build", 4, "identity of the build: a digest of its sources"),
    Member("links_lost", 2, "how often the PCIe link went down when it should be up"),
    Member("sequence", 2, "of the last list that ran"),
    Member("cause", 1, "of the last failure of a list, as in RESULT_TRAILER; 0 if none has failed"),
    Member("opcode", 1, "of the last failure, as in RESULT_TRAILER"),
    Member("index", 2, "of the last failure, as in RESULT_TRAILER"),
    Member("address", 8, "of the last failure, as in RESULT_TRAILER"),
)

OPERATION = _struct(
    "OPERATION",
    16,
    "An operation of a list.",
    Member("opcode", 1),
    Member("enables", 1, "byte enables of the dword, bit 0 is its lowest byte; 15 for the whole dword"),
    Member("count", 2, "dwords, bytes, slots or rounds, depending on the opcode; else 0"),
    Member("address", 8, "depends on the opcode"),
    Member("value", 4, "depends on the opcode"),
)
EXTENSION = _struct(
    "EXTENSION",
    8,
    "Follows an operation that needs more operands.",
    Member("mask", 4, "the bits to compare or change; for FENCE, what a round of the loop adds to the value"),
    Member("timeout", 4, "the least time to wait in microseconds, less than MICROSECONDS"),
)


@dataclass(frozen=True, slots=True)
class Opcode:
    """One kind of operation.

    Attributes:
        name: a C identifier in capitals.
        code: its opcode.
        doc: what it does.
        extended: an EXTENSION follows.
        result: bytes of result for each unit of `count`; 0 for none.
        single: it has one result, independent of `count`.
        payload: it takes payload.
    """

    name: str
    code: int
    doc: str
    extended: bool = False
    result: int = 0
    single: bool = True
    payload: bool = False


OPCODES: tuple[Opcode, ...] = (
    Opcode("WRITE", 0x01, "Writes `value` to memory at `address` (a multiple of 4)."),
    Opcode("READ", 0x02, "Reads a dword of memory.", result=4),
    Opcode("MODIFY", 0x03, "Writes back what it reads, with the bits of `mask` from `value`.", extended=True),
    Opcode(
        "POLL",
        0x04,
        "Reads a dword until it equals `value` in the bits of `mask`; returns the last one.",
        extended=True,
        result=4,
    ),
    Opcode(
        "CONFIG_WRITE",
        0x05,
        "Writes configuration space; `address` is bus << 24 | device << 19 | function << 16 | register.",
    ),
    Opcode("CONFIG_READ", 0x06, "Reads configuration space, addressed as in CONFIG_WRITE.", result=4),
    Opcode("BLOCK_WRITE", 0x07, "Writes `count` dwords of payload from `address` upwards.", payload=True),
    Opcode("FIFO_WRITE", 0x08, "Writes `count` dwords of payload, all to `address`.", payload=True),
    Opcode("BLOCK_READ", 0x09, "Reads `count` dwords from `address` upwards.", result=4, single=False),
    Opcode("FIFO_READ", 0x0A, "Reads `count` dwords, all from `address`.", result=4, single=False),
    Opcode("FILL", 0x0B, "Writes `value` to `count` dwords from `address` upwards."),
    Opcode("DELAY", 0x0C, "Waits `value` microseconds, less than MICROSECONDS."),
    Opcode(
        "XDATA_WRITE",
        0x0D,
        "Writes `value`, a byte, at XDATA `address`; bit 16 of the address selects the PHY plane.",
    ),
    Opcode(
        "XDATA_READ",
        0x0E,
        "Reads `count` bytes of XDATA, addressed as in XDATA_WRITE.",
        result=1,
        single=False,
    ),
    Opcode(
        "SLOT_OUT",
        0x0F,
        "Arms the slot DMA: the next `value` sectors of payload go to the `count` slots of SRAM from slot "
        "`address` on. It does not wait.",
        payload=True,
    ),
    Opcode(
        "SLOT_IN",
        0x10,
        "Arms the slot DMA towards the host: once a device has written the completion entry, the host reads "
        "the sectors from EP 0x81, before the result. SLOT_IN does not wait for that. It first waits, as "
        "SYNC does, for the sectors of the SLOT_IN before it.",
    ),
    Opcode(
        "FENCE",
        0x11,
        "Waits until the dword at offset `address` of SRAM slot 0 has reached `value`: their difference, as "
        "a signed number, is not negative.",
        extended=True,
    ),
    Opcode("LOOP", 0x12, "Runs the operations up to END `count` times; loops do not nest."),
    Opcode("END", 0x13, "Ends a LOOP."),
    Opcode(
        "SYNC",
        0x14,
        "Waits for a packet of payload with no dwords. The host sends one when it has read the sectors of a "
        "SLOT_IN. A list must have a SYNC after its last SLOT_IN.",
        payload=True,
    ),
)
"""The operations. In a loop, an operation has a result in every round."""

PACKETS = (512, 1024)
"""Bytes of the largest packet of a bulk endpoint, at High Speed and at SuperSpeed."""
MICROSECONDS = 1 << 26
"""Time-outs and delays are shorter than this, 67 seconds."""

STRUCTS = (LIST_HEADER, LIST_TRAILER, PAYLOAD_HEADER, RESULT_TRAILER, INFO, OPERATION, EXTENSION)


def check_bytes(data: bytes, place: int) -> bytes:
    """The two bytes that, written at `place` (where `data` has zeros), make both sums of `data` 0.

    Both sums are linear. The first counts each byte once; the second counts it with a weight, the number of
    bytes from it to the end.
    """
    first, second = fletcher(data)
    # a + b = -first; weight * a + (weight - 1) * b = -second
    weight = len(data) - place
    a = (-second + (weight - 1) * first) & 0xFF
    b = (-first - a) & 0xFF
    return bytes((a, b))


def fletcher(data: bytes) -> tuple[int, int]:
    """Fletcher's two sums, modulo 256."""
    first = second = 0
    for byte in data:
        first = (first + byte) & 0xFF
        second = (second + first) & 0xFF
    return first, second


if len({opcode.code for opcode in OPCODES}) != len(OPCODES):
    raise FactError("OPCODES: two operations have one code")

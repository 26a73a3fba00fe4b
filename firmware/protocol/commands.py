"""The command list: many operations of the bridge in one round trip. Ours, and no other firmware's.

A host opens list mode with the request LIST (requests.py), which says what the first list's sequence number
will be. Then everything travels on the bulk endpoints:

    EP 0x02   a list: LIST_HEADER, operations, LIST_TRAILER; at most LIST_BYTES. Then the payload of its
              operations, in their order. Lists and payload begin at a packet's start.
    EP 0x81   what the operations gave, in their order, each rounded up to a dword, then RESULT_TRAILER; ended
              by a short packet (an empty one, if it would end with a full one). This is the list's result.

List and payload may be one transfer: what follows the end of either in its last packet is padding. A packet
shorter than the largest one ends a transfer, so it is the last of a list or of an operation's payload.

Receiving. A list is copied into memory packet by packet and checked: magic, length, checksum, sequence
number. Nothing of it runs if a check fails. Otherwise its sequence number has been used, whatever becomes of
it, and the next list's is one more (modulo 2^16). Every list has exactly one result, also one that was
refused; the next one is taken from the bulk buffer only when the host has read it.

Running. Operations run in order until the first that fails; the trailer says which one, why, and at what
address. What was given before is in the result.

After a list that was refused or failed the host may still be sending its payload, and nobody may know where
that ends. So packets are dropped, without an answer, until one begins with a LIST_HEADER of the expected
sequence number. A list that is damaged just then has no result. A host that gets none, or has lost count,
opens list mode again: this aborts what is running and forgets everything. A bus reset, a cleared halt and a
request that uses the bulk endpoints otherwise do so too, and close list mode.

Payload of block writes comes in packets of PAYLOAD_HEADER and dwords, numbered from 0 within the operation. A
host fills each but the last; the firmware takes as many dwords of a packet as it has and are wanted. A packet
with a wrong number is not written, one with a wrong checksum has been; both end the list and are named.
Payload of slot transfers is bare.

Results wait in RESULT_BYTES of memory until the host reads them. So a host that first sends a list with all
its payload and then reads is never blocked by it while the list gives no more than RESULT_BYTES with the
trailer; longer results must be read meanwhile.

Nothing tells the firmware that a slot transfer is over. Towards the SRAM the device says so, by a fence that
the list waits for before it goes on with other payload or ends: EP 0x02 may carry nothing else until then.
Towards the host, the host says so, by a packet of payload without dwords that SYNC waits for, or the next
SLOT_IN: EP 0x81 may carry nothing else until then. If a list fails between SLOT_IN and SYNC, INFO tells why,
and a bus reset frees the endpoint: nothing else disarms the engine.

Checksums are Fletcher's with two sums modulo 256, over the whole list or the packet without its padding; the
two check bytes in it are such that both sums come out as 0.

All numbers are little-endian. The evidence of everything here is that we say so.
"""

from __future__ import annotations

from dataclasses import dataclass

from sdk.facts.registers import Evidence, FactError
from sdk.facts.structures import Member, Struct

API_LEVEL = 0x0100
"""Stands in bcdDevice and in INFO. The high byte changes when older hosts would misread us."""
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
    Member("sequence", 2, "the list's; of a refused one, the number that was expected"),
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
    Member("index", 2, "of the operation that failed, the list's first one is 0; of them all, if none did"),
    Member("address", 8, "the operation's; of bad payload, the packet's number"),
)
INFO = _struct(
    "INFO",
    32,
    "What the request INFO answers.",
    Member("api_level", 2, "API_LEVEL"),
    Member("list_bytes", 2, "LIST_BYTES"),
    Member("result_bytes", 2, "RESULT_BYTES"),
    Member("ltssm", 1, "PCIE_LTSSM as it is now"),
    Member("link_rate", 1, "PCIE_LINK_RATE as it is now"),
    Member("uptime", 4, "milliseconds since the firmware started"),
    Member("build", 4, "identity of the build: a digest of its sources"),
    Member("links_lost", 2, "how often the PCIe link went down while it should be up"),
    Member("sequence", 2, "of the last list that ran"),
    Member("cause", 1, "of the last list that failed, as in RESULT_TRAILER; 0 if none has"),
    Member("opcode", 1, "its"),
    Member("index", 2, "its"),
    Member("address", 8, "where the last failure was"),
)

OPERATION = _struct(
    "OPERATION",
    16,
    "An operation of a list.",
    Member("opcode", 1),
    Member("enables", 1, "byte enables of the dword, bit 0 is its lowest byte; 15 for all of it"),
    Member("count", 2, "dwords, bytes, slots or rounds, as the opcode says; else 0"),
    Member("address", 8, "as the opcode says"),
    Member("value", 4, "as the opcode says"),
)
EXTENSION = _struct(
    "EXTENSION",
    8,
    "Follows an operation that needs more.",
    Member("mask", 4, "bits that count; of FENCE, what a round of the loop adds to the value"),
    Member("timeout", 4, "at least so many microseconds, less than MICROSECONDS"),
)


@dataclass(frozen=True, slots=True)
class Opcode:
    """One kind of operation.

    Attributes:
        name: a C identifier in capitals.
        code: its opcode.
        doc: what it does.
        extended: an EXTENSION follows.
        result: bytes it gives for each unit of `count`; 0 for none.
        single: gives its result once, whatever `count` says.
        payload: takes payload.
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
        "Reads a dword until it equals `value` in the bits of `mask`; gives the last one.",
        extended=True,
        result=4,
    ),
    Opcode(
        "CONFIG_WRITE",
        0x05,
        "Writes configuration space; `address` is bus << 24 | device << 19 | function << 16 | register.",
    ),
    Opcode("CONFIG_READ", 0x06, "Reads configuration space, addressed likewise.", result=4),
    Opcode("BLOCK_WRITE", 0x07, "Writes `count` dwords of payload from `address` upwards.", payload=True),
    Opcode("FIFO_WRITE", 0x08, "Writes `count` dwords of payload, all to `address`.", payload=True),
    Opcode("BLOCK_READ", 0x09, "Reads `count` dwords from `address` upwards.", result=4, single=False),
    Opcode("FIFO_READ", 0x0A, "Reads `count` dwords, all from `address`.", result=4, single=False),
    Opcode("FILL", 0x0B, "Writes `value` to `count` dwords from `address` upwards."),
    Opcode("DELAY", 0x0C, "Waits `value` microseconds, less than MICROSECONDS."),
    Opcode(
        "XDATA_WRITE", 0x0D, "Writes `value`, a byte, at XDATA `address`; its bit 16 chooses the PHY plane."
    ),
    Opcode("XDATA_READ", 0x0E, "Reads `count` bytes of XDATA, addressed likewise.", result=1, single=False),
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
        "Arms the slot DMA the other way: the host reads the sectors from EP 0x81, before the result, once a "
        "device has written the completion entry. It does not wait for that. For the sectors of a SLOT_IN "
        "before it, it waits as SYNC does.",
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
        "SLOT_IN; of the last one, a list must wait for it.",
        payload=True,
    ),
)
"""The operations. Results of a loop's operations are given in every round."""

PACKETS = (512, 1024)
"""Bytes of the largest packet of a bulk endpoint, at High Speed and at SuperSpeed."""
MICROSECONDS = 1 << 26
"""Time-outs and delays are shorter than this, 67 seconds."""

STRUCTS = (LIST_HEADER, LIST_TRAILER, PAYLOAD_HEADER, RESULT_TRAILER, INFO, OPERATION, EXTENSION)


def check_bytes(data: bytes, place: int) -> bytes:
    """The two bytes that, put at `place` (where `data` has zeros), make both sums of `data` 0.

    Both sums are linear: a byte at index i adds its value once to the first, and as often as there are bytes
    from it to the end to the second.
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

"""Command lists as a host sends them, for the checks.

Lists are packed here, from the declarations in `firmware.protocol.commands` and not by the host's codec: two
independent readings of one specification must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firmware.protocol import commands, requests
from firmware.protocol.commands import (
    EXTENSION,
    LIST_HEADER,
    LIST_TRAILER,
    OPERATION,
    PAYLOAD_HEADER,
    RESULT_TRAILER,
)
from sdk.facts.structures import Malformed
from usbgpu.conform.bench import Bench, equal, fail, require

PATIENCE = 5.0
"""Seconds that a list's result may take here; the longest list takes much less."""
LONGEST = 0x10000
"""More bytes than any result here has."""
FIRST = 0x0123
"""Sequence number of the first list of a check."""

OPCODES = {opcode.name: opcode for opcode in commands.OPCODES}
CAUSES = RESULT_TRAILER.member("cause").values


@dataclass(frozen=True, slots=True)
class Found:
    """A list's result.

    Attributes:
        cause: why it ended, as text.
        index: operations that were done.
        opcode: of the one that failed.
        address: of the failure.
        data: the results of the operations.
    """

    cause: str
    index: int
    opcode: int
    address: int
    data: bytes

    def dwords(self) -> list[int]:
        """The data as numbers."""
        return [
            int.from_bytes(self.data[place : place + 4], "little") for place in range(0, len(self.data), 4)
        ]


def op(
    name: str,
    address: int = 0,
    value: int = 0,
    *,
    count: int = 0,
    enables: int = 0xF,
    mask: int = 0xFFFF_FFFF,
    timeout: int = 1000,
) -> bytes:
    """An operation; `mask` and `timeout` count if it is extended."""
    kind = OPCODES[name]
    raw = OPERATION.pack(opcode=kind.code, enables=enables, count=count, address=address, value=value)
    return raw + EXTENSION.pack(mask=mask, timeout=timeout) if kind.extended else raw


def packed(operations: Sequence[bytes], sequence: int = FIRST, **changes: int) -> bytes:
    """A list; `changes` are to members of its header, before the checksum."""
    body = b"".join(operations)
    header = {
        "magic": LIST_HEADER.member("magic").fixed or 0,
        "sequence": sequence,
        "length": LIST_HEADER.size + len(body) + LIST_TRAILER.size,
    }
    data = bytearray(LIST_HEADER.pack(**(header | changes)) + body + bytes(LIST_TRAILER.size))
    place = len(data) - LIST_TRAILER.size + LIST_TRAILER.offset("check")
    data[place : place + 2] = commands.check_bytes(bytes(data), place)
    return bytes(data)


def payload(data: bytes, packet: int) -> bytes:
    """The packets of one operation's payload."""
    room = packet - PAYLOAD_HEADER.size
    out = bytearray()
    for number, start in enumerate(range(0, len(data), room)):
        out += sealed(PAYLOAD_HEADER.pack(number=number) + data[start : start + room])
    return bytes(out)


def sealed(packet: bytes) -> bytes:
    """A packet of payload with its checksum."""
    place = PAYLOAD_HEADER.offset("check")
    return packet[:place] + commands.check_bytes(packet, place) + packet[place + 2 :]


def open_lists(bench: Bench, sequence: int = FIRST) -> None:
    """LIST: open."""
    bench.vendor_out(requests.LIST, 1, sequence)


def result(bench: Bench, sequence: int = FIRST) -> Found:
    """The result of the last list."""
    raw = bench.device.bulk_in(LONGEST, timeout=PATIENCE)
    require(len(raw) >= RESULT_TRAILER.size, f"the result has {len(raw)} bytes")
    try:
        trailer = RESULT_TRAILER.unpack(raw[-RESULT_TRAILER.size :])
    except Malformed as problem:
        fail(str(problem))
    equal("the result's sequence number", trailer["sequence"], sequence)
    require(trailer["cause"] in CAUSES, f"the cause is {trailer['cause']:#x}")
    return Found(
        CAUSES[trailer["cause"]],
        trailer["index"],
        trailer["opcode"],
        trailer["address"],
        raw[: -RESULT_TRAILER.size],
    )


def run(bench: Bench, operations: Sequence[bytes], payloads: Sequence[bytes] = ()) -> Found:
    """Open list mode, and run one list."""
    open_lists(bench)
    bench.device.bulk_out(packed(operations))
    for data in payloads:
        bench.device.bulk_out(payload(data, bench.device.packet_size))
    return result(bench)


def done(found: Found, operations: int) -> Found:
    """The list must have run to its end."""
    why = f"operation {found.index} (opcode {found.opcode:#04x}, address {found.address:#x}): {found.cause}"
    require(found.cause == "done", why)
    equal("operations done", found.index, operations)
    return found

"""The operations of a command list as Python objects, and the results of running them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmware.asm2464pd.registers.memory import SLOT_SIZE, SRAM
from firmware.protocol import commands
from firmware.protocol.commands import (
    EXTENSION,
    LIST_HEADER,
    LIST_TRAILER,
    OPERATION,
    RESULT_TRAILER,
    Opcode,
)
from firmware.protocol.payload import sums
from sdk.facts.structures import Malformed

DWORD = 4
SECTOR = 512
"""Bytes of a sector of the slot DMA."""
SLOTS = SRAM.size // SLOT_SIZE
ALL_BYTES = 0x0F
"""Byte enables of a whole dword."""
CAUSES = RESULT_TRAILER.member("cause").values
"""Why a list ended, as text."""
REFUSED = 0x20
"""Causes from here on, without an opcode, are of a list that was refused."""

Data = bytes | bytearray | memoryview
"""Bytes in the caller's memory; a memoryview is one of single bytes."""

BY_NAME = {opcode.name: opcode for opcode in commands.OPCODES}
_BY_CODE = {opcode.code: opcode for opcode in commands.OPCODES}


class ListError(ValueError):
    """A list that the protocol does not allow, or data that is not a result."""


class Parts:
    """Payload in pieces of the caller's memory, which must not change until the list has run.

    Args:
        rounds: the pieces of each round of the loop (or of the only round), in order; all rounds have the
            same size.
    """

    def __init__(self, rounds: Sequence[Sequence[Data]]) -> None:
        self.rounds = rounds
        sizes = {sum(map(len, pieces)) for pieces in rounds}
        if len(sizes) != 1:
            raise ListError(f"{len(sizes)} different sizes of payload in the rounds of a loop: one is needed")
        self._size = sizes.pop() * len(rounds)

    def __len__(self) -> int:
        """Bytes of all rounds."""
        return self._size


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, as OPERATION and EXTENSION in `commands`.

    Attributes:
        payload: its payload; in a loop that of all rounds, one after another.
    """

    opcode: Opcode
    enables: int = 0
    count: int = 0
    address: int = 0
    value: int = 0
    mask: int = 0
    timeout: int = 0
    payload: bytes | Parts = b""

    def round(self, number: int, rounds: int) -> Sequence[Data]:
        """The pieces of its payload in one round of a loop."""
        if isinstance(self.payload, Parts):
            return self.payload.rounds[number]
        size = len(self.payload) // rounds
        return (memoryview(self.payload)[number * size : (number + 1) * size],)

    @property
    def size(self) -> int:
        """Bytes in the list."""
        return OPERATION.size + (EXTENSION.size if self.opcode.extended else 0)

    @property
    def result_size(self) -> int:
        """Bytes of its result each time it runs."""
        size = self.opcode.result * (1 if self.opcode.single else self.count)
        return -(-size // DWORD) * DWORD

    def pack(self) -> bytes:
        """Its bytes in the list."""
        data = OPERATION.pack(
            opcode=self.opcode.code,
            enables=self.enables,
            count=self.count,
            address=self.address,
            value=self.value,
        )
        if self.opcode.extended:
            data += EXTENSION.pack(mask=self.mask, timeout=self.timeout)
        return data


@dataclass(frozen=True, slots=True)
class Failure:
    """Why and where a list ended early.

    Attributes:
        cause: a code of CAUSES.
        index: of the operation in the list, from 0.
        opcode: its code; 0 for a refused list.
        address: where it failed: the operation's address, for a block read that of the dword, for bad payload
            the packet's number.
    """

    cause: int
    index: int
    opcode: int
    address: int

    def __str__(self) -> str:
        cause = CAUSES.get(self.cause, f"cause {self.cause:#04x}")
        if not self.opcode:
            return f"the list was refused: {cause}"
        name = _BY_CODE[self.opcode].name if self.opcode in _BY_CODE else f"opcode {self.opcode:#04x}"
        return f"operation {self.index} ({name}) failed at {self.address:#x}: {cause}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a list.

    Attributes:
        values: the result of each operation that has one, once a round: a dword, or the bytes of a block.
        failure: why the list ended early, if it did; `values` has the results that were complete before.
        partial: the incomplete result of the failed operation.
    """

    values: tuple[int | bytes, ...]
    failure: Failure | None
    partial: bytes = b""


def unpack(data: bytes) -> tuple[int, tuple[Operation, ...]]:
    """Sequence number and operations, without payload, of a packed list.

    Raises:
        ListError: a firmware would not run it.
    """
    try:
        fields = LIST_HEADER.unpack(data[: LIST_HEADER.size])
    except Malformed as problem:
        raise ListError(f"not a list: {problem}") from problem
    length = fields["length"]
    longest = min(len(data), commands.LIST_BYTES)
    if length % 8 or not LIST_HEADER.size + LIST_TRAILER.size <= length <= longest:
        raise ListError(
            f"a list of {length} bytes in data of {len(data)}: its length must be a multiple of 8 from "
            f"{LIST_HEADER.size + LIST_TRAILER.size} to {longest}"
        )
    if sums(np.frombuffer(data, np.uint8, length)[None, :]).any():
        raise ListError("the checksum is wrong")
    operations = []
    place, end = LIST_HEADER.size, length - LIST_TRAILER.size
    while place < end:
        opcode = _BY_CODE.get(data[place])
        if opcode is None or place + OPERATION.size + opcode.extended * EXTENSION.size > end:
            raise ListError(f"no complete operation with a known opcode at offset {place:#x}")
        base = OPERATION.unpack(data[place : place + OPERATION.size])
        place += OPERATION.size
        extension = {"mask": 0, "timeout": 0}
        if opcode.extended:
            extension = EXTENSION.unpack(data[place : place + EXTENSION.size])
            place += EXTENSION.size
        operations.append(
            Operation(
                opcode,
                base["enables"],
                base["count"],
                base["address"],
                base["value"],
                extension["mask"],
                extension["timeout"],
            )
        )
    return fields["sequence"], tuple(operations)

"""Operations on a card, collected and run as command lists."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from firmware.asm2464pd.registers.memory import SLOT_SIZE
from firmware.protocol import commands as wire
from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import DWORD, SECTOR
from sdk.errors import DeviceFailed, InternalError
from usbgpu.amd.card import Card
from usbgpu.bridge.base import CAUSE
from usbgpu.bridge.seam import SRAM_SIZE, ListFailed, Reply

ALL = 0xFFFF_FFFF
WAIT = 0.5
"""Default of the seconds that a condition may take to come true."""
REGISTER_WINDOW = 1 << 17
"""Dwords of registers that BAR 5 of every card reaches directly; those beyond go through an index and a data
register."""
RESULT_ROOM = wire.RESULT_BYTES - wire.RESULT_TRAILER.size
FEW = 4
"""Dwords that are written one by one: a block has payload, which comes in packets of its own."""
BLOCK_LIMIT = 0xFFFF
"""Dwords of one block operation."""

POLL = next(opcode.code for opcode in wire.OPCODES if opcode.name == "POLL")

T = TypeVar("T")


class GpuFailed(DeviceFailed):
    """The card refused something, or did not do it in time.

    Attributes:
        value: what was last read of a condition that did not come true, if that is known.
    """

    code = "gpu-failed"

    def __init__(
        self, message: str, *, where: str, hint: str | None = None, value: int | None = None
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.value = value


@dataclass
class Later(Generic[T]):
    """The result of a read, once its batch has run."""

    _value: T | None = None

    @property
    def value(self) -> T:
        """Raises InternalError if the batch has not run."""
        if self._value is None:
            raise InternalError("a value was requested before its batch has run")
        return self._value

    @property
    def known(self) -> bool:
        """Whether the batch has run."""
        return self._value is not None

    def set(self, value: T) -> None:
        """Set it."""
        self._value = value


@dataclass
class _List:
    """A command list, and what is known of its operations.

    Attributes:
        labels: of each operation, for messages.
        takers: of each result.
        size: bytes of the list so far; `result` likewise of its result.
        ended: nothing may be added.
        sectors: bytes of its SLOT_INs.
    """

    commands: CommandList = field(default_factory=CommandList)
    labels: list[str] = field(default_factory=list)
    takers: list[Callable[[int | bytes], None]] = field(default_factory=list)
    size: int = wire.LIST_HEADER.size + wire.LIST_TRAILER.size
    result: int = wire.RESULT_TRAILER.size
    ended: bool = False
    sectors: Later[bytes] = field(default_factory=Later)

    def takes(self, size: int, result: int) -> bool:
        """Whether there is room for an operation of `size` bytes with a result of `result` bytes."""
        return (
            not self.ended
            and self.size + size <= wire.LIST_BYTES
            and self.result + result <= wire.RESULT_BYTES
        )

    def take(self, reply: Reply) -> None:
        """Give out its results."""
        for taker, value in zip(self.takers, reply.values, strict=True):
            taker(value)
        self.sectors.set(reply.data)


class Batch:
    """Operations on a card, in order; `run` carries them out. One batch can be filled and run repeatedly.

    Args:
        card: whose.
        what: they are for, for messages: "PSP", "compute queue".

    Attributes:
        card, what: as given.
        bare: `store` adds no payload: it may be added while sectors are on their way to the bridge.
    """

    def __init__(self, card: Card, what: str) -> None:
        self.card = card
        self.what = what
        self.bare = False
        self._lists: list[_List] = []

    # -- registers --------------------------------------------------------------------------------------

    def write(self, block: str, name: str, value: int) -> None:
        """Write a register."""
        address = self._register(block, name)
        self._list(16, 0, name).write(address, value & ALL)

    def set(self, block: str, name: str, **fields: int) -> None:
        """Replace fields of a register and leave the others as they are. Raises FactError."""
        register = self.card.chip.register(block, name)
        mask = sum(register[field] for field in fields)
        address = self._register(block, name)
        self._list(24, 0, name).modify(address, register.pack(0, **fields), mask)

    def modify(self, block: str, name: str, value: int, mask: int) -> None:
        """The same by a mask, for bits without a name."""
        address = self._register(block, name)
        self._list(24, 0, name).modify(address, value, mask)

    def pair(self, block: str, low: str, high: str, value: int) -> None:
        """Write a number to two registers, the lower dword first."""
        self.write(block, low, value & ALL)
        self.write(block, high, value >> 32)

    def read(self, block: str, name: str) -> Later[int]:
        """Read a register."""
        address = self._register(block, name)
        self._list(16, DWORD, name).read(address)
        return self._give()

    def wait(
        self, block: str, name: str, value: int, mask: int = ALL, seconds: float = WAIT, *, what: str = ""
    ) -> Later[int]:
        """Read a register until it has a value in the bits of a mask. `what`: its meaning, for messages."""
        address = self._register(block, name)
        label = f"{name} & {mask:#x} == {value:#x}" if mask != ALL else f"{name} == {value:#x}"
        self._list(24, DWORD, f"{what} ({label})" if what else label).poll(
            address, value, mask, microseconds=round(seconds * 1e6)
        )
        return self._give()

    # -- VRAM through BAR 0, and doorbells --------------------------------------------------------------

    def store(self, offset: int, data: bytes) -> None:
        """Write VRAM. The card's engines see it after `flush_hdp`.

        Args:
            offset: in bytes, within BAR 0; a multiple of 4.
            data: whole dwords.
        """
        address = self._vram(offset, len(data))
        if len(data) <= FEW * DWORD or self.bare:
            for start in range(0, len(data), DWORD):
                value = int.from_bytes(data[start : start + DWORD], "little")
                self._list(16, 0, f"VRAM {offset + start:#x}").write(address + start, value)
            return
        for start in range(0, len(data), BLOCK_LIMIT * DWORD):
            part = data[start : start + BLOCK_LIMIT * DWORD]
            self._list(16, 0, f"VRAM {offset + start:#x}").block_write(address + start, part)

    def clear(self, offset: int, size: int) -> None:
        """Write zeros to VRAM."""
        address = self._vram(offset, size)
        for start in range(0, size, BLOCK_LIMIT * DWORD):
            dwords = min(BLOCK_LIMIT * DWORD, size - start) // DWORD
            self._list(16, 0, f"VRAM {offset + start:#x}").fill(address + start, 0, dwords)

    def load(self, offset: int, size: int) -> Later[bytes]:
        """Read VRAM, at most what one result holds. Raises InternalError if it is more."""
        if size > RESULT_ROOM:
            raise InternalError(f"a read of {size} bytes exceeds a result's {RESULT_ROOM}")
        address = self._vram(offset, size)
        self._list(16, size, f"VRAM {offset:#x}").block_read(address, size // DWORD)
        return self._give()

    def word(self, offset: int) -> Later[int]:
        """Read a dword of VRAM."""
        address = self._vram(offset, DWORD)
        self._list(16, DWORD, f"VRAM {offset:#x}").read(address)
        return self._give()

    def wait_memory(
        self, offset: int, value: int, what: str, mask: int = ALL, seconds: float = WAIT
    ) -> Later[int]:
        """Read a dword of VRAM until it has a value in the bits of a mask."""
        address = self._vram(offset, DWORD)
        self._list(24, DWORD, what).poll(address, value, mask, microseconds=round(seconds * 1e6))
        return self._give()

    def flush_hdp(self) -> None:
        """Make everything that was stored arrive in VRAM.

        The host data path holds writes back until it is flushed, or for some microseconds (inferred).
        """
        self._list(16, 0, "HDP flush").write(self.card.bars[5] + self.card.hdp_flush, 0)

    def doorbell(self, offset: int, value: int) -> None:
        """Ring: a 64-bit write at a byte offset of BAR 2, as two dwords, the lower first.

        The lower one rings. The upper one is that of a count of 4 Gi or more; without lists, where it would
        be a transfer, it is left out if it is 0, as it is after a reset (grade: inferred).
        """
        address = self.card.bars[2] + offset
        for part in (0, DWORD):
            if part and not value >> 32 and not self.card.bridge.has_lists:
                continue
            self._list(16, 0, f"doorbell {offset:#x}").write(address + part, value >> 8 * part & ALL)

    # -- time, and the bridge's SRAM ---------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Wait."""
        self._list(16, 0, "pause").delay(round(seconds * 1e6))

    def upload(self, data: bytes, slot: int = 0) -> None:
        """Write data to the bridge's SRAM, from a slot on; it is there before what follows is done.

        It ends the list: the engine that fills the SRAM has the bulk endpoint to itself until the host has
        sent everything.
        """
        if len(data) > SRAM_SIZE - slot * SLOT_SIZE:
            raise InternalError(f"{len(data)} bytes do not fit the SRAM from slot {slot} on")
        data += bytes(-len(data) % SECTOR)
        self._list(16, 0, f"SRAM slot {slot}").slot_out(slot, -(-len(data) // SLOT_SIZE), data)
        self._lists[-1].ended = True

    def bridge(self, commands: CommandList, label: str) -> Later[bytes]:
        """Operations of the bridge itself, such as fences and slot transfers; they stay together in one list.

        What they read is dropped.

        Returns:
            The bytes of its SLOT_INs.
        """
        size = sum(operation.size for operation in commands.operations)
        result = sum(operation.result_size for operation, _, _ in commands.steps())
        self._list(size, result, label).operations += commands.operations
        last = self._lists[-1]
        last.labels += [label] * (len(commands.operations) - 1)
        last.takers += [_ignore for operation, _, _ in commands.steps() if operation.opcode.result]
        if any(operation.opcode.name == "SLOT_IN" for operation in commands.operations):
            last.sectors = Later()
            last.ended = True
        return last.sectors

    # -- all of it --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Carry out everything that was collected; afterwards the batch is empty.

        Raises:
            GpuFailed: an operation failed, or a condition did not come true; what was collected behind it
                is dropped.
            DeviceFailed, DeviceMissing: the transport's errors.
        """
        lists, self._lists = self._lists, []
        for each in lists:
            try:
                each.take(self.card.bridge.run(each.commands))
            except ListFailed as problem:
                raise self._failure(each, problem) from problem

    def stream(self) -> Generator[bytes, None, None]:
        """As `run`, over a bridge that has lists; yields what each SLOT_IN transfers when it is here."""
        lists, self._lists = self._lists, []
        for each in lists:
            try:
                each.take((yield from self.card.bridge.stream(each.commands)))
            except ListFailed as problem:
                raise self._failure(each, problem) from problem

    def _failure(self, each: _List, problem: ListFailed) -> GpuFailed:
        failure, hint, value = problem.failure, problem.hint, None
        what = each.labels[failure.index] if failure.index < len(each.labels) else "a list"
        cause = wire.RESULT_TRAILER.member("cause").values.get(failure.cause, f"{failure.cause:#x}")
        last = problem.values[-1] if problem.values else None
        if failure.opcode == POLL and failure.cause == CAUSE["condition timeout"] and isinstance(last, int):
            value = last
            cause += f", it reads {value:#x}"
            if value == ALL:
                hint = "all ones: the card is gone, or resetting; switch its power off and on, then open it"
        where = f"{self.card.bridge.name}, {self.what}"
        return GpuFailed(f"{what}: {cause}", where=where, hint=hint, value=value)

    # -- inside -----------------------------------------------------------------------------------------

    def _register(self, block: str, name: str) -> int:
        """The PCIe address at which a register can be accessed now; selects it first if BAR 5 ends below."""
        index = self.card.index(block, name)
        registers = self.card.bars[5]
        if index < REGISTER_WINDOW:
            return registers + index * DWORD
        select = registers + self.card.index("NBIO", "BIF_BX_PF0_RSMU_INDEX") * DWORD
        self._list(16, 0, "RSMU_INDEX").write(select, index * DWORD)
        return registers + self.card.index("NBIO", "BIF_BX_PF0_RSMU_DATA") * DWORD

    def _vram(self, offset: int, size: int) -> int:
        if offset % DWORD or size % DWORD or not 0 <= offset <= self.card.window - size:
            raise InternalError(f"{size} bytes at {offset:#x} of VRAM cannot be reached through BAR 0")
        return self.card.bars[0] + offset

    def _list(self, size: int, result: int, label: str) -> CommandList:
        """The list that takes an operation of that size, with a result of that size."""
        if not self._lists or not self._lists[-1].takes(size, result):
            self._lists.append(_List())
        last = self._lists[-1]
        last.size += size
        last.result += result
        last.labels.append(label)
        return last.commands

    def _give(self) -> Later[T]:
        later: Later[T] = Later()
        self._lists[-1].takers.append(lambda value: later.set(cast(T, value)))
        return later


def _ignore(value: int | bytes) -> None:
    """Take the result of a read that only waits."""

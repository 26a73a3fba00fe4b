"""The registers of the card: which block answers for which, by dword index.

A block claims the registers that it models: as plain storage, with a reaction to a write, with a value made
at a read, or banked, so that a selector chooses one of several copies. Others are refused by name: writes
vanish, reads are 0, and the diagnosis says so. Names and fields are those of `usbgpu.amd.facts`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from emulator.amdgpu.diagnosis import Diagnosis
from usbgpu.amd.facts.chips import BASES, Chip
from usbgpu.amd.facts.describe import DWORD, DwordRegister

Selector = Callable[[], Hashable]


@dataclass(slots=True)
class _Cell:
    block: str
    register: DwordRegister
    reset: int = 0
    selector: Selector | None = None
    values: dict[Hashable, int] = field(default_factory=dict)
    on_write: Callable[[int], int | None] | None = None
    on_read: Callable[[], int] | None = None

    @property
    def bank(self) -> Hashable:
        return self.selector() if self.selector else None

    @property
    def value(self) -> int:
        return self.values.get(self.bank, self.reset)


class RegisterFile:
    """All registers of a card.

    Args:
        chip: whose.
        diagnosis: collects accesses of unmodelled registers.

    Attributes:
        observers: called with ("read" or "write", block, register, value) after each access of the driver.
    """

    def __init__(self, chip: Chip, diagnosis: Diagnosis) -> None:
        self.chip = chip
        self.observers: list[Callable[[str, str, DwordRegister, int], None]] = []
        self._diagnosis = diagnosis
        self._cells: dict[int, _Cell] = {}

    # -- for blocks -------------------------------------------------------------------------------------

    def store(self, block: str, *names: str, reset: int = 0, selector: Selector | None = None) -> None:
        """Claim registers that hold what is written. Raises FactError for an unknown name."""
        for name in names:
            cell = self._claim(block, name)
            cell.reset, cell.selector = reset, selector

    def on_write(self, block: str, name: str, action: Callable[[int], int | None], *, reset: int = 0) -> None:
        """Claim a register; `action` gets what is written, and returns what the register holds then, or None
        if it is to hold what was written.
        """
        cell = self._claim(block, name)
        cell.on_write, cell.reset = action, reset

    def on_read(self, block: str, name: str, value: Callable[[], int]) -> None:
        """Claim a register whose value is made when it is read."""
        self._claim(block, name).on_read = value

    def reserve(self, block: str, segment: int, offset: int) -> None:
        """Claim a gap between registers that drivers write anyway: writes vanish, reads are 0."""
        register = DwordRegister(f"RESERVED_{offset:#x}", offset, segment)
        cell = _Cell(block, register, on_write=lambda value: 0)
        self._cells.setdefault(BASES[block][segment] + offset, cell)

    def modelled(self, index: int) -> bool:
        """Whether a block has claimed the register at an index of dwords."""
        return index in self._cells

    def value(self, block: str, name: str, bank: Hashable = None) -> int:
        """What a register holds (in that bank), without the effects of a read."""
        cell = self._cell(block, name)
        return cell.values.get(bank, cell.reset) if bank is not None else cell.value

    def set(self, block: str, name: str, value: int, bank: Hashable = None) -> None:
        """Change what a register holds (in that bank), without the effects of a write."""
        cell = self._cell(block, name)
        cell.values[cell.bank if bank is None else bank] = value & DWORD

    def get(self, block: str, name: str, part: str, bank: Hashable = None) -> int:
        """A field of a register."""
        return self.chip.register(block, name).get(self.value(block, name, bank), part)

    def written(self, block: str, name: str) -> bool:
        """Whether something has been written to a register since the reset."""
        return bool(self._cell(block, name).values)

    def reset(self, blocks: Iterable[str] | None = None) -> None:
        """All registers, or those of blocks, as after power-on."""
        chosen = set(BASES if blocks is None else blocks)
        for cell in self._cells.values():
            if cell.block in chosen:
                cell.values.clear()

    # -- for the driver's accesses ----------------------------------------------------------------------

    def read(self, index: int) -> int:
        """A read of the driver; index in dwords."""
        cell = self._cells.get(index)
        if cell is None:
            self._unknown("read", index)
            return 0
        value = cell.on_read() & DWORD if cell.on_read else cell.value
        for observer in self.observers:
            observer("read", cell.block, cell.register, value)
        return value

    def write(self, index: int, value: int) -> None:
        """A write of the driver; index in dwords."""
        cell = self._cells.get(index)
        if cell is None:
            self._unknown(f"write {value:#x} to", index)
            return
        for observer in self.observers:
            observer("write", cell.block, cell.register, value)
        bank = cell.bank
        kept = cell.on_write(value) if cell.on_write else None
        cell.values[bank] = (value if kept is None else kept) & DWORD

    # -- inside -----------------------------------------------------------------------------------------

    def _claim(self, block: str, name: str) -> _Cell:
        register = self.chip.register(block, name)
        index = BASES[block][register.segment] + register.offset
        return self._cells.setdefault(index, _Cell(block, register))

    def _cell(self, block: str, name: str) -> _Cell:
        return self._cells[self.chip.address(block, name)]

    def _unknown(self, what: str, index: int) -> None:
        known = self.chip.by_address.get(index)
        if known:
            self._diagnosis.wrong(f"{what} {known[0]}:{known[1].name}: the register is not modelled")
        else:
            self._diagnosis.wrong(f"{what} register {index:#x}: it is unknown")

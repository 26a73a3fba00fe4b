"""A graph as text and as data for JSON: labelled blocks with cross references, and comments from the facts.

A comment says what DPTR points at, as far as the block alone shows: XDATA registers and memory by name (the
PHY plane after MOV DPX,#1), variables and functions from the symbols.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.mcs51.disassembler import ChipNames, Instruction, text
from emulator.mcs51.flow import BANK_START, Block, Graph, Kind, Place, Routine
from emulator.mcs51.opcodes import Flow, Operand
from emulator.symbols import Symbols
from firmware.asm2464pd.describe import Map, Space
from firmware.asm2464pd.registers.memory import XRAM
from sdk.jumps import beside

_DPL, _DPH, _DPX = 0x82, 0x83, 0x93
_INC_DPTR, _MOV_DIRECT_DATA = 0xA3, 0x75
_PLAIN = {Kind.BRANCH, Kind.JUMP}
"""References whose kind is not shown, being obvious."""
_MAX_REFERENCES = 8
"""References that a line of text shows; JSON has all."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A line: an instruction as text, with its comment."""

    instruction: Instruction
    text: str
    comment: str


class Listing:
    """A graph with names.

    Args:
        graph: of the image.
        facts: of the chip.
        symbols: of the image.
    """

    def __init__(self, graph: Graph, facts: Map, symbols: Symbols) -> None:
        self._graph = graph
        self._facts = facts
        self._symbols = symbols
        self._labels = {place: f"L{place.bank or ''}{place.address:04X}" for place in _block_places(graph)}
        self._labels.update((entry, routine.name) for entry, routine in graph.routines.items())
        self._names = tuple(
            ChipNames(
                facts,
                {place.address: label for place, label in self._labels.items() if place.bank in (0, bank)},
            )
            for bank in (0, 1)
        )

    def label(self, place: Place) -> str:
        """The name of a place."""
        return self._labels.get(place, str(place))

    def lines(self, block: Block) -> Iterator[Listed]:
        """The instructions of a block, with comments."""
        names = self._names[block.place.bank]
        pointer = _Pointer()
        for index, instruction in enumerate(block.instructions):
            said = []
            if place := pointer.step(instruction):
                said.append(self._pointed(place, block, index))
            line = self._symbols.line_at(block.place.bank, instruction.address)
            if line is not None and line.address == instruction.address:
                said.append(str(line))
            yield Listed(instruction, text(instruction, names), ", ".join(filter(None, said)))

    def as_text(self, routines: Iterable[Routine]) -> str:
        """Assembly with addresses, bytes, clocks and references, and arrows for the jumps within a routine.

        A block that several routines reach is listed with the first of them; the others say where it is.
        """
        shown: dict[Place, str] = {}
        return "\n".join("\n".join(self._routine_lines(routine, shown)) + "\n" for routine in routines)

    def as_data(self, routines: Iterable[Routine]) -> list[dict[str, Any]]:
        """The same for JSON."""
        return [
            {
                "name": routine.name,
                "bank": routine.entry.bank,
                "address": routine.entry.address,
                "calls": [self.label(place) for place in routine.calls],
                "blocks": [self._block_data(block) for block in routine.blocks],
            }
            for routine in routines
        ]

    def _routine_lines(self, routine: Routine, shown: dict[Place, str]) -> list[str]:
        elsewhere = sorted({shown[block.place] for block in routine.blocks if block.place in shown})
        lines: list[str] = []
        starts: dict[Place, int] = {}
        ends: dict[Place, int] = {}
        for block in routine.blocks:
            if block.place not in shown:
                shown[block.place] = routine.name
                starts[block.place] = len(lines)
                lines += self._block_lines(block)
                ends[block.place] = len(lines) - 1
        jumps = (
            (ends[block.place], starts[place])
            for block in routine.blocks
            for place in block.successors
            if block.place in ends and place in starts and place.address != block.following
        )
        listed = beside(lines, jumps)
        if elsewhere:
            listed.append(f"; shares blocks that are listed with {', '.join(elsewhere)}")
        return listed

    def _block_lines(self, block: Block) -> Iterator[str]:
        """Its label and its instructions."""
        label = f"{self.label(block.place)}:"
        sources = self._sources(block.place)
        yield f"{label:<31} ; from {sources}" if sources else label
        for line in self.lines(block):
            instruction = line.instruction
            place = str(Place(block.place.bank, instruction.address))
            code = instruction.data.hex(" ").upper()
            head = f"  {place:>8}  {code:<8}  {instruction.opcode.clocks}  "
            yield f"{head}{line.text:<28}; {line.comment}" if line.comment else head + line.text

    def _sources(self, place: Place) -> str:
        references = self._graph.references.get(place, ())
        shown = [
            str(found.source) + ("" if found.kind in _PLAIN else f" ({found.kind.value})")
            for found in references[:_MAX_REFERENCES]
        ]
        if len(references) > _MAX_REFERENCES:
            shown.append(f"and {len(references) - _MAX_REFERENCES} more")
        return ", ".join(shown)

    def _block_data(self, block: Block) -> dict[str, Any]:
        return {
            "bank": block.place.bank,
            "address": block.place.address,
            "label": self.label(block.place),
            "clocks": block.clocks,
            "flow": block.flow.value,
            "successors": [self.label(place) for place in block.successors],
            "from": [
                {"bank": found.source.bank, "address": found.source.address, "kind": found.kind.value}
                for found in self._graph.references.get(block.place, ())
            ],
            "instructions": [
                {
                    "address": line.instruction.address,
                    "bytes": line.instruction.data.hex(),
                    "clocks": line.instruction.opcode.clocks,
                    "text": line.text,
                    "comment": line.comment,
                }
                for line in self.lines(block)
            ],
        }

    def _pointed(self, place: tuple[Space, int], block: Block, index: int) -> str:
        """What DPTR points at, given how the block uses it."""
        space, address = place
        use = next((found for found in block.instructions[index:] if _uses_dptr(found)), None)
        if use is not None and Operand.AT_DPTR not in use.opcode.operands:
            bank = block.place.bank if address >= BANK_START else 0
            return self._labels.get(Place(bank, address), "")
        return self._name(space, address)

    def _name(self, space: Space, address: int) -> str:
        if (register := self._facts.at(space, address)) is not None:
            return _plus(register.name, address - register.address)
        if space is Space.XDATA and (variable := self._symbols.variable_at(address)):
            return _plus(variable.name, address - variable.start)
        memory = self._facts.memory_at(space, address)
        if memory is None or memory is XRAM:
            return ""
        return _plus(memory.name, address - memory.address)


class _Pointer:
    """DPTR and DPX along a block; unknown at its start."""

    def __init__(self) -> None:
        self._address: int | None = None
        self._space = Space.XDATA

    def step(self, instruction: Instruction) -> tuple[Space, int] | None:
        """Execute an instruction; returns what DPTR points at, if a comment should say so here."""
        code = instruction.data[0]
        if instruction.is_dptr_load:
            self._address = instruction.values[1]
        elif code == _INC_DPTR and self._address is not None:
            self._address = self._address + 1 & 0xFFFF
        elif code == _MOV_DIRECT_DATA and instruction.data[1] == _DPX:
            self._space = Space.PHY if instruction.data[2] & 1 else Space.XDATA
            return None
        elif instruction.opcode.flow is Flow.CALL or _writes_dptr(instruction):
            self._address = None
            return None
        else:
            return None
        return None if self._address is None else (self._space, self._address)


def _block_places(graph: Graph) -> Iterator[Place]:
    return (block.place for routine in graph.routines.values() for block in routine.blocks)


def _uses_dptr(instruction: Instruction) -> bool:
    return bool({Operand.AT_DPTR, Operand.AT_A_DPTR} & set(instruction.opcode.operands))


def _writes_dptr(instruction: Instruction) -> bool:
    """Whether it names DPL or DPH as an operand, even if it may only read it."""
    return any(kind is Operand.DIRECT and value in (_DPL, _DPH) for kind, value in instruction.operands)


def _plus(name: str, offset: int) -> str:
    return f"{name}+{offset:#x}" if offset else name


def ranges(addresses: Iterable[int]) -> list[range]:
    """Addresses as ranges without gaps."""
    found: list[range] = []
    for address in sorted(addresses):
        if found and found[-1].stop == address:
            found[-1] = range(found[-1].start, address + 1)
        else:
            found.append(range(address, address + 1))
    return found


def names_of(symbols: Symbols) -> Mapping[Place, str]:
    """The functions of the symbols as entries for `flow.analyse`."""
    return {Place(bank, address): name for (bank, address), name in symbols.labels().items()}

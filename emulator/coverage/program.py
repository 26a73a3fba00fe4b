"""What can be reached in an image: its instructions, the sides of its branches, and where in C they are.

A branch is a conditional jump of the machine code, but not one to the next instruction: that is how sdcc
compares. One `if` may become several (each byte of a long, each part of a condition), and each has two sides,
taken and not taken. Code that flow analysis finds no way to reach does not count as missed; code that ran
always counts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emulator import image_file, images, symbols
from emulator.coverage.data import NOT_TAKEN, TAKEN, build_of
from emulator.image_file import BANK_START, CodeImage
from emulator.mcs51 import flow, listing
from emulator.mcs51.disassembler import Instruction, decode, text
from emulator.mcs51.opcodes import Flow
from emulator.symbols import Function, Line, Symbols
from sdk.errors import InvalidInput

_BANK = 0x10000
_MAX_SOURCE = 1 << 20
"""The largest C file that is read, in bytes; a larger one counts as not found."""
_BEGINS, _ENDS = re.compile(r"\b__asm\b"), "__endasm"
_ASSEMBLY = re.compile(r"\s*+(?:[\w.$]+:)?+\s*+(?P<mnemonic>[a-z]\w*)", re.IGNORECASE)
"""An instruction in assembly, after its label if it has one."""
_WORD = re.compile(r"\w")

Where = tuple[str, int]
"""A line: its file's name and its number from 1."""


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a branch.

    Attributes:
        address: CODE address of the branch.
        bank: its CODE bank, 0 for the common half.
        instruction: in assembly.
        taken: whether it is the side of the jump.
        function: that it is in, "" if unknown.
        where: its line, if it is in C.
    """

    address: int
    bank: int
    instruction: str
    taken: bool
    function: str
    where: Where | None

    def __str__(self) -> str:
        return f"{self.located} never {self.side}"

    @property
    def located(self) -> str:
        """The branch, and where it is."""
        place = flow.Place(self.bank, self.address)
        line = f"{self.where[0]}:{self.where[1]}" if self.where is not None else "(not in C)"
        return f"{line} {self.function or '?'} {place}: {self.instruction}"

    @property
    def side(self) -> str:
        """`taken` or `not taken`."""
        return "taken" if self.taken else "not taken"


class Program:
    """An image with its symbols and sources.

    Args:
        code: of the image.
        names: its symbols.
        name: what to call it.
        directories: where its C is looked for by file name, first come first served.

    Attributes:
        build: from `build_of`.
    """

    def __init__(
        self, code: CodeImage, names: Symbols, name: str = "", directories: Sequence[Path] = ()
    ) -> None:
        self.name = name
        self.build = build_of(code)
        self._code = code
        self._symbols = names
        self._directories = directories
        self._texts: dict[str, tuple[str, ...] | None] = {}

    @classmethod
    def of(cls, name: str | Path, directories: Sequence[Path] = ()) -> Program:
        """An image file, or one of `emulator.images` by its name.

        Args:
            name: of the image.
            directories: with its sources; those of a named image, and the file's own, are known.

        Raises:
            InvalidInput: there is no such image, or no file beside it has its C lines.
            BuildFailed: a named image could not be compiled.
            ToolMissing: sdcc is missing.
        """
        path = image_file.locate(name)
        known = images.source_directories(str(name), path) or (path.parent,)
        names = symbols.beside(path)
        if not names.lines:
            raise InvalidInput(
                "has no known C lines",
                where=str(name),
                hint="give the .ihx with the .map, .cdb and .rst of sdcc --debug beside it, or `firmware`",
            )
        return cls(image_file.load(path), names, str(name), (*directories, *known))

    # -- what can be reached ----------------------------------------------------------------------------

    @cached_property
    def instructions(self) -> Mapping[int, Instruction]:
        """Those that flow analysis finds, by place."""
        code = self._code
        graph = flow.analyse(code.banks, code.loaded, listing.names_of(self._symbols))
        return {
            block.place.bank * _BANK + instruction.address: instruction
            for routine in graph.routines.values()
            for block in routine.blocks
            for instruction in block.instructions
        }

    @cached_property
    def branches(self) -> npt.NDArray[np.intp]:
        """Places of the conditional branches among them."""
        return np.array(sorted(filter(self.is_branch, self.instructions)), np.intp)

    def is_branch(self, place: int) -> bool:
        """Whether the instruction at a place has two sides."""
        instruction = self.instruction_at(place)
        return instruction.opcode.flow is Flow.BRANCH and instruction.target != instruction.following

    def reached(self, sides: npt.NDArray[np.uint8]) -> int:
        """How many sides of `branches` are among these, bits by place as in `Mcs51.coverage`."""
        found = sides[self.branches]
        return int(np.count_nonzero(found & TAKEN) + np.count_nonzero(found & NOT_TAKEN))

    def missed(self, sides: npt.NDArray[np.uint8], branches: Iterable[int] | None = None) -> Iterator[Side]:
        """Sides that are not among these; of all branches, or of those at some places."""
        for place in map(int, self.branches if branches is None else branches):
            for bit in (TAKEN, NOT_TAKEN):
                if not sides[place] & bit:
                    yield self._side(place, taken=bit == TAKEN)

    def _side(self, place: int, *, taken: bool) -> Side:
        bank, address = divmod(place, _BANK)
        function = self.function_at(place)
        name = function.name if function is not None else ""
        return Side(address, bank, text(self.instruction_at(place)), taken, name, self.where(place))

    def instruction_at(self, place: int) -> Instruction:
        """The instruction at a place, found by flow analysis or not."""
        bank, address = divmod(place, _BANK)
        return self.instructions.get(place) or decode(self._code.banks[bank], address)

    # -- where it is ------------------------------------------------------------------------------------

    @property
    def functions(self) -> tuple[Function, ...]:
        """Its functions in order of address."""
        return self._symbols.functions

    def function_at(self, place: int) -> Function | None:
        """The function that an instruction is in."""
        return self._symbols.function_at(*divmod(place, _BANK))

    def where(self, place: int) -> Where | None:
        """The C line of an instruction; for assembly within C, exactly its line."""
        if place in self._assembly:
            return self._assembly[place]
        line = self._symbols.line_at(*divmod(place, _BANK))
        return None if line is None else (line.file, line.line)

    @cached_property
    def shared(self) -> Mapping[Where, tuple[int, ...]]:
        """Lines without code of their own, and the places of the code that they share with another line.

        In `stall(); return;` the call is one: sdcc jumps to `stall`, and assigns that jump to `return`.
        """
        own = {self.where(place) for place in self.instructions}
        found: dict[Where, tuple[int, ...]] = {}
        for line in self._symbols.lines:
            where, place = (line.file, line.line), _place(line)
            if where not in own and place in self.instructions and self._says_something(line):
                found[where] = (*found.get(where, ()), place)
        return found

    def _says_something(self, line: Line) -> bool:
        """Whether it is neither a bracket nor the end of assembly, which has its own lines."""
        source = self.source(line.file)
        if source is None:
            return True
        words = source[line.line - 1]
        return _ENDS not in words and bool(_WORD.search(words))

    def source(self, file: str) -> tuple[str, ...] | None:
        """The lines of a source file; None if it is not found, or shorter than the symbols say."""
        if file not in self._texts:
            last = max((line.line for line in self._symbols.lines if line.file == file), default=0)
            self._texts[file] = self._read(file, last)
        return self._texts[file]

    def _read(self, file: str, last: int) -> tuple[str, ...] | None:
        for directory in self._directories:
            path = directory / Path(file).name
            try:
                if not path.is_file() or path.stat().st_size > _MAX_SOURCE:
                    continue
                lines = tuple(path.read_text(encoding="utf-8", errors="replace").splitlines())
            except OSError as problem:
                raise InvalidInput(f"cannot be read: {problem.strerror}", where=str(path)) from None
            if len(lines) >= last:
                return lines
        return None

    @cached_property
    def _assembly(self) -> dict[int, Where]:
        """The lines of instructions that are assembly within C.

        sdcc gives them all the line of `__endasm`. They get their own where the source has as many
        instructions as the code, with the same names.
        """
        found: dict[int, Where] = {}
        for line, following in itertools.zip_longest(self._symbols.lines, self._symbols.lines[1:]):
            source = self.source(line.file)
            if source is None or _ENDS not in source[line.line - 1]:
                continue
            start = _place(line)
            function = self.function_at(start)
            end = start if function is None else start + function.end - line.address
            if following is not None and _place(following) > start:
                end = min(end, _place(following))
            places = [place for place in range(start, end) if place in self.instructions]
            written = list(_written(source, line.line))
            names = [self.instructions[place].opcode.mnemonic for place in places]
            if names == [mnemonic for _, mnemonic in written]:
                numbers = (number for number, _ in written)
                found |= {place: (line.file, number) for place, number in zip(places, numbers, strict=True)}
        return found


def _place(line: Line) -> int:
    return (line.bank if line.address >= BANK_START else 0) * _BANK + line.address


def _written(source: Sequence[str], end: int) -> Iterator[tuple[int, str]]:
    """Number and mnemonic of each instruction between `__asm` and the line `end`.

    The instructions of a macro have the number of the line that calls it.
    """
    begin = next((number for number in range(end - 1, 0, -1) if _BEGINS.search(source[number - 1])), end)
    macros: dict[str, list[str]] = {}
    body: list[str] | None = None
    for number, line in enumerate(source[: end - 1], 1):
        words = line.partition(";")[0].split()
        if words[:1] == [".endm"]:
            body = None
        elif words[:1] == [".macro"] and len(words) > 1:
            body = macros[words[1].upper()] = []
        elif (body is not None or number > begin) and (match := _ASSEMBLY.match(line)):
            name = match["mnemonic"].upper()
            expanded = macros.get(name, [name])
            if body is not None:
                body += expanded
            else:
                yield from ((number, mnemonic) for mnemonic in expanded)

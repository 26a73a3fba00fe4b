"""Where execution can go: basic blocks, functions, cross references, found by recursive descent.

It starts from reset, from interrupt vectors that hold code, and from names (but not those of tables, as far
as code seen before reads them with MOVC A,@A+DPTR), and follows every target that the code states. A target
at 0x8000 or above is in the bank of the code that states it; the common half is taken to run with bank 0,
which is what SFR 0x96 holds after reset. Three patterns are recognised beyond that, each a guess about what a
compiler or the vendor meant:

* a bank trampoline, as in the vendor's firmware: straight code that pushes an address, such as a DPTR that
  was loaded before, sets SFR 0x96 to a constant and returns, so that it goes on there in that bank; and RET
  to an address that the same code has pushed (`trampolines`);
* a table of jumps behind MOV DPTR,#table and JMP @A+DPTR (sdcc's small switch);
* two tables of address bytes, read with MOVC A,@A+PC into DPL and DPH before JMP @A+DPTR (its large one).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from emulator.mcs51 import trampolines
from emulator.mcs51.disassembler import Instruction, decode
from emulator.mcs51.opcodes import Flow

BANK_START = 0x8000
"""The first CODE address that depends on the bank."""
VECTORS = {
    0x0000: "reset",
    0x0003: "int0",
    0x000B: "timer0",
    0x0013: "int1",
    0x001B: "timer1",
    0x0023: "serial",
    0x002B: "timer2",
}
"""Where the MCS-51 starts, and where it goes on an interrupt."""

_DPL, _DPH = 0x82, 0x83
_MOV_DIRECT_A, _ADD_DATA, _MOVC_PC = 0xF5, 0x24, 0x83
_MOVC_DPTR = 0x93
_TABLE_JUMPS = {"LJMP", "AJMP", "SJMP"}
_MAX_TABLE = 256
_ADDRESS = re.compile(r"(?:(?P<bank>[01]):)?0x(?P<address>[0-9a-f]{1,4})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A CODE address in a bank; the common half is listed under bank 0.

    Attributes:
        bank: 0 or 1.
        address: CODE address.
    """

    bank: int
    address: int

    def __str__(self) -> str:
        return f"0x{self.address:04X}" if self.bank == 0 else f"{self.bank}:0x{self.address:04X}"


class Kind(Enum):
    """How one place refers to another."""

    CALL = "call"
    JUMP = "jump"
    BRANCH = "branch"
    TABLE = "table"
    """An entry of a table of jumps or addresses."""
    BANK = "bank"
    """Through a bank trampoline, or by RET to an address that was pushed."""


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A reference; `source` is the instruction that makes it."""

    source: Place
    kind: Kind = field(compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that run from the first to the last or not at all.

    Attributes:
        place: of the first.
        instructions: at least one.
        successors: where execution can go next within the function.
        calls: functions that it calls.
        flow: how its last instruction leaves it; NEXT if it only runs into the next block.
    """

    place: Place
    instructions: tuple[Instruction, ...]
    successors: tuple[Place, ...]
    calls: tuple[Place, ...]
    flow: Flow

    @property
    def following(self) -> int:
        """CODE address behind its last instruction."""
        return self.instructions[-1].following

    @property
    def clocks(self) -> int:
        """Chip clocks of one run through it."""
        return sum(instruction.opcode.clocks for instruction in self.instructions)


@dataclass(frozen=True, slots=True)
class Routine:
    """A function: an entry and the blocks reached from it without a call.

    Attributes:
        entry: its first instruction.
        name: of the vector or from the symbols, else made from the address.
        blocks: in order of address.
        calls: entries that it calls or jumps to.
    """

    entry: Place
    name: str
    blocks: tuple[Block, ...]
    calls: tuple[Place, ...]

    def __contains__(self, place: Place) -> bool:
        """Whether an instruction of it covers a place."""
        return any(
            block.place.bank == place.bank
            and place.address in range(instruction.address, instruction.address + len(instruction.data))
            for block in self.blocks
            for instruction in block.instructions
        )


@dataclass(frozen=True)
class Graph:
    """The whole image.

    Attributes:
        routines: by entry.
        references: to each place that anything refers to, in order of source.
        code: bytes of CODE that instructions occupy, by bank.
        data: bytes that are loaded and no instruction's, by bank: tables, strings, and code without a
            known way to it. The common half is counted in bank 0 only.
    """

    routines: dict[Place, Routine]
    references: dict[Place, tuple[Reference, ...]]
    code: tuple[frozenset[int], frozenset[int]]
    data: tuple[frozenset[int], frozenset[int]]

    def named(self, name: str) -> Routine | None:
        """The routine of that name, or one with code at that address (0x1234, or 1:0x8234 in bank 1)."""
        for routine in self.routines.values():
            if name in (routine.name, routine.name.removeprefix("_")):
                return routine
        place = _parsed(name)
        holding = (routine for routine in self.routines.values() if place is not None and place in routine)
        return self.routines.get(place) if place in self.routines else next(holding, None)


def analyse(
    banks: tuple[bytes, bytes], loaded: tuple[bytes, bytes], names: Mapping[Place, str] | None = None
) -> Graph:
    """The graph of an image.

    Args:
        banks: 64 KiB of CODE as seen with either bank.
        loaded: for each, 64 KiB, nonzero where the image has a byte.
        names: of functions, all of which are taken as entries.
    """
    return _Descent(banks, loaded, names or {}).graph()


class _Descent:
    def __init__(
        self, banks: tuple[bytes, bytes], loaded: tuple[bytes, bytes], names: Mapping[Place, str]
    ) -> None:
        self._banks = banks
        self._loaded = loaded
        self._names = dict(names)
        self._instructions: dict[Place, Instruction] = {}
        self._next: dict[Place, list[Place]] = {}
        self._calls: dict[Place, list[Place]] = {}
        self._references: dict[Place, dict[Place, Kind]] = {}
        self._entries: set[Place] = set()
        self._tables: set[Place] = set()
        self._leaders: set[Place] = set()
        self._pending: list[Place] = []

    def graph(self) -> Graph:
        for address, name in VECTORS.items():
            place = Place(0, address)
            if address == 0 or self._is_vector(place):
                self._names.setdefault(place, name)
                self._enter(place)
                self._run()
        for place in sorted(self._names):
            if place not in self._tables:
                self._enter(place)
                self._run()
        blocks = {place: self._block(place) for place in sorted(self._leaders & self._instructions.keys())}
        routines = {entry: self._routine(entry, blocks) for entry in sorted(self._entries) if entry in blocks}
        references = {
            place: tuple(
                Reference(source, kind) for source, kind in sorted(found.items(), key=lambda item: item[0])
            )
            for place, found in sorted(self._references.items())
        }
        code = self._occupied()
        return Graph(routines, references, code, self._rest(code))

    # -- descent ----------------------------------------------------------------------------------------

    def _place(self, source: Place, address: int) -> Place:
        """A CODE address as code at `source` sees it."""
        return Place(source.bank if address >= BANK_START else 0, address)

    def _is_loaded(self, place: Place) -> bool:
        return bool(self._loaded[place.bank][place.address])

    def _is_vector(self, place: Place) -> bool:
        """Something is there that is neither erased nor zeros, nor code that has been reached otherwise."""
        if not self._is_loaded(place) or place in self._instructions:
            return False
        reached = any(
            place.address in range(other.address, other.address + len(self._instructions[other].data))
            for other in (Place(0, place.address - back) for back in (1, 2))
            if other in self._instructions
        )
        return not reached and self._banks[0][place.address] not in (0x00, 0xFF)

    def _enter(self, place: Place) -> None:
        if self._is_loaded(place):
            self._entries.add(place)
            self._leaders.add(place)
            self._pending.append(place)

    def _refer(self, source: Place, target: Place, kind: Kind) -> None:
        self._references.setdefault(target, {})[source] = kind

    def _run(self) -> None:
        while self._pending:
            self._follow(self._pending.pop())

    def _follow(self, place: Place) -> None:
        """Decode from a leader until the flow leaves or joins what is decoded."""
        straight: list[tuple[Place, Instruction]] = []
        while self._is_loaded(place) and place not in self._instructions:
            instruction = decode(self._banks[place.bank], place.address)
            self._instructions[place] = instruction
            straight.append((place, instruction))
            following = self._place(place, instruction.following)
            self._next[place] = [] if instruction.opcode.flow in _LEAVES else [following]
            self._reach(place, instruction, straight)
            if instruction.ends_block:
                if self._next[place] and following in self._next[place]:
                    self._lead(following)
                return
            place = following

    def _lead(self, place: Place) -> None:
        self._leaders.add(place)
        self._pending.append(place)

    def _reach(self, place: Place, instruction: Instruction, before: list[tuple[Place, Instruction]]) -> None:
        """What one instruction refers to."""
        flow = instruction.opcode.flow
        if flow is Flow.INDIRECT:
            for target in self._table(before):
                self._refer(place, target, Kind.TABLE)
                self._next[place].append(target)
                self._lead(target)
            return
        if instruction.data[0] == _MOVC_DPTR and (table := _loaded_pointer(before)) is not None:
            self._tables.add(self._place(place, table))
        if instruction.opcode.mnemonic == "RET":
            self._return(place, before)
        if instruction.target is None:
            return
        target = self._place(place, instruction.target)
        if flow is Flow.CALL:
            self._refer(place, target, Kind.CALL)
            self._calls.setdefault(place, []).append(target)
            self._enter(target)
        else:
            self._refer(place, target, Kind.BRANCH if flow is Flow.BRANCH else Kind.JUMP)
            self._next[place].append(target)
            self._lead(target)
        if flow in (Flow.CALL, Flow.JUMP):
            state = trampolines.after(earlier for _, earlier in before[:-1])
            if flow is Flow.CALL:
                state.stack += [None, None]
            found = trampolines.arrivals(state, instruction.target, self._decoder(place))
            by_itself = trampolines.arrivals(trampolines.State(), instruction.target, self._decoder(place))
            if found != by_itself:  # else the code there is the one that refers to it
                self._cross(place, found)

    def _return(self, place: Place, before: list[tuple[Place, Instruction]]) -> None:
        """RET may go to an address that its own straight code has pushed."""
        state = trampolines.after(earlier for _, earlier in before[:-1])
        if len(state.stack) >= 2:
            self._cross(place, trampolines.arrivals(state, place.address, self._decoder(place)))

    def _cross(self, place: Place, found: Iterable[tuple[int, int | None]]) -> None:
        """An instruction leads to places by what it has put on the stack."""
        for address, bank in found:
            target = Place(
                (place.bank if bank is None else bank & 1) if address >= BANK_START else 0, address
            )
            if self._is_loaded(target):
                self._refer(place, target, Kind.BANK)
                self._calls.setdefault(place, []).append(target)
                self._enter(target)

    def _decoder(self, source: Place) -> Callable[[int, int | None], Instruction | None]:
        """Decodes for `trampolines`, from code at a place."""

        def decoded(address: int, bank: int | None) -> Instruction | None:
            place = Place(
                (source.bank if bank is None else bank & 1) if address >= BANK_START else 0, address
            )
            return decode(self._banks[place.bank], address) if self._is_loaded(place) else None

        return decoded

    # -- patterns ---------------------------------------------------------------------------------------

    def _straight(self, place: Place, limit: int) -> Iterator[Instruction]:
        for _ in range(limit):
            if not self._is_loaded(place):
                return
            instruction = decode(self._banks[place.bank], place.address)
            yield instruction
            place = self._place(place, instruction.following)

    def _table(self, before: list[tuple[Place, Instruction]]) -> list[Place]:
        """Targets of JMP @A+DPTR, the last instruction of `before`."""
        place = before[-1][0]
        if split := self._split_tables(before):
            low, high = split
            count = min(high - low, _MAX_TABLE)
            code = self._banks[place.bank]
            return [
                self._place(place, code[low + index] | code[high + index] << 8)
                for index in range(count)
                if high + index <= 0xFFFF
            ]
        start = _loaded_pointer(before)
        return [] if start is None else list(self._jump_table(self._place(place, start)))

    def _jump_table(self, place: Place) -> Iterator[Place]:
        """The entries of a table of equal jumps; it ends at the latest where its nearest target begins."""
        first, end = None, 0x10000
        for instruction in self._straight(place, _MAX_TABLE):
            mnemonic = instruction.opcode.mnemonic
            first = first or mnemonic
            if mnemonic not in _TABLE_JUMPS or mnemonic != first or place.address >= end:
                return
            if instruction.target is not None and instruction.target > place.address:
                end = min(end, instruction.target)
            yield place
            place = self._place(place, instruction.following)

    def _split_tables(self, before: list[tuple[Place, Instruction]]) -> tuple[int, int] | None:
        """Addresses of the tables of low and high bytes: each is ADD A,#k; MOVC A,@A+PC; MOV DPx,A."""
        found: dict[int, int] = {}
        for (_, add), (_, movc), (_, store) in zip(before, before[1:], before[2:], strict=False):
            if (add.data[0], movc.data[0], store.data[0]) == (_ADD_DATA, _MOVC_PC, _MOV_DIRECT_A):
                found[store.data[1]] = movc.following + add.data[1]
        low, high = found.get(_DPL), found.get(_DPH)
        return (low, high) if low is not None and high is not None and low < high else None

    # -- result -----------------------------------------------------------------------------------------

    def _block(self, place: Place) -> Block:
        start = place
        instructions: list[Instruction] = []
        calls: list[Place] = []
        while place in self._instructions:
            instruction = self._instructions[place]
            instructions.append(instruction)
            calls += self._calls.get(place, ())
            last, place = place, self._place(place, instruction.following)
            if instruction.ends_block or place in self._leaders or place not in self._instructions:
                break
        flow = instructions[-1].opcode.flow
        return Block(
            start,
            tuple(instructions),
            tuple(dict.fromkeys(target for target in self._next[last] if self._is_loaded(target))),
            tuple(dict.fromkeys(calls)),
            Flow.NEXT if flow is Flow.CALL else flow,
        )

    def _routine(self, entry: Place, blocks: dict[Place, Block]) -> Routine:
        reached = {entry}
        pending = [entry]
        calls: list[Place] = []
        while pending:
            block = blocks[pending.pop()]
            calls += block.calls
            for target in block.successors:
                if target in self._entries and target != entry:
                    calls.append(target)
                elif target in blocks and target not in reached:
                    reached.add(target)
                    pending.append(target)
        name = self._names.get(entry) or f"sub_{f'{entry.bank}_' if entry.bank else ''}{entry.address:04X}"
        return Routine(
            entry,
            name,
            tuple(blocks[place] for place in sorted(reached)),
            tuple(dict.fromkeys(sorted(calls))),
        )

    def _occupied(self) -> tuple[frozenset[int], frozenset[int]]:
        occupied: tuple[set[int], set[int]] = (set(), set())
        for place, instruction in self._instructions.items():
            occupied[place.bank].update(range(place.address, place.address + len(instruction.data)))
        return frozenset(occupied[0]), frozenset(occupied[1])

    def _rest(self, code: tuple[frozenset[int], frozenset[int]]) -> tuple[frozenset[int], frozenset[int]]:
        def rest(bank: int, addresses: Iterable[int]) -> frozenset[int]:
            return frozenset(a for a in addresses if self._loaded[bank][a] and a not in code[bank])

        return rest(0, range(0x10000)), rest(1, range(BANK_START, 0x10000))


def _parsed(text: str) -> Place | None:
    """The place that a user means by an address."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return None
    address = int(match["address"], 16)
    return Place(1 if match["bank"] == "1" and address >= BANK_START else 0, address)


def _loaded_pointer(before: list[tuple[Place, Instruction]]) -> int | None:
    """What the last MOV DPTR,#data16 in front of an instruction loaded."""
    return next((found.values[1] for _, found in reversed(before) if found.is_dptr_load), None)


_LEAVES = {Flow.JUMP, Flow.INDIRECT, Flow.RETURN, Flow.ILLEGAL}
"""After these the next instruction in memory is not reached."""

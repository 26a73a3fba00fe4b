"""How deep the stack of the firmware can get: a bound, from its code alone.

Every path through every function counts, for any data. A call through a pointer may be
to any function that is ever stored in it (`pointers`), or where that is unknown to any whose address the
program holds. What cannot be bounded is refused: recursion, a stack pointer
that is computed, code that pushes more than it pops. Banks of CODE are not followed: we use none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from emulator import image_file, symbols
from emulator.mcs51 import flow, listing
from emulator.mcs51.disassembler import Instruction
from emulator.mcs51.flow import Block, Graph, Place, Routine
from emulator.mcs51.opcodes import Flow, Operand
from emulator.mcs51.pointers import Pointers, pushed_to_call
from firmware.build import Built, pointers
from sdk.errors import CheckFailed

IRAM_BYTES = 256
"""Internal RAM; the stack grows upwards to its end."""
ADDRESS_BYTES = 2
"""What a call or an interrupt pushes."""
SP = 0x81

_WHERE = "stack of the firmware"


@dataclass(frozen=True, slots=True)
class Depth:
    """How deep a function gets, itself and all that it calls.

    Attributes:
        bytes: at most, without the return address to its caller.
        path: names of the functions on the way to the deepest point, its own first.
    """

    bytes: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """What a program's stack needs of internal RAM.

    Attributes:
        start: address of its first byte.
        main: from reset.
        interrupt: of the deepest handler, with the address that the interrupt pushes; handlers do not nest.
        unreached: functions that nothing calls.
    """

    start: int
    main: Depth
    interrupt: Depth
    unreached: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The bound: main at its deepest, interrupted by a handler at its deepest."""
        return self.main.bytes + self.interrupt.bytes

    @property
    def spare(self) -> int:
        """Bytes of internal RAM that the stack never reaches; negative if it may overflow."""
        return IRAM_BYTES - self.start - self.bytes


def bound(built: Built) -> Stack:
    """The bound of a build.

    Raises:
        CheckFailed: there is no bound, or the code does not show it.
    """
    image = image_file.load(built.ihx)
    table = symbols.beside(built.ihx)
    graph = flow.analyse(image.banks, image.loaded, listing.names_of(table))
    return stack(graph, list(_targets(table, pointers(built))))


def stack(graph: Graph, targets: Iterable[Place]) -> Stack:
    """The bound of a program.

    Args:
        graph: of the program, with the names of its functions.
        targets: the functions that a call through a pointer may be to.

    Raises:
        CheckFailed: there is no bound, or the code does not show it.
    """
    search = _Search(graph, tuple(targets))
    vectors = {
        name: graph.routines[Place(0, address)]
        for address, name in flow.VECTORS.items()
        if Place(0, address) in graph.routines and graph.routines[Place(0, address)].name == name
    }
    main = search.depth(vectors.pop("reset"))
    handlers = [search.depth(routine) for routine in vectors.values()]
    deepest = max(handlers, key=lambda depth: depth.bytes, default=Depth(-ADDRESS_BYTES, ()))
    reached = search.depths.keys() | search.pointer_calls
    unreached = (routine.name for place, routine in graph.routines.items() if place not in reached)
    return Stack(
        search.start, main, Depth(deepest.bytes + ADDRESS_BYTES, deepest.path), tuple(sorted(unreached))
    )


class _Search:
    """The depths of functions, from the leaves upwards.

    Attributes:
        depths: of those that have been reached.
        pointer_calls: the functions that calls of known pointers are made by.
        start: the stack's first byte, as the code at reset sets it.
    """

    def __init__(self, graph: Graph, targets: tuple[Place, ...]) -> None:
        self._routines = graph.routines
        self._targets = targets
        self._pointers = Pointers(graph, targets)
        self._active: list[Place] = []
        self.depths: dict[Place, Depth] = {}
        self.pointer_calls: set[Place] = set()
        self.start = 0

    def depth(self, routine: Routine) -> Depth:
        """That of a function."""
        if routine.entry in self._active:
            names = (self._routines[place].name for place in (*self._active, routine.entry))
            raise CheckFailed(f"recursion: {' > '.join(names)}", where=_WHERE)
        if routine.entry not in self.depths:
            self._active.append(routine.entry)
            self.depths[routine.entry] = self._deepest(routine)
            self._active.pop()
        return self.depths[routine.entry]

    def _deepest(self, routine: Routine) -> Depth:
        """Of all points of a function, each block at the height that it is entered with."""
        blocks = {block.place: block for block in routine.blocks}
        heights = {routine.entry: 0}
        pending = [routine.entry]
        deepest = Depth(0, ())
        while pending:
            block = blocks[pending.pop()]
            height = heights[block.place]
            for index, instruction in enumerate(block.instructions):
                height += self._change(routine, instruction)
                if instruction.opcode.flow is Flow.CALL:
                    for callee in self._called(block, index, Place(0, instruction.target or 0)):
                        deepest = max(deepest, _deeper(callee, height + ADDRESS_BYTES), key=_bytes)
                deepest = max(deepest, Depth(height, ()), key=_bytes)
            for start, follower in self._left_for(routine, block, height):
                deepest = max(deepest, _deeper(follower, start), key=_bytes)
            for place in block.successors:
                if place in blocks and place not in heights:
                    pending.append(place)
                if place in blocks and heights.setdefault(place, height) != height:
                    raise CheckFailed(f"{routine.name} pushes and pops unevenly", where=_WHERE)
        return Depth(deepest.bytes, (routine.name, *deepest.path))

    def _left_for(self, routine: Routine, block: Block, height: int) -> Iterator[tuple[int, Depth]]:
        """The functions that a block goes on to, each with the height that it begins at.

        A RET that finds two bytes on the stack takes them for an address: that is sdcc's call of a pointer.
        """
        own = {one.place for one in routine.blocks}
        for place in block.successors:
            if place not in own:
                for callee in self._called(block, len(block.instructions), place):
                    yield height, callee
        if block.flow is Flow.RETURN and height:
            height -= ADDRESS_BYTES
        elif block.flow is not Flow.INDIRECT or block.successors:
            return
        if height:
            raise CheckFailed(f"{routine.name} pushes and pops unevenly", where=_WHERE)
        for place in self._targets:
            yield height, self._at(place)

    def _called(self, block: Block, end: int, place: Place) -> Iterator[Depth]:
        """What a call or jump before an instruction of a block, by its index, may be to."""
        routine = self._routines.get(place)
        pushed = None if routine is None else pushed_to_call(routine)
        held = None if pushed is None else self._pointers.held(block, end)
        if pushed is None or held is None:
            yield self._at(place)
            return
        self.pointer_calls.add(place)
        yield Depth(pushed, ())
        for one in held:
            yield self._at(one)

    def _at(self, place: Place) -> Depth:
        if place not in self._routines:
            raise CheckFailed(f"there is no function at {place}", where=_WHERE)
        return self.depth(self._routines[place])

    def _change(self, routine: Routine, instruction: Instruction) -> int:
        """Bytes that an instruction adds to the stack."""
        mnemonic = instruction.opcode.mnemonic
        if mnemonic == "PUSH":
            return 1
        if _writes_sp(instruction):
            if mnemonic != "MOV" or instruction.opcode.operands[1] is not Operand.IMMEDIATE:
                raise CheckFailed(f"{routine.name} computes the stack pointer", where=_WHERE)
            self.start = (instruction.values[1] or 0) + 1
        return -1 if mnemonic == "POP" else 0


def _writes_sp(instruction: Instruction) -> bool:
    """Whether SP is where an instruction puts something: its first operand, or either one of XCH."""
    operands = list(instruction.operands)
    places = operands if instruction.opcode.mnemonic == "XCH" else operands[:1]
    return (Operand.DIRECT, SP) in places


def _bytes(depth: Depth) -> int:
    return depth.bytes


def _deeper(depth: Depth, height: int) -> Depth:
    return Depth(depth.bytes + height, depth.path)


def _targets(table: symbols.Symbols, taken: set[tuple[str, str]]) -> Iterator[Place]:
    """The functions among the names whose address is taken: the module's own, or else any other's."""
    own = {(function.module, function.name) for function in table.functions}
    foreign = {name for module, name in taken if (module, name) not in own}
    for function in table.functions:
        if (function.module, function.name) in taken or function.name in foreign:
            yield Place(0, function.start)

"""Packets for generated loops: each instruction is put into the first packet that has room for it.

What a packet holds (evidence: LLVM's itineraries of HVX): four slots, loads in slots 0 and 1, one a vector's,
a store in 0, multiplications, jumps and logic of predicates in 2 and 3; and four vector units, two of them
multipliers, one that shifts and one that permutes; vector ALU operations, loads and stores take any. A
multiplication, shift or permutation waits a clock for a vector that the packet before it has made
(dsp/hexagon/cycles/interlocks.py): such a packet is not chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

ROOM = {
    "slots": 4,
    "upper": 2,
    "loads": 2,
    "vector_loads": 1,
    "stores": 1,
    "multipliers": 2,
    "shifts": 1,
    "permutes": 1,
    "units": 4,
}
"""What a packet holds of each resource of a `Kind`."""
MEMORY = 2
"""Loads and stores together."""


class NoRoom(Exception):
    """A packet has no room for an instruction, or comes too early for it: another schedule may do."""


@dataclass(frozen=True)
class Kind:
    """What instructions of a kind take of a packet, and when they read.

    Attributes:
        slots: of the packet's four.
        upper: of these, how many must be slots 2 and 3.
        loads, stores: of memory.
        vector_loads: of these loads, those of vectors.
        multipliers, shifts, permutes, units: of the vector units; `units` counts these three, too.
        late: reads vectors no sooner than two packets after they were made, accumulators excepted.
    """

    slots: int = 1
    upper: int = 0
    loads: int = 0
    stores: int = 0
    vector_loads: int = 0
    multipliers: int = 0
    shifts: int = 0
    permutes: int = 0
    units: int = 0
    late: bool = False


VRMPY = Kind(upper=1, multipliers=1, units=1, late=True)
VMPY32 = Kind(upper=1, multipliers=2, units=2, late=True)
PERMUTE = Kind(permutes=1, units=1, late=True)
SHIFT = Kind(shifts=1, units=1, late=True)
SHUFFLE = Kind(permutes=1, shifts=1, units=2, late=True)
VECTOR_ALU = Kind(units=1)
VECTOR_LOAD = Kind(loads=1, vector_loads=1, units=1)
VECTOR_STORE = Kind(stores=1, units=1)
LOAD = Kind(loads=1)
ALU = Kind()
CONTROL = Kind(upper=1)
"""Jumps, loops' set-up, logic of predicates."""
FAR_CONTROL = Kind(slots=2, upper=1)
"""A loop whose first packet is more than 256 bytes away."""


@dataclass(frozen=True)
class Instruction:
    """One instruction, or several that share a packet.

    Attributes:
        text: as the assembler takes it.
        writes, reads: registers, such as v3 or r10.
        accumulates: the register that it adds to, which it also reads and writes.
    """

    kind: Kind
    text: str
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    accumulates: str = ""


@dataclass
class Packet:
    instructions: list[Instruction] = field(default_factory=list)

    def has_room(self, kind: Kind) -> bool:
        kinds = [one.kind for one in self.instructions] + [kind]
        return all(sum(getattr(one, name) for one in kinds) <= most for name, most in ROOM.items()) and (
            sum(one.loads + one.stores for one in kinds) <= MEMORY
        )

    def text(self, suffix: str = "") -> str:
        return "{" + ";".join(one.text for one in self.instructions) + "}" + suffix


@dataclass
class Schedule:
    """Packets in their order, and when registers were last written and read."""

    packets: list[Packet] = field(default_factory=list)
    _written: dict[str, int] = field(default_factory=dict)
    _read: dict[str, int] = field(default_factory=dict)

    def reserve(self, count: int) -> None:
        """Append empty packets."""
        self.packets += [Packet() for _ in range(count)]

    def hold(self, number: int, one: Instruction) -> None:
        """Put an instruction into this packet, before what comes before it has been put anywhere."""
        if not self.packets[number].has_room(one.kind):
            raise NoRoom(f"packet {number} has no room for {one.text}")
        self.packets[number].instructions.append(one)

    def reach(self, number: int, one: Instruction) -> None:
        """Go on behind an instruction that is held in this packet.

        Raises:
            NoRoom: what was put before it allows it only later.
        """
        if self._earliest(one) > number:
            raise NoRoom(f"packet {number} is too early for {one.text}")
        self._note(number, one)

    def put(self, instructions: Iterable[Instruction], first: int = 0) -> None:
        """Put each into the first packet from `first` on that has room, and that those put before it allow.

        Their order is that in which they are to have their effects; what lies between is not moved.

        Raises:
            NoRoom: there are too few packets.
        """
        for one in instructions:
            number = self.room(one, first)
            if number == len(self.packets):
                raise NoRoom(f"no packet has room for {one.text}")
            self.packets[number].instructions.append(one)
            self._note(number, one)

    def room(self, one: Instruction, first: int = 0) -> int:
        """Where `put` would put it; how many packets there are if nowhere."""
        number = max(first, self._earliest(one))
        while number < len(self.packets) and not self.packets[number].has_room(one.kind):
            number += 1
        return min(number, len(self.packets))

    def _earliest(self, one: Instruction) -> int:
        """All of a packet is read before anything of it is written."""
        after = [
            self._written[name] + (2 if one.kind.late else 1) for name in one.reads if name in self._written
        ]
        if one.accumulates in self._written:
            after.append(self._written[one.accumulates] + 1)
        for name in one.writes:
            if name in self._written:
                after.append(self._written[name] + 1)
            if name in self._read:
                after.append(self._read[name])
        return max(after, default=0)

    def _note(self, number: int, one: Instruction) -> None:
        changed = (*one.writes, one.accumulates) if one.accumulates else one.writes
        for name in one.reads:
            self._read[name] = max(self._read.get(name, 0), number)
        for name in changed:
            self._written[name] = max(self._written.get(name, 0), number)


def lines(packets: Sequence[Packet]) -> list[str]:
    """The packets' text; those without instructions are left out."""
    return [packet.text() for packet in packets if packet.instructions]

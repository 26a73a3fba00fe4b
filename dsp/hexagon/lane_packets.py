"""The packets of the kernel whose lanes are channels (kernels/lanes.h): for a group's pixels, and steps.

A unit is a group of cells by a block of 32 channels. Its multiplications take both multipliers in every
packet, and so does the requantisation behind them. All else goes beside: the loads of the next step; the
next unit's accumulators; and packing, shuffling and storing, which end beside the next unit's first steps.
Those steps are peeled off the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from dsp.hexagon.calls import KernelSource
from dsp.hexagon.layout import PIXEL
from dsp.hexagon.packets import (
    ALU,
    CONTROL,
    FAR_CONTROL,
    LOAD,
    PERMUTE,
    SHIFT,
    SHUFFLE,
    VECTOR_ALU,
    VECTOR_LOAD,
    VECTOR_STORE,
    VMPY32,
    VRMPY,
    Instruction,
    NoRoom,
    Packet,
    Schedule,
    lines,
)
from sdk.arena import ALIGNMENT
from sdk.errors import InternalError

MOST_PIXELS = 14
"""Of a group: more accumulators leave too few registers."""
MOST_STEPS = 2047
"""Of a loop that takes two at a time: its count is an immediate of ten bits."""
MIDDLE = 7
"""Of a group's sums, that to which a pointer leads: offsets of vectors are from -8 to 7."""
PEELED = range(4, 20, 2)
"""How many steps may be peeled off."""
SHUFFLE_TWICE, SHUFFLE_LAST = 4 | 8 | 64, 4 | 8 | 16 | 64
Z_ORDER = (3, 1, 2, 0)
"""In which vectors of bytes are finished; the next unit begins with the pixels of the first."""


def kernel(pixels: Sequence[int], steps: int, q15: bool = False) -> KernelSource:
    """The kernel of groups with pixels in these cells, over so many steps of four channels."""
    symbol = f"lanes_{steps}_" + "_".join(map(str, pixels)) + ("_q15" if q15 else "")
    packets = "".join(f'  "{line}\\n" \\\n' for line in _packets(tuple(pixels), steps, q15))
    macros = {"NAME": symbol, "PIXELS": len(pixels), "STEPS": steps, "MIDDLE": MIDDLE}
    macros["PACKETS"] = f"\\\n{packets}"
    if q15:
        macros["Q15"] = ""
    text = "".join(f"#define {name} {value}\n" for name, value in macros.items()) + '#include "lanes.h"\n'
    return KernelSource("lanes.c", symbol, text=text)


@dataclass(frozen=True)
class _Words:
    """A load of one or two pixels' words, and the register of the first."""

    cells: tuple[int, ...]
    register: int

    def load(self, base: str) -> Instruction:
        offset = self.cells[0] * PIXEL
        at = f"{base}++m0" if base == "r22" and not offset else f"{base}+#{offset}"
        if len(self.cells) == 1:
            return Instruction(LOAD, f"r{self.register}=memw({at})")
        return Instruction(LOAD, f"r{self.register + 1}:{self.register}=memd({at})")


class _Group:
    """The pixels of a group in the order in which they are multiplied, and their registers.

    Attributes:
        q15: how they are requantised: one packet each, not two, and halfwords of two pixels in turn.
        length: packets of requantisation.
    """

    def __init__(self, pixels: Sequence[int], q15: bool, length: int) -> None:
        self.pixels, self.q15, self.length = pixels, q15, length
        self.loads: list[_Words] = []
        register = 8
        # Cell 0 comes last: its load moves the pointer on.
        for first in (6, 14, 4, 12, 2, 10, 8, 0):
            cells = tuple(cell for cell in (first, first + 1) if cell in self.pixels)
            if cells:
                register += register % 2 if len(cells) == 2 else 0
                self.loads.append(_Words(cells, register))
                register += len(cells)
        order = [
            (cell, words.register + number) for words in self.loads for number, cell in enumerate(words.cells)
        ]
        odd = len(order) % 2
        self.packets = [order[max(first, 0) : first + 2] for first in range(-odd, len(order), 2)]

    def accumulator(self, cell: int) -> str:
        return f"v{self.pixels.index(cell)}"

    def requantised(self, number: int) -> int:
        """In which packet the requantisation of a pixel begins, by its place in their order."""
        return number * self.length // len(self.pixels)

    def last_used(self, words: _Words) -> int:
        """In which packet of a step."""
        return max(n for n, packet in enumerate(self.packets) for cell, _ in packet if cell in words.cells)


def _multiply(
    group: _Group,
    schedule: Schedule,
    first: int,
    step: int,
    before: Sequence[Instruction] = (),
    last: bool = False,
) -> None:
    """A step's multiplications, and the loads for the next, which after the `last` is another unit's."""
    weights, other = f"v{20 + step % 2}", f"v{21 - step % 2}"
    for number, packet in enumerate(group.packets):
        for cell, register in packet:
            text = f"{group.accumulator(cell)}.uw+=vrmpy({weights}.ub,r{register}.ub)"
            schedule.hold(first + number, Instruction(VRMPY, text))
    for words in group.loads:
        base = "r23" if last and words.cells[0] else "r22"
        schedule.hold(first + group.last_used(words), words.load(base))
    if not last:
        load = Instruction(VECTOR_LOAD, f"{other}=vmem(r24++#1)", writes=("r24",), reads=("r24",))
        schedule.put([*before, load], first)


def _start(group: _Group, cell: int) -> list[Instruction]:
    """A pixel's accumulator, of the next unit: its bias without what the weights are too large by."""
    number = group.pixels.index(cell)
    accumulator, at = f"v{number}", f"vmem(r26+#{number - MIDDLE})"
    return [
        Instruction(VECTOR_LOAD, f"{accumulator}={at}", writes=(accumulator,)),
        Instruction(
            VECTOR_ALU, f"{accumulator}.w=vsub(v18.w,{accumulator}.w)", (accumulator,), (accumulator,)
        ),
    ]


def _word(group: _Group, cell: int, register: int) -> list[Instruction]:
    """Requantise a pixel, a packet each."""
    word, accumulator = f"v{register}", group.accumulator(cell)
    low = f"{word}.w=vmpye({accumulator}.w,v19.uh)"
    high = f"{word}.w+=vmpyo({accumulator}.w,v19.h):<<1:rnd:sat:shift"
    both = [
        Instruction(VMPY32, low, writes=(word,), reads=(accumulator,)),
        Instruction(VMPY32, high, reads=(accumulator,), accumulates=word),
    ]
    return both[:1] if group.q15 else both


def _alu(text: str, register: str) -> Instruction:
    """A vector operation in place."""
    return Instruction(VECTOR_ALU, text.format(register), writes=(register,), reads=(register,))


def _requantize(group: _Group, schedule: Schedule) -> None:
    """The accumulators of a unit to bytes of planes; the first packets are those of requantisation.

    An accumulator begins again before the words behind it are packed, because the next unit waits for it.
    """
    # The cells of a vector of bytes, from its first; in pairs that become halfwords, which half each.
    pairs = (((8, 9), 1), ((0, 1), 0)) if group.q15 else (((0, 8), 0), ((9, 1), 1))
    firsts = [4 * (z % 2) + 2 * (z // 2) for z in Z_ORDER]
    order = [first + n for first in firsts for two, _ in pairs for n in two if first + n in group.pixels]
    waiting = [*range(22, 26), *range(len(order), MOST_PIXELS)]  # registers of words, and free accumulators
    words = {cell: _word(group, cell, waiting[n % len(waiting)]) for n, cell in enumerate(order)}
    for n, cell in enumerate(order):
        for half, one in enumerate(words[cell]):
            schedule.hold(group.requantised(n) + half, one)
    packing: list[tuple[int, list[Instruction]]] = []  # by the word that it waits for
    done = 0
    for number, (z, first) in enumerate(zip(Z_ORDER, firsts, strict=True)):
        out = f"v{28 + z}"
        halves = [out, f"v{26 + number % 2}"]
        for two, half in pairs:
            cells = sorted(first + n for n in two)
            if words.keys().isdisjoint(cells):
                halves[half] = "v15"
                continue
            done += sum(cell in words for cell in cells)
            low, high = (words[cell][0].writes[0] if cell in words else "v14" for cell in cells)
            packing.append((done, _narrow(group, halves[half], high, low)))
        packing.append((done, _pack(out, "ub", f"{halves[1]}.h", f"{halves[0]}.h")))
        if group.q15:
            deal = Instruction(PERMUTE, f"{out}.b=vdeal({out}.b)", writes=(out,), reads=(out,))
            packing.append((done, [deal]))
        clamp = [_alu("{0}.ub=vmax({0}.ub,v16.ub)", out), _alu("{0}.ub=vmin({0}.ub,v17.ub)", out)]
        packing.append((done, clamp))
    for n, cell in enumerate(order):
        for half, one in enumerate(words[cell]):
            schedule.reach(group.requantised(n) + half, one)
        schedule.put(_start(group, cell))
        while packing and packing[0][0] + len(waiting) - 3 <= n:  # its word's register is used next
            schedule.put(packing.pop(0)[1])
    for _, rest in packing:
        schedule.put(rest)


def _narrow(group: _Group, to: str, high: str, low: str) -> list[Instruction]:
    """Words of two pixels to halfwords, with the zero-point."""
    if group.q15:
        text = f"{to}.h=vasr({high}.w,{low}.w,r5):rnd:sat"
        one = [Instruction(SHIFT, text, writes=(to,), reads=(high, low))]
    else:
        one = _pack(to, "h", f"{high}.w", f"{low}.w")
    return [*one, _alu("{0}.h=vadd({0}.h,v15.h):sat", to)]


def _pack(to: str, form: str, high: str, low: str) -> list[Instruction]:
    reads = tuple(one.partition(".")[0] for one in (high, low))
    return [Instruction(PERMUTE, f"{to}.{form}=vpack({high},{low}):sat", writes=(to,), reads=reads)]


def _shuffle(pair: int, high: int, low: int, by: str) -> Instruction:
    return Instruction(
        SHUFFLE,
        f"v{pair + 1}:{pair}=vshuff(v{high},v{low},{by})",
        writes=(f"v{pair}", f"v{pair + 1}"),
        reads=(f"v{high}", f"v{low}"),
    )


def _store(schedule: Schedule) -> None:
    """Four vectors of bytes become eight rows of planes, and are stored.

    Two bits of a word's place say in which vector it is, five where there; a shuffle exchanges one of the
    first with several of the others. It begins as (v1 v0 | s1 s0 g2 g1 g0), g being the plane and
    8 s0 + 4 v0 + 2 v1 + s1 the cell, and ends as (g1 g0 | g2 s0 v0 v1 s1).
    """
    schedule.put([_shuffle(28, 29, 28, "r6"), _shuffle(30, 31, 30, "r6")])
    schedule.put([_shuffle(22, 30, 28, "r6"), _shuffle(24, 31, 29, "r6")])
    schedule.put([_shuffle(28, 24, 22, "r7"), _shuffle(30, 25, 23, "r7")])
    for vector in range(4):
        turned, straight = f"v{22 + vector}", f"v{28 + vector}"
        schedule.put(
            [
                Instruction(PERMUTE, f"{turned}=vror({straight},r31)", writes=(turned,), reads=(straight,)),
                _put_row(straight, "r0"),
                _put_row(turned, "r1"),
            ]
        )
    schedule.put(
        [
            Instruction(ALU, f"{pointer}=add({pointer},r4)", writes=(pointer,), reads=(pointer,))
            for pointer in ("r0", "r1")
        ]
    )


def _put_row(vector: str, pointer: str) -> Instruction:
    text = f"if(q0)vmem({pointer}++m1)={vector}"
    return Instruction(VECTOR_STORE, text, writes=(pointer,), reads=(pointer, vector))


LOOP = "loop0(##2b,#{loops})"


@dataclass(frozen=True)
class _Unit:
    """The packets of a unit, but for those of its loop.

    Attributes:
        requantisation: after the multiplications.
        peeled: the next unit's first steps, and beside them the rest of what becomes of this one.
        beside: that rest alone.
    """

    requantisation: list[Packet]
    peeled: list[Packet]
    beside: list[Packet]


def _unit(group: _Group, steps: int) -> _Unit:
    """With so many steps peeled.

    Raises:
        InternalError: they are too few.
    """
    length, before = len(group.packets), group.length
    side = Schedule()
    side.reserve(before + steps * length)
    side.hold(0, Instruction(CONTROL, "if(p1)jump:nt 9f"))
    side.hold(2, Instruction(CONTROL, "p1=or(p0,p0)"))
    side.hold(3, Instruction(FAR_CONTROL, LOOP))
    multiplies = Schedule()
    multiplies.reserve(before + steps * length)
    for step in range(steps):
        multiplier = Instruction(VECTOR_LOAD, "v19=vmem(r24+#-2)", reads=("r24",))
        _multiply(group, multiplies, before + step * length, step, () if step else (multiplier,))
    for own, other in zip(side.packets, multiplies.packets, strict=True):
        own.instructions += other.instructions
    _requantize(group, side)
    for number, packet in enumerate(group.packets):
        for cell, _ in packet:
            side.reach(
                before + number, Instruction(VRMPY, f"first of {cell}", accumulates=group.accumulator(cell))
            )
    _store(side)
    multiplied = {id(one) for packet in multiplies.packets for one in packet.instructions}
    beside = [
        Packet([one for one in packet.instructions if id(one) not in multiplied]) for packet in side.packets
    ]
    return _Unit(side.packets[:before], side.packets[before:], beside[before:])


def _end(group: _Group) -> list[Packet]:
    """The last two steps of a unit, in which pointers go on to the next one.

    Raises:
        InternalError: the steps are too short for that.
    """
    length = len(group.packets)
    end = Schedule()
    end.reserve(2 * length)
    _multiply(group, end, 0, 0)
    _multiply(group, end, length, 1, last=True)
    end.put(
        [
            Instruction(ALU, "p0=cmp.eq(r24,r27)", writes=("p0",), reads=("r24",)),
            Instruction(ALU, "if(p0)r24=r25", writes=("r24",), reads=("p0",)),
            Instruction(ALU, "if(p0)r23=add(r23,#64)", writes=("r23",), reads=("p0",)),
            Instruction(ALU, "if(p0)r26=add(r26,r28)", reads=("p0",)),
        ]
    )
    end.reach(length, Instruction(LOAD, "the next unit's pixels", reads=("r23",)))
    end.put(
        [
            Instruction(ALU, "r22=r23", writes=("r22",), reads=("r23",)),
            Instruction(VECTOR_LOAD, "v18=vmem(r24+#0)", reads=("r24",)),
            Instruction(VECTOR_LOAD, "v20=vmem(r24+#2)", reads=("r24",)),
            Instruction(ALU, f"r24=add(r24,#{3 * ALIGNMENT})", writes=("r24",), reads=("r24",)),
        ],
        length,
    )
    end.reach(2 * length - 1, Instruction(LOAD, "the next unit's first pixels", reads=("r22",)))
    return end.packets


@cache
def _best_unit(pixels: tuple[int, ...], q15: bool) -> tuple[_Group, _Unit, list[Packet]] | None:
    """The unit with the fewest packets and peeled steps, and its last two steps; None if there is no room.

    In q31 the multiplications alone need all packets of requantisation; in q15 packing may need some more.
    """
    least = len(pixels) if q15 else 2 * len(pixels)
    for length in range(least, 2 * len(pixels) + 1):
        group = _Group(pixels, q15, length)
        for steps in PEELED:
            with suppress(NoRoom):
                return group, _unit(group, steps), _end(group)
    return None


@dataclass(frozen=True)
class Needs:
    """What the kernel of a group takes.

    Attributes:
        steps: of four channels, at least.
        requantisation: packets of a unit's.
    """

    steps: int
    requantisation: int


def needs(pixels: Sequence[int], q15: bool = False) -> Needs | None:
    """Of groups with pixels in these cells; None if there is no kernel for them."""
    best = _best_unit(tuple(pixels), q15)
    if best is None:
        return None
    group, unit, end = best
    return Needs((len(unit.peeled) + len(end)) // len(group.packets), group.length)


def _packets(pixels: Sequence[int], steps: int, q15: bool) -> list[str]:
    """The assembly of all units."""
    best = _best_unit(tuple(pixels), q15)
    if best is None:
        raise InternalError(f"no packets for pixels in the cells {pixels}")
    group, unit, end = best
    length = len(group.packets)
    loops = (steps - len(unit.peeled) // length) // 2 - 1

    body = Schedule()
    body.reserve(2 * length)
    for step in (0, 1):
        _multiply(group, body, step * length, step)

    later = {one.text for packet in unit.beside for one in packet.instructions}
    starts = [_start(group, cell) for cell in group.pixels]
    first_starts = [one.text for half in (0, 1) for two in starts if (one := two[half]).text not in later]
    loop = f"loop0(##2b,#{loops})" if loops else "nop"
    requantisation = [line.replace(LOOP, loop) for line in lines(unit.requantisation)]
    return [
        "{m0=r8;r31=#64;v14=vxor(v14,v14)}",
        f"{{m1=r9;r28=#{len(pixels) * ALIGNMENT}}}",
        f"{{r6=#{SHUFFLE_TWICE};r7=#{SHUFFLE_LAST};r22=r23;p1=cmp.eq(r8,r8)}}",
        "{v18=vmem(r24+#0);r0=r2;r1=r2;p0=cmp.gt(r8,r8)}",
        "{v20=vmem(r24+#2);r24=add(r24,#384);q0=and(q0,!q0)}",
        *(f"{{{text}}}" for text in first_starts),
        "{loop1(1f,r10)}",
        *([f"{{loop0(2f,#{loops})}}"] if loops else []),
        *(f"{{{words.load('r22').text}}}" for words in group.loads),
        "1:",
        *lines(unit.peeled),
        *(["2:", *lines(body.packets[:-1]), body.packets[-1].text(":endloop0")] if loops else []),
        *lines(end),
        requantisation[0],
        "8:",
        *requantisation[1:-1],
        requantisation[-1] + ":endloop1",
        *lines(unit.beside),
        "{jump 7f}",
        "9:{p2=tstbit(r2,#6);r0=and(r2,#-128);q0=vsetq(r31)}",
        "{r1=add(r0,r4);r2=r3;r3=add(r3,#64);if(!p2)jump:t 8b}",
        "{r0=r1;r1=r0;q0=not(q0)}",
        "{jump 8b}",
        "7:",
    ]

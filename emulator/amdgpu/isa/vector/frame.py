"""What vector instructions have in common: typed operands, source and output modifiers, clamp.

An instruction is defined by a signature, destination first, and by what is done to the values:

    define("v_add3_u32", "b32 = b32 b32 b32", lambda e, a, b, c: e.b.add(e.b.add(a, b), c))

Types: b16, b32, b64 raw bits; f16, f32, f64 floats, with neg, abs, denormals as MODE says, and as a
destination clamp and omod (F16, F32, F64: denormals as they are); i64 an integer whose literal is signed;
`lanes` a mask (VCC, a carry). 16-bit ones obey op_sel: of an SGPR and a literal it takes the upper 16 bits,
of an inline float 0, of an inline integer its sign (guess). A source `acc` is the destination's old value.

Sources: RDNA3 and RDNA4 ISA manuals, "Vector ALU Operations". Sign and payload of a NaN result are the
host's: no document states them for every instruction (guess).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import F16, F32, F64, I16, I32, I64, Value, const, split
from emulator.amdgpu.isa.operands import Instruction, Operand

FLOATS = {"f16": F16, "f32": F32, "f64": F64}
INTEGERS = {F16: I16, F32: I32, F64: I64, ir.BF16: I16}
"""The integers that hold a float's bits."""
FRACTION = {F16: 10, F32: 23, F64: 52}
"""Bits of the fraction."""
BIAS = {F16: 15, F32: 127, F64: 1023}

Function = Callable[..., Value]


def element(value: Value) -> str:
    """The type of a value's elements."""
    return split(value.type)[1]


def bits(e: Emitter, value: Value) -> Value:
    """A float's bits as integers."""
    kind = element(value)
    return e.b.to("bitcast", value, INTEGERS[kind]) if kind in INTEGERS else value


def real(e: Emitter, value: Value, kind: str) -> Value:
    """Bits as floats of a kind: half, float, double."""
    return e.b.to("bitcast", value, kind)


def like(value: Value, number: int | float) -> Value:
    """A constant of a value's type."""
    return const(value.type, number)


def pattern(value: Value, number: int) -> Value:
    """A constant of a value's integer type, from unsigned bits."""
    width = ir.BITS[element(value)]
    return const(value.type, number - (1 << width) if number >> (width - 1) & 1 else number)


def exponent_mask(kind: str) -> int:
    """The exponent field of a float, all ones."""
    width = ir.BITS[kind]
    return (1 << (width - 1)) - (1 << FRACTION[kind])


# Denormals, and the way in


def denormals(e: Emitter, kind: str) -> int:
    """MODE's two bits for this kind: 1 keeps denormal sources, 2 denormal results."""
    return e.mode.denorm if kind == F32 else e.mode.denorm64


def flushed(e: Emitter, value: Value) -> Value:
    """Zero of the same sign for denormals."""
    whole = bits(e, value)
    kind = element(value)
    magnitude = e.b.and_(whole, pattern(whole, exponent_mask(kind)))
    sign = e.b.and_(whole, pattern(whole, 1 << (ir.BITS[kind] - 1)))
    empty = e.b.icmp("eq", magnitude, like(magnitude, 0))
    return real(e, e.b.select(empty, sign, whole), kind)


def incoming(e: Emitter, value: Value) -> Value:
    """A float source, as MODE has its denormals."""
    return value if denormals(e, element(value)) & 1 else flushed(e, value)


def outgoing(e: Emitter, value: Value) -> Value:
    """A float result, as MODE has its denormals."""
    return value if denormals(e, element(value)) & 2 else flushed(e, value)


# The way out


def saturated(e: Emitter, value: Value) -> Value:
    """Clamp of a float: to 0..1; NaN becomes 0 (gfx11: if DX10_CLAMP says so)."""
    zero, one = like(value, 0), like(value, 1)
    low = e.b.select(e.b.fcmp("ogt", value, zero), value, zero)
    high = e.b.select(e.b.fcmp("olt", low, one), low, one)
    if e.generation >= 12 or e.mode.dx10_clamp:
        return high
    return e.b.select(e.b.fcmp("uno", value, value), value, high)


def finished(e: Emitter, i: Instruction, value: Value) -> Value:
    """A float result after omod, clamp and MODE's treatment of denormals.

    omod works only if denormal results are flushed and (gfx11) IEEE mode is off: RDNA3 ISA manual, 7.2.
    """
    if e.mode.fp16_ovfl and element(value) == F16:
        raise e.refuse("FP16_OVFL is not implemented for f16")
    factor = {2: 2.0, 4: 4.0}.get(i.number("mul"), 0.5 if "div" in i.modifiers else 1.0)
    kind = element(value)
    if factor != 1.0 and not denormals(e, kind) & 2 and not (e.generation < 12 and e.mode.ieee):
        value = e.b.fmul(value, like(value, factor))
    value = outgoing(e, value)
    return saturated(e, value) if "clamp" in i.modifiers else value


# Operands by type


DESTINATION = 3
"""Position of the destination in VOP3's op_sel."""


def selects(i: Instruction, position: int) -> bool:
    """Whether op_sel takes the high half of the source, or DESTINATION, in this position."""
    chosen = i.bits("op_sel")
    return position < len(chosen) and bool(chosen[position])


def check(e: Emitter, i: Instruction, target: str, kinds: Sequence[str], sources: Sequence[Operand]) -> None:
    """Refuse modifiers that types of a signature have no use for."""
    halves = {place for place, kind in enumerate(kinds) if kind.endswith("16")}
    if target.endswith("16"):
        halves.add(DESTINATION)
    for position, chosen in enumerate(i.bits("op_sel")):
        if chosen and position not in halves:
            what = "the destination" if position == DESTINATION else f"source {position}"
            raise e.refuse(f"op_sel of {what}, which has no halves")
    for operand, kind in zip(sources, kinds, strict=True):
        if (operand.neg or operand.abs) and kind.lower() not in FLOATS:
            raise e.refuse(f"neg and abs are not implemented for {operand.name}, which is not a float")
    if target not in FLOATS and ("mul" in i.modifiers or "div" in i.modifiers):
        raise e.refuse("omod is not implemented for a result that is not a float")


def read(e: Emitter, i: Instruction, operand: Operand, kind: str, position: int) -> Value:
    """A source of a type of the signature."""
    if kind == "b32":
        return e.v32(operand)
    if kind in ("b64", "i64"):
        return e.v64(operand, "sext" if kind == "i64" else "zext")
    if kind == "lanes":
        return e.lanes(operand)
    if kind == "b16":
        return e.v16(operand, high=selects(i, position))
    if kind.endswith("16"):
        value = e.f16(operand, high=selects(i, position))
    else:
        value = e.f32(operand) if kind.endswith("32") else e.f64(operand)
    return value if kind.isupper() else incoming(e, value)


def write(e: Emitter, i: Instruction, operand: Operand, kind: str, value: Value) -> None:
    """The destination."""
    if kind in FLOATS:
        value = finished(e, i, value)
    if ir.BITS[element(value)] == 16:
        e.write16(operand, value, high=selects(i, DESTINATION))
    elif kind == "lanes":
        e.write_lanes(operand, value)
    else:
        e.write(operand, value)


def define(
    mnemonics: str | Sequence[str],
    signature: str,
    function: Function,
    *,
    clamp: Function | None = None,
    generations: tuple[int, ...] = (11, 12),
) -> None:
    """Register instructions that map values of one lane to a value of that lane.

    Args:
        mnemonics: one, or several that mean the same, separated by spaces.
        signature: types, destination first.
        function: gets the emitter and the sources.
        clamp: the same for an integer with the clamp modifier.
        generations: that have it.
    """
    target, _, rest = signature.partition(" = ")
    kinds = rest.split()

    def emit(e: Emitter, i: Instruction) -> None:
        check(e, i, target, [kind for kind in kinds if kind != "acc"], i.operands[1:])
        operands = [i.operands[0] if kind == "acc" else None for kind in kinds]
        given = iter(i.operands[1:])
        work = function
        if "clamp" in i.modifiers and target not in FLOATS:
            if clamp is None:
                raise e.refuse("clamp is not implemented")
            work = clamp
        values = [
            read(e, i, own or next(given), *((target, DESTINATION) if own else (kind, position)))
            for position, (own, kind) in enumerate(zip(operands, kinds, strict=True))
        ]
        write(e, i, i.operands[0], target, work(e, *values))

    names = mnemonics.split() if isinstance(mnemonics, str) else mnemonics
    add(names, emit, generations=generations, modifiers="neg op_sel clamp mul div")

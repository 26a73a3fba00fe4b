"""The three steps around Newton's iteration: v_div_scale, v_div_fmas, v_div_fixup.

div_scale multiplies a numerator or denominator by a power of two if the quotient, or a step towards it,
would leave the normal numbers, and signals div_fmas by VCC to undo that; div_fixup puts right what the
iteration cannot know: signs, zeros, infinities, NaNs. div_fmas keeps denormal sources in every MODE.
Source: RDNA3 and RDNA4 ISA manuals, but for what LLVM's sequences would not divide with: div_fmas scales up
a result of at least 2 and down one below (a published test suite that compares with gfx1100; the manuals
have one direction and half the exponent), 1 / denominator counts as denormal in the format itself, a huge
denominator is made smaller, not larger, and div_fixup takes a NaN quotient of two numbers for an overflow
(inferred). Whether the quotient is near the denormals, and so VCC, is judged by the exponents alone, of zeros
and of denormals that MODE flushes too: results made on hardware have a 1 for 0x00800000 / 1.0 and for 1.0 / a
flushed denormal (hardware), where the manuals' words have a 0; that it holds for all exponents is inferred.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import F32, F64, Value
from emulator.amdgpu.isa.operands import VCC, Instruction
from emulator.amdgpu.isa.vector.arithmetic import fma, nan, narrow, odd_sum
from emulator.amdgpu.isa.vector.floating import quieted
from emulator.amdgpu.isa.vector.frame import (
    BIAS,
    FRACTION,
    bits,
    define,
    element,
    exponent_mask,
    like,
    pattern,
    read,
    real,
    write,
)

SCALE = {F32: 64, F64: 128}
"""The power of two."""
FAR = {F32: 96, F64: 768}
"""Exponents this far apart make a quotient near the largest number."""
TINY = {F32: 23, F64: 53}
"""Numerators of this biased exponent lose bits in the remainder."""
LOST = {F32: -150, F64: -1075}
"""Quotients below this power of two are zero."""


def biased(e: Emitter, x: Value) -> Value:
    """The exponent field, as an integer of the float's width."""
    whole = bits(e, x)
    kind = element(x)
    field = e.b.lshr(whole, like(whole, FRACTION[kind]))
    return e.b.and_(field, like(whole, exponent_mask(kind) >> FRACTION[kind]))


def denormal(e: Emitter, x: Value) -> Value:
    """Lanes that hold a denormal number."""
    size = e.b.intrinsic("fabs", x)
    least = 2.0 ** (1 - BIAS[element(x)])
    return e.b.and_(e.b.fcmp("olt", size, like(x, least)), e.b.fcmp("ogt", size, like(x, 0)))


def _scale(kind: str) -> Callable[[Emitter, Instruction], None]:
    label = "f32" if kind == F32 else "f64"

    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        target, flag, *operands = i.operands
        value, divisor, dividend = (read(e, i, part, label, at) for at, part in enumerate(operands))
        zero = like(value, 0)
        up = b.fmul(value, like(value, 2.0 ** SCALE[kind]))
        down = b.fmul(value, like(value, 2.0 ** -SCALE[kind]))
        top, bottom = biased(e, dividend), biased(e, divisor)
        is_divisor, is_dividend = b.fcmp("oeq", value, divisor), b.fcmp("oeq", value, dividend)
        inverse = denormal(e, b.fdiv(like(value, 1), divisor))
        distance = b.sub(top, bottom)
        small = b.icmp("sle", distance, like(top, 1 - BIAS[kind]))
        huge = b.icmp("sge", distance, like(top, FAR[kind]))
        tiny = b.icmp("sle", top, like(top, TINY[kind]))
        # From the last condition to the first, so that the first one wins.
        result = b.select(tiny, up, value)
        result = b.select(small, b.select(is_dividend, up, value), result)
        result = b.select(inverse, down, result)
        result = b.select(b.and_(inverse, small), b.select(is_divisor, down, value), result)
        below = denormal(e, divisor)
        result = b.select(below, up, result)
        result = b.select(huge, b.select(is_divisor, up, value), result)
        broken = b.or_(b.fcmp("oeq", dividend, zero), b.fcmp("oeq", divisor, zero))
        result = b.select(broken, like(value, math.nan), result)
        marked = b.or_(huge, b.and_(small, b.not_(below)))
        write(e, i, target, label, result)
        e.write_lanes(flag, marked)

    return emit


def _scaled_down(e: Emitter, x: Value, y: Value, z: Value, nearest: Value) -> Value:
    """(x y + z) 2^-128 of f64s, rounded once, given x y + z: where that lies in the middle of two denormals,
    its own rounding decides.
    """
    b = e.b
    down, back = like(z, 2.0 ** -SCALE[F64]), like(z, 2.0 ** SCALE[F64])
    result = b.fmul(nearest, down)
    lost = b.fsub(nearest, b.fmul(result, back))
    error = b.intrinsic("fma", x, y, b.fsub(z, nearest))
    middle = b.fcmp("oeq", b.intrinsic("fabs", lost), like(z, 2.0 ** (-1075 + SCALE[F64])))
    whole, rest = bits(e, result), bits(e, lost)
    alike = b.icmp("sge", b.xor(bits(e, error), rest), like(rest, 0))
    wrong = b.and_(b.and_(middle, b.fcmp("one", error, like(z, 0))), alike)
    outwards = b.icmp("sge", b.xor(bits(e, nearest), rest), like(rest, 0))
    step = b.select(outwards, like(whole, 1), like(whole, -1))
    return real(e, b.select(wrong, b.add(whole, step), whole), F64)


def _fmas(kind: str) -> Callable[[Emitter, Instruction], None]:
    label = "f32" if kind == F32 else "f64"

    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        x, y, z = (read(e, i, part, label.upper(), at) for at, part in enumerate(i.operands[1:]))
        plain = fma(e, x, y, z)
        large = b.icmp("ugt", biased(e, z), like(bits(e, z), BIAS[kind]))
        if kind == F32:
            wide = [b.to("fpext", value, F64) for value in (x, y, z)]
            total = odd_sum(e, b.fmul(wide[0], wide[1]), wide[2], e.mode.round)
            factor = b.select(large, like(total, 2.0**64), like(total, 2.0**-64))
            scaled = narrow(e, b.fmul(total, factor), F32, e.mode.round)
        else:
            scaled = b.fmul(plain, like(z, 2.0**128))
            scaled = b.select(large, scaled, _scaled_down(e, x, y, z, plain))
        write(e, i, i.operands[0], label, b.select(e.mask(VCC), scaled, plain))

    return emit


def _fixup(e: Emitter, quotient: Value, divisor: Value, dividend: Value) -> Value:
    b, kind = e.b, element(quotient)
    sign = b.xor(bits(e, divisor), bits(e, dividend))
    sign = b.and_(sign, pattern(sign, 1 << (ir.BITS[kind] - 1)))

    def signed(magnitude: Value) -> Value:
        whole = bits(e, magnitude)
        rest = b.and_(whole, pattern(whole, (1 << (ir.BITS[kind] - 1)) - 1))
        return real(e, b.or_(rest, sign), kind)

    zero, infinity = like(quotient, 0), like(quotient, math.inf)
    top, bottom = b.intrinsic("fabs", dividend), b.intrinsic("fabs", divisor)
    no_top, no_bottom = b.fcmp("oeq", top, zero), b.fcmp("oeq", bottom, zero)
    all_top, all_bottom = b.fcmp("oeq", top, infinity), b.fcmp("oeq", bottom, infinity)
    # Operands that are numbers make a NaN only where the iteration overflowed.
    result = signed(b.select(nan(e, quotient), infinity, quotient))
    nothing = b.or_(all_bottom, no_top)
    if kind in LOST:
        distance = b.sub(biased(e, dividend), biased(e, divisor))
        nothing = b.or_(nothing, b.icmp("slt", distance, like(distance, LOST[kind])))
    result = b.select(nothing, signed(zero), result)
    result = b.select(b.or_(no_bottom, all_top), signed(infinity), result)
    undefined = b.or_(b.and_(no_top, no_bottom), b.and_(all_top, all_bottom))
    result = b.select(undefined, like(quotient, -math.nan), result)
    result = b.select(nan(e, divisor), quieted(e, divisor), result)
    return b.select(nan(e, dividend), quieted(e, dividend), result)


for label, kind in (("f32", F32), ("f64", F64)):
    add([f"v_div_scale_{label}"], _scale(kind), modifiers="neg clamp mul div")
    add([f"v_div_fmas_{label}"], _fmas(kind), modifiers="neg clamp mul div")
for label in ("f16", "f32", "f64"):
    define(f"v_div_fixup_{label}", f"{label} = {label} {label} {label}", _fixup)

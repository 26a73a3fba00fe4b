"""Reciprocals, roots, exponentials, logarithms, sines.

The cards' results are good to about one unit in the last place, and no document states their bits. These
are computed in f64 and rounded once, which is the correctly rounded result but for about one in 10^7 that
lie almost in the middle (grade: guess). f32 ones take denormals for zero, as sources and as results, but
for sine and cosine, which keep them and take any number of turns: RDNA3 and RDNA4 ISA manuals, VOP1. f16
ones keep them. f64 ones, good to 2^29 units on the cards and meant to be refined, are exact (guess).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import F16, F32, F64, I32, I64, Value
from emulator.amdgpu.isa.operands import Instruction
from emulator.amdgpu.isa.vector.arithmetic import NEAREST, narrow, odd_narrow
from emulator.amdgpu.isa.vector.floating import power
from emulator.amdgpu.isa.vector.frame import (
    INTEGERS,
    bits,
    define,
    element,
    finished,
    flushed,
    incoming,
    like,
    real,
)

EXP2 = [math.log(2) ** n / math.factorial(n) for n in range(13)]
"""Taylor's coefficients of 2^x, enough for |x| <= 0.5."""
ATANH = [2 / math.log(2) / (2 * n + 1) for n in range(10)]
"""Those of log2((1 + s) / (1 - s)) / s in s^2, enough for |s| <= 0.172."""
SINE = [(-1) ** n * (2 * math.pi) ** (2 * n + 1) / math.factorial(2 * n + 1) for n in range(9)]
"""Those of sin(2 pi x) / x in x^2, enough for |x| <= 1/8."""
COSINE = [(-1) ** n * (2 * math.pi) ** (2 * n) / math.factorial(2 * n) for n in range(9)]

ROOT_HALF = 0x3FE6A09E667F3BCD
"""sqrt(0.5) as the bits of an f64."""

Real = Callable[[Emitter, Value], Value]


def polynomial(e: Emitter, x: Value, coefficients: Sequence[float]) -> Value:
    """By Horner's rule."""
    total = like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = e.b.intrinsic("fma", total, x, like(x, coefficient))
    return total


def reciprocal(e: Emitter, x: Value) -> Value:
    return e.b.fdiv(like(x, 1), x)


def root(e: Emitter, x: Value) -> Value:
    return e.b.intrinsic("sqrt", x)


def reciprocal_root(e: Emitter, x: Value) -> Value:
    return e.b.fdiv(like(x, 1), e.b.intrinsic("sqrt", x))


def exp2(e: Emitter, x: Value) -> Value:
    """2^x of f64s that are f32s; outside of -300..300 it is 0 or infinity in f32 anyway."""
    b = e.b
    inside = b.select(b.fcmp("olt", x, like(x, 300)), x, like(x, 300))
    inside = b.select(b.fcmp("ogt", inside, like(x, -300)), inside, like(x, -300))
    whole = b.intrinsic("roundeven", inside)
    scale = power(e, b.to("fptosi", whole, I64))
    result = b.fmul(polynomial(e, b.fsub(inside, whole), EXP2), scale)
    return b.select(b.fcmp("uno", x, x), x, result)


def log2(e: Emitter, x: Value) -> Value:
    """log2 of f64s that are normal numbers, zero, infinite or NaN."""
    b = e.b
    whole = bits(e, x)
    # m between sqrt(0.5) and sqrt(2), x = m * 2^n
    shifted = b.sub(whole, like(whole, ROOT_HALF))
    exponent = b.ashr(shifted, like(whole, 52))
    m = real(e, b.sub(whole, b.shl(exponent, like(whole, 52))), F64)
    one = like(x, 1)
    s = b.fdiv(b.fsub(m, one), b.fadd(m, one))
    series = b.fmul(s, polynomial(e, b.fmul(s, s), ATANH))
    result = b.fadd(b.to("sitofp", exponent, F64), series)
    zero = like(x, 0)
    result = b.select(b.fcmp("oeq", x, like(x, math.inf)), x, result)
    result = b.select(b.fcmp("oeq", x, zero), like(x, -math.inf), result)
    return b.select(b.fcmp("ult", x, zero), like(x, math.nan), result)


def _wave(e: Emitter, x: Value, quarters: int) -> Value:
    """sin(2 pi (x + quarters / 4)): exact reduction to an eighth of a turn."""
    b = e.b
    x = b.fsub(x, b.intrinsic("roundeven", x))
    quarter = b.intrinsic("roundeven", b.fmul(x, like(x, 4)))
    rest = b.intrinsic("fma", quarter, like(x, -0.25), x)
    square = b.fmul(rest, rest)
    odd, even = b.fmul(rest, polynomial(e, square, SINE)), polynomial(e, square, COSINE)
    turn = b.to("fptosi", quarter, I64)
    turn = b.add(turn, like(turn, quarters)) if quarters else turn
    one, two = like(turn, 1), like(turn, 2)
    chosen = b.select(b.icmp("ne", b.and_(turn, one), like(turn, 0)), even, odd)
    return b.select(b.icmp("ne", b.and_(turn, two), like(turn, 0)), b.fneg(chosen), chosen)


def sine(e: Emitter, x: Value) -> Value:
    """sin(2 pi x). Whole turns give +0, as the manuals' example of -MaxFloat; -0 gives -0."""
    zero = like(x, 0)
    result = e.b.fadd(_wave(e, x, 0), zero)
    return _if_finite(e, x, e.b.select(e.b.fcmp("oeq", x, zero), x, result))


def cosine(e: Emitter, x: Value) -> Value:
    """cos(2 pi x); a zero is +0."""
    return _if_finite(e, x, e.b.fadd(_wave(e, x, 1), like(x, 0)))


def _if_finite(e: Emitter, x: Value, result: Value) -> Value:
    """A result; NaN where x is infinite or NaN."""
    finite = e.b.fcmp("olt", e.b.intrinsic("fabs", x), like(x, math.inf))
    return e.b.select(finite, result, like(x, math.nan))


FUNCTIONS: dict[str, Real] = {
    "rcp": reciprocal,
    "rsq": reciprocal_root,
    "sqrt": root,
    "exp": exp2,
    "log": log2,
    "sin": sine,
    "cos": cosine,
}


def rounded(e: Emitter, function: Real, x: Value) -> Value:
    """A function of f32s or f16s, rounded to nearest."""
    kind = element(x)
    if kind == F16:
        wide = function(e, e.b.to("fpext", x, F64))
        return narrow(e, odd_narrow(e, wide), F16, NEAREST)
    if function in (reciprocal, root):
        return flushed(e, function(e, flushed(e, x)))
    keeps = function in (sine, cosine)
    wide = function(e, e.b.to("fpext", x if keeps else flushed(e, x), F64))
    result = narrow(e, wide, F32, NEAREST)
    return result if keeps else flushed(e, result)


def _lanewise(function: Real) -> Callable[..., Value]:
    return lambda e, x: rounded(e, function, x)


def _scalar(function: Real, kind: str) -> Callable[[Emitter, Instruction], None]:
    """RDNA4's v_s_exp_f32 and its kin: of and to an SGPR."""

    def emit(e: Emitter, i: Instruction) -> None:
        target, operand = i.operands
        whole = e.s32(operand)
        x = real(e, e.b.cast("trunc", whole, INTEGERS[kind]), kind)
        result = bits(e, finished(e, i, rounded(e, function, incoming(e, e.modified(operand, x)))))
        e.write_s(target, e.b.cast("zext", result, I32))

    return emit


for name, function in FUNCTIONS.items():
    for label, kind in (("f16", F16), ("f32", F32)):
        define(f"v_{name}_{label}", f"{label} = {label}", _lanewise(function))
        if name not in ("sin", "cos"):
            emit = _scalar(function, kind)
            add([f"v_s_{name}_{label}"], emit, generations=(12,), modifiers="neg clamp mul div")
define("v_rcp_iflag_f32", "f32 = f32", _lanewise(reciprocal))
for name in ("rcp", "rsq", "sqrt"):
    define(f"v_{name}_f64", "f64 = f64", FUNCTIONS[name])

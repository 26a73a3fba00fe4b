"""Float arithmetic of a lane: sums, products, fma, extremes, roundings, parts of the number.

Source: RDNA3 and RDNA4 ISA manuals, VOP1, VOP2 and VOP3. Extremes: RDNA3 and RDNA4's `_num` ones prefer
the number to a NaN, and put -0 below +0; RDNA3 in IEEE mode answers a signalling NaN with a quiet one.
RDNA4's minimum and maximum answer any NaN with a NaN.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import F16, F32, F64, I64, Value
from emulator.amdgpu.isa.operands import Instruction
from emulator.amdgpu.isa.vector import arithmetic
from emulator.amdgpu.isa.vector.arithmetic import fadd, fma, fmul, fsub
from emulator.amdgpu.isa.vector.frame import (
    BIAS,
    FRACTION,
    bits,
    check,
    define,
    element,
    exponent_mask,
    like,
    pattern,
    real,
)

# Sums and products

for kind in ("f16", "f32", "f64"):
    two, three = f"{kind} = {kind} {kind}", f"{kind} = {kind} {kind} {kind}"
    define(f"v_add_{kind}", two, fadd)
    define(f"v_mul_{kind}", two, fmul)
    define(f"v_fma_{kind}", three, fma)
    if kind != "f64":
        define(f"v_sub_{kind}", two, fsub)
        define(f"v_subrev_{kind}", two, lambda e, a, c: fsub(e, c, a))
        define(f"v_fmac_{kind}", f"{kind} = {kind} {kind} acc", fma)
        define(f"v_fmaak_{kind} v_fmamk_{kind}", three, fma)


def zero_wins(work: Callable[..., Value]) -> Callable[..., Value]:
    """The "dx9_zero" rule: with a zero factor the result is the sum's other term, or +0."""

    def legacy(e: Emitter, a: Value, c: Value, *rest: Value) -> Value:
        zero = like(a, 0)
        none = e.b.or_(e.b.fcmp("oeq", a, zero), e.b.fcmp("oeq", c, zero))
        return e.b.select(none, rest[0] if rest else zero, work(e, a, c, *rest))

    return legacy


define("v_mul_dx9_zero_f32", "f32 = f32 f32", zero_wins(fmul))
define("v_fma_dx9_zero_f32", "f32 = f32 f32 f32", zero_wins(fma))
define("v_fmac_dx9_zero_f32", "f32 = f32 f32 acc", zero_wins(fma), generations=(11,))


def exactly(e: Emitter, name: str, *values: Value) -> Value:
    """An intrinsic whose results f16s can hold exactly: of those by way of f32, as LLVM takes vectors of them
    apart.
    """
    if element(values[0]) != F16:
        return e.b.intrinsic(name, *values)
    wide = (e.b.to("fpext", value, F32) for value in values)
    return e.b.to("fptrunc", e.b.intrinsic(name, *wide), F16)


# Extremes


def signalling(e: Emitter, value: Value) -> Value:
    """Lanes that hold a signalling NaN."""
    b, kind = e.b, element(value)
    whole = bits(e, value)
    quiet = 1 << (FRACTION[kind] - 1)
    infinity = exponent_mask(kind)
    magnitude = b.and_(whole, pattern(whole, infinity | 2 * quiet - 1))
    return b.icmp("ult", b.sub(magnitude, like(whole, infinity + 1)), like(whole, quiet - 1))


def quieted(e: Emitter, value: Value) -> Value:
    """A NaN with its quiet bit set."""
    whole = bits(e, value)
    kind = element(value)
    return real(e, e.b.or_(whole, like(whole, 1 << (FRACTION[kind] - 1))), kind)


def number(greater: bool) -> Callable[..., Value]:
    """Minimum or maximum that prefers numbers."""
    name = "maximumnum" if greater else "minimumnum"

    def work(e: Emitter, a: Value, c: Value) -> Value:
        result = exactly(e, name, a, c)
        if e.generation >= 12 or not e.mode.ieee:
            return result
        result = e.b.select(signalling(e, c), quieted(e, c), result)
        return e.b.select(signalling(e, a), quieted(e, a), result)

    return work


def strict(greater: bool) -> Callable[..., Value]:
    """Minimum or maximum that prefers NaNs."""
    name = "maximum" if greater else "minimum"
    return lambda e, a, c: exactly(e, name, a, c)


def _chain(first: Callable[..., Value], second: Callable[..., Value]) -> Callable[..., Value]:
    return lambda e, a, c, d: second(e, first(e, a, c), d)


def median(e: Emitter, a: Value, c: Value, d: Value) -> Value:
    """The greater one of those that are not the first greatest (zeros are alike); min3 if any is a NaN."""
    b = e.b

    def most(x: Value, y: Value) -> Value:
        return exactly(e, "maximumnum", x, y)

    top = most(most(a, c), d)
    middle = b.select(b.fcmp("oeq", top, c), most(a, d), most(a, c))
    middle = b.select(b.fcmp("oeq", top, a), most(c, d), middle)
    broken = b.or_(arithmetic.nan(e, a), b.or_(arithmetic.nan(e, c), arithmetic.nan(e, d)))
    return b.select(broken, _chain(number(False), number(False))(e, a, c, d), middle)


for kind in ("f16", "f32", "f64"):
    two, three = f"{kind} = {kind} {kind}", f"{kind} = {kind} {kind} {kind}"
    for word, greater in (("min", False), ("max", True)):
        define(f"v_{word}_{kind}", two, number(greater), generations=(11,))
        define(f"v_{word}_num_{kind}", two, number(greater), generations=(12,))
        define(f"v_{word}imum_{kind}", two, strict(greater), generations=(12,))
    if kind == "f64":
        continue
    for word, work in (
        ("min3", _chain(number(False), number(False))),
        ("max3", _chain(number(True), number(True))),
        ("minmax", _chain(number(False), number(True))),
        ("maxmin", _chain(number(True), number(False))),
        ("med3", median),
    ):
        define(f"v_{word}_{kind}", three, work, generations=(11,))
        define(f"v_{word}_num_{kind}", three, work, generations=(12,))
    for word, work in (
        ("minimum3", _chain(strict(False), strict(False))),
        ("maximum3", _chain(strict(True), strict(True))),
        ("minimummaximum", _chain(strict(False), strict(True))),
        ("maximumminimum", _chain(strict(True), strict(False))),
    ):
        define(f"v_{word}_{kind}", three, work, generations=(12,))

# To whole numbers


def _intrinsic(name: str) -> Callable[..., Value]:
    return lambda e, a: e.b.intrinsic(name, a)


def _fraction(e: Emitter, a: Value) -> Value:
    """A - floor(a), kept below 1; NaN for infinities."""
    b, kind = e.b, element(a)
    rest = b.fsub(a, b.intrinsic("floor", a))
    below = 1 - 2.0 ** -(FRACTION[kind] + 1)
    return b.select(b.fcmp("ogt", rest, like(a, below)), like(a, below), rest)


for kind in ("f16", "f32", "f64"):
    for word, name in (("trunc", "trunc"), ("ceil", "ceil"), ("floor", "floor"), ("rndne", "roundeven")):
        define(f"v_{word}_{kind}", f"{kind} = {kind}", _intrinsic(name))
    define(f"v_fract_{kind}", f"{kind} = {kind}", _fraction)

# Parts, and powers of two


def normal(e: Emitter, a: Value) -> tuple[Value, Value]:
    """A float times a power of two that makes denormals normal, and that power (integers of its width)."""
    b, kind = e.b, element(a)
    whole = bits(e, a)
    denormal = b.icmp("eq", b.and_(whole, like(whole, exponent_mask(kind))), like(whole, 0))
    lift = FRACTION[kind] + 1
    scaled = b.select(denormal, b.fmul(a, like(a, 2.0**lift)), a)
    return scaled, b.select(denormal, like(whole, lift), like(whole, 0))


def special(e: Emitter, a: Value) -> Value:
    """Lanes that hold zero, infinity or NaN."""
    b = e.b
    magnitude = b.intrinsic("fabs", a)
    finite = b.fcmp("olt", magnitude, like(a, float("inf")))
    return b.or_(b.not_(finite), b.fcmp("oeq", a, like(a, 0)))


def _exponent(e: Emitter, a: Value) -> Value:
    """E of m * 2^e with 0.5 <= m < 1; 0 for zero, infinity, NaN."""
    b, kind = e.b, element(a)
    scaled, lift = normal(e, a)
    field = b.lshr(bits(e, scaled), like(lift, FRACTION[kind]))
    field = b.and_(field, like(lift, (exponent_mask(kind) >> FRACTION[kind])))
    power = b.sub(b.sub(field, like(lift, BIAS[kind] - 1)), lift)
    power = b.select(special(e, a), like(power, 0), power)
    return b.to("trunc", power, ir.I32) if kind == F64 else power


def _mantissa(e: Emitter, a: Value) -> Value:
    """M of the same, with the sign; zero, infinity and NaN as they are."""
    b, kind = e.b, element(a)
    scaled, _ = normal(e, a)
    whole = bits(e, scaled)
    mask = (1 << ir.BITS[kind]) - 1 - exponent_mask(kind)
    half = b.or_(b.and_(whole, pattern(whole, mask)), like(whole, (BIAS[kind] - 1) << FRACTION[kind]))
    return b.select(special(e, a), a, real(e, half, kind))


define("v_frexp_exp_i32_f32", "b32 = f32", _exponent)
define("v_frexp_exp_i32_f64", "b32 = f64", _exponent)
define("v_frexp_exp_i16_f16", "b16 = f16", _exponent)
for kind in ("f16", "f32", "f64"):
    define(f"v_frexp_mant_{kind}", f"{kind} = {kind}", _mantissa)


def power(e: Emitter, exponent: Value) -> Value:
    """2^n as f64, n (V64) between -1022 and 1023."""
    b = e.b
    return real(e, b.shl(b.add(exponent, like(exponent, 1023)), like(exponent, 52)), F64)


def _bounded(e: Emitter, value: Value, least: int, most: int) -> Value:
    value = e.b.intrinsic("smax", value, like(value, least))
    return e.b.intrinsic("smin", value, like(value, most))


def scaled(e: Emitter, a: Value, exponent: Value) -> Value:
    """A * 2^n, rounded once; n is of any integer type."""
    kind = element(a)
    if kind == F64:
        return _scaled_wide(e, a, exponent)
    count = e.b.to("sext", _bounded(e, exponent, -300, 300), I64)
    wide = e.b.to("fpext", a, F64)
    return arithmetic.convert(e, e.b.fmul(wide, power(e, count)), kind)


def _scaled_wide(e: Emitter, a: Value, exponent: Value) -> Value:
    """Three factors; of those that shrink, the last alone can make the result denormal, and so round it."""
    b = e.b
    left = b.to("sext", _bounded(e, exponent, -2200, 2200), I64)
    for _ in range(2):
        down = b.select(b.icmp("slt", left, like(left, -1022)), like(left, -969), like(left, 0))
        step = b.select(b.icmp("sgt", left, like(left, 1023)), like(left, 1023), down)
        a, left = b.fmul(a, power(e, step)), b.sub(left, step)
    return b.fmul(a, power(e, _bounded(e, left, -1022, 1023)))


define("v_ldexp_f32", "f32 = f32 b32", scaled)
define("v_ldexp_f64", "f64 = f64 b32", scaled)
define("v_ldexp_f16", "f16 = f16 b16", scaled)

# For graphics


def _lit(e: Emitter, a: Value, c: Value, d: Value) -> Value:
    """A * c under the "dx9_zero" rule; the least float where c is at or below it or d is not above 0."""
    b = e.b
    least = like(a, -3.4028234663852886e38)
    nothing = b.or_(b.fcmp("ule", c, least), b.fcmp("ule", d, like(d, 0)))
    return b.select(nothing, least, zero_wins(fmul)(e, a, c))


def _face(e: Emitter, x: Value, y: Value, z: Value) -> tuple[Value, Value]:
    """Of a cube's faces: whether z is the major axis, else whether y is."""
    b = e.b
    ax, ay, az = (b.intrinsic("fabs", each) for each in (x, y, z))
    deep = b.and_(b.fcmp("oge", az, ax), b.fcmp("oge", az, ay))
    return deep, b.fcmp("oge", ay, ax)


def _by_face(
    along_z: Callable[..., Value], along_y: Callable[..., Value], along_x: Callable[..., Value]
) -> Callable[..., Value]:
    def work(e: Emitter, x: Value, y: Value, z: Value) -> Value:
        deep, upright = _face(e, x, y, z)
        other = e.b.select(upright, along_y(e, x, y, z), along_x(e, x, y, z))
        return e.b.select(deep, along_z(e, x, y, z), other)

    return work


def _less(e: Emitter, a: Value, low: Value, high: Value) -> Value:
    """`low` where a is negative."""
    return e.b.select(e.b.fcmp("olt", a, like(a, 0)), low, high)


define("v_mullit_f32", "f32 = f32 f32 f32", _lit)
define(
    "v_cubeid_f32",
    "f32 = f32 f32 f32",
    _by_face(
        lambda e, x, y, z: _less(e, z, like(z, 5), like(z, 4)),
        lambda e, x, y, z: _less(e, y, like(y, 3), like(y, 2)),
        lambda e, x, y, z: _less(e, x, like(x, 1), like(x, 0)),
    ),
)
define(
    "v_cubesc_f32",
    "f32 = f32 f32 f32",
    _by_face(
        lambda e, x, y, z: _less(e, z, e.b.fneg(x), x),
        lambda e, x, y, z: x,
        lambda e, x, y, z: _less(e, x, z, e.b.fneg(z)),
    ),
)
define(
    "v_cubetc_f32",
    "f32 = f32 f32 f32",
    _by_face(
        lambda e, x, y, z: e.b.fneg(y),
        lambda e, x, y, z: _less(e, y, e.b.fneg(z), z),
        lambda e, x, y, z: e.b.fneg(y),
    ),
)
define(
    "v_cubema_f32",
    "f32 = f32 f32 f32",
    _by_face(*(lambda e, *axes, n=n: fmul(e, axes[n], like(axes[n], 2)) for n in (2, 1, 0))),
)

# Choice


def _choose(width: int) -> Callable[[Emitter, Instruction], None]:
    """v_cndmask: the second source where the mask has a one. neg and abs are those of floats."""
    kind = F32 if width == 32 else F16

    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        target, first, second, mask = i.operands
        check(e, i, f"b{width}", (f"f{width}", f"f{width}", "lanes"), i.operands[1:])
        high = i.bits("op_sel", (0, 0, 0, 0))
        values = []
        for position, operand in enumerate((first, second)):
            value = e.v32(operand) if width == 32 else e.v16(operand, high=bool(high[position]))
            if operand.neg or operand.abs:
                value = bits(e, e.modified(operand, real(e, value, kind)))
            values.append(value)
        chosen = b.select(e.lanes(mask), values[1], values[0])
        if width == 32:
            e.write(target, chosen)
        else:
            e.write16(target, chosen, high=bool(high[-1]))

    return emit


add(["v_cndmask_b32"], _choose(32), modifiers="neg")
add(["v_cndmask_b16"], _choose(16), modifiers="neg op_sel")

"""Float operations that round once, as MODE says; the primitives under float, packed, dot and matrix.

Round to nearest is the host's own. The directed modes take a detour: the exact result, or the nearest one
of a wider format with its last bit made sticky ("round to odd"), is narrowed by comparing it with what
nearest gave. f64 has no wider format; its directed modes are refused.
"""

from __future__ import annotations

from emulator.amdgpu.isa.emit import Emitter
from emulator.amdgpu.isa.ir import F16, F32, F64, I16, Value
from emulator.amdgpu.isa.vector.frame import bits, element, like, real

NEAREST, UP, DOWN, ZERO = range(4)
WIDER = {F16: F32, F32: F64}


def rounding(e: Emitter, kind: str) -> int:
    """MODE's rounding for a kind of float."""
    return e.mode.round if kind == F32 else e.mode.round64


def narrow(e: Emitter, wide: Value, kind: str, mode: int) -> Value:
    """A wider float rounded to `kind`."""
    b = e.b
    nearest = b.to("fptrunc", wide, kind)
    if mode == NEAREST:
        return nearest
    back = b.to("fpext", nearest, element(wide))
    whole = bits(e, nearest)
    negative = b.icmp("slt", whole, like(whole, 0))
    outwards, inwards = b.add(whole, like(whole, 1)), b.sub(whole, like(whole, 1))
    if mode == ZERO:
        beyond = b.fcmp("ogt", b.intrinsic("fabs", back), b.intrinsic("fabs", wide))
        return real(e, b.select(beyond, inwards, whole), kind)
    wrong = b.fcmp("olt" if mode == UP else "ogt", back, wide)
    step = b.select(negative, *((inwards, outwards) if mode == UP else (outwards, inwards)))
    return real(e, b.select(wrong, step, whole), kind)


def odd_sum(e: Emitter, a: Value, c: Value, mode: int) -> Value:
    """A + c, its last bit set if that is not exact, the magnitude never too large: narrows without a second
    rounding to formats of at least two bits less.
    """
    b = e.b
    total = b.fadd(a, c)
    if mode == DOWN:  # what cancels out is -0
        unlike = b.icmp("slt", b.xor(bits(e, a), bits(e, c)), like(bits(e, a), 0))
        empty = b.fcmp("oeq", total, like(total, 0))
        total = b.select(b.and_(unlike, empty), b.fneg(like(total, 0)), total)
    part = b.fsub(total, a)
    error = b.fadd(b.fsub(a, b.fsub(total, part)), b.fsub(c, part))
    whole, zero = bits(e, total), like(error, 0)
    inexact = b.fcmp("one", error, zero)
    shorter = b.xor(b.icmp("slt", whole, like(whole, 0)), b.fcmp("olt", error, zero))
    cut = b.and_(b.to("sext", shorter, element(whole)), b.to("sext", inexact, element(whole)))
    sticky = b.or_(b.add(whole, cut), like(whole, 1))
    return real(e, b.select(inexact, sticky, whole), element(total))


def _widened(e: Emitter, *values: Value) -> list[Value]:
    return [e.b.to("fpext", value, WIDER[element(value)]) for value in values]


def _directed(e: Emitter, kind: str) -> int:
    mode = rounding(e, kind)
    if mode != NEAREST and kind == F64:
        raise e.refuse("f64 with a rounding mode other than to nearest is not implemented")
    return mode


def fadd(e: Emitter, a: Value, c: Value) -> Value:
    """A + c."""
    kind = element(a)
    mode = _directed(e, kind)
    if mode == NEAREST:
        return e.b.fadd(a, c)
    a, c = _widened(e, a, c)
    return narrow(e, odd_sum(e, a, c, mode), kind, mode)


def fsub(e: Emitter, a: Value, c: Value) -> Value:
    """A - c."""
    return fadd(e, a, e.b.fneg(c))


def fmul(e: Emitter, a: Value, c: Value) -> Value:
    """A * c."""
    kind = element(a)
    mode = _directed(e, kind)
    if mode == NEAREST:
        return e.b.fmul(a, c)
    return narrow(e, e.b.fmul(*_widened(e, a, c)), kind, mode)


def fma(e: Emitter, x: Value, y: Value, z: Value) -> Value:
    """X * y + z, rounded once."""
    kind = element(x)
    mode = _directed(e, kind)
    if mode == NEAREST and kind != F16:
        return e.b.intrinsic("fma", x, y, z)
    x, y, z = _widened(e, x, y, z)
    return narrow(e, odd_sum(e, e.b.fmul(x, y), z, mode), kind, mode)


def convert(e: Emitter, value: Value, kind: str) -> Value:
    """A float in another format; a narrower one rounds as MODE says."""
    source = element(value)
    if source == kind:
        return value
    if FORMATS.index(kind) > FORMATS.index(source):
        return e.b.to("fpext", value, kind)
    mode = rounding(e, kind)
    if source == F64 and kind == F16:
        value = odd_narrow(e, value)
    return narrow(e, value, kind, mode)


FORMATS = (F16, F32, F64)


def odd_narrow(e: Emitter, wide: Value) -> Value:
    """f64 to f32 with a sticky last bit."""
    b = e.b
    down = narrow(e, wide, F32, ZERO)
    inexact = b.fcmp("one", b.to("fpext", down, F64), wide)
    whole = bits(e, down)
    return real(e, b.or_(whole, b.to("zext", inexact, element(whole))), F32)


def nan(e: Emitter, value: Value) -> Value:
    """Lanes that hold a NaN."""
    return e.b.fcmp("uno", value, value)


def narrow_bf16(e: Emitter, value: Value) -> Value:
    """f32 to the bits of bf16s, to nearest even; NaNs stay NaNs."""
    b = e.b
    whole = bits(e, value)
    odd = b.and_(b.lshr(whole, like(whole, 16)), like(whole, 1))
    rounded = b.add(whole, b.add(odd, like(whole, 0x7FFF)))
    result = b.select(nan(e, value), b.or_(whole, like(whole, 0x400000)), rounded)
    return b.to("trunc", b.lshr(result, like(result, 16)), I16)

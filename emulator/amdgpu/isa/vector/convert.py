"""Conversions between floats, integers and packed formats.

Source: RDNA3 and RDNA4 ISA manuals. Floats become integers towards zero, saturated, NaN as 0; integers
become floats rounded as MODE says.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter
from emulator.amdgpu.isa.ir import F16, F32, F64, I8, I16, I32, Value, const
from emulator.amdgpu.isa.vector.arithmetic import NEAREST, ZERO, convert, narrow, rounding
from emulator.amdgpu.isa.vector.frame import bits, define, element, like
from emulator.amdgpu.isa.vector.integer import fitted


def to_integer(e: Emitter, a: Value, kind: str, signed: bool) -> Value:
    """Towards zero, saturated; NaN is 0. LLVM's own saturating conversion takes several times as long."""
    b = e.b
    if element(a) == F16:
        a = b.to("fpext", a, F32)
    width = ir.BITS[kind]
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    over = b.fcmp("oge", a, like(a, high + 1))
    inside = b.select(b.or_(over, b.fcmp("ule", a, like(a, low - signed))), like(a, 0), a)
    whole = b.to("fptosi" if signed else "fptoui", inside, I32)
    whole = b.select(over, like(whole, high if signed or width < 32 else -1), whole)
    if signed:
        under = b.fcmp("ole", a, like(a, low))
        whole = b.select(under, like(whole, low), whole)
    return b.to("trunc", whole, kind)


def from_integer(e: Emitter, a: Value, kind: str, signed: bool) -> Value:
    """Rounded as MODE says."""
    operation = "sitofp" if signed else "uitofp"
    if kind == F64 or (kind == F32 and rounding(e, kind) == NEAREST):
        return e.b.to(operation, a, kind)
    wide = F64 if kind == F32 else F32
    return narrow(e, e.b.to(operation, a, wide), kind, rounding(e, kind))


def _integer(kind: str, signed: bool) -> Callable[..., Value]:
    return lambda e, a: to_integer(e, a, kind, signed)


def _float(kind: str, signed: bool) -> Callable[..., Value]:
    return lambda e, a: from_integer(e, a, kind, signed)


define("v_cvt_i32_f32", "b32 = f32", _integer(I32, True))
define("v_cvt_u32_f32", "b32 = f32", _integer(I32, False))
define("v_cvt_i32_f64", "b32 = f64", _integer(I32, True))
define("v_cvt_u32_f64", "b32 = f64", _integer(I32, False))
define("v_cvt_i16_f16", "b16 = f16", _integer(I16, True))
define("v_cvt_u16_f16", "b16 = f16", _integer(I16, False))
define("v_cvt_f32_i32", "f32 = b32", _float(F32, True))
define("v_cvt_f32_u32", "f32 = b32", _float(F32, False))
define("v_cvt_f64_i32", "f64 = b32", _float(F64, True))
define("v_cvt_f64_u32", "f64 = b32", _float(F64, False))
define("v_cvt_f16_i16", "f16 = b16", _float(F16, True))
define("v_cvt_f16_u16", "f16 = b16", _float(F16, False))
define("v_cvt_i32_i16", "b32 = b16", lambda e, a: e.b.to("sext", a, I32))
define("v_cvt_u32_u16", "b32 = b16", lambda e, a: e.b.to("zext", a, I32))

define("v_cvt_f16_f32", "f16 = f32", lambda e, a: convert(e, a, F16))
define("v_cvt_f32_f16", "f32 = f16", lambda e, a: convert(e, a, F32))
define("v_cvt_f32_f64", "f32 = f64", lambda e, a: convert(e, a, F32))
define("v_cvt_f64_f32", "f64 = f32", lambda e, a: convert(e, a, F64))


def _nearest(e: Emitter, a: Value) -> Value:
    """floor(a + 0.5), the sum exact."""
    floor = e.b.intrinsic("floor", a)
    up = e.b.fcmp("oge", e.b.fsub(a, floor), like(a, 0.5))
    return to_integer(e, e.b.fadd(floor, e.b.to("uitofp", up, F32)), I32, True)


define("v_cvt_nearest_i32_f32", "b32 = f32", _nearest)
define("v_cvt_floor_i32_f32", "b32 = f32", lambda e, a: to_integer(e, e.b.intrinsic("floor", a), I32, True))


def _byte(number: int) -> Callable[..., Value]:
    def work(e: Emitter, a: Value) -> Value:
        part = e.b.and_(e.b.lshr(a, like(a, 8 * number)), like(a, 0xFF))
        return e.b.to("uitofp", part, F32)

    return work


for number in range(4):
    define(f"v_cvt_f32_ubyte{number}", "f32 = b32", _byte(number))


def _nibble(e: Emitter, a: Value) -> Value:
    """Four bits, signed, over 16."""
    signed = e.b.ashr(e.b.shl(a, like(a, 28)), like(a, 28))
    return e.b.fmul(e.b.to("sitofp", signed, F32), const(ir.VF32, 1 / 16))


define("v_cvt_off_f32_i4", "f32 = b32", _nibble)

# Pairs of 16 bits in one register


def packed(e: Emitter, low: Value, high: Value) -> Value:
    """Two 16-bit values as 32 bits."""
    b = e.b
    low, high = (b.to("zext", bits(e, value), I32) for value in (low, high))
    return b.or_(low, b.shl(high, like(high, 16)))


def _pair(work: Callable[[Emitter, Value], Value]) -> Callable[..., Value]:
    return lambda e, a, c: packed(e, work(e, a), work(e, c))


def _normalised(signed: bool) -> Callable[[Emitter, Value], Value]:
    """-1..1 or 0..1 to the whole range of 16 bits, to nearest even."""
    scale = 32767.0 if signed else 65535.0

    def work(e: Emitter, a: Value) -> Value:
        wide = e.b.to("fpext", a, F64)
        whole = e.b.intrinsic("roundeven", e.b.fmul(wide, like(wide, scale)))
        if signed:
            whole = e.b.select(e.b.fcmp("olt", whole, like(whole, -scale)), like(whole, -scale), whole)
        return to_integer(e, whole, I16, signed)

    return work


def _fitted(signed: bool) -> Callable[[Emitter, Value], Value]:
    return lambda e, a: fitted(e, a, I16, signed)


for letter, signed in (("i", True), ("u", False)):
    define(f"v_cvt_norm_{letter}16_f16", "b16 = f16", _normalised(signed))
    define(f"v_cvt_pk_norm_{letter}16_f16", "b32 = f16 f16", _pair(_normalised(signed)))
    define(f"v_cvt_pk_norm_{letter}16_f32", "b32 = f32 f32", _pair(_normalised(signed)))
    define(f"v_cvt_pk_{letter}16_{letter}32", "b32 = b32 b32", _pair(_fitted(signed)))
    define(f"v_cvt_pk_{letter}16_f32", "b32 = f32 f32", _pair(_integer(I16, signed)))
define("v_cvt_pk_rtz_f16_f32", "b32 = f32 f32", _pair(lambda e, a: narrow(e, a, F16, ZERO)))
define("v_pack_b32_f16", "b32 = f16 f16", packed)


def _packed_byte(e: Emitter, a: Value, position: Value, old: Value) -> Value:
    """A float, to nearest even and saturated, into one byte of the third source. The rounding is a guess."""
    b = e.b
    byte = b.to("zext", to_integer(e, b.intrinsic("roundeven", a), I8, False), I32)
    count = b.shl(b.and_(position, like(position, 3)), like(position, 3))
    keep = b.not_(b.shl(like(old, 0xFF), count))
    return b.or_(b.and_(old, keep), b.shl(byte, count))


define("v_cvt_pk_u8_f32", "b32 = f32 b32 b32", _packed_byte)

"""8-bit floats of RDNA4: fp8 is E4M3 (bias 7, no infinity, S.1111.111 the NaN), bf8 is E5M2 (bias 15).

Source: RDNA4 ISA manual, "Data Types" and VOP1, VOP3, VOP3P. Conversions round to nearest even and keep
8-bit denormals in every MODE (inferred); beyond the largest number they give NaN (fp8) or infinity (bf8),
with FP16_OVFL the largest number, of infinities too (guess). Stochastic rounding adds the upper bits of the
seed below the last bit that is kept (guess: the manual does not say which bits). v_dot4 adds products in the
order of the bytes, rounding after each (guess).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import F32, F64, I16, I32, V32, Value, const
from emulator.amdgpu.isa.operands import Instruction
from emulator.amdgpu.isa.vector.arithmetic import fma, nan
from emulator.amdgpu.isa.vector.frame import bits, define, finished, incoming, like, real


@dataclass(frozen=True, slots=True)
class Format:
    """An 8-bit float.

    Attributes:
        fraction: bits of it.
        bias: of the exponent.
        largest: code of the largest number; one more is what lies beyond it.
        nan: code of the NaN that conversions give.
    """

    fraction: int
    bias: int
    largest: int
    nan: int


FORMATS = {"fp8": Format(3, 7, 0x7E, 0x7F), "bf8": Format(2, 15, 0x7B, 0x7E)}


def widened(e: Emitter, code: Value, kind: str) -> Value:
    """Bytes (V32, other bits ignored) as f32; exact."""
    b, form = e.b, FORMATS[kind]
    magnitude = b.and_(code, like(code, 0x7F))
    spread = real(e, b.shl(magnitude, like(code, 23 - form.fraction)), F32)
    number = bits(e, b.fmul(spread, like(spread, 2.0 ** (127 - form.bias))))
    if kind == "fp8":
        number = b.select(b.icmp("eq", magnitude, like(code, form.nan)), like(code, 0x7FC00000), number)
    else:
        special = b.or_(b.shl(magnitude, like(code, 21)), like(code, 0x7F800000))
        number = b.select(b.icmp("ugt", magnitude, like(code, form.largest)), special, number)
    return real(e, b.or_(number, b.shl(b.and_(code, like(code, 0x80)), like(code, 24))), F32)


def narrowed(e: Emitter, value: Value, kind: str, seed: Value | None = None) -> Value:
    """f32s as bytes (V32): to nearest even, or at random by a seed (V32)."""
    b, form = e.b, FORMATS[kind]
    dropped = 23 - form.fraction
    whole = bits(e, value)
    sign = b.and_(b.lshr(whole, like(whole, 24)), like(whole, 0x80))
    size = b.and_(whole, like(whole, 0x7FFFFFFF))
    magnitude = real(e, size, F32)
    if seed is None:
        odd = b.and_(b.lshr(size, like(size, dropped)), like(size, 1))
        more = b.add(odd, like(size, (1 << dropped - 1) - 1))
    else:
        more = b.lshr(seed, like(seed, 32 - dropped))
    unit = 1 - form.bias - form.fraction  # the power of two that denormals count
    normal = b.sub(
        b.lshr(b.add(size, more), like(size, dropped)), like(size, 127 - form.bias << form.fraction)
    )
    count = b.fmul(b.to("fpext", magnitude, F64), const(ir.VF64, 2.0**-unit))
    if seed is None:
        count = b.intrinsic("roundeven", count)
    else:
        part = b.fmul(b.to("uitofp", more, F64), like(count, 2.0**-dropped))
        count = b.intrinsic("floor", b.fadd(count, part))
    below = b.fcmp("olt", magnitude, like(magnitude, 2.0 ** (1 - form.bias)))
    small = b.to("fptoui", b.select(below, count, like(count, 0)), I32)
    code = b.select(below, small, normal)
    beyond = like(size, form.largest + (0 if e.mode.fp16_ovfl else 1))
    code = b.select(b.icmp("sgt", code, like(size, form.largest)), beyond, code)
    code = b.select(nan(e, value), like(size, form.nan), code)
    return b.or_(code, sign)


def byte(e: Emitter, value: Value, number: int) -> Value:
    """One byte of registers (V32), moved down; what is above it stays."""
    return e.b.lshr(value, like(value, 8 * number)) if number else value


def _to_float(kind: str) -> Callable[[Emitter, Instruction], None]:
    """v_cvt_f32_fp8: op_sel's first two bits are the byte, the higher bit first."""

    def emit(e: Emitter, i: Instruction) -> None:
        chosen = i.bits("op_sel", (0, 0, 0, 0))
        if chosen[2] or chosen[3]:
            raise e.refuse("op_sel chooses a byte by its first two bits")
        whole = byte(e, e.v32(i.operands[1]), 2 * chosen[0] + chosen[1])
        e.write(i.operands[0], finished(e, i, widened(e, whole, kind)))

    return emit


def _to_pair(kind: str) -> Callable[[Emitter, Instruction], None]:
    """v_cvt_pk_f32_fp8: both bytes of a half."""

    def emit(e: Emitter, i: Instruction) -> None:
        chosen = i.bits("op_sel", (0, 0, 0, 0))
        if any(chosen[1:]):
            raise e.refuse("op_sel chooses a half by its first bit")
        target, source = i.operands
        first = 2 if chosen[0] or source.half == "h" else 0
        whole = e.v32(source)
        for at in (0, 1):
            value = finished(e, i, widened(e, byte(e, whole, first + at), kind))
            e.set_vgpr(target.index + at, bits(e, value))

    return emit


def _from_pair(kind: str) -> Callable[..., Value]:
    def work(e: Emitter, a: Value, c: Value) -> Value:
        low, high = narrowed(e, a, kind), narrowed(e, c, kind)
        return e.b.to("trunc", e.b.or_(low, e.b.shl(high, like(high, 8))), I16)

    return work


def _at_random(kind: str) -> Callable[[Emitter, Instruction], None]:
    """v_cvt_sr_fp8_f32: op_sel's last two bits are the byte of the destination, the lower bit first."""

    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        target, source, seed = i.operands
        chosen = i.bits("op_sel", (0, 0, 0, 0))
        if chosen[0] or chosen[1]:
            raise e.refuse("op_sel chooses a byte by its last two bits")
        if seed.neg or seed.abs:
            raise e.refuse("neg and abs are not implemented for the seed")
        place = 8 * (chosen[2] + 2 * chosen[3])
        code = narrowed(e, incoming(e, e.f32(source)), kind, e.v32(seed))
        mask = 0xFF << place
        kept = b.and_(e.vgpr(target.index), const(V32, ~mask if mask >> 31 == 0 else 0xFFFFFF))
        e.write(target, b.or_(b.shl(code, like(code, place)), kept))

    return emit


def _dot4(first: str, second: str) -> Callable[[Emitter, Instruction], None]:
    def emit(e: Emitter, i: Instruction) -> None:
        target, left, right, third = i.operands
        signs = [i.bits(name, (0, 0, 0)) for name in ("neg_lo", "neg_hi")]
        if any(signs[0][:2]) or any(signs[1][:2]):
            raise e.refuse("neg of a source of bytes is not implemented for it")
        total = e.f32(third)
        if signs[1][2]:
            total = e.b.intrinsic("fabs", total)
        if signs[0][2]:
            total = e.b.fneg(total)
        total = incoming(e, total)
        a, c = e.v32(left), e.v32(right)
        for number in range(4):
            x, y = widened(e, byte(e, a, number), first), widened(e, byte(e, c, number), second)
            total = fma(e, x, y, total)
        e.write(target, finished(e, i, total))

    return emit


for _kind in FORMATS:
    add([f"v_cvt_f32_{_kind}"], _to_float(_kind), generations=(12,), modifiers="op_sel clamp mul div")
    add([f"v_cvt_pk_f32_{_kind}"], _to_pair(_kind), generations=(12,), modifiers="op_sel clamp mul div")
    define(f"v_cvt_pk_{_kind}_f32", "b16 = f32 f32", _from_pair(_kind), generations=(12,))
    add([f"v_cvt_sr_{_kind}_f32"], _at_random(_kind), generations=(12,), modifiers="op_sel neg")
    for _other in FORMATS:
        add(
            [f"v_dot4_f32_{_kind}_{_other}"],
            _dot4(_kind, _other),
            generations=(12,),
            modifiers="neg_lo neg_hi",
        )

"""Two 16-bit values in a register: v_pk; products of halves summed in f32: v_fma_mix, v_dot2.

op_sel chooses the half of each source that makes the low result, op_sel_hi the one that makes the high
result (by default the high one); neg_lo and neg_hi flip the signs of float sources. v_fma_mix reads a source
as f16 where op_sel_hi says so, else as f32. Source: RDNA3 and RDNA4 ISA manuals, VOP3P. That v_dot2 adds
the low product first and rounds after each sum is a guess.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import F16, F32, I16, V32, Value, const, const_list
from emulator.amdgpu.isa.operands import Instruction, Operand
from emulator.amdgpu.isa.vector import integer
from emulator.amdgpu.isa.vector.arithmetic import convert, fadd, fma, fmul, narrow_bf16
from emulator.amdgpu.isa.vector.floating import number, strict
from emulator.amdgpu.isa.vector.frame import finished, incoming, like, real

PAIRS = ir.vector(I16, 2 * ir.LANES)

Function = Callable[..., Value]


def register(e: Emitter, operand: Operand, kind: str) -> Value:
    """A source of 32 bits (V32) that holds i16, half or bfloat. A float constant is the low half alone, but
    among integers an f32.
    """
    if operand.kind == "float" and kind != I16:
        whole = struct.pack("<e", operand.value) if kind == F16 else struct.pack("<f", operand.value)[2:]
        return const(V32, int.from_bytes(whole, "little"))
    return e.v32(operand)


def halves(e: Emitter, i: Instruction, operand: Operand, position: int, kind: str) -> Value:
    """Both halves of a source for all lanes (64 x i16), as op_sel, op_sel_hi and, of floats, neg_lo, neg_hi
    have them.
    """
    value = e.b.cast("bitcast", register(e, operand, kind), PAIRS)
    low, high = i.bits("op_sel", (0, 0, 0))[position], i.bits("op_sel_hi", (1, 1, 1))[position]
    if (low, high) != (0, 1):
        order = [2 * lane + part for lane in range(ir.LANES) for part in (low, high)]
        value = e.b.shuffle(value, None, order)
    flips = [-0x8000 * i.bits(name, (0, 0, 0))[position] for name in ("neg_lo", "neg_hi")]
    if kind != I16 and any(flips):
        value = e.b.xor(value, const_list(I16, flips * ir.LANES))
    return value


def _integers(name: str, function: Function, clamp: Function | None = None) -> None:
    def emit(e: Emitter, i: Instruction) -> None:
        work = function
        if "clamp" in i.modifiers:
            if clamp is None:
                raise e.refuse("clamp is not implemented")
            work = clamp
        values = [halves(e, i, part, at, I16) for at, part in enumerate(i.operands[1:])]
        e.write(i.operands[0], e.b.cast("bitcast", work(e, *values), V32))

    add([name], emit, modifiers="op_sel op_sel_hi clamp")


for name, function, clamp in (
    ("mul_lo_u16", integer.plain("mul"), None),
    ("add_i16", integer.plain("add"), integer.called("sadd.sat")),
    ("sub_i16", integer.plain("sub"), integer.called("ssub.sat")),
    ("add_u16", integer.plain("add"), integer.called("uadd.sat")),
    ("sub_u16", integer.plain("sub"), integer.called("usub.sat")),
    ("lshlrev_b16", integer.shift("shl"), None),
    ("lshrrev_b16", integer.shift("lshr"), None),
    ("ashrrev_i16", integer.shift("ashr"), None),
    ("max_i16", integer.called("smax"), None),
    ("min_i16", integer.called("smin"), None),
    ("max_u16", integer.called("umax"), None),
    ("min_u16", integer.called("umin"), None),
    ("mad_i16", integer.mad16, integer.mad16_saturated(True)),
    ("mad_u16", integer.mad16, integer.mad16_saturated(False)),
):
    _integers(f"v_pk_{name}", function, clamp)


def _floats(
    name: str, function: Function, *, generations: tuple[int, ...] = (11, 12), accumulate: bool = False
) -> None:
    def emit(e: Emitter, i: Instruction) -> None:
        operands = [*i.operands[1:], *i.operands[:1]] if accumulate else i.operands[1:]
        whole = (halves(e, i, part, at, F16) for at, part in enumerate(operands))
        values = [incoming(e, real(e, value, F16)) for value in whole]
        e.write(i.operands[0], e.b.cast("bitcast", finished(e, i, function(e, *values)), V32))

    add([name], emit, generations=generations, modifiers="op_sel op_sel_hi neg_lo neg_hi clamp")


_floats("v_pk_add_f16", fadd)
_floats("v_pk_mul_f16", fmul)
_floats("v_pk_fma_f16", fma)
_floats("v_pk_fmac_f16", fma, accumulate=True)
for word, greater in (("min", False), ("max", True)):
    _floats(f"v_pk_{word}_f16", number(greater), generations=(11,))
    _floats(f"v_pk_{word}_num_f16", number(greater), generations=(12,))
    _floats(f"v_pk_{word}imum_f16", strict(greater), generations=(12,))

# Mixed f16 and f32


def _mixed(e: Emitter, i: Instruction, operand: Operand, position: int) -> Value:
    """A source of v_fma_mix as f32."""
    if not i.bits("op_sel_hi", (0, 0, 0))[position]:
        return incoming(e, e.f32(operand))
    high = bool(i.bits("op_sel", (0, 0, 0))[position])
    return e.b.to("fpext", incoming(e, e.f16(operand, high=high)), F32)


def _mix(e: Emitter, i: Instruction) -> Value:
    return fma(e, *(_mixed(e, i, part, at) for at, part in enumerate(i.operands[1:])))


def _mix_whole(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], finished(e, i, _mix(e, i)))


def _mix_half(high: bool) -> Callable[[Emitter, Instruction], None]:
    def emit(e: Emitter, i: Instruction) -> None:
        result = finished(e, i, convert(e, _mix(e, i), F16))
        e.write16(i.operands[0], result, high=high)

    return emit


MIX = "op_sel op_sel_hi neg clamp"
add(["v_fma_mix_f32"], _mix_whole, modifiers=MIX)
add(["v_fma_mixlo_f16"], _mix_half(False), modifiers=MIX)
add(["v_fma_mixhi_f16"], _mix_half(True), modifiers=MIX)

# Dot products of two

DOT = "op_sel op_sel_hi neg_lo neg_hi clamp"


def widened(e: Emitter, pairs: Value, kind: str) -> tuple[Value, Value]:
    """The low and the high halves of registers (V32) as f32: f16s or bf16s."""
    b = e.b
    if kind == ir.BF16:
        low, high = b.shl(pairs, like(pairs, 16)), b.and_(pairs, like(pairs, -0x10000))
        return real(e, low, F32), real(e, high, F32)
    low, high = b.to("trunc", pairs, I16), b.to("trunc", b.lshr(pairs, like(pairs, 16)), I16)
    low, high = (b.to("fpext", incoming(e, real(e, part, F16)), F32) for part in (low, high))
    return low, high


def _factors(e: Emitter, i: Instruction, kind: str) -> list[tuple[Value, Value]]:
    """Both halves of the first two sources, as f32."""
    first = i.operands[1:3]
    whole = (e.b.cast("bitcast", halves(e, i, part, at, kind), V32) for at, part in enumerate(first))
    return [widened(e, value, kind) for value in whole]


def _dot2(kind: str) -> Callable[[Emitter, Instruction], None]:
    """The sum in f32, of which v_dot2acc's is the old value of its destination."""

    def emit(e: Emitter, i: Instruction) -> None:
        if i.bits("op_sel", (0, 0, 0))[2] or not i.bits("op_sel_hi", (1, 1, 1))[2]:
            raise e.refuse("op_sel of source 2, which has no halves")
        a, c = _factors(e, i, kind)
        operand = i.operands[3] if len(i.operands) > 3 else i.operands[0]
        total = e.f32(operand)
        if i.bits("neg_hi", (0, 0, 0))[2]:
            total = e.b.intrinsic("fabs", total)
        if i.bits("neg_lo", (0, 0, 0))[2]:
            total = e.b.fneg(total)
        total = incoming(e, total)
        for x, y in zip(a, c, strict=True):
            total = fma(e, x, y, total)
        e.write(i.operands[0], finished(e, i, total))

    return emit


def _dot2_half(kind: str) -> Callable[[Emitter, Instruction], None]:
    """A 16-bit sum, made in f32 and rounded at the end (guess). op_sel chooses halves of the last source and
    of the destination.
    """

    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        chosen = i.bits("op_sel", (0, 0, 0, 0))
        if chosen[0] or chosen[1]:
            raise e.refuse("op_sel of a source of which both halves are used")
        operands = i.operands[1:3]
        a, c = (
            tuple(e.modified(part, half) for half in widened(e, register(e, part, kind), kind))
            for part in operands
        )
        third = i.operands[3]
        low, high = widened(e, register(e, third, kind), kind)
        total = e.modified(third, high if chosen[2] or third.half == "h" else low)
        for x, y in zip(a, c, strict=True):
            total = b.intrinsic("fma", x, y, total)
        result = finished(e, i, convert(e, total, F16)) if kind == F16 else narrow_bf16(e, total)
        e.write16(i.operands[0], result, high=bool(chosen[-1]))

    return emit


add(["v_dot2_f32_f16", "v_dot2acc_f32_f16"], _dot2(F16), modifiers=DOT)
add(["v_dot2_f32_bf16", "v_dot2acc_f32_bf16"], _dot2(ir.BF16), modifiers=DOT)
add(["v_dot2_f16_f16"], _dot2_half(F16), modifiers="op_sel neg clamp")
add(["v_dot2_bf16_bf16"], _dot2_half(ir.BF16), modifiers="op_sel neg")

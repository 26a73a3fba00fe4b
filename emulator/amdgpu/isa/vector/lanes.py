"""What moves values between lanes, or between lanes and scalars: readlane, permlane, mbcnt, movrel, swap.

Source: RDNA3 and RDNA4 ISA manuals. Waves have 32 lanes, in two rows of 16.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.isa.emit import Emitter, add, instruction
from emulator.amdgpu.isa.ir import I32, I64, LANES, V32, V64, Value, const, const_list
from emulator.amdgpu.isa.operands import EXEC, M0, Instruction, Operand
from emulator.amdgpu.isa.vector.frame import define, like

ROW = 16


def _value(e: Emitter, operand: Operand, lane: Value) -> Value:
    """One lane of a VGPR; a scalar as it is."""
    if operand.kind != "v":
        return e.s32(operand)
    return e.b.extract(e.vgpr(operand.index), lane)


@instruction("v_readfirstlane_b32")
def _(e: Emitter, i: Instruction) -> None:
    """Of the first active lane; of lane 0 if there is none."""
    target, source = i.operands
    if e.full:
        lane = const(I32, 0)
    else:
        first = e.b.call("llvm.cttz.i32", I32, e.sgpr(EXEC), const("i1", 0))
        lane = e.b.and_(first, const(I32, LANES - 1))
    e.write_s(target, _value(e, source, lane))


@instruction("v_readlane_b32")
def _(e: Emitter, i: Instruction) -> None:
    target, source, number = i.operands
    e.write_s(target, _value(e, source, e.b.and_(e.s32(number), const(I32, LANES - 1))))


@instruction("v_writelane_b32")
def _(e: Emitter, i: Instruction) -> None:
    target, source, number = i.operands
    lane = e.b.and_(e.s32(number), const(I32, LANES - 1))
    e.set_vgpr_all(target.index, e.b.insert(e.vgpr(target.index), e.s32(source), lane))


def _below(e: Emitter, mask: Value, base: Value) -> Value:
    """Bits of the mask for the lanes before this one, counted."""
    before = const_list(I32, [(1 << lane) - 1 for lane in range(LANES)])
    return e.b.add(e.b.intrinsic("ctpop", e.b.and_(mask, before)), base)


define("v_mbcnt_lo_u32_b32", "b32 = b32 b32", _below)
define("v_mbcnt_hi_u32_b32", "b32 = b32 b32", lambda e, mask, base: base)


@instruction("v_permlane64_b32")
def _(e: Emitter, i: Instruction) -> None:
    """It swaps the halves of a wave64; in wave32 it writes nothing."""


@instruction("v_swap_b32")
def _(e: Emitter, i: Instruction) -> None:
    first, second = i.operands
    a, c = e.v32(first), e.v32(second)
    e.write(first, c)
    e.write(second, a)


# Permutations within a row, by selectors that are known at run time


def across(e: Emitter, value: Value, selector: Value, other: bool) -> Value:
    """The lane of the row, or of the other one, that the selector (V32, 0 to 15) names."""
    b = e.b
    if other:
        value = b.shuffle(value, None, [lane ^ ROW for lane in range(LANES)])
    result = value
    for number in range(ROW):
        chosen = b.shuffle(value, None, [lane // ROW * ROW + number for lane in range(LANES)])
        result = b.select(b.icmp("eq", selector, like(selector, number)), chosen, result)
    return result


def _permuted(other: bool, each: bool) -> Callable[[Emitter, Instruction], None]:
    """v_permlane16, v_permlanex16; `each`: RDNA4's _var, every lane has its own selector.

    op_sel's first bit fetches inactive lanes too; its second gives 0 for them, instead of no write.
    """

    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        target, source, *selectors = i.operands
        if each:
            selector = b.and_(e.v32(selectors[0]), const(V32, ROW - 1))
        else:
            low, high = (b.cast("zext", e.s32(part), I64) for part in selectors)
            whole = b.splat(b.or_(b.shl(high, const(I64, 32)), low))
            counts = const_list(I64, [lane % ROW * 4 for lane in range(LANES)])
            selector = b.to("trunc", b.and_(b.lshr(whole, counts), const(V64, ROW - 1)), I32)
        result = across(e, e.v32(source), selector, other)
        fetch_inactive, zero, *others = i.bits("op_sel", (0, 0))
        if any(others):
            raise e.refuse("op_sel of more than two is not implemented for it")
        if not fetch_inactive and not e.full:
            active = b.to("sext", e.exec, I32)
            valid = b.icmp("ne", across(e, active, selector, other), const(V32, 0))
            if zero:
                result = b.select(valid, result, const(V32, 0))
            else:
                e.restrict(valid)
        e.write(target, result)

    return emit


add(["v_permlane16_b32"], _permuted(False, False), modifiers="op_sel")
add(["v_permlanex16_b32"], _permuted(True, False), modifiers="op_sel")
add(["v_permlane16_var_b32"], _permuted(False, True), generations=(12,), modifiers="op_sel")
add(["v_permlanex16_var_b32"], _permuted(True, True), generations=(12,), modifiers="op_sel")

# Registers by number: M0 counts from the one that is named

ARRAY = 32
"""Registers of the largest array that compilers index so."""


def _reachable(operand: Operand) -> range:
    return range(operand.index, min(operand.index + ARRAY, 256))


def _indexed(e: Emitter, operand: Operand) -> Value:
    """The register that is M0 after a named one."""
    registers = _reachable(operand)
    result = e.vgpr(registers[0])
    for number in registers[1:]:
        here = e.b.icmp("eq", e.sgpr(M0), const(I32, number - operand.index))
        result = e.b.select(here, e.vgpr(number), result)
    return result


def _write_indexed(e: Emitter, operand: Operand, value: Value) -> None:
    for number in _reachable(operand):
        here = e.b.splat(e.b.icmp("eq", e.sgpr(M0), const(I32, number - operand.index)))
        e.set_vgpr(number, value, e.b.and_(here, e.active))


@instruction("v_movrels_b32")
def _(e: Emitter, i: Instruction) -> None:
    target, source = i.operands
    e.write(target, _indexed(e, source))


@instruction("v_movreld_b32")
def _(e: Emitter, i: Instruction) -> None:
    target, source = i.operands
    _write_indexed(e, target, e.v32(source))


@instruction("v_movrelsd_b32")
def _(e: Emitter, i: Instruction) -> None:
    target, source = i.operands
    _write_indexed(e, target, _indexed(e, source))

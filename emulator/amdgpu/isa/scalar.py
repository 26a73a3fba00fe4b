"""Scalar ALU: SOP1, SOP2, SOPC, SOPK. Source: RDNA3 and RDNA4 ISA manuals, "Scalar ALU Operations"."""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, Semantics, add, instruction
from emulator.amdgpu.isa.ir import I1, I8, I16, I32, I64, Value, const
from emulator.amdgpu.isa.operands import EXEC, Instruction, Operand

WIDTH = {"b32": 32, "i32": 32, "u32": 32, "b64": 64, "i64": 64, "u64": 64}


def source(e: Emitter, operand: Operand, bits: int, literal: str = "zext") -> Value:
    """A scalar source of 32 or 64 bits; literals are zero-extended, but for signed types, as clang has it."""
    return e.s64(operand, literal) if bits == 64 else e.s32(operand)


def nonzero(e: Emitter, value: Value) -> Value:
    return e.b.icmp("ne", value, const(value.type, 0))


def _count(e: Emitter, value: Value, bits: int) -> Value:
    """A shift count: as many low bits as the width needs, in the width's type."""
    kind = I64 if bits == 64 else I32
    return e.b.cast("zext", e.b.and_(value, const(I32, bits - 1)), kind)


# Arithmetic


def _carrying(operation: str, *, with_carry: bool) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        first, second = (e.b.cast("zext", e.s32(operand), I64) for operand in (left, right))
        result = e.b.binary(operation, first, second)
        if with_carry:
            result = e.b.binary(operation, result, e.b.cast("zext", e.scc, I64))
        e.scc = e.b.cast("trunc", e.b.lshr(result, const(I64, 32)), I1)  # borrow shows as all ones
        e.write_s(dst, e.b.cast("trunc", result, I32))

    return emit


add(("s_add_u32", "s_add_co_u32"), _carrying("add", with_carry=False), kind="salu")
add(("s_sub_u32", "s_sub_co_u32"), _carrying("sub", with_carry=False), kind="salu")
add(("s_addc_u32", "s_add_co_ci_u32"), _carrying("add", with_carry=True), kind="salu")
add(("s_subb_u32", "s_sub_co_ci_u32"), _carrying("sub", with_carry=True), kind="salu")


def _overflowing(e: Emitter, operation: str, left: Value, right: Value) -> Value:
    """A signed sum, difference or product; SCC is its overflow."""
    wide = e.b.binary(operation, e.b.cast("sext", left, I64), e.b.cast("sext", right, I64))
    result = e.b.cast("trunc", wide, I32)
    e.scc = e.b.icmp("ne", e.b.cast("sext", result, I64), wide)
    return result


@instruction("s_add_i32", "s_add_co_i32", kind="salu")
def _s_add_i32(e: Emitter, i: Instruction) -> None:
    dst, left, right = i.operands
    e.write_s(dst, _overflowing(e, "add", e.s32(left), e.s32(right)))


@instruction("s_sub_i32", "s_sub_co_i32", kind="salu")
def _s_sub_i32(e: Emitter, i: Instruction) -> None:
    dst, left, right = i.operands
    e.write_s(dst, _overflowing(e, "sub", e.s32(left), e.s32(right)))


@instruction("s_addk_i32", "s_addk_co_i32", kind="salu")
def _s_addk_i32(e: Emitter, i: Instruction) -> None:
    e.write_s(i.operands[0], _overflowing(e, "add", e.s32(i.operands[0]), const(I32, i.simm16)))


@instruction("s_mulk_i32", kind="salu")
def _s_mulk_i32(e: Emitter, i: Instruction) -> None:
    e.write_s(i.operands[0], e.b.mul(e.s32(i.operands[0]), const(I32, i.simm16)))


@instruction("s_mul_i32", kind="salu")
def _s_mul_i32(e: Emitter, i: Instruction) -> None:
    dst, left, right = i.operands
    e.write_s(dst, e.b.mul(e.s32(left), e.s32(right)))


def _wide(operation: str) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        e.write_s(dst, e.b.binary(operation, e.s64(left), e.s64(right)))

    return emit


add(("s_add_nc_u64",), _wide("add"), kind="salu", generations=(12,))
add(("s_sub_nc_u64",), _wide("sub"), kind="salu", generations=(12,))
add(("s_mul_u64",), _wide("mul"), kind="salu", generations=(12,))


def _high_product(extend: str) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        product = e.b.mul(*(e.b.cast(extend, e.s32(operand), I64) for operand in (left, right)))
        e.write_s(dst, e.b.cast("trunc", e.b.lshr(product, const(I64, 32)), I32))

    return emit


add(("s_mul_hi_u32",), _high_product("zext"), kind="salu")
add(("s_mul_hi_i32",), _high_product("sext"), kind="salu")


def _shifted_sum(shift: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        shifted = e.b.shl(e.b.cast("zext", e.s32(left), I64), const(I64, shift))
        total = e.b.add(shifted, e.b.cast("zext", e.s32(right), I64))
        e.scc = e.b.icmp("ugt", total, const(I64, 0xFFFF_FFFF))
        e.write_s(dst, e.b.cast("trunc", total, I32))

    return emit


for _shift in (1, 2, 3, 4):
    add((f"s_lshl{_shift}_add_u32",), _shifted_sum(_shift), kind="salu")


def _extreme(predicate: str) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        first, second = e.s32(left), e.s32(right)
        e.scc = e.b.icmp(predicate, first, second)  # that the first operand is the result
        e.write_s(dst, e.b.select(e.scc, first, second))

    return emit


for _name, _predicate in (("min_i32", "slt"), ("min_u32", "ult"), ("max_i32", "sge"), ("max_u32", "uge")):
    add((f"s_{_name}",), _extreme(_predicate), kind="salu")


@instruction("s_absdiff_i32", kind="salu")
def _s_absdiff_i32(e: Emitter, i: Instruction) -> None:
    dst, left, right = i.operands
    result = e.b.sub(e.s32(left), e.s32(right))
    result = e.b.select(e.b.icmp("slt", result, const(I32, 0)), e.b.sub(const(I32, 0), result), result)
    e.scc = nonzero(e, result)
    e.write_s(dst, result)


@instruction("s_abs_i32", kind="salu")
def _s_abs_i32(e: Emitter, i: Instruction) -> None:
    dst, operand = i.operands
    value = e.s32(operand)
    result = e.b.select(e.b.icmp("slt", value, const(I32, 0)), e.b.sub(const(I32, 0), value), value)
    e.scc = nonzero(e, result)
    e.write_s(dst, result)


# Bits

Combine = Callable[[Emitter, Value, Value], Value]

LOGIC: dict[str, Combine] = {
    "and": lambda e, a, b: e.b.and_(a, b),
    "or": lambda e, a, b: e.b.or_(a, b),
    "xor": lambda e, a, b: e.b.xor(a, b),
    "nand": lambda e, a, b: e.b.not_(e.b.and_(a, b)),
    "nor": lambda e, a, b: e.b.not_(e.b.or_(a, b)),
    "xnor": lambda e, a, b: e.b.not_(e.b.xor(a, b)),
    "and_not1": lambda e, a, b: e.b.and_(a, e.b.not_(b)),
    "or_not1": lambda e, a, b: e.b.or_(a, e.b.not_(b)),
    "and_not0": lambda e, a, b: e.b.and_(e.b.not_(a), b),
    "or_not0": lambda e, a, b: e.b.or_(e.b.not_(a), b),
}
"""What two values are combined to; `not1` negates the second, `not0` the first (EXEC is the second)."""


def _logic(combine: Combine, bits: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        result = combine(e, source(e, left, bits), source(e, right, bits))
        e.scc = nonzero(e, result)
        e.write_s(dst, result)

    return emit


def _save_exec(combine: Combine, bits: int, *, result_is_new: bool) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, operand = i.operands
        whole = Operand("s", EXEC, 2)
        old = source(e, whole, bits)
        new = combine(e, source(e, operand, bits), old)
        e.write_s(dst, new if result_is_new else old)
        e.write_s(whole, new)
        e.scc = nonzero(e, new)

    return emit


for _name, _combine in LOGIC.items():
    for _bits in (32, 64):
        if not _name.endswith("not0"):
            add((f"s_{_name}_b{_bits}",), _logic(_combine, _bits), kind="salu")
        else:
            _new = _save_exec(_combine, _bits, result_is_new=True)
            if _name == "and_not0":
                add((f"s_{_name}_wrexec_b{_bits}",), _new, kind="salu")
        if _name == "and_not1":
            _new = _save_exec(_combine, _bits, result_is_new=True)
            add((f"s_{_name}_wrexec_b{_bits}",), _new, kind="salu")
        add((f"s_{_name}_saveexec_b{_bits}",), _save_exec(_combine, _bits, result_is_new=False), kind="salu")


def _shift_operation(operation: str, bits: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        literal = "sext" if operation == "ashr" else "zext"
        result = e.b.binary(operation, source(e, left, bits, literal), _count(e, e.s32(right), bits))
        e.scc = nonzero(e, result)
        e.write_s(dst, result)

    return emit


for _name, _operation in (("lshl_b", "shl"), ("lshr_b", "lshr"), ("ashr_i", "ashr")):
    for _bits in (32, 64):
        add((f"s_{_name}{_bits}",), _shift_operation(_operation, _bits), kind="salu")


def _field(bits: int, *, signed: bool) -> Semantics:
    """Offset in the low bits of the second source, width in bits 22:16; a field beyond the top is cut off."""

    def emit(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        kind = I64 if bits == 64 else I32
        value, control = source(e, left, bits, "sext" if signed else "zext"), e.s32(right)
        offset = _count(e, control, bits)
        width = e.b.and_(e.b.lshr(control, const(I32, 16)), const(I32, 0x7F))
        width = e.b.cast("zext", width, kind)
        shifted = e.b.lshr(value, offset)
        if signed:  # to the top, and back down
            room = e.b.sub(const(kind, bits), offset)
            width = e.b.intrinsic("umin", width, room)
            shifted = e.b.binary("ashr", value, offset)
        whole = e.b.icmp("uge", width, const(kind, bits))
        safe = e.b.select(whole, const(kind, 0), width)
        mask = e.b.sub(e.b.shl(const(kind, 1), safe), const(kind, 1))
        mask = e.b.select(whole, const(kind, -1), mask)
        result = e.b.and_(shifted, mask)
        if signed:
            top = e.b.select(
                e.b.icmp("eq", width, const(kind, 0)),
                const(kind, 0),
                e.b.and_(e.b.sub(const(kind, bits), width), const(kind, bits - 1)),
            )
            result = e.b.ashr(e.b.shl(result, top), top)
        e.scc = nonzero(e, result)
        e.write_s(dst, result)

    return emit


for _bits in (32, 64):
    add((f"s_bfe_u{_bits}",), _field(_bits, signed=False), kind="salu")
    add((f"s_bfe_i{_bits}",), _field(_bits, signed=True), kind="salu")


def _field_mask(bits: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, width, offset = i.operands
        kind = I64 if bits == 64 else I32
        ones = e.b.sub(e.b.shl(const(kind, 1), _count(e, e.s32(width), bits)), const(kind, 1))
        e.write_s(dst, e.b.shl(ones, _count(e, e.s32(offset), bits)))

    return emit


for _bits in (32, 64):
    add((f"s_bfm_b{_bits}",), _field_mask(_bits), kind="salu")


def _pack(left_high: bool, right_high: bool) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        low, high = e.s32(left), e.s32(right)
        low = e.b.lshr(low, const(I32, 16)) if left_high else e.b.and_(low, const(I32, 0xFFFF))
        high = e.b.and_(high, const(I32, -0x10000)) if right_high else e.b.shl(high, const(I32, 16))
        e.write_s(dst, e.b.or_(low, high))

    return emit


for _name, _halves in {
    "ll": (False, False),
    "lh": (False, True),
    "hh": (True, True),
    "hl": (True, False),
}.items():
    add((f"s_pack_{_name}_b32_b16",), _pack(*_halves), kind="salu")


def _unary(bits: int, operation: Callable[[Emitter, Value], Value], *, scc: bool) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, operand = i.operands
        result = operation(e, source(e, operand, bits))
        if scc:
            e.scc = nonzero(e, result)
        e.write_s(dst, result)

    return emit


def _zeros(name: str) -> Callable[[Emitter, Value], Value]:
    """Number of zeros at one end; -1 if there is nothing else."""

    def operation(e: Emitter, value: Value) -> Value:
        none = e.b.icmp("eq", value, const(value.type, 0))
        suffix = value.type
        count = e.b.call(f"llvm.{name}.{suffix}", value.type, value, const(I1, 0))
        return e.b.select(none, const(I32, -1), e.b.cast("trunc", count, I32))

    return operation


def _sign_bits(e: Emitter, value: Value) -> Value:
    """How many bits below the top one repeat it, and that one; -1 if all do."""
    bits = ir.BITS[value.type]
    folded = e.b.xor(value, e.b.ashr(value, const(value.type, bits - 1)))
    none = e.b.icmp("eq", folded, const(value.type, 0))
    count = e.b.call(f"llvm.ctlz.{value.type}", value.type, folded, const(I1, 0))
    return e.b.select(none, const(I32, -1), e.b.cast("trunc", count, I32))


def _population(of: int) -> Callable[[Emitter, Value], Value]:
    def operation(e: Emitter, value: Value) -> Value:
        counted = value if of else e.b.not_(value)
        return e.b.cast("trunc", e.b.intrinsic("ctpop", counted), I32)

    return operation


def _groups(e: Emitter, value: Value) -> Value:
    """Bit 4n of every group of four: whether any of its bits is set."""
    pairs = e.b.or_(value, e.b.lshr(value, const(value.type, 1)))
    fours = e.b.or_(pairs, e.b.lshr(pairs, const(value.type, 2)))
    ones = 0x1111_1111_1111_1111 & ((1 << ir.BITS[value.type]) - 1)
    return e.b.and_(fours, const(value.type, ones))


def _quads(e: Emitter, value: Value) -> Value:
    """A bit for each group of four: bits 4n gathered to bits n."""
    wide = e.b.cast("zext", _groups(e, value), I64)
    for shift, mask in (
        (3, 0x0303_0303_0303_0303),
        (6, 0x000F_000F_000F_000F),
        (12, 0x0000_00FF_0000_00FF),
        (24, 0xFFFF),
    ):
        wide = e.b.and_(e.b.or_(wide, e.b.lshr(wide, const(I64, shift))), const(I64, mask))
    return e.b.cast("trunc", wide, value.type)


def _whole_quads(e: Emitter, value: Value) -> Value:
    return e.b.mul(_groups(e, value), const(value.type, 15))


for _bits in (32, 64):
    for _name, _unary_operation, _scc in (
        (f"s_mov_b{_bits}", lambda e, value: value, False),
        (f"s_not_b{_bits}", lambda e, value: e.b.not_(value), True),
        (f"s_brev_b{_bits}", lambda e, value: e.b.intrinsic("bitreverse", value), False),
        (f"s_ctz_i32_b{_bits}", _zeros("cttz"), False),
        (f"s_clz_i32_u{_bits}", _zeros("ctlz"), False),
        ("s_cls_i32" if _bits == 32 else "s_cls_i32_i64", _sign_bits, False),
        (f"s_bcnt0_i32_b{_bits}", _population(0), True),
        (f"s_bcnt1_i32_b{_bits}", _population(1), True),
        (f"s_wqm_b{_bits}", _whole_quads, True),
        (f"s_quadmask_b{_bits}", _quads, True),
    ):
        add((_name,), _unary(_bits, _unary_operation, scc=_scc), kind="salu")


def _extended(kind: str) -> Callable[[Emitter, Value], Value]:
    return lambda e, value: e.b.cast("sext", e.b.cast("trunc", value, kind), I32)


add(("s_sext_i32_i8",), _unary(32, _extended(I8), scc=False), kind="salu")
add(("s_sext_i32_i16",), _unary(32, _extended(I16), scc=False), kind="salu")


@instruction("s_bitreplicate_b64_b32", kind="salu")
def _s_bitreplicate_b64_b32(e: Emitter, i: Instruction) -> None:
    dst, operand = i.operands
    value = e.b.cast("zext", e.s32(operand), I64)
    for shift, mask in (
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ):
        value = e.b.and_(e.b.or_(value, e.b.shl(value, const(I64, shift))), const(I64, mask))
    e.write_s(dst, e.b.or_(value, e.b.shl(value, const(I64, 1))))


def _set_bit(bits: int, value: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, operand = i.operands
        kind = I64 if bits == 64 else I32
        bit = e.b.shl(const(kind, 1), _count(e, e.s32(operand), bits))
        old = source(e, dst, bits)
        e.write_s(dst, e.b.or_(old, bit) if value else e.b.and_(old, e.b.not_(bit)))

    return emit


def _test_bit(bits: int, value: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        left, right = i.operands
        found = e.b.lshr(source(e, left, bits), _count(e, e.s32(right), bits))
        e.scc = e.b.icmp("eq", e.b.cast("trunc", found, I1), const(I1, value))

    return emit


for _bits in (32, 64):
    for _value in (0, 1):
        add((f"s_bitset{_value}_b{_bits}",), _set_bit(_bits, _value), kind="salu")
        add((f"s_bitcmp{_value}_b{_bits}",), _test_bit(_bits, _value), kind="salu")


# Moves and comparisons


def _conditional(bits: int) -> Semantics:
    def select(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        e.write_s(dst, e.b.select(e.scc, source(e, left, bits), source(e, right, bits)))

    return select


def _conditional_move(bits: int) -> Semantics:
    def move(e: Emitter, i: Instruction) -> None:
        dst, operand = i.operands
        e.write_s(dst, e.b.select(e.scc, source(e, operand, bits), source(e, dst, bits)))

    return move


for _bits in (32, 64):
    add((f"s_cselect_b{_bits}",), _conditional(_bits), kind="salu")
    add((f"s_cmov_b{_bits}",), _conditional_move(_bits), kind="salu")


@instruction("s_movk_i32", kind="salu")
def _s_movk_i32(e: Emitter, i: Instruction) -> None:
    e.write_s(i.operands[0], const(I32, i.simm16))


@instruction("s_cmovk_i32", kind="salu")
def _s_cmovk_i32(e: Emitter, i: Instruction) -> None:
    dst = i.operands[0]
    e.write_s(dst, e.b.select(e.scc, const(I32, i.simm16), e.s32(dst)))


CONDITIONS = {"eq": "eq", "lg": "ne", "gt": "gt", "ge": "ge", "lt": "lt", "le": "le"}


def _compare(predicate: str, bits: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        left, right = i.operands
        e.scc = e.b.icmp(predicate, source(e, left, bits), source(e, right, bits))

    return emit


def _compare_immediate(predicate: str, *, signed: bool) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        immediate = i.simm16 if signed else i.simm16 & 0xFFFF
        e.scc = e.b.icmp(predicate, e.s32(i.operands[0]), const(I32, immediate))

    return emit


for _condition, _base in CONDITIONS.items():
    for _sign in "iu":
        _predicate = _base if _base in ("eq", "ne") else ("s" if _sign == "i" else "u") + _base
        add((f"s_cmp_{_condition}_{_sign}32",), _compare(_predicate, 32), kind="salu")
        _immediate = _compare_immediate(_predicate, signed=_sign == "i")
        add((f"s_cmpk_{_condition}_{_sign}32",), _immediate, kind="salu", generations=(11,))
add(("s_cmp_eq_u64",), _compare("eq", 64), kind="salu")
add(("s_cmp_lg_u64",), _compare("ne", 64), kind="salu")

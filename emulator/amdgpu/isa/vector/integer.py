"""Integer instructions of a lane: logic, shifts, sums, products, extremes, bit fields, bytes.

Source: RDNA3 and RDNA4 ISA manuals, VOP1, VOP2 and VOP3. Shift counts count modulo the width.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import I8, I16, I32, I64, Value, const, split
from emulator.amdgpu.isa.operands import Instruction
from emulator.amdgpu.isa.vector.dot import dot4
from emulator.amdgpu.isa.vector.frame import define, element, like, read

BYTES = ir.vector(I8, 4 * ir.LANES)


def plain(operation: str) -> Callable[..., Value]:
    """An LLVM operation of two."""
    return lambda e, a, c: e.b.binary(operation, a, c)


def called(name: str) -> Callable[..., Value]:
    """An LLVM intrinsic of the sources."""
    return lambda e, *values: e.b.intrinsic(name, *values)


def shift(operation: str) -> Callable[..., Value]:
    """A "rev" shift: the count comes first."""

    def work(e: Emitter, count: Value, value: Value) -> Value:
        return shifted(e, operation, value, count)

    return work


def shifted(e: Emitter, operation: str, value: Value, count: Value) -> Value:
    """A shift by a count modulo the width."""
    width = ir.BITS[element(value)]
    if element(count) != element(value):
        count = e.b.to("zext", count, element(value))
    return e.b.binary(operation, value, e.b.and_(count, like(count, width - 1)))


def low(e: Emitter, value: Value, width: int, signed: bool) -> Value:
    """The low bits of 32, extended."""
    if not signed:
        return e.b.and_(value, like(value, (1 << width) - 1))
    return e.b.ashr(e.b.shl(value, like(value, 32 - width)), like(value, 32 - width))


def product(e: Emitter, a: Value, c: Value, signed: bool) -> Value:
    """The 64-bit product of 32-bit factors."""
    extend = "sext" if signed else "zext"
    return e.b.mul(e.b.to(extend, a, I64), e.b.to(extend, c, I64))


def upper(e: Emitter, whole: Value) -> Value:
    """The high half of 64 bits."""
    return e.b.to("trunc", e.b.lshr(whole, like(whole, 32)), I32)


def fitted(e: Emitter, wide: Value, kind: str, signed: bool) -> Value:
    """Saturated to fewer bits; `wide` is signed if the result is."""
    width = ir.BITS[kind]
    if signed:
        wide = e.b.intrinsic("smin", wide, like(wide, (1 << (width - 1)) - 1))
        wide = e.b.intrinsic("smax", wide, like(wide, -(1 << (width - 1))))
    else:
        wide = e.b.intrinsic("umin", wide, like(wide, (1 << width) - 1))
    return e.b.to("trunc", wide, kind)


# Logic and shifts

for name, operation in (("and", "and"), ("or", "or"), ("xor", "xor")):
    define(f"v_{name}_b32", "b32 = b32 b32", plain(operation))
    define(f"v_{name}_b16", "b16 = b16 b16", plain(operation))
define("v_xnor_b32", "b32 = b32 b32", lambda e, a, c: e.b.not_(e.b.xor(a, c)))
define("v_not_b32", "b32 = b32", lambda e, a: e.b.not_(a))
define("v_not_b16", "b16 = b16", lambda e, a: e.b.not_(a))
define("v_mov_b32", "b32 = b32", lambda e, a: a)
define("v_mov_b16", "b16 = b16", lambda e, a: a)
for name, operation, letter in (("lshlrev", "shl", "b"), ("lshrrev", "lshr", "b"), ("ashrrev", "ashr", "i")):
    define(f"v_{name}_{letter}16", "b16 = b16 b16", shift(operation))
    define(f"v_{name}_{letter}32", "b32 = b32 b32", shift(operation))
    define(f"v_{name}_{letter}64", "b64 = b32 b64", shift(operation))

define("v_and_or_b32", "b32 = b32 b32 b32", lambda e, a, c, d: e.b.or_(e.b.and_(a, c), d))
define("v_or3_b32", "b32 = b32 b32 b32", lambda e, a, c, d: e.b.or_(e.b.or_(a, c), d))
define("v_xor3_b32", "b32 = b32 b32 b32", lambda e, a, c, d: e.b.xor(e.b.xor(a, c), d))
define("v_xad_u32", "b32 = b32 b32 b32", lambda e, a, c, d: e.b.add(e.b.xor(a, c), d))
define("v_add3_u32", "b32 = b32 b32 b32", lambda e, a, c, d: e.b.add(e.b.add(a, c), d))
define("v_lshl_or_b32", "b32 = b32 b32 b32", lambda e, a, c, d: e.b.or_(shifted(e, "shl", a, c), d))
define("v_lshl_add_u32", "b32 = b32 b32 b32", lambda e, a, c, d: e.b.add(shifted(e, "shl", a, c), d))
define("v_add_lshl_u32", "b32 = b32 b32 b32", lambda e, a, c, d: shifted(e, "shl", e.b.add(a, c), d))
define(
    "v_bfi_b32",
    "b32 = b32 b32 b32",
    lambda e, mask, a, c: e.b.xor(c, e.b.and_(mask, e.b.xor(a, c))),
)


def _aligned(mask: int, unit: int) -> Callable[..., Value]:
    """64 bits moved down; the count has 16 bits, and op_sel can take its half (inferred from later LLVMs)."""

    def work(e: Emitter, a: Value, c: Value, count: Value) -> Value:
        count = e.b.and_(e.b.to("zext", count, I32), const(ir.V32, mask))
        return e.b.intrinsic("fshr", a, c, e.b.shl(count, const(ir.V32, unit)) if unit else count)

    return work


define("v_alignbit_b32", "b32 = b32 b32 b16", _aligned(31, 0))
define("v_alignbyte_b32", "b32 = b32 b32 b16", _aligned(3, 3))
define("v_bfm_b32", "b32 = b32 b32", lambda e, a, c: shifted(e, "shl", _ones(e, a), c))


def _ones(e: Emitter, count: Value) -> Value:
    return e.b.add(shifted(e, "shl", like(count, 1), count), like(count, -1))


def _field_unsigned(e: Emitter, a: Value, offset: Value, width: Value) -> Value:
    return e.b.and_(shifted(e, "lshr", a, offset), _ones(e, width))


def _field_signed(e: Emitter, a: Value, offset: Value, width: Value) -> Value:
    b = e.b
    width = b.and_(width, like(width, 31))
    unused = b.and_(b.sub(like(width, 0), width), like(width, 31))
    whole = b.ashr(b.shl(shifted(e, "ashr", a, offset), unused), unused)
    return b.select(b.icmp("eq", width, like(width, 0)), like(width, 0), whole)


define("v_bfe_u32", "b32 = b32 b32 b32", _field_unsigned)
define("v_bfe_i32", "b32 = b32 b32 b32", _field_signed)

# Counting

define("v_bfrev_b32", "b32 = b32", called("bitreverse"))
define("v_bcnt_u32_b32", "b32 = b32 b32", lambda e, a, c: e.b.add(e.b.intrinsic("ctpop", a), c))


def zeros(e: Emitter, name: str, value: Value) -> Value:
    """Leading (ctlz) or trailing (cttz) zeros; -1 if there is no one."""
    kind = value.type
    count = e.b.call(f"llvm.{name}.v{split(kind)[0]}{element(value)}", kind, value, const("i1", 0))
    return e.b.select(e.b.icmp("eq", value, like(value, 0)), like(value, -1), count)


define("v_clz_i32_u32", "b32 = b32", lambda e, a: zeros(e, "ctlz", a))
define("v_ctz_i32_b32", "b32 = b32", lambda e, a: zeros(e, "cttz", a))
define("v_cls_i32", "b32 = b32", lambda e, a: zeros(e, "ctlz", e.b.xor(a, e.b.ashr(a, like(a, 31)))))

# Sums and differences

define("v_add_nc_u32", "b32 = b32 b32", plain("add"), clamp=called("uadd.sat"))
define("v_sub_nc_u32", "b32 = b32 b32", plain("sub"), clamp=called("usub.sat"))
define(
    "v_subrev_nc_u32",
    "b32 = b32 b32",
    lambda e, a, c: e.b.sub(c, a),
    clamp=lambda e, a, c: e.b.intrinsic("usub.sat", c, a),
)
define("v_add_nc_i32", "b32 = b32 b32", plain("add"), clamp=called("sadd.sat"))
define("v_sub_nc_i32", "b32 = b32 b32", plain("sub"), clamp=called("ssub.sat"))
define("v_add_nc_u16", "b16 = b16 b16", plain("add"), clamp=called("uadd.sat"))
define("v_sub_nc_u16", "b16 = b16 b16", plain("sub"), clamp=called("usub.sat"))
define("v_add_nc_i16", "b16 = b16 b16", plain("add"), clamp=called("sadd.sat"))
define("v_sub_nc_i16", "b16 = b16 b16", plain("sub"), clamp=called("ssub.sat"))


def _carry(subtract: bool, reverse: bool, carry_in: bool) -> Callable[[Emitter, Instruction], None]:
    """Sums that write a carry, v_add_co_u32 and its kin: destination, carry out, sources, carry in."""

    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        a, c = e.v32(i.operands[2]), e.v32(i.operands[3])
        if reverse:
            a, c = c, a
        total = b.binary("sub" if subtract else "add", a, c)
        out = b.icmp("ult", a, c) if subtract else b.icmp("ult", total, a)
        if carry_in:
            mask = e.lanes(i.operands[4])
            more = b.to("zext", mask, I32)
            final = b.binary("sub" if subtract else "add", total, more)
            again = b.icmp("ugt" if subtract else "ult", final, total)
            total, out = final, b.or_(out, again)
        if "clamp" in i.modifiers:
            total = b.select(out, like(total, 0 if subtract else -1), total)
        e.write(i.operands[0], total)
        e.write_lanes(i.operands[1], out)

    return emit


for name, subtract, reverse in (("add", False, False), ("sub", True, False), ("subrev", True, True)):
    add([f"v_{name}_co_u32"], _carry(subtract, reverse, False), modifiers="clamp")
    add([f"v_{name}_co_ci_u32"], _carry(subtract, reverse, True), modifiers="clamp")

# Products


def _product24(signed: bool, high: bool) -> Callable[..., Value]:
    def work(e: Emitter, a: Value, c: Value) -> Value:
        a, c = low(e, a, 24, signed), low(e, c, 24, signed)
        if not high:
            return e.b.mul(a, c)
        whole = product(e, a, c, signed)
        return e.b.to("trunc", e.b.ashr(whole, like(whole, 32)), I32)

    return work


def _mad(width: int, signed: bool, saturate: bool = False) -> Callable[..., Value]:
    """Factors of `width` bits, product and sum of 32."""

    def work(e: Emitter, a: Value, c: Value, d: Value) -> Value:
        if width == 16:
            a, c = (e.b.to("sext" if signed else "zext", value, I32) for value in (a, c))
        else:
            a, c = low(e, a, width, signed), low(e, c, width, signed)
        if not saturate:
            return e.b.add(e.b.mul(a, c), d)
        total = e.b.add(product(e, a, c, signed), e.b.to("sext" if signed else "zext", d, I64))
        return fitted(e, total, I32, signed)

    return work


def mad16(e: Emitter, a: Value, c: Value, d: Value) -> Value:
    """A * c + d of 16 bits."""
    return e.b.add(e.b.mul(a, c), d)


def mad16_saturated(signed: bool) -> Callable[..., Value]:
    """The same, with clamp."""

    def work(e: Emitter, a: Value, c: Value, d: Value) -> Value:
        a, c, d = (e.b.to("sext" if signed else "zext", value, I32) for value in (a, c, d))
        total = e.b.intrinsic("sadd.sat" if signed else "uadd.sat", e.b.mul(a, c), d)
        return fitted(e, total, I16, signed)

    return work


for letter, signed in (("u", False), ("i", True)):
    define(f"v_mul_{letter}32_{letter}24", "b32 = b32 b32", _product24(signed, False))
    define(f"v_mul_hi_{letter}32_{letter}24", "b32 = b32 b32", _product24(signed, True))
    for width in (24, 16):
        kinds = "b32 b32 b32" if width == 24 else "b16 b16 b32"
        define(
            f"v_mad_{letter}32_{letter}{width}",
            f"b32 = {kinds}",
            _mad(width, signed),
            clamp=_mad(width, signed, True),
        )
    define(
        f"v_mad_{letter}16",
        "b16 = b16 b16 b16",
        mad16,
        clamp=mad16_saturated(signed),
    )
    define(f"v_mul_hi_{letter}32", "b32 = b32 b32", lambda e, a, c, s=signed: upper(e, product(e, a, c, s)))
define("v_mul_lo_u32", "b32 = b32 b32", plain("mul"))
define("v_mul_lo_u16", "b16 = b16 b16", plain("mul"))


def _wide_mad(signed: bool) -> Callable[[Emitter, Instruction], None]:
    """v_mad_u64_u32 and v_mad_i64_i32: the carry is bit 64 of the exact sum."""

    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        target, carry, first, second, third = i.operands
        c = read(e, i, third, "i64" if signed else "b64", 2)
        whole = product(e, e.v32(first), e.v32(second), signed)
        total = b.add(whole, c)
        e.write(target, total)
        if carry.kind == "null":
            return
        if signed:
            overflow = b.and_(b.xor(whole, total), b.xor(c, total))
            e.write_lanes(carry, b.icmp("slt", b.xor(overflow, total), like(total, 0)))
        else:
            e.write_lanes(carry, b.icmp("ult", total, whole))

    return emit


add(["v_mad_u64_u32"], _wide_mad(False), generations=(11,))
add(["v_mad_i64_i32"], _wide_mad(True), generations=(11,))
add(["v_mad_co_u64_u32"], _wide_mad(False), generations=(12,))
add(["v_mad_co_i64_i32"], _wide_mad(True), generations=(12,))

# Extremes


def median(e: Emitter, prefix: str, a: Value, c: Value, d: Value) -> Value:
    """The middle one of three integers."""
    least, most = e.b.intrinsic(f"{prefix}min", a, c), e.b.intrinsic(f"{prefix}max", a, c)
    return e.b.intrinsic(f"{prefix}max", least, e.b.intrinsic(f"{prefix}min", most, d))


def _chain(first: str, second: str) -> Callable[..., Value]:
    return lambda e, a, c, d: e.b.intrinsic(second, e.b.intrinsic(first, a, c), d)


for width in (16, 32):
    for letter, prefix in (("i", "s"), ("u", "u")):
        kind, suffix = f"b{width}", f"{letter}{width}"
        lesser, greater = f"{prefix}min", f"{prefix}max"
        define(f"v_min_{suffix}", f"{kind} = {kind} {kind}", called(lesser))
        define(f"v_max_{suffix}", f"{kind} = {kind} {kind}", called(greater))
        three = f"{kind} = {kind} {kind} {kind}"
        define(f"v_min3_{suffix}", three, _chain(lesser, lesser))
        define(f"v_max3_{suffix}", three, _chain(greater, greater))
        define(f"v_med3_{suffix}", three, lambda e, a, c, d, p=prefix: median(e, p, a, c, d))
        if width == 32:
            define(f"v_minmax_{suffix}", three, _chain(lesser, greater))
            define(f"v_maxmin_{suffix}", three, _chain(greater, lesser))

# Bytes


def bytewise(e: Emitter, value: Value) -> Value:
    """The bytes of 32-bit lanes."""
    return e.b.cast("bitcast", value, BYTES)


def _differences(e: Emitter, a: Value, c: Value) -> Value:
    """|a - c| of each byte."""
    a, c = bytewise(e, a), bytewise(e, c)
    return e.b.sub(e.b.intrinsic("umax", a, c), e.b.intrinsic("umin", a, c))


def _byte_sum(e: Emitter, values: Value) -> Value:
    whole = e.b.cast("bitcast", values, ir.V32)
    return dot4(e, const(ir.V32, 0), whole, const(ir.V32, 0x01010101), False, False)


def _sad(e: Emitter, a: Value, c: Value, d: Value) -> Value:
    return e.b.add(_byte_sum(e, _differences(e, a, c)), d)


def _sad_hi(e: Emitter, a: Value, c: Value, d: Value) -> Value:
    return e.b.add(e.b.shl(_byte_sum(e, _differences(e, a, c)), like(d, 16)), d)


def _sad_masked(e: Emitter, a: Value, c: Value, d: Value) -> Value:
    """Bytes whose reference, the second source, is 0 do not count."""
    reference, differences = bytewise(e, c), _differences(e, a, c)
    empty = e.b.icmp("eq", reference, like(reference, 0))
    return e.b.add(_byte_sum(e, e.b.select(empty, like(differences, 0), differences)), d)


def _distance(e: Emitter, a: Value, c: Value) -> Value:
    return e.b.sub(e.b.intrinsic("umax", a, c), e.b.intrinsic("umin", a, c))


def _sad_words(e: Emitter, a: Value, c: Value, d: Value) -> Value:
    kind = ir.vector(I16, 2 * ir.LANES)
    both = e.b.cast(
        "bitcast", _distance(e, e.b.cast("bitcast", a, kind), e.b.cast("bitcast", c, kind)), d.type
    )
    return e.b.add(e.b.add(low(e, both, 16, False), e.b.lshr(both, like(both, 16))), d)


def _lerp(e: Emitter, a: Value, c: Value, d: Value) -> Value:
    """(a + c + the rounding bit of d) / 2 of each byte."""
    b = e.b
    a, c, d = (bytewise(e, value) for value in (a, c, d))
    odd = b.and_(b.or_(b.and_(a, c), b.and_(b.xor(a, c), d)), like(a, 1))
    one = like(a, 1)
    halves = b.add(b.lshr(a, one), b.lshr(c, one))
    return b.cast("bitcast", b.add(halves, odd), ir.V32)


define("v_sad_u8", "b32 = b32 b32 b32", _sad)
define("v_sad_hi_u8", "b32 = b32 b32 b32", _sad_hi)
define("v_msad_u8", "b32 = b32 b32 b32", _sad_masked)
define("v_sad_u16", "b32 = b32 b32 b32", _sad_words)
define("v_sad_u32", "b32 = b32 b32 b32", lambda e, a, c, d: e.b.add(_distance(e, a, c), d))
define("v_lerp_u8", "b32 = b32 b32 b32", _lerp)


def _quad(work: Callable[..., Value], wide: bool) -> Callable[[Emitter, Instruction], None]:
    """Sums of four places of a window: 16 bits each, or 32."""

    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        target, window, reference, third = i.operands
        if wide and third.kind != "v":
            raise e.refuse("a sum of 128 bits that is not in VGPRs is not implemented")
        whole, against = e.v64(window), e.v32(reference)
        parts = [b.to("trunc", b.lshr(whole, like(whole, 8 * at)), I32) for at in range(4)]
        if wide:
            sums = [work(e, part, against, e.vgpr(third.index + at)) for at, part in enumerate(parts)]
            for at, total in enumerate(sums):
                e.set_vgpr(target.index + at, total)
            return
        old, packed = e.v64(third), const(ir.V64, 0)
        for at, part in enumerate(parts):
            total = work(e, part, against, b.to("trunc", b.lshr(old, like(old, 16 * at)), I32))
            field = b.and_(b.to("zext", total, I64), like(old, 0xFFFF))
            packed = b.or_(packed, b.shl(field, like(old, 16 * at)))
        e.write(target, packed)

    return emit


add(["v_qsad_pk_u16_u8"], _quad(_sad, False))
add(["v_mqsad_pk_u16_u8"], _quad(_sad_masked, False))
add(["v_mqsad_u32_u8"], _quad(_sad_masked, True))


def _perm(e: Emitter, a: Value, c: Value, selector: Value) -> Value:
    """Four bytes chosen from eight: of the second source 0 to 3, of the first 4 to 7; 8 to 11 are the signs
    of bytes 1, 3, 5, 7; 12 is 0x00, more is 0xff.
    """
    b = e.b
    sources = [bytewise(e, c), bytewise(e, a)]
    chosen = bytewise(e, selector)
    result = b.select(b.icmp("eq", chosen, like(chosen, 12)), like(chosen, 0), like(chosen, -1))
    for number in range(12):
        byte = number if number < 8 else 2 * (number - 8) + 1
        order = [4 * lane + byte % 4 for lane in range(ir.LANES) for _ in range(4)]
        picked = b.shuffle(sources[byte // 4], None, order)
        if number >= 8:
            picked = b.ashr(picked, like(picked, 7))
        result = b.select(b.icmp("eq", chosen, like(chosen, number)), picked, result)
    return b.cast("bitcast", result, ir.V32)


def _perm_or_shuffle(e: Emitter, i: Instruction) -> None:
    """v_perm, which is one shuffle if the selector is a constant of plain bytes."""
    target, first, second, third = i.operands
    known = third.kind in ("int", "literal")
    numbers = int(third.value).to_bytes(8, "little", signed=True)[:4] if known else b"\xff"
    if max(numbers) >= 8:
        e.write(target, _perm(e, e.v32(first), e.v32(second), e.v32(third)))
        return
    order = [4 * lane + n % 4 + n // 4 * 4 * ir.LANES for lane in range(ir.LANES) for n in numbers]
    picked = e.b.shuffle(bytewise(e, e.v32(second)), bytewise(e, e.v32(first)), order)
    e.write(target, e.b.cast("bitcast", picked, ir.V32))


add(["v_perm_b32"], _perm_or_shuffle)


def _packed_saturated(e: Emitter, a: Value) -> Value:
    """Two signed 16-bit values as two unsigned bytes."""
    whole = e.b.cast("bitcast", a, ir.vector(I16, 2 * ir.LANES))
    whole = e.b.intrinsic("smax", e.b.intrinsic("smin", whole, like(whole, 255)), like(whole, 0))
    return e.b.cast("bitcast", e.b.cast("trunc", whole, ir.vector(I8, 2 * ir.LANES)), ir.V16)


define("v_sat_pk_u8_i16", "b16 = b32", _packed_saturated)

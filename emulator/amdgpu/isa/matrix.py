"""WMMA: D = A B + C of 16 x 16 matrices, held across the lanes of a wave.

Element (m, k) of A is in the lane of its row, element (k, n) of B in that of its column, values of
consecutive k packed in registers.

* RDNA3: every lane holds all 16 k, and lanes 16 to 31 repeat lanes 0 to 15. C and D: register i of lane l is
  row 2 i + l / 16 of column l % 16. 16-bit C and D use the half of each register that op_sel names.
* RDNA4: lanes 0 to 15 hold the first half of the k, lanes 16 to 31 the second. C and D: register i of lane l
  is row i + 8 (l / 16); 16-bit ones are packed in pairs.

EXEC does not matter. Integers are exact, and clamp saturates the sum (guess: once, at the end). Float
products are exact, added to C one by one in the order of k, each sum rounded to f32; 16-bit results are
rounded at the end (order and rounding: guess). Where lanes 16 to 31 do not repeat the others, each half
computes with its own copy (guess). Source: RDNA3 ISA manual 7.9, RDNA4 ISA manual 7.12.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import BF16, F16, F32, I16, I32, LANES, V32, Value, const
from emulator.amdgpu.isa.operands import Instruction, Operand
from emulator.amdgpu.isa.vector.arithmetic import NEAREST, narrow, narrow_bf16
from emulator.amdgpu.isa.vector.dot import MIDDLE, busd, dot4, has_dot_products, nibbles
from emulator.amdgpu.isa.vector.float8 import FORMATS, byte
from emulator.amdgpu.isa.vector.float8 import widened as eighth
from emulator.amdgpu.isa.vector.frame import like, real
from emulator.amdgpu.isa.vector.packed import widened
from sdk.errors import InternalError

SIGNS = "neg_lo clamp"
HALVES = "op_sel op_sel_hi neg_lo neg_hi"
"""Modifiers of products of integers, and of floats; op_sel_hi means nothing."""
ROWS = 8
"""Rows of D that a lane holds."""
BITS = {"f16": 16, "bf16": 16, "iu8": 8, "fp8": 8, "bf8": 8, "iu4": 4}
"""Of an element, by the end of a mnemonic."""


def products(mnemonic: str) -> tuple[int, int]:
    """Bits of an element, and products of 16 x 16 x 16 that an instruction takes the time of."""
    shape = re.fullmatch(r"v_(s?)wmm\w+_16x16x(\d+)_(?:\w+_)?(\w+?)", mnemonic)
    if shape is None:
        raise InternalError(f"{mnemonic} is not a matrix instruction")
    return BITS[shape[3]], int(shape[2]) // (32 if shape[1] else 16)  # sparse: of half the k


def check(e: Emitter, i: Instruction) -> None:
    """Refuse an A or B that is not in VGPRs: LLVM decodes some, and the manuals have none."""
    for operand in i.operands[1:3]:
        if operand.kind != "v":
            raise e.refuse(f"{operand.name} is not a matrix")


def registers(e: Emitter, operand: Operand, count: int) -> list[Value]:
    """The registers of a source; of a constant, the same in all."""
    if operand.kind != "v":
        return [e.v32(operand)] * count
    return [e.vgpr(operand.index + number) for number in range(count)]


def across_rows(e: Emitter, i: int, parts: Sequence[Value]) -> list[Value]:
    """A's parts for the rows of D that are in register i: in every lane, what its row holds."""
    if e.generation < 12:
        order = [lane // 16 * 16 + 2 * i + lane // 16 for lane in range(LANES)]
        return [e.b.shuffle(part, None, order) for part in parts]
    return [
        e.b.shuffle(part, None, [16 * half + i + lane // 16 * 8 for lane in range(LANES)])
        for half in (0, 1)
        for part in parts
    ]


def down_columns(e: Emitter, parts: Sequence[Value]) -> list[Value]:
    """B's parts in every lane of their column."""
    if e.generation < 12:
        return list(parts)
    return [
        e.b.shuffle(part, None, [16 * half + lane % 16 for lane in range(LANES)])
        for half in (0, 1)
        for part in parts
    ]


def shared(
    e: Emitter, name: str, arguments: Sequence[Value], write: Callable[[Emitter, list[Value]], list[Value]]
) -> list[Value]:
    """The rows of D, from a function of the module that `write` writes, at its first use: written out at
    every place, a product would take longer to compile than to run.
    """
    b = e.b
    kind = ir.vector(ir.split(arguments[-1].type)[1], ROWS * LANES)
    if name not in b.declarations:
        inner = Emitter(ir.Builder(), e.generation, e.mode)
        given = [Value(value.type, f"%a{number}") for number, value in enumerate(arguments)]
        rows = write(inner, given)
        while len(rows) > 1:
            pairs = zip(rows[::2], rows[1::2], strict=True)
            rows = [inner.b.shuffle(x, y, range(2 * ir.split(x.type)[0])) for x, y in pairs]
        head = f"define internal {kind} @{name}({', '.join(map(str, given))}) nounwind {{"
        b.declarations |= inner.b.declarations
        b.declarations[name] = "\n".join([head, *inner.b.lines, f"  ret {rows[0]}", "}"])
    whole = b.call(name, kind, *arguments)
    return [b.shuffle(whole, None, range(LANES * row, LANES * (row + 1))) for row in range(ROWS)]


def byte_parts(e: Emitter, values: Sequence[Value], bits: int, signed: bool) -> list[Value]:
    """Registers of four bytes each, of registers of elements of 8 or 4 bits."""
    if bits == 8:
        return list(values)
    return [part for value in values for part in nibbles(e, value, signed)]


def _integers(bits: int) -> Callable[[Emitter, Instruction], None]:
    """Elements of 8 or 4 bits."""

    def emit(e: Emitter, i: Instruction) -> None:
        check(e, i)
        target, first, second, third = i.operands
        signs = i.bits("neg_lo", (0, 0, 0))
        if signs[2]:
            raise e.refuse("neg_lo of source 2 is not implemented for it")
        a_signed, c_signed, clamp = bool(signs[0]), bool(signs[1]), "clamp" in i.modifiers
        count = first.count

        def write(inner: Emitter, given: list[Value]) -> list[Value]:
            b = inner.b
            a = byte_parts(inner, given[:count], bits, a_signed)
            columns = down_columns(inner, byte_parts(inner, given[count : 2 * count], bits, c_signed))
            # As dot4 does it, but what the move of A by 128 adds is the same for all rows.
            moved = a_signed and c_signed and has_dot_products()
            excess = const(V32, 0)
            if moved:
                a = [b.xor(part, like(part, MIDDLE)) for part in a]
                for part in columns:
                    excess = busd(inner, excess, const(V32, MIDDLE), part)
            results = []
            for row, old in enumerate(given[2 * count :]):
                total = const(V32, 0) if clamp else old
                total = b.sub(total, excess) if moved else total
                for left, right in zip(across_rows(inner, row, a), columns, strict=True):
                    if moved:
                        total = busd(inner, total, left, right)
                    else:
                        total = dot4(inner, total, left, right, a_signed, c_signed)
                results.append(b.intrinsic("sadd.sat", total, old) if clamp else total)
            return results

        name = f"wmma.iu{bits}.{count}.{e.generation}.{a_signed:d}{c_signed:d}{clamp:d}"
        arguments = [*registers(e, first, count), *registers(e, second, count), *registers(e, third, ROWS)]
        for row, value in enumerate(shared(e, name, arguments, write)):
            e.set_vgpr_all(target.index + row, value)

    return emit


def factors(e: Emitter, i: Instruction, position: int) -> list[Value]:
    """The registers of A or B, neg_lo flipping the signs of low halves, neg_hi those of high ones."""
    operand = i.operands[1 + position]
    flips = [bool(i.bits(name, (0, 0, 0))[position]) for name in ("neg_lo", "neg_hi")]
    mask = 0x8000 * flips[0] - 0x80000000 * flips[1]
    values = registers(e, operand, operand.count)
    return [e.b.xor(value, const(V32, mask)) for value in values] if mask else values


def _sum_signs(e: Emitter, i: Instruction, value: Value) -> Value:
    """C with neg_hi as abs and neg_lo as neg."""
    if i.bits("neg_hi", (0, 0, 0))[2]:
        value = e.b.intrinsic("fabs", value)
    return e.b.fneg(value) if i.bits("neg_lo", (0, 0, 0))[2] else value


def elements(e: Emitter, value: Value, kind: str) -> tuple[Value, ...]:
    """The parts of a register as f32: two of 16 bits, or four of 8."""
    if kind in FORMATS:
        return tuple(eighth(e, byte(e, value, number), kind) for number in range(4))
    return widened(e, value, kind)


def _multiply(
    e: Emitter, kinds: tuple[str, str], a: Sequence[Value], c: Sequence[Value], sums: list[Value]
) -> list[Value]:
    """C + A B by row; the kinds are A's and B's."""

    def write(inner: Emitter, given: list[Value]) -> list[Value]:
        left, right = given[: len(a)], given[len(a) : len(a) + len(c)]
        rows = [part for value in left for part in elements(inner, value, kinds[0])]
        columns = down_columns(inner, [part for value in right for part in elements(inner, value, kinds[1])])
        totals = []
        for row, total in enumerate(given[len(a) + len(c) :]):
            for x, y in zip(across_rows(inner, row, rows), columns, strict=True):
                total = inner.b.intrinsic("fma", x, y, total)
            totals.append(total)
        return totals

    name = f"wmma.{'.'.join(kinds)}.{e.generation}.{e.mode.denorm64 & 1}"
    return shared(e, name, (*a, *c, *sums), write)


def _floats(kind: str, narrow_result: bool, other: str = "") -> Callable[[Emitter, Instruction], None]:
    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        check(e, i)
        if kind in FORMATS and any(any(i.bits(name)[:2]) for name in ("neg_lo", "neg_hi")):
            raise e.refuse("neg of a matrix of bytes is not implemented for it")
        target, third = i.operands[0], i.operands[3]
        chosen = i.bits("op_sel", (0, 0, 0))
        if chosen[0] or chosen[1]:
            raise e.refuse("op_sel of a source of which both halves are used")
        high = bool(chosen[2])
        sums = _old_sums(e, i, third, kind, narrow_result)
        results = _multiply(e, (kind, other or kind), factors(e, i, 0), factors(e, i, 1), sums)
        if not narrow_result:
            for row, total in enumerate(results):
                e.set_vgpr_all(target.index + row, b.cast("bitcast", total, V32))
            return
        words = [b.to("zext", narrowed(e, total, kind), I32) for total in results]
        if e.generation >= 12:
            for pair in range(ROWS // 2):
                upper = b.shl(words[2 * pair + 1], const(V32, 16))
                e.set_vgpr_all(target.index + pair, b.or_(words[2 * pair], upper))
            return
        for row, word in enumerate(words):
            kept = b.and_(e.vgpr(target.index + row), const(V32, 0xFFFF if high else -0x10000))
            word = b.shl(word, const(V32, 16)) if high else word
            e.set_vgpr_all(target.index + row, b.or_(word, kept))

    return emit


def _old_sums(e: Emitter, i: Instruction, operand: Operand, kind: str, narrow_result: bool) -> list[Value]:
    """C by row, as f32."""
    if not narrow_result:
        old = registers(e, operand, ROWS)
        return [_sum_signs(e, i, real(e, value, F32)) for value in old]
    if operand.kind == "float" or operand.kind == "literal":
        raise e.refuse("a constant other than an integer is not implemented for a 16-bit C")
    if e.generation >= 12:
        pairs = (widened(e, value, kind) for value in registers(e, operand, ROWS // 2))
        return [_sum_signs(e, i, part) for pair in pairs for part in pair]
    high = i.bits("op_sel", (0, 0, 0))[2]
    return [_sum_signs(e, i, widened(e, value, kind)[high]) for value in registers(e, operand, ROWS)]


def narrowed(e: Emitter, total: Value, kind: str) -> Value:
    """The bits of f16s or bf16s."""
    if kind == BF16:
        return narrow_bf16(e, total)
    if e.mode.fp16_ovfl:
        raise e.refuse("FP16_OVFL is not implemented for f16")
    return e.b.to("bitcast", narrow(e, total, F16, NEAREST), I16)


for name, emit in {
    "i32_16x16x16_iu8": _integers(8),
    "i32_16x16x16_iu4": _integers(4),
    "f32_16x16x16_f16": _floats(F16, False),
    "f32_16x16x16_bf16": _floats(BF16, False),
    "f16_16x16x16_f16": _floats(F16, True),
    "bf16_16x16x16_bf16": _floats(BF16, True),
}.items():
    add([f"v_wmma_{name}"], emit, kind="wmma", modifiers=SIGNS if "iu" in name else HALVES)
for first in FORMATS:
    for second in FORMATS:
        emit = _floats(first, False, second)
        add([f"v_wmma_f32_16x16x16_{first}_{second}"], emit, kind="wmma", generations=(12,), modifiers=HALVES)
add(["v_wmma_i32_16x16x32_iu4"], _integers(4), kind="wmma", generations=(12,), modifiers=SIGNS)

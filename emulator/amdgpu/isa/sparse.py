"""SWMMAC of RDNA4: D += A B, where A has two elements of every four, and an index says which.

A is 16 x K with K / 2 elements a row in its registers, placed as WMMA places a row of K / 2. For every two of
them a lane's index has four bits: the places in their group of four, of the first and of the second. B is
K x 16. Where a lane's index needs 16 bits only, op_sel's first bit (LLVM's index_key) takes the upper half.
Source: RDNA4 ISA manual 7.12, "Sparse" (which half of K is in which lanes: inferred from WMMA's layout). Sums
are rounded and saturated as WMMA's are; products are added in the order of A's elements (guess).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import BF16, F16, F32, I32, V32, Value, const
from emulator.amdgpu.isa.matrix import (
    ROWS,
    SIGNS,
    across_rows,
    check,
    down_columns,
    elements,
    factors,
    narrowed,
    registers,
    shared,
)
from emulator.amdgpu.isa.operands import Instruction
from emulator.amdgpu.isa.vector.float8 import FORMATS
from emulator.amdgpu.isa.vector.frame import like, real

GROUP = 4
"""Elements of B that two of A can meet."""


def _numbers(e: Emitter, value: Value, bits: int, signed: bool) -> list[Value]:
    """The integers of a register, extended."""
    b, parts = e.b, []
    for at in range(0, 32, bits):
        top = b.shl(value, like(value, 32 - bits - at))
        parts.append(b.binary("ashr" if signed else "lshr", top, like(value, 32 - bits)))
    return parts


def _chosen(e: Emitter, place: Value, group: Sequence[Value]) -> Value:
    """The element of a group of four by its place (V32, its low two bits)."""
    b = e.b
    one, two = (b.icmp("ne", b.and_(place, like(place, bit)), like(place, 0)) for bit in (1, 2))
    return b.select(two, b.select(one, group[3], group[2]), b.select(one, group[1], group[0]))


def _pairs(
    e: Emitter, row: int, a: Sequence[Value], index: Value, columns: Sequence[Value]
) -> list[tuple[Value, Value]]:
    """Factors of register `row` of D: A's elements, each with the element of B that it meets."""
    b = e.b
    indices = across_rows(e, row, [index])  # of both halves of K
    left = across_rows(e, row, a)
    result = []
    for at, value in enumerate(left):
        half, place = divmod(at, len(a))
        first = at // 2 * GROUP
        shift = 2 * place
        where = b.lshr(indices[half], like(index, shift)) if shift else indices[half]
        result.append((value, _chosen(e, where, columns[first : first + GROUP])))
    return result


def _index(e: Emitter, i: Instruction) -> Value:
    """A lane's index."""
    whole = e.v32(i.operands[3])
    return e.b.lshr(whole, const(V32, 16)) if i.number("index_key") else whole


def _integers(bits: int) -> Callable[[Emitter, Instruction], None]:
    def emit(e: Emitter, i: Instruction) -> None:
        check(e, i)
        target, first, second, _ = i.operands
        signs, clamp = i.bits("neg_lo", (0, 0, 0)), "clamp" in i.modifiers
        a_signed, c_signed = bool(signs[0]), bool(signs[1])
        count, wide = first.count, second.count

        def write(inner: Emitter, given: list[Value]) -> list[Value]:
            b = inner.b
            index, sums = given[count + wide], given[count + wide + 1 :]
            a = [part for value in given[:count] for part in _numbers(inner, value, bits, a_signed)]
            right = given[count : count + wide]
            c = down_columns(inner, [p for value in right for p in _numbers(inner, value, bits, c_signed)])
            rows = []
            for row, old in enumerate(sums):
                total = const(V32, 0)
                for x, y in _pairs(inner, row, a, index, c):
                    total = b.add(total, b.mul(x, y))
                rows.append(b.intrinsic("sadd.sat", total, old) if clamp else b.add(total, old))
            return rows

        name = f"swmmac.iu{bits}.{count}.{a_signed:d}{c_signed:d}{clamp:d}"
        old = [e.vgpr(target.index + row) for row in range(ROWS)]
        arguments = [*registers(e, first, count), *registers(e, second, wide), _index(e, i), *old]
        for row, value in enumerate(shared(e, name, arguments, write)):
            e.set_vgpr_all(target.index + row, value)

    return emit


def _floats(kind: str, other: str, narrow: bool) -> Callable[[Emitter, Instruction], None]:
    def emit(e: Emitter, i: Instruction) -> None:
        b = e.b
        check(e, i)
        target, first, second, _ = i.operands
        if kind in FORMATS and any(any(i.bits(name)) for name in ("neg_lo", "neg_hi")):
            raise e.refuse("neg of a matrix of bytes is not implemented for it")
        count, wide = first.count, second.count

        def write(inner: Emitter, given: list[Value]) -> list[Value]:
            index, sums = given[count + wide], given[count + wide + 1 :]
            a = [part for value in given[:count] for part in elements(inner, value, kind)]
            right = given[count : count + wide]
            c = down_columns(inner, [part for value in right for part in elements(inner, value, other)])
            rows = []
            for row, total in enumerate(sums):
                for x, y in _pairs(inner, row, a, index, c):
                    total = inner.b.intrinsic("fma", x, y, total)
                rows.append(total)
            return rows

        old = [e.vgpr(target.index + row) for row in range(ROWS // 2 if narrow else ROWS)]
        sums = [part for word in old for part in elements(e, word, kind)] if narrow else [
            real(e, word, F32) for word in old
        ]  # fmt: skip
        name = f"swmmac.{kind}.{other}.{e.mode.denorm64 & 1}"
        arguments = [*factors(e, i, 0), *factors(e, i, 1), _index(e, i), *sums]
        results = shared(e, name, arguments, write)
        if not narrow:
            for row, total in enumerate(results):
                e.set_vgpr_all(target.index + row, b.cast("bitcast", total, V32))
            return
        words = [b.to("zext", narrowed(e, total, kind), I32) for total in results]
        for pair in range(ROWS // 2):
            upper = b.shl(words[2 * pair + 1], const(V32, 16))
            e.set_vgpr_all(target.index + pair, b.or_(words[2 * pair], upper))

    return emit


def _register(shape: str, emit: Callable[[Emitter, Instruction], None], modifiers: str) -> None:
    add([f"v_swmmac_{shape}"], emit, kind="wmma", generations=(12,), modifiers=modifiers)


KEY = " index_key"
_register("i32_16x16x32_iu8", _integers(8), SIGNS + KEY)
_register("i32_16x16x32_iu4", _integers(4), SIGNS + KEY)
_register("i32_16x16x64_iu4", _integers(4), SIGNS)
for _label, _kind in (("f16", F16), ("bf16", BF16)):
    _register(f"f32_16x16x32_{_label}", _floats(_kind, _kind, False), "neg_lo neg_hi" + KEY)
    _register(f"{_label}_16x16x32_{_label}", _floats(_kind, _kind, True), "neg_lo neg_hi" + KEY)
for _first in FORMATS:
    for _second in FORMATS:
        _register(f"f32_16x16x32_{_first}_{_second}", _floats(_first, _second, False), "neg_lo neg_hi" + KEY)

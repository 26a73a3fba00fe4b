"""Local data share: DS loads, stores and atomics, and the permutations that go through its crossbar.

An address beyond the workgroup's share reads as 0 and is not written; that this happened is reported.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.isa.emit import Emitter, Semantics, add, instruction
from emulator.amdgpu.isa.ir import I8, I16, I32, I64, PTR, V1, V32, VOID, Value, const
from emulator.amdgpu.isa.memory import (
    LDS,
    STORES,
    Shape,
    bits_of,
    buffer,
    call_atomic,
    gather,
    payload,
    receive,
)
from emulator.amdgpu.isa.operands import LANES, Instruction, Operand

MEMORY = Value(PTR, "%lds")
SIZE = Value(I32, "%lds_size")

LOADS = {
    "u8": Shape(1), "i8": Shape(1, True), "u16": Shape(2), "i16": Shape(2, True),
    "b32": Shape(4), "b64": Shape(8), "b96": Shape(12), "b128": Shape(16),
    "u8_d16": Shape(1, False, "low"), "i8_d16": Shape(1, True, "low"), "u16_d16": Shape(2, False, "low"),
    "u8_d16_hi": Shape(1, False, "high"), "i8_d16_hi": Shape(1, True, "high"),
    "u16_d16_hi": Shape(2, False, "high"),
}  # fmt: skip


def _inside(e: Emitter, addresses: Value, size: int) -> Value:
    """Active lanes whose bytes are in the share (V1); the others are noted."""
    room = e.b.call("llvm.usub.sat.i32", I32, SIZE, const(I32, size - 1))
    good = e.b.icmp("ult", addresses, e.b.splat(room))
    bad = bits_of(e, e.b.and_(e.b.not_(good), e.active))
    e.set_local("lds_bad", e.b.or_(e.local("lds_bad", I32), bad))
    return e.b.and_(good, e.active)


def _at(e: Emitter, address: Operand, offset: int) -> Value:
    """Addresses in the share (V32): the sum wraps at 32 bits, so a register may hold a negative one."""
    return e.b.add(e.v32(address), const(V32, offset)) if offset else e.v32(address)


def _read(e: Emitter, addresses: Value, size: int) -> list[Value]:
    return gather(e, MEMORY, addresses, size, _inside(e, addresses, size))


def _write(e: Emitter, addresses: Value, size: int, values: list[Value]) -> None:
    good = _inside(e, addresses, size)
    for at, value in enumerate(values):
        pointers = e.b.gep(I8, e.b.gep(I8, MEMORY, 4 * at) if at else MEMORY, addresses)
        if size < 4:
            value = e.b.to("trunc", value, I8 if size == 1 else I16)
        kind = {1: "v32i8", 2: "v32i16"}.get(size, "v32i32")
        e.b.call(f"llvm.masked.scatter.{kind}.v32p0", VOID, value, pointers, const(I32, 1), good)


def _load(shape: Shape) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, address = i.operands[:2]
        receive(e, dst, shape, _read(e, _at(e, address, i.number("offset")), shape.size))

    return emit


def _store(shape: Shape) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        address, data = i.operands[:2]
        _write(e, _at(e, address, i.number("offset")), shape.size, payload(e, data, shape))

    return emit


def _load_two(size: int, unit: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, address = i.operands[:2]
        rows = []
        for name in ("offset0", "offset1"):
            rows += _read(e, _at(e, address, i.number(name) * unit), size)
        for at, row in enumerate(rows):
            e.set_vgpr(dst.index + at, row)

    return emit


def _store_two(size: int, unit: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        address, *data = i.operands[:3]
        for name, operand in zip(("offset0", "offset1"), data, strict=True):
            values = [e.vgpr(operand.index + at) for at in range(size // 4)]
            _write(e, _at(e, address, i.number(name) * unit), size, values)

    return emit


for _suffix, _shape in LOADS.items():
    add((f"ds_load_{_suffix}",), _load(_shape), kind="lds")
for _suffix in ("b8", "b16", "b32", "b64", "b96", "b128"):
    add((f"ds_store_{_suffix}",), _store(STORES[_suffix]), kind="lds")
for _suffix in ("b8", "b16"):
    add((f"ds_store_{_suffix}_d16_hi",), _store(STORES[f"d16_hi_{_suffix}"]), kind="lds")
for _bits in (32, 64):
    for _stride, _factor in (("", 1), ("stride64_", 64)):
        _unit = _bits // 8 * _factor
        _suffix = f"2addr_{_stride}b{_bits}"
        add((f"ds_load_{_suffix}",), _load_two(_bits // 8, _unit), kind="lds")
        add((f"ds_store_{_suffix}",), _store_two(_bits // 8, _unit), kind="lds")


# Atomics


def _atomic(operation: str, words: int, *, returns: bool) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        operands = list(i.operands)
        dst = operands.pop(0) if returns else None
        address, data = operands[:2]
        compare = operands[2] if operation == "cmpswap" else None
        addresses = e.b.to("zext", _at(e, address, i.number("offset")), I64)
        old = call_atomic(e, i, addresses, LDS, operation, words, data, compare)
        if dst is not None:
            for at, value in enumerate(old):
                e.set_vgpr(dst.index + at, value)

    return emit


ATOMICS: dict[str, str] = {
    "add_u": "add", "sub_u": "sub", "rsub_u": "rsub", "inc_u": "inc", "dec_u": "dec", "min_i": "min_i",
    "min_u": "min_u", "max_i": "max_i", "max_u": "max_u", "and_b": "and", "or_b": "or", "xor_b": "xor",
    "cmpstore_b": "cmpswap", "add_f": "add_f", "min_f": "min_f", "max_f": "max_f", "min_num_f": "min_f",
    "max_num_f": "max_f",
}  # fmt: skip
"""Operations by the mnemonic without its width; of floats the width is part of the operation."""

for _name, _operation in ATOMICS.items():
    for _bits in (32, 64):
        if _name == "add_f" and _bits == 64:
            continue
        _full = _operation + str(_bits) if _operation.endswith("_f") else _operation
        _base, _, _type = _name.rpartition("_")
        add((f"ds_{_name}{_bits}",), _atomic(_full, _bits // 32, returns=False), kind="lds")
        _semantics = _atomic(_full, _bits // 32, returns=True)
        add((f"ds_{_base}_rtn_{_type}{_bits}",), _semantics, kind="lds")
for _bits in (32, 64):
    _semantics = _atomic("swap", _bits // 32, returns=True)
    add((f"ds_storexchg_rtn_b{_bits}",), _semantics, kind="lds")
for _name, _operation in (("sub_clamp", "sub_clamp"), ("cond_sub", "cond_sub")):
    _semantics = _atomic(_operation, 1, returns=False)
    add((f"ds_{_name}_u32",), _semantics, kind="lds", generations=(12,))
    _semantics = _atomic(_operation, 1, returns=True)
    add((f"ds_{_name}_rtn_u32",), _semantics, kind="lds", generations=(12,))


def _exchange_two(words: int, unit: int) -> Semantics:
    """Two places at once; of the same place twice, both results are what was there, and the second data stay
    (inferred).
    """

    def emit(e: Emitter, i: Instruction) -> None:
        dst, address, *data = i.operands[:4]
        old = []
        for name, operand in zip(("offset0", "offset1"), data, strict=True):
            places = e.b.to("zext", _at(e, address, i.number(name) * unit), I64)
            old.append(call_atomic(e, i, places, LDS, "swap", words, operand, None))
        if i.number("offset0") == i.number("offset1"):
            old[1] = old[0]
        for at, value in enumerate((*old[0], *old[1])):
            e.set_vgpr(dst.index + at, value)

    return emit


for _bits in (32, 64):
    for _stride, _factor in (("", 1), ("stride64_", 64)):
        _semantics = _exchange_two(_bits // 32, _bits // 8 * _factor)
        add((f"ds_storexchg_2addr_{_stride}rtn_b{_bits}",), _semantics, kind="lds")


# Permutations


def permuted(e: Emitter, value: Value, order: Value) -> Value:
    """Lane n of the result is lane order[n] (V32, taken modulo 32) of a value (V32)."""
    row = buffer("out")
    e.b.store(value, row, 64)
    offsets = e.b.shl(e.b.and_(order, const(V32, LANES - 1)), const(V32, 2))
    return gather(e, row, offsets, 4, const(V1, 1))[0]


@instruction("ds_bpermute_b32", kind="lds")
def _ds_bpermute_b32(e: Emitter, i: Instruction) -> None:
    dst, address, data = i.operands[:3]
    byte = e.b.add(e.v32(address), const(V32, i.number("offset")))
    seen = e.b.select(e.active, e.v32(data), const(V32, 0))  # inactive lanes give 0
    e.write(dst, permuted(e, seen, e.b.lshr(byte, const(V32, 2))))


@instruction("ds_permute_b32", kind="lds")
def _ds_permute_b32(e: Emitter, i: Instruction) -> None:
    dst, address, data = i.operands[:3]
    byte = e.b.add(e.v32(address), const(V32, i.number("offset")))
    lane = e.b.and_(e.b.lshr(byte, const(V32, 2)), const(V32, LANES - 1))
    row = buffer("out")
    e.b.store(const(V32, 0), row, 64)
    pointers = e.b.gep(I32, row, lane)
    values = (e.v32(data), pointers, const(I32, 4), e.active)
    e.b.call("llvm.masked.scatter.v32i32.v32p0", VOID, *values)  # the highest lane wins
    e.write(dst, e.b.load(V32, row, 64))


def swizzle(pattern: int) -> Callable[[int], int]:
    """Source lane by lane of a DS_SWIZZLE offset. Source: ISA manuals; bit 15 set: permute within quads."""
    if pattern >= 0xC000:  # rotate
        count, mask = pattern >> 5 & 0x1F, pattern & 0x1F
        count = -count if pattern >> 10 & 1 else count
        return lambda lane: (lane & mask) | ((lane + count) & ~mask & 0x1F)
    if pattern & 0x8000:
        return lambda lane: lane & ~3 | pattern >> 2 * (lane & 3) & 3
    keep, force, flip = pattern & 0x1F, pattern >> 5 & 0x1F, pattern >> 10 & 0x1F
    return lambda lane: ((lane & keep) | force) ^ flip


@instruction("ds_swizzle_b32", kind="lds")
def _ds_swizzle_b32(e: Emitter, i: Instruction) -> None:
    dst, data = i.operands[:2]
    pattern = i.code & 0xFFFF
    if pattern >= 0xE000:
        raise e.refuse("FFT mode is not implemented")
    source = swizzle(pattern)
    seen = e.b.select(e.active, e.v32(data), const(V32, 0))
    e.write(dst, e.b.shuffle(seen, None, [source(lane) for lane in range(LANES)]))


add(("ds_nop",), lambda e, i: None, kind="lds")

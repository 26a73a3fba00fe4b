"""Memory: SMEM, global, flat and scratch, with their atomics.

Translated code reaches memory by itself while an instruction stays in the piece of memory that it used last
(its `site`); everything else is done lane by lane by waves_load and its like in access.c.
"""

from __future__ import annotations

from dataclasses import dataclass

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.control import RUN
from emulator.amdgpu.isa.emit import Emitter, Semantics, add
from emulator.amdgpu.isa.ir import I8, I16, I32, I64, PTR, V1, V32, V64, VOID, Value, const
from emulator.amdgpu.isa.operands import LANES, Instruction, Operand

GLOBAL, FLAT, SCRATCH, LDS = range(4)
"""Spaces: enum waves_space."""

SPACES = {"global": GLOBAL, "flat": FLAT, "scratch": SCRATCH}

SITE = f"{{ {I64}, {I64}, {PTR} }}"
"""struct waves_site."""

ATOMICS = (
    "swap", "cmpswap", "add", "sub", "rsub", "min_i", "min_u", "max_i", "max_u", "and", "or", "xor", "inc",
    "dec", "sub_clamp", "add_f32", "min_f32", "max_f32", "add_f64", "min_f64", "max_f64", "cond_sub",
)  # fmt: skip
"""Read-modify-write operations: enum waves_operation."""

LANE_NUMBERS = ir.const_list(I32, range(LANES))


@dataclass(frozen=True, slots=True)
class Shape:
    """What a lane loads or stores.

    Attributes:
        size: bytes in memory.
        signed: whether a byte or a short is sign-extended.
        half: "low" or "high" half of a register that a d16 load fills, "" for whole registers.
    """

    size: int
    signed: bool = False
    half: str = ""

    @property
    def words(self) -> int:
        """Registers."""
        return (self.size + 3) // 4


LOADS = {
    "u8": Shape(1), "i8": Shape(1, True), "u16": Shape(2), "i16": Shape(2, True),
    "b32": Shape(4), "b64": Shape(8), "b96": Shape(12), "b128": Shape(16),
    "d16_u8": Shape(1, False, "low"), "d16_i8": Shape(1, True, "low"), "d16_b16": Shape(2, False, "low"),
    "d16_hi_u8": Shape(1, False, "high"), "d16_hi_i8": Shape(1, True, "high"),
    "d16_hi_b16": Shape(2, False, "high"),
}  # fmt: skip
"""By the end of the mnemonic."""

STORES = {
    "b8": Shape(1), "b16": Shape(2), "b32": Shape(4), "b64": Shape(8), "b96": Shape(12), "b128": Shape(16),
    "d16_hi_b8": Shape(1, False, "high"), "d16_hi_b16": Shape(2, False, "high"),
}  # fmt: skip


def bits_of(e: Emitter, lanes: Value) -> Value:
    """A lane mask as an I32."""
    return const(I32, -1) if lanes.ref == const(V1, 1).ref else e.b.cast("bitcast", lanes, I32)


def count_bytes(e: Emitter, local: str, lanes: Value, size: int) -> None:
    """Count what the lanes read or write."""
    count = e.b.mul(e.b.cast("zext", e.b.intrinsic("ctpop", lanes), I64), const(I64, size))
    e.set_local(local, e.b.add(e.local(local, I64), count))


def receive(e: Emitter, dst: Operand, shape: Shape, values: list[Value]) -> None:
    """Put what was loaded, zero-extended to dwords (V32), into registers."""
    if shape.size < 4 and shape.signed:
        shift = const(V32, 32 - 8 * shape.size)
        values = [e.b.ashr(e.b.shl(values[0], shift), shift)]
    if shape.half:
        e.write16(dst, e.b.to("trunc", values[0], I16), high=shape.half == "high")
        return
    for at, value in enumerate(values):
        e.set_vgpr(dst.index + at, value)


def payload(e: Emitter, operand: Operand, shape: Shape) -> list[Value]:
    """Registers to be stored."""
    if shape.half == "high":
        return [e.b.lshr(e.v32(operand), const(V32, 16))]
    return [e.vgpr(operand.index + at) for at in range(shape.words)]


def buffer(name: str, at: int = 0) -> Value:
    """A row of 32 lanes in the wave's memory for calls: %data, %compare, %out (%addresses has I64)."""
    return Value(PTR, f"%{name}{at}")


def pass_rows(e: Emitter, name: str, values: list[Value]) -> Value:
    """Put registers into memory for a call."""
    for at, value in enumerate(values):
        e.b.store(value, buffer(name, at), 64)
    return buffer(name)


# Addresses


@dataclass(frozen=True, slots=True)
class Address:
    """Where lanes go: a scalar base (I64) and offsets (V32, unsigned), or whole addresses (V64)."""

    base: Value | None
    offsets: Value | None
    whole: Value | None

    def lanes(self, e: Emitter) -> Value:
        """The addresses (V64)."""
        if self.whole is not None:
            return self.whole
        assert self.base is not None
        assert self.offsets is not None
        return e.b.add(e.b.splat(self.base), e.b.to("zext", self.offsets, I64))


def _address(e: Emitter, i: Instruction, space: int, vaddr: Operand, saddr: Operand | None) -> Address:
    offset = i.number("offset")
    if space == SCRATCH:
        total = const(V32, offset)
        for operand in (vaddr, saddr):
            if operand is not None and operand.kind != "off":
                total = e.b.add(total, e.v32(operand))
        return Address(const(I64, 0), total, None)
    if saddr is not None and saddr.kind == "s":
        return Address(e.b.add(e.s64(saddr), const(I64, offset)), e.v32(vaddr), None)
    return Address(None, None, e.b.add(e.v64(vaddr), const(V64, offset)))


# Loads


def _site(e: Emitter) -> tuple[Value, Value, Value, Value]:
    """A new site: its address, and its start, size and host address."""
    site = e.b.gep(SITE, Value(PTR, "%sites"), e.new_site())
    start = e.b.load(I64, site)
    size = e.b.load(I64, e.b.gep(I64, site, 1))
    host = e.b.load(PTR, e.b.gep(I64, site, 2))
    return site, start, size, host


def _reach(e: Emitter, address: Address, size: int) -> tuple[Value, Value, Value, Value]:
    """The site, whether all active lanes are in its piece (I1), a host pointer, and offsets from it."""
    site, start, length, host = _site(e)
    room = e.b.sub(length, const(I64, size))
    known = e.b.icmp("uge", length, const(I64, size))
    if address.whole is None:
        assert address.base is not None
        assert address.offsets is not None
        relative = e.b.sub(address.base, start)
        known = e.b.and_(known, e.b.icmp("ule", relative, room))
        limit = e.b.intrinsic("umin", e.b.sub(room, relative), const(I64, 0x7FFF_FFFF))
        inside = e.b.icmp("ule", address.offsets, e.b.splat(e.b.cast("trunc", limit, I32)))
        pointer, offsets = e.b.gep(I8, host, relative), address.offsets
    else:
        from_start = e.b.sub(address.whole, e.b.splat(start))
        inside = e.b.icmp("ule", from_start, e.b.splat(room))
        pointer, offsets = host, e.b.to("trunc", from_start, I32)
    outside = e.b.and_(bits_of(e, e.b.not_(inside)), bits_of(e, e.active))
    return site, e.b.and_(known, e.b.icmp("eq", outside, const(I32, 0))), pointer, offsets


def gather(e: Emitter, pointer: Value, offsets: Value, size: int, lanes: Value) -> list[Value]:
    """Dwords at host addresses (V32 each), zero-extended; 0 where `lanes` (V1) is not set.

    Bytes and shorts are read as dwords: there must be four bytes.
    """
    rows = []
    zero = const(V32, 0)
    for at in range(0, size, 4):
        pointers = e.b.gep(I8, e.b.gep(I8, pointer, at) if at else pointer, offsets)
        rows.append(e.b.call("llvm.masked.gather.v32i32.v32p0", V32, pointers, const(I32, 1), lanes, zero))
    if size < 4:
        rows = [e.b.and_(rows[0], const(V32, (1 << 8 * size) - 1))]
    return rows


def _load(space: int, shape: Shape) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, vaddr = i.operands[:2]
        address = _address(e, i, space, vaddr, i.operands[2] if len(i.operands) > 2 else None)
        if space == SCRATCH:
            lanes = bits_of(e, e.active)
            site = e.b.gep(SITE, Value(PTR, "%sites"), e.new_site())
            values = _call_load(e, i, site, address, lanes, shape, space)
        else:
            values = fast_load(e, i, address, shape, space)
        receive(e, dst, shape, values)

    return emit


def _call_load(
    e: Emitter, i: Instruction, site: Value, address: Address, lanes: Value, shape: Shape, space: int
) -> list[Value]:
    addresses = Value(PTR, "%addresses")
    e.b.store(address.lanes(e), addresses, 64)
    numbers = (const(I32, shape.size), const(I32, space), const(I64, i.address))
    e.b.call("waves_load", VOID, RUN, site, addresses, lanes, *numbers, buffer("out"))
    return [e.b.load(V32, buffer("out", at), 64) for at in range(shape.words)]


def fast_load(e: Emitter, i: Instruction, address: Address, shape: Shape, space: int) -> list[Value]:
    """Dwords (V32) of the active lanes, zero-extended; 0 in the others."""
    lanes = bits_of(e, e.active)
    site, near, pointer, offsets = _reach(e, address, max(4, shape.size))
    fast, slow, join = (e.b.new_label(hint) for hint in ("near", "far", "loaded"))
    e.b.branch_if(near, fast, slow, unlikely="other")
    e.b.start(fast)
    quick = gather(e, pointer, offsets, shape.size, e.active)
    fast_end = e.b.label
    e.b.branch(join)
    e.b.start(slow)
    careful = _call_load(e, i, site, address, lanes, shape, space)
    e.b.branch(join)
    slow_end = e.b.label
    e.b.start(join)
    counted = e.b.phi([(lanes, fast_end), (const(I32, 0), slow_end)])
    values = [e.b.phi([(a, fast_end), (b, slow_end)]) for a, b in zip(quick, careful, strict=True)]
    count_bytes(e, "read", counted, shape.size)
    return values


# Stores and atomics


def _store(space: int, shape: Shape) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        vaddr, data = i.operands[:2]
        address = _address(e, i, space, vaddr, i.operands[2] if len(i.operands) > 2 else None)
        call_store(e, i, address, shape, space, payload(e, data, shape))

    return emit


def call_store(
    e: Emitter, i: Instruction, address: Address, shape: Shape, space: int, values: list[Value]
) -> None:
    """Write what the active lanes have (V32 each)."""
    addresses = Value(PTR, "%addresses")
    e.b.store(address.lanes(e), addresses, 64)
    rows = pass_rows(e, "data", values)
    numbers = (const(I32, shape.size), const(I32, space), const(I64, i.address))
    e.b.call("waves_store", VOID, RUN, addresses, bits_of(e, e.active), *numbers, rows)


def call_atomic(
    e: Emitter,
    i: Instruction,
    addresses: Value,
    space: int,
    operation: str,
    words: int,
    data: Operand,
    compare: Operand | None,
) -> list[Value]:
    """Carry out a read-modify-write in each active lane (`addresses`: V64); what was there (V32 each)."""
    stack = Value(PTR, "%addresses")
    e.b.store(addresses, stack, 64)
    rows = pass_rows(e, "data", [e.vgpr(data.index + at) for at in range(words)])
    expected = rows
    if compare is not None:
        expected = pass_rows(e, "compare", [e.vgpr(compare.index + at) for at in range(words)])
    numbers = (const(I32, 4 * words), const(I32, space), const(I64, i.address))
    code = const(I32, ATOMICS.index(operation))
    lanes = bits_of(e, e.active)
    e.b.call("waves_atomic", VOID, RUN, stack, lanes, *numbers, code, rows, expected, buffer("out"))
    return [e.b.load(V32, buffer("out", at), 64) for at in range(words)]


def _atomic(space: int, operation: str, words: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        operands = list(i.operands)
        dst = operands.pop(0) if len(operands) > (3 if space == GLOBAL else 2) else None
        vaddr, data = operands[:2]
        address = _address(e, i, space, vaddr, operands[2] if len(operands) > 2 else None)
        compare = Operand("v", data.index + words, words) if operation == "cmpswap" else None
        old = call_atomic(e, i, address.lanes(e), space, operation, words, data, compare)
        if dst is not None:
            for at, value in enumerate(old):
                e.set_vgpr(dst.index + at, value)

    return emit


MEMORY_ATOMICS = {
    "swap_b": "swap", "cmpswap_b": "cmpswap", "add_u": "add", "sub_u": "sub", "min_i": "min_i",
    "min_u": "min_u", "max_i": "max_i", "max_u": "max_u", "and_b": "and", "or_b": "or", "xor_b": "xor",
    "inc_u": "inc", "dec_u": "dec",
}  # fmt: skip
"""Operations by the mnemonic without its width."""

for _space_name, _space in SPACES.items():
    for _suffix, _shape in LOADS.items():
        add((f"{_space_name}_load_{_suffix}",), _load(_space, _shape), kind="vmem")
    for _suffix, _shape in STORES.items():
        add((f"{_space_name}_store_{_suffix}",), _store(_space, _shape), kind="vmem")
    if _space == SCRATCH:
        continue
    for _suffix, _name in MEMORY_ATOMICS.items():
        for _bits in (32, 64):
            _semantics = _atomic(_space, _name, _bits // 32)
            add((f"{_space_name}_atomic_{_suffix}{_bits}",), _semantics, kind="vmem")
    add((f"{_space_name}_atomic_add_f32",), _atomic(_space, "add_f32", 1), kind="vmem")
    for _name in ("min", "max"):
        _names = (f"{_space_name}_atomic_{_name}_f32", f"{_space_name}_atomic_{_name}_num_f32")
        add(_names, _atomic(_space, f"{_name}_f32", 1), kind="vmem")
    _names = (f"{_space_name}_atomic_csub_u32", f"{_space_name}_atomic_sub_clamp_u32")
    add(_names, _atomic(_space, "sub_clamp", 1), kind="vmem")
    add((f"{_space_name}_atomic_cond_sub_u32",), _atomic(_space, "cond_sub", 1), kind="vmem")

add(
    ("global_inv", "global_wb", "global_wbinv", "buffer_gl0_inv", "buffer_gl1_inv"),
    lambda e, i: None,
    kind="vmem",
)  # nothing within a dispatch is ever stale here


# Scalar memory


def _scalar_offset(e: Emitter, i: Instruction) -> Value:
    """The sum of an immediate and a register (I64)."""
    total = const(I64, i.number("offset"))
    operand = i.operands[2]
    if operand.constant:
        return e.b.add(total, e.s64(operand, "sext"))
    return e.b.add(total, e.b.cast("zext", e.s32(operand), I64))


def _scalar_words(e: Emitter, i: Instruction, address: Value, size: int) -> list[Value]:
    """Read `size` bytes: dwords (I32), or one byte or short, zero-extended."""
    kind = {1: I8, 2: I16}.get(size, I32)
    count = max(1, size // 4)
    site, start, length, host = _site(e)
    relative = e.b.sub(address, start)
    room = e.b.sub(length, const(I64, size))
    known = e.b.icmp("uge", length, const(I64, size))
    near = e.b.and_(known, e.b.icmp("ule", relative, room))
    fast, slow, join = (e.b.new_label(hint) for hint in ("near", "far", "loaded"))
    e.b.branch_if(near, fast, slow, unlikely="other")
    e.b.start(slow)
    out = buffer("out")
    e.b.call("waves_scalar_load", VOID, RUN, site, address, const(I32, size), const(I64, i.address), out)
    e.b.branch(join)
    e.b.start(fast)
    pointer = e.b.gep(I8, host, relative)
    e.b.branch(join)
    e.b.start(join)
    chosen = e.b.phi([(out, slow), (pointer, fast)])
    e.set_local("read", e.b.add(e.local("read", I64), const(I64, size)))
    return [e.b.load(kind, e.b.gep(kind, chosen, at), 1) for at in range(count)]


def _scalar_load(size: int, *, signed: bool = False) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, base = i.operands[:2]
        address = e.b.add(e.s64(base), _scalar_offset(e, i))
        if size >= 4:
            address = e.b.and_(address, const(I64, -4))
        _receive_scalars(e, dst, _scalar_words(e, i, address, size), signed)

    return emit


def _receive_scalars(e: Emitter, dst: Operand, words: list[Value], signed: bool) -> None:
    for at, word in enumerate(words):
        if dst.kind != "null":
            e.set_sgpr(dst.index + at, e.b.cast("sext" if signed else "zext", word, I32))


def _scalar_buffer_load(size: int, *, signed: bool = False) -> Semantics:
    """Through a buffer's descriptor: what lies beyond its records reads as 0."""

    def emit(e: Emitter, i: Instruction) -> None:
        dst, descriptor = i.operands[:2]
        offset = _scalar_offset(e, i)
        if size >= 4:
            offset = e.b.and_(offset, const(I64, -4))
        first = e.sgpr64(descriptor.index)
        base = e.b.and_(first, const(I64, (1 << 48) - 1))
        stride = e.b.and_(e.b.lshr(first, const(I64, 48)), const(I64, 0x3FFF))
        records = e.b.cast("zext", e.sgpr(descriptor.index + 2), I64)
        structured = e.b.icmp("ne", stride, const(I64, 0))
        length = e.b.select(structured, e.b.mul(records, stride), records)
        room = e.b.call("llvm.usub.sat.i64", I64, length, const(I64, size - 1))
        inside = e.b.icmp("ult", offset, room)
        fast, join, before = e.b.new_label("inside"), e.b.new_label("read"), e.b.label
        read_before = e.local("read", I64)
        e.b.branch_if(inside, fast, join)
        e.b.start(fast)
        words = _scalar_words(e, i, e.b.add(base, offset), size)
        end = e.b.label
        e.b.branch(join)
        e.b.start(join)
        read = e.b.phi([(e.local("read", I64), end), (read_before, before)])
        chosen = [e.b.phi([(word, end), (const(word.type, 0), before)]) for word in words]
        e.set_local("read", read)
        _receive_scalars(e, dst, chosen, signed)

    return emit


for _size in (4, 8, 12, 16, 32, 64):
    _generations = (12,) if _size == 12 else (11, 12)
    add((f"s_load_b{8 * _size}",), _scalar_load(_size), kind="smem", generations=_generations)
    _semantics = _scalar_buffer_load(_size)
    add((f"s_buffer_load_b{8 * _size}",), _semantics, kind="smem", generations=_generations)
for _suffix, _size, _signed in (("u8", 1, False), ("i8", 1, True), ("u16", 2, False), ("i16", 2, True)):
    _semantics = _scalar_load(_size, signed=_signed)
    add((f"s_load_{_suffix}",), _semantics, kind="smem", generations=(12,))
    _semantics = _scalar_buffer_load(_size, signed=_signed)
    add((f"s_buffer_load_{_suffix}",), _semantics, kind="smem", generations=(12,))

add(
    ("s_dcache_inv", "s_gl1_inv", "s_prefetch_inst", "s_prefetch_inst_pc_rel", "s_prefetch_data",
     "s_buffer_prefetch_data", "s_prefetch_data_pc_rel"),
    lambda e, i: None,
    kind="smem",
)  # fmt: skip

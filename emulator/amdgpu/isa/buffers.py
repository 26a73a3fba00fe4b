"""Buffer instructions without formats: MUBUF of RDNA3, VBUFFER of RDNA4, by a descriptor of four SGPRs.

Address: base + SOFFSET + offset + index * stride, the offset being the instruction's and (offen) a VGPR's,
the index (idxen) a VGPR's. Lanes out of range read 0 and write nothing; OOB_SELECT has the condition: 0 the
index or the offset into its structure, 1 the index, 2 a buffer without records, 3 the bytes from the base. A
buffer that is swizzled, or adds the lane's number to the index, ends the dispatch: it is not implemented.
Source: RDNA3 and RDNA4 ISA manuals, "Vector Memory Buffer Instructions". A lane's whole access is in range or
is not (inferred).
"""

from __future__ import annotations

from emulator.amdgpu.isa import control
from emulator.amdgpu.isa.emit import Emitter, Semantics, add
from emulator.amdgpu.isa.ir import I32, I64, V32, V64, Value, const
from emulator.amdgpu.isa.memory import (
    GLOBAL,
    LOADS,
    MEMORY_ATOMICS,
    STORES,
    Address,
    Shape,
    call_atomic,
    call_store,
    fast_load,
    payload,
    receive,
)
from emulator.amdgpu.isa.operands import Instruction, Operand

MODIFIERS = "offen idxen"
ADD_TID = 1 << 23
"""Word 3: the lane's number is added to the index."""


def _reach(e: Emitter, i: Instruction, size: int) -> tuple[Address, Value]:
    """Where the lanes go, and which of them are in range (V1)."""
    b = e.b
    _, vaddr, descriptor, soffset = i.operands
    first = e.sgpr64(descriptor.index)
    records, last = e.sgpr(descriptor.index + 2), e.sgpr(descriptor.index + 3)
    upper = b.cast("trunc", b.lshr(first, const(I64, 32)), I32)
    _refuse_at_run_time(e, i, upper, last)

    index, offset = const(V32, 0), const(V32, i.number("offset"))
    register = vaddr.index
    if "idxen" in i.modifiers:
        index, register = e.vgpr(register), register + 1
    if "offen" in i.modifiers:
        offset = b.add(offset, e.vgpr(register))
    scalar = b.cast("zext", e.s32(soffset), I64)
    stride = b.cast("zext", b.and_(b.lshr(upper, const(I32, 16)), const(I32, 0x3FFF)), I64)
    wide = b.to("zext", offset, I64)
    place = b.add(b.mul(b.to("zext", index, I64), b.splat(stride)), wide)
    start = b.add(b.and_(first, const(I64, (1 << 48) - 1)), scalar)

    count = b.splat(b.cast("zext", records, I64))
    room = b.splat(scalar)
    counted = b.icmp("ult", b.to("zext", index, I64), count)
    inside = b.icmp("ule", b.add(wide, const(V64, size)), b.splat(stride))
    raw = b.icmp("ule", b.add(b.add(place, room), const(V64, size)), count)
    select = b.and_(b.lshr(last, const(I32, 28)), const(I32, 3))
    good = b.icmp("ne", count, const(V64, 0))
    for number, test in ((0, b.and_(counted, inside)), (1, counted), (3, raw)):
        chosen = b.splat(b.icmp("eq", select, const(I32, number)))
        good = b.select(chosen, test, good)
    return Address(None, None, b.add(b.splat(start), place)), good


def _refuse_at_run_time(e: Emitter, i: Instruction, upper: Value, last: Value) -> None:
    """End the dispatch at a descriptor of a kind that is not implemented."""
    b = e.b
    special = b.or_(b.lshr(upper, const(I32, 30)), b.and_(last, const(I32, ADD_TID)))
    bad, on = b.new_label("swizzled"), b.new_label("plain")
    b.branch_if(b.icmp("ne", special, const(I32, 0)), bad, on, unlikely="then")
    b.start(bad)
    control.stop(e, control.BUFFER, i.address, const(I64, 0))
    b.start(on)


def _load(shape: Shape) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        address, good = _reach(e, i, shape.size)
        with e.within(good):
            values = fast_load(e, i, address, shape, GLOBAL)
        receive(e, i.operands[0], shape, values)

    return emit


def _store(shape: Shape) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        address, good = _reach(e, i, shape.size)
        with e.within(good):
            call_store(e, i, address, shape, GLOBAL, payload(e, i.operands[0], shape))

    return emit


def _atomic(operation: str, words: int) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        data = i.operands[0]
        address, good = _reach(e, i, 4 * words)
        compare = Operand("v", data.index + words, words) if operation == "cmpswap" else None
        with e.within(good):
            old = call_atomic(e, i, address.lanes(e), GLOBAL, operation, words, data, compare)
        if "glc" not in i.modifiers and "RETURN" not in str(i.modifiers.get("th", "")):
            return
        for at, value in enumerate(old):
            e.set_vgpr(data.index + at, value)

    return emit


def _add(name: str, semantics: Semantics) -> None:
    add((f"buffer_{name}",), semantics, kind="vmem", modifiers=MODIFIERS)


for _suffix, _shape in LOADS.items():
    _add(f"load_{_suffix}", _load(_shape))
for _suffix, _shape in STORES.items():
    _add(f"store_{_suffix}", _store(_shape))
for _suffix, _name in MEMORY_ATOMICS.items():
    for _bits in (32, 64):
        _add(f"atomic_{_suffix}{_bits}", _atomic(_name, _bits // 32))
_add("atomic_add_f32", _atomic("add_f32", 1))
for _name in ("min", "max"):
    for _suffix in ("f32", "num_f32"):
        _add(f"atomic_{_name}_{_suffix}", _atomic(f"{_name}_f32", 1))
_add("atomic_csub_u32", _atomic("sub_clamp", 1))
_add("atomic_sub_clamp_u32", _atomic("sub_clamp", 1))
_add("atomic_cond_sub_u32", _atomic("cond_sub", 1))

"""Dot products of the parts of 32-bit lanes: v_dot4, v_dot8, v_dot2.

Bytes multiply fastest by VPDPBUSD, unsigned by signed, where the host has it: an operand of the wrong
signedness is moved by 128, and what that adds is subtracted again.
"""

from __future__ import annotations

import functools

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import I8, I32, V32, Value, const
from emulator.amdgpu.isa.operands import Instruction
from emulator.amdgpu.isa.vector.frame import like
from sdk.extras import require

HALF = ir.vector(I32, 16)
MIDDLE = -0x7F7F7F80  # 0x80808080, signed


@functools.cache
def has_dot_products() -> bool:
    """Whether the host has VPDPBUSD on 512 bits."""
    return bool(require("llvmlite.binding", extra="emulator").get_host_cpu_features().get("avx512vnni"))


def busd(e: Emitter, total: Value, unsigned: Value, signed: Value) -> Value:
    """VPDPBUSD on all lanes: total + the sums of four products of bytes, unsigned by signed."""
    halves = []
    for start in (0, 16):
        parts = (e.b.shuffle(value, None, range(start, start + 16)) for value in (total, unsigned, signed))
        halves.append(e.b.call("llvm.x86.avx512.vpdpbusd.512", HALF, *parts))
    return e.b.shuffle(halves[0], halves[1], range(32))


def _each_byte(e: Emitter, total: Value, a: Value, c: Value, a_signed: bool, c_signed: bool) -> Value:
    for left in (24, 16, 8, 0):
        factors = []
        for value, signed in ((a, a_signed), (c, c_signed)):
            top = e.b.shl(value, like(value, left)) if left else value
            factors.append(e.b.binary("ashr" if signed else "lshr", top, like(value, 24)))
        total = e.b.add(total, e.b.mul(*factors))
    return total


def dot4(e: Emitter, total: Value, a: Value, c: Value, a_signed: bool, c_signed: bool) -> Value:
    """Total + the sum of the products of four bytes each, modulo 2^32 (all V32)."""
    if not has_dot_products():
        return _each_byte(e, total, a, c, a_signed, c_signed)
    b = e.b
    if a_signed and not c_signed:
        a, c = c, a
    elif a_signed:  # (a + 128) c - 128 c
        middle = like(a, MIDDLE)
        return b.sub(busd(e, total, b.xor(a, middle), c), busd(e, const(V32, 0), middle, c))
    elif not c_signed:  # a (c - 128) + 128 a = a (c - 128) - (a * -128)
        middle = like(c, MIDDLE)
        return b.sub(busd(e, total, a, b.xor(c, middle)), busd(e, const(V32, 0), a, middle))
    return busd(e, total, a, c)


def nibbles(e: Emitter, value: Value, signed: bool) -> tuple[Value, Value]:
    """The even and the odd nibbles, as bytes."""
    b = e.b
    halves = []
    for part in (value, b.lshr(value, like(value, 4))):
        part = b.and_(part, like(part, 0x0F0F0F0F))
        if signed:
            whole = b.cast("bitcast", part, ir.vector(I8, 4 * ir.split(part.type)[0]))
            eight = like(whole, 8)
            part = b.cast("bitcast", b.sub(b.xor(whole, eight), eight), part.type)
        halves.append(part)
    return halves[0], halves[1]


def dot8(e: Emitter, total: Value, a: Value, c: Value, a_signed: bool, c_signed: bool) -> Value:
    """Total + the sum of the products of eight nibbles each."""
    pairs = zip(nibbles(e, a, a_signed), nibbles(e, c, c_signed), strict=True)
    for first, second in pairs:
        total = dot4(e, total, first, second, a_signed, c_signed)
    return total


def _register(name: str, mixed: bool) -> None:
    work = dot4 if "dot4" in name else dot8

    def emit(e: Emitter, i: Instruction) -> None:
        target, first, second, third = i.operands
        a, c, d = e.v32(first), e.v32(second), e.v32(third)
        negative = i.bits("neg_lo", (0, 0, 0)) if mixed else (0, 0, 0)
        a_signed, c_signed = bool(negative[0]), bool(negative[1])
        if negative[2]:
            raise e.refuse("neg_lo of source 2 is not implemented for it")
        if "clamp" in i.modifiers:
            whole = work(e, const(V32, 0), a, c, a_signed, c_signed)
            e.write(target, e.b.intrinsic("sadd.sat" if mixed else "uadd.sat", whole, d))
        else:
            e.write(target, work(e, d, a, c, a_signed, c_signed))

    add([name], emit, modifiers="clamp neg_lo" if mixed else "clamp")


_register("v_dot4_i32_iu8", True)
_register("v_dot4_u32_u8", False)
_register("v_dot8_i32_iu4", True)
_register("v_dot8_u32_u4", False)

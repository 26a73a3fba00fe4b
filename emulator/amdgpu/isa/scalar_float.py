"""Floating point on the scalar ALU, which gfx12 has. Source: RDNA4 ISA manual, "Scalar ALU Operations".

f32 and f16; rounding and denormals are as MODE says, as on the vector ALU (inferred).
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, Semantics, add
from emulator.amdgpu.isa.ir import F16, F32, I16, I32, Value, const
from emulator.amdgpu.isa.operands import Instruction, Operand
from emulator.amdgpu.isa.vector.arithmetic import ZERO, convert, fadd, fma, fmul, fsub, narrow
from emulator.amdgpu.isa.vector.convert import from_integer
from emulator.amdgpu.isa.vector.frame import incoming, outgoing

INTEGERS = {F16: I16, F32: I32}


def _read(e: Emitter, operand: Operand, kind: str) -> Value:
    if kind == F16 and operand.kind == "float":
        return const(F16, operand.value)
    bits = e.b.cast("trunc", e.s32(operand), INTEGERS[kind])
    return incoming(e, e.modified(operand, e.b.cast("bitcast", bits, kind)))


def _write(e: Emitter, operand: Operand, value: Value) -> None:
    if e.mode.fp16_ovfl and value.type == F16:
        raise e.refuse("FP16_OVFL is not implemented for f16")
    value = outgoing(e, value)
    bits = e.b.cast("bitcast", value, INTEGERS[value.type])
    e.write_s(operand, e.b.cast("zext", bits, I32))


def _operation(kind: str, function: Callable[..., Value]) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, *sources = i.operands
        _write(e, dst, function(e, *(_read(e, source, kind) for source in sources)))

    return emit


def _accumulate(kind: str) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, left, right = i.operands
        _write(e, dst, fma(e, *(_read(e, each, kind) for each in (left, right, dst))))

    return emit


OPERATIONS: dict[str, Callable[..., Value]] = {
    "add": fadd,
    "sub": fsub,
    "mul": fmul,
    "min_num": lambda e, a, b: e.b.intrinsic("minimumnum", a, b),
    "max_num": lambda e, a, b: e.b.intrinsic("maximumnum", a, b),
    "minimum": lambda e, a, b: e.b.intrinsic("minimum", a, b),
    "maximum": lambda e, a, b: e.b.intrinsic("maximum", a, b),
    "ceil": lambda e, a: e.b.intrinsic("ceil", a),
    "floor": lambda e, a: e.b.intrinsic("floor", a),
    "trunc": lambda e, a: e.b.intrinsic("trunc", a),
    "rndne": lambda e, a: e.b.intrinsic("roundeven", a),
}

CONDITIONS = {
    "lt": "olt", "eq": "oeq", "le": "ole", "gt": "ogt", "lg": "one", "ge": "oge", "o": "ord", "u": "uno",
    "nge": "ult", "nlg": "ueq", "ngt": "ule", "nle": "ugt", "neq": "une", "nlt": "uge",
}  # fmt: skip


def _compare(kind: str, predicate: str) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        left, right = i.operands
        e.scc = e.b.fcmp(predicate, _read(e, left, kind), _read(e, right, kind))

    return emit


for _kind, _suffix in ((F32, "f32"), (F16, "f16")):
    for _name, _function in OPERATIONS.items():
        add((f"s_{_name}_{_suffix}",), _operation(_kind, _function), kind="salu", generations=(12,))
    add((f"s_fmac_{_suffix}",), _accumulate(_kind), kind="salu", generations=(12,))
    for _name, _predicate in CONDITIONS.items():
        add((f"s_cmp_{_name}_{_suffix}",), _compare(_kind, _predicate), kind="salu", generations=(12,))


add(("s_fmamk_f32", "s_fmaak_f32"), _operation(F32, fma), kind="salu", generations=(12,))


def _from_integer(*, signed: bool) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, source = i.operands
        _write(e, dst, from_integer(e, e.s32(source), F32, signed))

    return emit


def _to_integer(name: str) -> Semantics:
    """Towards zero, saturating; NaN gives 0."""

    def emit(e: Emitter, i: Instruction) -> None:
        dst, source = i.operands
        e.write_s(dst, e.b.call(f"llvm.{name}.sat.i32.f32", I32, _read(e, source, F32)))

    return emit


add(("s_cvt_f32_i32",), _from_integer(signed=True), kind="salu", generations=(12,))
add(("s_cvt_f32_u32",), _from_integer(signed=False), kind="salu", generations=(12,))
add(("s_cvt_i32_f32",), _to_integer("fptosi"), kind="salu", generations=(12,))
add(("s_cvt_u32_f32",), _to_integer("fptoui"), kind="salu", generations=(12,))


def _narrow(e: Emitter, i: Instruction) -> None:
    dst, source = i.operands
    _write(e, dst, convert(e, _read(e, source, F32), F16))


def _pair(e: Emitter, i: Instruction) -> None:
    """Two f32s as f16s, rounded to zero."""
    dst, *sources = i.operands
    low, high = (
        e.b.cast("zext", e.b.cast("bitcast", narrow(e, _read(e, each, F32), F16, ZERO), I16), I32)
        for each in sources
    )
    e.write_s(dst, e.b.or_(low, e.b.shl(high, const(I32, 16))))


def _widen(*, high: bool) -> Semantics:
    def emit(e: Emitter, i: Instruction) -> None:
        dst, source = i.operands
        if high:
            bits = e.b.cast("trunc", e.b.lshr(e.s32(source), const(I32, 16)), I16)
            value = incoming(e, e.b.cast("bitcast", bits, F16))
        else:
            value = _read(e, source, F16)
        _write(e, dst, e.b.cast("fpext", value, ir.F32))

    return emit


add(("s_cvt_pk_rtz_f16_f32",), _pair, kind="salu", generations=(12,))
add(("s_cvt_f16_f32",), _narrow, kind="salu", generations=(12,))
add(("s_cvt_f32_f16",), _widen(high=False), kind="salu", generations=(12,))
add(("s_cvt_hi_f32_f16",), _widen(high=True), kind="salu", generations=(12,))

"""Writes LLVM IR as text.

A kernel of a few hundred instructions becomes many thousands of lines; they are written in about a
microsecond each, which a general library for IR does not do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from emulator.amdgpu.isa.operands import LANES as LANES

I1, I8, I16, I32, I64, I128 = "i1", "i8", "i16", "i32", "i64", "i128"
F16, F32, F64 = "half", "float", "double"
BF16 = "bfloat"
PTR = "ptr"
VOID = "void"

BITS = {I1: 1, I8: 8, I16: 16, I32: 32, I64: 64, I128: 128, F16: 16, BF16: 16, F32: 32, F64: 64}


@cache
def vector(element: str, count: int = LANES) -> str:
    """The type of a vector."""
    return f"<{count} x {element}>"


@cache
def split(kind: str) -> tuple[int, str]:
    """Number of elements (0 for a scalar) and type of one."""
    if not kind.startswith("<"):
        return 0, kind
    count, _, element = kind[1:-1].partition(" x ")
    return int(count), element


@cache
def shaped(kind: str, element: str) -> str:
    """The type with `element` that has as many as `kind`."""
    count = split(kind)[0]
    return vector(element, count) if count else element


V1, V8, V16, V32, V64 = (vector(kind) for kind in (I1, I8, I16, I32, I64))
VF16, VF32, VF64 = (vector(kind) for kind in (F16, F32, F64))
VPTR = vector(PTR)


@dataclass(frozen=True, slots=True)
class Value:
    """A value: its type, and how it is referred to."""

    type: str
    ref: str

    def __str__(self) -> str:
        return f"{self.type} {self.ref}"


def _literal(element: str, value: int | float) -> str:
    if element in (F64, F32):
        number = float(value) if element == F64 else struct.unpack("<f", struct.pack("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if element == F16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if element == BF16:
        return f"0xR{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}"
    if element == I1:
        return "true" if value else "false"
    if element == PTR:
        return "null"
    return str(int(value))


def const(kind: str, value: int | float) -> Value:
    """A constant; of a vector, the same in all elements. Floats are given as numbers."""
    return _const(kind, _literal(split(kind)[1], value))


@cache
def _const(kind: str, literal: str) -> Value:
    """By how it is written: as numbers, 0 and -0 are alike."""
    count, element = split(kind)
    return Value(kind, f"splat ({element} {literal})" if count else literal)


def const_list(element: str, values: Sequence[int | float]) -> Value:
    """A constant vector of these elements."""
    items = ", ".join(f"{element} {_literal(element, value)}" for value in values)
    return Value(vector(element, len(values)), f"<{items}>")


def poison(kind: str) -> Value:
    return Value(kind, "poison")


class Builder:
    """Writes one function's body.

    Attributes:
        label: of the block being written.
        declarations: of what is called, by name.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: dict[str, str] = {}
        self.label = ""
        self._count = 0

    # Blocks

    def new_label(self, hint: str = "b") -> str:
        self._count += 1
        return f"{hint}.{self._count}"

    def start(self, label: str) -> None:
        """Go on in this block."""
        self.lines.append(f"{label}:")
        self.label = label

    def branch(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def branch_if(self, condition: Value, then: str, other: str, *, unlikely: str = "") -> None:
        """A conditional branch; `unlikely` is "then" or "other" if one of them is hardly ever taken."""
        weights = {"": "", "then": ", !prof !0", "other": ", !prof !1"}[unlikely]
        self.lines.append(f"  br {condition}, label %{then}, label %{other}{weights}")

    def switch(self, value: Value, default: str, cases: Iterable[tuple[int, str]]) -> None:
        arms = " ".join(f"{value.type} {number}, label %{label}" for number, label in cases)
        self.lines.append(f"  switch {value}, label %{default} [{arms}]")

    def ret(self) -> None:
        self.lines.append("  ret void")

    def unreachable(self) -> None:
        self.lines.append("  unreachable")

    # Instructions

    def _emit(self, kind: str, text: str) -> Value:
        self._count += 1
        ref = f"%v{self._count}"
        self.lines.append(f"  {ref} = {text}")
        return Value(kind, ref)

    def binary(self, operation: str, left: Value, right: Value, flags: str = "") -> Value:
        """Any LLVM operation of two values of one type."""
        return self._emit(left.type, f"{operation} {flags}{left.type} {left.ref}, {right.ref}")

    def add(self, left: Value, right: Value) -> Value:
        return self.binary("add", left, right)

    def sub(self, left: Value, right: Value) -> Value:
        return self.binary("sub", left, right)

    def mul(self, left: Value, right: Value) -> Value:
        return self.binary("mul", left, right)

    def and_(self, left: Value, right: Value) -> Value:
        return self.binary("and", left, right)

    def or_(self, left: Value, right: Value) -> Value:
        return self.binary("or", left, right)

    def xor(self, left: Value, right: Value) -> Value:
        return self.binary("xor", left, right)

    def not_(self, value: Value) -> Value:
        return self.binary("xor", value, const(value.type, 1 if split(value.type)[1] == I1 else -1))

    def shl(self, left: Value, right: Value) -> Value:
        """Poison if the count is not less than the width: mask it first."""
        return self.binary("shl", left, right)

    def lshr(self, left: Value, right: Value) -> Value:
        return self.binary("lshr", left, right)

    def ashr(self, left: Value, right: Value) -> Value:
        return self.binary("ashr", left, right)

    def fadd(self, left: Value, right: Value) -> Value:
        return self.binary("fadd", left, right)

    def fsub(self, left: Value, right: Value) -> Value:
        return self.binary("fsub", left, right)

    def fmul(self, left: Value, right: Value) -> Value:
        return self.binary("fmul", left, right)

    def fdiv(self, left: Value, right: Value) -> Value:
        return self.binary("fdiv", left, right)

    def fneg(self, value: Value) -> Value:
        return self._emit(value.type, f"fneg {value}")

    def icmp(self, predicate: str, left: Value, right: Value) -> Value:
        """eq, ne, ult, slt, ..."""
        return self._emit(shaped(left.type, I1), f"icmp {predicate} {left.type} {left.ref}, {right.ref}")

    def fcmp(self, predicate: str, left: Value, right: Value) -> Value:
        """oeq, olt, une, uno, ord, ..."""
        return self._emit(shaped(left.type, I1), f"fcmp {predicate} {left.type} {left.ref}, {right.ref}")

    def select(self, condition: Value, then: Value, other: Value) -> Value:
        return self._emit(then.type, f"select {condition}, {then}, {other}")

    def cast(self, operation: str, value: Value, kind: str) -> Value:
        """zext, sext, trunc, bitcast, fptosi, uitofp, fpext, inttoptr, ...: to a type of the same shape."""
        if value.type == kind and operation in ("bitcast", "zext", "sext", "trunc", "fpext", "fptrunc"):
            return value
        return self._emit(kind, f"{operation} {value} to {kind}")

    def to(self, operation: str, value: Value, element: str) -> Value:
        """`cast` to a type of the same shape with these elements."""
        return self.cast(operation, value, shaped(value.type, element))

    def splat(self, value: Value, count: int = LANES) -> Value:
        """A scalar in all elements of a vector."""
        kind = vector(value.type, count)
        if not value.ref.startswith("%"):
            return Value(kind, f"splat ({value})")
        first = self._emit(kind, f"insertelement {kind} poison, {value}, i64 0")
        return self._emit(kind, f"shufflevector {first}, {kind} poison, <{count} x i32> zeroinitializer")

    def extract(self, value: Value, index: int | Value) -> Value:
        at = str(index) if isinstance(index, Value) else f"i64 {index}"
        return self._emit(split(value.type)[1], f"extractelement {value}, {at}")

    def insert(self, value: Value, element: Value, index: int | Value) -> Value:
        at = str(index) if isinstance(index, Value) else f"i64 {index}"
        return self._emit(value.type, f"insertelement {value}, {element}, {at}")

    def shuffle(self, left: Value, right: Value | None, order: Sequence[int]) -> Value:
        """Elements of both by number; -1 is any."""
        element = split(left.type)[1]
        items = ", ".join(f"i32 {item}" if item >= 0 else "i32 poison" for item in order)
        second = right or poison(left.type)
        kind = vector(element, len(order))
        return self._emit(kind, f"shufflevector {left}, {second}, <{len(order)} x i32> <{items}>")

    def phi(self, pairs: Sequence[tuple[Value, str]]) -> Value:
        """Values by the block that they come from."""
        arms = ", ".join(f"[ {value.ref}, %{label} ]" for value, label in pairs)
        return self._emit(pairs[0][0].type, f"phi {pairs[0][0].type} {arms}")

    # Memory

    def gep(self, element: str, pointer: Value, index: Value | int) -> Value:
        """The address of an element; a vector if either is one."""
        at = index if isinstance(index, Value) else const(I64, index)
        kind = pointer.type if pointer.type != PTR else shaped(at.type, PTR)
        return self._emit(kind, f"getelementptr {element}, {pointer}, {at}")

    def load(self, kind: str, pointer: Value, align: int = 0, *, volatile: bool = False) -> Value:
        operation = "load volatile" if volatile else "load"
        return self._emit(kind, f"{operation} {kind}, {pointer}{f', align {align}' if align else ''}")

    def store(self, value: Value, pointer: Value, align: int = 0) -> None:
        self.lines.append(f"  store {value}, {pointer}{f', align {align}' if align else ''}")

    def call(self, name: str, kind: str, *args: Value) -> Value:
        """Call an intrinsic or another function by name; its declaration follows from the arguments."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {kind} @{name}({', '.join(arg.type for arg in args)})"
        text = f"call {kind} @{name}({', '.join(map(str, args))})"
        if kind == VOID:
            self.lines.append(f"  {text}")
            return Value(VOID, "")
        return self._emit(kind, text)

    def intrinsic(self, name: str, *args: Value) -> Value:
        """An intrinsic overloaded by its first argument's type, which it returns: `umin`, `fma`, `fabs`..."""
        if name in ("minimumnum", "maximumnum"):  # of zeros, LLVM 20 takes either on x86
            left, right = args
            args = (
                self.select(self.fcmp("uno", left, left), right, left),
                self.select(self.fcmp("uno", right, right), left, right),
            )
            name = name.removesuffix("num")
        kind = args[0].type
        count, element = split(kind)
        mangled = {F16: "f16", BF16: "bf16", F32: "f32", F64: "f64"}.get(element, element)
        return self.call(f"llvm.{name}.{f'v{count}' if count else ''}{mangled}", kind, *args)

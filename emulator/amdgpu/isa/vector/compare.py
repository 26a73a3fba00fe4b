"""Comparisons: v_cmp writes a lane mask, v_cmpx writes EXEC; v_cmp_class looks at what kind a float is.

Source: RDNA3 and RDNA4 ISA manuals, VOPC. Lanes that are not active get a 0.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.isa import ir
from emulator.amdgpu.isa.emit import Emitter, add
from emulator.amdgpu.isa.ir import V1, Value, const
from emulator.amdgpu.isa.operands import EXEC, Instruction
from emulator.amdgpu.isa.vector.floating import signalling
from emulator.amdgpu.isa.vector.frame import (
    FLOATS,
    FRACTION,
    bits,
    check,
    element,
    exponent_mask,
    like,
    pattern,
    read,
)

FLOAT_CONDITIONS = {
    "lt": "olt", "eq": "oeq", "le": "ole", "gt": "ogt", "lg": "one", "ge": "oge", "o": "ord", "u": "uno",
    "nge": "ult", "nlg": "ueq", "ngt": "ule", "nle": "ugt", "neq": "une", "nlt": "uge",
}  # fmt: skip
"""LLVM's predicates by ours: lg is "less or greater", the n ones are true for NaNs."""

INTEGER_CONDITIONS = ("lt", "eq", "le", "gt", "ne", "ge")

Test = Callable[[Emitter, Value, Value], Value]


def _always(answer: int) -> Test:
    return lambda e, a, c: const(V1, answer)


def _floats(predicate: str) -> Test:
    return lambda e, a, c: e.b.fcmp(predicate, a, c)


def _integers(condition: str, signed: bool) -> Test:
    predicate = condition if condition in ("eq", "ne") else f"{'s' if signed else 'u'}{condition}"
    return lambda e, a, c: e.b.icmp(predicate, a, c)


def float_class(e: Emitter, a: Value, mask: Value) -> Value:
    """Whether a float is of one of the classes in the mask: bits 0 signalling NaN, 1 quiet NaN, 2 -infinity,
    3 -normal, 4 -denormal, 5 -0, 6 +0, 7 +denormal, 8 +normal, 9 +infinity.
    """
    b, kind = e.b, element(a)
    whole = bits(e, a)
    infinity = exponent_mask(kind)
    magnitude = b.and_(whole, pattern(whole, infinity | (1 << FRACTION[kind]) - 1))
    negative = b.icmp("slt", whole, like(whole, 0))
    mask = b.to("zext", mask, ir.I32)

    def chosen(minus: int, plus: int) -> Value:
        return b.select(negative, const(ir.V32, 1 << minus), const(ir.V32, 1 << plus))

    wanted = chosen(3, 8)
    wanted = b.select(b.icmp("ult", magnitude, like(whole, 1 << FRACTION[kind])), chosen(4, 7), wanted)
    wanted = b.select(b.icmp("eq", magnitude, like(whole, 0)), chosen(5, 6), wanted)
    wanted = b.select(b.icmp("eq", magnitude, like(whole, infinity)), chosen(2, 9), wanted)
    wanted = b.select(b.icmp("ugt", magnitude, like(whole, infinity)), const(ir.V32, 2), wanted)
    wanted = b.select(signalling(e, a), const(ir.V32, 1), wanted)
    return b.icmp("ne", b.and_(wanted, mask), const(ir.V32, 0))


def _register(condition: str, suffix: str, kinds: tuple[str, str], test: Test, old: bool) -> None:
    generations = (11,) if old else (11, 12)

    def compared(e: Emitter, i: Instruction) -> Value:
        sources = i.operands[-2:]
        check(e, i, "lanes", kinds, sources)
        return test(e, *(read(e, i, sources[at], kinds[at], at) for at in (0, 1)))

    def to_mask(e: Emitter, i: Instruction) -> None:
        e.write_lanes(i.operands[0], compared(e, i))

    def to_exec(e: Emitter, i: Instruction) -> None:
        e.set_mask(EXEC, e.b.and_(compared(e, i), e.active))

    add([f"v_cmp_{condition}_{suffix}"], to_mask, generations=generations, modifiers="neg op_sel")
    add([f"v_cmpx_{condition}_{suffix}"], to_exec, generations=generations, modifiers="neg op_sel")


for kind in FLOATS:
    for condition, predicate in FLOAT_CONDITIONS.items():
        _register(condition, kind, (kind, kind), _floats(predicate), False)
    _register("f", kind, (kind, kind), _always(0), True)
    _register("t", kind, (kind, kind), _always(1), True)
    _register("class", kind, (kind.upper(), "b16" if kind == "f16" else "b32"), float_class, False)
for width in (16, 32, 64):
    for letter in ("i", "u"):
        source = "i64" if (letter, width) == ("i", 64) else f"b{width}"
        for condition in INTEGER_CONDITIONS:
            _register(
                condition, f"{letter}{width}", (source, source), _integers(condition, letter == "i"), False
            )
        if width > 16:
            _register("f", f"{letter}{width}", (source, source), _always(0), True)
            _register("t", f"{letter}{width}", (source, source), _always(1), True)

"""What kernels that are written for a network share: loops over views, and the launch's words for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sdk.opencl.calls import KernelSource, Words, divisor
from sdk.opencl.views import View

Axis = tuple[int, tuple[int, ...]]
"""Extent, and the step in each of the streams that are walked together; the innermost axis comes first."""

COUNTED = ("float16", "float32")
"""Elements of kernels with static counts."""


def kernel(
    symbol: str,
    threads: int,
    parameters: Sequence[str],
    head: Sequence[str],
    body: Sequence[str],
    numbers: Mapping[str, int] = MappingProxyType({}),
) -> KernelSource:
    """A kernel whose argument `m`, behind its pointers, is a struct of its own name."""
    return KernelSource(
        *(symbol, symbol, threads, (), "\n".join(body), tuple(parameters), symbol, "\n".join(head)),
        tuple(numbers.items()),
    )


def struct(streams: int, name: str = "axis") -> str:
    """Of an axis of so many streams."""
    return f"struct {name} {{ u32 extent; struct divisor by; s32 steps[{streams}]; }};"


def words(axes: Sequence[Axis]) -> Words:
    found: Words = []
    for extent, steps in axes:
        found += [extent, *divisor(extent), *steps]
    return found


def decode(axes: str, count: int, streams: int, rest: str, at: str) -> list[str]:
    """Add the place of item `rest`, which is used up, to `at[streams]`."""
    return [
        f"  UNROLL for (u32 i = 0; i < {count}; i++) {{",
        f"    u32 outer = i + 1 < {count} ? divide({rest}, {axes}[i].by) : 0;",
        f"    s32 here = (s32)({rest} - outer * {axes}[i].extent);",
        f"    UNROLL for (u32 j = 0; j < {streams}; j++) {at}[j] += here * {axes}[i].steps[j];",
        f"    {rest} = outer;",
        "  }",
    ]


def place(coordinates: Sequence[str], steps: Sequence[int]) -> str:
    """Where an element is, in elements: the sum of its coordinates times the steps."""
    terms = [f"(s32){one} * {step}" for one, step in zip(coordinates, steps, strict=True) if step]
    return f"({' + '.join(terms) or '0'})"


def load(view: View, pointer: str, at: str) -> str:
    """The element `at` so many elements behind a pointer."""
    return f"load_{view.dtype}({pointer} + {at} * {view.itemsize})"


_DEFINED = re.compile(r"(?:^#define |^struct |kernel void |^static inline \w+ )(\w+)", re.MULTILINE)


def numbered(text: str, number: int) -> str:
    """A kernel's text, with the names that it defines as no other text of its unit has them."""
    names = "|".join(sorted(set(_DEFINED.findall(text))))
    return re.sub(rf"\b({names})\b", rf"\1_{number}", text)

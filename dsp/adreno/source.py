"""The OpenCL C of a network: the functions of kernels/*.cl, and below them a kernel for each shape.

No text of the model goes into it: a node's name could hold anything, C included.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dsp.adreno.context import KernelText
from sdk import opencl
from sdk.opencl.text import numbered

KERNELS = Path(__file__).parent / "kernels"

FILES = ("texel", "products", "pointwise", "conv", "depthwise", "pool", "elementwise", "moves")
"""Each file after those it needs."""


WRITTEN = (
    KERNELS / "plain/machine.h",
    Path(opencl.__file__).parent / "kernels/elements.h",
    Path(opencl.__file__).parent / "kernels/expressions.h",
    KERNELS / "plain/numbers.h",
)
"""What kernels of plain tensors need, each file after those it needs."""


def kernel_names(kernels: list[KernelText]) -> Mapping[KernelText, str]:
    """The names of kernels in the program."""
    return {kernel: f"{kernel.function}_{number}" for number, kernel in enumerate(kernels)}


def write(names: Mapping[KernelText, str]) -> str:
    """The program with these kernels."""
    parts = []
    if not names or any(not _is_plain(kernel) for kernel in names):
        parts += [(KERNELS / f"{name}.cl").read_text(encoding="ascii") for name in FILES]
    if any(_is_plain(kernel) for kernel in names):
        parts += [_DIRECTIVES.sub("", file.read_text(encoding="ascii")) for file in WRITTEN]
    parts += [
        _written(kernel, number) if _is_plain(kernel) else _called(kernel, name)
        for number, (kernel, name) in enumerate(names.items())
    ]
    return "\n".join(parts)


_DIRECTIVES = re.compile(r"^#(?:pragma once|include .*)\n", re.MULTILINE)


def _called(kernel: KernelText, name: str) -> str:
    return f"__kernel void {name}({', '.join(kernel.parameters)}) {{\n{kernel.body}\n}}\n"


def _is_plain(kernel: KernelText) -> bool:
    return kernel.whole or kernel.threads > 0


def _written(kernel: KernelText, number: int) -> str:
    if kernel.whole:
        return numbered(kernel.body, number)
    head = f"THREADS({kernel.threads}) __kernel void {kernel.function}({', '.join(kernel.parameters)})"
    return numbered(f"{kernel.head}\n{head} {{\n{kernel.body}\n}}\n", number)

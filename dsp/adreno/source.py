"""The OpenCL C of a network: the functions of kernels/*.cl, and below them a kernel for each shape.

No text of the model goes into it: a node's name could hold anything, C included.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dsp.adreno.context import KernelText

KERNELS = Path(__file__).parent / "kernels"

FILES = ("texel", "products", "pointwise", "conv", "depthwise", "pool", "elementwise", "moves")
"""Each file after those it needs."""


def kernel_names(kernels: list[KernelText]) -> Mapping[KernelText, str]:
    """The names of kernels in the program."""
    return {kernel: f"{kernel.function}_{number}" for number, kernel in enumerate(kernels)}


def write(names: Mapping[KernelText, str]) -> str:
    """The program with these kernels."""
    parts = [(KERNELS / f"{name}.cl").read_text(encoding="ascii") for name in FILES]
    parts += [
        f"__kernel void {name}({', '.join(kernel.parameters)}) {{\n{kernel.body}\n}}\n"
        for kernel, name in names.items()
    ]
    return "\n".join(parts)

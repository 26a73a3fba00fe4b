"""What lowering to OpenCL produces: kernels, and launches of them whose addresses are still symbolic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdk.arena import Buffer
from sdk.errors import InternalError


@dataclass(frozen=True)
class KernelSource:
    """A kernel: a file of the target's, with `defines` one of its variants; or one written for a network.

    Attributes:
        source: what it is called; a file's name.
        symbol: its name in the code object.
        threads: work-items of a workgroup, in x.
        defines: macros.
        text: OpenCL C that was written for it, in place of the file: all of it, or what is in the kernel's
            braces, if there are parameters.
        parameters: pointers in C, such as "global u8 *y".
        struct: the type of the argument `m` behind them.
        head: declarations before the kernel.
        numbers: those in its text on which a static count depends, by name; empty where there is no count.
    """

    source: str
    symbol: str
    threads: int
    defines: tuple[str, ...] = ()
    text: str = ""
    parameters: tuple[str, ...] = ()
    struct: str = ""
    head: str = ""
    numbers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class At:
    """A place in the arena: bytes from a buffer's start."""

    buffer: Buffer
    delta: int = 0

    @property
    def offset(self) -> int:
        if self.buffer.offset < 0:
            raise InternalError(f"buffer {self.buffer.name} was never placed")
        return self.buffer.offset + self.delta


@dataclass(frozen=True)
class Weights:
    """A place in the weights."""

    offset: int


Pointer = At | Weights | None
"""An argument that is an address; None is one that this variant of the kernel does not read."""

Words = list[int | float]
"""Of a kernel's struct: 32 bits each."""


def divisor(by: int) -> Words:
    """`struct divisor` (kernels/kernel.h)."""
    shift = (by - 1).bit_length()
    return [-(-(1 << 31 + shift) // by), shift]


@dataclass
class Call:
    """A launch.

    Attributes:
        name, op: of the node whose output it makes (a part of), or of what it is made for.
        groups: workgroups in x and y.
        pointers: the first arguments of the kernel.
        words: the struct that follows them, 32 bits a word.
        macs: multiply-accumulates of the network that it does.
        tensor: the activation that is complete after it.
        weights: end of the weights that it reads; 0 if it reads none.
    """

    name: str
    op: str
    kernel: KernelSource
    groups: tuple[int, int]
    pointers: Sequence[Pointer]
    words: Sequence[int | float]
    macs: int = 0
    tensor: str | None = None
    weights: int = 0

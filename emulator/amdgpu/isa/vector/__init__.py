"""Vector instructions, by what they do: importing this registers them all.

`frame` reads and writes operands, `arithmetic` rounds; the other modules are tables of small functions.
"""

from emulator.amdgpu.isa.vector import (
    compare,
    convert,
    division,
    dot,
    dpp,
    float8,
    floating,
    integer,
    lanes,
    packed,
    reduction,
    transcendental,
)

__all__ = [
    "compare",
    "convert",
    "division",
    "dot",
    "dpp",
    "float8",
    "floating",
    "integer",
    "lanes",
    "packed",
    "reduction",
    "transcendental",
]

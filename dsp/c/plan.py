"""The plan of a C program, as it travels in a `.tow`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from sdk.codec import names, require, within
from sdk.plan import BufferPlan, Plan, check_buffers
from sdk.target import Program

SOURCE = "network.c"
"""The code file."""

Size = Annotated[int, within(0, 1 << 48)]
"""Bytes of memory, and offsets in it: below what processors address."""


@dataclass(frozen=True)
class CPlan(Plan):
    """What the host must know about a program.

    Attributes:
        memory: bytes by kind.
        places: offset in the arena of every activation.
    """

    memory: Annotated[Mapping[str, Size], names("weights", "arena", "live_peak")]
    buffers: Sequence[BufferPlan]
    places: Mapping[str, Size]

    def check(self, program: Program) -> None:
        graph, arena = program.graph, self.memory["arena"]
        require(SOURCE in program.code, f"there is no code file {SOURCE}")
        check_buffers(self.buffers, arena)
        activations = {*graph.inputs, *(node.output for node in graph.nodes)}
        require(self.places.keys() == activations, "they are not of the graph's activations", "places")
        for name, offset in self.places.items():
            inside = offset + graph.tensor(name).nbytes <= arena
            require(inside, f"it is outside of the arena of {arena} bytes", "places", name)

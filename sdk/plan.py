"""What the targets' plans share: a dataclass in JSON (`sdk.codec`), checked against its program.

Reading trusts nothing: a plan comes from a file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from sdk.arena import Buffer
from sdk.codec import Invalid, Key, from_json, reported, require, to_json, within
from sdk.errors import InvalidArtifact
from sdk.graph import Graph
from sdk.target import Program

LIMIT = 2**31
"""Sizes are below this where a target addresses with 32 bits."""

Size = Annotated[int, within(0, LIMIT)]
Count = Annotated[int, within(0, 1 << 63)]
"""A number that only the device's memory, or time, limits."""


@dataclass(frozen=True)
class BufferPlan:
    """A buffer of the arena, live from step (layer, launch) `first` to step `last`."""

    name: str
    offset: Count
    nbytes: Annotated[Count, Key("size")]
    first: Count
    last: Count

    def __post_init__(self) -> None:
        require(self.first <= self.last, f"it is before the first step, {self.first}", "last")

    @classmethod
    def of(cls, buffer: Buffer) -> BufferPlan:
        return cls(buffer.name, buffer.offset, buffer.nbytes, buffer.first, buffer.last)


@dataclass(frozen=True)
class Choice:
    """A call whose kernel is a measured variant, and by which file (package, user)."""

    layer: str
    kernel: str
    choice: str
    by: str


@dataclass(frozen=True)
class TuningPlan:
    """What was measured.

    Attributes:
        heuristic: how many calls have variants of which none was measured.
    """

    chosen: Sequence[Choice]
    heuristic: Count


UNTUNED = TuningPlan((), 0)


class Plan(ABC):
    """Base of a target's plan, a frozen dataclass."""

    memory: Mapping[str, int]
    """Bytes by kind: weights, arena, live_peak, and what else a target reports."""

    @classmethod
    def of(cls, program: Program) -> Self:
        """The plan of a program, checked against its graph, weights and code.

        Raises:
            InvalidArtifact: a field is missing, surplus, ill-typed or out of range, or names nothing.
        """
        plan = from_json(cls, program.plan, "plan")
        with reported("plan", InvalidArtifact):
            held, needed = program.weights.nbytes, plan.memory["weights"]
            require(held == needed, f"the weights are incomplete: {held} bytes of {needed}", "memory")
            plan.check(program)
        return plan

    @abstractmethod
    def check(self, program: Program) -> None:
        """`Invalid` if something does not lie within what it is in, or is needed and missing."""

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = to_json(self)
        return document


def activation_nbytes(graph: Graph, name: str, *path: str | int) -> int:
    """Bytes of an activation of the graph; `Invalid` at this path if it has none of this name."""
    tensor = graph.tensors.get(name)
    if tensor is None or tensor.data is not None:
        raise Invalid(f"{name!r} is not an activation", *path)
    return tensor.nbytes


def check_buffers(buffers: Sequence[BufferPlan], arena: int) -> None:
    """Whether they lie in the arena."""
    for number, one in enumerate(buffers):
        inside = one.offset + one.nbytes <= arena
        require(inside, f"it is outside of the arena of {arena} bytes", "buffers", number)

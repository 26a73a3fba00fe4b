"""The plan of a C program, as it travels in a `.tow`. Reading trusts nothing: a plan comes from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sdk.errors import InvalidArtifact
from sdk.fields import count
from sdk.target import Program


@dataclass(frozen=True)
class CPlan:
    """What the host must know about a program.

    Attributes:
        memory: bytes by kind: weights, arena, live_peak.
        places: offset in the arena of every activation.
        source: the network's C.
    """

    memory: Mapping[str, int]
    places: Mapping[str, int]
    source: bytes

    @staticmethod
    def of(program: Program) -> CPlan:
        """The plan of a program, checked against its graph.

        Raises:
            InvalidArtifact: something is missing, ill-typed or out of range.
        """
        graph, document = program.graph, program.plan
        try:
            memory = {
                name: count(document["memory"][name], 1 << 31) for name in ("weights", "arena", "live_peak")
            }
            names = (*graph.inputs, *(node.output for node in graph.nodes))
            places = {name: count(document["places"][name], 1 << 31) for name in names}
            if any(places[name] + graph.tensor(name).nbytes > memory["arena"] for name in names):
                raise ValueError("a tensor lies outside the arena")
            if len(program.weights) != memory["weights"]:
                raise ValueError("the weights are incomplete")
            return CPlan(memory, places, program.code["network.c"])
        except (KeyError, TypeError, ValueError) as problem:
            raise InvalidArtifact(
                f"the plan is damaged: {type(problem).__name__}: {problem}", hint="compile the model again"
            ) from problem

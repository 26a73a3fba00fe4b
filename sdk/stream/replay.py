"""Computes a stream's inferences again, each from the states that it says it descends from, and compares.

A quantised network is computed by the reference, whose bits are the definition. Results of a plain one may
differ from it within bounds, which are not passed on from step to step: it is computed on another device, by
the same program, and compared bit for bit; the first inferences there are compared with the definition, layer
by layer.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from typing import Literal

import numpy as np

from sdk import reference
from sdk.artifact import Artifact
from sdk.check import Check, check, combine
from sdk.errors import CheckFailed, UsageError
from sdk.graph import Array, Graph
from sdk.inputs import check_inputs, zero_point_inputs
from sdk.loaded import AWAY
from sdk.session import Session
from sdk.stream.records import Answerer, Inference

DEFINED = 2
"""Inferences whose layers are compared with their definition, where another device is compared with."""


class Replay:
    """Compares inferences, in order; give it as `Stream(observe=...)`.

    Args:
        artifact: the network whose inferences are compared.
        by: what made them.
        witness: an open session, of the same network or of one that gives the same bits, to compare with;
            None for the reference.
        kept: how many steps' states are remembered: more than lie between two downloads of the states.

    Attributes:
        compared: inferences.
        wrong: numbers of the frames whose results differ.
        first: what the first of them differs in, in words.
        layers: the witness's, compared with their definition; None for the reference.

    Raises:
        UsageError: as `Session`, of the witness.
    """

    def __init__(
        self, artifact: Artifact, by: Answerer, witness: Session | None = None, kept: int = 64
    ) -> None:
        self.compared = 0
        self.wrong: list[int] = []
        self.first: str | None = None
        self._artifact = artifact
        self._by = by
        self._witness = witness
        self._kept = kept
        self._checks: list[Check] = []
        zeros = zero_point_inputs(artifact.graph)
        self._zeros = {name: zeros[name] for _, name in artifact.states}
        self._after: OrderedDict[int, dict[str, Array]] = OrderedDict()

    @property
    def layers(self) -> Check | None:
        """The witness's layers that were compared with their definition."""
        return None if self._witness is None else combine(self._checks)

    def __call__(self, made: Inference) -> None:
        """Compare an inference.

        Raises:
            CheckFailed: it descends from a frame that is not remembered; or the witness failed.
        """
        if made.by != self._by:
            return
        states = self._zeros
        if made.descends_from is not None:
            found = self._after.get(made.descends_from)
            if found is None:
                raise CheckFailed(
                    f"its states descend from frame {made.descends_from}, which is not known any more",
                    where=f"frame {made.frame}",
                    hint="this is a bug in the stream: please report it",
                )
            states = found
        expected = self._computed({**made.inputs, **states}, f"frame {made.frame}")
        self.compared += 1
        difference = next(
            (
                f"output {name} of frame {made.frame} differs in {count:,} of {array.size:,} elements"
                for name, array in made.outputs.items()
                if (count := _different(expected[name], array))
            ),
            None,
        )
        if difference is not None:
            self.wrong.append(made.frame)
            self.first = self.first or difference
        if self._artifact.states:
            self._after[made.frame] = {name: expected[output] for output, name in self._artifact.states}
            while len(self._after) > self._kept:
                self._after.popitem(last=False)

    def _computed(self, inputs: Mapping[str, Array], where: str) -> Mapping[str, Array]:
        if self._witness is None:
            return self._defined(inputs)
        try:
            if len(self._checks) < DEFINED:
                self._checks.append(check(self._witness.artifact, self._witness, inputs))
            return self._witness.run(inputs)
        except AWAY as problem:
            raise CheckFailed(f"what the stream is compared with failed: {problem}", where=where) from problem

    def _defined(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """By the reference; quantised tensors may stand for the float inputs that they are made from."""
        graph = self._artifact.graph
        values = check_inputs(dataclasses.replace(graph, inputs=tuple(inputs)), inputs)
        for node in graph.nodes:
            if node.output not in values:
                values[node.output] = reference.evaluate(graph, node, values, self._artifact.arithmetic)
        return values


def is_exact(artifact: Artifact) -> bool:
    """Whether the reference defines the bits of all that the device computes."""
    return not any(
        reference.is_plain(program.graph, node)
        for program in artifact.programs
        for node in program.graph.nodes
    )


def require_comparable(artifact: Artifact, witness: Session) -> None:
    """Refuse a witness that need not give the same bits.

    Raises:
        UsageError: it is of another network, or computes otherwise.
    """
    other = witness.artifact
    for what, own, found in (
        ("inputs", _described(artifact.graph, "inputs"), _described(other.graph, "inputs")),
        ("outputs", _described(artifact.graph, "outputs"), _described(other.graph, "outputs")),
        ("states", artifact.states, other.states),
    ):
        if own != found:
            raise UsageError(
                f"it is compared with another network: its {what} are {found}, not {own}",
                hint="compile the same model",
            )
    exact = is_exact(artifact) and artifact.arithmetic == other.arithmetic
    if not exact and artifact.target != other.target:
        raise UsageError(
            f"results of {other.target} need not equal those of {artifact.target} bit for bit",
            hint="compare with the same .tow, on another device",
        )


def _described(graph: Graph, what: Literal["inputs", "outputs"]) -> list[str]:
    names = graph.inputs if what == "inputs" else graph.outputs
    return [str(graph.tensor(name)) for name in names]


def _different(expected: Array, found: Array) -> int:
    """Elements whose bytes differ."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return max(expected.size, 1)
    size = max(found.dtype.itemsize, 1)
    one, two = (np.frombuffer(array.tobytes(), np.uint8).reshape(-1, size) for array in (expected, found))
    return int(np.count_nonzero((one != two).any(axis=1)))

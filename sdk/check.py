"""Compares the device with the reference, bit for bit, on every layer that the device materialises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk import reference
from sdk.artifact import Artifact
from sdk.graph import Array
from sdk.session import Session


@dataclass(frozen=True)
class LayerCheck:
    """One layer's output compared.

    Attributes:
        node, op, tensor: the layer.
        elements: compared.
        mismatches: elements that differ.
        max_abs_diff: the greatest difference, in quantised units.
        first: (index, device's value, reference's value) of the first element that differs.
    """

    node: str
    op: str
    tensor: str
    elements: int
    mismatches: int
    max_abs_diff: int
    first: tuple[tuple[int, ...], int, int] | None = None


@dataclass(frozen=True)
class Check:
    """All layers of one or more inferences compared, in execution order."""

    layers: tuple[LayerCheck, ...]

    @property
    def elements(self) -> int:
        return sum(layer.elements for layer in self.layers)

    @property
    def mismatches(self) -> int:
        return sum(layer.mismatches for layer in self.layers)

    @property
    def max_abs_diff(self) -> int:
        return max((layer.max_abs_diff for layer in self.layers), default=0)

    @property
    def first_mismatch(self) -> LayerCheck | None:
        """The first layer that differs: where to look, since later ones follow from it."""
        return next((layer for layer in self.layers if layer.mismatches), None)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain JSON values."""
        return {
            "elements": self.elements,
            "mismatches": self.mismatches,
            "max_abs_diff": self.max_abs_diff,
        }


def check(artifact: Artifact, session: Session, inputs: Mapping[str, Array]) -> Check:
    """Run one inference on the device and in the reference, and compare them layer by layer.

    Args:
        artifact: the one that the session runs.
        session: an open session.
        inputs: as `Session.run` takes them.

    Raises:
        InvalidInput, DeviceFailed, UsageError: as `Session.run`.
    """
    graph = artifact.program.graph
    expected = reference.run(graph, session.quantize(inputs), artifact.arithmetic)
    traced = session.trace(inputs)
    return Check(
        tuple(
            _compare(node.name, node.op, node.output, traced[node.output], expected[node.output])
            for node in graph.nodes
            if node.output in traced
        )
    )


def combine(checks: Iterable[Check]) -> Check:
    """Several inferences' checks as one; their layers one inference after the other."""
    return Check(tuple(layer for one in checks for layer in one.layers))


def _compare(node: str, op: str, tensor: str, actual: Array, expected: Array) -> LayerCheck:
    difference = np.abs(actual.astype(np.int64) - expected.astype(np.int64))
    wrong = np.argwhere(difference)
    first = None
    if len(wrong):
        index = tuple(map(int, wrong[0]))
        first = (index, int(actual[index]), int(expected[index]))
    return LayerCheck(node, op, tensor, actual.size, len(wrong), int(difference.max(initial=0)), first)

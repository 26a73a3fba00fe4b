"""Compares the device with the definition on every layer that the device materialises.

Quantised tensors are compared bit for bit, plain ones with the bound of their definition; each node on the
inputs that the device itself had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk import dtypes, reference
from sdk.artifact import Artifact
from sdk.graph import Array, Graph, Node
from sdk.reference import Spread
from sdk.session import Session
from sdk.target import Program


@dataclass(frozen=True)
class LayerCheck:
    """One layer's output compared.

    Attributes:
        node, op, tensor: the layer.
        elements: compared.
        mismatches: elements that are wrong: that differ, of a quantised tensor; that lie outside the bound,
            of a plain one.
        max_abs_diff: the greatest difference, in quantised units or real ones.
        first: (index, device's value, definition's value) of the first wrong element.
        plain: whether the tensor is plain; the rest is 0 of quantised ones.
        ties: elements on the other side of a discontinuity than the definition, within reach of rounding.
        worst_share: the largest error as a share of its bound.
        overflows: elements that are infinite in the tensor's dtype alone: their definition is finite.
        reaches: the largest magnitude of the definition of these.
    """

    node: str
    op: str
    tensor: str
    elements: int
    mismatches: int
    max_abs_diff: int | float
    first: tuple[tuple[int, ...], int | float, int | float] | None = None
    plain: bool = False
    ties: int = 0
    worst_share: float = 0.0
    overflows: int = 0
    reaches: float = 0.0


@dataclass(frozen=True)
class Check:
    """All layers of one or more inferences compared, in execution order."""

    layers: tuple[LayerCheck, ...]

    @property
    def elements(self) -> int:
        """Elements of quantised tensors."""
        return sum(layer.elements for layer in self.layers if not layer.plain)

    @property
    def mismatches(self) -> int:
        """Of those, how many differ."""
        return sum(layer.mismatches for layer in self.layers if not layer.plain)

    @property
    def max_abs_diff(self) -> int:
        return max((int(layer.max_abs_diff) for layer in self.layers if not layer.plain), default=0)

    @property
    def float_elements(self) -> int:
        """Elements of plain tensors."""
        return sum(layer.elements for layer in self.layers if layer.plain)

    @property
    def outside(self) -> int:
        """Of those, how many no correct target computes."""
        return sum(layer.mismatches for layer in self.layers if layer.plain)

    @property
    def ties(self) -> int:
        return sum(layer.ties for layer in self.layers)

    @property
    def worst_share(self) -> float:
        return max((layer.worst_share for layer in self.layers), default=0.0)

    @property
    def passed(self) -> bool:
        """Whether nothing differs, and nothing is outside."""
        return not any(layer.mismatches for layer in self.layers)

    @property
    def first_mismatch(self) -> LayerCheck | None:
        """The first layer with a wrong element."""
        return next((layer for layer in self.layers if layer.mismatches), None)

    @property
    def first_overflow(self) -> LayerCheck | None:
        """The first layer whose dtype has no room for a result. What follows it computes with infinities."""
        return next((layer for layer in self.layers if layer.overflows), None)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain JSON values; those of plain tensors and of an overflow where there are any."""
        figures: dict[str, Any] = {
            "elements": self.elements,
            "mismatches": self.mismatches,
            "max_abs_diff": self.max_abs_diff,
        }
        if any(layer.plain for layer in self.layers):
            figures |= {
                "float_elements": self.float_elements,
                "outside": self.outside,
                "ties": self.ties,
                "worst_share": self.worst_share,
            }
        if (layer := self.first_overflow) is not None:
            figures["overflow"] = {
                "node": layer.node,
                "tensor": layer.tensor,
                "elements": layer.overflows,
                "reaches": layer.reaches,
            }
        return figures


def check(artifact: Artifact, session: Session, inputs: Mapping[str, Array]) -> Check:
    """Run one inference on the device, and compare each layer with its definition.

    A layer is computed from what the device had as its inputs. Where the device did not materialise a plain
    one, it is computed from all that this may have been.

    Args:
        artifact: the one that the session runs.
        session: an open session.
        inputs: as `Session.run` takes them.

    Raises:
        InvalidInput, DeviceFailed, UsageError: as `Session.run`.
    """
    traced = session.observe(inputs)
    layers: list[LayerCheck] = []
    for program in artifact.programs:
        graph = program.graph
        values: dict[str, Array | Spread] = {name: traced[name] for name in graph.inputs}
        for node in graph.nodes:
            actual = traced.get(node.output)
            if actual is None and reference.is_plain(graph, node):
                values[node.output] = reference.expect(graph, node, values, program.precision)
            elif actual is None:
                stored = _stored(graph, node, values)
                values[node.output] = reference.evaluate(graph, node, stored, artifact.arithmetic)
            else:
                layers.append(_layer(program, node, values, actual, artifact))
                values[node.output] = actual
    return Check(tuple(layers))


def _layer(
    program: Program, node: Node, values: Mapping[str, Array | Spread], actual: Array, artifact: Artifact
) -> LayerCheck:
    graph = program.graph
    if not reference.is_plain(graph, node):
        expected = reference.evaluate(graph, node, _stored(graph, node, values), artifact.arithmetic)
        return _compare(node.name, node.op, node.output, actual, expected)
    spread = reference.expect(graph, node, values, program.precision, actual)
    dtype = graph.tensor(node.output).dtype
    found = reference.compare(spread, actual, dtype)
    overflows, reaches = _overflow(graph, node, values, actual)
    return LayerCheck(
        node.name,
        node.op,
        node.output,
        found.elements,
        found.outside,
        found.worst_diff,
        found.first,
        plain=True,
        ties=found.ties,
        worst_share=found.worst_share,
        overflows=overflows,
        reaches=reaches,
    )


def _stored(graph: Graph, node: Node, values: Mapping[str, Array | Spread]) -> dict[str, Array]:
    """The node's inputs as they are stored, by the definition where the device did not materialise them."""
    found = {}
    for name in node.inputs:
        if name in values:
            value = values[name]
            if isinstance(value, Spread):
                value = reference.stored(value.value, graph.tensor(name).dtype)
            found[name] = value
    return found


def _overflow(
    graph: Graph, node: Node, values: Mapping[str, Array | Spread], actual: Array
) -> tuple[int, float]:
    """How many elements are infinite whose value in real arithmetic is not; the largest of these values."""
    dtype = graph.tensor(node.output).dtype
    if not dtypes.is_float(dtype):
        return 0, 0.0
    infinite = np.isinf(dtypes.decode(actual, dtype))
    if not infinite.any():
        return 0, 0.0
    value = reference.unrounded(graph, node, values)
    lost = infinite & np.isfinite(value)
    return int(np.count_nonzero(lost)), float(np.abs(value[lost]).max(initial=0))


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

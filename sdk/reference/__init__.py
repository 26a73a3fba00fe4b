"""The definition of every operator, in numpy: what targets are compared with.

Quantised tensors are exact: `quantized` says which bits. Plain tensors are defined in real arithmetic on the
inputs as they are stored (`plain`, computed in float64), and a target's result must lie within a bound that
comes with the definition (`bounds`).
"""

from __future__ import annotations

from collections.abc import Mapping

from sdk.graph import Array, Graph, Node
from sdk.inputs import check_inputs
from sdk.reference import plain, quantized
from sdk.reference.comparison import Comparison, compare
from sdk.reference.plain import expect, is_plain, stored, unrounded
from sdk.reference.requantization import dtype_range
from sdk.reference.spread import Spread
from sdk.target import Arithmetic

__all__ = [
    "Comparison",
    "Spread",
    "compare",
    "dtype_range",
    "evaluate",
    "expect",
    "is_plain",
    "run",
    "stored",
    "unrounded",
]


def run(graph: Graph, inputs: Mapping[str, Array], arithmetic: Arithmetic = "f32") -> dict[str, Array]:
    """Run a verified graph (`sdk.passes.verify`).

    Args:
        graph: a whole network or a part of one.
        inputs: one array for each of `graph.inputs`, of its tensor's shape and dtype.
        arithmetic: how accumulators of quantised operators are requantised.

    Returns:
        Every activation by tensor name, inputs and outputs included, as it is stored.

    Raises:
        InvalidInput: a wrong name, shape or dtype; or an index out of range, naming its node.
    """
    values = check_inputs(graph, inputs)
    for node in graph.nodes:
        values[node.output] = evaluate(graph, node, values, arithmetic)
    return values


def evaluate(graph: Graph, node: Node, values: Mapping[str, Array], arithmetic: Arithmetic) -> Array:
    """One operator of a verified graph.

    Args:
        graph: holds the node's tensors; constants are read from it.
        node: any operator of the set.
        values: at least the node's input activations, by tensor name, as they are stored.
        arithmetic: how accumulators of quantised operators are requantised.

    Returns:
        The output, of its tensor's shape and stored dtype.

    Raises:
        InvalidInput: an index out of range.
    """
    if plain.is_plain(graph, node):
        return plain.evaluate(graph, node, values)
    return quantized.evaluate(graph, node, values, arithmetic)

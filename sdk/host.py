"""The host's side of an inference: what is computed before, between and behind the device's parts.

That is quantising a float input, Dequantize and Softmax at the end, and the nodes that a target refuses. The
reference computes it, the same for every target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from sdk import reference
from sdk.artifact import Artifact
from sdk.dtypes import storage
from sdk.errors import DeviceFailed
from sdk.graph import Array, Graph, Quantize, Tensor
from sdk.inputs import check_inputs
from sdk.segments import Segment


class Host:
    """What the host does for the inferences of an artefact.

    Attributes:
        quantized_inputs: what may be given in place of float inputs: the tensors that are made of them first.
    """

    def __init__(self, artifact: Artifact) -> None:
        self._graph = artifact.graph
        self._arithmetic = artifact.arithmetic
        first = artifact.segments[0]
        self._head = [first] if first.place == "host" else []
        self._quantizes = [
            node for segment in self._head for node in segment.graph.nodes if isinstance(node, Quantize)
        ]
        replaced = {node.inputs[0] for node in self._quantizes}
        names = [name for name in self._graph.inputs if name not in replaced]
        names += [node.output for node in self._quantizes]
        self.quantized_inputs: dict[str, Tensor] = {name: self._graph.tensor(name) for name in names}

    def given(self, inputs: Mapping[str, Array], held: Collection[str] = ()) -> dict[str, Array]:
        """The given arrays, checked, of all inputs but those that the device holds; quantised tensors may
        stand for the float input they are made from.

        Raises:
            InvalidInput: as `check_inputs`.
        """
        replaced = {
            node.inputs[0]: [other.output for other in self._quantizes if other.inputs == node.inputs]
            for node in self._quantizes
            if node.output in inputs
        }
        needed = [name for name in self._graph.inputs if name not in held]
        names = [name for given in needed for name in replaced.get(given, [given])]
        return check_inputs(dataclasses.replace(self._graph, inputs=tuple(names)), inputs)

    def quantize(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """What is known before the device's first part. Raises as `given`."""
        values = self.given(inputs)
        self.compute(self._head, values)
        return values

    def compute(self, segments: Sequence[Segment], values: dict[str, Array]) -> None:
        """Add what these segments compute, but what was given."""
        for node in (node for segment in segments for node in segment.graph.nodes):
            if node.output not in values:
                values[node.output] = reference.evaluate(self._graph, node, values, self._arithmetic)


def answered(graph: Graph, results: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """The device's answer, checked against the graph.

    Raises:
        DeviceFailed: a tensor is missing, unknown, or of another shape or dtype.
    """
    for name in names:
        tensor = graph.tensors.get(name)
        if tensor is None or tensor.data is not None:
            raise DeviceFailed(
                f"the device answered with {name!r}, which is not an activation of the program"
            )
        array = results.get(name)
        if array is None:
            raise DeviceFailed("the device did not answer with it", where=f"tensor {name}")
        if array.shape != tensor.shape or array.dtype != storage(tensor.dtype):
            raise DeviceFailed(
                f"the device answered {array.dtype} {list(array.shape)}, "
                f"not {tensor.dtype} {list(tensor.shape)}",
                where=f"tensor {name}",
            )
    return dict(results)

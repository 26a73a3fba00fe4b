"""Tensors as they cross to a DSP and back, one after the other: the same bytes for qemu and for FastRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dsp.hexagon.layout import element_index
from dsp.hexagon.plan import HexagonPlan
from sdk.graph import Array, Graph
from sdk.inputs import check_inputs
from sdk.passes import from_unsigned, to_unsigned

Read = Callable[[int], bytes]
"""Reads a number of bytes of an answer."""


def encode_inputs(graph: Graph, inputs: Mapping[str, Array]) -> bytes:
    """The graph's inputs in its order.

    Raises:
        InvalidInput: they are not what the graph takes.
    """
    given = check_inputs(graph, inputs)
    return b"".join(to_unsigned(array, graph.tensor(name)) for name, array in given.items())


def decode_outputs(graph: Graph, read: Read) -> dict[str, Array]:
    """The graph's outputs, which come in its order."""
    tensors = (graph.tensor(name) for name in graph.outputs)
    return {tensor.name: from_unsigned(read(tensor.nbytes), tensor) for tensor in tensors}


def decode_trace(plan: HexagonPlan, graph: Graph, read: Read) -> dict[str, Array]:
    """Every layer's output, as it lies in the arena, and then the graph's."""
    values: dict[str, Array] = {}
    stripes: dict[str, list[Array]] = {}
    for layer in plan.layers:
        tensor = graph.tensor(layer.tensor)
        data = np.frombuffer(read(layer.trace_bytes), np.uint8)
        if layer.geometry is None:
            data = data[: tensor.nbytes]
        else:
            data = data[element_index(layer.picture(tensor), layer.geometry)]
        if layer.channels is not None:  # the last of a tensor's completes it
            parts = stripes.setdefault(tensor.name, [])
            parts.append(data)
            data = np.concatenate(parts, axis=1)
        if data.size == tensor.nbytes:
            values[tensor.name] = from_unsigned(data.tobytes(), tensor)
    return values | decode_outputs(graph, read)

"""A classifier's outputs: how many classes they tell apart, and how likely each is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdk.graph import Array, Dequantize, Graph, Quantize, Requantize, Reshape, Softmax


@dataclass(frozen=True)
class Prediction:
    """One class of a classification.

    Attributes:
        index: the class's place in the output.
        label: its name, None if the artefact has no labels.
        score: its probability; the softmax of the outputs where the network does not end in one.
    """

    index: int
    label: str | None
    score: float


def class_count(graph: Graph) -> int | None:
    """How many classes a network tells apart; None if it is not a classifier.

    A classifier has one output, with one axis longer than 1.
    """
    if len(graph.outputs) != 1:
        return None
    tensor = graph.tensor(graph.outputs[0])
    return tensor.size if tensor.size >= 2 and max(tensor.shape) == tensor.size else None


def probabilities(graph: Graph, outputs: Mapping[str, Array]) -> NDArray[np.float64] | None:
    """A classifier's output as probabilities, float64 [classes]; None if the network is not a classifier.

    Where the network does not end in a Softmax, the probabilities are the softmax of its output.
    """
    if class_count(graph) is None:
        return None
    tensor = graph.tensor(graph.outputs[0])
    scores: NDArray[np.float64] = np.asarray(outputs[tensor.name]).reshape(-1).astype(np.float64)
    if tensor.quantization is not None:
        scores = tensor.scale * (scores - tensor.zero_point)
    if _ends_in_softmax(graph, tensor.name):
        return scores
    scores = np.exp(scores - scores.max())
    return scores / np.float64(scores.sum())


def _ends_in_softmax(graph: Graph, name: str) -> bool:
    """Whether a tensor is a Softmax's result, however it was quantised or reshaped since."""
    node = graph.producer(name)
    while isinstance(node, Quantize | Dequantize | Requantize | Reshape):
        node = graph.producer(node.inputs[0])
    return isinstance(node, Softmax)

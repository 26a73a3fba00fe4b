"""What lowerings share: a node by itself, a batch of one, centred weights, biases, and what may join these.

With padding that holds the input's zero-point, the accumulator of centred weights over raw input bytes is
the one that the reference defines once the zero-point is folded into the bias.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sdk.errors import InternalError, Unsupported
from sdk.graph import Add, Array, Conv, Gemm, Graph, Lookup, Node, Region, Reshape, Tensor
from sdk.passes import unsigned_activations
from sdk.scales import weight_quantization
from sdk.target import SUPPORTED, Verdict

# -- limits -----------------------------------------------------------------------------------------------


def alone(graph: Graph, node: Node) -> Graph:
    """A node as a network of its own, with its constants; its activations are the network's inputs."""
    inner = node.nodes if isinstance(node, Region) else (node,)
    tensors = {name: graph.tensor(name) for one in inner for name in (*one.inputs, one.output)}
    inputs = dict.fromkeys(name for name in node.inputs if tensors[name].data is None)
    return Graph(graph.name, tuple(inputs), (node.output,), tensors, (node,))


def verdict(graph: Graph, node: Node, lower: Callable[[Graph], object]) -> Verdict:
    """Whether a target's lowering, which takes a graph of unsigned activations, takes the node alone."""
    try:
        lower(unsigned_activations(alone(graph, node)))
    except Unsupported as problem:
        return Verdict(False, problem.message, problem.hint)
    return SUPPORTED


def require_quantized(graph: Graph) -> None:
    """Refuse plain tensors, for targets that run quantised networks.

    Raises:
        Unsupported: an activation is not quantised.
    """
    for node in graph.nodes:
        first = next((x for x in map(graph.tensor, node.inputs) if x.data is None), None)
        for tensor in (*([first] if first else []), graph.tensor(node.output)):
            if tensor.quantization is None:
                raise Unsupported(
                    f"{tensor} is not quantised",
                    where=f"node {node.name}",
                    hint="quantise the model (towline quantize), or compile it for the target c",
                )


def require_quantized_samples(graph: Graph, *, rows: bool = False) -> None:
    """Refuse plain tensors, and a batch, for targets that run quantised networks one sample at a time.

    A Reshape may make one sample of several, or none.

    Args:
        graph: to be lowered.
        rows: whether the target takes matrices of several rows.

    Raises:
        Unsupported: an activation is not quantised, or has not a batch of 1.
    """
    require_quantized(graph)
    for node in graph.nodes:
        for tensor in (graph.tensor(node.inputs[0]), graph.tensor(node.output)):
            matrix = rows and len(tensor.shape) == 2
            if not isinstance(node, Reshape) and not matrix and tensor.shape[:1] != (1,):
                raise Unsupported(
                    f"{tensor.name} has a batch of {tensor.shape[0] if tensor.shape else 'none'}, not 1",
                    where=f"node {node.name}",
                    hint="fix the batch at 1 (--input-shape) and run the samples one after the other",
                )


# -- Conv and Gemm ----------------------------------------------------------------------------------------


def centred_weights(weight: Tensor) -> NDArray[np.int16]:
    """The weights of a Conv or Gemm less their zero-points: int16 of their shape."""
    if weight.data is None:
        raise InternalError(f"weight {weight.name} is not a constant")
    zero_point = weight_quantization(weight).zero_point.reshape(-1, *(1,) * (len(weight.shape) - 1))
    return np.asarray(weight.data.astype(np.int16) - zero_point.astype(np.int16))


def dense_groups(weights: Array, groups: int) -> Array:
    """Grouped weights [O, I / groups, kh, kw] as the equal ungrouped ones [O, I, kh, kw], zeros elsewhere."""
    outputs, inputs = weights.shape[:2]
    dense = np.zeros((outputs, inputs * groups, *weights.shape[2:]), weights.dtype)
    for output in range(outputs):
        first = output // (outputs // groups) * inputs
        dense[output, first : first + inputs] = weights[output]
    return dense


def folded_bias(graph: Graph, node: Node) -> NDArray[np.int32]:
    """Bias [O] of a Conv or Gemm with its input's zero-point folded in, for centred weights.

    Modulo 2^32, like the sum that it starts; the sum as a whole fits (`sdk.passes.verify`).
    """
    weights = centred_weights(graph.tensor(node.inputs[1]))
    sums = weights.reshape(len(weights), -1).astype(np.int64).sum(axis=1)
    bias = graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 else None
    start = np.zeros(len(sums), np.int64) if bias is None else bias.astype(np.int64)
    return np.asarray((start - graph.tensor(node.inputs[0]).zero_point * sums).astype(np.int32))


def joined(
    graph: Graph, takes: Callable[[Conv | Gemm, Add | Lookup], bool] = lambda product, node: True
) -> list[tuple[Node, Conv | Gemm | None]]:
    """The nodes in their order, each with the product that is computed together with it, or None.

    An Add or Lookup joins the Conv or Gemm that makes its later operand, if nothing else uses that; the
    product is then not listed by itself.

    Args:
        graph: a verified graph.
        takes: whether the target can compute the Add or Lookup in this product.
    """
    products: dict[str, Conv | Gemm] = {}
    order = {node.name: i for i, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if not isinstance(node, Add | Lookup) or len(set(node.inputs)) < 2:
            continue
        candidates = [
            producer
            for name in node.inputs
            if isinstance(producer := graph.producer(name), Conv | Gemm)
            and len(graph.consumers(name)) == 1
            and name not in graph.outputs
            and takes(producer, node)
        ]
        if candidates:
            products[node.name] = max(candidates, key=lambda producer: order[producer.name])
    taken = {product.name for product in products.values()}
    return [(node, products.get(node.name)) for node in graph.nodes if node.name not in taken]

"""What lowerings share of Conv and Gemm: centred weights, folded biases, scales, what may be fused.

With padding that holds the input's zero-point, the accumulator of centred weights over raw input bytes is
the one that the reference defines once the zero-point is folded into the bias.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sdk.arithmetic import channel_ratios
from sdk.errors import InternalError
from sdk.graph import Add, Conv, Gemm, Graph, Lookup, Node, Quantization, Tensor


def weight_quantization(weight: Tensor) -> Quantization:
    """The quantisation of a weight; a verified graph has one."""
    if weight.quantization is None:
        raise InternalError(f"weight {weight.name} has no quantisation")
    return weight.quantization


def channel_scales(graph: Graph, node: Node) -> NDArray[np.float32]:
    """Requantisation scale of each output channel of a Conv or Gemm: float32 [O]."""
    x, weight, y = (graph.tensor(name) for name in (node.inputs[0], node.inputs[1], node.output))
    scales = np.broadcast_to(weight_quantization(weight).scale, weight.shape[:1])
    return channel_ratios(x.scale, scales, over=y.scale)


def centred_weights(weight: Tensor) -> NDArray[np.int16]:
    """The weights of a Conv or Gemm less their zero-points: int16 of their shape."""
    if weight.data is None:
        raise InternalError(f"weight {weight.name} is not a constant")
    zero_point = weight_quantization(weight).zero_point.reshape(-1, *(1,) * (len(weight.shape) - 1))
    return np.asarray(weight.data.astype(np.int16) - zero_point.astype(np.int16))


def folded_bias(graph: Graph, node: Node) -> NDArray[np.int32]:
    """Bias [O] of a Conv or Gemm with its input's zero-point folded in, for centred weights.

    Modulo 2^32, like the sum that it starts; the sum as a whole fits (`sdk.passes.verify`).
    """
    weights = centred_weights(graph.tensor(node.inputs[1]))
    sums = weights.reshape(len(weights), -1).astype(np.int64).sum(axis=1)
    bias = graph.tensor(node.inputs[2]).data if len(node.inputs) > 2 else None
    start = np.zeros(len(sums), np.int64) if bias is None else bias.astype(np.int64)
    return np.asarray((start - graph.tensor(node.inputs[0]).zero_point * sums).astype(np.int32))


def fusable(graph: Graph) -> dict[str, Conv | Gemm]:
    """Add or Lookup, by name -> the product that takes it in: its later operand, used by nothing else."""
    fused: dict[str, Conv | Gemm] = {}
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
        ]
        if candidates:
            fused[node.name] = max(candidates, key=lambda producer: order[producer.name])
    return fused

"""Conv and Gemm, with the Add or the Lookup that they feed: kernels matrix.cl, direct.cl and window.cl.

A convolution whose groups are computed apart becomes a launch for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sdk.errors import InternalError, Unsupported
from sdk.graph import Add, Array, Conv, Gemm, Graph, Lookup, Node, macs
from sdk.lowering import centred_weights, dense_groups, folded_bias
from sdk.opencl.calls import At, Pointer, Words
from sdk.opencl.context import TENSOR_LIMIT
from sdk.scales import node_scales
from usbgpu.target.calls import Picture
from usbgpu.target.context import NARROW, Context, no_residual, variant
from usbgpu.target.packing import (
    TILE,
    depthwise_weights,
    direct_weights,
    flat_constants,
    matrix_weights,
    round_up,
    signed_weights,
    tiled_constants,
)
from usbgpu.target.tiling import matrix_tiling
from usbgpu.target.windows import slide, window


@dataclass
class _Product:
    """A Conv or Gemm on its way into a launch.

    Attributes:
        final: the node whose output is made: itself, or the one that it takes in.
        op: what tables call it.
        weights: signed bytes, [O, I / groups, kh, kw].
        groups: that are computed apart.
        constants: of each channel, arrays [O]: the bias with the input's zero-point folded in, the scale, and
            the offset where weights have one.
        other: the Add's other operand, or the Lookup's table.
        features: macros of all kernels.
        words: `struct range` and `struct residual` of the kernels.
        window: `struct window` of the kernels.
    """

    final: Node
    op: str
    node: Conv | Gemm
    x: Picture
    y: Picture
    weights: Array
    groups: int
    constants: list[Array]
    other: Pointer
    features: list[str]
    words: Words
    window: Words


def depthwise(graph: Graph, node: Node) -> bool:
    """Whether each channel has its own weights, and one output."""
    if not isinstance(node, Conv):
        return False
    channels = graph.tensor(node.inputs[0]).shape[1]
    return node.group == channels and graph.tensor(node.output).shape[1] == channels


def groups_apart(graph: Graph, node: Conv | Gemm) -> int:
    """The groups of a product if they are computed one by one, as whole tiles or single channels; else 1."""
    groups = node.group if isinstance(node, Conv) else 1
    outputs, inputs = graph.tensor(node.inputs[1]).shape[:2]
    tiles = inputs % TILE == 0 and outputs // groups % TILE == 0
    return groups if tiles or depthwise(graph, node) else 1


def product(context: Context, node: Conv | Gemm, final: Node) -> None:
    """A Conv or Gemm, and the Add or Lookup behind it if that is `final`."""
    graph = context.graph
    groups = groups_apart(graph, node)
    _require_room(graph, node, groups)
    x = context.picture(node.inputs[0])
    other, residual, features = _other(context, node, final)
    weights = centred_weights(graph.tensor(node.inputs[1]))
    weights = weights.reshape(*weights.shape, *(1, 1)[: 4 - weights.ndim])
    if isinstance(node, Conv) and node.group > groups:
        weights = dense_groups(weights, node.group)
    weights, offsets = signed_weights(weights)
    constants = [folded_bias(graph, node), node_scales(graph, node)]
    if offsets.any():
        constants.append(offsets)
        features.append("OFFSET")
    y = context.new_picture(graph.tensor(final.output))
    made = _Product(
        final=final,
        op=node.op if final is node else f"{node.op}+{final.op}",
        node=node,
        x=x,
        y=y,
        weights=weights,
        groups=groups,
        constants=constants,
        other=other,
        features=features,
        words=[*context.range(node.output, node.clamp), *residual],
        window=window(node, x, y.width, weights.shape[2:]),
    )
    if depthwise(graph, node):
        _depthwise(context, made)
    elif x.pitch == NARROW:
        _direct(context, made)
    else:
        for group in range(groups):
            _matrix(context, made, group)


def _require_room(graph: Graph, node: Conv | Gemm, groups: int) -> None:
    """Refuse weights that are too large as they lie in memory."""
    shape = graph.tensor(node.inputs[1]).shape
    outputs, inputs, *window = shape
    together = node.group // groups if isinstance(node, Conv) else 1
    if round_up(outputs) * round_up(inputs * together) * math.prod(window) >= TENSOR_LIMIT:
        raise Unsupported(f"its weights of {list(shape)} are too large (limit: {TENSOR_LIMIT} bytes)")


def _other(context: Context, node: Node, final: Node) -> tuple[Pointer, Words, list[str]]:
    """What is done behind the requantisation: the pointer it needs, `struct residual`, and the macro."""
    if final is node:
        return None, no_residual(), []
    if isinstance(final, Add):
        name = final.inputs[0] if final.inputs[1] == node.output else final.inputs[1]
        picture = context.picture(name)
        return picture.at, context.residual(final, node.output, name, picture.pitch), ["RESIDUAL"]
    if isinstance(final, Lookup):
        return context.table(final), no_residual(), ["TABLE"]
    raise InternalError(f"a {final.op} in a {node.op}", where=f"node {final.name}")


def _depthwise(context: Context, p: _Product) -> None:
    packed = context.constant(depthwise_weights(p.weights))
    constants = context.constant(flat_constants(*p.constants))
    pointers: list[Pointer] = [p.x.at, packed, constants, p.y.at, p.other]
    filling: Words = [context.splat(p.node.inputs[0]), 0]
    size = p.weights.shape[2:]
    slide(context, p.final, p.op, p.node, size, p.x, p.y, p.features, pointers, filling, p.words)


def _direct(context: Context, p: _Product) -> None:
    """dot4 where a pixel is a dword: a matrix instruction would have 16 bytes of k for its four."""
    packed = context.constant(direct_weights(p.weights))
    constants = context.constant(tiled_constants(*p.constants))
    rows, columns = p.weights.shape[2:]
    kernel = variant("direct", 64, [f"ROWS={rows}", f"COLUMNS={columns}", *p.features])
    grid = -(-p.y.pixels // 64), round_up(p.y.channels) // TILE
    pointers: list[Pointer] = [p.x.at, packed, constants, p.y.at, p.other]
    fields: Words = [p.y.pixels, p.y.pitch, context.splat(p.node.inputs[0]), *p.words, *p.window]
    if "OFFSET" in p.features:
        fields.append(int.from_bytes(b"\1" * p.x.channels, "little"))
    context.emit(p.final, p.op, kernel, grid, pointers, fields, macs(context.graph, p.node))


def _matrix(context: Context, p: _Product, group: int) -> None:
    outputs = len(p.weights) // p.groups
    part = slice(group * outputs, (group + 1) * outputs)
    weights = p.weights[part]
    inputs, rows, columns = weights.shape[1:]
    k = round_up(inputs)
    tiles = round_up(outputs) // TILE
    windowed = rows * columns > 1 or _strided(p.node)
    cut = matrix_tiling(context.chip, p.y.pixels, tiles, rows * columns, k // TILE)
    padding = [np.full(k, context.zero_point(p.node.inputs[0]), np.uint8)]
    if "OFFSET" in p.features:
        padding.append(np.repeat(np.array([1, 0], np.uint8), [inputs, k - inputs]))
    other = p.other
    if isinstance(other, At):
        other = At(other.buffer, other.delta + part.start)
    pointers: list[Pointer] = [
        p.x.channel(group * inputs),
        context.constant(matrix_weights(weights, k, context.chip.generation)),
        context.constant(tiled_constants(*(row[part] for row in p.constants))),
        context.constant(np.concatenate(padding)) if windowed or len(padding) > 1 else None,
        p.y.channel(part.start),
        other,
    ]
    fields: Words = [p.y.pixels, rows * columns, k // TILE, p.x.pitch, p.y.pitch, *p.words, *p.window]
    features = [f"TILES={cut.tiles}", f"PIXELS={cut.pixels}", f"SPLIT={cut.split}"]
    features += ["WINDOW"] * windowed + p.features
    kernel = variant("matrix", 32 * cut.split, features)
    grid = -(-p.y.pixels // (TILE * cut.pixels)), tiles // cut.tiles
    work = macs(context.graph, p.node) // p.groups
    context.emit(p.final, p.op, kernel, grid, pointers, fields, work, complete=group == p.groups - 1)


def _strided(node: Conv | Gemm) -> bool:
    return isinstance(node, Conv) and (max(node.strides) > 1 or any(node.pads))

"""What slides a window over pictures and keeps channels apart: pools, and the launch of kernels/window.cl."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sdk.graph import AveragePool, GlobalAveragePool, Graph, MaxPool, Node, macs
from sdk.opencl.calls import Pointer, Words, divisor
from sdk.scales import node_scales
from usbgpu.target.calls import Picture
from usbgpu.target.context import Context, no_residual, variant
from usbgpu.target.packing import round_up
from usbgpu.target.tiling import strip

UNROLLED_TAPS = 32
"""Windows up to this many taps get a kernel with the loop over them unrolled."""


def is_global(graph: Graph, node: Node) -> bool:
    """Whether a pool covers the whole picture at once."""
    if isinstance(node, GlobalAveragePool):
        return True
    x = graph.tensor(node.inputs[0])
    return isinstance(node, AveragePool) and node.kernel == x.shape[2:] and not any(node.pads)


def window(node: Node, x: Picture, out_width: int, kernel: Sequence[int]) -> Words:
    """`struct window` (kernels/kernel.h)."""
    pads = getattr(node, "pads", (0, 0, 0, 0))
    strides, steps = getattr(node, "strides", (1, 1)), getattr(node, "dilations", (1, 1))
    return [x.height, x.width, *pads[:2], *strides, *steps, *kernel, out_width, *divisor(out_width)]


def slide(
    context: Context,
    node: Node,
    op: str,
    sliding: Node,
    size: Sequence[int],
    x: Picture,
    y: Picture,
    features: list[str],
    pointers: Sequence[Pointer],
    filling: Words,
    words: Words,
) -> None:
    """A launch of kernels/window.cl for the window, of that size, of `sliding`."""
    quads = -(-y.channels // 4)
    pixels = 1
    place = window(sliding, x, y.width, size)
    if math.prod(size) <= UNROLLED_TAPS:
        pixels = strip(context.chip, y.height, y.width, quads)
        stride_x, step_y, step_x = place[5:8]
        features = [
            *(f"ROWS={size[0]}", f"COLUMNS={size[1]}", f"STRIP={pixels}"),
            *(f"STRIDE_X={stride_x}", f"STEP_Y={step_y}", f"STEP_X={step_x}"),
            *features,
        ]
    items = quads * -(-y.width // pixels)
    fields: Words = [quads, items, y.width, x.pitch, y.pitch, round_up(y.channels), *filling]
    fields += [*words, *divisor(quads), *place]
    kernel = variant("window", 64, features)
    work = macs(context.graph, sliding)
    context.emit(node, op, kernel, (-(-items // 64), y.height), pointers, fields, work)


def average_pool(context: Context, node: AveragePool) -> None:
    x = context.picture(node.inputs[0])
    source, out = context.graph.tensor(node.inputs[0]), context.graph.tensor(node.output)
    y = context.new_picture(out)
    table = np.broadcast_to(node_scales(context.graph, node), out.shape[2:]).astype("<f4")
    words = [*context.range(node.output, node.clamp), *no_residual()]
    pointers: list[Pointer] = [x.at, None, context.constant(table), y.at, None]
    filling: Words = [context.splat(source.name), -source.zero_point * math.prod(node.kernel)]
    slide(context, node, node.op, node, node.kernel, x, y, ["AVERAGE"], pointers, filling, words)


def max_pool(context: Context, node: MaxPool) -> None:
    x = context.picture(node.inputs[0])
    y = context.new_picture(context.graph.tensor(node.output))
    words = [*context.range(node.output, (0, 255)), *no_residual()]
    pointers: list[Pointer] = [x.at, None, None, y.at, None]
    slide(context, node, node.op, node, node.kernel, x, y, ["MAXIMUM"], pointers, [0, 0], words)


def mean(context: Context, node: AveragePool | GlobalAveragePool) -> None:
    """A pool that covers the whole picture."""
    x = context.picture(node.inputs[0])
    source, out = context.graph.tensor(node.inputs[0]), context.graph.tensor(node.output)
    y = context.new_picture(out)
    scale = node_scales(context.graph, node).item()
    quads = -(-x.channels // 4)
    fields: Words = [quads, x.pixels, x.pitch, -source.zero_point * x.pixels, scale]
    fields += context.range(node.output, node.clamp)
    context.emit(node, node.op, variant("mean", 256, []), (-(-quads // 32), 1), [x.at, y.at], fields)

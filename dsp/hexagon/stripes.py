"""Stripes of channels: a convolution and the depthwise one behind it, some planes at a time.

The depthwise convolution needs of its input the planes that it computes, and nothing else. Where the tensors
are too large for the L2, the two take turns: planes [a, b) of the first, then the same of the second. The
buffer between them holds one stripe, so that it stays in the L2 and the arena gets smaller. Stripes of rows
would compute some rows twice; those of channels cost a call each.

A stripe is a layer of its own, with the node's name and its share of the channels.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from dsp.hexagon import matrices
from dsp.hexagon.calls import At
from dsp.hexagon.context import Context
from dsp.hexagon.layout import (
    PIXEL,
    VECTOR_PIXELS,
    Pitches,
    Planes,
    is_planar,
    is_pointwise,
    phase_planes,
    plain_planes,
    reads_in_place,
)
from dsp.hexagon.products import conv_calls, conv_input
from dsp.hexagon.taps import reads_taps, tap_bytes
from dsp.hexagon.windows import depthwise_calls, is_depthwise, phases, window_input
from sdk.arena import align
from sdk.graph import Conv, Graph, macs

ROOM = 4
"""Weights, bounds and what else is read have one part in so many of the L2."""

STEPS = {True: 2, False: 4}
"""Planes of a stripe are a multiple of it, for pointwise convolutions, whose tiles have one plane, and for
others, whose tiles have two: two contexts then have the same planes in both convolutions, and need only what
they made themselves."""


@dataclass(frozen=True)
class Stripes:
    """How a convolution is striped.

    Attributes:
        reader: the depthwise convolution behind it.
        planes: of a stripe; the last may have fewer.
    """

    reader: Conv
    planes: int


def find(context: Context) -> dict[str, Stripes]:
    """The convolutions to stripe for the L2, by name."""
    graph, room = context.graph, context.l2 - context.l2 // ROOM
    found: dict[str, Stripes] = {}

    def nbytes(name: str) -> int:
        """Of a tensor's planes, about."""
        samples, channels, height, width = graph.tensor(name).shape
        return samples * _planes(channels) * height * width * PIXEL

    for node in graph.nodes:
        if not isinstance(node, Conv) or (reader := _reader(graph, context.pitches, node)) is None:
            continue
        planes = _planes(graph.tensor(node.output).shape[1])
        held, made, left = map(nbytes, (node.inputs[0], node.output, reader.output))
        if reads_taps(context, node):
            held = tap_bytes(context, node)
        if held + made + left <= room:
            continue
        step = STEPS[is_pointwise(graph, node)]
        most = (room - held - left) * planes // made
        if most < step:  # the result does not stay, but the stripe's share of it can
            most = max((room - held) * planes // (made + left), step)
        count = -(-planes // (most // step * step))
        size = align(-(-planes // count), step)
        if size < planes:
            found[node.name] = Stripes(reader, size)
    return found


def _reader(graph: Graph, pitches: Pitches, node: Conv) -> Conv | None:
    """The depthwise convolution that alone reads the output of a convolution, plane by plane as it is."""
    readers = graph.consumers(node.output)
    if node.group != 1 or len(readers) != 1 or node.output in (*graph.outputs, *pitches.joined):
        return None
    if matrices.is_of_frames(graph, node):
        return None
    (reader,) = readers
    if not isinstance(reader, Conv) or not is_depthwise(graph, reader):
        return None
    if not all(is_planar(graph.tensor(name)) for name in (node.inputs[0], node.output, reader.output)):
        return None
    return reader if node.name in pitches.pushed or reads_in_place(graph, reader) else None


def _planes(channels: int) -> int:
    return -(-channels // 4)


def take_turns(context: Context, node: Conv, stripes: Stripes) -> None:
    """The layers of a convolution and of its reader."""
    reader = stripes.reader
    between, y = context.ends(reader)
    channels = between.shape[1]
    starts = range(0, channels, 4 * stripes.planes)
    chosen = [slice(start, min(start + 4 * stripes.planes, channels)) for start in starts]
    bounded = node.name in context.pitches.pushed or context.padded(between)

    for own in chosen:
        _begin(context, node, own)
        if own is chosen[0]:
            source, taps, room = _ends(context, node, stripes)
        stripe = dataclasses.replace(room, channels=own.stop - own.start)
        conv_calls(context, node, source, taps, stripe, between.zero_point if bounded else None, own)
        if own is chosen[0] and node.name not in context.pitches.pushed:
            context.pad(between, stripe, bounded)  # it stays: later stripes write the same cells
        context.use(source.buffer)
        _finish(context, stripe)

        _begin(context, reader, own)
        context.planes[between.name] = stripe
        given, pitch, reader_taps = window_input(context, reader, y, between.zero_point)
        if own is chosen[0]:
            result = context.new_planes(y, pitch)
        part = result.part(own.start, own.stop - own.start)
        depthwise_calls(context, reader, given, reader_taps, part, own)
        if own is chosen[-1]:
            context.pad(y, result)
        _finish(context, part)
    context.held[between.name] = between.nbytes * 4 * stripes.planes // channels
    del context.planes[between.name]
    context.planes[y.name] = result


def _ends(context: Context, node: Conv, stripes: Stripes) -> tuple[Planes, list[int], Planes]:
    """What the convolution reads, its taps, and room for a stripe of what it makes."""
    between, y = context.ends(stripes.reader)
    x = context.graph.tensor(node.inputs[0])
    samples, _, height, width = between.shape
    stripe = dataclasses.replace(
        between, name=f"{between.name} stripe", shape=(samples, 4 * stripes.planes, height, width)
    )
    if node.name in context.pitches.pushed:
        window = context.window(stripes.reader)
        pitch = context.pitches.pitch(y.name, window)
        source, taps = phases(context, x, window, y, pitch, None), [0]
        room = phase_planes(stripe.name, stripe, window, y, pitch, context.now)
    else:
        source, pitch, taps = conv_input(context, node)
        before, behind, _ = context.pitches.padding(between)
        # No vector of pixels reaches into the gap that the next plane begins with: it is another context's.
        vectors = -(-((height - 1) * pitch + width) // VECTOR_PIXELS)
        behind = max(behind, vectors * VECTOR_PIXELS - height * pitch + before)
        room = plain_planes(stripe.name, stripe, pitch, before, behind, context.now)
    context.keep(room.buffer)
    return source, taps, room


def _begin(context: Context, node: Conv, channels: slice) -> None:
    """Begin the layer of some channels of a node."""
    count, whole = channels.stop - channels.start, context.graph.tensor(node.output).shape[1]
    context.begin(node.name, node.op, node.output, macs(context.graph, node) * count // whole)
    context.layer.channels = channels.start, count


def _finish(context: Context, planes: Planes) -> None:
    """The layer has made these planes."""
    context.use(planes.buffer)
    context.layer.start, context.layer.planes = At(planes.buffer, planes.base), planes

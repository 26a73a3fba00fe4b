"""The first convolution: what its window reads of a picture with few channels, as planes of taps.

Planes of a picture with three channels leave a quarter of each word unused. Words that hold four taps of a
window are full, and the convolution over them is pointwise: 7 steps in place of 9 for 3 x 3, 37 in place of
49 for 7 x 7.
"""

from __future__ import annotations

import math

from dsp.hexagon.calls import At, splat, variant
from dsp.hexagon.context import Context
from dsp.hexagon.layout import PIXEL, VECTOR_PIXELS, Planes, plain_planes
from sdk.arena import ALIGNMENT
from sdk.graph import Conv, Tensor

MOST_COLUMNS = 8
"""Of a window; `MOST_COLUMNS` of kernels/kernels.h."""
MOST_TAPS = 160
"""Of all channels: the kernel's code has a few packets for each."""

PACKETS_OF_TAP, MORE_ROWS = 4, 6
"""Packets for a tap of up to 128 pixels of a row; rows at the border cost what so many more do (counted)."""
PACKETS_OF_PHASES = 18
"""Packets that make planes of 32 pixels, and the phases of a stride, where taps are not used (counted)."""


def tap_bytes(context: Context, node: Conv) -> int:
    """Of the planes of a convolution's taps, about."""
    x, y = context.ends(node)
    taps = x.shape[1] * math.prod(context.window(node).kernel)
    return -(-taps // 4) * y.shape[2] * y.shape[3] * PIXEL


def reads_taps(context: Context, node: Conv) -> bool:
    """Whether a convolution is computed from taps: its input lies dense, and packets are saved.

    The planes of the taps are to leave half of the L2 to others.
    """
    window, (x, y) = context.window(node), context.ends(node)
    taps, channels = math.prod(window.kernel), x.shape[1]
    possible = (
        x.name in context.dense
        and x.name not in context.planes
        and len(context.graph.consumers(x.name)) == 1
        and x.shape[0] == 1
        and node.group == 1
        and window.dilations == (1, 1)
        and window.strides[1] in (1, 2)
        and window.kernel[1] <= MOST_COLUMNS
        and max(window.pads[1], window.pads[3]) < ALIGNMENT  # the first vector of a row has all on the left
        and 1 < taps * channels <= MOST_TAPS
        and y.shape[2] * y.shape[3] > 1
    )
    steps = taps * -(-channels // 4) - -(-taps * channels // 4)
    if not possible or not steps:
        return False
    _, outputs, rows, columns = y.shape
    if tap_bytes(context, node) > context.l2 // 2:
        return False
    saved = 2 * steps * -(-rows * columns // VECTOR_PIXELS) * -(-outputs // 4)
    saved += PACKETS_OF_PHASES * -(-math.prod(x.shape[2:]) // VECTOR_PIXELS)
    return (rows + MORE_ROWS) * -(-columns // ALIGNMENT) * PACKETS_OF_TAP * taps * channels < saved


def tap_planes(context: Context, node: Conv) -> tuple[Planes, int]:
    """(planes of the taps of each pixel of the output, in the order of its weights; their pitch)."""
    x, y = context.ends(node)
    window, pitch = context.window(node), context.pitches.pitch(y.name)
    top, left, _, _ = window.pads
    stride, columns = window.strides[1], y.shape[3]
    taps = x.shape[1] * math.prod(window.kernel)
    shape = (1, taps, *y.shape[2:])
    name = f"{x.name} taps"
    planes = plain_planes(name, Tensor(name, shape, x.dtype, x.quantization), pitch, 0, 0, context.now)
    context.keep(planes.buffer)
    given = context.dense[x.name]
    context.use(given.buffer)
    begin = [max(-(-(left - column) // stride), 0) for column in range(window.kernel[1])]
    end = [(x.shape[3] - 1 + left - column) // stride + 1 for column in range(window.kernel[1])]
    shape_of = {"CHANNELS": x.shape[1], "KERNEL_Y": window.kernel[0], "KERNEL_X": window.kernel[1]}
    vectors = -(-((columns - 1) % ALIGNMENT + 1) // VECTOR_PIXELS)
    features = {"ONE_BLOCK": columns <= ALIGNMENT, "LEFT": any(begin), "RIGHT": min(end) < columns}
    fields = {
        "x": At(given.buffer, given.delta),
        "height": x.shape[2],
        "width": x.shape[3],
        "y": At(planes.buffer, planes.base),
        "y_plane": planes.plane,
        "rows": y.shape[2],
        "columns": columns,
        "pitch": pitch,
        "stride_y": window.strides[0],
        "top": top,
        "left": left,
        "begin": [min(first, columns) for first in begin],
        "end": [max(last, 0) for last in end],
        "value": splat(x.zero_point),
    }
    context.call(variant("taps", shape_of | {"STRIDE": stride, "VECTORS": vectors}, features), fields, "taps")
    context.furthest = max(context.furthest, left + 2 * ALIGNMENT * stride)
    return planes, pitch

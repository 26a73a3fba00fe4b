"""Windows in three dimensions, by those in two: two pools, or one Conv with depths as channels."""

from __future__ import annotations

import dataclasses

from sdk.graph import Fill, Tensor
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.plain.conversion import Conversion
from sdk.importers.windows import convolution_windows


def apart(node: OnnxNode) -> tuple[OnnxNode, OnnxNode]:
    """The node's windows over its last two dimensions, and those over its first, as rows of one column."""
    planes, depths = dict(node.attributes), dict(node.attributes)
    for name in ("kernel_shape", "strides", "dilations"):
        value = node.integers(name)
        if value is not None:
            if len(value) != 3:
                raise node.invalid(f"{name} {list(value)} of a window in three dimensions")
            planes[name], depths[name] = list(value[1:]), [value[0], 1]
    pads = node.integers("pads")
    if pads is not None:
        if len(pads) != 6:
            raise node.invalid(f"pads {list(pads)} of a window in three dimensions")
        planes["pads"] = [*pads[1:3], *pads[4:]]
        depths["pads"] = [pads[0], 0, pads[3], 0]
    return dataclasses.replace(node, attributes=planes), dataclasses.replace(node, attributes=depths)


def by_depth(c: Conversion, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, OnnxNode]:
    """Data and weight of a Conv in two dimensions, and its node: each depth of the result is a picture.

    Args:
        c: the Conv.
        x: [N,C,D,H,W].
        weight: [O,C/group,kd,kh,kw].

    Returns:
        [N*D',C*kd,H,W]; [O,C/group*kd,kh,kw]; the node.
    """
    planes, depths = apart(c.node)
    images, channels, depth, rows, columns = x.shape
    taps = weight.shape[2]
    windows = convolution_windows(depths, (images, channels, depth, 1), (*weight.shape[:3], 1))
    before, _, after, _ = windows.pads
    if before or after:
        sides = [(0, 0, pad, 0, 0) for pad in (before, after)]
        x = c.make(Fill, [x], "depths/padded", befores=sides[0], afters=sides[1], value=0.0)
    spare = depth + before + after - windows.dilations[0] * (taps - 1) - 1
    if spare < 0:
        raise c.node.invalid(f"a kernel of {taps} depths over {depth}")
    count = spare // windows.strides[0] + 1
    read = [i * windows.strides[0] + tap * windows.dilations[0] for i in range(count) for tap in range(taps)]
    x = c.take(x, [range(images), range(channels), read, range(rows), range(columns)], "depths/read")
    x = c.reshape(x, (images, channels, count, taps, rows * columns), "depths/windows")
    x = c.transpose(x, (0, 2, 1, 3, 4), "depths/first")
    x = c.reshape(x, (images * count, channels * taps, rows, columns), "depths")
    weight = c.reshape(weight, (weight.shape[0], weight.shape[1] * taps, *weight.shape[3:]), "weight")
    return x, weight, planes


def with_depth(c: Conversion, result: Tensor, images: int) -> Tensor:
    """[N*D',O,H',W'] as the output [N,O,D',H',W']."""
    pictures, channels, rows, columns = result.shape
    depth = pictures // images
    flat = c.reshape(result, (images, depth, channels, rows * columns), "planes")
    turned = c.transpose(flat, (0, 2, 1, 3), "channels")
    return c.reshape(turned, (images, channels, depth, rows, columns))

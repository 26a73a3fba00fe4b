"""Resize by the nearest neighbour: which row and column each output element comes from.

The formulas are those of ONNX's Operators.md (Resize-10 to -19, Upsample-7 and -9), in float32 as onnxruntime
computes them. Where opset 10 and before leave the rounding open, it is onnxruntime's: down when the picture
grows, up when it shrinks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sdk.graph import Resize
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.values import Shape

if TYPE_CHECKING:
    from sdk.importers.walk import Walk

Float32 = NDArray[np.float32]

HALF_TOLERANCE = 1e-6
"""How near to a half a position rounds as a half: measured against onnxruntime 1.31, all sizes up to 40."""


def nearest(walk: Walk, node: OnnxNode, shape: Shape) -> Resize:
    """The operator over an input of `shape`, its input left open.

    Raises:
        Unsupported: interpolation, cropping, antialiasing, or other axes than H and W.
        InvalidModel: scales or sizes that give no picture.
    """
    mode = node.text("mode", "nearest")
    if mode != "nearest":
        raise node.unsupported(f"{node.op_type} with mode {mode!r}", "resize by the nearest neighbour")
    for attribute in ("antialias", "exclude_outside"):
        if node.integer(attribute, 0):
            raise node.unsupported(f"Resize with {attribute} = 1", f"resize with {attribute} = 0")
    if node.text("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        raise node.unsupported("Resize with the coordinates 'tf_crop_and_resize'", "resize the whole picture")
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        raise node.unsupported(f"Resize with the policy {policy!r}", "give the sizes themselves")
    if len(shape) != 4:
        raise node.unsupported(f"{node.op_type} of {list(shape)}: only [N,C,H,W] is supported")
    scales, sizes = scales_and_sizes(walk, node, shape)
    if sizes[:2] != list(shape[:2]):
        raise node.unsupported(f"{node.op_type} of {list(shape)} to {sizes}: only H and W are resized")
    if min(sizes) < 1 or max(sizes) > 1 << 16:
        raise node.invalid(f"{node.op_type} of {list(shape)} to {sizes}")
    rows, columns = (sources(node, shape[i], sizes[i], np.float32(scales[i])) for i in (2, 3))
    return Resize(node.name, (), "", rows, columns)


def scales_and_sizes(walk: Walk, node: OnnxNode, shape: Shape) -> tuple[list[float], list[int]]:
    """One of each for every axis."""
    modern = node.op_type == "Resize" and node.opset >= 11
    axes, rank = node.integers("axes") if modern else None, len(shape)
    if axes is None:
        axes = tuple(range(rank))
    axes = tuple(axis % rank if -rank <= axis < rank else rank for axis in axes)
    if len(set(axes)) != len(axes) or rank in axes:
        raise node.invalid(f"its axes do not exist in an input of rank {rank}")

    def spread(given: list[float], rest: list[float]) -> list[float]:
        if len(given) != len(axes):
            raise node.invalid(f"{len(given)} scales or sizes for {len(axes)} axes")
        result = list(rest)
        for axis, value in zip(axes, given, strict=True):
            result[axis] = value
        return result

    if modern and walk.optional(node, 3) is not None and walk.constant(node, 3).size:
        wanted = spread(walk.constant(node, 3).reshape(-1).tolist(), [float(extent) for extent in shape])
        scales = [float(np.float32(to) / np.float32(of)) for to, of in zip(wanted, shape, strict=True)]
        return scales, [int(extent) for extent in wanted]
    if node.op_type == "Upsample" and node.opset < 9:
        values = node.attributes.get("scales") or ()
        given = [float(scale) for scale in values]
    else:
        given = walk.float_constant(node, 2 if modern else 1).reshape(-1).tolist()
    scales = spread(given, [1.0] * rank)
    if not all(0 < scale < 1 << 16 for scale in scales):
        raise node.invalid(f"scales {scales}")
    return scales, [int(np.float32(s) * np.float32(n)) for s, n in zip(scales, shape, strict=True)]


WHOLE = (0.0, 1.0)
"""The part of an axis that is resized, unless the node crops."""


def sources(
    node: OnnxNode, extent: int, size: int, scale: np.float32, span: tuple[float, float] = WHOLE
) -> tuple[int, ...]:
    """The input's index for each of `size` outputs."""
    position = positions(node, extent, size, scale, span)
    if node.op_type == "Upsample" or node.opset < 11:
        chosen = np.ceil(position) if scale < 1 else np.floor(position)
    else:
        chosen = _rounded(node, position)
    return tuple(np.clip(chosen, 0, extent - 1).astype(np.int64).tolist())


def positions(
    node: OnnxNode, extent: int, size: int, scale: np.float32, span: tuple[float, float] = WHOLE
) -> Float32:
    """Each output's place among the input's, float32."""
    node.require_room(32 * size)  # as a list of numbers
    index, half = np.arange(size, dtype=np.float32), np.float32(0.5)
    if extent == size and scale == 1 and span == WHOLE:
        return index
    default = "half_pixel" if node.op_type == "Resize" and node.opset >= 11 else "asymmetric"
    mode = node.text("coordinate_transformation_mode", default)
    match mode:
        case "asymmetric":
            return index / scale
        case "half_pixel":
            return (index + half) / scale - half
        case "pytorch_half_pixel":
            return (index + half) / scale - half if size > 1 else np.zeros(1, np.float32)
        case "tf_half_pixel_for_nn":
            return (index + half) / scale
        case "align_corners":
            return index * np.float32(extent - 1) / np.float32(max(size - 1, 1))
        case "tf_crop_and_resize":
            start, end = (np.float64(side) * (extent - 1) for side in span)
            step = (end - start) / (size - 1) if size > 1 else 0.0
            return np.asarray((start + index * step) if size > 1 else [(start + end) / 2], np.float32)
        case "half_pixel_symmetric":
            adjustment = np.float32(size) / (scale * np.float32(extent))
            offset = np.float32(extent) / 2 * (1 - adjustment)
            places = np.float64(offset) + (index + np.float64(0.5)) / np.float64(scale) - 0.5
            return np.asarray(places, np.float32)
    raise node.unsupported(f"Resize with the coordinates {mode!r}", "resize the whole picture")


def _rounded(node: OnnxNode, position: Float32) -> Float32:
    mode = node.text("nearest_mode", "round_prefer_floor")
    if mode.startswith("round"):  # a quotient next to a half is meant to be one, as onnxruntime has it too
        halves = np.floor(position) + np.float32(0.5)
        position = np.where(np.abs(position - halves) < HALF_TOLERANCE, halves, position)
    match mode:
        case "round_prefer_floor":
            return np.asarray(np.ceil(position - np.float32(0.5)))
        case "round_prefer_ceil":
            return np.asarray(np.floor(position + np.float32(0.5)))
        case "floor":
            return np.floor(position)
        case "ceil":
            return np.ceil(position)
    raise node.invalid(f"nearest_mode {mode!r}")

"""Pools, and Resize: MaxPool, AveragePool, LpPool; Take by the nearest neighbour, Interpolate."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sdk.expression.trace import apply, select
from sdk.graph import NO_CLAMP, AveragePool, Conv, Fill, Interpolate, MaxPool, Tensor
from sdk.importers.onnx_file import OnnxNode
from sdk.importers.plain.conversion import Conversion, wide
from sdk.importers.plain.volumes import apart
from sdk.importers.resize import WHOLE, positions, scales_and_sizes, sources
from sdk.importers.windows import Windows, in_two_dimensions, pool_windows
from sdk.shapes import window_counts

CUBIC_REACH = 4
"""Elements that a cubic interpolation reads along an axis."""


def max_pool(c: Conversion) -> None:
    """MaxPool; without indices."""
    if any(c.node.outputs[1:]):
        raise c.node.unsupported("MaxPool with indices", "use its first output only")
    _pooled(c, c.x(0), _maximum)


def average_pool(c: Conversion) -> None:
    """AveragePool; with dilations a depthwise Conv and a Map."""
    counted = bool(c.node.integer("count_include_pad", 0))
    _pooled(c, c.x(0), functools.partial(_average, counted=counted))


def lp_pool(c: Conversion) -> None:
    """Map, AveragePool, Map."""
    p = c.node.integer("p", 2)
    if p < 1:
        raise c.node.invalid(f"p = {p}: it is positive")
    x = c.x(0)
    powers = c.map(
        lambda s: s * s if p == 2 else apply("pow", apply("abs", s), float(p)),
        [x],
        "powers",
        dtype=wide(x.dtype),
    )
    means = _pooled(c, powers, functools.partial(_average, counted=True, whole=True), "mean")
    count = math.prod(c.node.integers("kernel_shape") or ())
    c.map(
        lambda s: apply("sqrt", s * count) if p == 2 else apply("pow", s * count, 1 / p),
        [means],
        dtype=x.dtype,
    )


Pool = Callable[[Conversion, OnnxNode, Tensor, str], Tensor]
"""A pool of [N,C,H,W]: of the conversion, the node with windows in two dimensions, the input and the part."""


def _pooled(c: Conversion, x: Tensor, pool: Pool, part: str = "") -> Tensor:
    """A pool in one to three dimensions; one in three is one over planes, then one over depths."""
    rank, shape = len(x.shape) - 2, x.shape
    within = f"{part}/" if part else ""
    if rank == 2:
        return pool(c, c.node, x, part)
    if rank == 3:
        planes, depths = apart(c.node)
        flat = c.reshape(x, (shape[0], shape[1] * shape[2], *shape[3:]), f"{within}planes/x")
        flat = pool(c, planes, flat, f"{within}planes")
        size = flat.shape[2:]
        columns = c.reshape(flat, (*shape[:3], math.prod(size)), f"{within}depths/x")
        result = pool(c, depths, columns, f"{within}depths")
        return c.reshape(result, (*result.shape[:3], *size), part)
    node = in_two_dimensions(c.node, rank)
    row = c.reshape(x, (*shape[:2], 1, *shape[2:]), f"{within}x")
    result = pool(c, node, row, f"{within}rows")
    return c.reshape(result, (*result.shape[:2], result.shape[3]), part)


def _maximum(c: Conversion, node: OnnxNode, x: Tensor, part: str) -> Tensor:
    windows = pool_windows(node, x.shape)
    return c.make(
        MaxPool,
        [x],
        part,
        kernel=windows.kernel,
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
    )


def _average(
    c: Conversion, node: OnnxNode, x: Tensor, part: str, *, counted: bool, whole: bool = False
) -> Tensor:
    """Means over windows.

    Args:
        c: the pool.
        node: with windows in two dimensions.
        x: [N,C,H,W].
        part: of the result.
        counted: whether the node's pads, not what ceil_mode adds, are divided by as well.
        whole: whether all of a window is divided by.
    """
    windows = pool_windows(node, x.shape)
    floor = dataclasses.replace(node, attributes={**node.attributes, "ceil_mode": 0})
    own = pool_windows(floor, x.shape).pads
    added = tuple(wide - pad for wide, pad in zip(windows.pads, own, strict=True))
    if windows.dilations != (1, 1):
        return _dilated_average(c, x, windows, own, part, counted=counted, whole=whole)
    pads = windows.pads
    if counted and not whole and any(added) and any(own):  # padding of its own first, which is counted
        top, left, bottom, right = own
        padded = f"{part}/padded" if part else "padded"
        x = c.make(Fill, [x], padded, befores=(0, 0, top, left), afters=(0, 0, bottom, right), value=0.0)
        pads = (0, 0, added[2], added[3])
    include = counted and (whole or not any(added))
    return c.make(
        AveragePool,
        [x],
        part,
        kernel=windows.kernel,
        strides=windows.strides,
        pads=pads,
        count_include_pad=include,
        clamp=NO_CLAMP,
    )


def _dilated_average(
    c: Conversion, x: Tensor, windows: Windows, own: Sequence[int], part: str, *, counted: bool, whole: bool
) -> Tensor:
    channels = x.shape[1]
    within = f"{part}/" if part else ""
    ones = c.file(np.ones((channels, 1, *windows.kernel), np.float32), f"{within}ones")
    real = c.cast(x, "float32", f"{within}real")
    sums = c.make(
        Conv,
        [real, ones],
        f"{within}sum",
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        group=channels,
        clamp=NO_CLAMP,
    )
    size: tuple[int, int] = (x.shape[2], x.shape[3])
    pads = windows.pads
    if counted:
        size = (size[0] + own[0] + own[2], size[1] + own[1] + own[3])
        pads = (0, 0, pads[2] - own[2], pads[3] - own[3])
    counts = window_counts(size, windows.kernel, windows.strides, pads, windows.dilations)
    if whole:
        counts = np.full_like(counts, math.prod(windows.kernel))
    shares = c.file((1 / counts.astype(np.float64)).astype(np.float32), f"{within}shares")
    return c.map(lambda s, share: s * share, [sums, shares], part, dtype=x.dtype)


# --- resize ---------------------------------------------------------------------------------------------


def resize(c: Conversion) -> None:
    """Take by the nearest neighbour, else Interpolate of the last two axes."""
    x, node = c.x(0), c.node
    spans = _spans(c, len(x.shape))
    mode = node.text("mode", "nearest")
    scales, sizes = _proportions(c, x.shape)
    if min(sizes) < 1 or max(sizes) > 1 << 16:
        raise node.invalid(f"{node.op_type} of {list(x.shape)} to {sizes}")
    changed = [i for i, n in enumerate(x.shape) if sizes[i] != n or scales[i] != 1 or spans[i] != WHOLE]
    outside = _outside(c, x.shape, sizes, spans)
    last = "" if outside is None else "inside"
    if mode == "nearest":
        chosen = [sources(node, n, sizes[i], np.float32(scales[i]), spans[i]) for i, n in enumerate(x.shape)]
        _extrapolated(c, c.take(x, chosen, last), outside)
        return
    if mode not in ("linear", "cubic"):
        raise node.invalid(f"mode {mode!r}")
    if any(axis < len(x.shape) - 2 for axis in changed) or not x.shape:
        raise node.unsupported(
            f"{node.op_type} of {list(x.shape)} to {sizes}: only the last two axes are interpolated",
            "interpolate one axis or two at a time",
        )
    extents = (1, 1, *x.shape)[-2:]
    picture = c.reshape(x, (1, math.prod(x.shape[:-2]), *extents), "picture")
    if len(x.shape) == 4:
        picture = x
    operands = [picture]
    for part, axis in (("rows", -2), ("columns", -1)):
        extent, size, scale, span = extents[axis], 1, 1.0, WHOLE
        if -axis <= len(x.shape):
            size, scale, span = sizes[axis], scales[axis], spans[axis]
        indices, weights = _taps(c, extent, size, np.float32(scale), span, mode)
        operands.append(c.file(indices.astype(np.int32), f"{part}/indices"))
        operands.append(c.file(weights.astype(np.float32), f"{part}/weights"))
    same = len(x.shape) == 4
    result = c.make(Interpolate, operands, last if same else "interpolated")
    if not same:
        result = c.reshape(result, sizes, last)
    _extrapolated(c, result, outside)


def _spans(c: Conversion, rank: int) -> list[tuple[float, float]]:
    """Of each axis the part that is resized, in parts of its length; beyond [0, 1] is outside."""
    spans = [WHOLE] * rank
    if c.node.text("coordinate_transformation_mode", "") != "tf_crop_and_resize":
        return spans
    if not c.has(3):
        raise c.node.unsupported("Resize of a crop by scales", "give the sizes")
    axes = c.node.integers("axes") or range(rank)
    region = c.constant(1).reshape(-1).astype(np.float64).tolist()
    if len(region) != 2 * len(axes):
        raise c.node.invalid(f"a region of {len(region)} numbers for {len(axes)} axes")
    for axis, start, end in zip(axes, region, region[len(axes) :], strict=False):
        spans[c.axis(axis, rank)] = (start, end)
    return spans


def _outside(
    c: Conversion, shape: Sequence[int], sizes: Sequence[int], spans: Sequence[tuple[float, float]]
) -> Tensor | None:
    """Where a crop extends beyond the picture, bool, of the result's rank; None where it does not."""
    found = np.zeros((1,) * len(shape), bool)
    for axis, (extent, size, span) in enumerate(zip(shape, sizes, spans, strict=True)):
        if span != WHOLE:
            place = positions(c.node, extent, size, np.float32(1), span)
            beyond = (place < 0) | (place > extent - 1)
            found = found | beyond.reshape([size if i == axis else 1 for i in range(len(shape))])
    return c.file(found, "outside") if found.any() else None


def _extrapolated(c: Conversion, result: Tensor, outside: Tensor | None) -> None:
    """The result, with the node's value where a crop has none."""
    if outside is not None:
        value = c.node.number("extrapolation_value", 0.0)
        c.map(lambda s, beyond: select(beyond, value, s), [result, outside])


def _proportions(c: Conversion, shape: Sequence[int]) -> tuple[list[float], list[int]]:
    """Scales and sizes of all axes, the policy of the aspect ratio applied."""
    scales, sizes = scales_and_sizes(c.walk, c.node, tuple(shape))
    policy = c.node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch" or not c.has(3):
        return scales, sizes
    if policy not in ("not_larger", "not_smaller"):
        raise c.node.invalid(f"keep_aspect_ratio_policy {policy!r}")
    rank = len(shape)
    axes = c.axes(c.node.integers("axes") or range(rank), rank)
    ratio = (min if policy == "not_larger" else max)(sizes[axis] / shape[axis] for axis in axes)
    for axis in axes:
        scales[axis], sizes[axis] = ratio, math.floor(ratio * shape[axis] + 0.5)
    return scales, sizes


def _taps(
    c: Conversion, extent: int, size: int, scale: np.float32, span: tuple[float, float], mode: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Which elements of an axis each of `size` results reads, [size, k], and their weights."""
    align = c.node.text("coordinate_transformation_mode", "") == "align_corners"
    if align and abs(float(scale) * extent - size) > 1e-3:  # ONNX and its own tests disagree
        raise c.node.unsupported(
            f"align_corners of {extent} elements by {scale:g}, which is not a whole size",
            "give the sizes themselves",
        )
    place = np.asarray(positions(c.node, extent, size, scale, span), np.float64)
    if extent == size and scale == 1 and span == WHOLE:
        return np.arange(size).reshape(-1, 1), np.ones((size, 1))
    antialias = bool(c.node.integer("antialias", 0)) and scale < 1
    if mode == "linear" and not antialias:
        place = np.clip(place, 0, extent - 1)
    first = np.floor(place)
    fraction = (place - first).reshape(-1, 1)
    if antialias:  # the kernel is as wide as it shrinks
        reach = math.ceil((1 if mode == "linear" else 2) / float(scale))
        indices = first.reshape(-1, 1) + np.arange(1 - reach, reach + 1)
        distance = np.abs(indices - place.reshape(-1, 1)) * float(scale)
        linear = np.maximum(1 - distance, 0)
        weights = linear if mode == "linear" else _cubic(distance, c.node.number("cubic_coeff_a", -0.75))
        weights = weights / weights.sum(axis=1, keepdims=True)
    elif mode == "linear":
        indices = first.reshape(-1, 1) + np.arange(2)
        weights = np.concatenate([1 - fraction, fraction], axis=1)
    else:
        indices = first.reshape(-1, 1) + np.arange(-1, CUBIC_REACH - 1)
        weights = _cubic(np.abs(indices - place.reshape(-1, 1)), c.node.number("cubic_coeff_a", -0.75))
    if c.node.integer("exclude_outside", 0):
        weights = np.where((indices >= 0) & (indices < extent), weights, 0)
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(indices, 0, extent - 1).astype(np.int64), weights


def _cubic(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Keys's cubic kernel."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))

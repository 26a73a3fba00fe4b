"""A one-stage detector without anchors, in the shape that is common today."""

from __future__ import annotations

import numpy as np

from sdk.errors import UsageError
from sdk.zoo.builder import Network
from sdk.zoo.layers import upsample
from sdk.zoo.scaling import require_width, scaled

STRIDES = (8, 16, 32)
BINS = 16
"""Of each side's distribution."""


def detector_one_stage(width: float = 1.0, size: int = 320, classes: int = 80, seed: int = 0) -> Network:
    """Three scales, a box and scores at each place; no suppression of boxes that overlap.

    Bottlenecks that split their channels and join all that became of them (arXiv 1911.11929, 2207.02696), a
    pyramid of pools over the last features (1406.4729, its kernels one after the other), a path down and up
    again over three scales (1803.01534), and for each side of a box a distribution over 16 distances
    (2006.04388), whose mean is a 1x1 convolution of its softmax.

    Returns:
        Opset 17, float32: `images` [1, 3, size, size] -> `boxes` [1, 4, places], as centre and size in
        pixels, and `scores` [1, classes, places].

    Raises:
        UsageError: a number out of range; `size` is a multiple of 32.
    """
    require_width(width)
    if size % STRIDES[-1] or size < STRIDES[-1]:
        raise UsageError(f"its pictures are a multiple of {STRIDES[-1]} pixels wide, not {size}")
    b = Network(f"detector_one_stage_{width:g}_{size}", seed, opset=17, centred=False)
    c = [scaled(channels, width) for channels in (16, 32, 64, 128, 256)]
    x = _conv(b, "stem", b.input("images", (1, 3, size, size), 3), c[0], 3, 2)
    x = _stage(b, "stage1", _conv(b, "down1", x, c[1], 3, 2), c[1], 1)
    fine = x = _stage(b, "stage2", _conv(b, "down2", x, c[2], 3, 2), c[2], 2)
    middle = x = _stage(b, "stage3", _conv(b, "down3", x, c[3], 3, 2), c[3], 2)
    x = _stage(b, "stage4", _conv(b, "down4", x, c[4], 3, 2), c[4], 1)
    coarse = _pyramid(b, "pyramid", x, c[4])
    middle = _stage(b, "top1", _joined(b, "top1/in", _up(b, "top1/up", coarse), middle), c[3], 1, False)
    fine = _stage(b, "top2", _joined(b, "top2/in", _up(b, "top2/up", middle), fine), c[2], 1, False)
    x = _joined(b, "bottom1/in", _conv(b, "bottom1/down", fine, c[2], 3, 2), middle)
    middle = _stage(b, "bottom1", x, c[3], 1, False)
    x = _joined(b, "bottom2/in", _conv(b, "bottom2/down", middle, c[3], 3, 2), coarse)
    coarse = _stage(b, "bottom2", x, c[4], 1, False)
    sides, scores = [], []
    inner = scaled(64, width), scaled(80, width)
    for stride, features in zip(STRIDES, (fine, middle, coarse), strict=True):
        places = (size // stride) ** 2
        sides.append(_head(b, f"sides{stride}", features, inner[0], 4 * BINS, places))
        scores.append(_head(b, f"scores{stride}", features, inner[1], classes, places))
    _decoded(b, b.add("Concat", "sides", sides, axis=2), size)
    b.add("Sigmoid", "scores", [b.add("Concat", "logits", scores, axis=2)])
    return b.returns("boxes", "scores")


def _conv(b: Network, name: str, x: str, outputs: int, kernel: int = 1, stride: int = 1) -> str:
    return b.convolve(name, x, outputs, kernel, stride, activation="Silu")


def _up(b: Network, name: str, x: str) -> str:
    return upsample(b, name, x, 2, "nearest", "asymmetric")


def _joined(b: Network, name: str, *parts: str) -> str:
    return b.add("Concat", name, parts, sum(b.channels[part] for part in parts), axis=1)


def _stage(b: Network, name: str, x: str, outputs: int, depth: int, residual: bool = True) -> str:
    """Halves of the channels: one as it is, the other through bottlenecks; all of them joined."""
    half = outputs // 2
    parts = b.split(f"{name}/split", _conv(b, f"{name}/entry", x, 2 * half), [half] * 2, axis=1)
    for index in range(depth):
        y = _conv(b, f"{name}/{index}/first", parts[-1], half, 3)
        y = _conv(b, f"{name}/{index}/second", y, half, 3)
        parts.append(b.add("Add", f"{name}/{index}/add", [parts[-1], y]) if residual else y)
    return _conv(b, f"{name}/exit", _joined(b, f"{name}/joined", *parts), outputs)


def _pyramid(b: Network, name: str, x: str, outputs: int) -> str:
    pools = [_conv(b, f"{name}/entry", x, outputs // 2)]
    for index in range(3):
        pool = f"{name}/pool{index + 1}"
        pools.append(b.add("MaxPool", pool, [pools[-1]], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    return _conv(b, f"{name}/exit", _joined(b, f"{name}/joined", *pools), outputs)


def _head(b: Network, name: str, x: str, inner: int, outputs: int, places: int) -> str:
    x = _conv(b, f"{name}/second", _conv(b, f"{name}/first", x, inner, 3), inner, 3)
    return b.reshape(f"{name}/flat", b.convolve(name, x, outputs), (1, outputs, places), outputs)


def _decoded(b: Network, sides: str, size: int) -> str:
    """Boxes of the distributions of their sides' distances from each place."""
    places = sum((size // stride) ** 2 for stride in STRIDES)
    x = b.reshape("sides/bins", sides, (1, 4, BINS, places), 4)
    x = b.add("Transpose", "sides/last", [x], BINS, perm=[0, 2, 1, 3])
    x = b.add("Softmax", "sides/softmax", [x], axis=1)
    bins = b.constant("bins", np.arange(BINS).reshape(1, BINS, 1, 1))
    x = b.add("Conv", "distances", [x, bins], 4, kernel_shape=[1, 1])
    x = b.reshape("distances/flat", x, (1, 4, places), 4)
    before, after = b.split("distances/split", x, [2, 2], axis=1)
    centres, strides = _places(size)
    at = b.constant("places", centres[None])
    first, last = b.add("Sub", "corners/first", [at, before], 2), b.add("Add", "corners/last", [at, after], 2)
    middle = b.add("Div", "boxes/centre", [b.add("Add", "boxes/sum", [first, last]), b.constant("two", 2)])
    extent = b.add("Sub", "boxes/extent", [last, first])
    x = b.add("Concat", "boxes/places", [middle, extent], 4, axis=1)
    return b.add("Mul", "boxes", [x, b.constant("strides", strides[None])])


def _places(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Centres [2, places] of all places, in strides, and the strides [1, places]."""
    centres, strides = [], []
    for stride in STRIDES:
        count = size // stride
        rows, columns = np.mgrid[:count, :count] + 0.5
        centres.append(np.stack([columns.ravel(), rows.ravel()]))
        strides.append(np.full((1, count * count), stride))
    return np.concatenate(centres, axis=1), np.concatenate(strides, axis=1)

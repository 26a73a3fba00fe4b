"""A monocular depth network: how far away each pixel is."""

from __future__ import annotations

from sdk.errors import UsageError
from sdk.zoo.builder import Network
from sdk.zoo.layers import inverted_residual, upsample
from sdk.zoo.scaling import require_width, scaled

STAGES = (16, 24, 40, 80)
"""Channels of the encoder's stages, from a half of the size to a sixteenth."""
COARSEST = 16
GROUPS = 8
NEAREST, FARTHEST = 0.1, 10.0
"""Metres."""


def depth(width: float = 1.0, size: int = 256, seed: int = 0) -> Network:
    """A U-shaped network: inverted residuals down, then upsampled and joined with what was on the way.

    The decoder is that of arXiv 1806.01260, section 4.1: convolutions over a reflected border, ELU, bilinear
    upsampling, and a sigmoid as disparity; with group normalisation (arXiv 1803.08494), which is written as
    exporters have it: an InstanceNormalization between two Reshapes.

    Returns:
        Opset 18, float32: `image` [1, 3, size, size] -> `depth` [1, 1, size, size], in metres.

    Raises:
        UsageError: a number out of range; `size` is a multiple of 16, at least 32.
    """
    require_width(width)
    if size % COARSEST or size < 2 * COARSEST:
        raise UsageError(f"its pictures are a multiple of {COARSEST} pixels wide, at least 32, not {size}")
    b = Network(f"depth_{width:g}_{size}", seed, opset=18)
    x = b.convolve(
        "stem", b.input("image", (1, 3, size, size), 3), scaled(16, width), 3, 2, activation="Relu"
    )
    skips = []
    for stage, channels in enumerate(STAGES):
        for block in range(2):
            stride = 2 if stage and not block else 1
            name = f"encoder{stage + 1}.{block}"
            x = inverted_residual(b, name, x, scaled(channels, width), stride, activation="Relu")
        skips.append((x, size >> stage + 1))
    x, rows = skips.pop()
    for stage, channels in zip((4, 3, 2), (64, 40, 24), strict=True):
        skip, rows = skips.pop()
        name = f"decoder{stage}"
        x = upsample(b, f"{name}/up", _reflected(b, f"{name}/first", x, scaled(channels, width)), 2)
        x = b.add("Concat", f"{name}/joined", [x, skip], b.channels[x] + b.channels[skip], axis=1)
        x = _reflected(b, f"{name}/second", x, scaled(channels, width), rows)
    x = _reflected(
        b, "decoder1", upsample(b, "decoder1/up", x, 2, coordinates="align_corners"), scaled(16, width)
    )
    disparity = b.add("Sigmoid", "disparity", [_padded(b, "disparity/conv", x, 1)])
    # Inverse depth lies between those of the farthest and the nearest thing.
    span = b.constant("disparity.span", 1 / NEAREST - 1 / FARTHEST)
    inverse = b.add("Mul", "inverse/scaled", [disparity, span])
    inverse = b.add("Add", "inverse", [inverse, b.constant("disparity.least", 1 / FARTHEST)])
    b.add("Reciprocal", "depth", [inverse])
    return b.returns("depth")


def _reflected(b: Network, name: str, x: str, outputs: int, rows: int = 0) -> str:
    """A 3x3 convolution over a reflected border and ELU; with group normalisation where `rows` are given."""
    x = _padded(b, name, x, outputs, "" if rows else "Elu")
    if not rows:
        return x
    grouped = b.reshape(f"{name}/groups", x, (1, GROUPS, -1), GROUPS)
    ones, zeros = b.constant("groups.ones", [1.0] * GROUPS), b.constant("groups.zeros", [0.0] * GROUPS)
    normal = b.add("InstanceNormalization", f"{name}/normal", [grouped, ones, zeros], epsilon=1e-5)
    x = b.reshape(f"{name}/ungrouped", normal, (1, outputs, rows, rows), outputs)
    x = b.add("Mul", f"{name}/scaled", [x, b.weight(f"{name}.scale", (outputs, 1, 1), 0.1, mean=1)])
    x = b.add("Add", f"{name}/shifted", [x, b.weight(f"{name}.shift", (outputs, 1, 1), 0.1)])
    return b.activate(x, "Elu")


def _padded(b: Network, name: str, x: str, outputs: int, activation: str = "") -> str:
    pads = b.constant("pads", [0, 0, 1, 1, 0, 0, 1, 1], "int64")
    x = b.add("Pad", f"{name}/pad", [x, pads], mode="reflect")
    return b.convolve(name, x, outputs, 3, padded=False, activation=activation)

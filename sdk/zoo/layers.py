"""Blocks of convolutions that several networks of the zoo have."""

from __future__ import annotations

from typing import Any

from sdk.zoo.builder import Network


def inverted_residual(
    b: Network,
    name: str,
    x: str,
    outputs: int,
    stride: int,
    dilation: int = 1,
    *,
    expansion: int = 4,
    activation: str = "HardSwish",
) -> str:
    """The block of arXiv 1801.04381: expand, depthwise 3x3, project; added where the shapes allow it."""
    entry, inner = x, expansion * b.channels[x]
    x = b.convolve(f"{name}/expand", x, inner, activation=activation)
    x = b.convolve(
        f"{name}/depthwise", x, inner, 3, stride, groups=inner, dilation=dilation, activation=activation
    )
    residual = stride == 1 and b.channels[entry] == outputs
    x = b.convolve(f"{name}/project", x, outputs, gain=0.25 if residual else 1.0)
    return b.add("Add", f"{name}/add", [x, entry]) if residual else x


def upsample(
    b: Network, name: str, x: str, factor: int, mode: str = "linear", coordinates: str = "half_pixel"
) -> str:
    """A picture enlarged in both directions."""
    scales = b.constant(f"scales{factor}", [1, 1, factor, factor], "float32")
    nearest: dict[str, Any] = {"nearest_mode": "floor"} if mode == "nearest" else {}
    return b.add(
        "Resize", name, [x, "", scales], mode=mode, coordinate_transformation_mode=coordinates, **nearest
    )

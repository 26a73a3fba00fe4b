"""A segmentation network: a class for every pixel."""

from __future__ import annotations

from sdk.errors import UsageError
from sdk.zoo.builder import Network
from sdk.zoo.layers import inverted_residual, upsample
from sdk.zoo.scaling import require_width, scaled

STAGES = ((16, 1, 1), (24, 2, 1), (40, 2, 1), (80, 2, 1), (112, 1, 2), (160, 1, 2))
"""Channels, stride and dilation of each stage of the encoder, of two blocks each."""
RATES = (1, 2, 4)
COARSEST = 16


def segmentation(width: float = 1.0, size: int = 256, classes: int = 21, seed: int = 0) -> Network:
    """Inverted residuals down to a sixteenth, dilated branches beside each other, and bilinear upsampling.

    The encoder's blocks are those of arXiv 1801.04381 with HardSwish; the head is that of arXiv 1802.02611
    (figure 2): branches of several dilations and one of the picture's mean, joined, enlarged four times,
    joined with the features at a quarter, and enlarged four times again.

    Returns:
        Opset 17, float32: `input` [1, 3, size, size] -> `logits` [1, classes, size, size].

    Raises:
        UsageError: a number out of range; `size` is a multiple of 16.
    """
    require_width(width)
    if size % COARSEST or size < COARSEST:
        raise UsageError(f"its pictures are a multiple of {COARSEST} pixels wide, not {size}")
    b = Network(f"segmentation_{width:g}_{size}", seed, opset=17, centred=False)
    x = b.input("input", (1, 3, size, size), 3)
    x = fine = b.convolve("stem", x, scaled(16, width), 3, 2, activation="HardSwish")
    for stage, (channels, stride, dilation) in enumerate(STAGES):
        for block in range(2):
            x = inverted_residual(
                b, f"stage{stage + 1}.{block}", x, scaled(channels, width), 1 if block else stride, dilation
            )
        if stage == 1:
            fine = x
    inner, coarse = scaled(96, width), size // COARSEST
    branches = [b.convolve("head/point", x, inner, activation="Relu")]
    for rate in RATES[1:]:
        name = f"head/rate{rate}"
        branches.append(b.convolve(name, x, inner, 3, dilation=rate, activation="Relu"))
    mean = b.convolve("head/mean", b.add("GlobalAveragePool", "mean", [x]), inner, activation="Relu", gain=4)
    branches.append(upsample(b, "head/mean/up", mean, coarse))
    x = b.add("Concat", "head/joined", branches, inner * len(branches), axis=1)
    x = upsample(b, "head/up", b.convolve("head/project", x, inner, activation="Relu"), 4)
    fine = b.convolve("fine", fine, scaled(24, width), activation="Relu")
    x = b.add("Concat", "joined", [x, fine], b.channels[x] + b.channels[fine], axis=1)
    x = b.convolve("refine", x, inner, 3, activation="Relu")
    x = b.convolve("classifier", x, classes)
    b.add("Identity", "logits", [upsample(b, "up", x, 4)])
    return b.returns("logits")

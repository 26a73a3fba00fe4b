"""A keyword spotter: convolutions over the samples of a second of sound, then a recurrence."""

from __future__ import annotations

from sdk.errors import UsageError
from sdk.zoo.builder import Network
from sdk.zoo.scaling import require_width, scaled

KERNELS = ((80, 16), (3, 2), (3, 2), (3, 2))
"""Taps and stride of each convolution."""
SHORTEST = 400


def keyword_spotter(width: float = 1.0, size: int = 16000, classes: int = 12, seed: int = 0) -> Network:
    """Four 1-D convolutions, a GRU over what they give, and a classifier of its last state.

    The first convolution reads samples, as in arXiv 1610.00087 (80 taps); a recurrence behind convolutions
    is that of arXiv 1703.05390. Channels are multiplied by `width`; `size` is the number of samples.

    Returns:
        Opset 17, float32: `audio` [1, 1, size] -> `log_probabilities` [1, classes].

    Raises:
        UsageError: a number out of range.
    """
    require_width(width)
    if size < SHORTEST:
        raise UsageError(f"its sound has at least {SHORTEST} samples, not {size}")
    b = Network(f"keyword_spotter_{width:g}_{size}", seed, opset=17)
    x = b.input("audio", (1, 1, size), 1)
    for index, (taps, stride) in enumerate(KERNELS):
        outputs = scaled(32 if index < 2 else 64, width)
        x = b.convolve(
            f"conv{index + 1}", x, outputs, taps, stride, rank=1, padded=index > 0, activation="Relu"
        )
    x = b.add("Transpose", "steps", [x], perm=[2, 0, 1])
    inputs, hidden = b.channels[x], scaled(96, width)
    weights = [
        b.product_weight("gru.weight", (1, 3 * hidden, inputs), (2,), 1.0),
        b.product_weight("gru.recurrence", (1, 3 * hidden, hidden), (2,), 1.0),
        b.weight("gru.bias", (1, 6 * hidden), 0.1),
    ]
    x = b.recurrence("gru", x, weights, hidden)
    x = b.add("Squeeze", "last", [x, b.constant("axes0", [0], "int64")], hidden)
    x = b.dense("classifier", x, classes, gain=4)
    b.add("LogSoftmax", "log_probabilities", [x], axis=-1)
    return b.returns("log_probabilities")

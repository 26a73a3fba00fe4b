"""A small vision transformer: patches of a picture as tokens."""

from __future__ import annotations

from sdk.errors import UsageError
from sdk.zoo.builder import Network
from sdk.zoo.scaling import require_width, scaled
from sdk.zoo.transformer import HEAD, Blocks, layer_norm

DEPTH = 12
PATCH = 16


def vision_transformer(width: float = 1.0, size: int = 224, classes: int = 1000, seed: int = 0) -> Network:
    """ViT-Ti/16: 12 blocks over 196 patches and a class token.

    Structure: arXiv 2010.11929, section 3.1; the size is that of arXiv 2012.12877, table 1 (192 channels,
    3 heads). Channels are multiplied by `width`, heads have 64 of them.

    Returns:
        Opset 20, float32: `input` [1, 3, size, size] -> `logits` [1, classes].

    Raises:
        UsageError: a number out of range; `size` is a multiple of 16.
    """
    require_width(width)
    if size % PATCH or size < PATCH:
        raise UsageError(f"its pictures are a multiple of {PATCH} pixels wide, not {size}")
    channels = scaled(192, width, 16)
    tokens = (size // PATCH) ** 2 + 1
    b = Network(f"vision_transformer_{width:g}_{size}", seed, opset=20)
    b.input("input", (1, 3, size, size), 3)
    x = b.convolve("patches", "input", channels, PATCH, PATCH, padded=False)
    x = b.reshape("patches/flat", x, (1, channels, tokens - 1), channels)
    x = b.add("Transpose", "patches/tokens", [x], perm=[0, 2, 1])
    x = b.add("Concat", "tokens", [b.weight("class_token", (1, 1, channels), 1.0), x], channels, axis=1)
    x = b.add("Add", "embedded", [x, b.weight("positions", (1, tokens, channels), 0.5)])
    blocks = Blocks(b, tokens, max(1, channels // HEAD) if channels % HEAD == 0 else 1, gain=0.25)
    for index in range(DEPTH):
        x = blocks.add(f"block{index + 1}", x)
    x = b.slice("class", layer_norm(b, "norm", x), 0, 1, 1)
    x = b.reshape("class/flat", x, (1, channels), channels)
    b.add("Identity", "logits", [b.dense("classifier", x, classes)])
    return b.returns("logits")

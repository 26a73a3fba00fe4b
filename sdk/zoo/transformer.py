"""Layers of transformers (arXiv 1706.03762): attention, the layer behind it, and their normalisations."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sdk.zoo.builder import Network

HEAD = 64
"""Channels of a head, unless a network says otherwise."""


@dataclass(frozen=True)
class Blocks:
    """Blocks of a pre-normalised transformer over [1, tokens, channels].

    Attributes:
        heads: of attention; they divide the channels.
        gain: variance that each of a block's two branches adds.
    """

    network: Network
    tokens: int
    heads: int
    gain: float

    def add(self, name: str, x: str) -> str:
        """One block: attention, then two matrices with GELU between them, each added to what it reads."""
        b, channels = self.network, self.network.channels[x]
        y = self.attention(f"{name}/attention", layer_norm(b, f"{name}/norm1", x))
        x = b.add("Add", f"{name}/add1", [x, y])
        y = layer_norm(b, f"{name}/norm2", x)
        y = b.project(f"{name}/expand", y, 4 * channels, activation="Gelu")
        y = b.project(f"{name}/contract", y, channels, gain=self.gain)
        return b.add("Add", f"{name}/add2", [x, y])

    def attention(self, name: str, x: str) -> str:
        """Every token with all others: softmax(q k' / sqrt(d)) v, by heads."""
        b, channels = self.network, self.network.channels[x]
        size = channels // self.heads
        parts = b.split(f"{name}/split", b.project(f"{name}/qkv", x, 3 * channels), [channels] * 3, axis=-1)
        q, k, v = (
            b.add(
                "Transpose",
                f"{name}/{letter}",
                [b.reshape(f"{name}/{letter}/heads", part, (1, self.tokens, self.heads, size), size)],
                perm=[0, 2, 3, 1] if letter == "k" else [0, 2, 1, 3],
            )
            for letter, part in zip("qkv", parts, strict=True)
        )
        scale = b.constant(f"attention.scale{size}", 1 / math.sqrt(size))
        scores = b.add("MatMul", f"{name}/scores", [b.add("Mul", f"{name}/scaled", [q, scale]), k])
        weights = b.add("Softmax", f"{name}/weights", [scores], axis=-1)
        mixed = b.add("MatMul", f"{name}/mixed", [weights, v], size)
        mixed = b.add("Transpose", f"{name}/tokens", [mixed], perm=[0, 2, 1, 3])
        mixed = b.reshape(f"{name}/joined", mixed, (1, self.tokens, channels), channels)
        # A softmax over random scores averages: what it gives varies by a part of what it reads.
        return b.project(f"{name}/out", mixed, channels, gain=self.gain * math.sqrt(self.tokens))


def layer_norm(b: Network, name: str, x: str) -> str:
    """Layer normalisation (arXiv 1607.06450); of a float16 network in float32 between two casts."""
    if b.dtype == "float32":
        return b.add("LayerNormalization", name, [x, *_affine(b, name, b.channels[x])], axis=-1)
    wide = b.add("Cast", f"{name}/float32", [x], to=b.element("float32"))
    affine = _affine(b, name, b.channels[x], "float32")
    wide = b.add("LayerNormalization", f"{name}/norm", [wide, *affine], axis=-1)
    return b.add("Cast", name, [wide], to=b.element(b.dtype))


def rms_norm(b: Network, name: str, x: str) -> str:
    """Normalisation by the root of the mean square (arXiv 1910.07467), written out as exporters do it."""
    square = b.add("Pow", f"{name}/square", [x, b.constant("rms.two", 2)])
    mean = b.add("ReduceMean", f"{name}/mean", [square, b.constant("rms.axis", [-1], "int64")], keepdims=1)
    root = b.add(
        "Sqrt", f"{name}/root", [b.add("Add", f"{name}/raised", [mean, b.constant("rms.eps", 1e-5)])]
    )
    scaled = b.add("Mul", f"{name}/scaled", [x, b.add("Reciprocal", f"{name}/reciprocal", [root])])
    return b.add("Mul", name, [scaled, b.weight(f"{name}.weight", (b.channels[x],), 0.1, mean=1)])


def _affine(b: Network, name: str, channels: int, dtype: str = "") -> tuple[str, str]:
    scale = b.weight(f"{name}.weight", (channels,), 0.1, mean=1, dtype=dtype)
    return scale, b.weight(f"{name}.bias", (channels,), 0.1, dtype=dtype)

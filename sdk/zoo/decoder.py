"""One step of a decoder-only language model, which keeps the keys and values of earlier steps."""

from __future__ import annotations

import math

import numpy as np

from sdk.errors import UsageError
from sdk.zoo.builder import Network
from sdk.zoo.scaling import require_width, scaled
from sdk.zoo.transformer import rms_norm

DEPTH, HEAD, GROUP, WORDS = 4, 32, 4, 2048
"""Blocks, channels of a head, heads of queries for one of keys, and words."""
BASE = 10_000.0
"""Of the wavelengths of positions."""
HIDDEN = -1e4
"""Added to the scores of positions that are not yet written."""


def decoder(width: float = 1.0, size: int = 128, seed: int = 0) -> Network:
    """A word in, scores of the next word out; `size` positions are kept.

    Blocks as in arXiv 2302.13971: normalisation by the root of the mean square, rotary positions
    (arXiv 2104.09864), attention with a quarter as many heads of keys as of queries (2305.13245), and gated
    SiLU (2002.05202). The keys and values of a step are written at its position: `next_k` and `next_v`
    become `k` and `v` of the next one.

    Returns:
        Opset 18, float32: `token` int64 [1, 1], `position` int64 [1] below `size`, `k` and `v`
        [4, 1, heads, size, 32] -> `logits` [1, 2048], `next_k`, `next_v`.

    Raises:
        UsageError: a number out of range.
    """
    require_width(width)
    if size < 2:
        raise UsageError(f"a decoder keeps at least 2 positions, not {size}")
    channels = scaled(256, width, HEAD * GROUP)
    heads = channels // HEAD // GROUP
    b = Network(f"decoder_{width:g}_{size}", seed, opset=18)
    b.input("token", (1, 1), 1, "int64", below=WORDS)
    b.input("position", (1,), 1, "int64", below=size)
    caches = {letter: b.input(letter, (DEPTH, 1, heads, size, HEAD), HEAD) for letter in "kv"}
    words = b.weight("words", (WORDS, channels), 1.0)
    x = b.add("Gather", "embedded", [words, "token"], channels, axis=0)
    step = _Step(b, size, heads)
    new: dict[str, list[str]] = {"k": [], "v": []}
    for index in range(DEPTH):
        name = f"block{index + 1}"
        kept = {
            letter: _of_block(b, f"{name}/{letter}/kept", cache, index) for letter, cache in caches.items()
        }
        y = step.attention(f"{name}/attention", rms_norm(b, f"{name}/norm1", x), kept, new)
        x = b.add("Add", f"{name}/add1", [x, y])
        x = b.add("Add", f"{name}/add2", [x, _gated(b, name, rms_norm(b, f"{name}/norm2", x))])
    for letter, parts in new.items():
        b.add("Concat", f"next_{letter}", parts, HEAD, axis=0)
    x = b.reshape("last", rms_norm(b, "norm", x), (1, channels), channels)
    b.project("logits", x, WORDS, bias=False)
    return b.returns("logits", "next_k", "next_v")


def _of_block(b: Network, name: str, cache: str, index: int) -> str:
    """What a block has kept, [1, 1, heads, size, 32]."""
    return b.slice(name, cache, index, index + 1, 0)


def _gated(b: Network, name: str, x: str) -> str:
    channels = b.channels[x]
    gate = b.project(f"{name}/gate", x, 4 * channels, bias=False, activation="Silu")
    y = b.add("Mul", f"{name}/gated", [gate, b.project(f"{name}/up", x, 4 * channels, bias=False)])
    return b.project(f"{name}/down", y, channels, bias=False, gain=0.5)


class _Step:
    """What all blocks of one step share: which position is written, which are seen, and its rotation."""

    def __init__(self, b: Network, size: int, heads: int) -> None:
        self.b, self.heads = b, heads
        places = b.constant("places", np.arange(size).reshape(1, 1, 1, size, 1), np.int64)
        self.written = b.add("Equal", "written", [places, "position"], 1)
        row = b.constant("places.row", np.arange(size).reshape(1, 1, 1, 1, size), np.int64)
        seen = b.add("LessOrEqual", "seen", [row, "position"], 1)
        masks = [b.constant("mask.seen", 0.0), b.constant("mask.hidden", HIDDEN)]
        self.mask = b.add("Where", "mask", [seen, *masks], 1)
        at = b.add("Cast", "position/float", ["position"], to=b.element(b.dtype))
        rates = BASE ** (-np.arange(0, HEAD, 2) / HEAD)
        angles = b.add("Mul", "angles", [at, b.constant("rates", np.concatenate([rates, rates]))], HEAD)
        self.cosine, self.sine = (b.add(op, op.lower(), [angles]) for op in ("Cos", "Sin"))

    def attention(self, name: str, x: str, kept: dict[str, str], new: dict[str, list[str]]) -> str:
        """Queries of this word, over the keys and values of all words so far; `new` takes what is kept."""
        b, channels = self.b, self.b.channels[x]
        q = b.project(f"{name}/q", x, channels, bias=False)
        q = self._rotated(f"{name}/q", b.reshape(f"{name}/q/heads", q, (1, 1, self.heads, GROUP, HEAD), HEAD))
        found = {}
        for letter, cache in kept.items():
            part = b.project(f"{name}/{letter}", x, channels // GROUP, bias=False)
            part = b.reshape(f"{name}/{letter}/heads", part, (1, 1, self.heads, 1, HEAD), HEAD)
            part = self._rotated(f"{name}/{letter}", part) if letter == "k" else part
            found[letter] = b.add("Where", f"{name}/{letter}/all", [self.written, part, cache], HEAD)
            new[letter].append(found[letter])
        k = b.add("Transpose", f"{name}/k/columns", [found["k"]], perm=[0, 1, 2, 4, 3])
        scores = b.add("MatMul", f"{name}/scores", [q, k])
        scores = b.add("Mul", f"{name}/scaled", [scores, b.constant("attention.scale", 1 / math.sqrt(HEAD))])
        scores = b.add("Add", f"{name}/masked", [scores, self.mask])
        weights = b.add("Softmax", f"{name}/weights", [scores], axis=-1)
        mixed = b.add("MatMul", f"{name}/mixed", [weights, found["v"]], HEAD)
        mixed = b.reshape(f"{name}/joined", mixed, (1, 1, channels), channels)
        return b.project(f"{name}/out", mixed, channels, bias=False)

    def _rotated(self, name: str, x: str) -> str:
        """Pairs of channels, half a head apart, turned by the position's angles."""
        b, half = self.b, HEAD // 2
        first, second = b.split(f"{name}/halves", x, [half, half], axis=-1)
        turned = b.add(
            "Concat", f"{name}/turned", [b.add("Neg", f"{name}/negative", [second]), first], HEAD, axis=-1
        )
        still = b.add("Mul", f"{name}/cosine", [x, self.cosine])
        return b.add("Add", f"{name}/rotated", [still, b.add("Mul", f"{name}/sine", [turned, self.sine])])

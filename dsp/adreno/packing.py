"""Weights as the kernels read them: texels of four, rows of an image."""

from __future__ import annotations

import numpy as np

from dsp.adreno.plan import TEXEL
from sdk.graph import Array


def blocks(channels: int) -> int:
    """Blocks of four channels, the last one padded."""
    return -(-channels // TEXEL)


def _filled(weights: Array, outputs: int, inputs: int) -> Array:
    full = np.zeros((outputs, inputs, *weights.shape[2:]), np.int16)
    full[: weights.shape[0], : weights.shape[1]] = weights
    return full


def narrow(texels: Array) -> Array:
    """int8 where all weights fit, else int16: less their zero-points, weights may have nine bits."""
    fits = texels.size == 0 or (texels.min() >= -128 and texels.max() <= 127)
    return texels.astype(np.int8 if fits else np.int16)


def product_weights(weights: Array, fold: int) -> Array:
    """Centred [O, I, ...] -> texels of four input channels, [4 * ceil(O / 4 / fold), width * fold, 4].

    They are a picture of 4 rows, an output channel each, by as many columns as there are blocks of input
    channels, for each position of the window; its blocks are blocks of output channels, `fold` side by side.
    """
    outputs, inputs = -(-blocks(len(weights)) // fold) * fold, blocks(weights.shape[1])
    full = _filled(weights, outputs * TEXEL, inputs * TEXEL).reshape(outputs * TEXEL, inputs * TEXEL, -1)
    texels = full.transpose(0, 2, 1).reshape(-1, fold, TEXEL, full.shape[2] * inputs, TEXEL)
    return texels.transpose(0, 2, 1, 3, 4).reshape(-1, fold * texels.shape[3], TEXEL)


def stays_within_int32(weights: Array, bias: Array) -> bool:
    """Whether sums over unsigned bytes that begin with `bias` do, for all bytes and in any order."""
    apart = weights.reshape(len(weights), -1).astype(np.int64)
    low, high = (255 * part.sum(axis=1) + bias for part in (np.minimum(apart, 0), np.maximum(apart, 0)))
    return bool((low >= -(2**31)).all() and (high < 2**31).all())


def depthwise_weights(weights: Array) -> Array:
    """Centred [C, 1, kh, kw] -> [C / 4, kh * kw, 4], channels innermost."""
    count = blocks(len(weights))
    full = _filled(weights, count * TEXEL, 1)
    return full.reshape(count, TEXEL, -1).transpose(0, 2, 1)


def channel_constants(bias: Array, scales: Array) -> Array:
    """int32 [O] and float32 [O] -> int32 [O / 4, 2, 4]: of each block the biases, then the scales' bits."""
    full = np.zeros((blocks(len(bias)) * TEXEL, 2), "<i4")
    full[: len(bias), 0] = bias
    full[: len(bias), 1] = scales.astype("<f4").view("<i4")
    return full.reshape(-1, TEXEL, 2).transpose(0, 2, 1)

"""DFT and STFT as products with constant matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sdk import dtypes
from sdk.graph import MatMul, Tensor
from sdk.importers.plain.conversion import Conversion

LARGEST_MATRIX = 64 << 20
"""Bytes of the matrix of one transform; as of constants that folding adds."""


def dft(c: Conversion) -> None:
    """MatMul by a constant matrix, between Transposes."""
    x, node = c.x(0), c.node
    rank, parts = len(x.shape), x.shape[-1] if x.shape else 0
    if rank < 2 or parts not in (1, 2):
        raise node.invalid(f"DFT of {list(x.shape)}: the last axis has the real part, or both")
    axis = c.axis(node.integer("axis", 1) if node.opset < 20 else int(c.scalar(2, -2)), rank)
    if axis == rank - 1:
        raise node.invalid("DFT along the axis of the real and imaginary parts")
    inverse, onesided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    default = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    matrix = _matrix(c, x.shape[axis], parts, int(c.scalar(1, default)), inverse, onesided)
    perm = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    moved = c.transpose(x, perm, "axis")
    rows = c.reshape(moved, (*moved.shape[:-2], matrix.shape[0] * matrix.shape[1]), "rows")
    made = _multiplied(c, rows, matrix)
    made = c.reshape(made, (*moved.shape[:-2], *matrix.shape[2:]), "parts")
    c.transpose(made, np.argsort(perm).tolist())


def stft(c: Conversion) -> None:
    """MatMul of frames, which Take makes, by a constant matrix that has the window in it."""
    signal, node = c.x(0), c.node
    if len(signal.shape) == 2:
        signal = c.reshape(signal, (*signal.shape, 1), "signal")
    if len(signal.shape) != 3 or signal.shape[2] not in (1, 2):
        raise node.invalid(f"STFT of {list(signal.shape)}, not [batch, samples, 1 or 2]")
    batch, samples, parts = signal.shape
    step, window = int(c.scalar(1, 0)), c.constant(2) if c.has(2) else None
    size = int(c.scalar(3, len(window) if window is not None else 0))
    if step < 1 or not 0 < size <= samples or (window is not None and window.shape != (size,)):
        raise node.invalid(f"STFT of {samples} samples: frames of {size}, every {step}")
    matrix = _matrix(c, size, parts, size, False, bool(node.integer("onesided", 1)))
    if window is not None:
        matrix = matrix * window.astype(np.float64).reshape(-1, 1, 1, 1)
    frames = (samples - size) // step + 1
    read = [frame * step + i for frame in range(frames) for i in range(size)]
    taken = c.take(signal, [range(batch), read, range(parts)], "frames")
    made = _multiplied(c, c.reshape(taken, (batch, frames, size * parts), "rows"), matrix)
    c.reshape(made, (batch, frames, *matrix.shape[2:]))


def _multiplied(c: Conversion, rows: Tensor, matrix: NDArray[np.float64]) -> Tensor:
    """[..., n*parts] by a matrix [n, parts, m, parts']: [..., m*parts']."""
    flat = matrix.reshape(matrix.shape[0] * matrix.shape[1], -1)
    factor = c.file(dtypes.encode(flat, rows.dtype), "matrix", rows.dtype)
    return c.make(MatMul, [rows, factor], "product", transposed=False)


def _matrix(
    c: Conversion, count: int, parts: int, length: int, inverse: bool, onesided: bool
) -> NDArray[np.float64]:
    """What a transform of `length` makes of each number of `count` elements: [count, parts, m, parts'].

    Elements beyond `length` are left out, and missing ones are zero. A one-sided inverse has real results.
    """
    if length < 1:
        raise c.node.invalid(f"a transform of length {length}")
    nbytes = count * parts * length * 2 * 4
    if nbytes > LARGEST_MATRIX:
        raise c.node.unsupported(
            f"its matrix of {nbytes:,} bytes exceeds {LARGEST_MATRIX:,}", "transform shorter frames"
        )
    each = np.eye(count * parts).reshape(count * parts, count, parts)
    whole = each[..., 0] + (1j * each[..., 1] if parts == 2 else 0)
    if inverse and onesided:
        made = np.fft.irfft(whole, length, axis=1)[..., np.newaxis]
    else:
        found = (np.fft.ifft if inverse else np.fft.fft)(whole, length, axis=1)
        found = found[:, : length // 2 + 1] if onesided else found
        made = np.stack([found.real, found.imag], axis=-1)
    return made.reshape(count, parts, *made.shape[1:])

"""Seeded inputs of a network: what calibrates, checks and measures those of the zoo."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.extras import require
from sdk.importers import read_onnx
from sdk.zoo.builder import RANGES_KEY

COARSE = 8
"""Squares, in each direction, of the picture that lies under the noise of pictures."""
PICTURE = 32
"""Least rows and columns of what is taken for a picture."""


def noise(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.float32]:
    """Standard normal numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def example_inputs(path: str | os.PathLike[str], seed: int = 0, samples: int = 0) -> dict[str, NDArray[Any]]:
    """Inputs of an ONNX file, by name.

    Floats are standard normal. Where an input is a picture, noise lies over squares of a common level, so
    that averages over the picture depend on it. A uint8 is 128 + 48 times such a number; other integers are
    evenly spread over the range that the file states.

    Args:
        path: of a file that the zoo wrote, or another with static shapes.
        seed: of the numbers.
        samples: 0 for one input of the network's own shape; else so many of them, [samples, ...].
    """
    model = read_onnx(path, external=False)
    onnx = require("onnx")
    ranges: dict[str, int] = next(
        (json.loads(entry.value) for entry in model.metadata_props if entry.key == RANGES_KEY), {}
    )
    constants = {tensor.name for tensor in model.graph.initializer}
    random = np.random.default_rng(seed)
    result = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = [_drawn(random, shape, dtype, ranges.get(value.name, 2)) for _ in range(samples or 1)]
        result[value.name] = np.concatenate(drawn) if samples else drawn[0]
    return result


def _drawn(random: np.random.Generator, shape: tuple[int, ...], dtype: Any, below: int) -> NDArray[Any]:
    if dtype.kind not in "fu":
        return random.integers(0, below, shape).astype(dtype)
    values = random.standard_normal(shape)
    if len(shape) == 4 and min(shape[2:]) >= PICTURE:
        coarse = random.standard_normal((*shape[:2], COARSE, COARSE))
        rows, columns = (np.arange(extent) * COARSE // extent for extent in shape[2:])
        values = (values + 2 * coarse[:, :, rows][:, :, :, columns]) / 2
    if dtype.kind == "u":
        values = np.clip(np.rint(128 + 48 * values), 0, 255)
    return values.astype(dtype)

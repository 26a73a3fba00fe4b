"""Networks for benchmarks, by name: seeded weights, quantised on seeded noise, the same bytes every time.

Exact counts depend on shapes, not on weights, so these stand for the trained networks of the same shape.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from sdk.extras import require
from sdk.quantization import quantize
from sdk.zoo.networks import NETWORKS

PATTERN = re.compile(rf"(?P<network>{'|'.join(NETWORKS)})_(?P<width>\d+\.\d+)_(?P<size>\d+)")
"""NAME_WIDTH_SIZE, as TensorFlow's model zoo spells it: mobilenet_v2_1.0_224."""

SAMPLES = 4


def quantized_benchmark(name: str, directory: Path) -> Path | None:
    """Write the quantised network of this name to `directory`; None if the name is none of these.

    Raises:
        UsageError: a width or size that no such network has.
        OutputFailed: the directory cannot be written.
    """
    match = PATTERN.fullmatch(name)
    if match is None:
        return None
    size = int(match["size"])
    source, result = directory / "float.onnx", directory / f"{name}.onnx"
    require("onnx").save(NETWORKS[match["network"]](float(match["width"]), size), source)
    noise = np.random.default_rng(0).normal(size=(SAMPLES, 3, size, size)).astype(np.float32)
    quantize(source, noise, result)
    return result

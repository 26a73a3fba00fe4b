"""Networks for benchmarks, by name: seeded weights, quantised on seeded noise, the same bytes every time.

Exact counts depend on shapes, not on weights, so these stand for the trained networks of the same shape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sdk.errors import UsageError
from sdk.extras import require
from sdk.quantization import quantize
from sdk.suggestions import did_you_mean
from sdk.zoo.networks import NETWORKS

PATTERN = re.compile(rf"(?P<network>{'|'.join(NETWORKS)})_(?P<width>\d+\.\d+)_(?P<size>\d+)")
"""NAME_WIDTH_SIZE, as TensorFlow's model zoo spells it: mobilenet_v2_1.0_224."""

SAMPLES = 4

MODEL_SUFFIXES = (".onnx", ".tflite", ".tow")


def require_name(name: str, others: Sequence[str] = ()) -> None:
    """Refuse what is neither a network of the zoo nor the name of a file.

    Args:
        name: what was asked for.
        others: what else may be asked for in this place, to be suggested too.

    Raises:
        UsageError: with the pattern of names, or the networks of the zoo.
    """
    path = Path(name)
    if PATTERN.fullmatch(name) or path.exists() or len(path.parts) > 1 or path.suffix in MODEL_SUFFIXES:
        return
    network = max((known for known in NETWORKS if name.startswith(known)), key=len, default=None)
    if network is not None and name[len(network) :][:1] in ("", "_"):
        raise UsageError(
            f"{name!r} is not NETWORK_WIDTH_SIZE: a width such as 1.0 or 0.35, and a size in pixels, "
            f"follow {network}",
            hint=f"for example {network}_1.0_224",
        )
    base = re.sub(r"(_[\d.]+){1,2}$", "", name)
    suggestion = did_you_mean(base, [*NETWORKS, *others])
    known = f"networks of the zoo: {', '.join(NETWORKS)}, written NETWORK_WIDTH_SIZE as mobilenet_v2_1.0_224"
    raise UsageError(
        f"there is no file {name!r}, and no such network in the zoo",
        hint="; ".join(filter(None, [suggestion, known])),
    )


def quantized_benchmark(name: str, directory: Path) -> Path | None:
    """Write the quantised network of this name to `directory`; None if the name is not one of these.

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

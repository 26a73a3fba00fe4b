"""Networks of the zoo as files: seeded weights, quantised on seeded inputs, the same bytes every time.

Exact counts depend on shapes, not on weights, so these stand for the trained networks of the same shape.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sdk import files
from sdk.quantizer import QuantizationReport, quantize
from sdk.zoo.builder import Network
from sdk.zoo.catalogue import INT8, Name, find, unknown
from sdk.zoo.inputs import example_inputs, noise

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
    if find(name) or path.exists() or len(path.parts) > 1 or path.suffix in MODEL_SUFFIXES:
        return
    raise unknown(name, tuple(others))


def benchmark(name: str, directory: Path) -> Path | None:
    """Write the network of this name to `directory`, in its precision; None for no network of the zoo.

    Raises:
        UsageError: a width, size or precision that no such network has.
        OutputFailed: the directory cannot be written.
    """
    found = find(name)
    if found is None:
        return None
    result = directory / f"{name}.onnx"
    if found.precision == INT8:
        write_quantized(found, result)
    else:
        write(found, result)
    return result


def write(name: Name, path: str | os.PathLike[str]) -> None:
    """Write a float network; its weights to PATH.data from 1 GiB on.

    Raises:
        UsageError: a width or size that no such network has.
        OutputFailed: it cannot be written.
    """
    built = name.build()
    if isinstance(built, Network):
        built.save(path)
    else:
        files.write(path, built.SerializeToString())


def write_quantized(name: Name, path: str | os.PathLike[str]) -> QuantizationReport:
    """Quantise a network on seeded inputs, its recurrences unrolled, and write it.

    Raises:
        UsageError: a width or size that no such network has.
        OutputFailed: it cannot be written.
        Unsupported: something in it cannot be quantised.
    """
    with files.scratch_directory() as directory:
        source = directory / "float.onnx"
        write(name, source)
        return quantize(source, _samples(name, source), path, method="minmax", unroll=True)


def _samples(name: Name, source: Path) -> Mapping[str, Any]:
    """Calibration inputs, [N, ...] by name: plain noise of the classifiers, whose counts are on record."""
    if name.entry.precision == INT8:
        return {"input": noise((SAMPLES, 3, name.size, name.size))}
    return example_inputs(source, samples=SAMPLES)

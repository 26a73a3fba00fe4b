"""Artefacts as bytes, and an artefact to make them of."""

import io
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from sdk.artifact import Artifact, Source, load, save
from sdk.preprocess import InputStatistics, Preprocessing
from sdk.segments import split
from sdk.target import Options
from tests.reference_target import ReferenceTarget, small_network


def make(**changes):
    graph = small_network()
    program = ReferenceTarget().compile(split(graph).body, Options())
    recipe = Preprocessing((4, 4), None, "GRAY", 1 / 255, (0.5,), (0.5,))
    statistics = InputStatistics.of([np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 1, 4, 4)], "NCHW")
    fields = {
        "preprocessing": recipe.to_json(),
        "input_statistics": statistics.to_json(),
        "labels": ["Katze", "Hündin", "猫"],
        "source": Source("net.onnx", "00" * 32),
    }
    return Artifact((program,), graph, "q31", **fields | changes)


def to_bytes(artifact):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.tow")
        save(artifact, path)
        return path.read_bytes()


def from_bytes(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.tow")
        path.write_bytes(data)
        return load(path)


def members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}

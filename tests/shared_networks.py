"""Networks as exporters wrote them, which are not in the source tree; tests are skipped without them.

Their folder has a README, facts about them, and the program that fills in their weights.
"""

import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.external_data import DATA

NETWORKS = DATA.parent / "networks"

NAMES = (
    *("convnext-atto", "depth", "detector", "driving-small", "driving-state-inside", "efficientnet-b0"),
    *("keyword-spotter", "language-model-step", "lstm-stream", "mobilenet-v3-large", "mobilevit-xxs"),
    *("planner-transformer", "resnet18-bn", "segmentation", "super-resolution", "swin-micro", "vit-tiny"),
)
QUICK = ("keyword-spotter", "language-model-step", "lstm-stream")
"""Those that the reference runs in a few tenths of a second."""


@cache
def program() -> ModuleType:
    """The program that fills them."""
    spec = importlib.util.spec_from_file_location("materialise", NETWORKS / "materialise.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def facts() -> dict:
    """What is known of each, by file name."""
    return json.loads((NETWORKS / "facts.json").read_text())


def filled(name: str, folder: Path, seed: int = 0) -> Path:
    """A network with weights of that seed, made in `folder` unless it is there."""
    if not NETWORKS.is_dir():
        pytest.skip(f"{NETWORKS} is missing")
    path = folder / f"{name}-{seed}.onnx"
    if not path.exists():
        model = onnx.load(NETWORKS / f"{name}.onnx")
        program().materialise(model, seed)
        onnx.save(model, path)
    return path


def example_inputs(path: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs of that seed, by name."""
    return program().example_inputs(onnx.load(path), seed)


def by_onnxruntime(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs by name, without optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def tolerance(name: str, output: str) -> float:
    """How far an output may be from onnxruntime's, as a part of its largest magnitude."""
    known = next(fact for fact in facts()[f"{name}.onnx"]["facts"] if fact["name"] == output)
    return 3 * known["rounded_max"] if known.get("rounded_max") else 20 * known["ort_spread"] + 1e-6


def assert_close(name: str, found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """Outputs are onnxruntime's, as closely as the facts about the network say."""
    for output, expected in wanted.items():
        exact = expected.astype(np.float64)
        difference = np.abs(found[output].astype(np.float64) - exact).max() / np.abs(exact).max()
        assert difference <= tolerance(name, output), (output, difference)

"""Towline's public API.

    import towline

    towline.quantize("net.onnx", "pictures/", "q.onnx")
    towline.compile("q.onnx", target="hexagon-v65", output="net.tow")
    with towline.Session("net.tow") as session:
        for prediction in session.classify("cat.jpg"):
            print(prediction.index, prediction.score)

    with towline.open_gpu("usb") as gpu:            # a card behind a USB bridge; "emulated" without one
        print(gpu.info(), gpu.metrics())

Running a `.tow` needs numpy alone; pictures, `quantize` and `compile` need the extra `compile`.
Every deliberate error is an `Error`, with `message`, `where` and `hint`.

A name is imported when it is first used, so that `import towline` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from towline._shadow import require_own_packages

require_own_packages()

if TYPE_CHECKING:
    from sdk.artifact import Artifact, load, save
    from sdk.check import Check, check
    from sdk.classification import Prediction
    from sdk.compiler import compile
    from sdk.errors import TowlineError as Error
    from sdk.evaluation import Evaluation, evaluate
    from sdk.preprocess import Preprocessing
    from sdk.quantizer import QuantizationReport, quantize
    from sdk.session import Session
    from sdk.stream import Stream
    from sdk.target import OpenOptions, Options, Profile
    from sdk.targets import devices
    from sdk.targets import target_names as targets
    from sdk.telemetry.metrics import Metrics
    from sdk.zoo import digits
    from towline._version import __version__
    from towline.gpu import compile_kernels, emulated_board, open_gpu

_HOME = {
    "Artifact": "sdk.artifact",
    "Check": "sdk.check",
    "Error": "sdk.errors:TowlineError",
    "Evaluation": "sdk.evaluation",
    "Metrics": "sdk.telemetry.metrics",
    "OpenOptions": "sdk.target",
    "Options": "sdk.target",
    "Prediction": "sdk.classification",
    "Preprocessing": "sdk.preprocess",
    "Profile": "sdk.target",
    "QuantizationReport": "sdk.quantizer",
    "Session": "sdk.session",
    "Stream": "sdk.stream",
    "__version__": "towline._version",
    "check": "sdk.check",
    "compile": "sdk.compiler",
    "compile_kernels": "towline.gpu",
    "devices": "sdk.targets",
    "digits": "sdk.zoo",
    "emulated_board": "towline.gpu",
    "evaluate": "sdk.evaluation",
    "load": "sdk.artifact",
    "open_gpu": "towline.gpu",
    "quantize": "sdk.quantizer",
    "save": "sdk.artifact",
    "targets": "sdk.targets:target_names",
}
"""Public name -> the module that has it, and its name there if that differs."""

__all__ = [
    "Artifact",
    "Check",
    "Error",
    "Evaluation",
    "Metrics",
    "OpenOptions",
    "Options",
    "Prediction",
    "Preprocessing",
    "Profile",
    "QuantizationReport",
    "Session",
    "Stream",
    "__version__",
    "check",
    "compile",
    "compile_kernels",
    "devices",
    "digits",
    "emulated_board",
    "evaluate",
    "load",
    "open_gpu",
    "quantize",
    "save",
    "targets",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'towline' has no attribute {name!r}")
    module, _, other = _HOME[name].partition(":")
    value = getattr(importlib.import_module(module), other or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

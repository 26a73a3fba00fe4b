"""Towline's public API.

    import towline

    towline.quantize("net.onnx", "pictures/", "q.onnx")
    towline.compile("q.onnx", target="hexagon-v65", output="net.tow")
    with towline.Session("net.tow") as session:
        for prediction in session.classify("cat.jpg"):
            print(prediction.index, prediction.score)

Running a `.tow` needs numpy alone; pictures, `quantize` and `compile` need the extra `compile`.
Everything raised on purpose is an `Error`, with `message`, `where` and `hint`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sdk.artifact import Artifact, load, save
from sdk.check import Check, check
from sdk.compiler import compile
from sdk.errors import TowlineError as Error
from sdk.preprocess import Preprocessing
from sdk.quantization import QuantizationReport, quantize
from sdk.session import Prediction, Session
from sdk.target import Options, Profile, get_target
from sdk.target import target_names as targets

__all__ = [
    "Artifact",
    "Check",
    "Error",
    "Options",
    "Prediction",
    "Preprocessing",
    "Profile",
    "QuantizationReport",
    "Session",
    "check",
    "compile",
    "devices",
    "load",
    "quantize",
    "save",
    "targets",
]


def devices(target: str | None = None) -> dict[str, Sequence[tuple[str, str]]]:
    """The devices that can be opened here and now: (device string, description) by target.

    Args:
        target: a name of `targets()`; all of them by default.

    Raises:
        Error: no such target.
    """
    return {name: get_target(name).devices() for name in ([target] if target else targets())}

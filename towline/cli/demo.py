"""`towline demo`: the whole way with the digits model, from float ONNX to a measured, checked DSP program.

Accuracy is that of the held-out split, which neither training nor calibration has seen, and all of it runs.
The device's outputs are compared with the reference on every picture, its layers on the first few. At the
same time the quantised model is compiled for the phone's GPU and for those that one plugs in over USB, all
emulated; they get the first pictures of the split (`demo_gpus`).
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk import artifact, files, ort, reference, settings
from sdk.artifact import Artifact
from sdk.compiler import DEFAULT_TARGET, compile
from sdk.errors import CheckFailed, OutputFailed, UsageError
from sdk.importers import read_onnx
from sdk.quantizer import quantize
from sdk.report import Console, Result, size, table
from sdk.session import Session
from sdk.target import Arithmetic
from sdk.targets import require_device
from sdk.zoo import digits
from towline.cli import demo_gpus
from towline.cli.bench import summary
from towline.cli.demo_gpus import EMULATED, Gpu

EXAMPLE = "towline demo"

LAYER_CHECKS = 16
"""Pictures whose every layer is compared; the outputs are compared on all."""
FILES_PICTURES = 100
"""Pictures that `--files` leaves: enough to calibrate with."""

Inputs = NDArray[np.float32]


@dataclass
class Stages:
    """Wall seconds by stage, and a line of progress for each."""

    console: Console
    seconds: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.console.note(name)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target", metavar="NAME", help=f"only this target (default: {DEFAULT_TARGET}, and the GPUs)"
    )
    parser.add_argument(
        "--device", metavar="DEVICE", help=f"where to run (default: {settings.DEVICE.name}, or emulated)"
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="keep the quantised model, the .tow and the pictures here"
    )
    parser.add_argument(
        "--files",
        metavar="DIR",
        help="run nothing: leave the float model (net.onnx) and its pictures (pictures/) here, to begin with",
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    if args.files is not None:
        if args.target or args.device or args.keep is not None:
            raise UsageError("--files runs nothing: leave out --target, --device and --keep")
        return _files(Path(args.files))
    if args.keep is None:
        with files.scratch_directory() as temporary:
            return _demo(args, temporary, Stages(console))
    directory = Path(args.keep)
    _make(directory)
    result = _demo(args, directory, Stages(console))
    digits().write_pictures(directory)
    return result


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputFailed(f"cannot be created: {problem.strerror}", where=str(directory)) from problem


def _files(directory: Path) -> Result:
    """What the tutorials begin with."""
    model, pictures = directory / "net.onnx", directory / "pictures"
    _make(pictures)
    files.write(model, digits().model.read_bytes())
    written = digits().write_pictures(pictures, FILES_PICTURES)
    return Result(
        {"model": str(model), "pictures": [str(path) for path in written]},
        f"{model}: MobileNetV2 0.35 for handwritten digits, float\n"
        f"{pictures}: {len(written)} pictures of digits; their names say which",
    )


def _demo(args: argparse.Namespace, directory: Path, stages: Stages) -> Result:
    model = digits()
    target = args.target or DEFAULT_TARGET
    require_device(target, args.device or settings.DEVICE.value())
    quantized, compiled = directory / "digits.onnx", directory / "digits.tow"
    images, labels = model.test()
    inputs = model.inputs(images)
    console = stages.console
    with stages.stage("quantise"):
        quantize(
            model.model,
            model.calibration(),
            quantized,
            preprocessing=model.preprocessing,
            progress=console.progress,
        )
    with contextlib.ExitStack() as stack:
        beside: list[Gpu] = []
        if args.target is None and args.device is None:
            beside = stack.enter_context(demo_gpus.started(quantized, inputs[: demo_gpus.PICTURES]))
        with stages.stage(f"compile for {target}"):
            network = compile(quantized, target, compiled)
        with stages.stage("float, onnxruntime"):
            float_classes = _float(model.model, inputs)
        with stages.stage(f"int8 reference, {network.arithmetic}"):
            expected = _reference(network, inputs, console, network.arithmetic)
        with Session(artifact.load(compiled), args.device) as session:
            with stages.stage(f"run on {session.device}"):
                actual = demo_gpus.run(session, inputs, console)
            with stages.stage(f"check every layer of {LAYER_CHECKS} pictures"):
                layers = demo_gpus.layers(network, session, inputs[:LAYER_CHECKS])
            profile = summary(session.profile())
        gpus, failed = _gpus(beside, network, inputs, labels, stages)
    wrong = int(np.count_nonzero(actual != expected))
    document = {
        "pictures": len(labels),
        "target": network.target,
        "device": session.device,
        "accuracy": {
            "float": _accuracy(float_classes, labels),
            "reference": _accuracy(expected.argmax(axis=1), labels),
            "device": _accuracy(actual.argmax(axis=1), labels),
        },
        "outputs": {"elements": actual.size, "mismatches": wrong},
        "check": layers.to_json(),
        "total": profile["total"],
        "memory": profile["memory"],
        "seconds": stages.seconds,
    }
    if beside:
        document["gpus"] = gpus
    took = time.perf_counter() - stages.began
    differs = layers.first_mismatch
    failure = _failure(wrong, layers.mismatches, None if differs is None else differs.node)
    return Result(document, _text(document, took), failure or failed)


def _gpus(
    gpus: Sequence[Gpu], network: Artifact, inputs: Inputs, labels: NDArray[np.int64], stages: Stages
) -> tuple[list[dict[str, Any]], CheckFailed | None]:
    """What the GPUs have found meanwhile, their outputs compared with the reference's; and what is wrong."""
    inputs, labels = inputs[: demo_gpus.PICTURES], labels[: demo_gpus.PICTURES]
    expected: dict[str, NDArray[np.float32]] = {}
    found: list[dict[str, Any]] = []
    failure = None
    for gpu in gpus:
        name = gpu.target
        stages.console.note(f"{name}, which has run beside the DSP")
        measured, actual = gpu.result()
        if actual is None:
            stages.console.warn(f"{name} is left out: {measured['skipped']}")
            found.append({"target": name, **measured})
            continue
        stages.seconds.update(measured["seconds"])
        arithmetic = measured["arithmetic"]
        if arithmetic not in expected:
            with stages.stage(f"int8 reference, {arithmetic}, {len(inputs)} pictures"):
                expected[arithmetic] = _reference(network, inputs, stages.console, arithmetic)
        wrong, layers = int(np.count_nonzero(actual != expected[arithmetic])), measured["check"]
        failure = failure or _failure(wrong, layers["mismatches"], measured["differs"])
        found.append(
            {
                "target": name,
                "device": EMULATED,
                "pictures": len(labels),
                "accuracy": {
                    "reference": _accuracy(expected[arithmetic].argmax(axis=1), labels),
                    "device": _accuracy(actual.argmax(axis=1), labels),
                },
                "outputs": {"elements": actual.size, "mismatches": wrong},
                **{key: measured[key] for key in ("check", "total", "memory")},
            }
        )
    return found, failure


def _float(model: Path, inputs: Inputs) -> NDArray[np.int64]:
    """Classes as the float model gives them under onnxruntime: int64 [N]."""
    session = ort.session(read_onnx(model))
    name = session.get_inputs()[0].name
    return np.array([session.run(None, {name: one[np.newaxis]})[0].argmax() for one in inputs])


def _reference(
    network: Artifact, inputs: Inputs, console: Console, arithmetic: Arithmetic
) -> NDArray[np.float32]:
    """What the numpy reference gives in an arithmetic: [N, classes]."""
    (name,), (output,) = network.graph.inputs, network.graph.outputs
    rows = []
    for done, one in enumerate(inputs, 1):
        console.progress("reference", done, len(inputs))
        rows.append(reference.run(network.graph, {name: one[np.newaxis]}, arithmetic)[output])
    return np.concatenate(rows)


def _accuracy(classes: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    return float(np.mean(classes == labels))


def _failure(wrong: int, mismatches: int, differs: str | None) -> CheckFailed | None:
    """Of elements of the outputs and of the layers; the first layer that differs is node `differs`."""
    if wrong == 0 and mismatches == 0:
        return None
    return CheckFailed(
        f"{wrong} elements of the outputs and {mismatches} of the layers differ from the reference",
        where=None if differs is None else f"node {differs}",
        hint="this is a bug in the target: please report it, with what `towline doctor` prints",
    )


def _text(document: dict[str, Any], took: float) -> str:
    accuracy, outputs, layers = document["accuracy"], document["outputs"], document["check"]
    total, memory = document["total"], document["memory"]
    pictures = document["pictures"]

    def correct(name: str) -> str:
        return f"{100 * accuracy[name]:.2f} % ({round(accuracy[name] * pictures)} of {pictures})"

    rows = [
        ("accuracy, float (onnxruntime)", correct("float")),
        ("accuracy, int8 reference", correct("reference")),
        (f"accuracy, {document['target']} on {document['device']}", correct("device")),
        (
            "mismatches in outputs",
            f"{outputs['mismatches']} of {outputs['elements']:,} ({pictures} pictures)",
        ),
        (
            "mismatches in every layer",
            f"{layers['mismatches']} of {layers['elements']:,} ({min(LAYER_CHECKS, pictures)} pictures)",
        ),
    ]
    if "macs_per_packet" in total:
        rows += [
            ("packets per inference", f"{total['packets']:,}"),
            ("MACs per packet", f"{total['macs_per_packet']:.1f} ({total['macs']:,} MACs)"),
        ]
    rows += [(f"memory, {name.replace('_', ' ')}", size(count)) for name, count in memory.items()]
    rows += [_gpu_row(found) for found in document.get("gpus", ())]
    stages = table(("stage", "seconds"), [*document["seconds"].items(), ("all, some side by side", took)])
    return table(("handwritten digits, held-out split", ""), rows) + "\n\n" + stages


def _gpu_row(found: dict[str, Any]) -> tuple[str, str]:
    if "skipped" in found:
        return (f"{found['target']}: left out", found["skipped"])
    outputs, layers, pictures = found["outputs"], found["check"], found["pictures"]
    right = round(found["accuracy"]["device"] * pictures)
    return (
        f"{found['target']} on {found['device']}",
        f"{right} of {pictures} right; "
        f"mismatches: {outputs['mismatches']} of {outputs['elements']:,} in outputs, "
        f"{layers['mismatches']} of {layers['elements']:,} in every layer ({demo_gpus.LAYER_CHECKS})",
    )

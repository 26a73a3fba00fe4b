"""`towline debug`: a compiled network layer by layer, on the target, in the reference and in onnxruntime."""

from __future__ import annotations

import argparse
import functools
import hashlib
from typing import TYPE_CHECKING

from sdk import artifact, files
from sdk.artifact import Artifact
from sdk.errors import CheckFailed, EnvironmentMissing, UsageError
from sdk.report import Console, Result, table
from sdk.session import Session
from towline.cli.inputs import add_network_and_inputs, given, require_inputs, samples
from towline.cli.options import HTML, ONNX, TOW, require_suffix, whole
from towline.cli.runtime import add_device, logged, open_options

if TYPE_CHECKING:
    from sdk.debugging import Oracle, Report
    from sdk.debugging.sensitivity import Scorer

EXAMPLE = "towline debug net.tow cat.jpg --model q.onnx --float net.onnx --html report.html"

LEAST = ("range %", "saturated %", "clipped %", "output", "alone", "gain dB", "operator", "dB", "#")
"""Columns that a narrow terminal leaves out, in this order."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_network_and_inputs(parser)
    parser.add_argument("--model", metavar="Q.onnx", help="the quantised model that it was compiled from")
    parser.add_argument("--float", dest="real", metavar="NET.onnx", help="the float model that was quantised")
    parser.add_argument(
        "--sensitivity",
        type=whole,
        default=60,
        metavar="SECONDS",
        help="how long to try layers in floats, with --model and --float (default: 60; 0 for not at all)",
    )
    parser.add_argument("--html", metavar="REPORT.html", help="write the report as one HTML file")
    add_device(parser)


def run(args: argparse.Namespace, console: Console) -> Result:
    from sdk.debugging import debug, document, page
    from sdk.quantizer.metadata import read_quantization

    paths = given(args)
    path = require_suffix(args.network, TOW)
    if args.model is not None and args.model.lower().endswith(".tflite"):
        raise UsageError(
            "onnxruntime does not run TFLite",
            where=args.model,
            hint="leave out --model; the rest is compared",
        )
    for model in (args.model, args.real):
        if model is not None:
            require_suffix(model, ONNX)
    if args.html is not None:
        require_suffix(args.html, HTML, exists=False)
    require_inputs(paths)
    network = artifact.load(path)
    console.note(f"running the code in {path} for {network.target}; run only a .tow that you trust")
    quantized, real, missing = _oracles(args, network, console)
    with logged(console), Session(network, args.device, open_options(args)) as session:
        inputs = ((sample.name, sample.feeds) for sample in samples(session, paths))
        report = debug(
            network,
            session,
            inputs,
            quantized=quantized,
            real=real,
            scorer=_scorer(args, network) if quantized is not None and real is not None else None,
            seconds=args.sensitivity,
            made=None if quantized is None else read_quantization(args.model),
            progress=console.progress,
        )
    if report.not_tried:
        missing.append(f"sensitivity: {report.not_tried}")
    found = {"file": path, **document(report), "not_compared": missing}
    text = _text(report, missing)
    if args.html is not None:
        files.write(
            args.html,
            page(
                report, path.name, labels=network.labels, notes=[f"not compared: {line}" for line in missing]
            ).encode(),
        )
        found["html"] = args.html
        text += f"\n\nreport written: {args.html}"
    return Result(found, text, _failure(report))


def _oracles(
    args: argparse.Namespace, network: Artifact, console: Console
) -> tuple[Oracle | None, Oracle | None, list[str]]:
    """The models to compare with, and what cannot be compared, with the reason."""
    from sdk.debugging import float_oracle, quantized_oracle

    graph = network.program.graph
    missing = []
    if args.model is None:
        tflite = network.source is not None and network.source.name.lower().endswith(".tflite")
        way = "it runs no .tflite, as this was" if tflite else "give the quantised model with --model"
        missing.append(f"onnxruntime: {way}")
    if args.real is None:
        missing.append("float: give the float model with --float")
    quantized = real = None
    try:
        if args.model is not None:
            quantized = quantized_oracle(args.model, graph)
            if network.source is not None and network.source.sha256 != _sha256(args.model):
                console.warn(f"{args.model}: this is not the file that the network was compiled from")
        if args.real is not None:
            real = float_oracle(args.real, graph, args.model)
    except EnvironmentMissing as problem:
        console.warn(f"{problem}: the models are not compared ({problem.hint})")
        return None, None, [f"onnxruntime and float: {problem}"]
    return quantized, real, missing


def _scorer(args: argparse.Namespace, network: Artifact) -> Scorer | None:
    """What tries layers in floats; None if it is not to be done."""
    from sdk.quantizer import mixed

    if not args.sensitivity:
        return None
    shapes = {name: network.graph.tensor(name).shape for name in network.graph.inputs}
    return functools.partial(mixed.of_files, args.real, args.model, input_shapes=shapes)


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _failure(report: Report) -> CheckFailed | None:
    from sdk.debugging import advice, verdict

    layer = report.diverging
    if layer is None:
        return None
    return CheckFailed(verdict(report), where=f"node {layer.node}", hint=advice(report)[0])


def _text(report: Report, missing: list[str]) -> str:
    from sdk.debugging import advice, columns, verdict

    layers = columns(report.layers)
    inputs = report.samples[0] if len(report.samples) == 1 else f"{len(report.samples)} inputs"
    plain = f"{report.plain} layers of plain tensors are not shown: `towline run --check` compares them"
    parts = [
        f"{report.target} ({report.arithmetic} arithmetic) on {report.device}, {inputs}",
        table(list(layers), zip(*layers.values(), strict=True), least=LEAST),
        plain if report.plain else "",
        "\n".join([*_answers(report.answers), *(f"not compared: {line}" for line in missing)]),
        "\n".join([verdict(report), *(f"  {line}" for line in advice(report))]),
    ]
    return "\n\n".join(part for part in parts if part)


def _answers(answers: list[dict[str, int]]) -> list[str]:
    """The class that each of them gives, or how often they agree."""
    if not answers:
        return []
    if len(answers) == 1:
        return ["best class: " + ", ".join(f"{who} {index}" for who, index in answers[0].items())]
    same = {who: sum(one[who] == one["target"] for one in answers) for who in answers[0] if who != "target"}
    return [
        "same best class as the target: " + ", ".join(f"{w} {n} of {len(answers)}" for w, n in same.items())
    ]

"""`towline tune`: measure which variants of a target's kernels cost a network least, and keep the choices."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from sdk import cache, files, tuner, tuning
from sdk.graph import Graph
from sdk.importers import load_model
from sdk.integer_islands import for_arithmetic
from sdk.passes import optimize
from sdk.report import Console, Result, table
from sdk.segments import split
from sdk.target import require_supported
from sdk.targets import get_target
from sdk.tuner import Layer, Outcome
from sdk.zoo.benchmark import benchmark
from towline.cli.options import (
    MODEL,
    add_input_shape,
    add_pool,
    input_shapes,
    pool,
    require_directory,
    require_suffix,
)

EXAMPLE = (
    "towline tune q.onnx --target hexagon-v65\n"
    "towline tune q.onnx --target hexagon-v65 --scheduler tcp://host:8786 -o tuning.json\n"
    "towline compile q.onnx --target hexagon-v65 --tuning tuning.json -o net.tow"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="the model, ONNX or TFLite, or a network of the zoo by name"
    )
    parser.add_argument("--target", required=True, metavar="NAME", help="one of `towline targets`")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.json",
        help="the tuning file; choices are added to an existing one (default: the user's own, which "
        "`towline compile` reads)",
    )
    add_pool(parser, "candidates measured")
    add_input_shape(parser)


def run(args: argparse.Namespace, console: Console) -> Result:
    tuner.tunable(args.target)  # errors in the arguments come before the work
    output = tuning.user_file(args.target) if args.output is None else Path(args.output)
    if args.output is not None:
        require_directory(args.output)
    tuning.existing(output, args.target)
    body = _body(args)
    with pool(args) as workers:
        outcome = tuner.tune(
            args.target, body, workers, lambda known, total: console.progress("measuring", known, total)
        )
    # Read again: another run may have added to it meanwhile.
    data = tuner.merged(tuning.existing(output, args.target), outcome).to_bytes()
    with cache.writing(output.parent) if args.output is None else contextlib.nullcontext():
        files.write(output, data)
    document = _document(args.target, output, outcome)
    return Result(document, _text(document, outcome))


def _body(args: argparse.Namespace) -> Graph:
    """The integer body of the network, which the target takes."""
    shapes = input_shapes(args.input_shape)
    with files.scratch_directory() as directory:
        built = benchmark(args.model, directory)
        graph = load_model(built or require_suffix(args.model, MODEL), input_shapes=shapes)
    target = get_target(args.target)
    body = split(for_arithmetic(optimize(graph), target.arithmetic)).body
    require_supported(target, body)
    return body


def _document(target: str, output: Path, outcome: Outcome) -> dict[str, Any]:
    layers = outcome.layers
    return {
        "target": target,
        "output": output,
        "counter": outcome.tuning.counter,
        "candidates": outcome.known + outcome.measured,
        "known": outcome.known,
        "measured": outcome.measured,
        "untuned": sum(layer.uses * layer.untuned for layer in layers),
        "tuned": sum(layer.uses * layer.count for layer in layers),
        "layers": [vars(layer) for layer in layers],
    }


def _text(document: dict[str, Any], outcome: Outcome) -> str:
    gains = [layer for layer in outcome.layers if layer.count < layer.untuned]
    counter = outcome.tuning.counter
    saved = document["untuned"] - document["tuned"]
    lines = [
        f"{document['candidates']} variants of {len(outcome.layers)} kinds of layer: "
        f"{document['known']} known from earlier runs, {document['measured']} measured",
        f"better than the heuristic for {len(gains)}: what can be tuned takes {document['tuned']:,} "
        f"{counter} in the network instead of {document['untuned']:,} ({saved:,} less)",
        f"written: {document['output']}",
    ]
    if gains:
        headers = ("uses", f"{counter} each", "tuned", "choice", "layer")
        lines.insert(1, table(headers, [_row(layer) for layer in gains]))
        lines.insert(1, "")
    return "\n".join(lines)


def _row(layer: Layer) -> tuple[int, int, int, str, str]:
    return layer.uses, layer.untuned, layer.count, layer.choice, layer.signature

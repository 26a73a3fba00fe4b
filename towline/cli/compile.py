"""`towline compile`: a quantised ONNX or TFLite model to a `.tow` for one target."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sdk import artifact
from sdk.artifact import Artifact
from sdk.compiler import compile
from sdk.errors import UsageError
from sdk.graph import Graph
from sdk.importers import load_model
from sdk.preprocess import parse
from sdk.report import Console, Result, seconds, size, table
from sdk.target import get_target
from towline.cli.inputs import class_count, read_labels
from towline.cli.options import (
    MODEL,
    TOW,
    add_input_shape,
    add_preprocess,
    add_tuning,
    input_shapes,
    require_suffix,
    tuned,
    tuning_line,
)

EXAMPLE = "towline compile q.onnx --target hexagon-v65 -o net.tow"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", help="the quantised model, ONNX (QDQ or QOperator) or TFLite"
    )
    parser.add_argument("--target", required=True, metavar="NAME", help="one of `towline targets`")
    parser.add_argument("-o", "--output", required=True, metavar="NET.tow", help="the compiled network")
    add_preprocess(
        parser, "what `towline quantize` stored in the model; the pixel itself for a .tflite of 8-bit input"
    )
    parser.add_argument(
        "--labels", metavar="FILE", help="names of the classes, one a line, stored in the network"
    )
    add_tuning(parser)
    add_input_shape(parser)


def run(args: argparse.Namespace, console: Console) -> Result:
    model = require_suffix(args.model, MODEL)
    output = require_suffix(args.output, TOW, exists=False)
    get_target(args.target)  # errors in the arguments come before the work
    options = tuned(args)
    shapes = input_shapes(args.input_shape)
    graph = load_model(model, input_shapes=shapes)
    preprocessing = None if args.preprocess is None else _preprocessing(args.preprocess, graph)
    labels = None if args.labels is None else read_labels(args.labels, class_count(graph))
    console.detail(f"compiling {model} for {args.target}")
    network = compile(model, args.target, input_shapes=shapes, labels=labels, options=options)
    network.preprocessing = preprocessing or network.preprocessing
    artifact.save(network, output)
    if network.preprocessing is None:
        console.note(
            "the model does not say how a picture becomes its input: give --preprocess, or run arrays"
        )
    document = _document(output, network)
    return Result(document, _text(document))


def _preprocessing(text: str, graph: Graph) -> dict[str, Any]:
    if len(graph.inputs) != 1:
        raise UsageError(f"--preprocess needs a network with one input; it has {len(graph.inputs)}")
    return parse(text, graph.tensor(graph.inputs[0]).shape).to_json()


def _document(output: Path, network: Artifact) -> dict[str, Any]:
    program = network.program
    return {
        "output": output,
        "target": program.target,
        "arithmetic": network.arithmetic,
        "nodes": len(program.graph.nodes),
        "macs": program.graph.macs,
        "bytes": {
            "file": output.stat().st_size,
            "weights": program.weights.nbytes,
            "code": sum(map(len, program.code.values())),
        },
        "memory": program.plan.get("memory", {}),
        "tuning": program.plan.get("tuning"),
        "preprocessing": network.preprocessing,
        "seconds": network.seconds,
    }


def _text(document: dict[str, Any]) -> str:
    bytes_, memory, stages = document["bytes"], document["memory"], document["seconds"]
    rows = [*bytes_.items(), *((name, n) for name, n in memory.items() if name not in bytes_)]
    return "\n\n".join(
        (
            f"{document['output']}: {document['nodes']} operators, {document['macs']:,} MACs "
            f"for {document['target']}, bit-identical to the {document['arithmetic']} reference",
            table(("part", "bytes", ""), [(name.replace("_", " "), n, size(n)) for name, n in rows]),
            *filter(None, [tuning_line(document["tuning"])]),
            seconds(stages),
        )
    )

"""`towline compile`: an ONNX or TFLite model to a `.tow` for one target."""

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
        "model",
        metavar="MODEL",
        help="the model: ONNX (float, QDQ or QOperator) or quantised TFLite",
    )
    parser.add_argument("--target", required=True, metavar="NAME", help="one of `towline targets`")
    parser.add_argument("-o", "--output", required=True, metavar="NET.tow", help="the compiled network")
    add_preprocess(
        parser, "what `towline quantize` stored in the model; the pixel itself for a .tflite of 8-bit input"
    )
    parser.add_argument(
        "--labels", metavar="FILE", help="names of the classes, one a line, stored in the network"
    )
    parser.add_argument(
        "--state",
        metavar="OUTPUT:INPUT",
        action="append",
        type=_state,
        help="an output that becomes an input in the next step; without it next_NAME becomes NAME",
    )
    parser.add_argument(
        "--no-states", action="store_true", help="next_NAME and NAME are tensors like any other"
    )
    host = parser.add_mutually_exclusive_group()
    host.add_argument(
        "--host",
        dest="policy",
        action="store_const",
        const="any",
        default="default",
        help="run on the host what the target refuses; by default no product and at most 1 %% of the MACs",
    )
    host.add_argument(
        "--no-host", dest="policy", action="store_const", const="none", help="run nothing on the host"
    )
    add_tuning(parser)
    add_input_shape(parser)


def run(args: argparse.Namespace, console: Console) -> Result:
    model = require_suffix(args.model, MODEL)
    output = require_suffix(args.output, TOW, exists=False)
    get_target(args.target)  # errors in the arguments come before the work
    options = tuned(args)
    shapes = input_shapes(args.input_shape)
    preprocessing = labels = None
    if args.preprocess is not None or args.labels is not None:  # mistakes in these come before the work
        graph = load_model(model, input_shapes=shapes)
        preprocessing = None if args.preprocess is None else _preprocessing(args.preprocess, graph)
        labels = None if args.labels is None else read_labels(args.labels, class_count(graph))
    console.detail(f"compiling {model} for {args.target}")
    network = compile(
        model,
        args.target,
        input_shapes=shapes,
        labels=labels,
        options=options,
        states=() if args.no_states else args.state,
        host=args.policy,
    )
    network.preprocessing = preprocessing or network.preprocessing
    artifact.save(network, output)
    if network.preprocessing is None:
        console.note(
            "the model does not say how a picture becomes its input: give --preprocess, or run arrays"
        )
    document = _document(output, network)
    return Result(document, _text(document))


def _state(text: str) -> tuple[str, str]:
    output, colon, given = text.rpartition(":")
    if not colon or not output or not given:
        raise argparse.ArgumentTypeError(f"{text!r} is not OUTPUT:INPUT")
    return output, given


def _preprocessing(text: str, graph: Graph) -> dict[str, Any]:
    if len(graph.inputs) != 1:
        raise UsageError(f"--preprocess needs a network with one input; it has {len(graph.inputs)}")
    return parse(text, graph.tensor(graph.inputs[0]).shape).to_json()


def _document(output: Path, network: Artifact) -> dict[str, Any]:
    programs, graph = network.programs, network.graph
    computed = [program.graph.tensor(node.output) for program in programs for node in program.graph.nodes]
    sizes = [program.plan.get("memory", {}) for program in programs]
    return {
        "output": output,
        "target": network.target,
        "arithmetic": network.arithmetic,
        "nodes": sum(len(program.graph.nodes) for program in programs),
        "macs": sum(program.graph.macs for program in programs),
        "quantized": sum(tensor.quantization is not None for tensor in computed),
        "plain": sum(tensor.quantization is None for tensor in computed),
        "bytes": {
            "file": output.stat().st_size,
            "weights": sum(program.weights.nbytes for program in programs),
            "code": sum(len(code) for program in programs for code in program.code.values()),
        },
        "memory": {name: sum(memory.get(name, 0) for memory in sizes) for name in sizes[0]},
        "tuning": programs[0].plan.get("tuning"),
        "segments": [
            {
                "place": segment.place,
                "nodes": len(segment.graph.nodes),
                "bytes_in": sum(graph.tensor(name).nbytes for name in segment.graph.inputs),
                "bytes_out": sum(graph.tensor(name).nbytes for name in segment.graph.outputs),
            }
            for segment in network.segments
        ],
        "states": [{"output": output, "input": given} for output, given in network.states],
        "preprocessing": network.preprocessing,
        "seconds": network.seconds,
    }


def _text(document: dict[str, Any]) -> str:
    bytes_, memory, stages = document["bytes"], document["memory"], document["seconds"]
    rows = [*bytes_.items(), *((name, n) for name, n in memory.items() if name not in bytes_)]
    return "\n\n".join(
        (
            f"{document['output']}: {document['nodes']} operators, {document['macs']:,} MACs "
            f"for {document['target']}, {' and '.join(_claims(document))}",
            table(("part", "bytes", ""), [(name.replace("_", " "), n, size(n)) for name, n in rows]),
            *filter(None, [_segments(document["segments"]), _states(document["states"])]),
            *filter(None, [tuning_line(document["tuning"])]),
            seconds(stages),
        )
    )


def _claims(document: dict[str, Any]) -> list[str]:
    """How results compare with the definition."""
    claims = []
    if document["quantized"]:
        claims.append(f"bit-identical to the {document['arithmetic']} reference")
    if document["plain"]:
        claims.append("floats within the bounds of their definition")
    return claims


def _segments(segments: list[dict[str, Any]]) -> str:
    """What crosses the link in mid-graph; nothing of a network that has one part for the device."""
    if sum(segment["place"] == "device" for segment in segments) == 1:
        return ""
    rows = [(one["place"], one["nodes"], one["bytes_in"], one["bytes_out"]) for one in segments]
    return table(("place", "nodes", "bytes in", "bytes out"), rows)


def _states(states: list[dict[str, Any]]) -> str:
    return "\n".join(f"state: {one['output']} becomes {one['input']}" for one in states)

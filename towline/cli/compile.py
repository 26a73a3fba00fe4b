"""`towline compile`: an ONNX or TFLite model to a `.tow` for one target."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from sdk import artifact
from sdk.artifact import Artifact
from sdk.compiler import compile
from sdk.errors import UsageError
from sdk.float16 import Float16
from sdk.graph import Graph
from sdk.importers import load_model
from sdk.preprocess import Preprocessing, parse
from sdk.report import Console, Result, seconds, size, table
from sdk.segments import round_trips
from sdk.targets import get_target
from towline.cli.camera import add_camera, camera_lines, cameras
from towline.cli.inputs import class_count, read_labels
from towline.cli.inspect_text import crossing
from towline.cli.options import (
    MODEL,
    TOW,
    add_arithmetic,
    add_cut,
    add_input_shape,
    add_preprocess,
    add_tuning,
    cache_bytes,
    reading,
    require_suffix,
    tuned,
    tuning_line,
)

EXAMPLE = """towline compile q.onnx --target hexagon-v65 -o net.tow
towline compile net.onnx --target c -o net.tow --float16 --calibrate pictures/
towline compile net.onnx --target amd-gfx1100 -o net.tow --camera nv12:1928x1208 --warp"""

MANY = 20
"""Layers kept in float32 that the text shows."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="the model: ONNX (float, QDQ or QOperator) or TFLite (float or quantised)",
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
    parser.add_argument(
        "--float16",
        action="store_true",
        help="make a float32 network float16, with float32 inputs and outputs; "
        "layers that would overflow stay float32",
    )
    parser.add_argument(
        "--keep-float32",
        action="append",
        default=[],
        metavar="NAME",
        help="with --float16: a node or tensor that stays float32, by name or pattern such as 'block3/*'; "
        "may be repeated",
    )
    parser.add_argument(
        "--calibrate",
        metavar="DIR_OR_NPZ",
        help="with --float16: typical inputs, which show what overflows (default: a few random ones)",
    )
    parser.add_argument(
        "--sums",
        choices=("half", "float32"),
        help="how products of float16 are added on a target with half arithmetic: half (default): 16 of "
        "them, and these sums in float32; float32: all of them",
    )
    parser.add_argument(
        "--l2",
        metavar="SIZE",
        help="size of the L2 in which a Hexagon DSP keeps what layers pass on, such as 512K (default: 1M)",
    )
    add_arithmetic(parser)
    add_camera(parser)
    add_tuning(parser)
    add_input_shape(parser)
    add_cut(parser)


def run(args: argparse.Namespace, console: Console) -> Result:
    model = require_suffix(args.model, MODEL)
    output = require_suffix(args.output, TOW, exists=False)
    get_target(args.target)  # errors in the arguments come before the work
    options, l2 = tuned(args), cache_bytes(args.l2)
    how = reading(args)
    front = cameras(args)
    if not args.float16 and (args.keep_float32 or args.calibrate is not None):
        option = "--keep-float32" if args.keep_float32 else "--calibrate"
        raise UsageError(f"{option} is for --float16", hint="give --float16 as well")
    preprocessing = labels = None
    if args.preprocess is not None or args.labels is not None:  # mistakes in these come before the work
        graph = load_model(model, **how)
        preprocessing = None if args.preprocess is None else _preprocessing(args.preprocess, graph)
        labels = None if args.labels is None else read_labels(args.labels, class_count(graph))
    console.detail(f"compiling {model} for {args.target}")
    network = compile(
        model,
        args.target,
        labels=labels,
        options=options,
        states=() if args.no_states else args.state,
        host=args.policy,
        preprocessing=preprocessing,
        float16=args.float16,
        keep_float32=args.keep_float32,
        calibrate=args.calibrate,
        sums=args.sums,
        l2=l2,
        arithmetic=args.arithmetic,
        cameras=front,
        **how,
    )
    artifact.save(network, output)
    if network.preprocessing is None and not network.cameras:
        console.note(
            "the model does not say how a picture becomes its input: give --preprocess, or run arrays"
        )
    document = _document(output, network)
    return Result(document, _text(document, network))


def _state(text: str) -> tuple[str, str]:
    output, colon, given = text.rpartition(":")
    if not colon or not output or not given:
        raise argparse.ArgumentTypeError(f"{text!r} is not OUTPUT:INPUT")
    return output, given


def _preprocessing(text: str, graph: Graph) -> Preprocessing:
    if len(graph.inputs) != 1:
        raise UsageError(f"--preprocess needs a network with one input; it has {len(graph.inputs)}")
    return parse(text, graph.tensor(graph.inputs[0]).shape)


def _document(output: Path, network: Artifact) -> dict[str, Any]:
    programs, graph, crossed = network.programs, network.graph, round_trips(network.segments)
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
        "sixteen_bits": sum(tensor.dtype in ("int16", "uint16") for tensor in computed),
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
        "round_trips": {"count": crossed.count, "bytes": crossed.nbytes},
        "states": [{"output": output, "input": given} for output, given in network.states],
        "cameras": [dataclasses.asdict(camera) for camera in network.cameras],
        "float16": _float16(network.float16),
        "preprocessing": network.preprocessing,
        "seconds": network.seconds,
    }


def _float16(made: Float16 | None) -> dict[str, Any] | None:
    if made is None:
        return None
    return {
        "already": made.already,
        "kept": [{**dataclasses.asdict(one), "text": str(one)} for one in made.kept],
    }


def _text(document: dict[str, Any], network: Artifact) -> str:
    bytes_, memory, stages = document["bytes"], document["memory"], document["seconds"]
    rows = [*bytes_.items(), *((name, n) for name, n in memory.items() if name not in bytes_)]
    return "\n\n".join(
        (
            f"{document['output']}: {document['nodes']} operators, {document['macs']:,} MACs "
            f"for {document['target']}, {' and '.join(_claims(document))}",
            table(("part", "bytes", ""), [(name.replace("_", " "), n, size(n)) for name, n in rows]),
            *filter(None, [_kept(document["float16"])]),
            *filter(None, [_segments(document), camera_lines(network.cameras), _states(document["states"])]),
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
        what = "16-bit integers and floats" if document["sixteen_bits"] else "floats"
        claims.append(f"{what} within the bounds of their definition")
    return claims


def _kept(found: dict[str, Any] | None) -> str:
    """What --float16 left in float32."""
    if found is None:
        return ""
    lines = [f"{one['text']}: kept in float32" for one in found["kept"][:MANY]]
    if found["kept"][MANY:]:
        lines.append(f"and {len(found['kept']) - MANY} more kept in float32 (--json lists them)")
    if found["already"]:
        lines.insert(0, "float16: the network is float16 already, and keeps the dtypes of its file")
    elif not lines:
        lines = ["float16: no layer is kept in float32"]
    return "\n".join(lines)


def _segments(document: dict[str, Any]) -> str:
    """What crosses the link in mid-graph; nothing of a network that has one part for the device."""
    segments, trips = document["segments"], document["round_trips"]
    if sum(segment["place"] == "device" for segment in segments) == 1:
        return ""
    rows = [(one["place"], one["nodes"], one["bytes_in"], one["bytes_out"]) for one in segments]
    parts = table(("place", "nodes", "bytes in", "bytes out"), rows)
    return f"{parts}\n{crossing(trips['count'], trips['bytes'])}"


def _states(states: list[dict[str, Any]]) -> str:
    return "\n".join(f"state: {one['output']} becomes {one['input']}" for one in states)

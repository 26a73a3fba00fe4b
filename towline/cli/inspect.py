"""`towline inspect`: what is in a model or a compiled network, and which target takes it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sdk import artifact
from sdk.artifact import Artifact
from sdk.errors import TowlineError, UsageError
from sdk.graph import Graph, Tensor, macs
from sdk.graph_json import node_to_json
from sdk.importers import is_tflite
from sdk.passes import optimize
from sdk.report import Console, Result, size, table
from sdk.segments import boundary, place
from sdk.target import get_target, target_names
from towline.cli import graphs, inspect_places, layers
from towline.cli.options import MODEL, TOW, Shape, add_input_shape, input_shapes, require_suffix, tuning_line

EXAMPLE = """towline inspect q.onnx
towline inspect net.tow --json
towline inspect net.tow --layer stem
towline inspect net.tow --graph stem.svg --layer stem"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="an .onnx, a .tflite or a .tow")
    add_input_shape(parser)
    parser.add_argument("--target", metavar="NAME", help="of a model: where each node would run, and why")
    parser.add_argument("--layer", metavar="NAME", help="of a .tow: list the machine code of this layer")
    graphs.add_graph(parser, "the code of --layer")


def run(args: argparse.Namespace, console: Console) -> Result:
    path = require_suffix(args.file, MODEL | TOW)
    shapes = input_shapes(args.input_shape)
    graphs.check(args)
    wants_code = args.layer is not None or args.graph is not None
    if wants_code and path.suffix.lower() not in TOW:
        raise UsageError("--layer shows code, and a model has none: compile it first", where=args.file)
    if args.target is not None:
        if path.suffix.lower() in TOW:
            raise UsageError("--target is for a model; a .tow is compiled for one already", where=args.file)
        return _places(path, args.target, shapes)
    if is_tflite(path):
        return _tflite(path, shapes)
    if path.suffix.lower() == ".onnx":
        return _model(path, shapes)
    if shapes:
        raise UsageError("--input-shape is for a model; a .tow is compiled already")
    network = artifact.load(path)
    if not wants_code:
        return _network(path, network)
    layer = layers.code(network, args.layer)
    if args.graph is not None:
        return Result(*graphs.written(args.graph, layer.chart))
    document = {
        "file": path,
        "target": network.target,
        "layer": layer.name,
        "op": layer.op,
        "kernels": layer.kernels,
    }
    return Result(document, f"; {layer.name} ({layer.op})\n{layer.text}")


# -- ONNX -----------------------------------------------------------------------------------------------


def _model(path: Path, shapes: dict[str, Shape] | None) -> Result:
    from sdk.importers import is_quantized, read_onnx

    model = read_onnx(path)
    counts = Counter(node.op_type for node in model.graph.node)
    quantized = is_quantized(model)
    document: dict[str, Any] = {
        "file": path,
        "kind": "onnx",
        "quantized": quantized,
        "bytes": path.stat().st_size,
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "onnx_operators": dict(sorted(counts.items())),
    }
    text = [
        f"{path}: {'quantised' if quantized else 'float'} ONNX, {size(document['bytes'])}, "
        + ", ".join(f"{domain} {version}" for domain, version in document["opsets"].items()),
        table(("ONNX operator", "nodes"), document["onnx_operators"].items()),
    ]
    if not quantized:
        document["unquantizable"], lines = _float_verdict(model, shapes)
        text.append(lines)
    return _imported(path, shapes, document, text)


def _places(path: Path, target: str, shapes: dict[str, Shape] | None) -> Result:
    document, text = inspect_places.described(path, target, shapes)
    return Result({"file": path, **document}, text)


def _tflite(path: Path, shapes: dict[str, Shape] | None) -> Result:
    from sdk.importers.tflite_file import read_tflite

    model = read_tflite(path)
    counts = Counter(operator.op for operator in model.operators)
    document: dict[str, Any] = {
        "file": path,
        "kind": "tflite",
        "quantized": model.is_quantized,
        "bytes": path.stat().st_size,
        "tflite_operators": dict(sorted(counts.items())),
    }
    text = [
        f"{path}: {'quantised' if model.is_quantized else 'float'} TFLite, {size(document['bytes'])}",
        table(("TFLite operator", "number"), document["tflite_operators"].items()),
    ]
    return _imported(path, shapes, document, text)


def _imported(
    path: Path, shapes: dict[str, Shape] | None, document: dict[str, Any], text: list[str]
) -> Result:
    """What the model becomes, or why it is refused, after the facts of its file."""
    from sdk.importers import load_model

    try:
        graph = optimize(load_model(path, input_shapes=shapes))
    except TowlineError as refusal:
        document["refused"] = [_refusal("import", refusal)]
        return Result(document, "\n\n".join([*text, f"refused: {_line(refusal)}"]))
    described, lines = _graph(graph)
    document |= described
    document["refused"], refused = _refused(graph)
    return Result(document, "\n\n".join([*text, lines, refused]))


def _float_verdict(model: Any, shapes: dict[str, Shape] | None) -> tuple[list[dict[str, Any]], str]:
    from sdk.importers import check_float

    try:
        check_float(model, input_shapes=shapes)
    except TowlineError as refusal:
        return [_refusal("quantise", refusal)], f"float; cannot be quantised: {_line(refusal)}"
    return [], "float; can be quantised: towline quantize"


def _refused(graph: Graph) -> tuple[list[dict[str, Any]], str]:
    """Every node that a target does not take, with the reason."""
    refusals: list[dict[str, Any]] = []
    lines: list[str] = []
    ends = boundary(graph)
    for name in target_names():
        target = get_target(name)
        before = len(refusals)
        for placement in place(graph, target):
            node, verdict = placement.node, placement.verdict
            if not verdict.supported and node.name not in ends:
                refusals.append(
                    {
                        "by": name,
                        "node": node.name,
                        "op": node.op,
                        "reason": verdict.reason,
                        "hint": verdict.hint,
                    }
                )
                lines.append(f"{name}: refuses {node.op} {node.name}: {verdict.reason}")
        if len(refusals) == before:
            lines.append(f"{name}: takes every operator")
    return refusals, "\n".join(lines)


def _refusal(by: str, error: TowlineError) -> dict[str, Any]:
    return {"by": by, "node": error.where, "op": None, "reason": error.message, "hint": error.hint}


def _line(error: TowlineError) -> str:
    return f"{error}\n  hint: {error.hint}" if error.hint else str(error)


# -- the integer graph ----------------------------------------------------------------------------------


def _graph(graph: Graph) -> tuple[dict[str, Any], str]:
    nodes = [
        {
            **node_to_json(node),
            "macs": macs(graph, node),
            "output_tensor": _tensor(graph.tensor(node.output)),
        }
        for node in graph.nodes
    ]
    constants = sum(tensor.data.nbytes for tensor in graph.tensors.values() if tensor.data is not None)
    document = {
        "inputs": [_tensor(graph.tensor(name)) for name in graph.inputs],
        "outputs": [_tensor(graph.tensor(name)) for name in graph.outputs],
        "nodes": nodes,
        "macs": graph.macs,
        "constant_bytes": constants,
    }
    rows = []
    for node in graph.nodes:
        tensor = graph.tensor(node.output)
        scale, zero_point = _quantization(tensor)
        weight = graph.tensors[node.inputs[1]] if len(node.inputs) > 1 else None
        rows.append(
            (
                node.name,
                node.op,
                _shape(tensor.shape),
                tensor.dtype,
                scale,
                zero_point,
                _shape(weight.shape) if weight is not None and weight.data is not None else "",
                macs(graph, node) or None,
            )
        )
    text = "\n".join(
        [
            *(f"input  {_described(graph.tensor(name))}" for name in graph.inputs),
            *(f"output {_described(graph.tensor(name))}" for name in graph.outputs),
            f"{len(nodes)} operators, {document['macs']:,} MACs, {size(constants)} of constants",
            "",
            table(
                ("node", "operator", "output", "dtype", "scale", "zero-point", "weight", "MACs"),
                rows,
                least=("zero-point", "scale", "dtype", "weight"),
            ),
        ]
    )
    return document, text


def _tensor(tensor: Tensor) -> dict[str, Any]:
    quantization = tensor.quantization
    return {
        "name": tensor.name,
        "shape": tensor.shape,
        "dtype": tensor.dtype,
        "scale": None if quantization is None else quantization.scale,
        "zero_point": None if quantization is None else quantization.zero_point,
    }


def _quantization(tensor: Tensor) -> tuple[str, int | None]:
    if tensor.quantization is None or tensor.quantization.axis is not None:
        return "", None
    return f"{tensor.scale:.6g}", tensor.zero_point


def _described(tensor: Tensor) -> str:
    return f"{tensor.name}: {tensor.dtype} {_shape(tensor.shape)}"


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


# -- a compiled network ---------------------------------------------------------------------------------


def _network(path: Path, network: Artifact) -> Result:
    described, lines = _graph(network.graph)
    parts = {"file": path.stat().st_size}
    memory: dict[str, int] = {}
    buffers: list[dict[str, Any]] = []
    for number, program in enumerate(network.programs):
        prefix = f"{number}/" if len(network.programs) > 1 else ""
        parts[f"{prefix}weights"] = program.weights.nbytes
        parts |= {f"{prefix}code/{name}": len(data) for name, data in program.code.items()}
        memory |= {prefix + name: nbytes for name, nbytes in program.plan.get("memory", {}).items()}
        buffers += [one | {"name": prefix + one["name"]} for one in program.plan.get("buffers", [])]
    tuning = network.programs[0].plan.get("tuning")
    document: dict[str, Any] = {
        "file": path,
        "kind": "tow",
        "target": network.target,
        "arithmetic": network.arithmetic,
        "made_by": network.made_by,
        "source": None
        if network.source is None
        else {"name": network.source.name, "sha256": network.source.sha256},
        "preprocessing": network.preprocessing,
        "input_statistics": network.input_statistics,
        "labels": network.labels,
        "bytes": parts,
        "memory": memory,
        "tuning": tuning,
        "buffers": buffers,
        **described,
    }
    text = [
        f"{path}: for {network.target} ({network.arithmetic} arithmetic), made by Towline {network.made_by}"
        + (f" from {network.source.name}" if network.source else ""),
        table(("part", "bytes", ""), [(name, n, size(n)) for name, n in parts.items()]),
        table(("memory", "bytes", ""), [(k.replace("_", " "), n, size(n)) for k, n in memory.items()]),
        *filter(None, [tuning_line(tuning)]),
        f"pictures: {_recipe(network.preprocessing)}",
        lines,
    ]
    if buffers:
        rows = [(b["name"], b["offset"], b["size"], f"{b['first']}..{b['last']}") for b in buffers]
        text.append(table(("buffer", "offset", "bytes", "live in layers"), rows))
    return Result(document, "\n\n".join(text))


def _recipe(preprocessing: dict[str, Any] | None) -> str:
    if preprocessing is None:
        return "the file does not say how a picture becomes the input"
    return ", ".join(f"{name} {value}" for name, value in preprocessing.items() if value is not None)

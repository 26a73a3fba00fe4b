"""`towline quantize`: a float ONNX model and typical inputs to a quantised ONNX model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, get_args

from sdk.errors import InvalidModel
from sdk.report import Console, Result, seconds, size, table
from towline.cli.options import ONNX, add_input_shape, add_preprocess, input_shapes, positive, require_suffix

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sdk.preprocess import Preprocessing
    from sdk.quantization import QuantizationReport

EXAMPLE = "towline quantize net.onnx --calibrate pictures/ -o q.onnx"

WORST = 8
"""Tensors shown without -v: those that lose most."""


def configure(parser: argparse.ArgumentParser) -> None:
    from sdk.quantization import LIMIT, Activation, Method, Weight

    parser.add_argument("model", metavar="NET.onnx", help="the float model")
    parser.add_argument(
        "--calibrate",
        required=True,
        metavar="DIR_OR_NPZ",
        help="typical inputs: a directory of pictures, or an .npz or .npy of float arrays [N, ...]",
    )
    parser.add_argument("-o", "--output", required=True, metavar="Q.onnx", help="the quantised model")
    add_preprocess(parser, "ImageNet's for three channels, unit for one")
    parser.add_argument(
        "--method", choices=get_args(Method), default="minmax", help="how ranges are found (default: minmax)"
    )
    parser.add_argument(
        "--activation", choices=get_args(Activation), default="uint8", help="type of activations"
    )
    parser.add_argument("--weight", choices=get_args(Weight), default="int8", help="type of weights")
    parser.add_argument(
        "--per-tensor", action="store_true", help="one scale a weight tensor, rather than one a channel"
    )
    parser.add_argument(
        "--limit", type=positive, default=LIMIT, help=f"maximum of calibration samples (default: {LIMIT})"
    )
    add_input_shape(parser)


def run(args: argparse.Namespace, console: Console) -> Result:
    from sdk.quantization import quantize

    model = require_suffix(args.model, ONNX)
    output = require_suffix(args.output, ONNX, exists=False)
    shapes = input_shapes(args.input_shape)
    report = quantize(
        model,
        args.calibrate,
        output,
        preprocessing=_preprocessing(args.preprocess, model, shapes),
        method=args.method,
        per_channel=not args.per_tensor,
        activation=args.activation,
        weight=args.weight,
        limit=args.limit,
        input_shapes=shapes,
        progress=console.progress,
    )
    for skipped in report.skipped:
        console.warn(f"{skipped.path}: skipped: {skipped.reason}")
    return Result(report.to_json(), _text(report, everything=bool(args.verbose)))


def _preprocessing(
    text: str | None, model: Path, shapes: Mapping[str, tuple[int, ...]] | None
) -> Preprocessing | None:
    if text is None:
        return None
    from sdk.importers import read_onnx
    from sdk.importers.onnx_file import input_shape
    from sdk.preprocess import parse

    graph = read_onnx(model).graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1:
        raise InvalidModel(
            f"--preprocess needs a network with one input; it has {len(inputs)}",
            where=str(model),
            hint="calibrate with an .npz file of arrays, without --preprocess",
        )
    return parse(text, input_shape(inputs[0], (shapes or {}).get(inputs[0].name)))


def _text(report: QuantizationReport, *, everything: bool) -> str:
    of = "" if report.samples == report.available else f" of {report.available}"
    skipped = f"{len(report.skipped)} unreadable pictures and {report.other_files} other files skipped"
    tensors = sorted(report.tensors, key=lambda tensor: tensor.sqnr_db)
    title = "tensors, worst first" if everything else f"the {WORST} worst tensors (-v shows all)"
    return "\n\n".join(
        (
            f"{report.output}: {report.activation} activations, {report.weight} weights, {report.method}\n"
            f"calibrated on {report.samples}{of} samples; {skipped}\n"
            f"size: {size(report.float_bytes)} float, {size(report.quantized_bytes)} quantised",
            "float against quantised on the calibration samples:\n"
            + table(
                ("output", "same top-1 %", "max diff", "mean diff", "SQNR dB"),
                [
                    (
                        output.name,
                        None if output.top1 is None else 100 * output.top1,
                        f"{output.max_abs_diff:.4g}",
                        f"{output.mean_abs_diff:.4g}",
                        output.sqnr_db,
                    )
                    for output in report.outputs
                ],
            ),
            title
            + ":\n"
            + table(
                ("tensor", "operator", "SQNR dB", "scale", "zero-point"),
                [
                    (tensor.name, tensor.op, tensor.sqnr_db, f"{tensor.scale:.5g}", tensor.zero_point)
                    for tensor in tensors[: None if everything else WORST]
                ],
            ),
            seconds(report.seconds),
        )
    )

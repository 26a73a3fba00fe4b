"""`towline quantize`: a float ONNX model and typical inputs to a quantised ONNX model."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

from sdk.errors import InvalidModel
from sdk.report import Console, Result, seconds, size, table
from towline.cli.options import (
    ONNX,
    add_cut,
    add_input_shape,
    add_pool,
    add_preprocess,
    constants,
    input_shapes,
    outputs,
    pool,
    positive,
    require_suffix,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sdk.preprocess import Preprocessing
    from sdk.quantizer import QuantizationReport
    from sdk.quantizer.choose import Score

EXAMPLE = (
    "towline quantize net.onnx --calibrate pictures/ -o q.onnx\n"
    "towline quantize net.onnx --calibrate pictures/ -o q.onnx --search\n"
    "towline quantize net.onnx --calibrate pictures/ -o q.onnx --auto-float 20"
)

WORST = 8
"""Tensors shown without -v: those that lose most."""

NAMES = {
    "scales": "scales of weights by least error",
    "equalize": "equalisation of channels",
    "round": "rounding of weights",
    "bias": "bias correction",
}


def configure(parser: argparse.ArgumentParser) -> None:
    from sdk.quantizer import Activation, Method, Weight
    from sdk.quantizer.pipeline import LIMIT

    parser.add_argument("model", metavar="NET.onnx", help="the float model")
    parser.add_argument(
        "--calibrate",
        required=True,
        metavar="DIR_OR_NPZ",
        help="typical inputs: a directory of pictures, or an .npz or .npy of arrays [N, ...]",
    )
    parser.add_argument("-o", "--output", required=True, metavar="Q.onnx", help="the quantised model")
    add_preprocess(parser, "ImageNet's for three channels, unit for one")
    parser.add_argument(
        "--method",
        type=_method,
        choices=get_args(Method),
        default="auto",
        help="how ranges are found (default: auto, whichever of the others costs least at the outputs)",
    )
    parser.add_argument(
        "--search", action="store_true", help="improve the ranges by trials at the outputs; takes minutes"
    )
    parser.add_argument("--equalize", action="store_true", help="scale channels between layers, if that pays")
    parser.add_argument(
        "--round-weights", action="store_true", help="round weights for their layer's output, if that pays"
    )
    parser.add_argument(
        "--bias-correction", action="store_true", help="correct biases for shifted means, if that pays"
    )
    parser.add_argument(
        "--float",
        action="append",
        default=[],
        metavar="NODES",
        help="a node that stays in floats, by name or pattern such as 'block3/*'; may be repeated",
    )
    parser.add_argument(
        "--auto-float",
        type=float,
        metavar="DB",
        help="keep in floats what costs most, until the outputs reach this mean SQNR on samples held out",
    )
    parser.add_argument(
        "--unroll",
        action="store_true",
        help="quantise recurrences (GRU) too, as the operators of their steps: for targets without floats",
    )
    parser.add_argument(
        "--activation", choices=get_args(Activation), default="uint8", help="type of activations"
    )
    parser.add_argument("--weight", choices=get_args(Weight), default="int8", help="type of weights")
    parser.add_argument(
        "--per-tensor", action="store_true", help="one scale per weight tensor, not one per channel"
    )
    parser.add_argument(
        "--limit", type=positive, default=LIMIT, help=f"most calibration samples used (default: {LIMIT})"
    )
    add_input_shape(parser)
    add_cut(parser)
    add_pool(parser, "candidates scored")


def _method(text: str) -> str:
    if text == "entropy":
        raise argparse.ArgumentTypeError(
            "entropy was removed: its ranges depended on the order of the samples; the default is better"
        )
    return text


def run(args: argparse.Namespace, console: Console) -> Result:
    from sdk.quantizer import quantize

    model = require_suffix(args.model, ONNX)
    output = require_suffix(args.output, ONNX, exists=False)
    shapes = input_shapes(args.input_shape)
    part: dict[str, Any] = {"outputs": outputs(args.outputs), "constants": constants(args.constant)}
    preprocessing = _preprocessing(args.preprocess, model, shapes, part)
    with pool(args) as workers:
        report = quantize(
            model,
            args.calibrate,
            output,
            preprocessing=preprocessing,
            method=args.method,
            per_channel=not args.per_tensor,
            activation=args.activation,
            weight=args.weight,
            limit=args.limit,
            input_shapes=shapes,
            **part,
            search=args.search,
            equalize=args.equalize,
            round_weights=args.round_weights,
            bias_correction=args.bias_correction,
            keep_float=args.float,
            auto_float=args.auto_float,
            unroll=args.unroll,
            pool=workers,
            progress=console.progress,
        )
    for skipped in report.skipped:
        console.warn(f"{skipped.path}: skipped: {skipped.reason}")
    for warning in report.warnings:
        console.warn(warning)
    return Result(report.to_json(), _text(report, everything=bool(args.verbose)))


def _preprocessing(
    text: str | None, path: Path, shapes: Mapping[str, tuple[int, ...]] | None, part: Mapping[str, Any]
) -> Preprocessing | None:
    if text is None:
        return None
    from sdk.importers import read_onnx
    from sdk.importers.cutting import cut
    from sdk.importers.input_shapes import static_shapes
    from sdk.preprocess import parse

    model = read_onnx(path)
    cut(model, where=str(path), **part)
    filled = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in filled]
    if len(inputs) != 1:
        raise InvalidModel(
            f"--preprocess needs a network with one input; it has {len(inputs)}",
            where=str(path),
            hint="calibrate with an .npz file of arrays, without --preprocess",
        )
    (shape,) = static_shapes(inputs, shapes or {}, where=str(path)).values()
    return parse(text, shape)


def _text(report: QuantizationReport, *, everything: bool) -> str:
    of = "" if report.samples == report.available else f" of {report.available}"
    skipped = f"{len(report.skipped)} unreadable pictures and {report.other_files} other files skipped"
    tensors = sorted(report.tensors, key=lambda tensor: tensor.sqnr_db)
    operators = Counter(stays.op for stays in report.stays_float)
    stays = ", ".join(f"{count} {op}" for op, count in sorted(operators.items()))
    title = "tensors, worst first" if everything else f"the {WORST} worst tensors (-v shows all)"
    return "\n\n".join(
        part
        for part in (
            f"{report.output}: {report.activation} activations, {report.weight} weights, {report.ranges}\n"
            f"calibrated on {report.samples}{of} samples; {skipped}\n"
            f"size: {size(report.float_bytes)} float, {size(report.quantized_bytes)} quantised"
            + (f"\nstay float, without a quantised form: {stays}" if stays else ""),
            _score(report),
            _candidates(report) if everything else "",
            _options(report),
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
        if part
    )


def _score(report: QuantizationReport) -> str:
    """SQNR at the outputs, and of which samples it is."""
    lines = []
    if report.held_out is not None:
        learnt = any(trial.kept and trial.name != "scales" for trial in report.weights)
        if report.search is not None or learnt:
            how = "samples that nothing was learnt from"
        else:
            how = f"{report.scored} samples in {report.folds} parts, the ranges of each found from the others"
        lines.append(f"SQNR at the outputs, held out: {_db(report.held_out)} ({how})")
    lines.append(
        f"on the calibration samples themselves: {_db(report.calibration)}, which says less of other inputs"
    )
    return "\n".join(lines)


def _candidates(report: QuantizationReport) -> str:
    if len(report.candidates) < 2:
        return ""
    return "ranges, held out:\n" + table(
        ("ranges", "mean dB", "min dB"),
        [(name, score.mean, score.min) for name, score in report.candidates.items()],
    )


def _options(report: QuantizationReport) -> str:
    """What the options did."""
    lines = [
        f"{NAMES[trial.name]}: {'kept' if trial.kept else 'not kept'}, {trial.gain_db:+.1f} dB held out"
        for trial in report.weights
    ]
    if (search := report.search) is not None:
        again = f", {search.known} of them by an earlier run" if search.known else ""
        rounds = f"{search.rounds} rounds kept" if search.rounds else "not kept"
        lines.append(
            f"search: {rounds}, {search.tried} ranges tried{again}; "
            f"held out {search.before.mean:.1f} to {search.held_out.mean:.1f} dB, "
            f"{search.calibration.mean:.1f} dB on the samples it was scored on"
        )
    if report.float_nodes:
        share = 100 * report.float_macs / max(report.macs, 1)
        lines.append(
            f"in floats: {len(report.float_nodes)} nodes, {report.float_macs:,} MACs ({share:.1f} %): "
            + ", ".join(report.float_nodes)
        )
    for state in report.states:
        lines.append(
            f"state {state.output} -> {state.input}: {'one scale' if state.tied else 'not quantised on both'}"
        )
    return "\n".join(lines)


def _db(score: Score) -> str:
    return f"mean {score.mean:.1f} dB, minimum {score.min:.1f} dB"

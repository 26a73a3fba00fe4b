"""Float ONNX to quantised (QDQ) ONNX, through onnxruntime's static quantisation, with a report on the loss.

What is chosen here: unsigned activations per tensor, symmetric int8 weights per output channel, int32
biases; batch normalisation folded and ReLU6 absorbed into the quantised range; opset 13 or newer. Operators
without a quantised form stay float, and so does what is between the operators of a function of one tensor
(`sdk.quantizer.islands`). The calibration inputs are run through the float model first, with a probe on
every tensor, so that a NaN is named rather than averaged away; then the ranges of activations are chosen by
what candidates cost at the network's outputs (`sdk.quantizer.choose`); and the same inputs measure what
quantisation changed.

How the model was quantised, the preprocessing and the statistics of the calibration inputs are stored in the
model's metadata, from where the compiler takes the latter two into the artefact.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, get_args

from numpy.typing import ArrayLike

from sdk import files, tuner
from sdk.errors import OutputFailed, Unsupported, UsageError
from sdk.importers import is_quantized
from sdk.ort import quiet
from sdk.preprocess import InputStatistics, Preprocessing
from sdk.quantizer import calibration, metadata, mixed, recurrences, static
from sdk.quantizer.calibration import Calibration, Input, Progress, Shape, Source
from sdk.quantizer.choose import Score, deal
from sdk.quantizer.fidelity import agreement, run_float, tensor_errors
from sdk.quantizer.prepare import inputs_of, prepare, read_float
from sdk.quantizer.ranges import CANDIDATES, PERCENTILES
from sdk.quantizer.report import Method, QuantizationReport, Search, State
from sdk.quantizer.sequences import fed_back, state_pairs
from sdk.quantizer.static import Activation, Form, Weight
from sdk.quantizer.tune import Options, Tuned, tune
from sdk.quantizer.work import Work

LIMIT = 512
"""Calibration samples taken by default: ranges settle long before, and all are held in memory."""

SQNR_SAMPLES = 8
GAP_DB = 3.0
"""A score held out that is this much below the one on the calibration samples is warned about."""

FEW = 8
"""Fewer calibration samples than this are warned about."""

METHODS: Mapping[str, tuple[str, ...]] = {
    "auto": tuple(CANDIDATES),
    "minmax": ("minmax",),
    "mse": ("mse",),
    "percentile": tuple(f"percentile {percent:g}" for percent in PERCENTILES),
}


def quantize(
    model: str | os.PathLike[str],
    calibrate: Source,
    output: str | os.PathLike[str],
    *,
    preprocessing: Preprocessing | None = None,
    method: Method = "auto",
    per_channel: bool = True,
    activation: Activation = "uint8",
    weight: Weight = "int8",
    limit: int | None = LIMIT,
    input_shapes: Mapping[str, Shape] | None = None,
    outputs: Sequence[str] = (),
    constants: Mapping[str, ArrayLike] | None = None,
    search: bool = False,
    equalize: bool = False,
    round_weights: bool = False,
    bias_correction: bool = False,
    keep_float: Sequence[str] = (),
    auto_float: float | None = None,
    unroll: bool = False,
    pool: Executor | None = None,
    progress: Progress | None = None,
) -> QuantizationReport:
    """Quantise a float ONNX file.

    Args:
        model: the float model.
        calibrate: a directory of typical pictures (or one picture), an .npz or .npy file, arrays by
            input name, or one array; arrays are of the inputs' kind, [N, ...] after preprocessing. For a
            network with states, and without arrays for them: [sequences, steps, ...], or the steps of one
            sequence; states begin at zero and are fed back by the float model.
        output: where the QDQ model goes; replaced only on success.
        preprocessing: how pictures become inputs, by default `preprocess.default_for` the input; with
            arrays, how they were made, if the compiled network is to take pictures.
        method: how ranges are found; see Method.
        per_channel: weights with a scale per output channel.
        activation: the activations' type.
        weight: the weights' type; uint8 ones have the zero-point 128.
        limit: the most calibration samples to use, None for all.
        input_shapes: static shapes for inputs whose shape is dynamic.
        outputs: tensors that become the outputs instead of the model's own.
        constants: values of inputs that become constants, by name.
        search: improve the ranges by a coordinate search (`sdk.quantizer.search`).
        equalize: scale channels between layers (`sdk.quantizer.weights`), if that pays on samples held out.
        round_weights: round weights by what that does to their layer's output, if that pays likewise.
        bias_correction: take off each bias what quantisation adds to it, if that pays likewise.
        keep_float: nodes that are computed in floats, by name or pattern (`block3/*`).
        auto_float: a mean SQNR at the outputs, in dB, on samples held out; what costs most is computed in
            floats until it is reached.
        unroll: make recurrences (GRU) the operators of their steps, and quantise these; for targets that have
            no floats.
        pool: where candidates are scored, of `tuner.local` or `tuner.dask`; the same results whatever it is.
        progress: called with (stage, steps done, steps).

    Raises:
        UsageError: an invalid argument, or a missing file.
        InvalidModel: the file is damaged, or computes NaN or infinity.
        Unsupported: already quantised, or nothing to quantise; an operator or a dynamic shape that Towline
            does not support.
        InvalidInput: calibration data that cannot be used.
        OutputFailed: the result could not be written.
        EnvironmentMissing: the extra `compile` is not installed.
    """
    _check_options(method, activation, weight, preprocessing)
    options = Options(equalize, round_weights, bias_correction)
    if not per_channel and any(dataclasses.astuple(options)):
        raise UsageError(
            "the options for weights need scales per channel", hint="leave out per-tensor weights"
        )
    if auto_float is not None and not 0 < auto_float < 200:
        raise UsageError(f"{auto_float!r} dB is not between 0 and 200")
    where, target = _path(model, "model"), _path(output, "output")
    if os.path.realpath(where) == os.path.realpath(target):
        raise UsageError("the output would replace the float model", where=target, hint="name another file")
    report = _reporter(progress)
    watch = _Stopwatch()
    source = read_float(where, input_shapes, outputs, constants)
    if unroll:
        source = recurrences.unroll(source, where)
    float_bytes = Path(where).stat().st_size
    if not Path(target).absolute().parent.is_dir():  # before minutes of calibration
        raise OutputFailed("its directory does not exist", where=target)
    inputs, pairs = inputs_of(source, where), state_pairs(source)
    watch.lap("read")
    data = calibration.load(calibrate, inputs, preprocessing, limit, report, [given for _, given in pairs])
    watch.lap("calibration data")

    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(files.scratch_directory())
        stack.enter_context(quiet())
        pool = pool or stack.enter_context(tuner.local())
        prepared, functions, stays_float = prepare(source, directory, where)
        chosen = mixed.named(prepared, keep_float)
        watch.lap("prepare")
        if len(data.samples[0]) < len(inputs):
            data = fed_back(prepared, data, inputs, pairs, report, where)
        expected = run_float(prepared, data, report, where)
        watch.lap("float model")
        work = Work(
            prepared=prepared,
            functions=functions,
            data=data,
            expected=expected,
            folds=deal(data.samples, data.units),
            form=Form(per_channel, activation, weight),
            pairs=pairs,
            directory=directory,
            where=where,
            pool=pool,
            keep_float=chosen,
        )
        if not is_quantized(work.draft):
            raise Unsupported(
                "nothing in the model is computed in integers once quantised",
                where=where,
                hint=f"operators that are quantised: {', '.join(static.OPERATORS)}",
            )
        tuned = tune(work, METHODS[method], options, search, auto_float, report, watch.lap)
        quantized = tuned.work.write(tuned.ranges)
        watch.lap("quantise")
        agreements, errors = agreement(quantized, data, expected, report)
        on_calibration = Score.of(errors)
        how = {
            "method": method,
            "ranges": tuned.choice.name,
            "samples": len(data.samples),
            "search": tuned.searched is not None and tuned.searched.rounds > 0,
            "weights": [trial.name for trial in tuned.weights if trial.kept],
            "float_nodes": sorted(tuned.work.keep_float),
            "held_out_db": None if tuned.held_out is None else round(tuned.held_out.mean, 1),
            "calibration_db": round(on_calibration.mean, 1),
            "inputs": sorted(map(metadata.input_digest, data.samples)),
        }
        payload = static.finish(
            quantized, metadata.entries(data.preprocessing, _statistics(inputs, data), how)
        )
        watch.lap("quantised model")
        tensors = tensor_errors(tuned.work.prepared, quantized, data.samples[:SQNR_SAMPLES])
        watch.lap("per-tensor errors")

    files.write(target, payload)
    macs, groups = mixed.macs(prepared), work.layout.groups.values()
    return QuantizationReport(
        output=Path(target),
        method=method,
        ranges=tuned.choice.name,
        candidates=tuned.choice.scores,
        folds=tuned.choice.folds,
        scored=len(tuned.choice.errors),
        held_out=tuned.held_out,
        calibration=on_calibration,
        search=None if tuned.searched is None else Search.of(tuned.searched),
        weights=tuned.weights,
        float_nodes=tuple(sorted(tuned.work.keep_float)),
        float_macs=sum(macs.get(name, 0) for name in tuned.work.keep_float),
        macs=sum(macs.values()),
        states=tuple(
            State(output, given, any({output, given} <= set(names) for names in groups))
            for output, given in pairs
        ),
        per_channel=per_channel,
        activation=activation,
        weight=weight,
        samples=len(data.samples),
        available=data.available,
        other_files=data.other_files,
        skipped=data.skipped,
        preprocessing=data.preprocessing,
        outputs=agreements,
        stays_float=stays_float,
        tensors=tensors,
        warnings=_warnings(data, tuned, on_calibration),
        float_bytes=float_bytes,
        quantized_bytes=len(payload),
        seconds=watch.seconds,
    )


def _warnings(data: Calibration, tuned: Tuned, on_calibration: Score) -> tuple[str, ...]:
    """What a user should know before trusting the figures."""
    found = []
    count = len(data.samples)
    if count < FEW:
        found.append(
            f"only {count} calibration sample{'s' if count > 1 else ''}: ranges hold for inputs like "
            f"{'these' if count > 1 else 'it'} alone; a hundred that cover all kinds are enough"
        )
    if tuned.choice.folds == 0:
        found.append("nothing could be held out: the range of each tensor is all that occurred in it")
    if tuned.held_out is not None and tuned.held_out.mean < on_calibration.mean - GAP_DB:
        found.append(
            f"inputs that were held out reach {tuned.held_out.mean:.1f} dB, those calibrated on "
            f"{on_calibration.mean:.1f} dB: calibrate with more, and more typical, ones"
        )
    return tuple(found)


def _check_options(method: str, activation: str, weight: str, preprocessing: Any) -> None:
    if method == "entropy":
        raise UsageError(
            "the calibration method 'entropy' was removed: its ranges depended on the order of the samples",
            hint="leave the method out: the best of several is chosen by what it costs at the outputs",
        )
    if method not in get_args(Method):
        raise UsageError(f"no calibration method {method!r}", hint=f"choose {', '.join(get_args(Method))}")
    if activation not in get_args(Activation):
        raise UsageError(f"no activation type {activation!r}", hint="choose uint8 or int8")
    if weight not in get_args(Weight):
        raise UsageError(f"no weight type {weight!r}", hint="choose int8 or uint8")
    if weight == "uint8" and activation == "int8":
        raise UsageError(
            "onnxruntime has no kernels for int8 activations with uint8 weights",
            hint="choose uint8 activations or int8 weights",
        )
    if preprocessing is not None and not isinstance(preprocessing, Preprocessing):
        raise UsageError(
            f"preprocessing is a {type(preprocessing).__name__}, not a Preprocessing",
            hint="make one with towline.Preprocessing",
        )


def _path(path: Any, role: str) -> str:
    """The path as text; UsageError if it cannot be one."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or "\0" in text:
        raise UsageError(f"the {role} is not a path: {path!r}")
    return text


def _reporter(progress: Progress | None) -> Progress:
    """The caller's progress with the caller's stdout, which `ort.quiet` withholds from onnxruntime."""
    stdout = sys.stdout

    def report(stage: str, done: int, steps: int) -> None:
        if progress is not None:
            with contextlib.redirect_stdout(stdout):
                progress(stage, done, steps)

    return report


def _statistics(inputs: Mapping[str, Input], data: Calibration) -> InputStatistics | None:
    """Statistics of a single float input; None for other networks."""
    if len(inputs) != 1:
        return None
    ((name, (shape, dtype)),) = inputs.items()
    if dtype != "float32":
        return None
    samples = [feeds[name] for feeds in data.samples]
    if len(shape) != 4:
        return InputStatistics.of(samples, None)
    nhwc = shape[3] in (1, 3) and shape[1] not in (1, 3)
    return InputStatistics.of(samples, "NHWC" if nhwc else "NCHW")


class _Stopwatch:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        now = time.monotonic()
        self.seconds[stage] = round(now - self._last, 3)
        self._last = now

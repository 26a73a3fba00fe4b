"""Float ONNX to quantised (QDQ) ONNX, through onnxruntime's static quantisation, with a report on the loss.

What is chosen here: unsigned activations per tensor, symmetric int8 weights per output channel, int32
biases; batch normalisation folded and ReLU6 absorbed into the quantised range; opset 13 or newer. Softmax
stays float, for the host, and so does what is between the operators of a function of one tensor
(`sdk.islands`). The calibration inputs are run through the float model first, with a probe on
every tensor, so that a NaN is named rather than averaged away; the same inputs then measure what
quantisation changed.

The preprocessing and the statistics of the calibration inputs are stored in the model's metadata, from
where the compiler takes them into the artefact.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from sdk import calibration, files, islands
from sdk.calibration import Calibration, Feeds, Progress, Shape, Skipped, Source
from sdk.errors import InvalidInput, InvalidModel, OutputFailed, Unsupported, UsageError
from sdk.extras import require
from sdk.fidelity import OutputAgreement, TensorError, agreement, run_float, tensor_errors
from sdk.importers import check_float, is_quantized, read_onnx
from sdk.importers.functions import ARITHMETIC, FUNCTIONS
from sdk.islands import Islands
from sdk.ort import first_line, onnxruntime_errors, quiet
from sdk.preprocess import InputStatistics, Preprocessing

Method = Literal["minmax", "entropy", "percentile"]
"""How ranges are found: all that occurred; least loss of entropy (onnxruntime's 128 bins, which on few
samples cut nothing); or all but the outermost 0.001 %."""

Activation = Literal["uint8", "int8"]
Weight = Literal["int8", "uint8"]

PREPROCESSING_KEY = "towline.preprocessing"
STATISTICS_KEY = "towline.input_statistics"

LIMIT = 512
"""Calibration samples taken by default: ranges settle long before, and all are held in memory."""

OPSET = 13
IR_VERSION = 8
SQNR_SAMPLES = 8
HISTOGRAM_STRIDE = 4
"""Samples whose activations the histogram methods hold at once; a 224 x 224 network has ~30 MB of them."""

OPERATORS = (
    *("Add", "AveragePool", "Clip", "Concat", "Conv", "Flatten", "Gemm", "GlobalAveragePool", "MatMul"),
    *("MaxPool", "Pad", "ReduceMean", "Relu", "Reshape", "Resize", "Squeeze", "Transpose", "Unsqueeze"),
    *sorted({*FUNCTIONS, *ARITHMETIC} - {"Add"}),
)

SMALLEST_CHANNEL = 1e-3
"""A channel's weights get a range of at least this part of the tensor's. Without it, the next-to-nothing
weights that folded batch normalisation leaves in dead channels would get a scale so small (or, all zero,
so large) that the channel's bias no longer fits int32 (or loses its digits). What such weights lose is far
below one step of the output, whose scale all channels share."""


@dataclass(frozen=True, repr=False)
class QuantizationReport:
    """What was done, from what, and what it cost.

    Attributes:
        output: the quantised model's file.
        samples: calibration samples used, of `available`.
        skipped: pictures that could not be read; `other_files` were not pictures.
        outputs: agreement of the graph's outputs.
        tensors: every quantised activation in graph order, measured on a few samples.
        float_bytes, quantized_bytes: file sizes.
        seconds: wall seconds by stage.
    """

    output: Path
    method: Method
    per_channel: bool
    activation: Activation
    weight: Weight
    samples: int
    available: int
    other_files: int
    skipped: tuple[Skipped, ...]
    preprocessing: Preprocessing | None
    outputs: tuple[OutputAgreement, ...]
    tensors: tuple[TensorError, ...]
    float_bytes: int
    quantized_bytes: int
    seconds: Mapping[str, float]

    def __repr__(self) -> str:
        worst = f", worst {self.worst.name} with {self.worst.sqnr_db:.1f} dB" if self.worst else ""
        return (
            f"<QuantizationReport of {self.output}: {self.activation} activations, {self.weight} weights, "
            f"{self.samples} samples, {len(self.tensors)} tensors{worst}>"
        )

    @property
    def worst(self) -> TensorError | None:
        """The activation with the lowest SQNR."""
        return min(self.tensors, key=lambda tensor: tensor.sqnr_db, default=None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        document = dataclasses.asdict(self)
        document["output"] = str(self.output)
        document["preprocessing"] = self.preprocessing.to_json() if self.preprocessing else None
        return document


def quantize(
    model: str | os.PathLike[str],
    calibrate: Source,
    output: str | os.PathLike[str],
    *,
    preprocessing: Preprocessing | None = None,
    method: Method = "minmax",
    per_channel: bool = True,
    activation: Activation = "uint8",
    weight: Weight = "int8",
    limit: int | None = LIMIT,
    input_shapes: Mapping[str, Shape] | None = None,
    progress: Progress | None = None,
) -> QuantizationReport:
    """Quantise a float ONNX file.

    Args:
        model: the float model.
        calibrate: a directory of typical pictures (or one picture), an .npz or .npy file, arrays by
            input name, or one array; arrays are float, [N, ...] after preprocessing.
        output: where the QDQ model goes; replaced only on success.
        preprocessing: how pictures become inputs, by default `preprocess.default_for` the input; with
            arrays, how they were made, if the compiled network is to take pictures.
        method: how ranges are found; see Method.
        per_channel: weights with a scale per output channel.
        activation: the activations' type.
        weight: the weights' type; uint8 ones have the zero-point 128.
        limit: the most calibration samples to use, None for all.
        input_shapes: static shapes for inputs whose shape is dynamic.
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
    where, target = _path(model, "model"), _path(output, "output")
    if os.path.realpath(where) == os.path.realpath(target):
        raise UsageError("the output would replace the float model", where=target, hint="name another file")
    report = _reporter(progress)
    watch = _Stopwatch()
    source = _read_float(where, input_shapes)
    float_bytes = Path(where).stat().st_size
    if not Path(target).absolute().parent.is_dir():  # before minutes of calibration
        raise OutputFailed("its directory does not exist", where=target)
    inputs = _inputs(source, where)
    watch.lap("read")
    data = calibration.load(calibrate, inputs, preprocessing, limit, report)
    watch.lap("calibration data")

    with files.scratch_directory() as directory, quiet():
        prepared, functions = _prepare(source, directory, where)
        watch.lap("prepare")
        expected = run_float(prepared, data, report, where)
        watch.lap("float model")
        quantized = _quantize_static(
            prepared, data, directory, method, per_channel, activation, weight, report, where
        )
        islands.keep_float(quantized, functions)
        if not is_quantized(quantized):
            raise Unsupported(
                "nothing in the model is computed in integers once quantised",
                where=where,
                hint=f"operators that are quantised: {', '.join(OPERATORS)}",
            )
        watch.lap("quantise")
        statistics = _statistics(inputs, data)
        _finish(quantized, data.preprocessing, statistics)
        payload = _checked(quantized)
        outputs = agreement(quantized, data, expected, report)
        watch.lap("quantised model")
        tensors = tensor_errors(prepared, quantized, data.samples[:SQNR_SAMPLES])
        watch.lap("per-tensor errors")

    files.write(target, payload)
    return QuantizationReport(
        output=Path(target),
        method=method,
        per_channel=per_channel,
        activation=activation,
        weight=weight,
        samples=len(data.samples),
        available=data.available,
        other_files=data.other_files,
        skipped=data.skipped,
        preprocessing=data.preprocessing,
        outputs=outputs,
        tensors=tensors,
        float_bytes=float_bytes,
        quantized_bytes=len(payload),
        seconds=watch.seconds,
    )


def read_metadata(model: Any) -> tuple[Preprocessing | None, InputStatistics | None]:
    """What `quantize` stored in a model about its inputs.

    Args:
        model: an onnx.ModelProto, or the path of a model file.

    Raises:
        InvalidModel: the entries are there but damaged.
    """
    if isinstance(model, str | os.PathLike):
        model = read_onnx(model, external=False)
    entries = {entry.key: entry.value for entry in model.metadata_props}

    def read(key: str, parse: Callable[[Any], Any]) -> Any:
        if key not in entries:
            return None
        try:
            return parse(json.loads(entries[key]))
        except (ValueError, RecursionError, InvalidInput) as problem:
            raise InvalidModel(
                f"the metadata {key} is damaged: {problem}", hint="quantise the model again"
            ) from problem

    return read(PREPROCESSING_KEY, Preprocessing.from_json), read(STATISTICS_KEY, InputStatistics.from_json)


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


def _read_float(where: str, input_shapes: Mapping[str, Shape] | None) -> Any:
    """The float model, checked, with static shapes, no constants among its inputs (which IR versions before
    4 demand and the tools refuse), and an opset that has per-channel quantisation.
    """
    onnx = require("onnx")
    model = read_onnx(where)
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in [value for value in model.graph.input if value.name in constants]:
        model.graph.input.remove(value)
    model.ir_version = max(model.ir_version, IR_VERSION)
    check_float(model, input_shapes=input_shapes)
    _set_shapes(model, input_shapes or {})
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), OPSET)
    if opset < OPSET:
        try:
            require("onnx.version_converter")
            model = onnx.version_converter.convert_version(model, OPSET)
        except Exception as problem:  # its C++ raises anything
            raise Unsupported(
                f"opset {opset} cannot be converted to {OPSET}: {first_line(problem)}",
                where=where,
                hint=f"export the model again with opset {OPSET} or newer",
            ) from problem
    return model


def _set_shapes(model: Any, shapes: Mapping[str, Shape]) -> None:
    """Write the static input shapes into the model, and let inference find the rest again."""
    given = {value.name: value for value in model.graph.input}
    for name, shape in shapes.items():
        if name not in given:
            raise UsageError(f"the model has no input {name!r}", hint=f"its inputs: {', '.join(given)}")
        dims = given[name].type.tensor_type.shape
        dims.ClearField("dim")
        for size in shape:
            dims.dim.add().dim_value = size
    if shapes:
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")


def _inputs(model: Any, where: str) -> dict[str, Shape]:
    inputs: dict[str, Shape] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        if kind.elem_type != require("onnx").TensorProto.FLOAT:
            raise Unsupported("the network's input is not float32", where=f"{where}: input {value.name}")
        if not kind.shape.dim:
            raise Unsupported("the network's input is a scalar", where=f"{where}: input {value.name}")
        inputs[value.name] = tuple(dim.dim_value for dim in kind.shape.dim)
    return inputs


def _prepare(model: Any, directory: Path, where: str) -> tuple[Any, Islands]:
    """Batch normalisation folded, constants folded, shapes inferred, biases joined to what they belong to:
    the float model to quantise; and the functions in it that are to be kept whole.
    """
    onnx = require("onnx")
    preprocess = require("onnxruntime.quantization.shape_inference").quant_pre_process
    raw, prepared = directory / "float.onnx", directory / "prepared.onnx"
    with onnxruntime_errors("prepare the model", where):
        onnx.save(model, raw)
        preprocess(str(raw), str(prepared), skip_symbolic_shape=True)
        result = onnx.load(prepared)
        _join_biases(result.graph)
        _separate_constants(result.graph)
        functions = islands.find(result)
        onnx.save(result, prepared)
        return result, functions


def _join_biases(graph: Any) -> None:
    """Make one Gemm of a MatMul and the constant added to it, which onnxruntime does for a bias [N] only."""
    constants = {tensor.name for tensor in graph.initializer}
    matrices = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "MatMul" or (node.op_type == "Gemm" and not any(node.input[2:]))
    }
    for node in graph.node:
        if node.op_type != "Add":
            continue
        for product, bias in (tuple(node.input), tuple(reversed(node.input))):
            if product in matrices and bias in constants:
                node.op_type = "Gemm"
                node.input[:] = [*matrices[product].input[:2], bias]
                node.attribute.extend(matrices[product].attribute)
    needed = {value.name for value in graph.output}.union(*(node.input for node in graph.node))
    for product, node in matrices.items():
        if product not in needed:
            graph.node.remove(node)


def _separate_constants(graph: Any) -> None:
    """Give every weight and bias a single reader, and every Gemm's bias the shape [N].

    onnxruntime's quantiser takes no other shape, and its exact kernels replace weights in place, which fails
    at the second reader.
    """
    helper = require("onnx.numpy_helper")
    arrays = {tensor.name: helper.to_array(tensor) for tensor in graph.initializer}
    readers = Counter(name for node in graph.node for name in node.input)
    for node in graph.node:
        if node.op_type not in ("Conv", "Gemm", "MatMul"):
            continue
        for index, name in list(enumerate(node.input))[1:]:
            if name not in arrays:
                continue
            array = arrays[name]
            if node.op_type == "Gemm" and index == 2:
                transposed = any(entry.name == "transB" and entry.i for entry in node.attribute)
                columns = arrays[node.input[1]].shape[0 if transposed else 1]
                array = np.broadcast_to(array.reshape(-1), (columns,))
            if readers[name] > 1 or array.shape != arrays[name].shape:
                readers[name] -= 1
                node.input[index] = own = f"{name}.{node.output[0]}.{index}"
                arrays[own] = array
                graph.initializer.append(helper.from_array(array, own))
    for tensor in [tensor for tensor in graph.initializer if readers.get(tensor.name) == 0]:
        graph.initializer.remove(tensor)


class _Reader:
    """The samples as onnxruntime's CalibrationDataReader wants them."""

    def __init__(self, data: Calibration, progress: Progress) -> None:
        self._samples, self._progress = data.samples, progress
        self._position, self._end = 0, len(data.samples)

    def __len__(self) -> int:
        """Rounded up to whole strides, which onnxruntime requires; `set_range` cuts the last one."""
        return -(-len(self._samples) // HISTOGRAM_STRIDE) * HISTOGRAM_STRIDE

    def set_range(self, start_index: int, end_index: int) -> None:
        self._position, self._end = start_index, min(end_index, len(self._samples))

    def get_next(self) -> Feeds | None:
        self._progress("calibrate", self._position, len(self._samples))
        if self._position == self._end:
            return None
        self._position += 1
        return self._samples[self._position - 1]


def _quantize_static(
    prepared: Any,
    data: Calibration,
    directory: Path,
    method: Method,
    per_channel: bool,
    activation: Activation,
    weight: Weight,
    progress: Progress,
    where: str,
) -> Any:
    onnx, tool = require("onnx"), require("onnxruntime.quantization")
    result = directory / "quantized.onnx"
    options: dict[str, Any] = {}
    if method != "minmax":
        options["CalibStridedMinMax"] = HISTOGRAM_STRIDE
    if per_channel:
        options["TensorQuantOverrides"] = _small_channels(prepared)
    if weight == "uint8":  # one zero-point, 128, for all channels, which onnxruntime's kernels require
        options["WeightSymmetric"] = True
    with onnxruntime_errors("quantise the model", where):
        tool.quantize_static(
            str(directory / "prepared.onnx"),
            str(result),
            _Reader(data, progress),
            quant_format=tool.QuantFormat.QDQ,
            op_types_to_quantize=list(OPERATORS),
            per_channel=per_channel,
            activation_type=tool.QuantType.QUInt8 if activation == "uint8" else tool.QuantType.QInt8,
            weight_type=tool.QuantType.QInt8 if weight == "int8" else tool.QuantType.QUInt8,
            calibrate_method={
                "minmax": tool.CalibrationMethod.MinMax,
                "entropy": tool.CalibrationMethod.Entropy,
                "percentile": tool.CalibrationMethod.Percentile,
            }[method],
            extra_options=options,
        )
        return onnx.load(result)


def _small_channels(model: Any) -> dict[str, list[dict[str, Any]]]:
    """Overrides that widen the range of channels with next to no weights (see SMALLEST_CHANNEL)."""
    to_array = require("onnx.numpy_helper").to_array
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    overrides: dict[str, list[dict[str, Any]]] = {}
    for node in model.graph.node:
        if node.op_type != "Conv" or node.input[1] not in constants:
            continue
        weight = to_array(constants[node.input[1]])
        peaks = np.abs(weight.reshape(len(weight), -1)).max(axis=1)
        floor = np.float32(peaks.max() * SMALLEST_CHANNEL)
        if (peaks < floor).any():
            wide = {"rmin": np.float32(-floor), "rmax": floor}
            channels: list[dict[str, Any]] = [dict(wide) if peak < floor else {} for peak in peaks]
            channels[0]["axis"] = 0  # onnxruntime would take the overrides as per tensor without it
            overrides[node.input[1]] = channels
    return overrides


def _finish(model: Any, preprocessing: Preprocessing | None, statistics: InputStatistics | None) -> None:
    """Strip what the tools leave behind, and write the metadata."""
    used = {"ai.onnx" if node.domain == "" else node.domain for node in model.graph.node}
    for entry in [entry for entry in model.opset_import if (entry.domain or "ai.onnx") not in used]:
        model.opset_import.remove(entry)
    entries = {
        entry.key: entry.value
        for entry in model.metadata_props
        if not entry.key.startswith(("onnx.infer", "onnx.quant"))
    }
    if preprocessing is not None:
        entries[PREPROCESSING_KEY] = json.dumps(preprocessing.to_json())
    if statistics is not None:
        entries[STATISTICS_KEY] = json.dumps(statistics.to_json())
    require("onnx").helper.set_model_props(model, entries)


def _checked(model: Any) -> bytes:
    with onnxruntime_errors("check the quantised model", "quantised model"):
        require("onnx").checker.check_model(model, full_check=True)
        payload: bytes = model.SerializeToString(deterministic=True)
        return payload


def _statistics(inputs: Mapping[str, Shape], data: Calibration) -> InputStatistics | None:
    """Statistics of a single input; None for networks with several."""
    if len(inputs) != 1:
        return None
    ((name, shape),) = inputs.items()
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

"""What ranges cost at the network's outputs, without writing a quantised model for each of them.

One onnxruntime session holds the float network with its quantised weights, every quantised activation rounded
to 8 bits by a scale and a zero-point that are *inputs*: a candidate costs a run, and no session of its own.
Biases stay float; their own rounding is 2^-31 of their range.

The score of a sample is its relative error, |y - y_float|^2 / |y_float|^2, as the mean over the network's
float outputs; so 0.01 is 20 dB.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk import tuner
from sdk.extras import require
from sdk.ort import onnxruntime_errors, with_outputs
from sdk.quantizer.calibration import Feeds
from sdk.quantizer.fidelity import relative_error
from sdk.quantizer.layout import Layout
from sdk.quantizer.static import Ranges

MOVES = frozenset(
    {"DepthToSpace", "Flatten", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators whose results are values of their input, and so are quantised once that is."""

BOUNDS = ("Clip", "Relu")
"""Operators that become the range of the operator before them."""

Progress = Callable[[int, int], None]

EXACT = ".towline.exact"
"""Behind the name of a graph output before it is rounded."""

_BUILDING = Lock()


class Trial:
    """The network with its activations rounded as asked; it travels between processes.

    Attributes:
        owners: the groups of `Layout.groups` that are rounded, in graph order.
        made_by: version of the Towline that made it; no other one runs it.
    """

    def __init__(
        self,
        prepared: Any,
        layout: Layout,
        samples: Sequence[Feeds],
        expected: Sequence[Sequence[Any]],
        *,
        activation: str = "uint8",
        keep_float: Collection[str] = (),
        watch: Sequence[str] = (),
    ) -> None:
        """Make the network.

        Args:
            prepared: the float model, of `prepare.prepare`.
            layout: what of it is quantised.
            samples: inputs.
            expected: the float model's outputs for each sample, in the order of the graph's.
            activation: the activations' type.
            keep_float: names of nodes that compute in floats: their weights are not rounded, and neither is
                a tensor that only such nodes write and read.
            watch: tensors that `watched` returns, as they are before they are rounded.
        """
        self._low = 0 if activation == "uint8" else -128
        self._dtype = np.dtype(activation)
        model, self.owners = _rounded(prepared, layout, activation, frozenset(keep_float))
        self._outputs = [value.name for value in model.graph.output]
        written = {name for node in model.graph.node for name in node.output}
        self._watch = [name if f"{name}{EXACT}" not in written else f"{name}{EXACT}" for name in watch]
        if self._watch:
            model = with_outputs(model, self._watch)
        self._payload: bytes = model.SerializeToString(deterministic=True)
        self._samples, self._expected = list(samples), [list(values) for values in expected]
        self._session: Any = None
        self._shared: tuple[Executor, Any] | None = None
        self.made_by = tuner.version()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_session": None, "_shared": None}

    def shared(self, pool: Executor) -> Any:
        """What to give a pool's tasks for this: sent to its workers once."""
        if self._shared is None or self._shared[0] is not pool:
            self._shared = pool, tuner.share(pool, self)
        return self._shared[1]

    def digest(self) -> str:
        """Of everything that determines a score."""
        whole = hashlib.sha256(self._payload)
        for feeds in self._samples:
            for name in sorted(feeds):
                whole.update(name.encode())
                whole.update(feeds[name].tobytes())
        return whole.hexdigest()

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self._samples)

    def errors(self, ranges: Ranges, which: Sequence[int], limit: float = np.inf) -> list[float]:
        """The relative errors of samples, in their order.

        Args:
            ranges: of each of `owners`.
            which: indices of samples.
            limit: fewer samples are run once the mean of their roots, over all of `which`, must exceed this.
        """
        found: list[float] = []
        amplitudes = 0.0
        scales = self._scales(ranges)
        for index in which:
            outputs = self._run(self._outputs, scales, index)
            found.append(relative_error(outputs, self._expected[index]))
            amplitudes += math.sqrt(found[-1])
            if amplitudes / len(which) > limit:
                break
        return found

    def watched(self, ranges: Ranges, index: int) -> list[NDArray[np.float32]]:
        """The tensors of `watch` for one sample."""
        return self._run(self._watch, self._scales(ranges), index) if self._watch else []

    def _run(self, names: Sequence[str], scales: Mapping[str, Any], index: int) -> list[Any]:
        with onnxruntime_errors("run a trial of the quantised model", "trial"):
            with _BUILDING:
                if self._session is None:
                    self._session = _session(self._payload)
            outputs: list[Any] = self._session.run(names, {**scales, **self._samples[index]})
        return outputs

    def _scales(self, ranges: Ranges) -> dict[str, NDArray[Any]]:
        feeds: dict[str, NDArray[Any]] = {}
        for index, owner in enumerate(self.owners):
            scale, zero = parameters(*ranges[owner], self._low)
            feeds[f"towline.scale.{index}"] = np.array(scale, np.float32)
            feeds[f"towline.zero.{index}"] = np.array(zero, self._dtype)
        return feeds


def parameters(low: float, high: float, lowest: int) -> tuple[np.float32, int]:
    """Scale and zero-point of a range that holds 0, as onnxruntime computes them."""
    scale = np.float32((np.float64(np.float32(high)) - np.float64(np.float32(low))) / 255)
    if scale < np.finfo(np.float32).tiny:
        return np.float32(1), lowest
    zero = int(np.rint(lowest - np.float64(np.float32(low)) / np.float64(scale)))
    return scale, min(max(zero, lowest), lowest + 255)


def score_all(
    trial: Trial,
    tasks: Sequence[tuple[Ranges, Sequence[int]]],
    pool: Executor,
    progress: Progress,
    limit: float = np.inf,
) -> list[list[float]]:
    """`Trial.errors` of each task, wherever the pool computes them; the same results whatever it is."""
    results: list[list[float]] = [[] for _ in tasks]
    shared = trial.shared(pool)
    waiting = {
        pool.submit(_errors, shared, ranges, which, limit): index
        for index, (ranges, which) in enumerate(tasks)
    }
    try:
        for done, future in enumerate(as_completed(waiting)):
            results[waiting[future]] = future.result()
            progress(done + 1, len(tasks))
    except BaseException:
        for future in waiting:
            future.cancel()
        raise
    return results


def _errors(trial: Trial, ranges: Ranges, which: Sequence[int], limit: float) -> list[float]:
    tuner.require_same_version(trial.made_by)
    return trial.errors(ranges, which, limit)


def _session(payload: bytes) -> Any:
    """One thread a run, so that runs side by side use the cores, and sums never depend on their number."""
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return runtime.InferenceSession(payload, options, providers=["CPUExecutionProvider"])


def _rounded(
    prepared: Any, layout: Layout, activation: str, keep_float: frozenset[str]
) -> tuple[Any, tuple[str, ...]]:
    """The model with QuantizeLinear and DequantizeLinear behind every rounded tensor; and their owners."""
    onnx = require("onnx")
    model = onnx.ModelProto()
    model.CopyFrom(prepared)
    graph = model.graph
    owner_of = {name: owner for owner, names in layout.groups.items() for name in names}
    rounded = _still_rounded(graph, owner_of, keep_float)
    producers = {name: node for node in graph.node for name in node.output}
    moved = {
        name
        for name in rounded
        if name in producers
        and producers[name].op_type in MOVES
        and producers[name].input[0] in rounded
        and owner_of[producers[name].input[0]] == owner_of[name]
    }
    inserted = rounded - moved
    owners = tuple(owner for owner in layout.groups if inserted.intersection(layout.groups[owner]))
    kind = onnx.TensorProto.UINT8 if activation == "uint8" else onnx.TensorProto.INT8
    for index in range(len(owners)):
        graph.input.append(
            onnx.helper.make_tensor_value_info(f"towline.scale.{index}", onnx.TensorProto.FLOAT, [])
        )
        graph.input.append(onnx.helper.make_tensor_value_info(f"towline.zero.{index}", kind, []))
    numbers = {owner: index for index, owner in enumerate(owners)}
    _round_constants(graph, layout, keep_float)

    outputs = {value.name for value in graph.output}
    nodes: list[Any] = []
    read_as: dict[str, str] = {}

    def quantize(name: str, producer: Any = None) -> None:
        index = numbers[owner_of[name]]
        parameters = [f"towline.scale.{index}", f"towline.zero.{index}"]
        source, result = name, f"{name}.towline.rounded"
        if name in outputs and producer is not None:  # the graph's output is the rounded one
            source, result = f"{name}{EXACT}", name
            producer.output[:] = [source if output == name else output for output in producer.output]
        else:
            read_as[name] = result
        quantized = f"{name}.towline.integers"
        nodes.append(onnx.helper.make_node("QuantizeLinear", [source, *parameters], [quantized]))
        nodes.append(onnx.helper.make_node("DequantizeLinear", [quantized, *parameters], [result]))

    for value in list(prepared.graph.input):
        if value.name in inserted:
            quantize(value.name)
    for node in list(graph.node):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [read_as.get(name, name) for name in copy.input]
        nodes.append(copy)
        for name in node.output:
            if name in inserted:
                quantize(name, copy)
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    return model, owners


def _still_rounded(graph: Any, owner_of: Mapping[str, str], keep_float: frozenset[str]) -> set[str]:
    """The quantised tensors of which some node outside `keep_float` asks that they be so."""
    if not keep_float:
        return set(owner_of)
    bounds = {node.input[0]: node for node in graph.node if node.op_type in BOUNDS}
    integer: set[str] = set()  # results of nodes that ask, quantised themselves or by the Relu behind them
    rounded: set[str] = set()
    for node in graph.node:
        if node.name in keep_float:
            continue
        result = node.output[0]
        if node.op_type in MOVES:
            asks = node.input[0] in rounded
        elif node.op_type in BOUNDS:
            asks = node.input[0] in rounded or node.input[0] in integer
        else:
            bound = bounds.get(result)
            asks = result in owner_of or (bound is not None and bound.output[0] in owner_of)
        if asks:
            integer.add(result)
            rounded.update(name for name in (*node.input, *node.output) if name in owner_of)
    return rounded


def _round_constants(graph: Any, layout: Layout, keep_float: frozenset[str]) -> None:
    """Put the rounded constants in place, but for nodes that compute in floats."""
    from_array = require("onnx.numpy_helper").from_array
    exact = {name for node in graph.node if node.name in keep_float for name in node.input}
    for tensor in graph.initializer:
        if tensor.name in layout.constants and tensor.name not in exact:
            tensor.CopyFrom(from_array(layout.constants[tensor.name], tensor.name))

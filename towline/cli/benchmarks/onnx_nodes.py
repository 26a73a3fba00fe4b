"""onnx's own node tests as networks: what one needs to import them, and to judge what a target made of them.

The tests feed every operand as an input; those that networks have as constants (axes, pads, shapes, scales)
are made constants here. What is wrong: a float outside onnx's relative 1e-3, or a few units of its last place
where it is narrower than float32; any other element that differs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from sdk import dtypes, reference
from sdk.errors import InternalError, TowlineError
from sdk.extras import require
from sdk.graph import Array, Graph
from sdk.importers.onnx import graph_of
from sdk.passes import optimize

CONSTANT_OPERANDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Trilu", "CumSum", "CenterCropPad"), (1,)),
    **dict.fromkeys(("Squeeze", "Unsqueeze", "Split", "SplitToSequence", "Upsample"), (1,)),
    **dict.fromkeys(("SequenceAt", "OneHot", "TopK", "AffineGrid", "BlackmanWindow"), (1,)),
    **dict.fromkeys(("CastLike", "Compress", "ReverseSequence", "CumProd"), (1,)),
    **dict.fromkeys(("DFT", "MaxUnpool"), (1, 2)),
    "STFT": (1, 2, 3),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    **dict.fromkeys(("ConstantOfShape", "BlackmanWindow", "HannWindow", "HammingWindow"), (0,)),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 2, 3),
    "Resize": (1, 2, 3),
    "Range": (0, 1, 2),
    **dict.fromkeys(("Dropout", "ConvTranspose"), (1, 2)),
    "Col2Im": (1, 2),
    **{
        f"Reduce{kind}": (1,)
        for kind in (
            *("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum"),
            "SumSquare",
        )
    },
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3, 4)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (1, 2)),
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), (1, 2, 3)),
    "QLinearConv": tuple(range(1, 9)),
    "QLinearMatMul": tuple(range(1, 8)),
}
"""Inputs that are constants in networks, by operator."""

Place = Literal["device", "host"]


@dataclass(frozen=True)
class Outcome:
    """Of one test.

    Attributes:
        verdict: passed, refused or wrong.
        why: the reason; of a refusal what has to be known of it, of a wrong result the first such element.
        place: of one that passed, where: on the device, or with some nodes on the host.
    """

    verdict: Literal["passed", "refused", "wrong"]
    why: str = ""
    place: Place | None = None


@dataclass(frozen=True)
class NodeTest:
    """A test as a network.

    Attributes:
        graph: optimised.
        inputs: by name, as they are stored.
        expected: onnx's own results, by the names of the graph's outputs.
    """

    name: str
    graph: Graph
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]

    @property
    def narrow(self) -> bool:
        """Whether it has floats of fewer bits than float32, for which the bound of the definition counts."""
        kinds = [tensor.dtype for tensor in self.graph.activations() if dtypes.is_float(tensor.dtype)]
        return any(dtypes.dtype(dtype).nbytes < 4 for dtype in kinds)


@cache
def cases() -> Mapping[str, Any]:
    """All tests that onnx has, by name; to make them takes 15 s.

    Raises:
        EnvironmentMissing: onnx is not installed.
    """
    require("onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return {case.name: case for case in collect_testcases(None)}


def load(case: Any, whole: Any = None) -> NodeTest | Outcome:
    """A test as a network, or why it is refused.

    Args:
        case: one of `cases()`.
        whole: of an expanded operator's test, the operator's own, which says what is constant.
    """
    model = require("onnx").ModelProto()
    model.CopyFrom(case.model)
    (inputs, expected), *_ = case.data_sets
    arrays = {value.name: _array(data) for value, data in zip(model.graph.input, inputs, strict=True)}
    for name in sorted(_constants(model, whole)):
        if name in arrays and isinstance(arrays[name], np.ndarray):
            tensor = require("onnx.numpy_helper").from_array(arrays.pop(name), name)
            model.graph.initializer.append(tensor)
    for name, array in arrays.items():
        if isinstance(array, np.ndarray) and not array.size:
            return Outcome("refused", f"input {name}: it has no elements: {list(array.shape)}")
    shapes = {value.name: arrays[value.name].shape for value in model.graph.input if _is_open(value, arrays)}
    try:
        graph = optimize(graph_of(model, input_shapes=shapes))
    except TowlineError as problem:
        return Outcome("wrong" if isinstance(problem, InternalError) else "refused", str(problem))
    given = {name: stored(arrays[name]) for name in graph.inputs}
    wanted = zip(graph.outputs, expected, strict=True)
    return NodeTest(case.name, graph, given, {name: np.asarray(_array(data)) for name, data in wanted})


def load_all(names: Iterable[str]) -> dict[str, NodeTest | Outcome]:
    """Tests by name, as `load` gives them."""
    known = cases()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: load(known[name], known.get(name.removesuffix("_expanded"))) for name in names}


def define(test: NodeTest) -> Outcome:
    """What the definition makes of a test."""
    try:
        values = reference.run(test.graph, test.inputs)
    except Exception as problem:
        return Outcome("wrong", f"{type(problem).__name__}: {problem}")
    return judge(test, values, "host")


def judge(test: NodeTest, values: Mapping[str, Array], place: Place) -> Outcome:
    """What a test expects, beside its outputs as they are stored."""
    for name, wanted in test.expected.items():
        dtype = test.graph.tensor(name).dtype
        if values[name].shape != wanted.shape:
            return Outcome("wrong", f"{name} is {list(values[name].shape)}, not {list(wanted.shape)}")
        found, exact = dtypes.decode(values[name], dtype), dtypes.decode(stored(wanted), dtype)
        if why := _difference(found, exact, dtype):
            return Outcome("wrong", f"{name}: {why}")
    return Outcome("passed", place=place)


def stored(array: Array) -> Array:
    """An array of onnx's as a tensor stores it: numpy's dtypes alone."""
    name = {"float8_e4m3fn": "float8e4m3fn", "float8_e5m2": "float8e5m2"}.get(
        array.dtype.name, array.dtype.name
    )
    return array.view(dtypes.storage(name))


def _array(value: Any) -> Any:
    """A tensor's elements; sequences and optional values as they are."""
    if isinstance(value, require("onnx").TensorProto):
        return require("onnx.numpy_helper").to_array(value)
    return value if isinstance(value, list | None) else np.asarray(value)


def _is_open(value: Any, arrays: Mapping[str, Any]) -> bool:
    """Whether an input's shape is what the test's data says."""
    array, dims = arrays.get(value.name), value.type.tensor_type.shape.dim
    return isinstance(array, np.ndarray) and any(not dim.HasField("dim_value") for dim in dims)


def _constants(model: Any, whole: Any) -> set[str]:
    """Names of inputs that are constants in networks; an expanded operator has those of the operator."""
    names: set[str] = set()
    for node in [*model.graph.node, *(whole.model.graph.node if whole else ())]:
        for index in CONSTANT_OPERANDS.get(node.op_type, ()):
            if index < len(node.input):
                names.add(node.input[index])
    return names


def _difference(found: Array, wanted: Array, dtype: str) -> str:
    """What is wrong, or nothing."""
    if not dtypes.is_float(dtype):
        count = int((found != wanted).sum())
        return f"{count} of {found.size} differ" if count else ""
    relative = max(1e-3, 4 * dtypes.unit(dtype))
    absolute = 1e-6 if relative == 1e-3 else relative
    close = np.isclose(found, wanted, rtol=relative, atol=absolute, equal_nan=True)
    if close.all():
        return ""
    at = tuple(map(int, np.argwhere(~close)[0]))
    return f"{int((~close).sum())} of {found.size} differ, first {found[at]} for {wanted[at]} at {list(at)}"


def reason(outcome: Outcome) -> str:
    """Why a test is refused, without names: what tests of the same reason have in common."""
    first = outcome.why.partition(". Refused too")[0].partition(": ")[2]
    for pattern, short in REASONS:
        if found := re.search(pattern, first):
            return found.expand(short)
    return first


REASONS = (
    (r"it has no elements|is empty: ", "tensors without elements"),
    (r"(?:elements of type|it is quantised to) (\w+)", r"tensors of \1"),
    (r"computed at run time; it has", "a shape or an axis that is computed at run time"),
    (r"it is not a tensor|it is a sequence", "sequences and optional values"),
    (r"operator ([\w.]+) is not supported", r"operator \1"),
    (r"the constant .* is of (\w+)", r"tensors of \1"),
    (r"is (float\d)_?(\w+), which \w+ does not take", r"tensors of \1\2"),
    (r"its type is (\w+); inputs", r"tensors of \1"),
    (r"is (\w+); tensors are", r"tensors of \1"),
    (r"^it is a constant", "an output that is a constant"),
    (r"in 3 dimensions|GridSample of", "windows in three dimensions"),
    (r"align_corners", "Resize by a scale that gives no whole size, with align_corners"),
    (r"GridSample with mode", "GridSample with mode cubic"),
    (r"its scale is float16|with a scale of shape|blocked|QLinearMatMul of", "other quantisations"),
    (r"opset (\d+) is older", "opsets older than 7"),
)

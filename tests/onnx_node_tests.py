"""onnx's own node tests through the importer and the reference: how many pass, are refused, or are wrong.

`python -m tests.onnx_node_tests [PART]` prints the counts, and every refusal with its reason. In scope is
what has static shapes and types that the graph has. The tests feed every operand as an input; those that
networks have as constants (axes, pads, shapes, scales) are made constants here.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from sdk import dtypes, reference
from sdk.errors import TowlineError
from sdk.importers.onnx import import_onnx
from sdk.importers.onnx_file import element_name
from sdk.passes import eliminate_dead
from sdk.verification import verify

Array = np.ndarray[Any, Any]

CONSTANT_OPERANDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Trilu", "CumSum", "CenterCropPad"), (1,)),
    **dict.fromkeys(("Squeeze", "Unsqueeze", "Split", "SplitToSequence", "Upsample"), (1,)),
    **dict.fromkeys(("SequenceAt", "OneHot", "TopK", "AffineGrid", "BlackmanWindow"), (1,)),
    **dict.fromkeys(("ConstantOfShape", "BlackmanWindow", "HannWindow", "HammingWindow"), (0,)),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 2, 3),
    "Resize": (1, 2, 3),
    "Range": (0, 1, 2),
    "Dropout": (1, 2),
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
    "QLinearConv": tuple(range(1, 9)),
    "QLinearMatMul": tuple(range(1, 8)),
}
"""Inputs that are constants in networks, by operator."""


@dataclass(frozen=True)
class Outcome:
    """Of one test.

    Attributes:
        verdict: passed, refused or wrong.
        why: the reason.
    """

    verdict: str
    why: str = ""


@cache
def cases() -> dict[str, Any]:
    """The tests in scope, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return {case.name: case for case in collect_testcases(None) if in_scope(case)}


def in_scope(case: Any) -> bool:
    """Whether all inputs and outputs are tensors of static shape and of types that the graph has."""
    values = [*case.model.graph.input, *case.model.graph.output]
    for value in values:
        kind = value.type.tensor_type
        if (
            value.type.WhichOneof("value") != "tensor_type"
            or element_name(kind.elem_type) not in dtypes.DTYPES
        ):
            return False
        if any(not dim.HasField("dim_value") or dim.dim_value == 0 for dim in kind.shape.dim):
            return False
    return "training" not in case.name


def outcome(case: Any) -> Outcome:
    """Import the test's model, run it, and compare it with what the test expects."""
    (inputs, expected), *_ = case.data_sets
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    arrays = dict(zip([value.name for value in model.graph.input], map(_array, inputs), strict=True))
    for name in sorted(_constants(case.name, model)):
        if name in arrays:
            model.graph.initializer.append(numpy_helper.from_array(arrays.pop(name), name))
    try:
        graph = eliminate_dead(import_onnx(model, float_model=False))
        verify(graph)
    except TowlineError as error:
        return Outcome("refused", str(error))
    given = {name: _stored(array) for name, array in arrays.items() if name in graph.inputs}
    try:
        values = reference.run(graph, given)
    except Exception as error:
        return Outcome("wrong", f"{type(error).__name__}: {error}")
    for value, wanted in zip(model.graph.output, expected, strict=True):
        tensor = graph.tensor(value.name)
        array = _array(wanted)
        if values[value.name].shape != array.shape:
            return Outcome("wrong", f"{value.name} is {values[value.name].shape}, not {array.shape}")
        found = dtypes.decode(values[value.name], tensor.dtype)
        exact = dtypes.decode(_stored(array), tensor.dtype)
        if why := _difference(found, exact, tensor.dtype):
            return Outcome("wrong", f"{value.name}: {why}")
    return Outcome("passed")


def _constants(test: str, model: onnx.ModelProto) -> set[str]:
    """Names of inputs that are constants in networks; an expanded operator has those of the operator."""
    names: set[str] = set()
    whole = cases().get(test.removesuffix("_expanded")) if test.endswith("_expanded") else None
    for node in [*model.graph.node, *(whole.model.graph.node if whole else ())]:
        for index in CONSTANT_OPERANDS.get(node.op_type, ()):
            if index < len(node.input):
                names.add(node.input[index])
    return names


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _stored(array: Array) -> Array:
    name = {"float8_e4m3fn": "float8e4m3fn", "float8_e5m2": "float8e5m2"}.get(
        array.dtype.name, array.dtype.name
    )
    return array.view(dtypes.storage(name))


def _difference(found: Array, wanted: Array, dtype: str) -> str:
    """What is wrong, or nothing: onnx's tolerance for float32, a unit of the last place more for less."""
    if not dtypes.is_float(dtype):
        count = int((found != wanted).sum())
        return f"{count} of {found.size} differ" if count else ""
    relative = max(1e-3, 4 * dtypes.unit(dtype))
    close = np.isclose(
        found, wanted, rtol=relative, atol=1e-6 if relative == 1e-3 else relative, equal_nan=True
    )
    if close.all():
        return ""
    at = tuple(np.argwhere(~close)[0])
    return f"{int((~close).sum())} of {found.size} differ, first {found[at]} for {wanted[at]} at {at}"


def reason(result: Outcome) -> str:
    """Why a test is refused, without names: what tests of the same reason have in common."""
    first = result.why.partition(". Refused too")[0].partition(": ")[2]
    for pattern, short in REASONS:
        if found := re.search(pattern, first):
            return found.expand(short)
    return first


REASONS = (
    (r"operator ([\w.]+) is not supported", r"operator \1"),
    (r"its type is (\w+); inputs", r"tensors of \1"),
    (r"is (\w+); tensors are", r"tensors of \1"),
    (r"^it is a constant", "an output that is a constant"),
    (r"in 3 dimensions|GridSample of", "windows in three dimensions"),
    (r"with the reduction", "ScatterND and ScatterElements with a reduction"),
    (r"with the coordinates", "Resize of a crop"),
    (r"antialias", "Resize with antialias"),
    (r"align_corners", "Resize by a scale that gives no whole size, with align_corners"),
    (r"GridSample with mode", "GridSample with mode cubic"),
    (r"its scale is float16|with a scale of shape|blocked|QLinearMatMul of", "other quantisations"),
    (r"opset (\d+) is older", "opsets older than 7"),
)


def run(part: str = "") -> Iterator[tuple[str, Outcome]]:
    """Every test whose name has `part` in it."""
    for name, case in cases().items():
        if part in name:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield name, outcome(case)


def main() -> int:
    results = dict(run(*sys.argv[1:2]))
    for name, result in results.items():
        if result.verdict != "passed":
            print(f"{result.verdict:8} {name}: {result.why}")
    counts = Counter(result.verdict for result in results.values())
    print(f"{len(results)} tests in scope: {dict(counts)}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""ONNX's own tests of its quantised operators, and the tables of docs/operators.md, which are made here.

The tests of the onnx package feed every scale, zero-point and weight as an input; here all inputs but the
activation are constants, as in every network. `python -m tests.unit.test_onnx_nodes` writes the tables again.
"""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case import node as onnx_tests

from sdk import reference
from sdk.errors import TowlineError
from sdk.importers.onnx import import_onnx
from sdk.importers.operators import HINTS, OPERATORS, operator_table
from sdk.verification import verify

MODULES = (
    *("convinteger", "dequantizelinear", "dynamicquantizelinear", "matmulinteger"),
    *("qlinearconv", "qlinearmatmul", "quantizelinear"),
)
PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


@cache
def cases() -> dict[str, object]:
    """The package's test cases of quantised operators by name."""
    for module in MODULES:
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    operators = {*MODULES}
    return {
        case.name: case
        for case in onnx_tests._NodeTestCases
        if operators.intersection(node.op_type.lower() for node in case.model.graph.node)
    }


def outcome(case) -> str:
    """`passed`, or `refused: ` and why.

    Raises:
        AssertionError: Towline computes something other than the test expects.
    """
    (inputs, expected), *_ = case.data_sets
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    names = [value.name for value in model.graph.input]
    for name, array in list(zip(names, inputs, strict=True))[1:]:
        if not isinstance(array, onnx.TensorProto):
            array = numpy_helper.from_array(np.asarray(array), name)
        model.graph.initializer.append(array)
    try:
        graph = import_onnx(model, float_model=False)
        verify(graph)
    except TowlineError as error:
        return f"refused: {error.message}"
    values = reference.run(graph, {names[0]: np.asarray(inputs[0])})
    for value, array in zip(model.graph.output, expected, strict=True):
        assert values[value.name].dtype == array.dtype, case.name
        assert np.array_equal(values[value.name], array), case.name
    return "passed"


@cache
def node_table() -> dict[str, str]:
    """The outcome of every test, by name."""
    return {name: outcome(case) for name, case in cases().items()}


def operators_section() -> str:
    rows = [f"| {names} | {meaning} |" for names, meaning in operator_table()]
    return "\n".join(["| ONNX operator | what it becomes |", "|---|---|", *rows])


def nodes_section() -> str:
    rows = [f"| {name.removeprefix('test_')} | {result} |" for name, result in node_table().items()]
    passed = sum(result == "passed" for result in node_table().values())
    head = f"onnx {onnx.__version__}: {passed} of {len(rows)} pass, the others are refused."
    return "\n".join([head, "", "| test | outcome |", "|---|---|", *rows])


def hints_section() -> str:
    rows = [f"| {name} | {hint} |" for name, hint in sorted(HINTS.items()) if ("", name) not in OPERATORS]
    return "\n".join(["| operator | what to do |", "|---|---|", *rows])


SECTIONS = {"operators": operators_section, "refused": hints_section, "tests": nodes_section}


def filled(page: str) -> str:
    """The page with its generated sections written again."""
    for name, section in SECTIONS.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        page, count = re.subn(pattern, lambda m, s=section: f"{m[1]}\n{s()}\n\n{m[2]}", page, flags=re.DOTALL)
        assert count == 1, name
    return page


def test_the_page_is_what_the_tables_say():
    page = PAGE.read_text()
    if f"onnx {onnx.__version__}:" not in page:
        pytest.skip(f"docs/operators.md was not made with onnx {onnx.__version__}")
    assert page == filled(page), "run python -m tests.unit.test_onnx_nodes"


def test_the_tests_are_there():
    assert {"test_qlinearconv", "test_quantizelinear", "test_dequantizelinear"} <= cases().keys()
    assert len(cases()) > 30


MUST_PASS = [
    *("test_qlinearconv", "test_quantizelinear", "test_dequantizelinear"),
    *("test_qlinearmatmul_2D_uint8_float32", "test_qlinearmatmul_2D_int8_float32"),
]


@pytest.mark.parametrize("name", MUST_PASS)
def test_what_must_pass(name):
    assert node_table()[name] == "passed"


REASONS = {
    "expanded": "operator ReduceM.* is not supported",
    "dynamic": "operator DynamicQuantizeLinear is not supported",
    "integer": "operator (Conv|MatMul)Integer is not supported",
    "3D_uint8_float32": "only matrices are supported",
    "3D_int8_float32": "only matrices are supported",
    "blocked": "blocked quantisation|scale of shape",
    "axis": "an activation with a scale of shape",
}
"""Why tests are refused, by a part of their names; the rest for a type of another width."""


def test_every_other_is_refused_for_a_reason():
    others = {name: result for name, result in node_table().items() if name not in MUST_PASS}
    for name, result in others.items():
        pattern = next((reason for part, reason in REASONS.items() if part in name), "int|float")
        assert re.match(f"refused: .*({pattern})", result), (name, result)


def test_a_wrong_result_is_noticed(monkeypatch):
    case = cases()["test_qlinearconv"]
    run = reference.run
    monkeypatch.setattr(reference, "run", lambda *a: {k: v ^ 1 for k, v in run(*a).items()})
    with pytest.raises(AssertionError, match="qlinearconv"):
        outcome(case)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))

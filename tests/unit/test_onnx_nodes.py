"""ONNX's own node tests through the importer and the reference, and the tables of docs/operators.md.

`python -m tests.unit.test_onnx_nodes` writes the tables again.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx.backend.test.case import node as onnx_tests

from sdk import reference
from sdk.importers.operators import HINTS, OPERATORS, operator_table
from sdk.importers.plain.table import plain_table
from tests.onnx_node_tests import Outcome, cases, outcome

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
MODULES = {
    "add": "add",
    "argmax": "argmax_keepdims_random",
    "conv": "basic_conv_with_padding",
    "dequantizelinear": "dequantizelinear",
    "einsum": "einsum_batch_matmul_bfloat16",
    "gather": "gather_0",
    "gathernd": "gathernd_example_float32",
    "gemm": "gemm_all_attributes",
    "gru": "gru_defaults",
    "lstm": "lstm_defaults",
    "matmul": "matmul_3d",
    "mish": "mish",
    "mod": "mod_mixed_sign_int64",
    "pad": "reflect_pad",
    "pow": "pow",
    "qlinearconv": "qlinearconv",
    "qlinearmatmul": "qlinearmatmul_2D_uint8_float32",
    "quantizelinear": "quantizelinear",
    "reducemean": "reduce_mean_keepdims_random",
    "resize": "resize_upsample_scales_linear",
    "scatternd": "scatternd",
    "slice": "slice",
    "softmax": "softmax_axis_1",
    "where": "where_example",
}
"""One test of each family, and of all that is quantised, by onnx's module; all of them take 15 s to make."""


@cache
def quick_cases() -> dict[str, Any]:
    for module in MODULES:
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    names = {f"test_{name}" for name in MODULES.values()}
    return {case.name: case for case in onnx_tests._NodeTestCases if case.name in names}


@cache
def outcomes() -> dict[str, Outcome]:
    """Of every test in scope, by name."""
    return {name: outcome(case) for name, case in cases().items()}


def quantised_section() -> str:
    rows = [f"| {names} | {meaning} |" for names, meaning in operator_table()]
    return "\n".join(["| ONNX operator | what it becomes |", "|---|---|", *rows])


def plain_section() -> str:
    rows = [f"| {names} | {meaning} |" for names, meaning in plain_table()]
    return "\n".join(["| ONNX operator | what it becomes |", "|---|---|", *rows])


def hints_section() -> str:
    rows = [f"| {name} | {hint} |" for name, hint in sorted(HINTS.items()) if ("", name) not in OPERATORS]
    return "\n".join(["| operator | what to do |", "|---|---|", *rows])


SECTIONS = {"operators": quantised_section, "plain": plain_section, "refused": hints_section}


def filled(page: str) -> str:
    """The page with its generated sections written again."""
    for name, section in SECTIONS.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        page, count = re.subn(pattern, lambda m, s=section: f"{m[1]}\n{s()}\n\n{m[2]}", page, flags=re.DOTALL)
        assert count == 1, name
    return page


def counts_line() -> str:
    found = Counter(outcome.verdict for outcome in outcomes().values())
    scope = f"of {len(outcomes()):,} tests with static shapes and types that tensors have"
    return (
        f"onnx {onnx.__version__}: {scope}, "
        f"{found['passed']:,} pass, {found['refused']:,} are refused, {found['wrong']:,} are wrong."
    )


def test_the_page_is_what_the_tables_say():
    page = PAGE.read_text()
    assert page == filled(page), "run python -m tests.unit.test_onnx_nodes"


def test_a_node_of_each_family():
    found = {name: outcome(case) for name, case in quick_cases().items()}
    assert found.keys() == {f"test_{name}" for name in MODULES.values()}
    assert {name: str(one) for name, one in found.items() if one.verdict != "passed"} == {}


@pytest.mark.slow
def test_nothing_is_wrong_of_all_and_the_page_counts_them():
    assert len(cases()) > 1_300
    assert {name: one.why for name, one in outcomes().items() if one.verdict == "wrong"} == {}
    if f"onnx {onnx.__version__}:" in PAGE.read_text():
        assert counts_line() in PAGE.read_text(), "run python -m tests.unit.test_onnx_nodes"


def test_a_wrong_result_is_noticed(monkeypatch):
    case = quick_cases()["test_mish"]
    run = reference.run
    monkeypatch.setattr(reference, "run", lambda *a: {k: v * 1.01 for k, v in run(*a).items()})
    assert outcome(case).verdict == "wrong"


if __name__ == "__main__":
    written = filled(PAGE.read_text())
    PAGE.write_text(re.sub(r"onnx [\d.]+: of [^\n]*wrong\.", counts_line(), written))

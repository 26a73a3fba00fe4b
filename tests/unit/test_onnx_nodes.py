"""onnx's own tests of its operators, and the tables of docs/operators.md, which are made here.

`python -m tests.unit.test_onnx_nodes` writes the tables again.
"""

from __future__ import annotations

import importlib
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path

import onnx
import pytest
from onnx.backend.test.case import node as onnx_tests

from sdk import reference
from sdk.importers.operators import HINTS, OPERATORS
from tests import operator_tables, refused_models
from towline.cli.bench_onnx import headline, outcomes, reasons, summary
from towline.cli.benchmarks.batches import HeldDevice
from towline.cli.benchmarks.onnx_nodes import Outcome, cases, define, load, reason

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


@cache
def results() -> dict[str, Outcome]:
    """What the definition makes of every test, by name: half a minute."""
    return outcomes(list(cases()), None)


def operators_section() -> str:
    rows = [f"| {' | '.join(row)} |" for row in operator_tables.side_by_side()]
    return "\n".join(["| ONNX | TFLite | quantised | plain |", "|---|---|---|---|", *rows])


def takers_section() -> str:
    rows = [f"| {' | '.join(row)} |" for row in operator_tables.target_rows()]
    return "\n".join(["| nodes | form | targets |", "|---|---|---|", *rows])


def hints_section() -> str:
    rows = [f"| {name} | {hint} |" for name, hint in sorted(HINTS.items()) if ("", name) not in OPERATORS]
    return "\n".join(["| operator | what to do |", "|---|---|", *rows])


def nodes_section() -> str:
    head = f"onnx {onnx.__version__}: {headline(summary(results()))}."
    rows = [f"| {why} | {count} |" for why, count in reasons(results())]
    return "\n".join([head, "", "| refused | tests |", "|---|---|", *rows])


def targets_section() -> str:
    """Of every target that runs them all: minutes."""
    rows = []
    for target in ("c", "amd-gfx1100"):
        with HeldDevice(target) as held:
            found = summary(outcomes(list(cases()), held))
        passed, wrong = found["passed"], len(found["wrong"])
        rows.append(
            f"| {target} | {passed['device']:,} | {passed['host']:,} | {found['refused']:,} | {wrong} |"
        )
    return "\n".join(
        ["| target | on the device | with the host | refused | wrong |", "|---|---|---|---|---|", *rows]
    )


TABLES = {"operators": operators_section, "takers": takers_section, "refused": hints_section}
TESTS = {"tests": nodes_section}
FILES = {"files": refused_models.counted}
TARGETS = {"targets": targets_section}


def filled(page: str, sections=TABLES) -> str:
    """The page with its generated sections written again."""
    for name, section in sections.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        page, count = re.subn(pattern, lambda m, s=section: f"{m[1]}\n{s()}\n\n{m[2]}", page, flags=re.DOTALL)
        assert count == 1, name
    return page


def same_onnx(page: str) -> None:
    if f"onnx {onnx.__version__}:" not in page:
        pytest.skip(f"docs/operators.md was not made with onnx {onnx.__version__}")


def test_the_page_is_what_the_tables_say():
    page = PAGE.read_text()
    same_onnx(page)
    assert page == filled(page), "run python -m tests.unit.test_onnx_nodes"


@pytest.mark.slow
def test_no_test_of_onnx_is_wrong():
    wrong = {name: result.why for name, result in results().items() if result.verdict == "wrong"}
    assert not wrong
    page = PAGE.read_text()
    same_onnx(page)
    assert page == filled(page, TESTS), "run python -m tests.unit.test_onnx_nodes"


@pytest.mark.slow
def test_a_twentieth_on_c():
    """`towline bench onnx --target c` runs all of them."""
    names = sorted(random.Random(19).sample(sorted(cases()), len(cases()) // 20))
    with HeldDevice("c") as held:
        found = outcomes(names, held)
    assert {name: one.why for name, one in found.items() if one.verdict == "wrong"} == {}
    assert Counter(one.verdict for one in found.values())["passed"] > len(names) / 2
    defined = outcomes([name for name in names if found[name].verdict == "refused"], None)
    assert {name for name, one in defined.items() if one.verdict == "passed"} == set()


MUST_PASS = (
    *("test_qlinearconv", "test_quantizelinear", "test_dequantizelinear", "test_dynamicquantizelinear"),
    *("test_qlinearmatmul_2D_uint8_float32", "test_qlinearmatmul_2D_int8_float32"),
    *("test_attention_4d", "test_rotary_embedding", "test_gridsample_bilinear", "test_lstm_with_peepholes"),
    *("test_gru_seq_length", "test_convtranspose_autopad_same", "test_einsum_batch_matmul_bfloat16"),
    *("test_mvn", "test_celu_expanded", "test_cast_FLOAT_to_FLOAT8E5M2", "test_cast_BFLOAT16_to_FLOAT"),
    *("test_mish", "test_layer_normalization_3d_axis1_epsilon", "test_resize_upsample_scales_cubic"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUST_PASS)
def test_what_must_pass(name):
    assert outcome(cases()[name]).verdict == "passed"


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
    "slice": "slice",
    "softmax": "softmax_axis_1",
    "where": "where_example",
}
"""A test of each family, by onnx's module; to make all of them takes 15 s."""


@cache
def quick_cases():
    for module in MODULES:
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    names = {f"test_{name}" for name in MODULES.values()}
    return {case.name: case for case in onnx_tests._NodeTestCases if case.name in names}


def outcome(case):
    test = load(case)
    return test if isinstance(test, Outcome) else define(test)


@pytest.mark.slow
def test_a_node_of_each_family():
    found = {name: outcome(case) for name, case in quick_cases().items()}
    assert found.keys() == {f"test_{name}" for name in MODULES.values()}
    assert {name: str(one) for name, one in found.items() if one.verdict != "passed"} == {}


@pytest.mark.slow
def test_a_wrong_result_is_noticed(monkeypatch):
    case = quick_cases()["test_qlinearconv"]
    given = reference.run
    monkeypatch.setattr(reference, "run", lambda *a: {k: v ^ 1 for k, v in given(*a).items()})
    assert outcome(case).verdict == "wrong"


@pytest.mark.slow
def test_a_refusal_names_its_reason():
    result = outcome(cases()["test_nonzero_example"])
    assert (result.verdict, reason(result)) == ("refused", "operator NonZero")
    assert [reason(Outcome("refused", f"x: {why}")) for why in ("new", "other")] == ["new", "other"]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(), TABLES | TESTS | TARGETS | FILES))

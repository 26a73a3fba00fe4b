"""Expressions: what they compute, the set of correct results, and the C that they become."""

import math
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.errors import InvalidModel
from sdk.expression import Expression, Interval, Step, evaluate, intervals, kinds, statements, trace
from sdk.expression.operations import OPERATIONS
from sdk.expression.trace import apply, clip, round_to, select, sigmoid, softplus


def test_an_operator_is_written_as_one_reads_it():
    mish = trace(lambda x: x * apply("tanh", softplus(x)), "real")
    x = np.linspace(-20, 20, 1001)
    assert np.allclose(evaluate(mish, [x]), x * np.tanh(np.logaddexp(x, 0)), rtol=1e-12)
    assert kinds(mish)[-1] == "real"


def test_a_step_is_performed_once():
    square = trace(lambda x: (x + 1) * (x + 1), "real")
    assert [step.op for step in square.steps] == ["constant", "add", "mul"]


def test_zeros_of_both_signs_are_two_constants():
    assert len([s for s in trace(lambda x: (x + 0.0) * (x + -0.0), "real").steps if s.op == "constant"]) == 2


@pytest.mark.parametrize(
    ("inputs", "steps"),
    [
        (("real",), (Step("unknown", (0,)),)),
        (("real",), (Step("add", (0, 1)),)),
        (("real", "int"), (Step("add", (0, 1)),)),
        (("real",), (Step("and", (0, 0)),)),
        (("real",), (Step("select", (0, 0, 0)),)),
        (("real",), (Step("add", (0,)),)),
        (("int",), (Step("exp", (0,)),)),
        (("int",), (Step("round", (0,), dtype="float16"),)),
        (("real",), (Step("round", (0,), dtype="int8"),)),
        (("real",), (Step("constant", (), None),)),
        ((), ()),
    ],
)
def test_what_is_no_expression_is_refused(inputs, steps):
    with pytest.raises(InvalidModel):
        kinds(Expression(inputs, steps))


def test_ten_thousand_steps_are_refused_and_do_not_recurse():
    steps = tuple(Step("neg", (index,)) for index in range(10_000))
    with pytest.raises(InvalidModel, match="10,000"):
        kinds(Expression(("real",), steps))


# -- intervals ----------------------------------------------------------------------------------------------

REALS = [name for name, op in OPERATIONS.items() if op.arity == 1 and op.takes and "real" in op.takes]


@pytest.mark.slow
@pytest.mark.parametrize("name", REALS)
@settings(max_examples=20)
@given(value=st.floats(-50, 50), width=st.floats(0, 2))
def test_images_hold_what_any_point_gives(name, value, width):
    """The result of each point of an interval lies within the interval's image."""
    low, high = np.array([value - width]), np.array([value + width])
    function = Expression(("real",), (Step(name, (0,)),))
    found = intervals(function, [Interval(np.array([value]), low, high)])
    if np.isnan(found.value).any():
        return
    for point in np.linspace(low[0], high[0], 9):
        result = float(evaluate(function, [np.array([point])])[0])
        if not math.isnan(result):
            assert found.low[0] <= result <= found.high[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "min", "max", "fmod", "lt", "le", "eq"])
@settings(max_examples=20)
@given(a=st.floats(-9, 9), b=st.floats(-9, 9), width=st.floats(0, 3))
def test_images_of_two_operands(name, a, b, width):
    function = Expression(("real", "real"), (Step(name, (0, 1)),))
    ends = [Interval(np.array([v]), np.array([v - width]), np.array([v + width])) for v in (a, b)]
    found = intervals(function, ends)
    for x in np.linspace(a - width, a + width, 5):
        for y in np.linspace(b - width, b + width, 5):
            result = evaluate(function, [np.array([x]), np.array([y])])[0]
            if not np.isnan(result) and not np.isnan(found.value[0]):
                assert found.low[0] <= result <= found.high[0]


def test_float32_arithmetic_is_within_and_a_wrong_function_is_not():
    x = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    exact = x.astype(np.float64)
    gelu = trace(lambda x: x * 0.5 * (apply("tanh", x * 0.7978845608 + x * x * x * 0.0356774) + 1), "real")
    found = intervals(gelu, [Interval(exact, exact, exact)])
    half, one = np.float32(0.5), np.float32(1)
    inner = x * np.float32(0.7978845608) + x * x * x * np.float32(0.0356774)
    result = x * half * (np.tanh(inner) + one)
    assert ((found.low <= result) & (result <= found.high)).all()
    other = x * half * (np.tanh(x * np.float32(0.7978)) + one)
    assert ((found.low > other) | (other > found.high)).mean() > 0.5


def test_a_discontinuity_within_reach_is_marked():
    x = np.array([0.1 * 30, 2.5])
    floor = trace(lambda x: apply("floor", x * 10.0), "real")
    wide = intervals(floor, [Interval(x, x - 1e-7, x + 1e-7)])
    assert wide.jump.tolist() == [True, True]
    assert (wide.low.tolist(), wide.high.tolist()) == ([29.0, 24.0], [30.0, 25.0])
    exact = np.array([2.51])
    sure = intervals(floor, [Interval(exact, exact, exact)])
    assert sure.jump is None


def test_a_selection_takes_the_hull_only_where_it_is_unsure():
    choose = trace(lambda x, y: select(x < 1.0, y, 0.0), "real", "real")
    x, y = np.array([0.5, 1.0, 2.0]), np.array([7.0, 7.0, 7.0])
    found = intervals(choose, [Interval(x, x - 1e-6, x + 1e-6), Interval(y, y, y)])
    assert found.low.tolist() == [7.0, 0.0, 0.0]
    assert found.high.tolist() == [7.0, 7.0, 0.0]


def test_overflow_and_undefined_values():
    big = np.array([200.0, -200.0])
    found = intervals(trace(sigmoid, "real"), [Interval(big, big, big)])
    assert found.high[0] >= 1 >= found.low[0]
    assert found.low[1] <= 0 <= found.high[1] < 1e-30
    negative = np.array([-1.0])
    root = intervals(trace(lambda x: apply("sqrt", x), "real"), [Interval(negative, negative, negative)])
    assert np.isnan([root.value, root.low, root.high]).all()


# -- C ------------------------------------------------------------------------------------------------------


def test_c_of_an_expression_is_within_its_intervals(tmp_path):
    """What the printer writes, compiled, computes what `intervals` allows."""
    functions = {
        "mish": trace(lambda x: x * apply("tanh", softplus(x)), "real"),
        "swish": trace(lambda x: x * sigmoid(x), "real"),
        "clipped": trace(lambda x: clip(x, -1.5, 2) / 3, "real"),
        "rounded": trace(lambda x: round_to(x * x, "float16") - 0.1, "real"),
        "stepped": trace(lambda x: select(apply("floor", x) <= -1, -x, apply("abs", x) + 1e-3), "real"),
    }
    text = ['#include "stdint.h"', '#include "math.h"', '#include "stdio.h"']
    text += ["static float most(float a, float b) { return a > b || a != a ? a : b; }"]
    text += ["static float least(float a, float b) { return a < b || a != a ? a : b; }"]
    text += ["static float round_float16(float a) { return (float)(_Float16)a; }"]
    for name, function in functions.items():
        lines, result = statements(function, ["x"])
        text.append(f"static float {name}(float x) {{ {' '.join(lines)} return {result}; }}")
    calls = "".join(f'printf(" %a", {name}(x));' for name in functions)
    loop = "for (float x = -9; x < 9; x += 0.037f)"
    text.append(f'int main(void) {{ {loop} {{ printf("%a", x); {calls} puts(""); }} }}')
    source = tmp_path / "e.c"
    source.write_text("\n".join(text))
    program = tmp_path / "e"
    subprocess.run(["cc", "-O1", str(source), "-o", str(program), "-lm"], check=True)
    rows = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    table = np.array([[float.fromhex(value) for value in row.split()] for row in rows])
    x = table[:, 0]
    for column, (name, function) in enumerate(functions.items(), 1):
        found = intervals(function, [Interval(x, x, x)])
        within = (found.low <= table[:, column]) & (table[:, column] <= found.high)
        assert within.all(), (name, x[~within][:3])

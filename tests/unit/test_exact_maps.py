"""Maps of quantised tensors: both arithmetics beside real arithmetic, and the target c bit for bit."""

import dataclasses
import random

import numpy as np
import pytest

from dsp.c.target import CTarget
from sdk import reference
from sdk.errors import InvalidModel, Unsupported
from sdk.exact_maps import exact_map
from sdk.expression import evaluate, trace
from sdk.expression.trace import apply, clip, select, sigmoid
from sdk.graph import Graph, Map, Quantization, Tensor
from sdk.reference import dtype_range
from sdk.target import Options
from sdk.verification import verify

C = CTarget()


def graph_of(function, inputs, constants=(), dtype="uint8", seed=0, scales=(0.021, 0.034, 0.009)):
    """A graph of one Map of inputs of these shapes and constants, its result scaled as random inputs need."""
    chance = np.random.default_rng(seed)
    low, high = dtype_range(dtype)
    tensors, values, reals = {}, {}, []
    for i, (shape, scale) in enumerate(zip(inputs, scales, strict=False)):
        zero_point = int(chance.integers(low, high + 1))
        name = f"x{i}"
        tensors[name] = Tensor(name, shape, dtype, Quantization.per_tensor(scale, zero_point))
        values[name] = chance.integers(low, high + 1, shape).astype(dtype)
        reals.append((values[name].astype(np.float64) - zero_point) * np.float32(scale))
    for i, data in enumerate(constants):
        data = np.asarray(data, np.float32)
        tensors[f"c{i}"] = Tensor(f"c{i}", data.shape, "float32", None, data)
        reals.append(data.astype(np.float64))
    expression = trace(function, *(["real"] * len(reals)))
    wanted = np.nan_to_num(evaluate(expression, reals))
    span = float(wanted.max() - wanted.min()) or 1.0
    zero_point = int(np.clip(round(low - wanted.min() / span * 255), low, high))
    tensors["y"] = Tensor("y", wanted.shape, dtype, Quantization.per_tensor(span / 255, zero_point))
    node = Map("map", tuple(tensors)[:-1], "y", expression)
    graph = Graph("maps", tuple(values), ("y",), tensors, (node,))
    verify(graph)
    quotient = wanted / float(np.float32(span / 255)) + zero_point
    return graph, values, np.clip(quotient, low, high)


def on_c(graph, values):
    with C.open(None).load(C.compile(graph, Options())) as session:
        return session.run(values)["y"]


PICTURE, CHANNEL, ROW = (1, 5, 6, 7), (1, 5, 1, 1), (7,)
NUMBERS = np.linspace(-1.5, 2.5, 5).reshape(5, 1, 1)

FUNCTIONS = {
    "difference": (lambda x, y: x - y, [PICTURE, PICTURE], []),
    "broadcast product of both sides": (lambda x, y: x * y, [(1, 5, 1, 7), (1, 1, 6, 7)], []),
    "constant per channel": (lambda x, c: x * c, [PICTURE], [NUMBERS]),
    "batch normalisation": (
        lambda x, m, v, s, b: (x - m) / apply("sqrt", v + 1e-5) * s + b,
        [PICTURE],
        [NUMBERS, NUMBERS**2, NUMBERS[::-1], NUMBERS / 3],
    ),
    "PRelu": (lambda x, c: select(x < 0, x * c, x), [PICTURE], [NUMBERS]),
    "division by a constant": (lambda x, c: x / c, [PICTURE], [NUMBERS + 5]),
    "division by a number": (lambda x, y: (x + y) / 3.0, [PICTURE, PICTURE], []),
    "three summands": (lambda x, y, z: x + y * 0.5 - z * 3.0, [PICTURE, CHANNEL, ROW], []),
    "function of one": (lambda x, y: sigmoid(x) - apply("tanh", y), [PICTURE, PICTURE], []),
    "minimum and maximum": (lambda x, y: apply("min", apply("max", x, y), 2.0), [PICTURE, ROW], []),
    "selection": (lambda x, y, z: select(x <= y, z, apply("abs", x - y)), [PICTURE, CHANNEL, ROW], []),
    "logic of one": (
        lambda x, y: select(apply("and", x < 0.3, apply("not", y < -0.2)), x, y + 0.1),
        [PICTURE, PICTURE],
        [],
    ),
    "clip by a channel": (lambda x, c, d: clip(x, c, d), [PICTURE], [NUMBERS - 3, NUMBERS + 1]),
    "factor of a sum": (lambda x, y, c: (x + y) * c * -0.7, [PICTURE, PICTURE], [NUMBERS]),
}
FLOAT_ALONE = {
    "gate": (lambda x, y: x * sigmoid(y), [PICTURE, CHANNEL], []),
    "quotient": (lambda x, y: x / (apply("abs", y) + 0.5), [PICTURE, ROW], []),
    "rounded": (lambda x, y: apply("floor", (x + y) * 4.0) * 0.25, [PICTURE, ROW], []),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", [*FUNCTIONS, *FLOAT_ALONE])
def test_f32_is_at_most_half_a_unit_from_real_arithmetic_and_c_equals_it(name, dtype):
    graph, values, wanted = graph_of(*(FUNCTIONS | FLOAT_ALONE)[name], dtype=dtype, seed=len(name))
    found = reference.run(graph, values, "f32")["y"]
    assert found.dtype == dtype
    if name != "rounded":  # a floor jumps
        assert np.abs(found - wanted).max() < 0.5 + 1e-3
    np.testing.assert_array_equal(on_c(graph, values), found)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_q31_is_at_most_a_little_more_than_half_a_unit_from_real_arithmetic(name, dtype):
    graph, values, wanted = graph_of(*FUNCTIONS[name], dtype=dtype, seed=len(name) + 1)
    found = reference.run(graph, values, "q31")["y"]
    assert np.abs(found - wanted).max() < 0.5 + 2.0**-6


@pytest.mark.parametrize("name", FUNCTIONS)
def test_q31_fits_32_bits_whatever_the_operands(name):
    """Every value but the products by multipliers, which hardware takes the high half of."""
    function, shapes, constants = FUNCTIONS[name]
    for seed, scales in enumerate([(1.0, 0.01, 0.1), (0.003, 0.2, 0.05)]):
        graph, _, _ = graph_of(function, shapes, constants, seed=seed, scales=scales)
        form = exact_map(graph, graph.nodes[0], "q31")
        chance = np.random.default_rng(seed)
        values = []
        for operand in form.operands:
            if operand.data is not None:
                values.append(operand.data.astype(np.int64))
                continue
            some = chance.choice([0, 255, *range(256)], (1, 5, 6, 7)).astype(np.int64)
            values.append(some if operand.table is None else operand.table[some].astype(np.int64))
        products, first = set(), len(form.operands)
        for step in form.expression.steps:
            if step.op == "shift_right" and form.expression.steps[step.args[1] - first].value == 31:
                total = form.expression.steps[step.args[0] - first]
                products |= {step.args[0], *total.args}
        for number, step in enumerate(form.expression.steps, len(values)):
            kinds = tuple("bool" if values[arg].dtype == bool else "int" for arg in step.args)
            one = dataclasses.replace(step, args=tuple(range(len(step.args))))
            result = evaluate(
                dataclasses.replace(form.expression, inputs=kinds, steps=(one,)),
                [values[arg] for arg in step.args],
            )
            values.append(result)
            if number not in products:
                assert np.abs(result.astype(np.int64)).max() <= 2**31, step


@pytest.mark.parametrize("seed", range(6))
def test_random_expressions(seed):
    chance = random.Random(seed)

    def function(*operands):
        values = list(operands)
        for _ in range(chance.randrange(1, 7)):
            op = chance.choice(["add", "sub", "mul", "min", "max", "select", "scale", "sigmoid"])
            a, b, c = (chance.choice(values[-3:]) for _ in range(3))
            match op:
                case "select":
                    made = select(a < b, a, c)
                case "scale":
                    made = a * chance.uniform(-2, 2) + chance.uniform(-1, 1)
                case "sigmoid":
                    made = sigmoid(chance.choice(operands))
                case _:
                    made = apply(op, a, b)
            values.append(made)
        return values[-1] + operands[0] - operands[1]

    shapes = [PICTURE, chance.choice([PICTURE, CHANNEL, ROW]), (1, 5, 6, 1)]
    graph, values, wanted = graph_of(function, shapes, [NUMBERS], seed=seed)
    found = reference.run(graph, values, "f32")["y"]
    assert np.abs(found - wanted).max() < 0.6
    np.testing.assert_array_equal(on_c(graph, values), found)


def test_what_is_not_defined_is_refused_with_its_reason():
    for name, arithmetic in (("gate", "q31"), ("rounded", "q31"), ("quotient", "q31")):
        graph, values, _ = graph_of(*FLOAT_ALONE[name])
        with pytest.raises(Unsupported) as caught:
            exact_map(graph, graph.nodes[0], arithmetic)
        assert caught.value.where == "node map"
        np.testing.assert_array_equal(  # the host has it in f32
            reference.run(graph, values, "q31")["y"], reference.run(graph, values, "f32")["y"]
        )
    with pytest.raises(Unsupported, match="exp"):
        graph_of(lambda x, y: apply("exp", x + y), [PICTURE, PICTURE])
    with pytest.raises(Unsupported, match="not finite"):
        graph_of(lambda x, y: apply("log", x) + y, [PICTURE, PICTURE])


def test_an_expression_that_does_not_fit_its_tensors_is_refused():
    graph, _, _ = graph_of(*FUNCTIONS["difference"])
    node = graph.nodes[0]
    for other in (
        trace(lambda x: -x, "real"),
        trace(lambda x, y: x + y, "int", "int"),
        trace(lambda x, y: x < y, "real", "real"),
    ):
        with pytest.raises(InvalidModel):
            verify(dataclasses.replace(graph, nodes=(dataclasses.replace(node, expression=other),)))


def test_values_that_reach_far_are_refused_in_q31():
    graph, _, _ = graph_of(lambda x, y: clip((x + y) * 1e9, 0.0, 1.0), [PICTURE, PICTURE])
    with pytest.raises(Unsupported, match="reach"):
        exact_map(graph, graph.nodes[0], "q31")

"""TFLite models that keep something, or repeat something: recurrent operators, variables, loops, branches.

Each is run for three steps, its states fed back, against numpy and against TFLite's own interpreter.
"""

import numpy as np
import pytest

from sdk import reference
from sdk.compiler import compile
from sdk.errors import InvalidModel, Unsupported
from sdk.graph import Recurrent
from sdk.session import Session
from sdk.states import find_states
from tests.tflite_writer import Writer
from tests.unit.test_tflite_plain import ints, load

STEPS, BATCH, DEPTH, HIDDEN = 3, 2, 5, 4
LSTM = "UnidirectionalSequenceLSTMOptions"


def reals(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Lstm:
    """A sequence through an LSTM, TFLite's gates in their order: input, forget, cell, output."""

    def __init__(self, *, time_major=False, clip=0.0, peepholes=False, backward=False, seed=0):
        self.weights = [reals(HIDDEN, DEPTH, seed=seed + i) for i in range(4)]
        self.recurrent = [reals(HIDDEN, HIDDEN, seed=seed + 9 + i) for i in range(4)]
        self.peepholes = [reals(HIDDEN, seed=seed + 20 + i) if peepholes else None for i in range(3)]
        self.bias = [reals(HIDDEN, seed=seed + 30 + i) for i in range(4)]
        self.time_major, self.clip, self.backward = time_major, clip, backward
        self.h = self.c = np.zeros((BATCH, HIDDEN))

    def operands(self, writer, name="w"):
        groups = [*self.weights, *self.recurrent, *self.peepholes, *self.bias]
        found = [-1 if a is None else writer.constant(f"{name}{i}", a) for i, a in enumerate(groups)]
        return [*found, -1, -1]

    def states(self, writer, name=""):
        shape = (BATCH, HIDDEN)
        return [writer.tensor(f"{name}{part}", shape, "float32", variable=True) for part in ("h", "c")]

    def content(self):
        writer, turn = Writer(), self.time_major
        shape = (STEPS, BATCH) if turn else (BATCH, STEPS)
        x = writer.tensor("x", (*shape, DEPTH), "float32")
        operands = [x, *self.operands(writer), *self.states(writer)]
        y = writer.tensor("y", (*shape, HIDDEN), "float32")
        options = {"FusedActivationFunction": 4, "TimeMajor": turn, "CellClip": self.clip}
        writer.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, y, LSTM, **options)
        return writer.content([x], [y])

    def step(self, x):
        """One inference, by the book; x and the result have the steps first."""
        found = []
        p = [0 if a is None else a for a in self.peepholes]
        for row in x[::-1] if self.backward else x:
            i, f, g, o = (
                row @ w.T + self.h @ r.T + b
                for w, r, b in zip(self.weights, self.recurrent, self.bias, strict=True)
            )
            self.c = sigmoid(f + p[1] * self.c) * self.c + sigmoid(i + p[0] * self.c) * np.tanh(g)
            if self.clip:
                self.c = np.clip(self.c, -self.clip, self.clip)
            self.h = sigmoid(o + p[2] * self.c) * np.tanh(self.c)
            found.append(self.h)
        return np.stack(found[::-1] if self.backward else found)


def inferences(content, given):
    """Results of consecutive inferences, states fed back, by the reference."""
    graph = load(content)
    pairs = find_states(graph)
    assert {output for output, _ in pairs} == set(graph.outputs[-len(pairs) :])
    states = {name: np.zeros(graph.tensor(name).shape, np.float32) for _, name in pairs}
    results = []
    for inputs in given:
        found = reference.run(graph, {**inputs, **states})
        states = {name: found[output] for output, name in pairs}
        results.append({name: found[name] for name in graph.outputs[: -len(pairs)]})
    return results


def interpreted(content, given):
    """The same by TFLite's own interpreter."""
    found = pytest.importorskip("ai_edge_litert.interpreter")
    kind = found.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = found.Interpreter(model_content=content, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    results = []
    for inputs in given:
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], inputs[detail["name"]])
        interpreter.invoke()
        details = interpreter.get_output_details()
        results.append({detail["name"]: interpreter.get_tensor(detail["index"]) for detail in details})
    return results


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=2e-5, atol=2e-5)


FORMS = {
    "batch first": {},
    "time major": {"time_major": True},
    "clipped": {"clip": 0.3},
    "peepholes": {"peepholes": True},
}


def sequences(lstm, count=3):
    shape = (STEPS, BATCH) if lstm.time_major else (BATCH, STEPS)
    return [{"x": reals(*shape, DEPTH, seed=50 + i)} for i in range(count)]


@pytest.mark.parametrize("form", FORMS)
def test_lstm(form):
    lstm = Lstm(**FORMS[form])
    given = sequences(lstm)
    expected = []
    for inputs in given:
        x = inputs["x"] if lstm.time_major else inputs["x"].transpose(1, 0, 2)
        y = lstm.step(x)
        expected.append({"y": y if lstm.time_major else y.transpose(1, 0, 2)})
    ours = inferences(lstm.content(), given)
    assert_same(ours, expected)
    assert np.abs(ours[1]["y"] - inferences(lstm.content(), given[1:2])[0]["y"]).max() > 1e-3  # it remembers
    assert any(isinstance(node, Recurrent) for node in load(lstm.content()).nodes)


@pytest.mark.parametrize("form", FORMS)
def test_lstm_against_the_interpreter(form):
    lstm = Lstm(**FORMS[form])
    given = sequences(lstm)
    assert_same(inferences(lstm.content(), given), interpreted(lstm.content(), given))


@pytest.mark.parametrize("merged", [True, False])
def test_bidirectional_lstm(merged):
    ways = [Lstm(seed=0), Lstm(seed=100, backward=True)]
    writer = Writer()
    x = writer.tensor("x", (BATCH, STEPS, DEPTH), "float32")
    operands = [x, *ways[0].operands(writer, "f"), *ways[1].operands(writer, "b")]
    operands += [*ways[0].states(writer, "f_"), *ways[1].states(writer, "b_"), *[-1] * 9]
    shapes = [(BATCH, STEPS, 2 * HIDDEN)] if merged else [(BATCH, STEPS, HIDDEN)] * 2
    ys = [writer.tensor(f"y{i}", shape, "float32") for i, shape in enumerate(shapes)]
    options = {"FusedActivationFunction": 4, "MergeOutputs": merged, "TimeMajor": False}
    table = "BidirectionalSequenceLSTMOptions"
    writer.operator("BIDIRECTIONAL_SEQUENCE_LSTM", operands, ys, table, **options)
    content = writer.content([x], ys)
    given = sequences(ways[0])
    expected = []
    for inputs in given:
        found = [way.step(inputs["x"].transpose(1, 0, 2)).transpose(1, 0, 2) for way in ways]
        parts = [np.concatenate(found, 2)] if merged else found
        expected.append({f"y{i}": part for i, part in enumerate(parts)})
    assert_same(inferences(content, given), expected)


def rnn(activation=4, function=np.tanh):
    writer = Writer()
    x = writer.tensor("x", (BATCH, STEPS, DEPTH), "float32")
    w, r, b = reals(HIDDEN, DEPTH), reals(HIDDEN, HIDDEN), reals(HIDDEN)
    state = writer.tensor("h", (BATCH, HIDDEN), "float32", variable=True)
    operands = [x, *(writer.constant(name, a) for name, a in zip("wrb", (w, r, b), strict=True)), state]
    y = writer.tensor("y", (BATCH, STEPS, HIDDEN), "float32")
    options = {"FusedActivationFunction": activation, "TimeMajor": False}
    writer.operator("UNIDIRECTIONAL_SEQUENCE_RNN", operands, y, "SequenceRNNOptions", **options)

    def expected(given):
        h, results = np.zeros((BATCH, HIDDEN)), []
        for inputs in given:
            rows = []
            for row in inputs["x"].transpose(1, 0, 2):
                h = function(row @ w.T + h @ r.T + b)
                rows.append(h)
            results.append({"y": np.stack(rows, 1)})
        return results

    return writer.content([x], [y]), expected


@pytest.mark.parametrize(
    ("activation", "function"), [(4, np.tanh), (1, lambda x: np.maximum(x, 0)), (0, lambda x: x)]
)
def test_rnn(activation, function):
    content, expected = rnn(activation, function)
    given = sequences(Lstm())
    assert_same(inferences(content, given), expected(given))
    assert_same(inferences(content, given), interpreted(content, given))


def svdf(rank=2, memory=3):
    writer, filters = Writer(), 6
    x = writer.tensor("x", (BATCH, DEPTH), "float32")
    features, times, bias = reals(filters, DEPTH), reals(filters, memory), reals(filters // rank)
    state = writer.tensor("s", (BATCH, memory * filters), "float32", variable=True)
    constants = [writer.constant(name, a) for name, a in (("f", features), ("t", times), ("b", bias))]
    y = writer.tensor("y", (BATCH, filters // rank), "float32")
    options = {"Rank": rank, "FusedActivationFunction": 1}
    writer.operator("SVDF", [x, *constants, state], y, "SVDFOptions", **options)

    def expected(given):
        state, results = np.zeros((BATCH, filters, memory)), []
        for inputs in given:
            state = np.concatenate([state[..., 1:], (inputs["x"] @ features.T)[..., None]], 2)
            sums = (state * times).sum(-1).reshape(BATCH, -1, rank).sum(-1)
            results.append({"y": np.maximum(sums + bias, 0)})
        return results

    return writer.content([x], [y]), expected


@pytest.mark.parametrize(("rank", "memory"), [(2, 3), (1, 1)])
def test_svdf(rank, memory):
    content, expected = svdf(rank, memory)
    given = [{"x": reals(BATCH, DEPTH, seed=i)} for i in range(4)]
    assert_same(inferences(content, given), expected(given))
    assert_same(inferences(content, given), interpreted(content, given))


# --- variables ------------------------------------------------------------------------------------------


def variable(start=0.5, *, assigns=True, stored=None):
    """y = x + v; then v becomes v / 2 + x. It starts as `start`."""
    writer, initial = Writer(), Writer()
    x = writer.tensor("x", (1, 4), "float32")
    name = {"SharedName": "memory"}
    writer.operator("CALL_ONCE", [], [], "CallOnceOptions", InitSubgraphIndex=1)
    handle = writer.operator(
        "VAR_HANDLE", [], writer.tensor("handle", (), "resource"), "VarHandleOptions", **name
    )
    v = writer.operator(
        "READ_VARIABLE", [handle], writer.tensor("v", (1, 4), "float32"), "ReadVariableOptions"
    )
    y = writer.operator("ADD", [x, v], writer.tensor("y", (1, 4), "float32"), "AddOptions")
    half = writer.constant("half", np.float32([0.5]))
    less = writer.operator("MUL", [v, half], writer.tensor("less", (1, 4), "float32"), "MulOptions")
    new = writer.operator("ADD", [less, x], writer.tensor("new", (1, 4), "float32"), "AddOptions")
    if assigns:
        writer.operator("ASSIGN_VARIABLE", [handle, new], [], "AssignVariableOptions")
    own = initial.tensor("own", (), "resource")
    initial.operator("VAR_HANDLE", [], own, "VarHandleOptions", **name)
    value = initial.constant("value", np.full((1, 4), start, np.float32) if stored is None else stored)
    initial.operator("ASSIGN_VARIABLE", [own, value], [], "AssignVariableOptions")
    return writer.content([x], [y], [(initial, [], [])])


@pytest.mark.parametrize("start", [0.0, 0.5])
def test_variables(start):
    given = [{"x": reals(1, 4, seed=i)} for i in range(3)]
    expected, v = [], np.full((1, 4), start)
    for inputs in given:
        expected.append({"y": inputs["x"] + v})
        v = v / 2 + inputs["x"]
    assert_same(inferences(variable(start), given), expected)
    assert_same(inferences(variable(start), given), interpreted(variable(start), given))


def test_a_variable_that_nothing_assigns_is_a_constant():
    graph = load(variable(0.5, assigns=False))
    assert graph.inputs == ("x",)
    x = reals(1, 4)
    np.testing.assert_allclose(reference.run(graph, {"x": x})["y"], x + 0.5)


def test_a_session_keeps_states(tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(variable(0.5))
    given = [{"x": reals(1, 4, seed=i)} for i in range(3)]
    expected = inferences(variable(0.5), given)
    with Session(compile(path, "c")) as session:
        for _ in range(2):
            assert_same([{"y": session.step(inputs)["y"]} for inputs in given], expected)
            session.reset()


# --- loops and branches ---------------------------------------------------------------------------------


def loop(limit=3, *, bound=None):
    """y = x doubled `limit` times, and how often; with `bound` the condition reads a value of x."""
    writer, condition, body = Writer(), Writer(), Writer()
    x = writer.tensor("x", (1, 4), "float32")
    start = writer.constant("start", ints(0).reshape(()))
    ends = [writer.tensor("count", (), "int32"), writer.tensor("y", (1, 4), "float32")]
    table = {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}
    writer.operator("WHILE", [start, x], ends, "WhileOptions", **table)
    i, v = condition.tensor("i", (), "int32"), condition.tensor("v", (1, 4), "float32")
    result = condition.tensor("less", (), "bool")
    if bound is None:
        limit = condition.constant("limit", ints(limit).reshape(()))
        condition.operator("LESS", [i, limit], result, "LessOptions")
    else:
        axes = condition.constant("axes", ints(0, 1))
        most = condition.operator(
            "REDUCE_MAX", [v, axes], condition.tensor("most", (), "float32"), "ReducerOptions"
        )
        condition.operator("LESS", [most, condition.constant("b", np.float32(bound))], result, "LessOptions")
    j, w = body.tensor("i", (), "int32"), body.tensor("v", (1, 4), "float32")
    one = body.constant("one", ints(1).reshape(()))
    more = body.operator("ADD", [j, one], body.tensor("more", (), "int32"), "AddOptions")
    double = body.operator("ADD", [w, w], body.tensor("double", (1, 4), "float32"), "AddOptions")
    return writer.content([x], ends[1:], [(condition, [i, v], [result]), (body, [j, w], [more, double])])


def test_a_loop_of_a_fixed_number_of_steps_is_unrolled():
    x = reals(1, 4)
    graph = load(loop(3))
    np.testing.assert_allclose(reference.run(graph, {"x": x})["y"], x * 8)
    np.testing.assert_allclose(interpreted(loop(3), [{"x": x}])[0]["y"], x * 8)


def test_loops_that_are_refused(monkeypatch):
    monkeypatch.setattr("sdk.importers.tflite.table.LARGEST_LOOP", 8)
    for content in (loop(bound=3.0), loop(2**30)):
        with pytest.raises(Unsupported) as raised:
            load(content)
        assert raised.value.where == "operator 0 (WHILE)"


@pytest.mark.parametrize("chosen", [True, False])
def test_a_branch_that_a_constant_chooses(chosen):
    writer, branches = Writer(), []
    x, y = (writer.tensor(name, (1, 4), "float32") for name in "xy")
    condition = writer.constant("condition", np.array(chosen))
    table = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}
    writer.operator("IF", [condition, x], y, "IfOptions", **table)
    for op in ("ABS", "NEG"):
        branch = Writer()
        ends = [branch.tensor(name, (1, 4), "float32") for name in "ab"]
        branch.operator(op, ends[:1], ends[1])
        branches.append((branch, ends[:1], ends[1:]))
    given = reals(1, 4)
    result = reference.run(load(writer.content([x], [y], branches)), {"x": given})["y"]
    np.testing.assert_array_equal(result, np.abs(given) if chosen else -given)


# --- refused --------------------------------------------------------------------------------------------


def broken_lstm(change):
    lstm = Lstm()
    change(lstm)
    return lstm.content()


REFUSED = {
    "a gate of another shape": lambda m: m.weights.__setitem__(1, reals(HIDDEN + 1, DEPTH)),
    "a coupled input gate": lambda m: m.weights.__setitem__(0, None),
    "a missing gate": lambda m: m.weights.__setitem__(2, None),
    "a missing recurrent weight": lambda m: m.recurrent.__setitem__(0, None),
    "a vector for a recurrent weight": lambda m: m.recurrent.__setitem__(0, reals(HIDDEN)),
    "a missing bias": lambda m: m.bias.__setitem__(0, None),
    "half of the peepholes": lambda m: m.peepholes.__setitem__(1, reals(HIDDEN)),
    "a negative bound": lambda m: setattr(m, "clip", -1.0),
}


@pytest.mark.parametrize("case", REFUSED)
def test_lstms_that_are_refused(case):
    with pytest.raises((Unsupported, InvalidModel)) as raised:
        load(broken_lstm(REFUSED[case]))
    assert raised.value.where == "operator 0 (UNIDIRECTIONAL_SEQUENCE_LSTM)"


def test_variables_that_are_refused():
    with pytest.raises(InvalidModel):
        load(variable(stored=np.zeros((1, 5), np.float32)))
    writer = Writer()
    x = writer.tensor("x", (1, 4), "float32")
    handle = writer.operator("VAR_HANDLE", [], writer.tensor("handle", (), "resource"), "VarHandleOptions")
    v = writer.operator(
        "READ_VARIABLE", [handle], writer.tensor("v", (1, 1), "float32"), "ReadVariableOptions"
    )
    y = writer.operator("ADD", [x, v], writer.tensor("y", (1, 4), "float32"), "AddOptions")
    writer.operator("ASSIGN_VARIABLE", [handle, y], [], "AssignVariableOptions")
    with pytest.raises(InvalidModel) as raised:
        load(writer.content([x], [y]))
    assert raised.value.where == "state variable"


def test_subgraphs_that_are_missing():
    writer = Writer()
    x, y = (writer.tensor(name, (1, 4), "float32") for name in "xy")
    writer.operator("WHILE", [x], y, "WhileOptions", CondSubgraphIndex=3, BodySubgraphIndex=0)
    with pytest.raises(InvalidModel):
        load(writer.content([x], [y]))

"""Graphs of plain tensors, each node with an example of its inputs: for tests of importers and targets.

b = PlainBuilder(seed=1)
x = b.input((1, 3, 8, 9), "float16")
y = b.node(Conv, (x, b.constant((4, 3, 3, 3), "float16")), strides=(1, 1), pads=(1, 1, 1, 1), ...)
assert_defined(target, b.graph(), b.inputs)
"""

from __future__ import annotations

import numpy as np

from sdk import dtypes
from sdk.expression import trace
from sdk.graph import Graph, Map, Reshape, Tensor
from sdk.reference import compare, evaluate, expect, is_plain
from sdk.shapes import output_shape
from sdk.target import Options, require_supported
from sdk.verification import kind_of, verify
from tests.contract.targets import assert_borders


class PlainBuilder:
    """Nodes are named after their operator and number.

    Attributes:
        inputs: an array for each input of the graph, as it is stored.
    """

    def __init__(self, seed: int = 0):
        self.random = np.random.default_rng(seed)
        self.tensors: dict[str, Tensor] = {}
        self.nodes = []
        self.inputs: dict[str, np.ndarray] = {}

    def draw(self, shape, dtype):
        """Random elements as they are stored: normal floats, integers from -100 or 0 to 100, truth values."""
        kind = dtypes.dtype(dtype).kind
        if kind == "float":
            return dtypes.encode(self.random.standard_normal(shape), dtype)
        low, high = (0, 2) if kind == "bool" else (0 if kind == "uint" else -100, 101)
        return self.random.integers(low, high, shape).astype(dtypes.storage(dtype))

    def input(self, shape, dtype="float32", values=None):
        """An input of the graph; `values` are stored elements, drawn at random unless they are given."""
        name = f"input{len(self.inputs)}"
        self.inputs[name] = self.draw(shape, dtype) if values is None else np.asarray(values)
        self.tensors[name] = Tensor(name, tuple(shape), dtype)
        return name

    def constant(self, shape, dtype="float32", values=None):
        name = f"constant{len(self.tensors)}"
        data = self.draw(shape, dtype) if values is None else np.asarray(values, dtypes.storage(dtype))
        self.tensors[name] = Tensor(name, tuple(shape), dtype, data=np.ascontiguousarray(data).reshape(shape))
        return name

    def node(self, operator, inputs, /, *, shape=None, dtype=None, **fields):
        """A node; its output has the first input's dtype and the shape that follows, unless given."""
        name = f"{operator.op.lower()}{len(self.tensors)}"
        node = operator(name=name, inputs=tuple(inputs), output=name, **fields)
        dtype = dtype or self.tensors[inputs[0]].dtype
        if shape is None:
            self.tensors[name] = Tensor(name, (), dtype)
            shape = output_shape(node, self.tensors)
        self.tensors[name] = Tensor(name, tuple(shape), dtype)
        self.nodes.append(node)
        return name

    def map(self, function, *inputs, dtype=None):
        """A Map of `function` of symbols."""
        expression = trace(function, *(kind_of(self.tensors[name].dtype) for name in inputs))
        return self.node(Map, inputs, dtype=dtype, expression=expression)

    def reshape(self, x, shape):
        return self.node(Reshape, (x,), shape=shape)

    def graph(self, *outputs) -> Graph:
        """The graph; without outputs every node's output is one."""
        outputs = outputs or tuple(node.output for node in self.nodes)
        return Graph("plain", tuple(self.inputs), outputs, self.tensors, tuple(self.nodes))


def assert_defined(target, graph, inputs, *, guard=64, poisons=(0xA5,)):
    """Every tensor of the target is within its definition on what the target computed before it."""
    verify(graph)
    require_supported(target, graph)
    program = target.compile(graph, Options(guard=guard))
    with target.open(None).load(program) as session:
        for poison in poisons:
            session.poison(poison)
            values = dict(inputs) | session.trace(inputs)
            known = dict(values)
            for node in program.graph.nodes:
                if node.output in values:
                    assert_within(program.graph, node, known, program.precision)
                else:  # it is fused into another: all that it may be
                    known[node.output] = expect(program.graph, node, known, program.precision)
            assert_borders(program, session, poison)
            for name, value in session.run(inputs).items():
                np.testing.assert_array_equal(bits(value), bits(values[name]), err_msg=name)
    return values


def assert_within(graph, node, values, precision="float32"):
    """What is stored for a node is within its definition, given its inputs as they are stored."""
    tensor = graph.tensor(node.output)
    actual = values[node.output]
    assert actual.shape == tensor.shape
    assert actual.dtype == dtypes.storage(tensor.dtype)
    if not is_plain(graph, node):
        exact = evaluate(graph, node, values, "f32")
        np.testing.assert_array_equal(actual, exact, err_msg=node.name)
        return
    expected = expect(graph, node, values, precision, actual)
    found = compare(expected, actual, tensor.dtype)
    assert not found.outside, f"{node.op} {node.name} of {tensor}: {found}"


def bits(array):
    """The array's bytes, so that NaN equals NaN."""
    return np.ascontiguousarray(array).view(np.uint8)

"""Plain tensors on the AMD cards: the networks of the target c's tests, against their definition."""

import numpy as np
import pytest

from sdk import graph as ops
from sdk import reference
from sdk.errors import InvalidInput
from sdk.expression.trace import apply, round_to
from sdk.passes import optimize
from sdk.target import Options
from tests import shader_gpu
from tests.amount import amount
from tests.plain_families import CASES, TWICE, families
from tests.plain_graphs import PlainBuilder, assert_defined, bits


@pytest.fixture(scope="module")
def amd():
    return shader_gpu.target("gfx1100")


# Minutes each: their kernels are compiled for the emulated card. In float16 they stay.
LONG = [(families.test_convolutions, ("float32",)), (families.test_matrices, ("float32",))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "arguments"),
    amount([case for case in CASES if case not in (*LONG, *TWICE)], CASES),
    ids=lambda part: getattr(part, "__name__", str(part)),
)
def test_a_family(monkeypatch, amd, case, arguments):
    monkeypatch.setattr(families, "TARGET", amd)
    case(*arguments)


def test_the_quotient_is_rounded_once(amd):
    """-2.5 / float32(5 / 255) is next to -127.5."""
    b = PlainBuilder()
    x = b.input((1,), "float32", np.array([-2.5], np.float32))
    scale = b.input((1,), "float32", np.array([5 / 255], np.float32))
    b.map(lambda v, s: apply("trunc", apply("rint", round_to(v / s, "float32"))), x, scale, dtype="int32")
    values = assert_defined(amd, b.graph(), b.inputs)
    assert values[b.nodes[-1].output].tolist() == [-127]


def test_an_index_out_of_range_ends_the_run(amd):
    b = PlainBuilder(11)
    x, indices = b.input((3, 4)), b.input((2,), "int64", np.array([0, 2]))
    node = b.node(ops.Gather, (x, indices), axis=0)
    with amd.open(None).load(amd.compile(b.graph(), Options())) as session:
        for call in (session.run, session.trace):
            with pytest.raises(InvalidInput) as caught:
                call({**b.inputs, indices: np.array([0, 3])})
            assert caught.value.where == f"node {node}"
            call(b.inputs)


@pytest.mark.slow
def test_small_parts_of_a_concat_are_copied_in_one_launch(amd):
    """Parts with steps of their own, more than one launch takes, and a large one beside them."""
    b = PlainBuilder(12)
    x = b.input((3, 5, 7), "float16")
    parts = [
        b.node(ops.Slice, (x,), shape=(1, 5, 6 - i % 3), starts=(i % 3, 4, i % 2), steps=(1, -1, 1))
        for i in range(9)
    ]
    large = b.input((1, 5, 1 << 14), "float16")
    b.node(ops.Concat, (*parts[:4], large, *parts[4:]), axis=2)
    graph = b.graph(b.nodes[-1].output)
    program = amd.compile(graph, Options())
    assert len(program.plan["launches"]) == 3
    with amd.open(None).load(program) as session:
        (found,) = session.run(b.inputs).values()
    expected = reference.run(graph, b.inputs)[graph.outputs[0]]
    np.testing.assert_array_equal(bits(found), bits(expected))


def test_the_activation_behind_a_reshaped_convolution_is_in_its_launch(amd):
    b = PlainBuilder(13)
    x, weight = b.input((1, 8, 1, 20), "float16"), b.constant((8, 8, 1, 3), "float16")
    fields = {"strides": (1, 1), "pads": (0, 1, 0, 1), "dilations": (1, 1), "group": 1, "clamp": ops.NO_CLAMP}
    made = b.node(ops.Conv, (x, weight), shape=(1, 8, 1, 20), **fields)
    b.map(lambda v: apply("max", v, 0), b.reshape(made, (1, 8, 20)))
    graph = optimize(b.graph(b.nodes[-1].output))
    launches = amd.compile(graph, Options()).plan["launches"]
    assert [launch["op"] for launch in launches][:1] == ["Conv+Map"]

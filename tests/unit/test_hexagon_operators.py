"""How the lowering to Hexagon treats weights of nine bits, transpositions and concatenations."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsp.hexagon.layout import Pitches
from dsp.hexagon.lowering import lower
from dsp.hexagon.moves import moved_axes
from dsp.hexagon.packing import in_bytes
from tests.graph_builder import GraphBuilder


@settings(max_examples=30)
@example([255])
@example([254, -255])
@example([-128, 127])
@given(st.lists(st.integers(-255, 255), min_size=1, max_size=9))
def test_parts_of_weights_are_bytes_and_sum_to_them(values):
    weight = np.array([values], np.int16)
    parts = in_bytes(weight)
    assert parts.dtype == np.int8
    np.testing.assert_array_equal(parts.reshape(1, -1, len(values)).astype(int).sum(axis=1), weight)
    needed = 1 if min(values) >= -128 and max(values) <= 127 else 2 if max(values) < 255 else 3
    assert parts.shape[1] == needed * len(values)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_moved_axes_are_few_and_lead_to_every_element(shape, data):
    perm = data.draw(st.permutations(range(len(shape))))
    x = np.arange(np.prod(shape)).reshape(shape)
    extents, steps = moved_axes(shape, perm)
    moved = sum(i * step for i, step in zip(np.indices(extents), steps, strict=True)) + np.zeros(extents, int)
    np.testing.assert_array_equal(moved.ravel(), x.transpose(perm).ravel())
    assert 1 not in extents
    assert all(a != b * n for a, b, n in zip(steps, steps[1:], extents[1:], strict=False))


@pytest.mark.parametrize(
    ("channels", "calls"), [((8, 4, 5), 0), ((8, 5, 4), 1), ((3, 8, 1), 2), ((3, 5, 4), 1)]
)
def test_parts_that_begin_at_a_plane_are_written_in_place(channels, calls):
    b = GraphBuilder((1, 4, 6, 9))
    first = b.conv("x", channels[0])
    b.concat(first, *(b.alike(b.conv("x", n), first) for n in channels[1:]))
    assert len(lower(b.graph()).layers[-2].calls) == calls


def test_a_tensor_lies_in_one_concat_only_and_once():
    b = GraphBuilder((1, 4, 6, 9))
    x, y = b.conv("x", 4), b.conv("x", 8)
    y = b.alike(y, x)
    joined = b.concat(x, y)
    twice = b.concat(joined, y, joined)
    assert Pitches(b.graph(twice)).joined == {x: (joined, 0), y: (joined, 4)}


def test_a_frame_beside_other_parts_leaves_them_alone():
    """In the planes of a Concat a Pad fills only its own part; tests/contract runs them."""
    b = GraphBuilder((1, 4, 6, 9))
    first = b.conv("x", 8)
    second = b.pad(b.alike(b.conv(b.max_pool("x", 3), 4), first), (1, 1, 1, 1))
    layers = {layer.tensor: layer for layer in lower(b.graph(b.concat(first, second))).layers}
    (flood,) = (call.fields for call in layers[second].calls if call.kernel.symbol == "flood")
    assert flood["y"].buffer is layers[first].planes.buffer
    assert flood["y"].delta == layers[second].planes.base > layers[first].planes.base
    assert flood["vectors"] * 128 == layers[second].planes.plane


def test_the_copy_of_an_operand_takes_no_other_s_name():
    b = GraphBuilder((1, 6, 5, 7))
    row = b.average_pool("x", (1, 7))
    other = b.requantize("x")
    product = b.mul("x", row)
    after = b.requantize(other)
    name = f"{row} for {product}"
    graph = b.graph(product, after)
    tensors = {**graph.tensors, name: dataclasses.replace(graph.tensor(other), name=name)}
    nodes = tuple(
        dataclasses.replace(
            node,
            inputs=tuple(name if tensor == other else tensor for tensor in node.inputs),
            output=name if node.output == other else node.output,
        )
        for node in graph.nodes
    )
    graph = dataclasses.replace(graph, tensors=tensors, nodes=nodes)
    layers = {layer.name: layer for layer in lower(graph).layers}
    assert layers[product].calls[-1].fields["b"].buffer is not layers[other].planes.buffer
    assert layers[after].calls[-1].fields["x"].buffer is layers[other].planes.buffer

"""Which nodes lowerings compute together with a product, and weights of groups."""

import numpy as np

from sdk.graph import Conv
from sdk.lowering import dense_groups, joined
from tests.graph_builder import GraphBuilder


def pairs(graph, *takes):
    return [(node.op, product and product.output) for node, product in joined(graph, *takes)]


def test_an_add_joins_its_later_product():
    b = GraphBuilder((1, 4, 5, 5))
    first, later = b.conv("x", 4), b.conv("x", 4)
    b.add(later, first)
    assert pairs(b.graph()) == [("Conv", None), ("Add", later)]


def test_a_lookup_joins_the_product_before_it():
    b = GraphBuilder((1, 6))
    y = b.gemm("x", 4)
    b.lookup(y, np.tanh)
    assert pairs(b.graph()) == [("Lookup", y)]


def test_what_others_need_is_joined_by_nothing():
    b = GraphBuilder((1, 4, 5, 5))
    y = b.conv("x", 4)
    total = b.add(y, "x")
    alone = [("Conv", None), ("Add", None)]
    assert pairs(b.graph(y, total)) == alone  # an output
    b.add(y, total)
    assert pairs(b.graph()) == [*alone, ("Add", None)]  # read twice
    b = GraphBuilder((1, 4, 5, 5))
    y = b.conv("x", 4)
    b.add(y, y)
    assert pairs(b.graph()) == alone


def test_a_target_says_what_it_can_compute_in_a_product():
    b = GraphBuilder((1, 4, 5, 5))
    first, later = b.conv("x", 4), b.depthwise("x", pads=1)
    b.add(first, later)
    graph = b.graph()
    assert pairs(graph) == [("Conv", None), ("Add", later)]
    dense = pairs(graph, lambda product, node: isinstance(product, Conv) and product.group == 1)
    assert dense == [("Conv", None), ("Add", first)]
    assert pairs(graph, lambda product, node: False) == [("Conv", None), ("Conv", None), ("Add", None)]


def test_grouped_weights_become_equal_dense_ones():
    weights = np.arange(1, 1 + 6 * 2, dtype=np.int8).reshape(6, 2, 1, 1)
    dense = dense_groups(weights, 3)[:, :, 0, 0]
    assert dense.shape == (6, 6)
    assert dense[3].tolist() == [0, 0, 7, 8, 0, 0]
    assert dense[4].tolist() == [0, 0, 0, 0, 9, 10]

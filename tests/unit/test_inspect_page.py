"""The page of `towline inspect --html`: every node is on it once, and drawings are what their graph is."""

import json
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.inspection.layout import GAP, LARGEST, WHOLE, layered, sections
from tests.onnx_models import OnnxBuilder, saved, small_qdq_model
from towline.cli import main

VOID = ("meta", "input")


class Page(HTMLParser):
    """Elements of a page, which must be nested properly, and the data in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts[self.open[-1]] = self.texts.get(self.open[-1], "") + data

    def numbers(self, attribute):
        return [int(attrs[attribute]) for _, attrs in self.elements if attribute in attrs]


def page_of(path, tmp_path, *arguments):
    output = tmp_path / "page.html"
    assert main(["inspect", str(path), "--html", str(output), "--json", *arguments]) == 0
    return Page(output.read_text())


def chain(length):
    """Residual blocks of Relu, Sigmoid and Add; a name that HTML has to escape."""
    b = OnnxBuilder()
    x = b.input("x", [1, 4])
    for number in range(length):
        y = b.node("Relu", [x], f"r{number}", name=f"/block{number}/<relu>")
        z = b.node("Sigmoid", [y], f"s{number}", name=f"/block{number}/sigmoid")
        x = b.node("Add", [x, z], f"a{number}", name=f"/block{number}/add")
    return b.model([x])


@pytest.mark.slow
@pytest.mark.parametrize("length", [2, 30])
def test_every_node_is_drawn_once(tmp_path, capsys, length):
    page = page_of(saved(chain(length), tmp_path), tmp_path, "--target", "c")
    nodes = json.loads(capsys.readouterr().out)["result"]["nodes"]
    assert len(nodes) == 3 * length
    for attribute in ("data-node", "data-row"):
        assert sorted(page.numbers(attribute)) == list(range(len(nodes)))
    rows = [one["name"] for one in json.loads(page.texts["script"].partition('\n"use strict"')[0])["nodes"]]
    assert rows == [node["name"] for node in nodes]
    assert "/block1/<relu>" in page.texts["button"]
    assert (page.numbers("data-section") == []) == (length == 2)


def test_edges_are_the_graph_s(tmp_path):
    """Of two blocks in one section: four edges each, and one to the output."""
    page = page_of(saved(chain(2), tmp_path), tmp_path, "--target", "c")
    classes = [attrs.get("class", "") for _, attrs in page.elements]
    assert classes.count("edge") == 2 * 4 + 1
    assert [one for one in classes if one.startswith("stub")] == ["stub input", "stub output"]


def test_it_fetches_nothing(tmp_path):
    page = page_of(saved(chain(2), tmp_path), tmp_path, "--target", "c")
    assert not [attrs for _, attrs in page.elements if {"src", "srcset", "action"} & attrs.keys()]
    assert all(attrs["href"].startswith("#") for _, attrs in page.elements if "href" in attrs)
    policies = [attrs["content"] for tag, attrs in page.elements if tag == "meta" and "http-equiv" in attrs]
    assert policies[0].startswith("default-src 'none'")


def test_a_refused_model_is_drawn_from_its_file(tmp_path, capsys):
    b = OnnxBuilder(opset=17)
    x = b.node("Relu", [b.input("x", [1, 4])], "y", name="fine")
    b.node("NonZero", [x], "z", name="bad")
    page = page_of(saved(b.model({"z": "int64"}), tmp_path), tmp_path)
    assert page.numbers("data-node") == [0, 1]
    assert (
        sum("refused" in attrs.get("class", "").split() for tag, attrs in page.elements if tag == "td") == 1
    )


def test_a_compiled_network_has_its_places(tmp_path, capsys):
    model, network = saved(small_qdq_model().model(["y"]), tmp_path), tmp_path / "net.tow"
    assert main(["compile", str(model), "--target", "c", "-o", str(network)]) == 0
    page = page_of(network, tmp_path)
    cells = [attrs["class"].split() for tag, attrs in page.elements if tag == "td" and "class" in attrs]
    assert sum("device" in one for one in cells) >= 1
    assert sum("host" in one for one in cells) >= 1


# -- the layout -----------------------------------------------------------------------------------------

NODE = st.integers(0, 23)
EDGES = st.lists(st.tuples(NODE, NODE).map(sorted).map(tuple), max_size=40)


@settings(max_examples=20, deadline=None)
@given(EDGES)
def test_edges_lead_down_and_boxes_do_not_overlap(edges):
    layout = layered([(50.0, 20.0)] * 24, edges, 30.0)
    for source, target in {edge for edge in edges if edge[0] != edge[1]}:
        points = layout.ways[source, target]
        assert points[0] == (layout.places[source][0], layout.places[source][1] + 20)
        assert points[-1] == layout.places[target]
        assert all(above[1] <= below[1] for above, below in pairwise(points))
        assert layout.places[source][1] < layout.places[target][1]
    by_layer = {}
    for x, y in layout.places:
        by_layer.setdefault(y, []).append(x)
        assert 25 - 1e-6 <= x <= layout.width - 25 + 1e-6
        assert 0 <= y <= layout.height - 20 + 1e-6
    for places in by_layer.values():
        assert all(right - left >= 50 + GAP - 1e-6 for left, right in pairwise(sorted(places)))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 200), st.integers(0, 2**32 - 1))
def test_sections_are_the_nodes_in_their_order(count, seed):
    random = np.random.default_rng(seed)
    edges = [tuple(sorted(random.integers(0, count, 2).tolist())) for _ in range(count)]
    runs = sections(count, edges)
    assert [node for run in runs for node in run] == list(range(count))
    assert all(len(run) <= max(WHOLE, LARGEST) for run in runs)


def test_sections_begin_where_one_tensor_crosses():
    """Of blocks of ten, each skipped by an edge, all are kept whole."""
    edges = [(n, n + 1) for n in range(199)] + [(n, n + 10) for n in range(0, 190, 10)]
    runs = sections(200, edges)
    assert len(runs) > 1
    assert all(run.start % 10 == 1 for run in runs[1:])

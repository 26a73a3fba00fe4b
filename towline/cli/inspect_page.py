"""`towline inspect FILE --html`: the figures of a network and its graph as a page."""

from __future__ import annotations

from pathlib import Path

from sdk.artifact import Artifact
from sdk.graph import Graph
from sdk.inspection import Figures, Outlook, Reason, figures
from sdk.inspection.drawing import of_file, of_graph, with_places
from sdk.inspection.figures import shape, share
from sdk.inspection.page import Table, page
from sdk.report import size
from sdk.segments import boundary
from towline.cli.inspect_model import NAMES, Inspected
from towline.cli.inspect_text import amount, counted


def of_model(path: Path, one: Inspected) -> str:
    """The page of a model, also of one that is refused: then of its file's own operators."""
    file, graph, found = one.file, one.graph, one.figures
    opsets = [f"opset {n}" if domain == "ai.onnx" else f"{domain} {n}" for domain, n in file.opsets.items()]
    by = [f"by {file.producer}"] if file.producer else []
    subtitle = ", ".join([NAMES[file.format], size(file.nbytes), *opsets, *by])
    if graph is not None and found is not None:
        drawing = of_graph(graph, one.outlooks, found.states)
        tables = [_targets(graph, one.outlooks), *_reasons(one.outlooks), _ends(graph, found), _work(found)]
        return page(path.name, subtitle, _facts(graph, found), tables, drawing)
    facts = [
        (file.precision, "precision"),
        (amount(file.parameters), f"parameters, {size(file.constant_bytes)} of constants"),
        (f"{len(file.operators):,}", "operators in the file"),
        (f"{len(one.refusals):,}" if one.by_node else "all", "refused, for every target"),
    ]
    ends = [
        (what, value.name, value.dtype, "unknown" if value.shape is None else shape(value.shape))
        for what, values in (("input", file.inputs), ("output", file.outputs))
        for value in values
    ]
    counts = sorted(file.counts.items(), key=lambda item: -item[1])
    tables = [
        Table(
            "Why it is refused",
            ("nodes", "operators", "reason", "what to do"),
            [_reason(reason, named=one.by_node) for reason in one.reasons],
        ),
        Table("Inputs and outputs", ("", "tensor", "dtype", "shape"), ends),
        Table("Operators", ("operator", "number"), counts),
    ]
    refused = {refusal.name: refusal.reason for refusal in one.refusals}
    return page(path.name, subtitle, facts, tables, of_file(file, refused))


def of_network(path: Path, network: Artifact) -> str:
    """The page of a compiled network."""
    graph = network.graph
    found = figures(graph)
    hosted = [node.name for node in graph.nodes if node.name in boundary(graph)]
    hosted = hosted if network.hosted is None else list(network.hosted)
    drawing = with_places(of_graph(graph, (), network.states), network.target, hosted)
    memory = network.programs[0].plan.get("memory", {}) if len(network.programs) == 1 else {}
    facts = _facts(graph, found)
    if "arena" in memory:
        facts = [*facts[:-1], (size(memory["arena"]), "memory of activations on the device")]
    parts = Table(
        "Parts, in order of execution",
        ("place", "nodes", "first", "last"),
        [
            (s.place, len(s.graph.nodes), s.graph.nodes[0].name, s.graph.nodes[-1].name)
            for s in network.segments
        ],
    )
    source = f" from {network.source.name}" if network.source else ""
    made = f"by Towline {network.made_by}{source}"
    subtitle = f"compiled for {network.target} ({network.arithmetic} arithmetic) {made}"
    return page(path.name, subtitle, facts, [parts, _ends(graph, found), _work(found)], drawing)


def _facts(graph: Graph, found: Figures) -> list[tuple[str, str]]:
    return [
        (found.precision.words, "precision"),
        (amount(found.parameters), f"parameters, {size(found.constant_bytes)} of constants"),
        (amount(found.macs), "multiply-accumulates"),
        (f"{len(graph.nodes):,}", "nodes"),
        (size(found.live_peak), "of activations alive at once (an estimate)"),
    ]


def _targets(graph: Graph, outlooks: tuple[Outlook, ...]) -> Table:
    rows = [
        (
            one.name,
            one.on_device,
            len(one.placements) - one.on_device,
            share(one.macs_device, graph.macs),
            one.compiles,
        )
        for one in outlooks
    ]
    headers = ("target", "on the device", "on the host", "MACs on the device %", "compiles")
    return Table("What targets would do with it", headers, rows, bar=3)


def _reasons(outlooks: tuple[Outlook, ...]) -> list[Table]:
    rows: dict[tuple[str, ...], list[str]] = {}
    for one in outlooks:
        for reason in one.reasons:
            rows.setdefault(_reason(reason), []).append(one.name)
    if not rows:
        return []
    headers = ("targets", "nodes", "operators", "reason", "what to do")
    return [
        Table("Why nodes are on the host", headers, [(", ".join(names), *row) for row, names in rows.items()])
    ]


def _reason(reason: Reason, *, named: bool = True) -> tuple[str, ...]:
    ops = counted(reason.ops) if named else ""
    return f"{len(reason.nodes):,}", ops, reason.text, reason.hint or ""


def _ends(graph: Graph, found: Figures) -> Table:
    after, before = dict(found.states), {given: output for output, given in found.states}
    rows = []
    for what, names, note in (("input", graph.inputs, before), ("output", graph.outputs, after)):
        for name in names:
            tensor = graph.tensor(name)
            state = f"state: {'from' if what == 'input' else 'becomes'} {note[name]}" if name in note else ""
            rows.append((what, name, tensor.dtype, shape(tensor.shape), state))
    return Table("Inputs and outputs", ("", "tensor", "dtype", "shape", ""), rows)


def _work(found: Figures) -> Table:
    rows = [
        (
            one.name,
            one.family,
            one.nodes,
            one.macs or None,
            share(one.macs, found.macs) if one.macs else None,
            size(one.constant_bytes) if one.constant_bytes else "",
        )
        for one in found.kinds
    ]
    headers = ("operator", "family", "nodes", "MACs", "share %", "constants")
    return Table("Operators", headers, rows, bar=4)

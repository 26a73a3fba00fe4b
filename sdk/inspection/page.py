"""The network as a page: figures on top, then its graph, drawn in sections.

All text and all drawings are written here, so that the page can be read without scripts; `graph.js` adds the
colours by target and the details of a node that is chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import sdk.page
from sdk.inspection.drawing import Box, Drawing
from sdk.inspection.figures import FAMILIES, share
from sdk.inspection.layout import Edge, Layout, layered, sections
from sdk.tables import Cell

WIDTH, HEIGHT = 190.0, 44.0
"""Of the box of a node."""
STUB = 32.0
"""Height of the box of a tensor that comes from elsewhere, or goes there."""
PITCH = 40.0
MARGIN = 10.0
BESIDE = 70.0
"""Room at the right for the shapes on edges."""
LETTERS = 26
"""Of a name that a box has room for."""


@dataclass(frozen=True)
class Table:
    """A table of the overview.

    Attributes:
        bar: the column whose numbers, in per cent, are drawn as bars as well.
        note: as text, below.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    bar: int | None = None
    note: str = ""


def page(
    name: str, subtitle: str, facts: Iterable[tuple[str, str]], tables: Iterable[Table], drawing: Drawing
) -> str:
    """The page as an HTML document.

    Args:
        name: of the file.
        subtitle: what it is, in a line.
        facts: figures, each with what it is a figure of.
        tables: of the overview.
        drawing: the network; may be of thousands of nodes.
    """
    parts = _Parts(drawing)
    body = "\n".join(
        [
            sdk.page.facts(facts),
            *map(_table, tables),
            _graph_card(parts),
            *(_section(parts, number) for number in range(len(parts.runs))),
            _all_nodes(drawing),
            '<aside id="node" class="card" aria-live="polite" hidden></aside>',
        ]
    )
    data = {
        "nodes": [
            {
                "name": box.name,
                "label": box.label,
                "family": box.family,
                "details": box.details,
                "places": {target: list(place) for target, place in box.places.items()},
            }
            for box in drawing.boxes
        ]
    }
    package = __package__ or ""
    return sdk.page.page(
        f"{name}: the network",
        name,
        subtitle,
        body,
        data=data,
        script=sdk.page.part(package, "graph.js"),
        style=sdk.page.part(package, "graph.css"),
    )


class _Parts:
    """A drawing in sections: who makes each tensor, who reads it, and in which section."""

    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        self.makers = {name: n for n, box in enumerate(drawing.boxes) for name in box.outputs}
        self.readers: dict[str, list[int]] = {}
        for number, box in enumerate(drawing.boxes):
            for name in dict.fromkeys(box.inputs):
                self.readers.setdefault(name, []).append(number)
        self.edges: list[Edge] = [
            (self.makers[name], reader)
            for name, readers in self.readers.items()
            if name in self.makers
            for reader in readers
            if self.makers[name] < reader
        ]
        self.runs = sections(len(drawing.boxes), self.edges)
        self.section_of = {node: n for n, run in enumerate(self.runs) for node in run}

    def title(self, number: int) -> str:
        """The path that the names in a section have in common, then where in it they begin and end."""
        paths = [self.drawing.boxes[node].name.strip("/").split("/") for node in self.runs[number]]
        common = 0
        while all(len(path) > common + 1 and path[common] == paths[0][common] for path in paths):
            common += 1
        begins, ends = paths[0][common], paths[-1][common]
        last = begins if begins == ends else f"{begins} ... {ends}"
        return "/".join([*paths[0][:common], last])

    def summary(self, number: int) -> str:
        """`12 nodes, 3.4 M MACs`."""
        boxes = [self.drawing.boxes[node] for node in self.runs[number]]
        work = sum(box.macs for box in boxes)
        text = f"{len(boxes)} node{'' if len(boxes) == 1 else 's'}"
        return f"{text}, {work / 1e6:,.1f} M MACs" if work else text


# -- the overview ---------------------------------------------------------------------------------------


def _table(table: Table) -> str:
    names = [
        all(not isinstance(row[n], int | float) for row in table.rows) for n in range(len(table.headers))
    ]
    head = "".join(
        f'<th scope="col"{" class=name" if text else ""}>{escape(heading)}</th>'
        for heading, text in zip(table.headers, names, strict=True)
    )
    rows = ""
    for row in table.rows:
        cells = ""
        for number, (cell, text) in enumerate(zip(row, names, strict=True)):
            style = ""
            if number == table.bar and isinstance(cell, int | float):
                style = f' class="bar" style="--share:{cell:.1f}%"'
            elif text:
                style = ' class="name wrap"' if len(str(cell)) > LETTERS else ' class="name"'
            cells += f"<td{style}>{escape(_text(cell))}</td>"
        rows += f"<tr>{cells}</tr>\n"
    note = f'<p class="soft">{escape(table.note)}</p>' if table.note else ""
    return f"""<section class="card">
<h2>{escape(table.title)}</h2>
<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>
{rows}</tbody></table></div>{note}
</section>"""


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell or ""


def _graph_card(parts: _Parts) -> str:
    drawing = parts.drawing
    choices = [("family", "family"), *((target, target) for target in drawing.targets)]
    radios = "".join(
        f'<label><input type="radio" name="colour" value="{escape(value)}"{" checked" if not n else ""}>'
        f"{escape(text)}</label>"
        for n, (value, text) in enumerate(choices)
    )
    known = {box.family for box in drawing.boxes}
    families = [name for name in (*FAMILIES, "other") if name in known]
    legend = "".join(
        f'<span><i class="box" style="--is:var(--{name})"></i>{name}</span>' for name in families
    )
    places = "".join(
        f'<span><i class="box" style="--is:var(--{name})"></i>{name}</span>'
        for name in ("device", "host", "refused")
    )
    overview = ""
    if len(parts.runs) > 1:
        overview = f"""<p class="soft">{len(parts.runs)} sections in the order of execution, cut where few
tensors cross. Choose one to see its nodes below.</p>
<div class="plot">{_overview(parts)}</div>"""
    return f"""<section class="card" id="graph">
<h2>Graph</h2>
<fieldset class="colours"><legend>colour by</legend>{radios}</fieldset>
<div class="legend" data-legend="family">{legend}</div>
<div class="legend" data-legend="place" hidden>{places}</div>
{overview}
<p class="buttons"><button type="button" id="open-all">open all sections</button>
<button type="button" id="close-all">close all</button></p>
</section>"""


def _overview(parts: _Parts) -> str:
    """The sections as boxes."""
    between: dict[Edge, list[str]] = {}
    for name, readers in parts.readers.items():
        if name in parts.makers:
            source = parts.section_of[parts.makers[name]]
            for target in sorted({parts.section_of[reader] for reader in readers}):
                if source < target:
                    between.setdefault((source, target), []).append(name)
    layout = layered([(WIDTH + 30, HEIGHT)] * len(parts.runs), between, PITCH)
    drawn = []
    forks: Counter[int] = Counter()
    for edge, names in sorted(between.items()):
        text = parts.drawing.tensors.get(names[0], "") if len(names) == 1 else f"{len(names)} tensors"
        drawn.append(_way(layout, edge) + _on_edge(layout, edge, text, forks[edge[0]]))
        forks[edge[0]] += 1
    for number, (x, y) in enumerate(layout.places):
        families = Counter(parts.drawing.boxes[node].family for node in parts.runs[number])
        family = "product" if "product" in families else families.most_common(1)[0][0]
        drawn.append(
            f'<a href="#s{number}" data-section="{number}" data-first="{parts.runs[number].start}" '
            f'data-end="{parts.runs[number].stop}">'
            + _box(x, y, WIDTH + 30, HEIGHT, f"n {family}", (parts.title(number), parts.summary(number)))
            + "</a>"
        )
    return _svg(layout, drawn, "the sections of the network")


# -- a section ------------------------------------------------------------------------------------------


def _section(parts: _Parts, number: int) -> str:
    boxes = [parts.drawing.boxes[node] for node in parts.runs[number]]
    whole = sum(box.macs for box in parts.drawing.boxes)
    kinds = Counter(box.label for box in boxes)
    made_of = ", ".join(f"{label} {count}" for label, count in kinds.most_common(6))
    percent = share(sum(box.macs for box in boxes), whole)
    opened = " open" if len(parts.runs) == 1 else ""
    what = f"{parts.summary(number)}: {made_of}"
    return f"""<details class="card section" id="s{number}"{opened}>
<summary><b>{escape(parts.title(number))}</b> <span class="soft">{escape(what)}</span>
<i class="work" style="--share:{percent:.1f}%" title="{percent:.1f} % of the MACs"></i></summary>
<div class="plot">{_nodes(parts, number)}</div>
</details>"""


def _nodes(parts: _Parts, number: int) -> str:
    """The nodes of a section, what comes in from elsewhere, and what goes out."""
    drawing, run = parts.drawing, parts.runs[number]
    sizes = [(WIDTH, HEIGHT)] * len(run)
    edges: dict[Edge, str] = {}
    stubs: list[tuple[str, str, str]] = []  # class, first line, second line
    coming: dict[str, int] = {}
    for place, node in enumerate(run):
        for name in dict.fromkeys(drawing.boxes[node].inputs):
            maker = parts.makers.get(name)
            if maker is not None and maker in run and maker < node:
                edges[maker - run.start, place] = name
                continue
            if name not in coming:
                coming[name] = len(run) + len(stubs)
                stubs.append(_incoming(parts, name, maker))
                sizes.append((WIDTH, STUB))
            edges[coming[name], place] = ""
    for place, node in enumerate(run):
        for name in drawing.boxes[node].outputs:
            for stub in _outgoing(parts, name, number):
                edges[place, len(run) + len(stubs)] = name
                stubs.append(stub)
                sizes.append((WIDTH, STUB))
    layout = layered(sizes, edges, PITCH)
    drawn, labelled = [], set()
    for edge, name in edges.items():
        text = "" if name in labelled else drawing.tensors.get(name, "")
        labelled.add(name)
        drawn.append(_way(layout, edge) + _on_edge(layout, edge, text))
    for place, node in enumerate(run):
        drawn.append(_node(drawing.boxes[node], node, *layout.places[place]))
    for (kind, first, second), (x, y) in zip(stubs, layout.places[len(run) :], strict=True):
        drawn.append(_box(x, y, WIDTH, STUB, f"stub {kind}", (first, second)))
    return _svg(layout, drawn, f"section {number}")


def _incoming(parts: _Parts, name: str, maker: int | None) -> tuple[str, str, str]:
    known = parts.drawing.tensors.get(name, "")
    if maker is None:
        state = "state " if name in {given for _, given in parts.drawing.states} else ""
        what = f"{state or 'input '}{name}" if name in parts.drawing.inputs else name
        return "input", what, known
    source = parts.section_of[maker]
    return "from", f"from {parts.title(source)}", f"{name} {known}".strip()


def _outgoing(parts: _Parts, name: str, number: int) -> list[tuple[str, str, str]]:
    found = []
    if name in parts.drawing.outputs:
        state = dict(parts.drawing.states).get(name)
        found.append(("output", f"output {name}", f"state: becomes {state}" if state else ""))
    later = sorted({parts.section_of[reader] for reader in parts.readers.get(name, ())} - {number})
    if later:
        others = f" and {len(later) - 1} more" if len(later) > 1 else ""
        found.append(("to", f"to {parts.title(later[0])}{others}", name))
    return found


def _node(box: Box, number: int, x: float, y: float) -> str:
    title = f"{box.label}: {box.name}" + (f", {box.macs:,} MACs" if box.macs else "")
    return (
        f'<g class="n {box.family}" id="n{number}" data-node="{number}" tabindex="0" role="button" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>'
        f"{_shape(x, y, WIDTH, HEIGHT, (box.label, box.name))}</g>"
    )


# -- shapes ---------------------------------------------------------------------------------------------


def _box(x: float, y: float, width: float, height: float, kind: str, lines: tuple[str, str]) -> str:
    title = escape(" ".join(filter(None, lines)))
    return f'<g class="{kind}"><title>{title}</title>{_shape(x, y, width, height, lines)}</g>'


def _shape(x: float, y: float, width: float, height: float, lines: tuple[str, str]) -> str:
    left, first = x - width / 2, y + height / 2 - (4 if lines[1] else -4)
    letters = int(width / WIDTH * LETTERS)
    text = f'<text class="t" x="{left + 9:.1f}" y="{first:.1f}">{escape(_cut(lines[0], letters - 2))}</text>'
    if lines[1]:
        text += f'<text x="{left + 9:.1f}" y="{first + 15:.1f}">{escape(_tail(lines[1], letters))}</text>'
    return f'<rect x="{left:.1f}" y="{y:.1f}" width="{width:.0f}" height="{height:.0f}" rx="6"/>{text}'


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _tail(text: str, letters: int) -> str:
    """The end of a name, which says more than its beginning."""
    return text if len(text) <= letters else f"…{text[1 - letters :]}"


def _way(layout: Layout, edge: Edge) -> str:
    points = layout.ways[edge]
    (x, y), path = points[0], f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for to_x, to_y in points[1:]:
        middle = (y + to_y) / 2
        path += f"C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}"
        x, y = to_x, to_y
    return f'<path class="edge" d="{path}" marker-end="url(#arrow)"/>'


def _on_edge(layout: Layout, edge: Edge, text: str, before: int = 0) -> str:
    """A tensor's dtype and shape where its edge begins, below those of edges from there before it."""
    if not text:
        return ""
    x, y = layout.ways[edge][0]
    return f'<text class="shape" x="{x + 6:.1f}" y="{y + 13 + 11 * min(before, 2):.1f}">{escape(text)}</text>'


def _svg(layout: Layout, drawn: Iterable[str], label: str) -> str:
    width, height = layout.width + BESIDE + 2 * MARGIN, layout.height + 2 * MARGIN
    lines = "\n".join(drawn)
    extent = f'width="{width:.0f}" height="{height:.0f}"'
    seen = f"{-MARGIN:.0f} {-MARGIN:.0f} {width:.0f} {height:.0f}"
    return f"""<svg class="graph" {extent} viewBox="{seen}" aria-label="{escape(label)}">
{lines}
</svg>"""


ARROW = """<svg width="0" height="0" aria-hidden="true"><defs>
<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" orient="auto">
<path d="M0,0L8,4L0,8z" class="tip"/></marker></defs></svg>"""
"""Once a page: all edges end in it."""


# -- all nodes ------------------------------------------------------------------------------------------


def _all_nodes(drawing: Drawing) -> str:
    targets = drawing.targets
    headers: Mapping[str, str] = {
        "node": "name",
        "operator": "name",
        "output": "name",
        "MACs": "",
    } | dict.fromkeys(targets, "name")
    head = "".join(
        f'<th scope="col"{f" class={kind}" if kind else ""}>{escape(heading)}</th>'
        for heading, kind in headers.items()
    )
    rows = []
    for number, box in enumerate(drawing.boxes):
        output = drawing.tensors.get(box.outputs[0], "") if box.outputs else ""
        places = "".join(_place(*box.places.get(target, ("", ""))) for target in targets)
        rows.append(
            f'<tr data-row="{number}"><td class="name"><button type="button" class="layer">{escape(box.name)}'
            f'</button></td><td class="name">{escape(box.label)}</td><td class="name">{escape(output)}</td>'
            f"<td>{f'{box.macs:,}' if box.macs else ''}</td>{places}</tr>"
        )
    lines = "\n".join(rows)
    return f"""<details class="card" id="all">
<summary><b>All {len(drawing.boxes):,} nodes</b></summary>
<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>
{lines}
</tbody></table></div>
</details>{ARROW}"""


def _place(place: str, why: str) -> str:
    title = f' title="{escape(why)}"' if why else ""
    return f'<td class="name {place}"{title}>{place}</td>'

"""The report to look at: one HTML file, its styles, script and data inside; it fetches nothing.

Everything that is text, the table of layers included, is written here; `report.js` adds the plots.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.debugging.document import columns, document
from sdk.debugging.figures import Divergence, Layer, Report
from sdk.fidelity import EXACT_DB
from sdk.graph import Array
from sdk.report import Cell, dumps
from sdk.verification import INTEGER_RANGE

BINS = 64
"""Of the histograms: four levels each."""

WIDEST = 160
"""Rows and columns of the map of differences, beyond which neighbours are drawn as one."""

SHORT = ("onnxruntime differs", "target differs")
"""Columns of text that mostly hold numbers."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(report: Report, name: str, *, labels: Sequence[str] | None = None, notes: Sequence[str] = ()) -> str:
    """The report as an HTML document.

    Args:
        report: what `debug` found.
        name: of the network.
        labels: names of its classes.
        notes: what else the reader should know, such as what could not be compared.
    """
    found = document(report)
    bad = report.divergence is not None
    marks = ("bad", "✕", "diverges") if bad else ("", "✓", "bit-identical")
    advice = "".join(f"<li>{escape(line)}</li>" for line in [*found["advice"], *notes])
    title = f"{name}: {marks[2]}"
    subtitle = (
        f"{report.target}, {report.arithmetic} arithmetic, on {report.device}; {_inputs(report.samples)}"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{_part("report.css")}</style>
</head>
<body>
<main>
<header>
<h1>{escape(name)}</h1>
<p class="soft">{escape(subtitle)}</p>
</header>
<section class="card verdict {marks[0]}" aria-label="verdict">
<span class="mark" aria-hidden="true">{marks[1]}</span>
<div><strong>{escape(found["verdict"])}</strong><ul>{advice}</ul></div>
</section>
<section class="facts" aria-label="figures">{_facts(report, labels)}</section>
<section class="card">
<h2>Along the depth of the network</h2>
<p class="soft">Point at a layer for its figures; click, or use the arrow keys, to choose it.</p>
<div class="plot" id="depth" tabindex="0" aria-describedby="legend"><noscript>The plots need scripts; the
table below has their figures.</noscript></div>
<div class="legend" id="legend">{_legend(report)}</div>
</section>
<section class="card" id="layer" aria-live="polite">
<h2 id="layer-name">Layer</h2>
<div class="pair">
<div>
<div class="plot" id="histogram"></div>
<div class="legend"><span><i class="box" style="--is:var(--signal)"></i>reference, by quantised
level (square roots of shares)</span>{_float_legend(report)}</div>
</div>
<dl id="layer-facts"></dl>
</div>
</section>
{_divergence_section(report)}
<section class="card">
<h2>All layers</h2>
<div class="scroll">{_table(report.layers)}</div>
</section>
<footer class="soft">
<p>A layer's <em>float dB</em> is its signal to quantisation noise against the float model, all layers before
it included; <em>alone</em> is the layer's own share, from the float model's inputs quantised. <em>Own</em>
are elements that the target computes wrongly from its own inputs: the others only follow. <em>Saturated</em>
are elements at a bound of the clamp, except a rectifier's zeros.</p>
</footer>
</main>
<div id="tip" hidden></div>
<script type="application/json" id="data">{_data(report, found)}</script>
<script>
{_part("report.js")}</script>
</body>
</html>
"""


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _inputs(samples: Sequence[str]) -> str:
    return samples[0] if len(samples) == 1 else f"{len(samples)} inputs"


def _facts(report: Report, labels: Sequence[str] | None) -> str:
    compared = [layer for layer in report.layers if layer.target is not None]
    equal = sum(not layer.target.mismatches for layer in compared if layer.target)
    facts = [
        (f"{equal} of {len(compared)}", "layers equal on the target"),
        (f"{report.mismatches:,}", f"mismatches in {report.elements:,} elements"),
    ]
    errors = [layer.real.sqnr_db for layer in report.layers if layer.real]
    if errors:
        facts.append((f"{errors[-1]:.1f} dB", "of the last layer against float"))
    facts += _answers(report.answers, labels)
    return "".join(f'<div class="fact"><b>{escape(b)}</b><span>{escape(s)}</span></div>' for b, s in facts)


def _answers(answers: Sequence[dict[str, int]], labels: Sequence[str] | None) -> list[tuple[str, str]]:
    """Which evaluation gives which class; over several inputs, how often each agrees with the target."""
    if len(answers) == 1:
        by_class: dict[int, list[str]] = {}
        for who, index in answers[0].items():
            by_class.setdefault(index, []).append(who)
        names = labels or ()
        return [
            (names[index] if index < len(names) else str(index), f"best class: {', '.join(who)}")
            for index, who in by_class.items()
        ]
    others = [who for who in (answers[0] if answers else ()) if who != "target"]
    same = {who: sum(answer[who] == answer["target"] for answer in answers) for who in others}
    return [
        (f"{n} of {len(answers)}", f"best classes: {who} agrees with the target") for who, n in same.items()
    ]


def _legend(report: Report) -> str:
    entries = []
    if any(layer.real for layer in report.layers):
        entries += [("stroke", "signal", "quantised against float"), ("dot", "alone", "this layer alone")]
    if report.divergence is not None:
        entries += [
            ("stroke", "bad", "target against reference"),
            ("cross", "bad", "wrong by itself"),
            ("frame", "follow", "wrong because of its inputs"),
        ]
    entries += [
        ("box", "good", "equal"),
        ("dot", "none", "not kept separately"),
        ("stroke", "alone", "zero-point"),
    ]
    return "".join(
        f'<span><i class="{shape}" style="--is:var(--{colour})"></i>{escape(text)}</span>'
        for shape, colour, text in entries
    )


def _float_legend(report: Report) -> str:
    if not any(layer.real for layer in report.layers):
        return ""
    return '<span><i class="stroke" style="--is:var(--alone)"></i>float model</span>'


def _divergence_section(report: Report) -> str:
    layer, found = report.diverging, report.divergence
    if layer is None or found is None or layer.target is None:
        return ""
    return f"""<section class="card">
<h2>Where {escape(layer.node)} differs</h2>
<p class="soft">{layer.target.mismatches:,} of {layer.target.elements:,} elements; drawn for
{escape(found.sample)}.</p>
<div class="maps" id="maps"></div>
</section>"""


def _table(layers: Sequence[Layer]) -> str:
    table = columns(layers)
    names = {
        heading for heading, cells in table.items() if isinstance(cells[0], str) and heading not in SHORT
    }
    head = "".join(
        f'<th scope="col"{" class=name" if heading in names else ""}>{escape(heading)}</th>'
        for heading in table
    )
    rows = ""
    for index, layer in enumerate(layers):
        rows += f'<tr data-layer="{index}">'
        for heading, cells in table.items():
            text = escape(_text(cells[index]))
            if heading == "layer":
                text = f'<button type="button" class="layer">{text}</button>'
            kind = "name" if heading in names else "soft" if heading == "#" else ""
            if heading == "target differs" and layer.differs:
                kind = "bad" if layer.own_mismatches else "follow"
            rows += f'<td class="{kind}">{text}</td>' if kind else f"<td>{text}</td>"
        rows += "</tr>\n"
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>"


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        return "exact" if cell >= EXACT_DB else f"{cell:.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell or ""


def _data(report: Report, found: dict[str, Any]) -> str:
    """What the script draws, as JSON that cannot end its element."""
    layers = []
    for layer, figures in zip(report.layers, found["layers"], strict=True):
        counts = {
            "counts": _binned(layer.counts),
            "float_counts": None if layer.real is None else _binned(layer.real.counts),
            "zero_level": layer.tensor.zero_point - INTEGER_RANGE[layer.tensor.dtype][0],
        }
        layers.append(figures | counts)
    drawn = {
        "layers": layers,
        "first_diverging": found["first_diverging"],
        "divergence": None if report.divergence is None else _divergence(report.divergence),
        "plot_label": f"{len(layers)} layers from first to last. {found['verdict']}",
    }
    compact = json.dumps(json.loads(dumps(drawn)), separators=(",", ":"))
    return compact.replace("<", "\\u003c")


def _divergence(found: Divergence) -> dict[str, Any]:
    return {"shape": found.peak.shape, "channels": found.channels, "peak": _shrunk(found.peak)}


def _binned(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(counts.reshape(BINS, -1).sum(axis=1))


def _shrunk(peak: Array) -> Array:
    """The map at no more than WIDEST by WIDEST, each cell the greatest of those it covers."""
    for axis in (0, 1):
        block = -(-peak.shape[axis] // WIDEST)
        starts = np.arange(0, peak.shape[axis], block)
        peak = np.maximum.reduceat(peak, starts, axis=axis)
    return peak

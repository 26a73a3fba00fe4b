"""The report to look at, as one HTML file (`sdk.page`).

Everything that is text, the table of layers included, is written here; `report.js` adds the plots.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sdk.page
from sdk.debugging.document import columns, document
from sdk.debugging.figures import Divergence, Layer, Report
from sdk.graph import Array
from sdk.report import Cell
from sdk.verification import INTEGER_RANGE

BINS = 64
"""Of the histograms: four levels each."""

WIDEST = 160
"""Rows and columns of the map of differences, beyond which neighbours are drawn as one."""

MOST_SENSITIVE = 8
"""Layers in the table of those to keep in floats."""

SHORT = ("onnxruntime differs", "target differs")
"""Columns of text that mostly hold numbers."""


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
    title = f"{name}: {'diverges' if bad else 'bit-identical'}"
    subtitle = (
        f"{report.target}, {report.arithmetic} arithmetic, on {report.device}; {_inputs(report.samples)}"
    )
    body = f"""{sdk.page.verdict(found["verdict"], [*found["advice"], *notes], bad=bad)}
{sdk.page.facts(_facts(report, labels))}
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
{_sensitivity(report)}
<section class="card">
<h2>All layers</h2>
<div class="scroll">{_table(report.layers)}</div>
</section>
<footer class="soft">
<p>A layer's <em>float dB</em> is its signal to quantisation noise against the float model, all layers before
it included; <em>alone</em> is the layer's own share, from the float model's inputs quantised. <em>Own</em>
are elements that the target computes wrongly from its own inputs: the others only follow. <em>Saturated</em>
are elements at a bound of the clamp, except a rectifier's zeros. <em>Gain dB</em> is what the network's
outputs gain when the layer's result stays float.</p>
</footer>"""
    return sdk.page.page(
        title, name, subtitle, body, data=_data(report, found), script=sdk.page.part(__package__, "report.js")
    )


def _inputs(samples: Sequence[str]) -> str:
    return samples[0] if len(samples) == 1 else f"{len(samples)} inputs"


def _facts(report: Report, labels: Sequence[str] | None) -> list[tuple[str, str]]:
    compared = [layer for layer in report.layers if layer.target is not None]
    equal = sum(not layer.target.mismatches for layer in compared if layer.target)
    facts = [
        (f"{equal} of {len(compared)}", "layers equal on the target"),
        (f"{report.mismatches:,}", f"mismatches in {report.elements:,} elements"),
    ]
    errors = [layer.real.sqnr_db for layer in report.layers if layer.real]
    if errors:
        facts.append((f"{errors[-1]:.1f} dB", "of the last layer against float"))
    return facts + _answers(report.answers, labels)


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


def _sensitivity(report: Report) -> str:
    """The layers by which the outputs gain most in floats."""
    found = report.sensitivity
    if found is None:
        return ""
    first = found.gains[:MOST_SENSITIVE]
    columns: dict[str, list[Cell]] = {
        "layer": [gain.node for gain in first],
        "the outputs gain, dB": [gain.gain_db for gain in first],
        "MACs in floats": [gain.macs for gain in first],
        "nodes in floats": [", ".join(gain.unit) for gain in first],
    }
    tried = f"{len(found.gains)} of {found.units} layers were tried, each by itself"
    return f"""<section class="card">
<h2>In floats</h2>
<p class="soft">What the outputs gain when a layer's result stays float, with what computes and reads it:
{escape(tried)}, on {found.samples} input{"s" if found.samples > 1 else ""}. All quantised, the outputs have
{found.sqnr_db:.1f} dB.</p>
{sdk.page.table(columns)}
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
            text = escape(sdk.page.text(cells[index]))
            if heading == "layer":
                text = f'<button type="button" class="layer">{text}</button>'
            kind = "name" if heading in names else "soft" if heading == "#" else ""
            if heading == "target differs" and layer.differs:
                kind = "bad" if layer.own_mismatches else "follow"
            rows += f'<td class="{kind}">{text}</td>' if kind else f"<td>{text}</td>"
        rows += "</tr>\n"
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>"


def _data(report: Report, found: dict[str, Any]) -> dict[str, Any]:
    """What the script draws."""
    layers = []
    for layer, figures in zip(report.layers, found["layers"], strict=True):
        counts = {
            "counts": _binned(layer.counts),
            "float_counts": None if layer.real is None else _binned(layer.real.counts),
            "zero_level": layer.tensor.zero_point - INTEGER_RANGE[layer.tensor.dtype][0],
        }
        layers.append(figures | counts)
    return {
        "layers": layers,
        "first_diverging": found["first_diverging"],
        "divergence": None if report.divergence is None else _divergence(report.divergence),
        "plot_label": f"{len(layers)} layers from first to last. {found['verdict']}",
    }


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

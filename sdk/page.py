"""A page to look at: one HTML file with its styles, script and data inside; it fetches nothing.

`page.css` has what these pages share: colours of a light page and a dark one, cards, facts, tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from sdk.quantizer.fidelity import EXACT_DB
from sdk.report import Cell, dumps

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(
    title: str,
    name: str,
    subtitle: str,
    body: str,
    *,
    data: Mapping[str, Any] | None = None,
    script: str = "",
    style: str = "",
) -> str:
    """A whole document.

    Args:
        title: of the window.
        name: the heading.
        subtitle: the line below it.
        body: HTML below.
        data: what the script draws; it reads the JSON of the element `data`.
        script: of this kind of page.
        style: of this kind of page, beside `page.css`.
    """
    behind = (
        f"""<div id="tip" hidden></div>
<script type="application/json" id="data">{_json(data)}</script>
<script>
{script}</script>
"""
        if data is not None
        else ""
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>
{part("sdk", "page.css")}{style}</style>
</head>
<body>
<main>
<header>
<h1>{escape(name)}</h1>
<p class="soft">{escape(subtitle)}</p>
</header>
{body}
</main>
{behind}</body>
</html>
"""


def part(package: str, name: str) -> str:
    """A file that comes with a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _json(data: Mapping[str, Any]) -> str:
    """JSON that cannot end its element."""
    return json.dumps(json.loads(dumps(data)), separators=(",", ":")).replace("<", "\\u003c")


def verdict(sentence: str, lines: Sequence[str], *, bad: bool) -> str:
    """The outcome, and what to know or do about it."""
    kind, mark = ("bad", "✕") if bad else ("", "✓")
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"""<section class="card verdict {kind}" aria-label="verdict">
<span class="mark" aria-hidden="true">{mark}</span>
<div><strong>{escape(sentence)}</strong><ul>{items}</ul></div>
</section>"""


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Figures, each with what it is."""
    cells = "".join(f'<div class="fact"><b>{escape(b)}</b><span>{escape(s)}</span></div>' for b, s in pairs)
    return f'<section class="facts" aria-label="figures">{cells}</section>'


def table(columns: Mapping[str, Sequence[Cell]], pictures: Sequence[str] = ()) -> str:
    """Columns by their headings; texts to the left. `pictures`, one a row, are data URIs or ""."""
    names = {heading for heading, cells in columns.items() if any(isinstance(cell, str) for cell in cells)}

    def kind(heading: str) -> str:
        return " class=name" if heading in names else ""

    head = "".join(f'<th scope="col"{kind(heading)}>{escape(heading)}</th>' for heading in columns)
    head = ('<th scope="col" class=name></th>' if pictures else "") + head
    rows = ""
    for index, cells in enumerate(zip(*columns.values(), strict=True)):
        row = "".join(
            f"<td{kind(heading)}>{escape(text(cell))}</td>"
            for heading, cell in zip(columns, cells, strict=True)
        )
        if pictures:
            row = f"<td class=name>{_image(pictures[index])}</td>{row}"
        rows += f"<tr>{row}</tr>\n"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>'


def _image(source: str) -> str:
    return f'<img src="{escape(source)}" alt="">' if source else ""


def text(cell: Cell) -> str:
    """A cell: numbers with one decimal, or with thousands separators; decibels without a difference."""
    if isinstance(cell, float):
        return "exact" if cell >= EXACT_DB else f"{cell:.1f}"
    return f"{cell:,}" if isinstance(cell, int) else cell or ""

"""A report as one HTML page: what was not reached, function by function, and the sources with counts.

Its styles are inside; it has no script, and fetches nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html import escape
from importlib import resources

from emulator.coverage.report import (
    REST,
    FileCoverage,
    LineCoverage,
    Report,
    Unreached,
    never,
    percent,
    stretches,
)

POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_MARKS = {
    "miss": ("✕", "never executed"),
    "half": ("◐", "a branch went one way only"),
    "hit": ("", ""),
    "none": ("", ""),
}
"""Mark and meaning of each kind of line."""
_SIDES = {"taken": "never jumps", "not taken": "always jumps", "executed": "is not reached"}
"""What a branch does, by what it never did."""
_NEWLINE = "\n"
_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def page(report: Report) -> str:
    """The report as an HTML document."""
    program, coverage = report.program, report.coverage
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>Coverage of {escape(program.name)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>Coverage of {escape(program.name)}</h1>
<p class="soft">build {program.build[:12]}, {_count(coverage.runs, "run")}</p>
<section class="facts">{_facts(report)}</section>
{_unreached(report)}
<h2>Files</h2>
{_files(report)}
<section class="controls">
<label><input type="checkbox" id="only"> only what was not reached</label>
<span class="legend"><i class="miss">✕</i> never executed <i class="half">◐</i> a branch went one way
only; the first number is the line's, the second how often its busiest instruction ran</span>
</section>
{"".join(_source(file) for file in report.files)}
</main>
</body>
</html>
"""


def _facts(report: Report) -> str:
    entered = sum(function.times > 0 for function in report.functions)
    facts = (
        ("lines", *report.lines),
        ("sides of branches", *report.sides),
        ("functions", entered, len(report.functions)),
    )
    return "".join(
        f'<div class="fact"><b>{percent(reached, every):.1f} %</b>'
        f"<span>{reached:,} of {every:,} {what}</span></div>"
        for what, reached, every in facts
    )


def _files(report: Report) -> str:
    rows = "".join(
        f'<tr><th scope="row"><a href="#{escape(file.name)}">{escape(file.name)}</a></th>'
        f"{_share(file.reached, len(file.lines))}{_share(file.reached_sides, file.sides)}</tr>\n"
        for file in report.files
    )
    rest = report.rest
    if rest.sides:
        rows += (
            f'<tr class="soft"><th scope="row">{REST}</th><td></td>'
            f"{_share(rest.sides - len(rest.missed), rest.sides)}</tr>\n"
        )
    return f"""<section class="scroll"><table class="files">
<thead><tr><th scope="col">file</th><th scope="col">lines</th>
<th scope="col">sides of branches</th></tr></thead>
<tbody>
{rows}</tbody></table></section>"""


def _share(reached: int, every: int) -> str:
    part = percent(reached, every)
    bar = f'<meter min="0" max="100" value="{part:.1f}">{part:.0f} %</meter>'
    return f'<td><span class="of">{reached:,} of {every:,}</span>{bar}<span>{part:.1f} %</span></td>'


def _unreached(report: Report) -> str:
    """What was not reached: lines and sides of branches by function, each a link to its line."""
    files = {file.name: file for file in report.files}
    rows: list[str] = []
    for entry in report.unreached:
        file = files[entry.where[0]]
        lines = ", ".join(
            _link(file.name, first, str(first) if first == last else f"{first}\u2013{last}")
            for first, last in stretches(entry.lines, file.lines)
        )
        sides = ", ".join(_sides(file, number) for number in entry.half)
        rows.append(f"{_function(entry)}<td>{lines}</td><td>{sides}</td></tr>")
    if rest := report.rest.missed:
        sides = ", ".join(
            f'<span title="{escape(side.instruction)}">{side.address:#06x} {_SIDES[what]}</span>'
            for side, what in never(rest)
        )
        rows.append(f'<tr><th scope="row">{REST}</th><td></td><td>{sides}</td></tr>')
    if not rows:
        return "<p>Every line and every side of a branch was reached.</p>"
    return f"""<h2>Not reached</h2>
<table class="unreached">
<thead><tr><th scope="col">function</th><th scope="col">lines never executed</th>
<th scope="col">branches that went one way only</th></tr></thead>
<tbody>
{_NEWLINE.join(rows)}
</tbody></table>"""


def _function(entry: Unreached) -> str:
    """The head of a function's row."""
    file, number = entry.where
    name = _link(file, number, escape(entry.name) or "(no function)")
    state = "" if entry.entered else ' <i class="miss">never entered</i>'
    return f'<tr><th scope="row">{name}{state}<span class="soft">{escape(file)}:{number}</span></th>'


def _sides(file: FileCoverage, number: int) -> str:
    """The sides that the branches of a line never took."""
    missed = list(never(file.lines[number].missed))
    counts = Counter(_SIDES[what] for _, what in missed)
    says = ", ".join(f"{what} \u00d7 {count}" if count > 1 else what for what, count in counts.items())
    title = "; ".join(f"{side.address:#06x} {side.instruction}" for side, _ in missed)
    return _link(file.name, number, f"{number} {says}", title)


def _link(file: str, number: int, text: str, title: str = "") -> str:
    """A link to a line; the text is HTML."""
    says = f' title="{escape(title)}"' if title else ""
    return f'<a href="#{escape(file)}-{number}"{says}>{text}</a>'


def _source(file: FileCoverage) -> str:
    lines, sides = len(file.missed_lines), file.sides - file.reached_sides
    counts = f"{_count(lines, 'line')}, {_count(sides, 'side')} not reached"
    body = "".join(_rows(file))
    if file.source is None:
        body = f'<tr><td colspan="4" class="soft">its source was not found</td></tr>\n{body}'
    return f"""<details open id="{escape(file.name)}">
<summary><b>{escape(file.name)}</b> <span class="soft">{counts}</span></summary>
<div class="scroll"><table class="source"><tbody>
{body}</tbody></table></div>
</details>
"""


def _rows(file: FileCoverage) -> Iterator[str]:
    """The lines of the source; without it, those that have code."""
    numbers = file.lines if file.source is None else range(1, len(file.source) + 1)
    for number in numbers:
        line = file.lines.get(number)
        kind = _kind(line)
        mark, meaning = _MARKS[kind]
        shown = f'<i title="{meaning}">{mark}</i>' if mark else ""
        times = "" if line is None else f'<span title="{line.times:,} times">{_short(line.times)}</span>'
        text = "" if file.source is None else escape(file.source[number - 1])
        missed = _missed(line) if line is not None and line.times else ""
        yield (
            f'<tr class="{kind}" id="{escape(file.name)}-{number}"><td>{number}</td><td>{times}</td>'
            f"<td>{shown}</td><td><code>{text}</code>{missed}</td></tr>\n"
        )


def _kind(line: LineCoverage | None) -> str:
    if line is None:
        return "none"
    return "miss" if not line.times else "half" if line.missed else "hit"


def _missed(line: LineCoverage) -> str:
    """The sides of its branches that were never taken."""
    return "".join(
        f"<small>{side.address:#06x} <code>{escape(side.instruction)}</code> never {what}</small>"
        for side, what in never(line.missed)
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _short(count: int) -> str:
    """A count in at most four characters or so."""
    for unit, letter in _UNITS:
        if count >= unit:
            return f"{count // unit}{letter}"
    return str(count)

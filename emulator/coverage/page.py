"""A report as one HTML page: the sources with counts, what did not run, and branches that went one way only.

It has its styles inside, no script, and fetches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib import resources

from emulator.coverage.report import REST, FileCoverage, LineCoverage, Report, never, percent

POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_MARKS = {
    "miss": ("✕", "never executed"),
    "half": ("◐", "a branch went one way only"),
    "hit": ("", ""),
    "none": ("", ""),
}
"""Mark and meaning of each kind of line."""
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
{_files(report)}
{_never(report)}
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


def _never(report: Report) -> str:
    missed = [entry for entry in report.functions if not entry.times]
    links = ", ".join(
        f'<a href="#{escape(entry.where[0])}-{entry.where[1]}">{escape(entry.name)}</a>' for entry in missed
    )
    return f"<p>Functions never entered: {links}.</p>" if missed else ""


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
    """What of its branches did not happen."""
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

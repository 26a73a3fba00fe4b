"""Control flow as a picture: blocks of code and arrows between them, drawn as SVG by Graphviz's dot.

One drawing for all processors. dot was chosen for its layered layout, which routes arrows around blocks.
Without dot, the picture is available as text (`as_dot`).

A legend under the title says what the arrows of the picture mean. An SVG is light, and dark where its reader
prefers that: dot writes the light colours, and a style sheet in the file replaces each one.
"""

from __future__ import annotations

import html
import os
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from sdk import files, toolchain
from sdk.errors import BuildFailed, UsageError

FIRST, LAST = 36, 8
"""Lines that are shown of a block that has more, at its start and its end."""
WIDEST = 76
"""Characters of a line; what is longer is cut."""
TIMEOUT = 120.0
"""Seconds that dot may take."""
SUFFIXES = (".svg", ".dot")

_DARK = {
    "#ffffff": "#0d1117",  # the page
    "#1f2328": "#e6edf3",  # text
    "#f6f8fa": "#1c2128",  # a box
    "#ddf4ff": "#0c3a6b",  # a shaded one
    "#57606a": "#a3adb8",  # borders, calls
    "#8c959f": "#7d8793",  # arrows, as below
    "#1a7f37": "#4cbf66",
    "#0969da": "#6cb0ff",
}
"""Each colour of a picture, and its replacement on a dark page."""
_LOOK = """  graph [fontname="Helvetica,sans-serif", fontsize=13, fontcolor="#1f2328", bgcolor="#ffffff", \
labelloc=t, labeljust=l, ranksep=0.35, nodesep=0.3]
  node [shape=box, fontname="Courier,monospace", fontsize=10, fontcolor="#1f2328", color="#57606a", \
style=filled, fillcolor="#f6f8fa", margin="0.08,0.05"]
  edge [arrowsize=0.7]
"""
_SHADED = "#ddf4ff"


class Kind(Enum):
    """How execution gets from one block to another: the arrow's colour, its look, and the legend's words."""

    NEXT = "#8c959f", "", "runs on"
    JUMP = "#1a7f37", "", "jumps ahead"
    BACK = "#0969da", "penwidth=1.6", "jumps back: a loop"
    CALL = "#57606a", "style=dashed", "calls"

    @property
    def color(self) -> str:
        return self.value[0]

    @property
    def meaning(self) -> str:
        """In the legend."""
        return self.value[2]

    @property
    def sign(self) -> str:
        """The arrow in the legend, in HTML."""
        return "- - &#8594;" if self is Kind.CALL else "&#8212;&#8594;"

    @property
    def attributes(self) -> str:
        """In the language of dot."""
        color, look, _ = self.value
        return f'color="{color}"' + (f", {look}" if look else "")


@dataclass(frozen=True, slots=True)
class Box:
    """A block of code, or a function.

    Attributes:
        name: by which arrows refer to it; shown as its first line.
        lines: the code.
        entry: whether execution comes in here from outside.
    """

    name: str
    lines: Sequence[str] = ()
    entry: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """From the end of one box to the beginning of another."""

    source: str
    target: str
    kind: Kind = Kind.NEXT


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture.

    Attributes:
        title: shown at its top.
        boxes: names are unique.
        arrows: those to an unknown box are left out.
        sideways: left to right: for a graph of calls, which is wide.
        shaded: the legend's words for boxes that are entries.
    """

    title: str
    boxes: Sequence[Box]
    arrows: Sequence[Arrow] = field(default_factory=tuple)
    sideways: bool = False
    shaded: str = "the entry"


def arrows(source: str, place: int, ways: Sequence[tuple[str, int]], following: int | None) -> list[Arrow]:
    """The arrows out of a block of code.

    Args:
        source: the block.
        place: its address.
        ways: name and address of each block that may come after it.
        following: the address behind the block, if execution continues there.
    """
    found = []
    for name, address in ways:
        kind = Kind.NEXT if address == following else Kind.BACK if address <= place else Kind.JUMP
        found.append(Arrow(source, name, kind))
    return found


def as_dot(chart: Chart) -> str:
    """In the language of dot."""
    numbers = {box.name: number for number, box in enumerate(chart.boxes)}
    drawn = [
        arrow for arrow in dict.fromkeys(chart.arrows) if arrow.source in numbers and arrow.target in numbers
    ]
    name = chart.title.replace("\\", "\\\\").replace('"', '\\"')
    lines = [f'digraph "{name}" {{', _LOOK + f"  label={_heading(chart, {arrow.kind for arrow in drawn})}"]
    if chart.sideways:
        lines.append("  rankdir=LR")
    for box in chart.boxes:
        look = f', penwidth=2, fillcolor="{_SHADED}"' if box.entry else ""
        lines.append(f"  b{numbers[box.name]} [label={_quoted(_shown(box))}{look}]")
    for arrow in drawn:
        lines.append(f"  b{numbers[arrow.source]} -> b{numbers[arrow.target]} [{arrow.kind.attributes}]")
    return "\n".join([*lines, "}", ""])


def as_svg(chart: Chart) -> bytes:
    """As a picture that browsers show, on a light page or a dark one.

    Raises:
        ToolMissing: Graphviz is not installed.
        BuildFailed: dot failed, or exceeded its time limit.
    """
    try:
        drawn = toolchain.run("dot", ["-Tsvg"], input=as_dot(chart).encode(), timeout=TIMEOUT).stdout
    except BuildFailed as problem:
        raise BuildFailed(
            f"{problem.message} ({len(chart.boxes):,} boxes, {len(chart.arrows):,} arrows)",
            where=problem.where,
            hint="draw less at a time, or write a .dot and lay it out by other means (dot -Gnslimit=1, sfdp)",
        ) from None
    head, group, rest = drawn.partition(b"<g ")
    return head + _style().encode() + group + rest


def check(path: str) -> None:
    """Refuse a name that `write` cannot write to. Raises UsageError."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UsageError("the name of a graph file must end in .svg or .dot", where=path)


def write(path: str | os.PathLike[str], chart: Chart) -> None:
    """Write it to a file, by its suffix.

    Raises:
        UsageError: another suffix.
        ToolMissing, BuildFailed: as `as_svg`.
        OutputFailed: it cannot be written.
    """
    check(os.fspath(path))
    files.write(path, as_dot(chart).encode() if Path(path).suffix.lower() == ".dot" else as_svg(chart))


def _style() -> str:
    rules = "".join(
        f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}\n'
        for light, dark in _DARK.items()
    )
    return (
        "<style>:root{color-scheme:light dark}\n@media (prefers-color-scheme:dark){\n" + rules + "}</style>\n"
    )


def _heading(chart: Chart, kinds: Set[Kind]) -> str:
    """Title and legend, in dot's HTML."""
    legend = [
        f'<font color="{kind.color}"><b>{kind.sign}</b></font> {kind.meaning}'
        for kind in Kind
        if kind in kinds
    ]
    if any(box.entry for box in chart.boxes):
        legend.append(f"shaded: {html.escape(chart.shaded)}")
    lines = [html.escape(chart.title)]
    if legend:
        lines.append(f'<font point-size="10">{" &#160; &#160; ".join(legend)}</font>')
    return "<" + "".join(f'{line}<br align="left"/>' for line in lines) + ">"


def _shown(box: Box) -> list[str]:
    lines = list(box.lines)
    if len(lines) > FIRST + LAST + 1:
        lines = [*lines[:FIRST], f"... {len(lines) - FIRST - LAST:,} more ...", *lines[-LAST:]]
    head = f"{box.name}:" if lines else box.name
    return [line if len(line) <= WIDEST else f"{line[: WIDEST - 3]}..." for line in (head, *lines)]


def _quoted(lines: Sequence[str]) -> str:
    """A label, its lines flush left; SVG would drop the blanks that a line begins with."""
    text = "".join(
        "\u00a0" * (len(line) - len(line.lstrip(" ")))
        + line.lstrip(" ").replace("\\", "\\\\").replace('"', '\\"')
        + "\\l"
        for line in lines
    )
    return f'"{text}"'

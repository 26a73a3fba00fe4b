"""Tables as text, no wider than the terminal. A pipe or a file gets them whole."""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Cell = str | int | float | None

GAP = "  "
ENDLESS = 2**31
RIBBON = 20
"""Texts are wrapped to no less than this, so long as a column can be left out."""


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    least: Sequence[str] = (),
    width: int | None = None,
) -> str:
    """Columns as wide as they need to be; numbers to the right, integers with thousands separators.

    Where that is wider than the terminal, texts are wrapped between words; then columns are left out, and a
    line below says which. A number, a name or a heading is never broken.

    Args:
        headers: one for each column.
        rows: cells; None is an empty one.
        least: headings of the columns to leave out first, in this order; after them, from the right. The
            first column stays.
        width: in characters; by default the terminal's, if stdout is one, else unlimited.
    """
    cells = [tuple(row) for row in rows]
    columns = [
        _column(header, [row[number] for row in cells], number) for number, header in enumerate(headers)
    ]
    columns, left_out = _fitted(columns, stdout_width() if width is None else width, least)
    lines = [[[column.header] for column in columns]]
    lines += [[column.lines[number] for column in columns] for number in range(len(cells))]
    text = "\n".join(_row(line, columns) for line in lines)
    if not left_out:
        return text
    count = "1 column" if len(left_out) == 1 else f"{len(left_out)} columns"
    names = ", ".join(filter(None, left_out))
    return f"{text}\n{count} left out: {names}; --json has them, or widen the terminal"


def stdout_width() -> int:
    """Characters in a line of stdout: the terminal's; unlimited where it is not a terminal."""
    return _width(sys.stdout)


def stderr_width() -> int:
    """The same of stderr."""
    return _width(sys.stderr)


def _width(stream: Any) -> int:
    try:
        terminal = stream is not None and stream.isatty()
    except ValueError:  # closed
        terminal = False
    return shutil.get_terminal_size().columns if terminal else ENDLESS


@dataclass(eq=False)
class _Column:
    """A column of a table.

    Attributes:
        number: its place among the columns given.
        lines: for each row, the lines of its cell.
        right: whether it holds numbers.
    """

    header: str
    number: int
    lines: list[list[str]]
    right: bool

    @property
    def width(self) -> int:
        return max([len(self.header), *(len(line) for cell in self.lines for line in cell)])

    @property
    def least(self) -> int:
        """The width below which a word would be broken, or a text would get too narrow."""
        words = [word for cell in self.lines for line in cell for word in line.split()]
        return min(self.width, max(len(self.header), RIBBON, *map(len, words), 0))

    def wrap(self, width: int) -> None:
        """Wrap its cells between words."""
        self.lines = [
            [part for line in cell for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]]
            for cell in self.lines
        ]

    def pad(self, text: str) -> str:
        return text.rjust(self.width) if self.right else text.ljust(self.width)


def _column(header: str, cells: Sequence[Cell], number: int) -> _Column:
    right = any(cell is not None for cell in cells) and all(
        cell is None or isinstance(cell, int | float) for cell in cells
    )
    return _Column(header, number, [_text(cell).split("\n") for cell in cells], right)


def _fitted(columns: list[_Column], width: int, least: Sequence[str]) -> tuple[list[_Column], list[str]]:
    """The columns that a width has room for, wrapped where need be, and the headings of those left out."""

    def excess(widths: Iterable[int]) -> int:
        taken = [each + len(GAP) for each in widths]
        return sum(taken) - len(GAP) - width

    def importance(column: _Column) -> tuple[int, int]:
        return (least.index(column.header) if column.header in least else len(least), -column.number)

    left_out = sorted(columns[1:], key=importance)
    kept = columns[:1]
    for column in reversed(
        left_out
    ):  # the most important first; a narrow one may fit where a wide one does not
        if excess(each.least for each in (*kept, column)) <= 0:
            kept.append(column)
    kept.sort(key=lambda column: column.number)
    while (over := excess(column.width for column in kept)) > 0:
        widest = max(kept, key=lambda column: column.width - column.least)
        if widest.width == widest.least:
            break  # the first column alone is wider
        widest.wrap(max(widest.least, widest.width - over))
    return kept, [column.header for column in columns if column not in kept]


def _row(cells: Sequence[Sequence[str]], columns: Sequence[_Column]) -> str:
    """A row, of as many lines as its longest cell."""
    return "\n".join(
        GAP.join(column.pad(text) for column, text in zip(columns, line, strict=True)).rstrip()
        for line in itertools.zip_longest(*cells, fillvalue="")
    )


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.2f}" if isinstance(cell, float) else cell

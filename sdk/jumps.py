"""Jumps of a listing as arrows to the left of its lines, in the style of objdump's --visualize-jumps.

        /-- sjmp L0002
        |   nop
        \\-> L0002:

One drawing for all listings. Arrows to the same line share a column. A short one is next to the code; one
that finds no room is left out: the listing names its target in any case.
"""

from __future__ import annotations

from collections.abc import Iterable

COLUMNS = 8
"""Arrows that pass a line side by side, at most."""


def beside(lines: Iterable[str], jumps: Iterable[tuple[int, int]], columns: int = COLUMNS) -> list[str]:
    """Lines of a listing with arrows before them.

    Args:
        lines: of the listing.
        jumps: index of the line that jumps and of that which it jumps to. One to itself is not drawn.
        columns: that arrows may take.

    Returns:
        The lines, moved to the right alike; unchanged if there is nothing to draw.
    """
    listed = list(lines)
    drawn = _placed(jumps, columns)
    if not drawn:
        return listed
    width = max(column for column, _, _ in drawn) + 1
    grid = [[" "] * (width + 3) for _ in listed]  # a dash or two, the head, and a blank
    for column, target, sources in drawn:
        first, last = min(target, *sources), max(target, *sources)
        for line in range(first, last + 1):
            joins = line == target or line in sources
            grid[line][width - 1 - column] = (
                "/" if line == first else "\\" if line == last else "+" if joins else "|"
            )
    for column, target, sources in drawn:
        for line in (target, *sources):
            for place in range(width - column, width + 2):
                if grid[line][place] == " ":  # it passes under the vertical parts of others
                    grid[line][place] = "-"
    for _, target, _ in drawn:
        grid[target][width + 1] = ">"
    return [f"{''.join(before)}{line}".rstrip() for before, line in zip(grid, listed, strict=True)]


def _placed(jumps: Iterable[tuple[int, int]], columns: int) -> list[tuple[int, int, list[int]]]:
    """(column from the right, target, sources) of each arrow that finds room, the shortest ones first."""
    groups: dict[int, list[int]] = {}
    for source, target in jumps:
        if source != target:
            groups.setdefault(target, []).append(source)
    taken: list[list[tuple[int, int]]] = [[] for _ in range(columns)]
    found = []
    for target, sources in sorted(groups.items(), key=lambda group: (_reach(*group), group[0])):
        sources.sort(key=lambda source: abs(source - target))
        while sources:
            first, last = min(target, *sources), max(target, *sources)
            free = (
                column
                for column, spans in enumerate(taken)
                if all(last < start or stop < first for start, stop in spans)
            )
            if (column := next(free, None)) is not None:
                taken[column].append((first, last))
                found.append((column, target, sources))
                break
            sources.pop()
    return found


def _reach(target: int, sources: Iterable[int]) -> int:
    return max(target, *sources) - min(target, *sources)

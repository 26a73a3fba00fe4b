"""`--graph FILE`: control flow as a picture, of the bridge's firmware, of GPU kernels and of DSP kernels.

Each has its own disassembler; the picture is `sdk.flow_chart`'s.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sdk import flow_chart
from sdk.flow_chart import Arrow, Box, Chart, Kind
from towline.cli.options import require_directory

if TYPE_CHECKING:
    from dsp.hexagon.disassembly import Block
    from emulator.amdgpu.listing import Listed
    from emulator.mcs51.flow import Graph, Place, Routine
    from emulator.mcs51.listing import Listing


def add_graph(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare --graph."""
    parser.add_argument(
        "--graph", metavar="FILE.svg", help=f"draw {what} (.dot: as text for Graphviz) instead of listing it"
    )


def check(args: argparse.Namespace) -> None:
    """Refuse a name that cannot be written, before there is work.

    Raises:
        UsageError: it cannot.
    """
    if args.graph is not None:
        flow_chart.check(args.graph)
        require_directory(args.graph)


def written(path: str, chart: Chart) -> tuple[dict[str, Any], str]:
    """Write a picture; returns its figures as a document and as text.

    Raises:
        ToolMissing, BuildFailed, OutputFailed: as `flow_chart.write`.
    """
    flow_chart.write(path, chart)
    boxes, arrows = len(chart.boxes), len(chart.arrows)
    document = {"graph": path, "title": chart.title, "boxes": boxes, "arrows": arrows}
    plural = "" if boxes == 1 else "es"
    return document, f"{chart.title}: {boxes:,} box{plural}, {arrows:,} arrows, written: {path}"


# -- the bridge's firmware ------------------------------------------------------------------------------


def routine(listing: Listing, found: Routine) -> Chart:
    """The blocks of a function of the 8051."""
    boxes, arrows = [], []
    for block in found.blocks:
        name = listing.label(block.place)
        lines = [
            f"{line.text:<28}; {line.comment}" if line.comment else line.text for line in listing.lines(block)
        ]
        boxes.append(Box(name, lines, block.place == found.entry))
        ways = [
            (listing.label(place), place.address)
            for place in block.successors
            if place.bank == block.place.bank
        ]
        across = [listing.label(place) for place in block.successors if place.bank != block.place.bank]
        arrows += flow_chart.arrows(name, block.place.address, ways, block.following)
        arrows += [Arrow(name, target, Kind.JUMP) for target in across]
    size = sum(len(one.data) for block in found.blocks for one in block.instructions)
    return Chart(f"{found.name}, {size:,} bytes", boxes, arrows)


def calls(graph: Graph, root: Routine | None = None, depth: int | None = None) -> Chart:
    """The call graph of an image for the 8051.

    Args:
        graph: of the image.
        root: where to begin; else with every function that has no caller.
        depth: calls from there that are followed; all if not given.
    """
    routines = graph.routines
    counts = Counter(one.name for one in routines.values())
    names = {
        entry: one.name if counts[one.name] == 1 else f"{one.name} {entry}" for entry, one in routines.items()
    }
    called = {place for one in routines.values() for place in one.calls}
    roots = [entry for entry in routines if entry not in called] if root is None else [root.entry]
    shown = set(routines) if root is None and depth is None else _reached(routines, roots, depth)
    boxes, arrows = [], []
    for entry, one in routines.items():
        if entry not in shown:
            continue
        callees = [place for place in dict.fromkeys(one.calls) if place in routines]
        left_out = sum(place not in shown for place in callees)
        note = [f"and {left_out} more calls" if left_out > 1 else "and 1 more call"] if left_out else []
        boxes.append(Box(names[entry], note, entry in roots))
        arrows += [Arrow(names[entry], names[place], Kind.CALL) for place in callees if place in shown]
    title = "call graph" if root is None else f"what {names[root.entry]} calls"
    if depth is not None:
        title += f", {depth} call{'' if depth == 1 else 's'} deep"
    shaded = "without a caller" if root is None else "the root"
    return Chart(title, boxes, arrows, sideways=True, shaded=shaded)


def _reached(routines: Mapping[Place, Routine], roots: Sequence[Place], depth: int | None) -> set[Place]:
    """The functions within that many calls."""
    shown = set(roots)
    last = shown
    while last and (depth is None or depth > 0):
        last = {place for entry in last for place in routines[entry].calls if place in routines} - shown
        shown |= last
        depth = None if depth is None else depth - 1
    return shown


# -- kernels of the GPU ---------------------------------------------------------------------------------


def kernel(title: str, listed: Listed) -> Chart:
    """The blocks of a GPU kernel."""
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    starts = {label: lines[0].address for label, lines, _ in listed.blocks}
    following = dict(zip(starts, [*list(starts.values())[1:], None], strict=True))
    for label, lines, after in listed.blocks:
        boxes.append(Box(label, [line.text for line in lines], label == "entry"))
        ways = [(way, starts[way]) for way in after if way in starts]
        arrows += flow_chart.arrows(label, starts[label], ways, following[label])
    return Chart(title, boxes, arrows)


# -- kernels of the DSP ---------------------------------------------------------------------------------


def packets(title: str, kernels: Mapping[int, Sequence[Block]]) -> Chart:
    """The blocks of Hexagon kernels, by their entries."""
    from dsp.hexagon.disassembly import labels, shown

    boxes: list[Box] = []
    arrows: list[Arrow] = []
    for entry, blocks in kernels.items():
        named = {place: f"{label} {place:#x}" for place, label in labels(blocks).items()}
        for block in blocks:
            label = named[block.address]
            boxes.append(Box(label, list(shown(block)), block.address == entry))
            ways = [(named[place], place) for place in block.successors if place in named]
            arrows += flow_chart.arrows(label, block.address, ways, block.packets[-1].following)
    return Chart(title, boxes, arrows)

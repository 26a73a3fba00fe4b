"""`--graph FILE`: control flow as a picture, of the bridge's firmware, of GPU kernels and of DSP kernels.

What differs is who disassembles; the picture is `sdk.flow_chart`'s.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sdk import flow_chart
from sdk.artifact import Artifact
from sdk.errors import InvalidArtifact, Unsupported, UsageError
from sdk.flow_chart import Arrow, Box, Chart, Kind
from towline.cli.options import require_directory

if TYPE_CHECKING:
    from emulator.amdgpu.listing import Listed
    from emulator.mcs51.flow import Graph, Routine
    from emulator.mcs51.listing import Listing

NAMES = 12
"""Names that an error lists."""


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
    """Write a picture; what there is to say of it, as a document and in words.

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
        last = block.instructions[-1]
        ways = [
            (listing.label(place), place.address)
            for place in block.successors
            if place.bank == block.place.bank
        ]
        across = [listing.label(place) for place in block.successors if place.bank != block.place.bank]
        following = last.address + len(last.data)
        arrows += flow_chart.arrows(name, block.place.address, ways, following)
        arrows += [Arrow(name, target, Kind.JUMP) for target in across]
    size = sum(len(one.data) for block in found.blocks for one in block.instructions)
    return Chart(f"{found.name}, {size:,} bytes", boxes, arrows)


def calls(graph: Graph) -> Chart:
    """Who calls whom in an image for the 8051."""
    routines = graph.routines
    counts = Counter(one.name for one in routines.values())
    names = {
        entry: one.name if counts[one.name] == 1 else f"{one.name} {entry}" for entry, one in routines.items()
    }
    called = {place for one in routines.values() for place in one.calls}
    boxes = [Box(names[entry], entry=entry not in called) for entry in routines]
    arrows = [
        Arrow(names[entry], names[place], Kind.CALL)
        for entry, one in routines.items()
        for place in one.calls
        if place in names
    ]
    return Chart("who calls whom; shaded: no caller was seen", boxes, arrows, sideways=True)


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


# -- a layer of a compiled network ----------------------------------------------------------------------


def layer(network: Artifact, name: str | None) -> Chart:
    """The code that computes a layer of a compiled network.

    Raises:
        UsageError: there is no such layer.
        Unsupported: the target's code is no machine code that can be listed here.
        InvalidArtifact: the file's code is damaged.
        EnvironmentMissing: the disassembler is missing.
    """
    target = network.program.target
    if target.startswith("hexagon-"):
        return _hexagon(network, name, target.removeprefix("hexagon-"))
    if target.startswith("amd-"):
        return _amd(network, name)
    raise Unsupported(
        f"a program for {target} holds no machine code to draw",
        hint="hexagon-* and amd-* do",
    )


def _hexagon(network: Artifact, name: str | None, version: str) -> Chart:
    from dsp.hexagon.disassembly import Program, labels
    from dsp.hexagon.plan import HexagonPlan

    plan = HexagonPlan.from_json(network.program.plan, network.program.graph)
    number = _index([one.name for one in plan.layers], name)
    program = Program(_code(network, "network.elf"), version)
    found = program.kernels(plan.memory)
    if len(found) != len(plan.layers):
        raise InvalidArtifact("its code and its plan have different layers", hint="compile the model again")
    entries = list(dict.fromkeys(found[number]))
    if not entries:
        raise Unsupported(f"the layer {name} runs no code", hint="it is the same bytes as its input")
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    for entry in entries:
        blocks = program.blocks(entry)
        named = {place: f"{label} {place:#x}" for place, label in labels(blocks).items()}
        for block in blocks:
            label = named[block.address]
            boxes.append(Box(label, list(_packets(block.packets)), block.address == entry))
            ways = [(named[place], place) for place in block.successors if place in named]
            arrows += flow_chart.arrows(label, block.address, ways, block.packets[-1].following)
    one = plan.layers[number]
    plural = f"{len(entries)} kernels" if len(entries) > 1 else f"kernel at {entries[0]:#x}"
    return Chart(f"{one.name} ({one.op}): {plural}", boxes, arrows)


def _packets(packets: Sequence[Any]) -> Iterator[str]:
    for packet in packets:
        for index, line in enumerate(packet.lines):
            start = "{ " if index == 0 else "  "
            ends = "".join(f":endloop{loop}" for loop in packet.ends)
            yield f"{start}{line}{' }' + ends if index == len(packet.lines) - 1 else ''}"


def _amd(network: Artifact, name: str | None) -> Chart:
    from emulator.amdgpu import code_object, listing
    from usbgpu.target.plan import CardPlan

    program = network.program
    plan = CardPlan.from_json(program.plan, program.graph, program.code)
    one = plan.launches[_index([launch.name for launch in plan.launches], name)]
    wanted = plan.kernels[one.kernel].name
    for data in program.code.values():
        code = code_object.parse(data)
        if wanted in code.kernels:
            (listed,) = listing.kernels(code, wanted)
            return kernel(f"{one.name} ({one.op}): {wanted}", listed)
    raise InvalidArtifact(f"the kernel {wanted} is in none of its files", hint="compile the model again")


def _index(names: Sequence[str], name: str | None) -> int:
    if name in names:
        return names.index(name)
    shown = ", ".join(names[:NAMES]) + (f", and {len(names) - NAMES} more" if len(names) > NAMES else "")
    if name is None:
        raise UsageError("--graph draws the code of one layer: name it with --layer", hint=f"layers: {shown}")
    raise UsageError(f"there is no layer {name!r}", hint=f"layers: {shown}")


def _code(network: Artifact, name: str) -> bytes:
    data = network.program.code.get(name)
    if data is None:
        raise InvalidArtifact(f"it has no {name}", hint="compile the model again")
    return data

"""`towline firmware`: what can be done with firmware of the USB bridge.

Each verb is a module of its own that declares what `towline.cli.Verb` requires; `disasm` is here.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sdk.errors import InvalidInput, UsageError
from sdk.report import Console, Result
from towline.cli import (
    firmware_build,
    firmware_conform,
    firmware_coverage,
    firmware_flash,
    firmware_info,
    firmware_monitor,
    firmware_reset,
    firmware_size,
    graphs,
)
from towline.cli.options import IMAGE, add_common_again, add_verb, positive

EXAMPLE = """towline firmware build -o bridge.bin
towline firmware flash bridge.bin --device usb
towline firmware info --device usb
towline firmware disasm bridge.bin --function main"""

MODULES = {
    "build": firmware_build,
    "size": firmware_size,
    "flash": firmware_flash,
    "info": firmware_info,
    "reset": firmware_reset,
    "monitor": firmware_monitor,
    "conform": firmware_conform,
    "coverage": firmware_coverage,
}
"""The verbs that are modules."""


def configure(parser: argparse.ArgumentParser) -> None:
    nouns = parser.add_subparsers(metavar="VERB", title="verbs", required=True, dest="firmware_verb")
    for name, module in MODULES.items():
        verb = add_verb(nouns, name, module.SUMMARY, module.EXAMPLE)
        module.configure(verb)
        add_common_again(verb)
    disasm = add_verb(
        nouns,
        "disasm",
        "list an image as labelled blocks with cross references, names of registers, and clocks",
        """towline firmware disasm bridge.bin --function main
towline firmware disasm unknown.bin --symbols names.txt""",
    )
    disasm.add_argument(
        "image",
        metavar="IMAGE",
        help=IMAGE,
    )
    disasm.add_argument(
        "--function", metavar="NAME", help="only this one, by name or by any address in it (0x1234, 1:0x8234)"
    )
    disasm.add_argument(
        "--symbols",
        metavar="FILE",
        help="names, instead of those beside IMAGE: a .map or .cdb of sdcc, or lines of `name address "
        "[bank]`, hexadecimal",
    )
    graphs.add_graph(disasm, "the blocks of --function, or the call graph")
    disasm.add_argument(
        "--depth",
        metavar="N",
        type=positive,
        help="draw the call graph, N calls deep: from --function, or from functions without a caller",
    )
    add_common_again(disasm)


def run(args: argparse.Namespace, console: Console) -> Result:
    if args.firmware_verb in MODULES:
        module: Any = MODULES[args.firmware_verb]
        result: Result = module.run(args, console)
        return result
    graphs.check(args)
    if args.depth is not None and args.graph is None:
        raise UsageError("--depth is for the call graph: give --graph too")
    return _disassemble(args, console)


def _disassemble(args: argparse.Namespace, console: Console) -> Result:
    from emulator import image_file, symbols
    from emulator.mcs51 import flow, listing
    from firmware.asm2464pd.registers import ASM2464PD

    name, function = args.image, args.function
    if args.symbols is not None and not Path(args.symbols).is_file():
        raise UsageError("no such file", where=args.symbols)
    path = image_file.locate(name)
    image = image_file.load(path)
    try:
        table = symbols.beside(path) if args.symbols is None else symbols.given(Path(args.symbols))
    except InvalidInput as problem:
        if args.symbols is not None:
            raise
        console.warn(f"no names are known: {problem}")
        table = symbols.Symbols()
    graph = flow.analyse(image.banks, image.loaded, listing.names_of(table))
    listed = listing.Listing(graph, ASM2464PD, table)
    routines = list(graph.routines.values())
    if function is not None:
        found = graph.named(function)
        if found is None:
            raise InvalidInput(
                f"has no function {function!r}",
                where=name,
                hint="leave out --function to list all; without a .map or .cdb beside the image they are "
                "named by address",
            )
        routines = [found]
    if args.graph is not None:
        root = routines[0] if function is not None else None
        if root is not None and args.depth is None:
            chart = graphs.routine(listed, root)
        else:
            chart = graphs.calls(graph, root, args.depth)
        return Result(*graphs.written(args.graph, chart))
    rest = [(bank, part) for bank in (0, 1) for part in listing.ranges(graph.data[bank])]
    document: dict[str, Any] = {
        "image": name,
        "kind": image.kind.value,
        "code_bytes": sum(map(len, graph.code)),
        "functions": listed.as_data(routines) if console.json else [],
    }
    text = "" if console.json else listed.as_text(routines)
    if function is None:
        document["not_reached"] = [
            {"bank": bank, "start": part.start, "end": part.stop} for bank, part in rest
        ]
        if rest:
            stretches = (f"{flow.Place(bank, part.start)}-0x{part.stop - 1:04X}" for bank, part in rest)
            text += f"\n; not reached: {', '.join(stretches)}\n"
    return Result(document, text)

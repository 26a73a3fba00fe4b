"""`towline firmware`: what can be done with firmware of the USB bridge."""

from __future__ import annotations

import argparse
from typing import Any

from sdk.errors import InvalidInput
from sdk.report import Console, Result

SUMMARY = "look into firmware of the USB bridge"
EXAMPLE = "towline firmware disasm bridge.ihx --function main"


def configure(parser: argparse.ArgumentParser) -> None:
    nouns = parser.add_subparsers(metavar="VERB", title="verbs", required=True, dest="firmware_verb")
    disasm = nouns.add_parser(
        "disasm",
        help="list an image as labelled blocks with cross references",
        description="list an image as labelled blocks with cross references, names of registers, and clocks",
        epilog="example:\n  towline firmware disasm bridge.ihx --function main",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    disasm.add_argument(
        "image",
        metavar="IMAGE",
        help="Intel HEX, binary, wrapped image, flash dump, or a test image by name: vendor, storage",
    )
    disasm.add_argument(
        "--function", metavar="NAME", help="only this one, by name or by any address in it (0x1234, 1:0x8234)"
    )
    # `towline` declares these for the verb; they may stand behind the inner one too.
    disasm.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    disasm.add_argument("-v", "--verbose", action="count", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def run(args: argparse.Namespace, console: Console) -> Result:
    return _disassemble(args.image, args.function, console)


def _disassemble(name: str, function: str | None, console: Console) -> Result:
    from emulator import image_file, symbols
    from emulator.mcs51 import flow, listing
    from firmware.asm2464pd.registers import ASM2464PD

    path = image_file.locate(name)
    image = image_file.load(path)
    try:
        table = symbols.beside(path)
    except InvalidInput as problem:
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
                hint="leave out --function to see them all; without a .map or .cdb beside the image they are "
                "named by address",
            )
        routines = [found]
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

"""`towline firmware build`: compile the bridge's firmware; wrap or check what was built elsewhere."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from sdk import files
from sdk.errors import CheckFailed, InvalidInput, UsageError
from sdk.report import Console, Result, table
from towline.cli.options import require_directory

SUMMARY = "compile the firmware into a wrapped image, wrap other code, or check any image's fields"
EXAMPLE = """towline firmware build -o bridge.bin
towline firmware build --wrap mine.ihx -o mine.bin
towline firmware build --check vendor.bin"""


SYMBOLS = (".map", ".cdb", ".rst")
"""Names of functions and variables, lines of C: what `towline emulate` looks for beside an image."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.bin",
        help="write the wrapped image to FILE.bin, ready for `flash`, "
        "and its symbols beside it (.map, .cdb, .rst)",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--wrap",
        metavar="IMAGE",
        help="build nothing: wrap this code (Intel HEX, plain binary) for the flash",
    )
    instead.add_argument(
        "--check",
        metavar="IMAGE",
        help="build nothing: report the fields of a wrapped image or flash dump, a vendor's too",
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    if args.check is not None:
        if args.output is not None:
            raise UsageError("--check builds nothing: leave out -o")
        return _check(Path(args.check))
    if args.output is not None:
        require_directory(args.output)
        if Path(args.output).suffix.lower() in SYMBOLS:
            raise UsageError(
                f"an image's symbols go to {', '.join(SYMBOLS)} beside it: give it another suffix",
                where=args.output,
            )
    if args.wrap is not None:
        if args.output is None:
            raise UsageError("--wrap needs -o FILE.bin")
        return _wrap(Path(args.wrap), args.output, console)
    return _build(args.output, console)


def _build(output: str | None, console: Console) -> Result:
    from firmware.build import build
    from firmware.protocol.commands import API_LEVEL

    built = build()
    image = built.image.read_bytes()
    written = []
    if output is not None:
        symbols = {path.suffix: path.read_bytes() for path in (built.map, built.cdb, built.rst)}
        written = _write(output, image, symbols)
    document = {
        "image": str(output or built.image),
        "image_bytes": len(image),
        "code_bytes": built.bin.stat().st_size,
        "sha256": hashlib.sha256(image).hexdigest(),
        "api_level": f"{API_LEVEL >> 8}.{API_LEVEL & 0xFF}",
        "ihx": str(built.ihx),
        "map": str(built.map),
        "cdb": str(built.cdb),
        "written": written,
    }
    console.detail(f"beside it: {built.ihx.name}, {built.map.name}, {built.cdb.name} in {built.ihx.parent}")
    text = (
        f"{document['image']}: {document['code_bytes']:,} bytes of code, {len(image):,} with the wrapping, "
        f"API level {document['api_level']}\nsha256 {document['sha256']}"
    )
    return Result(document, text + _beside(written))


def _write(output: str, image: bytes, symbols: Mapping[str, bytes]) -> list[str]:
    """Write an image and its symbols by suffix, each whole or not at all; the names of the files."""
    for suffix, content in symbols.items():
        files.write(Path(output).with_suffix(suffix), content)
    files.write(output, image)
    return [output, *(str(Path(output).with_suffix(suffix)) for suffix in symbols)]


def _beside(written: Sequence[str]) -> str:
    """The line about symbols."""
    return f"\nsymbols {', '.join(written[1:])}" if len(written) > 1 else ""


def _wrap(path: Path, output: str, console: Console) -> Result:
    from emulator import image_file
    from firmware.asm2464pd.image import body, wrap
    from sdk.facts.structures import Malformed

    loaded = image_file.load(path)
    try:
        code = body(loaded.banks, loaded.loaded)
        image = wrap(code)
    except Malformed as problem:
        raise InvalidInput(str(problem), where=str(path)) from problem
    symbols = _symbols(path)
    if Path(output).with_suffix("").resolve() == path.with_suffix("").resolve():
        symbols = {}  # they exist already
    elif not symbols:
        for suffix in SYMBOLS:
            if (old := Path(output).with_suffix(suffix)).exists():
                console.warn(f"{old} is of another image: {path} has no symbols beside it")
    written = _write(output, image, symbols)
    digest = hashlib.sha256(image).hexdigest()
    text = f"{output}: {len(code):,} bytes of code, {len(image):,} with the wrapping\nsha256 {digest}"
    return Result(
        {
            "image": output,
            "image_bytes": len(image),
            "code_bytes": len(code),
            "sha256": digest,
            "written": written,
        },
        text + _beside(written),
    )


def _symbols(image: Path) -> dict[str, bytes]:
    """The symbol files beside an image, by suffix; the listings of its modules as one."""
    from emulator import symbols

    found: dict[str, bytes] = {}
    try:
        for path in symbols.files(image):
            found[path.suffix] = found.get(path.suffix, b"") + path.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", where=str(problem.filename)) from None
    return found


def _check(path: Path) -> Result:
    from firmware.check import check

    try:
        data = path.read_bytes()
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", where=str(path)) from problem
    report = check(data)
    document = {
        "image": str(path),
        "kind": report.kind,
        "body_bytes": report.body,
        "trailing_bytes": report.trailing,
        "fields": [
            {
                "name": field.name,
                "offset": field.offset,
                "expected": field.expected,
                "found": field.found,
                "good": field.good,
            }
            for field in report.fields
        ],
    }
    text = f"{path}: {report.kind}\n" + table(
        ("field", "offset", "expected", "found", ""),
        (
            (field.name, f"{field.offset:#07x}", field.expected, field.found, "" if field.good else "WRONG")
            for field in report.fields
        ),
    )
    if report.trailing:
        text += f"\n{report.trailing:,} bytes after the image"
    failure = None
    if report.bad:
        names = ", ".join(field.name for field in report.bad)
        failure = CheckFailed(f"wrong: {names}", where=str(path), hint="the bridge would not boot it")
    return Result(document, text, failure)

"""C source by file name and line, and the locations of commands.

A .cdb names files without their directories; they are searched beside the image and where the user says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from emulator.board import Board
from emulator.debug.debugger import Place
from emulator.debug.memory import split
from emulator.debug.stepping import beginning
from emulator.mcs51.core import CODE_SIZE
from emulator.symbols import Symbols
from sdk.errors import UsageError

_FILE_LINE = re.compile(r"(?:(?P<file>[\w.+-]+):)?(?P<line>\d+)")
_ADDRESS = re.compile(r"\*(?:(?P<bank>[01]):)?(?P<address>0[xX][0-9a-fA-F]{1,5})")


class Sources:
    """Where the C files are.

    Args:
        directories: that are searched, in this order.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = list(directories)

    def lines(self, file: str) -> list[str] | None:
        """The lines of a file, None if it is not found."""
        for directory in self.directories:
            if (path := directory / file).is_file():
                return _read(path)
        return None

    def line(self, file: str, number: int) -> str | None:
        """A line, None if it is not found."""
        lines = self.lines(file)
        return lines[number - 1] if lines is not None and 0 < number <= len(lines) else None


@cache
def _read(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def places(board: Board, text: str, file: str) -> tuple[list[Place], str]:
    """The code of a location, and its description.

    Args:
        board: with the image's symbols.
        text: `FILE:LINE`, `LINE` of the current file, `FUNCTION`, `MODULE.FUNCTION`, `*0x1234`, or in
            CODE bank 1 `*1:0x9000` or, as the linker numbers it, `*0x19000`.
        file: the current one, "" for none.

    Raises:
        UsageError: there is no such place.
    """
    symbols = board.symbols
    if text.startswith("*"):
        return [_of_address(text)], text
    if match := _FILE_LINE.fullmatch(text):
        return _of_line(symbols, match["file"] or file, int(match["line"]))
    function = symbols.named(text)
    if function is None:
        near = sorted(entry.name for entry in symbols.functions if text.lower() in entry.name.lower())
        hint = f"similar: {', '.join(near[:5])}" if near else "info functions lists them"
        raise UsageError(f"there is no function {text!r}", hint=hint)
    place = beginning(board, function)
    found = symbols.line_at(*place)
    return [place], f"{function.name}, {found}" if found is not None else function.name


def _of_address(text: str) -> Place:
    match = _ADDRESS.fullmatch(text)
    if match is not None:
        address = int(match["address"], 16)
        bank, place = split(address) if match["bank"] is None else (int(match["bank"]), address)
        if place < CODE_SIZE:
            return bank, place
    raise UsageError(f"{text} is not an address of code", hint="*0x0000 to *0xffff; *1:0x9000 is in bank 1")


def _of_line(symbols: Symbols, file: str, number: int) -> tuple[list[Place], str]:
    """Where a line begins, or the next one that has code: once in each function."""
    if not file:
        raise UsageError("there is no current file: name one", hint="for example main.c:20")
    numbers = sorted({entry.line for entry in symbols.lines if entry.file == file})
    if not numbers:
        files = sorted({entry.file for entry in symbols.lines})
        hint = (
            f"files: {', '.join(files)}"
            if files
            else "build with sdcc --debug, and keep the .cdb beside the image"
        )
        raise UsageError(f"no code comes from a file {file}", hint=hint)
    line = next((candidate for candidate in numbers if candidate >= number), None)
    if line is None:
        raise UsageError(
            f"{file}:{number} has no code after it", hint=f"its last line with code is {numbers[-1]}"
        )
    first: dict[tuple[int, int], Place] = {}
    for bank, address in symbols.addresses(file, line):
        function = symbols.function_at(bank, address)
        key = (function.bank, function.start) if function is not None else (bank, address)
        first.setdefault(key, (bank, address))
    return list(first.values()), f"{file}:{line}"

"""Names and source lines of a firmware image, from what sdcc's linker leaves beside it.

The .map lists areas and the symbols in them (ASxxxx linker); the .cdb adds static functions and an address
of each C line (sdcc manual, "CDB file format"), the .rst all of its addresses. A function reaches from its
symbol to the next one.
Addresses from 0x18000 on are CODE bank 1, as in `emulator.image_file`.

Names found in another way come as a list: a line each of `name address [bank]`, the numbers hexadecimal, with
comments from `#` or `;` on.
"""

from __future__ import annotations

import bisect
import collections
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from emulator import line_records
from emulator.image_file import BANK_START, HEX_BANK1
from sdk.errors import InvalidInput

_AREA = re.compile(r"(?P<name>\S+)\s+(?P<start>[0-9A-F]{8})\s+(?P<size>[0-9A-F]{8}) =.*\((?P<kind>.*)\)")
_SYMBOL = re.compile(
    r"\s*(?:(?P<space>[CD]):)?\s+(?P<address>[0-9A-F]{8})\s+(?P<name>\S+)(?:\s+(?P<module>\S+))?\s*$"
)
_FUNCTION = re.compile(
    r"L:(?P<end>X?)(?:G|F(?P<module>\w+))\$(?P<name>\w+)\$\d+_?\d*\$\d+:(?P<address>[0-9A-F]+)$"
)
_DECLARED = re.compile(r"F:(?:G|F(?P<module>\w+))\$(?P<name>\w+)\$")
_MODULE = re.compile(r"^M:([\w.-]+)$", re.MULTILINE)
_LINE = re.compile(r"L:C\$(?P<file>[^$]+)\$(?P<line>\d+)\$\d+_?\d*\$\d+:(?P<address>[0-9A-F]+)$")

_LIST = "lines are `name address [bank]`, hexadecimal: main 0x2F81, or far_handler 8100 1"
_DATA_AREAS = {"CONST", "XINIT"}
"""Areas of CODE that hold tables."""
_LINKER_NAMES = re.compile(r"[ls]_[A-Z_]\w*")
"""Length and start of an area, which the linker defines."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function, or an assembly label that stands for one.

    Attributes:
        name: as in the source.
        bank: CODE bank; 0 for the common half too.
        start: CODE address of its first byte.
        end: of the byte after its last.
        module: the source file's stem, "" if not known.
    """

    name: str
    bank: int
    start: int
    end: int
    module: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """The first instruction of a source line.

    Attributes:
        file: its name, without directory.
        line: from 1.
    """

    bank: int
    address: int
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Variable:
    """An XDATA variable.

    Attributes:
        name: as in the source.
        start: XDATA address of its first byte.
        end: of the byte after its last; that of the next variable, or the end of the area.
    """

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Symbols:
    """What is known of an image's names.

    Attributes:
        functions: by bank and start.
        lines: of C source, by bank and address; of several at one address, the code is that of the last.
        variables: those in XDATA, by address.
    """

    functions: tuple[Function, ...] = ()
    lines: tuple[Line, ...] = ()
    variables: tuple[Variable, ...] = ()

    def function_at(self, bank: int, address: int) -> Function | None:
        """The function that holds a CODE address, as seen with a bank chosen."""
        place = _place(bank, address)
        index = bisect.bisect_right(self.functions, place, key=lambda entry: (entry.bank, entry.start))
        if index == 0:
            return None
        found = self.functions[index - 1]
        return found if found.bank == place[0] and address < found.end else None

    def variable_at(self, address: int) -> Variable | None:
        """The variable that holds an XDATA address."""
        index = bisect.bisect_right(self.variables, address, key=lambda entry: entry.start)
        found = self.variables[index - 1] if index else None
        return found if found is not None and address < found.end else None

    def line_at(self, bank: int, address: int) -> Line | None:
        """The C line that the code at an address belongs to, if its function is C.

        That is the last one that begins at or before it in its function; what is before the first one,
        the prologue, belongs to that.
        """
        function = self.function_at(bank, address)
        if function is None:
            return None
        index = bisect.bisect_right(
            self.lines, (function.bank, address), key=lambda entry: (entry.bank, entry.address)
        )
        for found in self.lines[max(index - 1, 0) : index + 1]:
            if found.bank == function.bank and function.start <= found.address < function.end:
                return found
        return None

    def addresses(self, file: str, line: int) -> tuple[tuple[int, int], ...]:
        """(bank, address) of each place where a source line begins; with code of its own, if it has any."""
        found, own = [], []
        for entry, following in itertools.zip_longest(self.lines, self.lines[1:]):
            if (entry.file, entry.line) == (file, line):
                found.append((entry.bank, entry.address))
                if following is None or (following.bank, following.address) != found[-1]:
                    own.append(found[-1])
        return tuple(own or found)

    def labels(self) -> dict[tuple[int, int], str]:
        """Function names by (bank, start); static functions of one name get their module in front."""
        count = collections.Counter(function.name for function in self.functions)
        return {
            (function.bank, function.start): (
                f"{function.module}.{function.name}" if count[function.name] > 1 else function.name
            )
            for function in self.functions
        }

    def named(self, name: str) -> Function | None:
        """The function of that name; of several static ones the first, or name it `module.name`."""
        for function in self.functions:
            if name in (function.name, f"{function.module}.{function.name}"):
                return function
        return None


def beside(image: Path) -> Symbols:
    """The symbols in the .map and .cdb beside an image, and in .rst files; empty if there are none.

    The .rst files are those of the modules that the .cdb names, or one of them all, named as the image.

    Raises:
        InvalidInput: one of them is there and cannot be read.
    """
    try:
        states = [(path.absolute(), path.stat()) for path in files(image)]
    except OSError as problem:
        raise InvalidInput(f"cannot be read: {problem.strerror}", where=str(problem.filename)) from None
    return _unchanged(tuple((path, state.st_mtime_ns, state.st_size) for path, state in states))


def given(path: Path) -> Symbols:
    """The symbols of a file that a user names: a .map or .cdb with what is beside it, or a list.

    Raises:
        InvalidInput: it cannot be read, or holds no names.
    """
    if path.suffix in (".map", ".cdb"):
        return load(path)
    try:
        lines = _text(path).splitlines()
    except OSError as problem:
        raise InvalidInput(f"cannot be read: {problem.strerror}", where=str(path)) from None
    tables = _Tables()
    for number, line in enumerate(lines, 1):
        if words := re.split("[#;]", line, maxsplit=1)[0].split():
            tables.add(*_entry(words, f"{path}:{number}"))
    found = tables.symbols()
    if not found.functions:
        raise InvalidInput("holds no names", where=str(path), hint=_LIST)
    return found


def _entry(words: list[str], where: str) -> tuple[str, int]:
    """A line of a list: name, and address as the linker has it.

    Raises:
        InvalidInput: it is not one.
    """
    try:
        name, *numbers = words
        address, bank = (int(number, 16) for number in (*numbers, *(("0",) if len(numbers) == 1 else ())))
    except ValueError:
        raise InvalidInput(
            f"{' '.join(words)!r} is not a name with its address", where=where, hint=_LIST
        ) from None
    if bank not in (0, 1) or not 0 <= address < (HEX_BANK1 if bank or address < HEX_BANK1 else 2 * HEX_BANK1):
        raise InvalidInput(f"bank {bank:x} has no CODE address {address:#x}", where=where, hint=_LIST)
    return name, address + (bank * HEX_BANK1 if address >= BANK_START else 0)


def files(image: Path) -> list[Path]:
    """The files beside an image that `beside` reads: .map, .cdb, and .rst last.

    Raises:
        OSError: the .cdb cannot be read.
    """
    paths = [path for suffix in (".map", ".cdb") if (path := image.with_suffix(suffix)).is_file()]
    if paths and paths[-1].suffix == ".cdb":
        names = (image.stem, *_MODULE.findall(_text(paths[-1])))
        listings = (image.parent / f"{name}.rst" for name in dict.fromkeys(names))
        paths += [path for path in listings if path.is_file()]
    return paths


@lru_cache(maxsize=8)
def _unchanged(files: tuple[tuple[Path, int, int], ...]) -> Symbols:
    """As `load`, of files with their times and sizes: every board needs the symbols of its image."""
    return load(*(path for path, _, _ in files))


def load(*paths: Path) -> Symbols:
    """The symbols of .map, .cdb and .rst files of one image together, each .rst behind the .cdb.

    Raises:
        InvalidInput: a file cannot be read, or a .map or .cdb holds nothing of the kind.
    """
    tables = _Tables()
    for path in paths:
        try:
            text = _text(path)
        except OSError as problem:
            raise InvalidInput(f"cannot be read: {problem.strerror}", where=str(path)) from None
        if path.suffix == ".rst":
            tables.read_listing(text)
            continue
        read = tables.read_cdb if path.suffix == ".cdb" else tables.read_map
        if not read(text.splitlines()):
            raise InvalidInput(
                "holds no symbols of sdcc's linker", where=str(path), hint="build again with sdcc --debug"
            )
    return tables.symbols()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _place(bank: int, address: int) -> tuple[int, int]:
    """The common half is listed under bank 0."""
    return (bank if address >= BANK_START else 0), address


def _split(linked: int) -> tuple[int, int]:
    """(bank, CODE address) of an address as the linker has it."""
    return linked // HEX_BANK1, linked % HEX_BANK1


class _Tables:
    """What has been read so far, by address as the linker has it."""

    def __init__(self) -> None:
        self._code: list[range] = []
        self._xdata: list[range] = []
        self._starts: dict[int, tuple[str, str]] = {}
        self._exits: dict[tuple[str, str], int] = {}
        self._lines: dict[line_records.Record, int] = {}
        self._variables: dict[int, str] = {}

    def add(self, name: str, address: int) -> None:
        """A function."""
        self._starts[address] = (name, "")

    def read_map(self, lines: Iterable[str]) -> bool:
        """Areas and global symbols; whether there were any areas."""
        area, found = "", False
        for line in lines:
            if match := _AREA.match(line):
                found, area = True, match["name"]
                attributes = match["kind"].split(",")
                start, size = int(match["start"], 16), int(match["size"], 16)
                if "CODE" in attributes and area not in _DATA_AREAS:
                    self._code.append(range(start, start + size))
                elif "XDATA" in attributes:
                    self._xdata.append(range(start, start + size))
            elif match := _SYMBOL.match(line):
                self._global(match, area)
        return found

    def _global(self, match: re.Match[str], area: str) -> None:
        name, address = match["name"], int(match["address"], 16)
        if "$" in name or _LINKER_NAMES.fullmatch(name):
            return
        name = name.removeprefix("_")
        if match["space"] == "D":
            self._variables.setdefault(address, name)
        elif match["space"] == "C" and area not in _DATA_AREAS:
            self._starts.setdefault(address, (name, match["module"] or ""))

    def read_cdb(self, lines: Iterable[str]) -> bool:
        """Functions, static ones too, and lines; whether there were any records."""
        declared = set()
        found = False
        for line in lines:
            if match := _DECLARED.match(line):
                declared.add((match["module"] or "", match["name"]))
            elif match := _LINE.match(line):
                self._lines[int(match["address"], 16), match["file"], int(match["line"])] = 0
            elif (match := _FUNCTION.match(line)) and (match["module"] or "", match["name"]) in declared:
                key, address = (match["module"] or "", match["name"]), int(match["address"], 16)
                if match["end"]:
                    self._exits[key] = address
                else:
                    module = self._starts.get(address, ("", ""))[1]
                    self._starts[address] = (match["name"], match["module"] or module)
            found = found or line[:2] in ("M:", "F:", "L:", "S:")
        return found

    def read_listing(self, text: str) -> None:
        """Lines, more and in better order than those of the .cdb."""
        self._lines = line_records.read(text, self._lines)

    def symbols(self) -> Symbols:
        starts = sorted(self._starts)
        functions = []
        for start, following in itertools.zip_longest(starts, starts[1:]):
            name, module = self._starts[start]
            bank, address = _split(start)
            end = self._end(start, following, name, module)
            functions.append(Function(name, bank, address, address + end - start, module))
        records = sorted(self._lines, key=lambda record: (record[0], self._lines[record], record))
        lines = tuple(Line(*_split(address), file, line) for address, file, line in records)
        return Symbols(tuple(functions), lines, tuple(self._located()))

    def _located(self) -> Iterator[Variable]:
        starts = sorted(self._variables)
        for start, following in itertools.zip_longest(starts, starts[1:]):
            area = next((area for area in self._xdata if start in area), range(start, start + 1))
            end = area.stop if following is None else min(area.stop, following)
            yield Variable(self._variables[start], start, end)

    def _end(self, start: int, following: int | None, name: str, module: str) -> int:
        """The next symbol or the end of the area; without a map, the byte after the last instruction."""
        area = next((area for area in self._code if start in area), None)
        if area is not None:
            return min(area.stop, area.stop if following is None else following)
        if following is not None:
            return following
        return self._exits.get((module, name), self._exits.get(("", name), start)) + 1

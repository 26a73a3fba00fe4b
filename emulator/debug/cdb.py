"""Variables and their types, from sdcc's .cdb file (sdcc wiki, "CDB File Format").

`emulator.symbols` reads functions and lines from the same file; this module reads the symbol records (S), the
structure records (T) and the linker's addresses (L) of data. sdcc writes no record for variables that it has
optimised away or that are declared `__at` (the chip's registers, which the facts name), and no address of a
`__bit`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sdk.errors import InvalidInput

_SYMBOL = re.compile(
    r"S:(?P<key>(?P<scope>G|F|L)(?P<owner>[\w.]*)\$(?P<name>\w+)\$\w+\$\w+)"
    r"\(\{(?P<size>\d+)\}(?P<chain>[^)]*)\),(?P<space>\w),(?P<stack>-?\d+),(?P<offset>-?\d+)"
    r"(?:,\[(?P<registers>[^\]]*)\])?"
)
_ADDRESS = re.compile(r"L:(?P<key>[GFL][\w.]*\$\w+\$\w+\$\w+):(?P<address>[0-9A-Fa-f]+)$")
_STRUCT = re.compile(r"T:F(?P<module>\w+)\$(?P<name>\w+)\[(?P<members>.*)\]$")
_MEMBER = re.compile(
    r"\(\{(?P<offset>\d+)\}S:S\$(?P<name>\w+)\$\w+\$\w+\(\{(?P<size>\d+)\}(?P<chain>[^)]*)\)"
)

_SPACES = {"C": "code", "D": "code", "E": "iram", "F": "xdata", "G": "iram"}
"""Letters of memories with addresses."""
_POINTERS = {"DC": "code", "DX": "xdata", "DD": "iram", "DI": "iram", "DP": "xdata", "DG": "generic"}
"""Declarators of pointers: the space that they point into."""
_SIZES = {"SC": 1, "SS": 2, "SI": 2, "SL": 4, "SF": 4, "DG": 3, "DC": 2, "DX": 2, "DD": 1, "DI": 1, "DP": 1}
"""Bytes of types and pointers."""
_INTEGERS = {"SC": "char", "SS": "short", "SI": "int", "SL": "long"}


@dataclass(frozen=True, slots=True)
class Type:
    """A C type.

    Attributes:
        kind: "integer", "bits", "bit", "float", "struct", "array", "pointer", "function" or "void".
        size: in bytes.
        signed: of an integer.
        bit: of bits: the lowest.
        width: of bits: how many.
        space: of a pointer: "code", "xdata", "iram" or "generic".
        name: of a structure.
        target: the element of an array, or what a pointer points at.
        members: of a structure, by name: offset in bytes, and type.
    """

    kind: str
    size: int
    signed: bool = False
    bit: int = 0
    width: int = 0
    space: str = ""
    name: str = ""
    target: Type | None = None
    members: Mapping[str, tuple[int, Type]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that a function can see.

    Attributes:
        name: as in the source.
        type: of its value.
        module: the source file's stem, "" for a global one.
        function: that it is local to, "" for a static or global one.
        space: "iram", "xdata" or "code"; "registers"; "" if its place is unknown.
        address: in that space.
        registers: that hold its bytes, least significant first.
    """

    name: str
    type: Type
    module: str
    function: str
    space: str
    address: int = 0
    registers: tuple[str, ...] = ()


class Variables:
    """The variables of an image.

    Args:
        lines: of the .cdb file.
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._structs: dict[tuple[str, str], dict[str, tuple[int, Type]]] = {}
        self._found: dict[tuple[str, str, str], Variable] = {}
        symbols: dict[str, re.Match[str]] = {}
        addresses: dict[str, int] = {}
        structs: list[re.Match[str]] = []
        for line in lines:
            if match := _SYMBOL.match(line):
                known = symbols.get(match["key"])
                if known is None or known["size"] == "0":  # declared `extern` without a size first
                    symbols[match["key"]] = match
            elif match := _ADDRESS.match(line):
                addresses[match["key"]] = int(match["address"], 16)
            elif match := _STRUCT.match(line):
                structs.append(match)
        for match in structs:
            module = match["module"]
            self._structs[module, match["name"]] = {
                part["name"]: (int(part["offset"]), self._type(part["chain"], int(part["size"]), module))
                for part in _MEMBER.finditer(match["members"])
            }
        for key, match in symbols.items():
            self._add(match, addresses.get(key))

    def find(self, name: str, module: str, function: str) -> Variable | None:
        """The variable that a name means in a function of a module: local, of the module, or global."""
        for key in ((module, function, name), (module, "", name), ("", "", name)):
            if key in self._found:
                return self._found[key]
        return None

    def anywhere(self, name: str) -> list[Variable]:
        """Every static and global variable of that name."""
        return [entry for entry in self._found.values() if entry.name == name and not entry.function]

    def locals(self, module: str, function: str) -> list[Variable]:
        """The local variables of a function, by name."""
        found = [entry for entry in self._found.values() if entry.function and entry.module == module]
        return sorted((entry for entry in found if entry.function == function), key=lambda entry: entry.name)

    @property
    def names(self) -> list[str]:
        """Of all static and global variables."""
        return sorted({variable.name for variable in self._found.values() if not variable.function})

    def _add(self, match: re.Match[str], address: int | None) -> None:
        chain = match["chain"]
        if chain.startswith("DF") or match["space"] in "IJ":
            return  # functions; the CPU's registers are facts
        module, _, function = match["owner"].partition(".")
        kind = self._type(chain, int(match["size"]), module)
        names = tuple(name for name in (match["registers"] or "").split(",") if name)
        space = "registers" if names else _SPACES.get(match["space"], "") if address is not None else ""
        entry = Variable(match["name"], kind, module, function, space, address or 0, names)
        earlier = self._found.get((module, function, entry.name))
        if earlier is None or (not earlier.space and space):
            self._found[module, function, entry.name] = entry

    def _type(self, chain: str, size: int, module: str) -> Type:
        head, _, rest = chain.partition(",")
        if head.startswith("DA"):
            count = int(head[2:].removesuffix("d"))
            return Type("array", size, target=self._type(rest, size // count if count else 0, module))
        if head == "DF":
            return Type("function", size)
        if head in _POINTERS:
            return Type("pointer", size, space=_POINTERS[head], target=self._type(rest, _size(rest), module))
        base, _, sign = head.partition(":")
        if base.startswith("ST"):
            members = self._structs.get((module, base[2:])) or self._any_struct(base[2:])
            length = max((offset + part.size for offset, part in members.values()), default=size)
            return Type("struct", size or length, name=base[2:], members=members)
        if base.startswith("SB"):
            bit, _, width = base[2:].partition("$")
            return Type("bits", size, bit=int(bit), width=max(int(width or 1), 1))
        if base == "SX":
            return Type("bit", 1)
        if base == "SF":
            return Type("float", 4)
        if base in _INTEGERS:
            return Type("integer", size or _size(chain), signed=sign == "S")
        return Type("void", size)

    def _any_struct(self, name: str) -> dict[str, tuple[int, Type]]:
        """A structure of another module, for a global variable: by their headers all are the same."""
        return next((members for (_, other), members in self._structs.items() if other == name), {})


def _size(chain: str) -> int:
    """Bytes of what a pointer points at; 0 if only its record would say (a structure)."""
    head = chain.partition(",")[0].partition(":")[0]
    return _SIZES.get(head, 0)


def beside(image: Path) -> Variables:
    """The variables in the .cdb beside an image; none if there is no such file.

    Raises:
        InvalidInput: it cannot be read.
    """
    path = image.with_suffix(".cdb")
    if not path.is_file():
        return Variables()
    try:
        return Variables(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError as problem:
        raise InvalidInput(f"cannot be read: {problem.strerror}", where=str(path)) from None

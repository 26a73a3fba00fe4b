"""C lines by address, from the listings that sdcc's linker leaves (.rst).

A .cdb has one address for each line of a block of C, the last one that the compiler emits: of
`for (first; condition; next)` that of `next`, and the code before it seems to be of another line. A listing
has a record wherever code of a line begins, in the order of the code. (Seen with sdcc 4.2; the linker puts
one symbol, as `C$main.c$17$1_0$33`, in the place of the earlier one of that name.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Record = tuple[int, str, int]
"""Address as the linker has it, file, line."""

_LINE = re.compile(
    r"^ ++(?:[0-9A-F]{6} ++\d++ \tC\$(?P<file>[^$\n]++)\$(?P<line>\d++)\$\S++ ==\.|"
    r"(?P<address>[0-9A-F]{6}) [0-9A-F]{2} |"
    r"\d++ \t\.area )",
    re.MULTILINE,
)
"""A record, an instruction, or the end of an area."""


def read(listing: str, known: Mapping[Record, int]) -> dict[Record, int]:
    """`known`, and the records of a listing.

    Args:
        listing: the contents of an .rst file; one of another build than the .cdb adds nothing.
        known: records with their places in the order of the code; all 0 as the .cdb has them.
    """
    order = max(known.values(), default=0)
    found: dict[Record, int] = {}
    listed: list[int] = []
    waiting: list[tuple[str, int]] = []
    for match in _LINE.finditer(listing):
        if match["line"]:
            waiting.append((match["file"], int(match["line"])))
            continue
        if match["address"]:
            address = int(match["address"], 16)
            listed.append(address)
            for line in waiting:
                order += 1
                found[address, *line] = order
        waiting.clear()
    lines = {(file, line) for _, file, line in found}
    span = range(min(listed, default=0), max(listed, default=0) + 1)
    same = {record for record in known if record[0] in span and record[1:] in lines}
    return {**known, **found} if same and same <= found.keys() else dict(known)

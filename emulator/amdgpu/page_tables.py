"""The walk through page tables, from a context's root to the page.

Formats: `usbgpu.amd.facts.pages`. What an entry may not hold ends the walk with a fault that says what is
wrong with it: silicon would report the same fault without words (which one: mostly a guess).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from usbgpu.amd.facts import pages
from usbgpu.amd.facts.pages import PageFormat

PAGE = 1 << pages.PAGE_SHIFT


@dataclass(frozen=True, slots=True)
class Root:
    """A context: where its tables start, and which addresses are theirs.

    Attributes:
        start: first virtual address.
        end: after the last one.
        entry: the root's own entry, as the base register holds it.
        depth: level of the root.
        ptb_shift: log2 of the entries of PTB.
    """

    start: int
    end: int
    entry: int
    depth: int
    ptb_shift: int

    def shift(self, level: int) -> int:
        """log2 of the bytes that an entry of a level maps."""
        if level == 0:
            return pages.PAGE_SHIFT
        return pages.PAGE_SHIFT + self.ptb_shift + pages.LEVEL_SHIFT * (level - 1)

    def entries(self, level: int) -> int | None:
        """How many entries a table of a level has; None if there is no limit."""
        if level == self.depth:
            return None
        return 1 << (self.ptb_shift if level == 0 else pages.LEVEL_SHIFT)


class WalkError(Exception):
    """The walk ends without a page.

    Attributes:
        fault: its name in the fault registers, such as PDE0 or VALID.
        reason: in words.
    """

    def __init__(self, fault: str, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Where:
    """An entry of a table.

    Attributes:
        level: of the table.
        address: of the entry, physical.
        system: whether that is a PCIe address.
        start: the first virtual address that it is for.
        end: after the last one.
    """

    level: int
    address: int
    system: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Page:
    """Where a walk ends.

    Attributes:
        start: first virtual address of the page.
        end: after the last one.
        target: physical address of the page.
        entry: the page's entry: its flags.
        path: the entries that were read, root first, with their values.
    """

    start: int
    end: int
    target: int
    entry: int
    path: tuple[tuple[Where, int], ...]


Fetch = Callable[[Where], int]
"""Reads an entry. Raises WalkError if it is nowhere."""


def walk(form: PageFormat, root: Root, address: int, fetch: Fetch) -> Page:
    """The page that holds a virtual address. Raises WalkError."""
    if not root.start <= address < root.end:
        raise WalkError("RANGE", f"outside of the context's {root.start:#x} to {root.end:#x}")
    if not root.entry & pages.VALID:
        raise WalkError(_name(root.depth), f"the context's base register, {root.entry:#x}, is not valid")
    offset = address - root.start
    table, path = root.entry, []
    for level in range(root.depth, -1, -1):
        _check_table(form, table, level)
        shift = root.shift(level)
        index = offset >> shift
        if (entries := root.entries(level)) is not None:
            index &= entries - 1
        start = root.start + (offset >> shift << shift)
        where = Where(
            level,
            (table & pages.ADDRESS) + index * pages.ENTRY,
            bool(table & pages.SYSTEM),
            start,
            min(start + (1 << shift), root.end),
        )
        entry = fetch(where)
        path.append((where, entry))
        if level == 0 or entry & form.leaf:
            return _page(form, where, 1 << shift, entry, tuple(path))
        if not entry & pages.VALID:
            raise WalkError(_name(level), f"{_place(where)} is not valid")
        table = entry
    raise AssertionError("the last level always ends the walk")


def _page(form: PageFormat, where: Where, size: int, entry: int, path: tuple[tuple[Where, int], ...]) -> Page:
    if not entry & pages.VALID:
        raise WalkError("VALID", f"{_place(where)} is not valid")
    text = f"{_place(where)}, {entry:#x},"
    if where.level == 0 and form.leaf_in_ptb and not entry & form.leaf:
        raise WalkError("TRANSLATE_FURTHER", f"{text} lacks the bit that marks a page")
    if entry & form.page_reserved:
        raise WalkError("NACK", f"{text} has reserved bits set: {entry & form.page_reserved:#x}")
    for name, bit in form.unmodelled.items():
        if entry & bit:
            raise WalkError("NACK", f"{text} asks for {name}, which is not modelled")
    target = entry & pages.ADDRESS
    if target & size - 1:
        raise WalkError("NACK", f"{text} maps {size:#x} bytes from {target:#x}, which is not aligned to that")
    return Page(where.start, where.end, target, entry, path)


def _check_table(form: PageFormat, entry: int, level: int) -> None:
    if entry & form.table_fragment:
        reason = f"names a block fragment size ({entry & form.table_fragment:#x}), which is not modelled"
    elif entry & form.table_reserved:
        reason = f"has reserved bits set: {entry & form.table_reserved:#x}"
    elif entry & pages.TABLE_MISALIGNED:
        reason = "is not aligned to 4 KiB"
    else:
        return
    raise WalkError(_name(level + 1), f"the pointer to a {pages.LEVELS[level]}, {entry:#x}, {reason}")


def _name(level: int) -> str:
    """The fault of an entry that should point to a table."""
    return f"PDE{min(max(level, 1), 3) - 1}"


def _place(where: Where) -> str:
    return f"the entry of {pages.LEVELS[where.level]} at {'PCIe ' * where.system}{where.address:#x}"

"""Entry points of the installed packages: targets and emulated devices are found by them."""

from __future__ import annotations

import functools
import sys
from importlib.metadata import EntryPoints, entry_points


def entries(group: str) -> EntryPoints:
    """Those of a group. Reading what all packages say of themselves takes milliseconds: once a `sys.path`."""
    return _entries(group, tuple(sys.path))


@functools.cache
def _entries(group: str, path: tuple[str, ...]) -> EntryPoints:
    return entry_points(group=group)

"""`python -m firmware.generate [--check]`: writes the files that are generated from the facts.

The files are checked in. With `--check` nothing is written, and the exit status is 1 if a file differs.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from firmware.generate import protocol, reference
from firmware.generate.header import c_header
from firmware.generate.tables import lane_table, phy_table

_ROOT = Path(__file__).parents[2]
INCLUDE = _ROOT / "firmware" / "asm2464pd" / "include"
HEADER = INCLUDE / "asm2464pd.h"
"""The C header."""
_DOCS = _ROOT / "docs"
REFERENCE = _DOCS / "asm2464pd.md"
"""The Markdown reference, in a source tree."""
PROTOCOL = _DOCS / "protocol.md"
"""The protocol's specification, likewise."""


def outputs() -> Mapping[Path, str]:
    """The right content of every generated file."""
    return {
        HEADER: c_header(),
        INCLUDE / "lane_table.h": lane_table(),
        INCLUDE / "phy_table.h": phy_table(),
        REFERENCE: reference.markdown(),
        PROTOCOL: protocol.markdown(),
    }


def differences() -> str:
    """A unified diff from the files checked in to their right content; empty if they are up to date."""
    return "".join(
        line
        for path, wanted in outputs().items()
        for line in difflib.unified_diff(
            path.read_text().splitlines(keepends=True) if path.exists() else [],
            wanted.splitlines(keepends=True),
            str(path),
            "generated",
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check the files. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m firmware.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    if parser.parse_args(argv).check:
        difference = differences()
        sys.stdout.write(difference)
        return 1 if difference else 0
    for path, text in outputs().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0

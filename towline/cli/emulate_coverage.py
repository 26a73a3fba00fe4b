"""`towline emulate --coverage FILE`: what the run reaches, added to what FILE has of the same build."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sdk.report import Console


def configure(group: Any) -> None:
    """Add the option to a group of a parser."""
    group.add_argument(
        "--coverage",
        metavar="FILE",
        help="add the lines and branches that run to FILE; `towline firmware coverage --merge` shows them",
    )


@contextlib.contextmanager
def recorded(args: argparse.Namespace, board: Any, console: Console) -> Iterator[None]:
    """Record a board that has not run yet, and write the file at the end, in every case.

    Raises:
        InvalidInput: the file exists, and is not coverage, or of another build.
        OutputFailed: it cannot be written.
    """
    if args.coverage is None:
        yield
        return
    from emulator.coverage import Coverage, Recording

    path = Path(args.coverage)
    recording = Recording(board, image=args.image)
    if path.exists():
        there = Coverage.read(path)
        if recording.build is not None:
            Coverage(recording.build, args.image).add(there, args.coverage)  # of another build: refused
    try:
        yield
    finally:
        taken = recording.taken()
        if taken is None:
            console.warn(f"{args.coverage}: not written: no firmware has run")
        else:
            taken.add_to(path)

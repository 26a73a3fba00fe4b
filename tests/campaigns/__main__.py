"""The command of a campaign; see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.campaigns.campaign import HEAD, run
from tests.campaigns.surfaces import SURFACES


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns", description="attack one of Towline's surfaces"
    )
    parser.add_argument(
        "surface", nargs="*", help=f"of {', '.join(SURFACES)}; none lists them, 'all' takes each"
    )
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--journal", type=Path, help="where the ended cases stand (default: campaign.jsonl)")
    parser.add_argument(
        "--inline", action="store_true", help="in this process, with the exceptions of a case"
    )
    options = parser.parse_args()
    if not options.surface:
        for surface in SURFACES.values():
            print(f"{surface.name:14} {surface.what}")
        return 0
    names = list(SURFACES) if options.surface == ["all"] else options.surface
    if unknown := [name for name in names if name not in SURFACES]:
        parser.error(f"no surface {', '.join(unknown)}; there are {', '.join(SURFACES)}")
    journal = None if options.inline else options.journal or Path("campaign.jsonl")
    rows, found = [], 0
    for name in names:
        numbers = range(options.first, options.first + options.cases)
        for tally in run(SURFACES[name], numbers, options.seed, journal, options.inline):
            if sys.stderr.isatty():
                print(f"\r{name}: {tally.counts.total()} of {options.cases}", end="", file=sys.stderr)
        for number, verdict, detail in tally.found:
            print(f"{name} {number}: {verdict}: {detail}")
        found += len(tally.found)
        if tally.memory:
            print(f"{name}: at most {tally.memory >> 20} MiB resident", file=sys.stderr)
        rows.append(tally.row(SURFACES[name]))
    print(HEAD, *rows, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""`towline gpu replay`: run a captured dispatch again, by itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from sdk.errors import CheckFailed
from sdk.extras import require
from sdk.report import Console, Result, table

SUMMARY = "run a captured dispatch alone, and compare what it writes with what it wrote then"
EXAMPLE = "towline gpu replay gemm.capture"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file that `towline gpu capture` wrote")


def run(args: argparse.Namespace, console: Console) -> Result:
    require("cffi", extra="emulator")
    from emulator.amdgpu import capture

    recorded = capture.load(Path(args.file))
    replayed = capture.replay(recorded)
    then, now, differences = recorded.outcome, replayed.outcome, replayed.differences
    document = {
        "file": args.file,
        "chip": recorded.chip,
        "kernel": recorded.kernel,
        "waves": now.waves,
        "instructions": dict(now.instructions),
        "read": now.read,
        "written": now.written,
        "fault": now.fault.text if now.fault else None,
        "differences": len(differences),
    }
    kinds = sorted(set(then.instructions) | set(now.instructions))
    rows = [(kind, then.instructions.get(kind, 0), now.instructions.get(kind, 0)) for kind in kinds]
    rows += [("waves", then.waves, now.waves), ("bytes read", then.read, now.read)]
    rows += [("bytes written", then.written, now.written)]
    text = f"{recorded.kernel} on {recorded.chip}\n" + table(("", "recorded", "replayed"), rows)
    if now.fault:
        text += f"\nended by a fault: {now.fault.text}"
    same_end = (then.fault is None) == (now.fault is None)
    if not differences and same_end:
        return Result(document, f"{text}\nthe same bytes were written")
    what = (
        f"{len(differences)} bytes differ, the first at {differences[0]:#x}"
        if differences
        else "one run ended by a fault and the other did not"
    )
    return Result(document, text, CheckFailed(what, where=args.file))

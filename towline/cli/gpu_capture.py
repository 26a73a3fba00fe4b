"""`towline gpu capture`: run a kernel of the benchmark's set and store all that the run needs."""

from __future__ import annotations

import argparse

from sdk import files
from sdk.extras import require
from sdk.report import Console, Result, size
from towline.cli.options import require_directory

SUMMARY = "run a kernel on the emulated shader engines and write its code, arguments and buffers to a file"
EXAMPLE = "towline gpu capture gemm_dot4 --chip gfx1201 -o gemm.capture"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="KERNEL", help="one of the kernels of `towline bench gpu`")
    parser.add_argument("--chip", default="gfx1100", metavar="NAME", help="the GPU (default: gfx1100)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where the capture goes")


def run(args: argparse.Namespace, console: Console) -> Result:
    require("cffi", extra="emulator")
    from emulator.amdgpu import capture
    from towline.cli.benchmarks.gpu import Runner

    require_directory(args.output)
    recorded, mismatches = Runner(args.chip).capture(args.kernel)
    data = capture.pack(recorded)
    files.write(args.output, data)
    outcome = recorded.outcome
    document = {
        "file": args.output,
        "chip": args.chip,
        "kernel": args.kernel,
        "bytes": len(data),
        "memory": sum(len(part) for _, part in recorded.memory),
        "writes": sum(len(part) for _, part in outcome.writes),
        "waves": outcome.waves,
        "instructions": dict(outcome.instructions),
        "mismatches": mismatches,
    }
    text = (
        f"{args.kernel} on {args.chip}: {outcome.waves} waves, {outcome.total:,} wave-instructions, "
        f"{size(document['memory'])} of memory\nwritten: {args.output} ({size(len(data))}); "
        f"run it again with `towline gpu replay {args.output}`"
    )
    return Result(document, text)

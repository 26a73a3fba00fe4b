"""`towline bench c NET`: the exported C's time beside onnxruntime's and LiteRT's, by compiler and flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sdk import artifact, compiler, files
from sdk.artifact import Artifact
from sdk.errors import CheckFailed, UsageError
from sdk.report import Console, Result, table
from sdk.zoo.benchmark import benchmark, require_name
from towline.cli.options import MODEL, TOW, require_suffix

PORTABLE = "-O2"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `bench c` alone."""
    group = parser.add_argument_group("of c")
    group.add_argument(
        "network", metavar="NET", nargs="?", help="the network: a .tow for c, an .onnx, or a name of the zoo"
    )
    group.add_argument(
        "--model", metavar="FILE", help="the .onnx that a .tow was made from, for onnxruntime's time"
    )
    group.add_argument("--tflite", metavar="FILE", help="the same network as .tflite, for LiteRT's time")
    group.add_argument(
        "--cc", metavar="COMPILER", action="append", default=[], help="such as gcc; may be repeated"
    )
    meaning = "such as --cflags='-O3 -march=native'; may be repeated"
    group.add_argument("--cflags", metavar="FLAGS", action="append", default=[], help=meaning)


def refuse(args: argparse.Namespace) -> None:
    """Raises UsageError: an option of c with another subject."""
    if args.network or args.model or args.tflite or args.cc or args.cflags:
        raise UsageError(
            "a second network, --model, --tflite, --cc and --cflags are for c",
            hint="towline bench c net.tow --model q.onnx",
        )


def run(args: argparse.Namespace, console: Console) -> Result:
    """Measure; the document has medians in milliseconds.

    `milliseconds.{towline,onnxruntime,litert}`: of the fastest build, and None without a file for them;
    `ratio_to_onnxruntime`, `text_bytes` and `kernels` of that build; `builds[]` has all, `portable` the
    slowest one at -O2.

    Raises:
        UsageError: no network, or one that is not for c.
        CheckFailed: a build's results differ.
    """
    from towline.cli.benchmarks import c

    if args.network is None:
        raise UsageError("no network was given", hint="towline bench c mobilenet_v2_1.0_224")
    chosen = c.builds(args.cc, args.cflags)
    for given in filter(None, (args.model, args.tflite)):
        if not Path(given).is_file():
            raise UsageError("no such file", where=given)
    tflite = args.tflite or (args.network if args.network.lower().endswith(".tflite") else None)
    with files.scratch_directory() as directory:
        network, model = _network(args, directory)
        found = c.measure(network, model, None if tflite is None else Path(tflite), chosen, console.note)
    builds = [one for one in found if one.text_bytes is not None]
    others = {one.name: one.median for one in found if one.text_bytes is None}
    ort, litert = others.get("onnxruntime"), others.get("LiteRT")
    best = min(builds, key=lambda one: one.median)
    document: dict[str, Any] = {
        "milliseconds": {"towline": best.median, "onnxruntime": ort, "litert": litert},
        "ratio_to_onnxruntime": None if ort is None else best.median / ort,
        "text_bytes": best.text_bytes,
        "kernels": best.kernels,
        "builds": [
            {
                "build": one.name,
                "kernels": one.kernels,
                "milliseconds": one.median,
                "ratio_to_onnxruntime": None if ort is None else one.median / ort,
                "text_bytes": one.text_bytes,
                "different": one.different,
            }
            for one in builds
        ],
    }
    rows = [
        (
            one.name,
            one.kernels or "",
            round(one.median, 2),
            None if ort is None else round(one.median / ort, 2),
            one.text_bytes,
            one.different,
        )
        for one in found
    ]
    headers = ("", "kernels", "ms", "x onnxruntime", "text bytes", "different")
    text = f"{table(headers, rows)}\n\nmedians of the processor's time, one thread, all in this run"
    wrong = [one.name for one in builds if one.different]
    failure = CheckFailed(f"results differ: {', '.join(wrong)}") if wrong else None
    return Result(document, text, failure)


def _network(args: argparse.Namespace, directory: Path) -> tuple[Artifact, Path | None]:
    """The network compiled for c, and its ONNX file if there is one."""
    from towline.cli.benchmarks.c import source_beside

    require_name(args.network)
    model = None if args.model is None else Path(args.model)
    built = benchmark(args.network, directory)
    path = built or Path(args.network)
    if built is None:
        require_suffix(args.network, TOW | MODEL)
    if path.suffix.lower() in MODEL:
        return compiler.compile(path, "c"), model or (path if path.suffix.lower() == ".onnx" else None)
    network = artifact.load(path)
    if network.target != "c" or len(network.programs) != 1:
        raise UsageError(f"it is for {network.target}", where=args.network, hint="compile it with --target c")
    return network, model or source_beside(network, path)

"""`towline bench driving --target amd-*`: what the driving network costs on a GPU over USB."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from sdk import files, settings, toolchain
from sdk.errors import CheckFailed, UsageError
from sdk.extras import require
from sdk.report import Console, size, table
from towline.cli.runtime import logged, open_options

SUBJECT = "driving"
DEFAULT = "50m"
STEPS = 10
TARGET = "amd-"
"""Targets of which it is measured begin so; of others, driving is a network of the zoo like any."""

GOALS = {
    "load.share_of_link": ">= 90",
    "step.virtual_ms_median": "<= 6",
    "step.transfers": "<= 6",
    "outside": "0",
    "compile_seconds": "<= 30",
    "compile_warm_seconds": "<= 3",
}
"""Of the network of 50 million parameters, on two cores."""


def run(
    args: argparse.Namespace, console: Console
) -> tuple[dict[str, Any], str, dict[str, Any], CheckFailed | None]:
    """The document, the same as text, the exact counts for a baseline, and why the outcome is bad, if it is.

    Raises:
        UsageError: an unknown size, or a wrong number of steps.
        EnvironmentMissing, ToolMissing, DeviceFailed, CheckFailed: as `measure`.
    """
    require("cffi", extra="emulator")
    from towline.cli.benchmarks import driving
    from usbgpu import emulation

    chosen = args.size[-1] if args.size else DEFAULT
    if len(args.size) > 1 or chosen not in driving.SIZES:
        given, sizes = " ".join(args.size), ", ".join(driving.SIZES)
        raise UsageError(f"there is no size {given!r}", hint=f"one of {sizes}")
    with files.scratch_directory() as directory, logged(console):
        console.note(f"compiling {driving.SIZES[chosen]} for {args.target}, twice")
        model, network, seconds = driving.compiled(chosen, args.target, directory)
        device = args.device or settings.DEVICE.value()
        if device is None:
            device = f"emulated?gpu={args.target.removeprefix(TARGET)}&vram={driving.memory(network)}"
        found = driving.measure(
            network,
            model,
            emulation.with_card(device, args.target.removeprefix(TARGET)),
            open_options(args),
            args.steps or STEPS,
            not args.no_check,
            console.progress,
        )
    document = {"target": args.target, "size": chosen, **seconds, **found}
    failure = None
    if found["outside"] or found["mismatches"]:
        failure = CheckFailed(
            f"{found['outside'] + found['mismatches']:,} elements are not what the definition allows",
            where=SUBJECT,
            hint="`towline run --check` names the layer",
        )
    return document, text(document), counts(document), failure


def counts(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is the same in every run, as a baseline holds it; virtual times in microseconds."""
    step, load = document["step"], document["load"]
    exact = {
        "weights_bytes": document["weights_bytes"],
        "load.virtual_us": round(1e6 * load["virtual_s"]),
        "step.virtual_us_median": round(1e3 * step["virtual_ms_median"]),
        "step.virtual_us_worst": round(1e3 * step["virtual_ms_worst"]),
        **{f"step.{name}": step[name] for name in ("transfers", "bytes_in", "bytes_out")},
        "launches": document["launches"],
        "wave_instructions": document["wave_instructions"],
    }
    tools = ("clang", "lld", "sdcc")
    return {
        "target": f"{document['target']}, driving {document['size']}",
        "toolchain": {tool: toolchain.version(tool) for tool in tools},
        "counts": {name: count for name, count in exact.items() if count is not None},
    }


def text(document: Mapping[str, Any]) -> str:
    """The document as a table, beside the goals of the network of 50 million parameters."""
    goals = GOALS if document["size"] == DEFAULT else {}
    found = [(title, _shown(document, key, unit), unit, goals.get(key, "")) for title, key, unit in ROWS]
    rows = [row for row in found if row[1] is not None]
    head = f"driving {document['size']} on {document['target']}, weights {size(document['weights_bytes'])}:"
    headers = ("", "measured", "", "goal")
    return f"{head}\n{table(headers if goals else headers[:3], rows if goals else [row[:3] for row in rows])}"


ROWS = (
    ("compile, empty kernel cache", "compile_seconds", "s"),
    ("compile again", "compile_warm_seconds", "s"),
    ("first step, with the weights", "load.virtual_s", "virtual s"),
    ("  the weights alone at 700 MB/s, of that", "load.share_of_link", "%"),
    ("a step, median", "step.virtual_ms_median", "virtual ms"),
    ("  worst", "step.virtual_ms_worst", "virtual ms"),
    ("  transfers", "step.transfers", ""),
    ("  to the card", "step.bytes_in", "bytes"),
    ("  from the card", "step.bytes_out", "bytes"),
    ("steps, four in flight", "pipelined.frames_per_virtual_s", "a virtual s"),
    ("launches", "launches", ""),
    ("wave-instructions", "wave_instructions", ""),
    ("  of these WMMA", "wmma_share", "%"),
    ("elements outside their bound", "outside", ""),
    ("  largest share of the bound", "worst_share", "%"),
)


def _shown(document: Mapping[str, Any], key: str, unit: str) -> Any:
    """The value; None if it was not counted."""
    found: Any = document
    for part in key.split("."):
        found = found[part]
    return 100 * found if unit == "%" and found is not None else found

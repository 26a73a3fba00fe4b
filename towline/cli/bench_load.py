"""`towline bench load`: the weights of a network of any size on their way to a card."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from sdk import files
from sdk.errors import CheckFailed, UsageError
from sdk.report import Console, Result, size, table
from sdk.targets import get_target
from towline.cli.runtime import firmware_directory, logged

TARGET, BYTES = "amd-gfx1100", "512M"


def run(args: argparse.Namespace, console: Console) -> Result:
    """Make a network with so many bytes of weights, and load it.

    Raises:
        UsageError: the target has no card, no such device, too few bytes.
        Unsupported: the card has too little memory.
    """
    from emulator.options import memory_size
    from towline.cli.benchmarks import load
    from usbgpu import emulation
    from usbgpu.target.target import AmdTarget

    target = get_target(args.target or TARGET)
    if not isinstance(target, AmdTarget):
        raise UsageError(f"{target.name} is not a card: its weights cross no link", hint=f"--target {TARGET}")
    nbytes = memory_size(args.bytes or BYTES)
    device = emulation.with_card(args.device, target.name.removeprefix("amd-"), load.room(nbytes))
    firmware = firmware_directory(args)
    with files.scratch_directory() as directory, logged(console):
        path = directory / "load.tow"
        console.note(f"loading {size(nbytes)} of weights onto {device}")
        load.make(target, nbytes, path)
        found = load.measure(path, device, firmware)
    failure = CheckFailed(f"{found['mismatches']} wrong elements") if found["mismatches"] else None
    return Result(found, text(found), failure)


def text(found: Mapping[str, Any]) -> str:
    """What `measure` has found, as text."""
    rows = [
        ("weights", size(found["bytes"])),
        ("first inference, which brings them", f"{found['virtual_s']:.3f} s of the device"),
        ("share of the link's 700 MB/s", f"{found['share_of_link']:.1%}"),
        ("transfers", f"{found['transfers']:,}"),
        ("host: reading the file, and that inference", f"{found['host_seconds']:.1f} s"),
        ("host: most memory meanwhile", _memory(found["peak_rss_bytes"])),
        ("host: memory before", _memory(found["base_rss_bytes"])),
        ("the emulated card's memory, not counted above", _memory(found["vram_rss_bytes"])),
        ("elements that differ from the reference", str(found["mismatches"])),
    ]
    return table((found["target"], ""), rows)


def _memory(nbytes: int | None) -> str:
    return "unknown" if nbytes is None else size(nbytes)

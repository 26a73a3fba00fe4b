"""`towline emulate --vcd` and `--trace-out`: what the board does over time, as files that viewers open."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from sdk.errors import UsageError


def configure(group: Any) -> None:
    """Add the options to a group of a parser."""
    group.add_argument(
        "--vcd", metavar="FILE", help="write registers, interrupts and link events as waveforms (GTKWave)"
    )
    group.add_argument(
        "--vcd-signals",
        metavar="LIST",
        help="which, by names and patterns: blocks, registers, fields (usb, TLP_STATUS, PCIE_LTSSM.STATE, "
        "'USB_LINK_*', CPU_IE.EA); default: interrupts and link state",
    )
    group.add_argument(
        "--trace-out",
        metavar="FILE",
        help="write a timeline of functions, interrupts, DMA, TLPs, USB transfers and the card's queues "
        "(ui.perfetto.dev)",
    )


def check(args: argparse.Namespace) -> None:
    """Refuse options that cannot be combined.

    Raises:
        UsageError: an option lacks the one it belongs to.
    """
    if args.vcd_signals is None:
        return
    if args.vcd is None:
        raise UsageError("--vcd-signals chooses what --vcd shows: give --vcd too")
    from emulator import waves

    waves.choose(_names(args))


def observe(args: argparse.Namespace, board: Any, stack: contextlib.ExitStack) -> None:
    """Write what the options ask for until the stack unwinds.

    Raises:
        EnvironmentMissing: pyvcd is not installed.
        OutputFailed: a file cannot be written.
    """
    if args.vcd is not None:
        from emulator import waves

        stack.enter_context(waves.recorded(board, args.vcd, _names(args)))
    if args.trace_out is not None:
        from emulator import timeline

        stack.enter_context(timeline.recorded(board, args.trace_out))


def _names(args: argparse.Namespace) -> list[str]:
    from emulator import waves

    if args.vcd_signals is None:
        return list(waves.DEFAULT)
    names = [name.strip() for name in args.vcd_signals.split(",") if name.strip()]
    if not names:
        raise UsageError("--vcd-signals needs a list that is not empty")
    return names

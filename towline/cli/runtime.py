"""What commands that open a device have in common: which one, its firmware, and what is logged meanwhile."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sdk import settings
from sdk.errors import UsageError
from sdk.report import Console

if TYPE_CHECKING:
    from sdk.target import OpenOptions

RUNTIMES = ("usbgpu", "dsp")
"""Whose logs -v shows."""


def add_device(parser: argparse.ArgumentParser, *, power_cap: bool = True) -> None:
    """Declare --device and --firmware; and --power-cap and --verify-transfers, as `open_options` needs."""
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="where to run: emulated, usb, usb:SERIAL, usb:port=2-1.4, usb:fd=N, opencl, opencl:N, fastrpc "
        f"(not yet run on hardware); default: {settings.DEVICE.name}, or emulated",
    )
    _add_firmware(parser)
    if power_cap:
        _add_power_cap(parser)
        parser.add_argument(
            "--verify-transfers",
            action="store_true",
            help="compare the inputs and outputs of every inference with what is in an AMD card's memory, "
            "and report the time that it takes; code and weights are always compared",
        )


GPU_DEVICES = (
    "the bridge: emulated, emulated?gpu=gfx1201, usb, usb:SERIAL, usb:port=2-1.4, usb:fd=N, replay:FILE; "
    f"default: {settings.DEVICE.name}, or emulated"
)


def add_gpu_device(parser: argparse.ArgumentParser, meaning: str = GPU_DEVICES) -> None:
    """Declare --device, of those that may have a card, and --firmware."""
    parser.add_argument("--device", metavar="DEVICE", help=meaning)
    _add_firmware(parser)


def _add_firmware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--firmware",
        metavar="DIR",
        help=f"an AMD card's firmware files (default: {settings.FIRMWARE.name}, or "
        f"{settings.FIRMWARE.default})",
    )


def _add_power_cap(parser: argparse.ArgumentParser) -> None:
    from towline.cli.options import watts

    parser.add_argument(
        "--power-cap",
        type=watts,
        metavar="WATTS",
        help="the most that an AMD card's board may draw, as 100W: its clocks are lowered for that (default: "
        "the card's own limit)",
    )


def firmware_directory(args: argparse.Namespace) -> Path | None:
    """The directory that --firmware or TOWLINE_FIRMWARE names; None if neither does.

    Raises:
        UsageError: it is not a directory.
    """
    given = args.firmware or settings.FIRMWARE.value()
    if not given:
        return None
    if not Path(given).is_dir():
        how = "--firmware" if args.firmware else settings.FIRMWARE.name
        raise UsageError(
            "it is not a directory",
            where=f"{how} {given}",
            hint="name the directory that holds the card's .bin files",
        )
    return Path(given)


def open_options(args: argparse.Namespace) -> OpenOptions:
    """What --firmware, or TOWLINE_FIRMWARE, --power-cap and --verify-transfers choose for the device to open.

    Raises:
        UsageError: as `firmware_directory`.
    """
    from sdk.target import OpenOptions

    return OpenOptions(firmware_directory(args), args.power_cap, args.verify_transfers)


class _Details(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """A line on stderr."""
        self._console.detail(record.getMessage())


@contextmanager
def logged(console: Console) -> Iterator[None]:
    """While the block runs, -v shows on the console what runtimes log."""
    if not console.verbose:
        yield
        return
    loggers, handler = [logging.getLogger(name) for name in RUNTIMES], _Details(console)
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # warnings would be shown twice
    try:
        yield
    finally:
        for logger, (level, propagated) in zip(loggers, before, strict=True):
            logger.propagate = propagated
            logger.setLevel(level)
            logger.removeHandler(handler)


@contextmanager
def emulator_warnings(show: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, show what the emulator warns of: `Console.warn`, or what counts them first."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: show(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("emulator")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)

"""What commands that open a device have in common: which one, its firmware, and what its runtime logs."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sdk.errors import UsageError
from sdk.report import Console

FIRMWARE_VARIABLE = "TOWLINE_FIRMWARE"
"""Directory of a card's firmware files: what `usbgpu.target` reads when it opens one."""
RUNTIMES = ("usbgpu", "dsp")
"""Whose logs are told with -v."""


def add_device(parser: argparse.ArgumentParser) -> None:
    """Declare --device and --firmware."""
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="where to run: emulated, usb, usb:SERIAL, usb:fd=N, opencl, opencl:N, fastrpc (not yet run on "
        "hardware); default: TOWLINE_DEVICE, or emulated",
    )
    _add_firmware(parser)


def add_gpu_device(parser: argparse.ArgumentParser) -> None:
    """Declare --device, of those that may have a card, and --firmware."""
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="the bridge: emulated, emulated?gpu=gfx1201, usb, usb:SERIAL, usb:fd=N, replay:FILE; default: "
        "TOWLINE_DEVICE, or emulated",
    )
    _add_firmware(parser)


def _add_firmware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--firmware",
        metavar="DIR",
        help="an AMD card's firmware files (default: TOWLINE_FIRMWARE, or /lib/firmware/amdgpu)",
    )


def firmware_directory(args: argparse.Namespace) -> Path | None:
    """The directory that --firmware or TOWLINE_FIRMWARE names; None if neither does.

    Raises:
        UsageError: it is none.
    """
    given = args.firmware or os.environ.get(FIRMWARE_VARIABLE)
    if not given:
        return None
    if not Path(given).is_dir():
        how = "--firmware" if args.firmware else FIRMWARE_VARIABLE
        raise UsageError("is no directory", where=f"{how} {given}")
    return Path(given)


@contextmanager
def runtime(args: argparse.Namespace, console: Console) -> Iterator[None]:
    """While the block runs, devices find their firmware, and with -v the console has what runtimes log.

    Raises:
        UsageError: as `firmware_directory`.
    """
    before = os.environ.get(FIRMWARE_VARIABLE)
    if (directory := firmware_directory(args)) is not None:
        os.environ[FIRMWARE_VARIABLE] = str(directory)
    try:
        with _told(console):
            yield
    finally:
        if before is None:
            os.environ.pop(FIRMWARE_VARIABLE, None)
        else:
            os.environ[FIRMWARE_VARIABLE] = before


class _Details(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """A line on stderr."""
        self._console.detail(record.getMessage())


@contextmanager
def _told(console: Console) -> Iterator[None]:
    if not console.verbose:
        yield
        return
    loggers, handler = [logging.getLogger(name) for name in RUNTIMES], _Details(console)
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # warnings would be told twice
    try:
        yield
    finally:
        for logger, (level, propagated) in zip(loggers, before, strict=True):
            logger.propagate = propagated
            logger.setLevel(level)
            logger.removeHandler(handler)

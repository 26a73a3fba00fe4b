"""`towline firmware monitor`: follow a board: its UART, and what its firmware reports as it changes.

The UART comes from the emulator, or on a real board from its debug port (an FT230X, 921,600 baud, 8O1 as the
chip sets it at power-on and 8N1 once the firmware has cleared the parity): `--uart /dev/ttyUSB0`. What the
firmware reports is polled: INFO of ours, registers by E4 of a compatible one.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sdk.errors import DeviceFailed, DeviceMissing, InvalidInput, Unsupported, UsageError
from sdk.report import Console, Result, dumps, write_stdout
from towline.cli.firmware_info import add_board, in_short
from towline.cli.gpu_stress import duration

if TYPE_CHECKING:
    from usbgpu.bridge.health import Health
    from usbgpu.transport import Transport

SUMMARY = "follow a board: its UART, and what its firmware reports as it changes; Ctrl-C ends it"
EXAMPLE = """towline firmware monitor --device usb
towline firmware monitor --device usb --uart /dev/ttyUSB0
towline firmware monitor --device 'emulated?inject=pcie-drop@1s+50ms' --for 2s"""

INTERVAL = 0.2
RETURN_SECONDS = 5.0
"""How long the return of a board is waited for before that is said once more."""
CHUNK = 4096


def configure(parser: argparse.ArgumentParser) -> None:
    add_board(parser)
    parser.add_argument("--uart", metavar="TTY", help="the board's debug port, such as /dev/ttyUSB0")
    parser.add_argument(
        "--for", dest="seconds", metavar="TIME", type=duration, help="end after this time of the device: 10s"
    )
    parser.add_argument(
        "--interval",
        metavar="TIME",
        type=duration,
        default=INTERVAL,
        help=f"between two polls (default: {INTERVAL:g}s)",
    )


@dataclass
class _Show:
    """Prints events as lines: of text, or of JSON.

    Attributes:
        json: of JSON.
        began: seconds of the device's clock from which times count.
        counts: events by kind.
    """

    json: bool
    began: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    _rest: str = ""

    def event(self, at: float, kind: str, text: str, **values: Any) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        at -= self.began
        if self.json:
            write_stdout(dumps({"time": at, "event": kind, "text": text, **values}, line=True) + "\n")
        else:
            write_stdout(f"{at:10.3f}  {kind:<5} {text}\n")

    def uart(self, at: float, data: bytes, *, last: bool = False) -> None:
        """Whole lines of the UART; at the end the rest of one too."""
        *lines, self._rest = (self._rest + data.decode("ascii", "backslashreplace")).split("\n")
        if last and self._rest:
            lines, self._rest = [*lines, self._rest], ""
        for line in lines:
            self.event(at, "uart", line.rstrip("\r"))


def run(args: argparse.Namespace, console: Console) -> Result:
    from usbgpu import transport as transports
    from usbgpu.transport import Running

    if args.uart is not None and not os.path.exists(args.uart):
        raise UsageError("no such file", where=f"--uart {args.uart}")
    show = _Show(console.json)
    console.lines = True
    with transports.open(args.device) as device, _uart(args.uart) as port:
        found = device.identify()
        if found.running not in (Running.OURS, Running.COMPATIBLE):
            raise Unsupported(
                f"{found.running.value} does not report its state",
                where=device.name,
                hint="`towline firmware info` shows what is known of it",
            )
        show.began = began = device.clock.now()
        show.event(began, "board", in_short(found), running=found.running.value, serial=found.serial)
        with contextlib.suppress(KeyboardInterrupt):
            _follow(device, found.running, port, args.interval, began + (args.seconds or math.inf), show)
        seconds = device.clock.now() - began
        show.uart(device.clock.now(), _sent(device, port), last=True)
    document = {"device": device.name, "seconds": seconds, "events": show.counts}
    listed = ", ".join(f"{count} {kind}" for kind, count in show.counts.items())
    return Result(document, f"{seconds:10.3f}  ends  {listed} events" if not console.json else "")


def _follow(
    device: Transport, running: Any, port: int | None, interval: float, end: float, show: _Show
) -> None:
    from usbgpu.bridge import health

    last: Health | None = None
    while True:
        try:
            show.uart(device.clock.now(), _sent(device, port))
            now = health.ask(device, running)
            _changes(last, now, show)
            last = now
        except DeviceFailed as problem:
            show.event(device.clock.now(), "gone", str(problem))
            if not _returned(device, end, show):
                return
        left = end - device.clock.now()
        if left <= 0:
            return
        device.clock.sleep(min(interval, left))


def _changes(last: Health | None, now: Health, show: _Show) -> None:
    """What differs from the last report."""
    if last is not None and now.uptime is not None and last.uptime is not None and now.uptime < last.uptime:
        show.event(now.at, "start", f"the firmware started again {now.uptime:.2f} s ago")
        last = None
    if last is None or now.link != last.link:
        show.event(now.at, "pcie", f"link {now.link}", link_up=now.link_up, ltssm=now.ltssm)
    if last is not None and now.links_lost != last.links_lost:
        show.event(now.at, "pcie", f"the link was lost {now.links_lost} times", links_lost=now.links_lost)
    if now.sequence is not None and (last is None or now.sequence != last.sequence):
        show.event(now.at, "lists", f"last number {now.sequence}", sequence=now.sequence)
    if now.failure and (last is None or now.failure != last.failure):
        show.event(now.at, "error", now.failure)


def _returned(device: Transport, end: float, show: _Show) -> bool:
    """Wait for a board that is away, until the end; whether it is back."""
    from usbgpu.transport import Disconnected

    while True:
        left = end - device.clock.now()
        if left <= 0:
            return False
        try:
            device.identify()
        except Disconnected:
            with contextlib.suppress(Disconnected, DeviceMissing):
                device.reopen(min(left, RETURN_SECONDS))
                show.event(device.clock.now(), "back", f"in {device.place}")
                return True
            show.event(device.clock.now(), "away", "still not back")
        except DeviceFailed:  # it is there, and does not answer
            device.clock.sleep(min(left, INTERVAL))
        else:
            return True


# -- the UART -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _uart(path: str | None) -> Iterator[int | None]:
    """The debug port, open and set up; None if none was given."""
    if path is None:
        yield None
        return
    import termios

    try:
        port = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as problem:
        raise InvalidInput(f"cannot be opened: {problem.strerror}", where=path) from None
    try:
        with contextlib.suppress(termios.error):  # a pipe or a file, which has no speed
            settings = termios.tcgetattr(port)
            settings[0:4] = 0, 0, termios.CS8 | termios.CREAD | termios.CLOCAL, 0
            settings[4] = settings[5] = termios.B921600
            termios.tcsetattr(port, termios.TCSANOW, settings)
        yield port
    finally:
        os.close(port)


def _sent(device: Transport, port: int | None) -> bytes:
    """What the UART has sent since the last time."""
    if port is None:
        return device.emulation.uart() if device.emulation is not None else b""
    with contextlib.suppress(BlockingIOError):
        return os.read(port, CHUNK)
    return b""

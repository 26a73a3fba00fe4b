"""`towline gpu top`: the figures of a card while it works: power, temperatures, link, cable, supply, frames.

They are those that the process which owns the bridge publishes; a card without an owner is opened, and
measured here.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from sdk.errors import DeviceFailed, DeviceMissing, UsageError
from sdk.report import SCHEMA, Console, Result, dumps, size, table, write_stdout
from sdk.telemetry.metrics import is_figure, understood
from towline.cli.gpu_info import CLOCKS
from towline.cli.options import duration, positive
from towline.cli.runtime import add_gpu_device, firmware_directory
from towline.cli.stream_show import live_display

if TYPE_CHECKING:
    from sdk.telemetry.reader import Published
    from usbgpu.amd.gpu import Gpu

SUMMARY = "show power, clocks, temperatures, link, supply and frames of a card while it works"
EXAMPLE = """towline gpu top
towline gpu top --device usb-2-1.4 --json --count 10
towline gpu top --list"""

INTERVAL = 1.0
"""Seconds between two readings of a card that is opened here."""
LOOK = 0.2
"""Seconds between two looks for something that publishes."""
SHOWN = ("GFXCLK", "UCLK", "FCLK")
"""Clocks for which a line has room; --json has all."""
SILENCE = 3.0
"""Seconds without a line after which the view says so."""
START = "a running `towline stream NET.tow` publishes (in Python: Stream or Session with publish=True)"
OPEN = "--device usb opens a card that no process has"


class Source(Protocol):
    """Where lines come from.

    Attributes:
        about: whose they are.
        ended: why there are no more; None while there are.
    """

    about: Mapping[str, Any]
    ended: str | None

    def line(self, seconds: float) -> Mapping[str, Any] | None:
        """The next line, if there is one within these seconds."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_gpu_device(
        parser,
        "name, device string, serial number, place or process id of a publisher; or a bridge to "
        "open: usb, emulated?gpu=gfx1201 (default: the only one that publishes)",
    )
    parser.add_argument("--count", type=positive, metavar="N", help="end after N lines")
    parser.add_argument(
        "--wait", type=duration, default=0.0, metavar="TIME", help="how long to wait for a publisher: 30s"
    )
    parser.add_argument("--list", action="store_true", help="list the processes that publish, and end")


def run(args: argparse.Namespace, console: Console) -> Result:
    if args.list:
        return _listed()
    console.lines = args.json
    with _source(args) as source:
        view = _view(args.json)
        shown, interrupted = 0, False
        try:
            for line in _lines(source, view):
                view.show(line)
                shown += 1
                if shown == args.count:
                    break
        except KeyboardInterrupt:
            interrupted = True
        finally:
            view.close()
        return _ended(source, shown, interrupted, console)


def _ended(source: Source, shown: int, interrupted: bool, console: Console) -> Result:
    from towline.cli import Interrupted

    document = {"publisher": dict(source.about), "lines": shown, "ended": source.ended}
    bad = Interrupted("interrupted") if interrupted else None
    if source.ended is not None:
        console.note(_printable(f"{source.about['name']}: {source.ended}").replace("\n", " "))
    return Result(document, "", bad)


def _listed() -> Result:
    from sdk.telemetry.reader import published

    found = published()
    document = {"publishers": [dict(one.about) for one in found]}
    if not found:
        return Result(document, f"nothing publishes; {START}")
    rows = [
        [_printable(str(one.about.get(key) or "")) for key in ("name", "device", "serial", "target", "pid")]
        for one in found
    ]
    return Result(document, table(("name", "device", "serial", "target", "process"), rows))


# -- sources ------------------------------------------------------------------------------------------------


def _source(args: argparse.Namespace) -> _Closing:
    """What --device names: a process that publishes, or else a card.

    Raises:
        DeviceMissing: nothing publishes, and no card is named.
        UsageError: several do.
        TowlineError: the card cannot be opened.
    """
    from sdk.telemetry.reader import Reader

    end = time.monotonic() + args.wait
    while not (found := _found(args.device)) and time.monotonic() < end:
        time.sleep(LOOK)
    if not found and args.device is not None:
        return _Card(args)
    if not found:
        raise DeviceMissing("nothing publishes here", hint=f"{START}; {OPEN}")
    if len(found) > 1:
        raise UsageError(f"{len(found)} processes publish", hint=f"choose one: --device {_choices(found)}")
    return Reader(found[0].path)


def _found(device: str | None) -> list[Published]:
    """What publishes now, of that device if one is named."""
    from sdk.telemetry.reader import published

    found = published()
    if device is None:
        return found
    called = [one for one in found if one.is_called(device)]
    return called or [one for one in found if one.is_kind(device)]


def _choices(found: Sequence[Published]) -> str:
    named = [f"{one.about['name']} ({one.about['device']}, process {one.about['pid']})" for one in found]
    return _printable(" or ".join(named))


class _Closing(Source, AbstractContextManager["_Closing"], Protocol):
    """A source that is closed behind a block."""


class _Card:
    """A card that is opened for this. Raises as `towline.open_gpu`."""

    ended: str | None = None

    def __init__(self, args: argparse.Namespace) -> None:
        from towline.gpu import open_gpu

        self._gpu: Gpu = open_gpu(args.device, firmware=firmware_directory(args))
        identity = self._gpu.identity()
        self.about: Mapping[str, Any] = {
            "name": identity.place,
            "pid": None,
            "device": args.device,
            "place": identity.place,
            "serial": identity.serial,
            "chip": identity.chip,
        }
        self._next = time.monotonic()

    def __enter__(self) -> _Card:
        return self

    def __exit__(self, *exception: object) -> None:
        self._gpu.close()

    def line(self, seconds: float) -> Mapping[str, Any]:
        """Measures at intervals; an emulated card's time passes meanwhile."""
        left = self._next - time.monotonic()
        if left > 0:
            time.sleep(left)
            if self._gpu.emulation is not None:
                self._gpu.clock.sleep(left)
        self._next = time.monotonic() + INTERVAL
        return {
            "schema": SCHEMA,
            "publisher": self.about,
            "wall": time.time(),
            "metrics": self._gpu.reading().to_json(),
            "stream": None,
        }


def _lines(source: Source, view: _View) -> Iterator[Mapping[str, Any]]:
    """Lines until there are no more; the view learns of long silence."""
    heard = time.monotonic()
    while source.ended is None:
        line = source.line(INTERVAL)
        if line is not None:
            heard = time.monotonic()
            if not _is_understood(line):
                raise DeviceFailed(
                    "the publisher sent a line of unknown form",
                    where=_printable(str(source.about["name"])),
                    hint="use the same version of Towline for publisher and reader",
                )
            yield line
        elif source.ended is None and time.monotonic() - heard >= SILENCE:
            view.silent(time.monotonic() - heard)


def _is_understood(line: Mapping[str, Any]) -> bool:
    """Whether figures and stream have the form that is shown here: another process wrote them."""
    stream = line.get("stream")
    if stream is not None:
        try:
            counts, event, rate = stream["frames"], stream.get("event"), stream["rate"]
            texts = [stream["state"], *counts] + ([] if event is None else [event["kind"], event["cause"]])
            figures = [*counts.values(), 0 if rate is None else rate, 0 if event is None else event["time"]]
        except (TypeError, KeyError, AttributeError):
            return False
        if not all(isinstance(one, str) for one in texts) or not all(map(is_figure, figures)):
            return False
    return line.get("metrics") is None or understood(line["metrics"])


# -- views --------------------------------------------------------------------------------------------------


class _View(Protocol):
    def show(self, line: Mapping[str, Any]) -> None: ...

    def silent(self, seconds: float) -> None: ...

    def close(self) -> None: ...


def _view(json: bool) -> _View:
    if json:
        return _Json()
    live = live_display(stays=True)
    return _Lines() if live is None else _Table(live)


class _Json:
    """The lines as they come."""

    def show(self, line: Mapping[str, Any]) -> None:
        write_stdout(dumps(line, line=True) + "\n")

    def silent(self, seconds: float) -> None:
        """That is the reader's to notice."""

    def close(self) -> None:
        """Nothing is left to do."""


class _Lines:
    """A row a line, for a file or a pipe."""

    AGAIN = 20
    """Rows between two headings."""

    def __init__(self) -> None:
        self._count = 0

    def show(self, line: Mapping[str, Any]) -> None:
        row = _row(line)
        if self._count % self.AGAIN == 0:
            write_stdout("  ".join(name.rjust(width) for name, width, _ in row) + "\n")
        self._count += 1
        write_stdout("  ".join(value.rjust(width) for _, width, value in row) + "\n")

    def silent(self, seconds: float) -> None:
        """The next row has the time."""

    def close(self) -> None:
        """Nothing is left to do."""


class _Table:
    """A table that is drawn in place."""

    def __init__(self, live: Any) -> None:
        self._live = live
        self._text = ""

    def show(self, line: Mapping[str, Any]) -> None:
        self._text = picture(line)
        self._draw(self._text)

    def silent(self, seconds: float) -> None:
        self._draw(f"{self._text}\n\nno news for {seconds:.0f} s")

    def close(self) -> None:
        self._live.stop()

    def _draw(self, text: str) -> None:
        from rich.text import Text

        self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)


def picture(line: Mapping[str, Any]) -> str:
    """A line as a table."""
    about, metrics, stream = line["publisher"], line.get("metrics") or {}, line.get("stream")
    named = [about.get("chip") or about.get("target"), about.get("serial") and f"serial {about['serial']}"]
    named.append(f"process {about['pid']}" if about.get("pid") else "opened here")
    rows = [("card" if about.get("chip") else "target", ", ".join(filter(None, named)))]
    rows += [(name, text) for name, text in _figures(metrics) if text]
    if stream is not None:
        counts = ", ".join(f"{count:,} {status}" for status, count in stream["frames"].items())
        asked = "" if stream["rate"] is None else f" at {stream['rate']:g} a second"
        rows.append(("stream", f"{stream['state']}{asked}; {counts}"))
        if (event := stream.get("event")) is not None:
            rows.append(("last event", f"{event['kind']} at {event['time']:.3f} s: {event['cause']}"))
    width = shutil.get_terminal_size().columns
    return _printable(table(("device", str(about.get("device"))), rows, width=width))


def _figures(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values of what is known."""
    yield (
        "power",
        _joined(
            _with(metrics, "watts", "{:,.0f} W"),
            _with(metrics, "activity_percent", "{:.0f} % busy"),
            _with(metrics, "fan_rpm", "fan {:,} rpm"),
            "throttled" if metrics.get("throttled") else "",
        ),
    )
    yield (
        "temperature",
        _joined(
            _with(metrics, "gpu_celsius", "GPU {:.0f} °C"),
            _with(metrics, "hotspot_celsius", "hot spot {:.0f} °C"),
            _with(metrics, "memory_celsius", "memory {:.0f} °C"),
        ),
    )
    clocks = metrics.get("clocks_mhz") or {}
    yield "clocks", _joined(*(f"{CLOCKS[name]} {clocks[name]:,} MHz" for name in SHOWN if name in clocks))
    link = metrics.get("link")
    if link is not None:
        lanes = "1 lane" if link["lanes"] == 1 else f"{link['lanes']} lanes"
        yield "PCIe link", f"generation {link['generation'] or 'unknown'}, {link['rate_gt']:g} GT/s, {lanes}"
    traffic = metrics.get("traffic")
    if traffic is not None:
        moved = f"{size(traffic['bytes_in'])} in, {size(traffic['bytes_out'])} out"
        yield "cable", f"{traffic['transfers']:,} transfers, {moved}, {traffic['errors']:,} errors"
    supply = metrics.get("supply")
    if supply is not None:
        fault = "it reports a fault" if supply["fault"] else "no fault"
        yield "supply", f"{supply['volts']:.2f} V, {supply['amperes']:.2f} A, {fault}"
    elif metrics.get("watts") is not None:
        yield "supply", "not known: no sensor answers"
    yield (
        "frames",
        _joined(_with(metrics, "frames", "{:,}"), _with(metrics, "frames_per_second", "{:,.1f} a second")),
    )


def _row(line: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    """Heading, width and value of each column of a line; 80 characters in all."""
    metrics = line.get("metrics") or {}
    clocks, link = metrics.get("clocks_mhz") or {}, metrics.get("link")
    traffic, supply = metrics.get("traffic") or {}, metrics.get("supply") or {}
    state = (line.get("stream") or {}).get("state", "-")
    return [
        ("state", 10, _printable(state).replace("\n", " ")),
        ("watts", 5, _with(metrics, "watts", "{:.0f}") or "-"),
        ("GPU°C", 5, _with(metrics, "gpu_celsius", "{:.0f}") or "-"),
        ("mem°C", 5, _with(metrics, "memory_celsius", "{:.0f}") or "-"),
        ("MHz", 4, _with(clocks, "GFXCLK", "{:.0f}") or "-"),
        ("PCIe", 6, "-" if link is None else f"{link['rate_gt']:g}x{link['lanes']}"),
        ("volts", 5, _with(supply, "volts", "{:.2f}") or "-"),
        ("frame/s", 7, _with(metrics, "frames_per_second", "{:.1f}") or "-"),
        ("transfers", 9, _with(traffic, "transfers", "{}") or "-"),
        ("errors", 6, _with(traffic, "errors", "{}") or "-"),
    ]


def _with(values: Mapping[str, Any], key: str, form: str) -> str:
    value = values.get(key)
    return "" if value is None else form.format(value)


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _printable(text: str) -> str:
    """Another process wrote it: no control characters."""
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in text)

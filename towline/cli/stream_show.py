"""What `towline stream` shows while it runs: a live table on a terminal, else lines of JSON."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sdk.report import SCHEMA, dumps, table, write_stdout
from sdk.stream.records import NOTICES

if TYPE_CHECKING:
    from sdk.session import Session
    from sdk.stream import Event, Result, Stream, Summary

REDRAWN = 0.1
"""Seconds of the wall's time between two drawings of the table."""
EVENTS = 6
"""The last ones are shown."""


class Show:
    """Shows results and events.

    Args:
        lines: JSON lines, rather than a table.
        session: the stream's.
    """

    def __init__(self, lines: bool, session: Session) -> None:
        self._lines = lines
        self._session = session
        self._stream: Stream | None = None
        self._live: Any = None
        self._drawn = 0.0
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._classes = _is_classifier(session)

    @contextlib.contextmanager
    def live(self, stream: Stream) -> Iterator[None]:
        """Show this stream while the block runs."""
        self._stream = stream
        self._live = None if self._lines else live_display()
        try:
            yield
        finally:
            if self._live is not None:
                self._live.stop()
            self._live = None

    def result(self, result: Result) -> None:
        """A frame ended."""
        if self._lines:
            document = result.to_json()
            if self._classes and result.outputs is not None:
                (best,) = self._session.rank(result.outputs, 1)
                document["top"] = {"index": best.index, "label": best.label, "score": best.score}
            self._print({"frame": document})
        self._draw()

    def event(self, event: Event) -> None:
        """The stream's state changed."""
        self._events.append(event)
        if self._lines:
            self._print({"event": event.to_json()})
        self._draw(now=True)

    def _print(self, document: Mapping[str, Any]) -> None:
        write_stdout(dumps({"schema": SCHEMA, **document}, line=True) + "\n")

    def _draw(self, now: bool = False) -> None:
        moment = time.monotonic()
        if self._live is None or self._stream is None or not (now or moment - self._drawn >= REDRAWN):
            return
        self._drawn = moment
        from rich.text import Text

        summary = self._stream.summary()
        text = f"{self._stream.state}\n\n{figures(summary)}"
        if self._events:
            text += f"\n\n{_events(self._events)}"
        self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)


def figures(summary: Summary) -> str:
    """Statuses, rate and latency as a table."""
    frames = ", ".join(f"{count:,} {status}" for status, count in summary.frames.items())
    rows: list[tuple[str, str]] = [("frames", f"{frames}, {summary.lost:,} lost")]
    if summary.rate is not None:
        asked = "" if summary.asked is None else f", {summary.asked:g} were asked for"
        rows.append(("answered", f"{summary.rate:,.4g} frames a second{asked}"))
    if summary.latency is not None:
        shown = ", ".join(f"{name} {value:,.3f}" for name, value in summary.latency.items())
        clock = "virtual time" if summary.virtual else "wall time"
        rows.append(("latency", f"{shown} ms, {clock}"))
    return table(("", ""), rows).lstrip("\n ").lstrip()


def text(summary: Summary) -> str:
    """A summary, whole."""
    parts = [figures(summary)]
    if summary.recoveries:
        rows = [
            (
                one.frame,
                one.kind,
                "kept" if one.states else "lost",
                1000 * one.back,
                1000 * one.first,
                one.cause,
            )
            for one in summary.recoveries
        ]
        headers = ("frame", "recovery", "states", "back, ms", "first result, ms", "cause")
        parts.append(table(headers, rows, least=("states",)))
        if notices := [event for event in summary.events if event.kind in NOTICES]:
            parts.append(_events(notices))
    elif len(summary.events) > 1:
        parts.append(_events(summary.events))
    if summary.advice is not None:
        parts.append(summary.advice)
    return "\n\n".join(parts)


def _events(events: Any) -> str:
    rows = [(f"{event.time:.3f}", event.frame, event.kind, event.cause) for event in events]
    return table(("seconds", "frame", "state", "cause"), rows)


def _is_classifier(session: Session) -> bool:
    from sdk.classification import class_count

    return class_count(session.artifact.graph) is not None


def live_display(*, stays: bool = False) -> Any:
    """Rich's live display, if stdout is a terminal and rich is installed; its last picture may stay."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:  # the bare run-time install has none
        return None
    live = Live(console=Console(), transient=not stays, auto_refresh=False)
    live.start()
    return live

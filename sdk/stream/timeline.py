"""A stream as a timeline for Perfetto: frames from when they are due to their results, and the states."""

from __future__ import annotations

import os

from sdk import chrome_trace
from sdk.stream.records import NOTICES, Event, Result


class Timeline:
    """Collects results and events, and writes them.

    Args:
        about: what the stream is of.
    """

    def __init__(self, about: str) -> None:
        self._about = about
        self._frames: list[tuple[int, int, str, str, dict[str, object]]] = []
        self._dropped: list[tuple[int, str, str]] = []
        self._events: list[Event] = []
        self._end = 0

    def add(self, result: Result) -> None:
        """A frame ended."""
        start, end = _nanoseconds(result.times.due), _nanoseconds(result.times.done)
        self._end = max(self._end, end)
        if result.outputs is None:
            self._dropped.append((end, f"frame {result.frame}", result.cause))
            return
        about: dict[str, object] = {"epoch": result.epoch, "descends from": result.descends_from}
        if result.times.submitted is not None:
            about["submitted after ms"] = round(1000 * (result.times.submitted - result.times.due), 6)
        if result.cause:
            about["cause"] = result.cause
        self._frames.append((start, end, f"frame {result.frame}", result.status, about))

    def changed(self, event: Event) -> None:
        """The stream's state changed."""
        self._events.append(event)
        self._end = max(self._end, _nanoseconds(event.time))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write what there is so far.

        Raises:
            OutputFailed: as `sdk.chrome_trace.writing`.
        """
        with chrome_trace.writing(path, {"stream": self._about}) as trace:
            states = trace.track(self._about, "state")
            for event in self._events:
                moment = _nanoseconds(event.time)
                if event.kind in NOTICES:
                    states.instant(moment, event.kind, "event", {"cause": event.cause})
                    continue
                states.end_all(moment)
                states.begin(moment, event.kind, "state", {"cause": event.cause})
            states.end_all(self._end)
            device = trace.track(self._about, "device")
            for event in self._events:
                if event.kind in NOTICES:
                    device.instant(_nanoseconds(event.time), event.kind, "device", {"cause": event.cause})
            dropped = trace.track(self._about, "dropped")
            for moment, name, cause in sorted(self._dropped):
                dropped.instant(moment, name, "dropped", {"cause": cause})
            lanes = trace.lanes(self._about, "frames")
            for start, end, name, status, about in sorted(self._frames, key=lambda one: one[1]):
                lanes.slice(start, end, name, status, about)


def _nanoseconds(seconds: float) -> int:
    return round(1e9 * seconds)

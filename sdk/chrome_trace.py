"""A timeline in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

    with chrome_trace.writing("trace.json") as trace:
        track = trace.track("bridge", "8051")
        track.begin(1_000, "main")
        track.end(5_000)

The file is one JSON object; its `traceEvents` are written as they come, one a line: `B` and `E` (a slice
begins, ends), `i` (an instant) and `M` (names of processes and threads). Source: "Trace Event Format" of
Google. Within a thread slices nest and times never go back. A slice has no duration of its own (`X`): times
are decimals of microseconds, and a reader that rounds start and duration could make it overlap what follows.
An end repeats the name of its slice: the format does not require it, but speedscope pairs the two by name.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from sdk import files

Args = Mapping[str, Any]
"""What a viewer shows of a slice when it is chosen; JSON values."""


class ChromeTrace:
    """Writes a trace; `writing` makes one.

    Args:
        stream: takes the bytes.
        about: what the trace is of, for `otherData`.
    """

    def __init__(self, stream: BinaryIO, about: Args | None = None) -> None:
        self._stream = stream
        self._processes: dict[str, int] = {}
        self._tracks: dict[tuple[str, str], Track] = {}
        self._first = True
        head = json.dumps({"displayTimeUnit": "ns", "otherData": dict(about or {})})
        stream.write(f'{head[:-1]}, "traceEvents": [\n'.encode())

    def track(self, process: str, name: str) -> Track:
        """The track of that name, a thread of that process; made on first use."""
        found = self._tracks.get((process, name))
        if found is None:
            pid = self._processes.get(process)
            if pid is None:
                pid = self._processes[process] = len(self._processes) + 1
                self._name("process", pid, 0, process)
            tid = 1 + sum(other == process for other, _ in self._tracks)
            self._name("thread", pid, tid, name)
            found = self._tracks[process, name] = Track(self, pid, tid)
        return found

    def lanes(self, process: str, name: str) -> Lanes:
        """A track for slices that may overlap: as many threads of that name as it takes."""
        return Lanes(self, process, name)

    def close(self) -> None:
        """Write the end of the file; slices that are open end with the last event of their track."""
        for track in self._tracks.values():
            track.end_all()
        self._stream.write(b"\n]}\n")

    def write(self, event: str) -> None:
        """Write an event, a JSON object as text; for tracks."""
        self._stream.write((event if self._first else f",\n{event}").encode())
        self._first = False

    def _name(self, what: str, pid: int, tid: int, name: str) -> None:
        facts = {"name": name, "sort_index": pid + tid}
        for key, value in facts.items():
            event = {"ph": "M", "name": f"{what}_{key}", "pid": pid, "tid": tid, "args": {key: value}}
            self.write(json.dumps(event))


class Track:
    """A row of slices that nest, in order of time. Times are integers of nanoseconds.

    Attributes:
        last: time of the last event.
    """

    def __init__(self, trace: ChromeTrace, pid: int, tid: int) -> None:
        self._trace = trace
        self._where = f'"pid": {pid}, "tid": {tid}'
        self.last = 0
        self._open: list[str] = []  # names of slices, as JSON

    @property
    def depth(self) -> int:
        """Slices that are open."""
        return len(self._open)

    def begin(self, time: int, name: str, category: str = "", args: Args | None = None) -> None:
        """A slice begins, within those that are open."""
        self._open.append(json.dumps(name))
        self._write("B", time, _described(name, category, args))

    def end(self, time: int) -> None:
        """The innermost slice ends, if one is open."""
        if self._open:
            self._write("E", time, f', "name": {self._open.pop()}')

    def slice(self, start: int, end: int, name: str, category: str = "", args: Args | None = None) -> None:
        """A slice with nothing in it."""
        self.begin(start, name, category, args)
        self.end(end)

    def instant(self, time: int, name: str, category: str = "", args: Args | None = None) -> None:
        """Something that takes no time."""
        self._write("i", time, f', "s": "t"{_described(name, category, args)}')

    def end_all(self, time: int | None = None) -> None:
        """End every slice that is open; if no time is given, with the last event."""
        while self._open:
            self.end(self.last if time is None else time)

    def _write(self, kind: str, time: int, rest: str) -> None:
        self.last = time
        self._trace.write(f'{{"ph": "{kind}", "ts": {time // 1000}.{time % 1000:03d}, {self._where}{rest}}}')


class Lanes:
    """Slices that may overlap, added once they have ended: each goes to the first track with room."""

    def __init__(self, trace: ChromeTrace, process: str, name: str) -> None:
        self._trace = trace
        self._process = process
        self._name = name
        self._tracks: list[Track] = []

    def slice(self, start: int, end: int, name: str, category: str = "", args: Args | None = None) -> None:
        """Add a slice; in order of their ends."""
        track = next((track for track in self._tracks if track.last <= start), None)
        if track is None:
            number = len(self._tracks)
            track = self._trace.track(self._process, f"{self._name} ({number + 1})" if number else self._name)
            self._tracks.append(track)
        track.slice(start, end, name, category, args)


def _described(name: str, category: str, args: Args | None) -> str:
    text = f', "name": {json.dumps(name)}'
    if category:
        text += f', "cat": {json.dumps(category)}'
    if args:
        text += f', "args": {json.dumps(dict(args))}'
    return text


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], about: Args | None = None) -> Iterator[ChromeTrace]:
    """A trace that becomes `path`, whole, when the block ends without an exception.

    Raises:
        OutputFailed: as `sdk.files.replacing`.
    """
    with files.replacing(path) as stream:
        trace = ChromeTrace(stream, about)
        yield trace
        trace.close()

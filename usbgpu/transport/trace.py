"""Traces: every call of a device and its outcome, as JSON lines.

    with trace.record(device, "trace.jsonl"):
        ...
    transport.open("replay:trace.jsonl")

    {"trace":1,"device":"...","speed":"super-speed","packet_size":1024,...}      first of all
    {"call":{"kind":"bulk-in","endpoint":129,"length":4},"outcome":"ok","data":"01020304","n":7,"t":[0.1,0.2]}
    {"check":"..."}                                      what the calls below belong to
    {"sleep":0.1}                                        a wait

A call says its kind and what differs from `Call`'s defaults; "n" is its place in the order of submission,
which is not that of the lines if several were in flight, and "t" when it began and ended, in seconds of the
device's clock. An error has its code as outcome, its "message", and how many bytes were "transferred" if that
is known.

Bytes are hexadecimal; more than LONG are `{"bytes":N,"zlib":"..."}`, compressed and in base64. Of so many
towards the device only a digest is kept, `{"bytes":N,"sha256":"..."}`, unless everything was requested:
models and firmware of others do not belong in a bug report, and a replay can compare without them.
("restless":true) marks a call that the device may answer differently at another time.

The format is documented for users in docs/conformance.md.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import IO, Any

from sdk import files
from sdk.errors import InvalidInput
from usbgpu.transport.call import Call, CallKind, Data, Outcome
from usbgpu.transport.device import Transport

SCHEMA = 1
LONG = 1024
"""Bytes that are written out in hexadecimal."""
LONGEST = 1 << 30
"""Bytes that a compressed member may expand to."""
FACTS = ("packet_size", "out_endpoint", "in_endpoint", "interface_class")
"""What the first line has of the device besides its name, place and speed."""
DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, zlib.error)
"""What json, zlib, base64 and the constructors raise on lines that are none."""
_DEFAULTS = Call(CallKind.CONTROL)
_MEMBERS = [each.name for each in fields(Call) if each.name not in ("kind", "data", "into")]


@dataclass(frozen=True, slots=True)
class Digest:
    """What is left of bytes that were not kept.

    Attributes:
        size: how many they were.
        sha256: in hexadecimal.
    """

    size: int
    sha256: str

    @classmethod
    def of(cls, data: Data) -> Digest:
        """Of bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


class Recorder:
    """Writes the calls of a device as lines of a trace, until `close`.

    Args:
        device: whose calls.
        stream: for text.
        description: of the device; its name if None.
        whole: keep all bytes that go towards the device, so that the trace can be repeated on another.
        marks: gives members that the line of a call gets besides.
    """

    def __init__(
        self,
        device: Transport,
        stream: IO[str],
        *,
        description: str | None = None,
        whole: bool = False,
        marks: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._device = device
        self._stream = stream
        self._whole = whole
        self._marks = marks
        facts = {name: getattr(device, name) for name in FACTS}
        self.note(
            trace=SCHEMA,
            device=device.name if description is None else description,
            place=device.place,
            speed=device.speed.value,
            **facts,
        )
        device.observers.append(self._called)

    def note(self, **members: Any) -> None:
        """A line of its own."""
        self._stream.write(json.dumps(members, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Stop recording. Idempotent."""
        with contextlib.suppress(ValueError):
            self._device.observers.remove(self._called)

    def _called(self, call: Call, outcome: Outcome) -> None:
        packed: dict[str, Any] = {"kind": call.kind.value}
        for name in _MEMBERS:
            value = getattr(call, name)
            if value != getattr(_DEFAULTS, name):
                packed[name] = value
        if len(call.data):
            packed["data"] = _packed(call.data, whole=self._whole)
        line: dict[str, Any] = {"call": packed, "outcome": outcome.code}
        if len(outcome.data):
            line["data"] = _packed(outcome.data, whole=True)
        if outcome.message:
            line["message"] = outcome.message
        if outcome.transferred:
            line["transferred"] = outcome.transferred
        times = [round(outcome.began, 9), round(outcome.ended, 9)]
        self.note(**line, n=outcome.number, t=times, **self._marks())


@contextlib.contextmanager
def record(device: Transport, path: str | os.PathLike[str], *, whole: bool = False) -> Iterator[Recorder]:
    """Record a device's calls while the block runs.

    The file appears when the block ends, complete, also after an error: that is what a trace is for.

    Args:
        device: whose calls.
        path: of the file.
        whole: as of `Recorder`.

    Raises:
        OutputFailed: it cannot be written.
    """
    with files.replacing_text(path, always=True) as stream:
        recorder = Recorder(device, stream, whole=whole)
        try:
            yield recorder
        finally:
            recorder.close()


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a trace.

    Attributes:
        line: its number, from 1.
        call: that was made, without its data if `sent` is a Digest; None if the line is not of a call.
        sent: the bytes that went towards the device.
        outcome: what came of it.
        members: all of the line.
    """

    line: int
    call: Call | None = None
    sent: bytes | Digest = b""
    outcome: Outcome = field(default_factory=lambda: Outcome("ok", b"", 0.0, 0.0))
    members: dict[str, Any] = field(default_factory=dict)

    def is_of(self, call: Call) -> bool:
        """Whether it is of such a call; its time-out, which may be the rest of a longer one, may differ."""
        mine = self.call
        if mine is None or any(
            getattr(mine, name) != getattr(call, name) for name in ("kind", *_MEMBERS) if name != "timeout"
        ):
            return False
        return self.sent == (Digest.of(call.data) if isinstance(self.sent, Digest) else call.data)


def entries(lines: Iterable[str], name: str = "trace") -> Iterator[Entry]:
    """The lines of a trace, the first of which says what it is of.

    Args:
        lines: of the trace.
        name: of the trace, for errors.

    Raises:
        InvalidInput: it is not a trace.
    """
    number = 0
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
            if number == 1 and line.get("trace") != SCHEMA:
                raise InvalidInput(f"is not a trace of version {SCHEMA}", where=name)
            yield _entry(number, line)
        except DAMAGE as problem:
            raise InvalidInput(f"line {number} is not a line of a trace: {problem}", where=name) from problem
    if not number:
        raise InvalidInput("is an empty file, not a trace", where=name)


def _entry(number: int, line: dict[str, Any]) -> Entry:
    if "call" not in line:
        return Entry(number, members=line)
    found = line["call"]
    values = {name: value for name, value in found.items() if name not in ("kind", "data")}
    if not all(
        name in _MEMBERS and isinstance(value, int | float if name == "timeout" else int)
        for name, value in values.items()
    ):
        raise ValueError("a member of the call is unknown, or not a number")
    sent = _unpacked(found.get("data", ""))
    call = Call(CallKind(found["kind"]), data=b"" if isinstance(sent, Digest) else sent, **values)
    data = _unpacked(line.get("data", ""))
    if isinstance(data, Digest):
        raise ValueError("the bytes from the device are missing")
    began, ended = line.get("t", (0.0, 0.0))
    outcome = Outcome(
        str(line["outcome"]),
        data,
        float(began),
        float(ended),
        int(line.get("n", number)),
        str(line.get("message", "")),
        int(line.get("transferred", 0)),
    )
    return Entry(number, call, sent, outcome, line)


def _packed(data: Data, *, whole: bool) -> str | dict[str, Any]:
    if len(data) <= LONG:
        return data.hex()
    if whole:
        return {"bytes": len(data), "zlib": base64.b64encode(zlib.compress(data, 1)).decode("ascii")}
    return {"bytes": len(data), "sha256": Digest.of(data).sha256}


def _unpacked(found: Any) -> bytes | Digest:
    if isinstance(found, str):
        return bytes.fromhex(found)
    size = int(found["bytes"])
    if "sha256" in found:
        return Digest(size, str(found["sha256"]))
    if not 0 <= size <= LONGEST:
        raise ValueError(f"{size} bytes: at most {LONGEST} are allowed")
    data = zlib.decompressobj().decompress(base64.b64decode(found["zlib"], validate=True), size + 1)
    if len(data) != size:
        raise ValueError(f"the bytes unpack to another length than the stated {size}")
    return data

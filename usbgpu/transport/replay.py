"""A device that is a recording: it answers the same calls in the same order, as the recorded one did.

Nothing is computed: a call that differs from the recorded one raises an error that names both. Time is that
of the recording.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sdk.errors import DeviceFailed, InvalidInput, TowlineError
from usbgpu.transport import errors, trace
from usbgpu.transport.call import Call, CallKind, Outcome
from usbgpu.transport.device import RETURN_PATIENCE, Transport
from usbgpu.transport.pipeline import Pending, Queue
from usbgpu.transport.speed import Speed

ERRORS: dict[str, Any] = {
    each.code: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, TowlineError)
}
"""Classes by the codes that a trace has."""


class Differs(DeviceFailed):
    """The recorded program made another call."""

    code = "differs"


class RecordedClock:
    """Time as it went by in a recording."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Seconds of the recorded device's clock."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Advance it."""
        self._now += max(seconds, 0.0)

    def reach(self, moment: float) -> None:
        """Advance it to a moment, never back."""
        self._now = max(self._now, moment)


class ReplayedTransport(Transport):
    """See the module.

    Args:
        path: of the trace.
        name: the device string.

    Raises:
        InvalidInput: it is not a trace, or describes no device that can be opened.
    """

    def __init__(self, path: str, name: str) -> None:
        self._recorded = RecordedClock()
        super().__init__(name, self._recorded)
        self._file = path
        try:
            with Path(path).open(encoding="ascii") as lines:
                found = list(trace.entries(lines, path))
        except (OSError, UnicodeDecodeError) as problem:
            raise InvalidInput(f"the trace cannot be read: {problem}", where=path) from problem
        head = found[0].members
        try:
            self._speed = Speed(head["speed"])
            self._place = str(head["place"])
            for fact in trace.FACTS:
                setattr(self, fact, int(head[fact]))
        except (KeyError, ValueError, TypeError) as problem:
            raise InvalidInput(f"line 1 does not describe a device: {problem}", where=path) from problem
        calls = [entry for entry in found if entry.call is not None]
        self._entries = sorted(calls, key=lambda entry: entry.outcome.number)
        self._next = 0

    @property
    def speed(self) -> Speed:
        """See `Transport`."""
        return self._speed

    @property
    def place(self) -> str:
        """See `Transport`."""
        return self._place

    @property
    def remaining(self) -> int:
        """Recorded calls that have not been made yet."""
        return len(self._entries) - self._next

    def submit(self, call: Call) -> Pending:
        """See `Transport`."""
        self._check(call)
        with self._pipeline.lock:
            began = self.clock.now()
            pending = Pending(self._pipeline, Queue(), call, next(self._numbers), began)
            outcome = self._answer(call)
            result = _result(call, outcome)
            if not isinstance(result, TowlineError) and call.kind is CallKind.BULK_IN:
                pending.received = len(result)
                if call.into is not None:
                    call.into[: len(result)] = result
            pending.outcome = result if call.into is None or isinstance(result, TowlineError) else b""
            self._report(call, Outcome.of(result, began, self.clock.now(), pending.number))
            return pending

    def reopen(self, timeout: float = RETURN_PATIENCE) -> None:
        """Goes on with the recording."""

    def close(self) -> None:
        """Nothing is left open."""

    def _act(self, call: Call) -> bytes:
        with self._pipeline.lock:
            result = _result(call, self._answer(call))
        if isinstance(result, TowlineError):
            raise result
        return result

    def _answer(self, call: Call) -> Outcome:
        """The outcome of the next recorded call.

        Raises:
            Differs: it was another call.
        """
        if not self.remaining:
            raise Differs(f"the recording ends before {call}", where=self._file, hint=_HINT)
        entry = self._entries[self._next]
        if not entry.is_of(call):
            raise Differs(
                f"call {self._next + 1} is {_described(call)}; recorded is {_described(entry)}",
                where=f"{self._file}, line {entry.line}",
                hint=_HINT,
            )
        self._next += 1
        self._recorded.reach(entry.outcome.ended)
        return entry.outcome


_HINT = "a trace replays only with the program, version and options that it was recorded with"


def _result(call: Call, outcome: Outcome) -> bytes | TowlineError:
    """What a call returns or raises."""
    if outcome.code == "ok":
        return bytes(outcome.data)
    message, where = outcome.message or f"the recorded call ended as {outcome.code!r}", str(call)
    kind = ERRORS.get(outcome.code, DeviceFailed)
    if kind is errors.TimedOut:
        data = bytes(outcome.data)
        return errors.TimedOut(message, where=where, transferred=outcome.transferred or len(data), data=data)
    if kind is errors.Abandoned:
        return errors.Abandoned(message, where=where, transferred=outcome.transferred)
    found: TowlineError = kind(message, where=where)
    return found


def _described(found: Call | trace.Entry) -> str:
    """A call with its first bytes, or the digest of what is not there any more."""
    if isinstance(found, Call):
        call = found
        sent = bytes(call.data) if len(call.data) <= trace.LONG else trace.Digest.of(call.data)
    else:
        assert found.call is not None
        call, sent = found.call, found.sent
    if isinstance(sent, trace.Digest):
        return f"EP {call.endpoint:#04x}, {sent.size} bytes with SHA-256 {sent.sha256[:16]}..."
    return f"{call} ({sent[:32].hex(' ')}{' ...' if len(sent) > 32 else ''})" if sent else str(call)

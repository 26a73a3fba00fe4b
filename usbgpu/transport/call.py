"""A transfer as data: what was requested of the device, and the outcome.

`Transport.perform` does what a `Call` says, and all of its methods use it; so a list of calls is a
trace that can be saved, compared, counted and repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from sdk.errors import TowlineError
from sdk.telemetry.metrics import Traffic
from usbgpu.transport.errors import Abandoned, Stalled, TimedOut

Data = bytes | bytearray | memoryview
"""Bytes in the caller's memory; a memoryview has items of one byte."""


class CallKind(Enum):
    """What a caller can request."""

    CONTROL = "control"
    BULK_OUT = "bulk-out"
    BULK_IN = "bulk-in"
    CLEAR_HALT = "clear-halt"
    """CLEAR_FEATURE(ENDPOINT_HALT), and the host's side of it."""
    RESET = "reset"
    """A bus reset; the device is configured again afterwards."""

    @property
    def is_bulk(self) -> bool:
        """Whether several of its calls may be in flight: `Transport.submit`."""
        return self in (CallKind.BULK_OUT, CallKind.BULK_IN)


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    Attributes:
        kind: what.
        request_type: bmRequestType of a control transfer; so are the next three bRequest, wValue, wIndex.
        endpoint: address with direction bit; 0 for control transfers and resets.
        data: bytes towards the device. They are not copied: they must not change until the call is over.
        length: bytes wanted from the device.
        timeout: in seconds of the device's clock. Of a bulk transfer behind others of its endpoint, they
            count from the end of the one before it.
        into: where the bytes of a bulk IN transfer go; None for a buffer of their own.
    """

    kind: CallKind
    request_type: int = 0
    request: int = 0
    value: int = 0
    index: int = 0
    endpoint: int = 0
    data: Data = b""
    length: int = 0
    timeout: float = 0.0
    into: memoryview | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        match self.kind:
            case CallKind.CONTROL:
                numbers = f"{self.request_type:02X}:{self.request:02X}:{self.value:X}:{self.index:X}"
                return f"control {numbers}:{len(self.data) or self.length:X}"
            case CallKind.RESET:
                return "bus reset"
            case CallKind.CLEAR_HALT:
                return f"clear halt of EP {self.endpoint:#04x}"
        return f"EP {self.endpoint:#04x}, {len(self.data) or self.length} bytes"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call.

    Attributes:
        code: "ok", or the code of the error that was raised.
        data: bytes from the device; of a call with `into`, that part of it, which may change afterwards.
        began: when it was submitted, in seconds of the device's clock; so is `ended`.
        number: how many calls of this device were submitted before it. Outcomes are reported in the order of
            their ends.
        message: of the error.
        transferred: bytes that had passed when it failed, if that is known.
    """

    code: str
    data: Data
    began: float
    ended: float
    number: int = 0
    message: str = ""
    transferred: int = 0

    @classmethod
    def of(cls, result: Data | TowlineError, began: float, ended: float, number: int = 0) -> Outcome:
        """Of what a call returned or raised."""
        if not isinstance(result, TowlineError):
            return cls("ok", result, began, ended, number)
        data = result.data if isinstance(result, TimedOut) else b""
        transferred = result.transferred if isinstance(result, TimedOut | Abandoned) else 0
        return cls(result.code, data, began, ended, number, result.message, transferred)


def counted(before: Traffic, call: Call, outcome: Outcome) -> Traffic:
    """What went over the cable, with one more call.

    One that was abandoned has the failure of another; a control transfer that stalled was answered, by no.
    """
    if outcome.code == Abandoned.code:
        return before
    fine = outcome.code == "ok"
    refused = call.kind is CallKind.CONTROL and outcome.code == Stalled.code
    return Traffic(
        before.transfers + 1,
        before.bytes_in + (len(outcome.data) if fine else 0),
        before.bytes_out + (len(call.data) if fine else 0),
        before.errors + (not fine and not refused),
    )


Observer = Callable[[Call, Outcome], None]
"""Is called with every call once it is over: one call at a time, in any thread. An observer
must not use the device."""

"""A transfer as data: what was asked of the device, and what came of it.

`Transport.perform` does what a `Call` says, and all of its methods come down to that; so a list of calls is a
trace that can be kept, compared, counted and done again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from sdk.errors import TowlineError
from usbgpu.transport.errors import TimedOut


class CallKind(Enum):
    """What a caller can have done."""

    CONTROL = "control"
    BULK_OUT = "bulk-out"
    BULK_IN = "bulk-in"
    CLEAR_HALT = "clear-halt"
    """CLEAR_FEATURE(ENDPOINT_HALT), and the host's side of it."""
    RESET = "reset"
    """A bus reset; the device is configured again afterwards."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    Attributes:
        kind: what.
        request_type: bmRequestType of a control transfer; so are the next three bRequest, wValue, wIndex.
        endpoint: address with direction bit; 0 for control transfers and resets.
        data: bytes towards the device.
        length: bytes wanted from the device.
        timeout: in seconds of the device's clock.
    """

    kind: CallKind
    request_type: int = 0
    request: int = 0
    value: int = 0
    index: int = 0
    endpoint: int = 0
    data: bytes = b""
    length: int = 0
    timeout: float = 0.0

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
    """What came of a call.

    Attributes:
        code: "ok", or the code of the error that was raised.
        data: bytes from the device.
        began: seconds of the device's clock; so is `ended`.
    """

    code: str
    data: bytes
    began: float
    ended: float

    @classmethod
    def of(cls, result: bytes | TowlineError, began: float, ended: float) -> Outcome:
        """Of what `Transport.perform` returned or raised."""
        if isinstance(result, TowlineError):
            return cls(result.code, result.data if isinstance(result, TimedOut) else b"", began, ended)
        return cls("ok", result, began, ended)


Observer = Callable[[Call, Outcome], None]
"""Someone who wants to know of every call, once it is over."""

"""How a USB transfer can fail, and why a device cannot be opened.

`DeviceFailed` and `DeviceMissing` are the SDK's; the classes here say which failure it was, so that a caller
can tell a request that the device refused from one that it never answered. Numbers are those of errno.h, in
which libusb's codes arrive through pyusb.
"""

from __future__ import annotations

import errno
from typing import Any

from sdk.errors import DeviceFailed, DeviceMissing, TowlineError

PERMISSIONS = "a udev rule grants it: `towline doctor` prints the command"
"""What to do about a device that belongs to root."""


class Stalled(DeviceFailed):
    """The device refused a request, or an endpoint is halted."""

    code = "stalled"


class TimedOut(DeviceFailed):
    """A transfer did not end in time, and was cancelled.

    Attributes:
        transferred: bytes that had passed by then.
        data: those bytes, of a transfer towards the host.
    """

    code = "timed-out"

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        transferred: int = 0,
        data: bytes = b"",
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.transferred = transferred
        self.data = data


class Abandoned(DeviceFailed):
    """A transfer was cancelled because one before it on its endpoint failed, or its device was released.

    Attributes:
        cause: the failure of the one before; None if there was none.
        transferred: bytes that had passed all the same. An emulated device gets none behind a failure. A
            real controller goes on to the next transfer after a transaction error (cable, power) before
            it can be stopped: then this may not be 0, and the endpoint needs a reset.
    """

    code = "abandoned"

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        cause: TowlineError | None = None,
        transferred: int = 0,
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.cause = cause
        self.transferred = transferred


class NotSent(DeviceFailed):
    """The host's system has no such interface or endpoint, and did not send the request."""

    code = "not-sent"


class Disconnected(DeviceFailed):
    """The device left the bus, or came back as another."""

    code = "disconnected"


class Overrun(DeviceFailed):
    """The device sent more than was asked for."""

    code = "overrun"


class WireFailed(DeviceFailed):
    """A packet did not get through in spite of the host controller's retries."""

    code = "wire-failed"


class AccessDenied(DeviceMissing):
    """The device is there, but its file may not be opened."""

    code = "access-denied"


class DeviceBusy(DeviceMissing):
    """Another process, or a kernel driver, has the device."""

    code = "device-busy"


def translated(problem: Any, where: str, timeout: float | None = None) -> TowlineError:
    """The SDK's error for one of pyusb.

    Args:
        problem: a `usb.core.USBError`.
        where: the request or endpoint.
        timeout: of the transfer, in seconds.
    """
    match problem.errno:
        case errno.EPIPE:
            return Stalled("the device stalled the request", where=where)
        case errno.ETIMEDOUT:
            limit = "in time" if timeout is None else f"within {timeout:g} s"
            notes = getattr(problem, "__notes__", ())  # an emulated device says what it waits for
            return TimedOut(f"the device did not answer {limit}", where=where, hint="; ".join(notes) or None)
        case errno.ENOENT:
            return NotSent(
                "the device has no such interface or endpoint: the system sent nothing", where=where
            )
        case errno.ENODEV | errno.ESHUTDOWN:
            return Disconnected(
                "the device is gone", where=where, hint="check the cable and the power, then open it again"
            )
        case errno.EOVERFLOW:
            return Overrun("the device sent more than was asked for", where=where)
        case errno.EACCES | errno.EPERM:
            return AccessDenied("no permission to use the device", where=where, hint=PERMISSIONS)
        case errno.EBUSY:
            return DeviceBusy(
                "the device is in use",
                where=where,
                hint="end the other program, or detach the kernel's driver",
            )
        case errno.ENOMEM:
            return DeviceFailed(
                "the system has no memory for the transfer",
                where=where,
                hint="send less at a time; /sys/module/usbcore/parameters/usbfs_memory_mb is Linux's limit",
            )
        case errno.EIO:
            return WireFailed(
                f"the transfer failed: {problem}",
                where=where,
                hint="try another cable or port",
            )
    return DeviceFailed(f"the transfer failed: {problem}", where=where)

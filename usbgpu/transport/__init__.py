"""USB transfers to the bridge, whatever is on the other end of the cable.

    with transport.open("usb") as device:
        print(device.identify(), device.speed)
        device.control_out(0x40, 0xE5, value=0x9000, index=0x5A)
        device.bulk_out(data, timeout=2.0)

A device string says what to open (`device_string`): `emulated`, `emulated:IMAGE`, `usb`, `usb:SERIAL`. The
same code serves an emulated bridge and a real one: both are pyusb devices. What differs is the clock. Time
of an emulated device is virtual and passes only while a transfer is pending or somebody sleeps, so every wait
and every time-out of a caller goes through `Transport.clock`; of a real device it is the wall's.

A real device belongs to one process at a time (`lock`). Errors are those of `errors`, in the SDK's tree.
"""

from usbgpu.transport.call import Call, CallKind, Observer, Outcome
from usbgpu.transport.clock import Clock
from usbgpu.transport.device import Speed, Transport, attach, open
from usbgpu.transport.device_string import DEFAULT_VARIABLE, DeviceString
from usbgpu.transport.errors import (
    AccessDenied,
    DeviceBusy,
    Disconnected,
    NotSent,
    Overrun,
    Stalled,
    TimedOut,
)
from usbgpu.transport.identity import Identity, Running

__all__ = [
    "DEFAULT_VARIABLE",
    "AccessDenied",
    "Call",
    "CallKind",
    "Clock",
    "DeviceBusy",
    "DeviceString",
    "Disconnected",
    "Identity",
    "NotSent",
    "Observer",
    "Outcome",
    "Overrun",
    "Running",
    "Speed",
    "Stalled",
    "TimedOut",
    "Transport",
    "attach",
    "open",
]

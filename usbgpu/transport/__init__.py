"""USB transfers to the bridge, real, emulated or recorded.

    with transport.open("usb") as device:
        print(device.identify(), device.speed)
        device.control_out(0x40, 0xE5, value=0x9000, index=0x5A)
        device.bulk_out(data, timeout=2.0)

A device string says what to open (`device_string`): `emulated`, `emulated:IMAGE`, `usb`, `usb:SERIAL`,
`usb:port=2-1.4`, `usb:fd=N`, `replay:FILE`. The same code serves an emulated bridge and a real one: both
are pyusb devices. What differs is the clock. Time of an emulated device is virtual and passes only while a
caller waits or sleeps, so every wait and every time-out of a caller goes through `Transport.clock`; a real
device has wall-clock time.

Several bulk transfers can be in flight (`pipeline`), and a device's calls with their outcomes can be recorded
(`trace.record`) and replayed (`replay`).

    parts = [device.submit(device.out_call(part)) for part in parts_of_1_mib]
    for part in parts:
        part.result()

A real device belongs to one process at a time (`lock`). Errors are those of `errors`, in the SDK's tree.
"""

from sdk.clock import Clock
from usbgpu.transport.call import Call, CallKind, Observer, Outcome
from usbgpu.transport.device import Transport
from usbgpu.transport.device_string import DeviceString
from usbgpu.transport.emulation import EmulatedBackend, Emulation
from usbgpu.transport.errors import (
    Abandoned,
    AccessDenied,
    DeviceBusy,
    Disconnected,
    NotSent,
    Overrun,
    Stalled,
    TimedOut,
    WireFailed,
)
from usbgpu.transport.identity import Identity, Running
from usbgpu.transport.opening import attach, open
from usbgpu.transport.pipeline import Pending
from usbgpu.transport.replay import Differs
from usbgpu.transport.speed import Speed
from usbgpu.transport.trace import record

__all__ = [
    "Abandoned",
    "AccessDenied",
    "Call",
    "CallKind",
    "Clock",
    "DeviceBusy",
    "DeviceString",
    "Differs",
    "Disconnected",
    "EmulatedBackend",
    "Emulation",
    "Identity",
    "NotSent",
    "Observer",
    "Outcome",
    "Overrun",
    "Pending",
    "Running",
    "Speed",
    "Stalled",
    "TimedOut",
    "Transport",
    "WireFailed",
    "attach",
    "open",
    "record",
]

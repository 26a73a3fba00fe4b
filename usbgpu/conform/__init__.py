"""The conformance suite: what firmware of the bridge must do, as checks that run against any device.

    report = conform.run("emulated")            # or "usb", or the name or file of an image
    report.conforms, report.rows

The rules are those of the USB specifications and of the contract of the requests
(`firmware.protocol.requests`, `commands`); each check names its own. Checks reach the device through
`usbgpu.transport` alone, so an emulated bridge and a real one get the same checks; what would disturb an
operating system, or a card in the slot, runs on emulated devices only. A run can be recorded as a trace, and
the trace replayed against another device, to the first difference.
"""

from usbgpu.conform.report import Report, Row, Verdict
from usbgpu.conform.suite import CHECKS, SECTIONS, device_of, examine, run
from usbgpu.conform.trace import Difference, Replayed, replay

__all__ = [
    "CHECKS",
    "SECTIONS",
    "Difference",
    "Replayed",
    "Report",
    "Row",
    "Verdict",
    "device_of",
    "examine",
    "replay",
    "run",
]

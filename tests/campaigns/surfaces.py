"""All surfaces, by name: the one list of them."""

from __future__ import annotations

from tests.campaigns import debuggers, kills, places, sanitized, soak, telemetry, usb
from tests.campaigns.campaign import Surface

SURFACES: dict[str, Surface] = {
    surface.name: surface
    for surface in (
        usb.USBIP,
        usb.USBREDIR,
        debuggers.GDB,
        debuggers.MONITOR,
        telemetry.TELEMETRY,
        *sanitized.SURFACES,
        *kills.SURFACES,
        *places.SURFACES,
        *soak.SURFACES,
    )
}

"""All surfaces, by name: the one list of them."""

from __future__ import annotations

from tests.campaigns import (
    cable,
    debuggers,
    files_artifact,
    files_captures,
    files_firmware,
    files_media,
    files_models,
    kills,
    places,
    sanitized,
    soak,
    telemetry,
    usb,
)
from tests.campaigns.campaign import Surface

SURFACES: dict[str, Surface] = {
    surface.name: surface
    for surface in (
        *files_artifact.SURFACES,
        *files_media.SURFACES,
        *files_models.SURFACES,
        *files_firmware.SURFACES,
        *files_captures.SURFACES,
        cable.CABLE,
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

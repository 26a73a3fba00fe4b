"""All surfaces, by name: the one list of them."""

from __future__ import annotations

from tests.campaigns import cable, files_artifact, files_captures, files_firmware, files_media, files_models
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
    )
}

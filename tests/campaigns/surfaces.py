"""All surfaces, by name: the one list of them."""

from __future__ import annotations

from tests.campaigns import cable
from tests.campaigns.campaign import Surface

SURFACES: dict[str, Surface] = {surface.name: surface for surface in (cable.CABLE,)}

"""What the runtime adds for an emulated bridge: the card that is assumed behind it, and what only an
emulation reports.

The emulator is reached by device string alone (`usbgpu.transport`); nothing here imports it. What it offers
beyond a bridge's behaviour is `usbgpu.transport.emulation.Emulation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from usbgpu.bridge.seam import Bridge
from usbgpu.transport import DeviceString

KIND = "emulated"
CHIP = "gfx1100"
"""The card that is behind an emulated bridge if the device string names none."""
VRAM = "512M"
"""Its memory if the device string names no size: the size of real ones costs an emulator more."""


def with_card(device: str | None, chip: str = CHIP, vram: str = VRAM) -> str:
    """The device string of a GPU: `emulated` is the emulated bridge with a card behind it.

    Args:
        device: as `usbgpu.transport.open` takes it; None for TOWLINE_DEVICE, or `emulated`.
        chip: the card if an emulated bridge has none.
        vram: its memory if the string names no size.

    Raises:
        UsageError: the string names no device.
    """
    named = DeviceString.parse(device)
    place, _, query = named.text.partition("?")
    options = [option for option in query.split("&") if option]
    if named.kind != KIND or any(option.startswith("gpu=") for option in options):
        return named.text
    options.append(f"gpu={chip}")
    if not any(option.startswith("vram=") for option in options):
        options.append(f"vram={vram}")
    return f"{place}?{'&'.join(options)}"


def firmware_directory(bridge: Bridge) -> Path | None:
    """Where the firmware of an emulated bridge's card is; None for other bridges, and without a card."""
    return None if bridge.emulation is None else bridge.emulation.firmware_directory


def wave_instructions(bridge: Bridge, last: int) -> Sequence[int] | None:
    """Instructions of 32 lanes that each of the last dispatches executed; None where they are not counted."""
    return None if bridge.emulation is None else bridge.emulation.wave_instructions(last)


def wmma_instructions(bridge: Bridge, last: int) -> Sequence[int] | None:
    """The matrix instructions among them."""
    return None if bridge.emulation is None else bridge.emulation.wmma_instructions(last)


def dispatch_nanoseconds(bridge: Bridge, last: int) -> Sequence[int] | None:
    """How long each of the last dispatches took by the model of the card; None where there is no model."""
    return None if bridge.emulation is None else bridge.emulation.dispatch_nanoseconds(last)

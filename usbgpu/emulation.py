"""What the runtime makes of an emulated bridge: the card that is taken to be behind it, and what only an
emulation tells.

The emulator is reached by device string alone (`usbgpu.transport`); nothing here imports it. What it offers
beyond a bridge's behaviour is its `emulation`, of which an attribute may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from usbgpu.transport import DeviceString

KIND = "emulated"
CHIP = "gfx1100"
"""The card that is behind an emulated bridge if nobody says which."""
VRAM = "512M"
"""Its memory if nobody says how much: what real ones have takes longer to look after."""


def with_card(device: str | None, chip: str = CHIP) -> str:
    """A device string for whoever wants a GPU: `emulated` is the emulated bridge with a card behind it.

    Args:
        device: as `usbgpu.transport.open` takes it; None for TOWLINE_DEVICE, or `emulated`.
        chip: the card if an emulated bridge has none.

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
        options.append(f"vram={VRAM}")
    return f"{place}?{'&'.join(options)}"


def firmware_directory(bridge: object) -> Path | None:
    """Where the firmware of an emulated bridge's card is; None for other bridges, and without a card."""
    found: Path | None = getattr(_emulation(bridge), "firmware_directory", None)
    return found


def wave_instructions(bridge: object, last: int) -> Sequence[int] | None:
    """Instructions of 32 lanes that each of the last dispatches executed; None if nobody has counted."""
    board = getattr(getattr(_emulation(bridge), "endpoint", None), "scoreboard", None)
    if board is None or len(board.records) < last:
        return None
    return [record.outcome.total for record in board.records][len(board.records) - last :]


def _emulation(bridge: object) -> object:
    return getattr(getattr(bridge, "transport", None), "emulation", None)

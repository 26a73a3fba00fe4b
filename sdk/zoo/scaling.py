"""Widths: how many channels a network has of those that its paper says."""

from __future__ import annotations

from sdk.errors import UsageError

WIDEST = 8


def require_width(width: float) -> None:
    """Refuse a width multiplier out of range.

    Raises:
        UsageError: it is not above 0 and at most 8.
    """
    if not 0 < width <= WIDEST:
        raise UsageError(f"a width multiplier of {width:g} is out of range", hint=f"choose 0.1 to {WIDEST}")


def scaled(channels: int, width: float, step: int = 8) -> int:
    """Channels times width, to the nearest multiple of `step`, at least one step."""
    return max(1, round(channels * width / step)) * step

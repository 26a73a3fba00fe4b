"""Which constants are fetched into the L2 ahead of the calls that read them.

The weights lie in the order in which the calls read them. Before each call one instruction, `l2fetch`, asks
for the next lines of that stream, as far as the L2 has room beside what the layer works on. The DSP fetches
them while it computes (Hexagon V65 Programmer's Reference Manual, "L2 cache prefetch": up to three requests
of a thread wait, a fourth takes the place of the oldest, and hardware may ignore any).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dsp.hexagon.calls import Layer
from sdk.arena import ALIGNMENT, Buffer

RESERVED = 4
"""Of the L2, one part in so many is for all that is neither in the arena nor fetched ahead."""
LEAST = 8
"""And one part in so many is for what is fetched ahead, however large the layer is."""

MOST_LINES = (1 << 16) - 1
"""Of one instruction: its height has 16 bits."""

READ_IN_ORDER = ("gemm",)
"""Kernels that read each weight once, in order, faster than memory gives it: all of theirs are asked for at
once, as none can be replaced before it is used."""


def ask_ahead(layers: Sequence[Layer], buffers: Sequence[Buffer], weights: int, l2: int) -> None:
    """Say for each call what to fetch when it begins, `Call.fetch`.

    Args:
        layers: with the calls in their order.
        buffers: of the arena.
        weights: bytes of the constants.
        l2: bytes of the L2.
    """
    asked = begun = 0
    for number, layer in enumerate(layers):
        live = sum(buffer.nbytes for buffer in buffers if buffer.first <= number <= buffer.last)
        room = max(l2 - l2 // RESERVED - live, l2 // LEAST)
        for i, call in enumerate(layer.calls):
            own = call.constants - begun
            end = begun + max(room, own if call.struct in READ_IN_ORDER else 0)
            lines = min((min(end, weights) - asked) // ALIGNMENT, MOST_LINES)
            if lines > 0:
                layer.calls[i] = dataclasses.replace(call, fetch=(asked, lines * ALIGNMENT))
                asked += lines * ALIGNMENT
            begun = call.constants

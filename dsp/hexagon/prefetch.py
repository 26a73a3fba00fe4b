"""Which constants are fetched into the L2 ahead of the calls that read them.

The weights lie in the order in which the calls read them. Before each call one instruction, `l2fetch`, asks
for the next lines of that stream, as far as the L2 has room beside what the layer works on. The DSP fetches
them while it computes (Hexagon V65 Programmer's Reference Manual, "L2 cache prefetch": up to three requests
of a thread wait, a fourth takes the place of the oldest, and hardware may ignore any).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dsp.hexagon.calls import Call, Layer
from dsp.hexagon.sharing import CONTEXTS, Spans, merged, touched
from sdk.arena import ALIGNMENT

RESERVED = 4
"""1 / RESERVED of the L2 is for all that is neither in the arena nor fetched ahead."""

SIDE_BY_SIDE = 16
"""Blocks of a Gemm whose weights are read side by side, each once, and faster than memory gives them."""

FURTHEST = 64
"""Calls that are looked at beyond the one that asks."""

MOST_LINES = (1 << 16) - 1
"""Of one instruction: its height has 16 bits."""


def ask_ahead(layers: Sequence[Layer], weights: int, l2: int) -> None:
    """Say for each call what to fetch when it begins, `Call.fetch`.

    What was used longest ago is replaced first. A line that is asked for stays until it is used if the L2
    holds all that is touched in between: constants and parts of the arena of the calls up to that one, and as
    many bytes again, for which these calls ask in their turn. A Gemm's own are asked for as a whole: they are
    used as they come, if the L2 holds what is read side by side.

    Args:
        layers: with the calls in their order; the arena has been planned.
        weights: bytes of the constants.
        l2: bytes of the L2.
    """
    calls = [call for layer in layers for call in layer.calls]
    spans = [
        merged([span for part in range(CONTEXTS) for some in touched(call, part) for span in some])
        for call in calls
    ]
    begins = [0, *(call.constants for call in calls)]
    room = l2 - l2 // RESERVED
    found: list[Call] = []
    asked = 0
    for number, call in enumerate(calls):
        begun = begins[number]
        asked = max(asked, begun)
        end = begins[number + 1] if call.struct == "gemm" and _side_by_side(call) <= room else 0
        arena: Spans = []
        last = min(number + FURTHEST, len(calls))
        for later in range(number, last if asked < begins[last] else number):
            arena = merged([*arena, *spans[later]])
            free = (room - sum(b - a for a, b in arena)) // 2
            end = max(end, begun + min(free, begins[later + 1] - begun))
            if begins[later + 1] - begun >= free:
                break
        lines = min((min(end, weights) - asked) // ALIGNMENT, MOST_LINES)
        if lines > 0:
            call = dataclasses.replace(call, fetch=(asked, lines * ALIGNMENT))
            asked += lines * ALIGNMENT
        found.append(call)
    remaining = iter(found)
    for layer in layers:
        layer.calls = [next(remaining) for _ in layer.calls]


def _side_by_side(call: Call) -> int:
    """Bytes of the weights that a Gemm reads at the same time."""
    return SIDE_BY_SIDE * ALIGNMENT * int(call.fields["steps"])

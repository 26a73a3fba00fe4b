"""Facts of the cards that contradict each other, or that no source states."""

from __future__ import annotations

from sdk.facts.disputes import Claim, Dispute
from sdk.facts.registers import Evidence

RESET_VRAM = Dispute(
    "reset-vram",
    "What is in VRAM after a mode-1 reset.",
    (
        Claim(
            "keep",
            "What was in it before. A published driver writes its page tables before the reset and uses them "
            "after it.",
            Evidence.TRACE,
            "open host driver",
        ),
        Claim("garble", "Nothing that one may rely on.", Evidence.INFERRED, "Linux takes it for lost"),
    ),
    strict="garble",
)
HDP_DRAIN = Dispute(
    "hdp-drain",
    "When what the host wrote through BAR 0 is in VRAM, if nothing flushes it.",
    (
        Claim("10us", "After 10 us. No driver is known to rely on it.", Evidence.GUESS, "none"),
        Claim(
            "never",
            "It waits for a flush, a doorbell, or until the buffer is full: drivers that never flush are "
            "noticed.",
            Evidence.GUESS,
            "none",
        ),
    ),
)

DISPUTES = (RESET_VRAM, HDP_DRAIN)
"""All of them."""

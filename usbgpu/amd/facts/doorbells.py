"""How the card's doorbells are routed to its engines.

Sources: Linux 6.12, `nbio_v4_3.c` and `nbif_v6_3_1.c` (MIT), and the values that a published driver's boot
trace writes. That a port without a range takes what no other port claims is inferred from those values: the
compute queues' port is enabled with size 0.
"""

from __future__ import annotations

from collections.abc import Mapping

SIZE = 2 << 20
"""Bytes of the doorbell BAR (grade: inferred, from lspci listings of RDNA cards)."""

AWIDS: Mapping[int, str] = {0x3: "cp", 0x6: "cp-second", 0xE: "sdma", 0x0: "ih"}
"""Which engine gets the doorbells of a port, by its AWID field. The use of 6 is not published (guess)."""

CP_PORT, IH_PORT, CP_SECOND_PORT, SDMA_PORT = 0, 1, 3, 2
"""Which of the S2A_DOORBELL_ENTRY registers is used for what."""

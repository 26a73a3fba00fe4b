"""The power management processor: messages to it, the clocks, the power limit, its interrupt.

The driver raises clocks for work and lowers them afterwards, within what the processor's firmware allows; it
reads tables; it lowers the power limit if its user asks for that, never above what the card begins with.
`MAY_SEND` has every message that it sends: none changes limits of temperature or fans.
Facts: `usbgpu.amd.facts.smu`.
"""

from __future__ import annotations

from collections.abc import Mapping

from sdk.errors import InternalError, UsageError
from usbgpu.amd import layout
from usbgpu.amd.batch import Batch, Later
from usbgpu.amd.card import Card
from usbgpu.amd.facts import interrupts
from usbgpu.amd.facts import smu as facts

MAY_SEND = frozenset(
    (
        "GetSmuVersion", "EnableAllSmuFeatures", "SetDriverDramAddrHigh", "SetDriverDramAddrLow",
        "TransferTableSmu2Dram", "SetSoftMinByFreq", "SetSoftMaxByFreq", "GetMinDpmFreq", "GetMaxDpmFreq",
        "GetPptLimit", "SetPptLimit",
    )
)  # fmt: skip
PINNED = ("UCLK", "FCLK", "SOCCLK", "GFXCLK")
"""Clocks that are raised for work, in the order of the published drivers."""
MESSAGE_TIME = 2.0
"""Seconds that a message may take (`smu_cmn.c`)."""

SOURCE, INTERRUPT = "MP1_SMN_IH_SW_INT", "MP1_SMN_IH_SW_INT_CTRL"
"""The registers that give its interrupt a source, and that mask and acknowledge it."""

Ranges = Mapping[str, tuple[int, int]]
"""Lowest and highest frequency of each pinned clock, in MHz."""


def send(batch: Batch, message: str, argument: int = 0) -> None:
    """Send a message, and wait until it has been carried out.

    Raises:
        InternalError: it is not one of MAY_SEND, or a power limit above that of the card.
    """
    if message not in MAY_SEND or (message == "SetPptLimit" and argument > batch.card.chip.power_caps[1]):
        raise InternalError(f"the driver does not send {message} {argument}")
    number = facts.interface(batch.card.chip).messages[message]
    batch.write("SMU", "MP1_SMN_C2PMSG_90", 0)
    batch.write("SMU", "MP1_SMN_C2PMSG_82", argument)
    batch.write("SMU", "MP1_SMN_C2PMSG_66", number)
    batch.wait(
        "SMU", "MP1_SMN_C2PMSG_90", facts.RESULTS["OK"], seconds=MESSAGE_TIME, what=f"SMU answer to {message}"
    )


def query(batch: Batch, message: str, argument: int = 0) -> Later[int]:
    """The same, for a message whose answer is a number."""
    send(batch, message, argument)
    return batch.read("SMU", "MP1_SMN_C2PMSG_82")


def init(batch: Batch, vram: int) -> None:
    """Pass it the address of its table, and make it scale clocks.

    Args:
        batch: takes the operations.
        vram: address of VRAM for the memory controller.
    """
    table = vram + layout.SMU_TABLE
    send(batch, "SetDriverDramAddrHigh", table >> 32)
    send(batch, "SetDriverDramAddrLow", table & 0xFFFF_FFFF)
    send(batch, "EnableAllSmuFeatures")


def query_ranges(batch: Batch) -> dict[str, tuple[Later[int], Later[int]]]:
    """The frequencies between which each clock can be set; `ranges` interprets them."""
    clocks = {name: _clock(batch, name) for name in PINNED}
    return {
        name: (query(batch, "GetMinDpmFreq", number), query(batch, "GetMaxDpmFreq", number))
        for name, number in clocks.items()
    }


def ranges(asked: Mapping[str, tuple[Later[int], Later[int]]]) -> Ranges:
    """The answers, in MHz."""
    return {name: (low.value & 0xFFFF, high.value & 0xFFFF) for name, (low, high) in asked.items()}


def raise_clocks(batch: Batch, known: Ranges) -> None:
    """Set all clocks to their highest. The processor still lowers them when power or heat require it."""
    for name, (_, high) in known.items():
        send(batch, "SetSoftMinByFreq", _clock(batch, name) | high)
        send(batch, "SetSoftMaxByFreq", _clock(batch, name) | high)


def lower_clocks(batch: Batch, known: Ranges) -> None:
    """Set all clocks to their lowest."""
    for name, (low, _) in known.items():
        send(batch, "SetSoftMinByFreq", _clock(batch, name) | low)
        send(batch, "SetSoftMaxByFreq", _clock(batch, name) | low)


def acknowledge(batch: Batch) -> None:
    """Its interrupt is wanted, and has been seen: it may post the next (Linux, `smu_v13_0_irq_process`)."""
    chip = batch.card.chip
    source = interrupts.SOURCES["SMU_TO_DRIVER"]
    batch.write("MP", SOURCE, chip.register("MP", SOURCE).pack(ID=source))
    batch.write("MP", INTERRUPT, chip.register("MP", INTERRUPT).pack(INT_ACK=1))


class PowerCap:
    """A power limit that a program has asked for. The card's own comes back when the program closes it.

    Args:
        watts: that the board may draw at most.

    Attributes:
        watts: as given.
    """

    def __init__(self, watts: float) -> None:
        self.watts = watts
        self._asked: Later[int] | None = None

    def require(self, card: Card) -> None:
        """Refuse a limit that the card does not take. Raises UsageError, with the range."""
        least, most = card.chip.power_caps
        if not least <= self.watts <= most or self.watts != int(self.watts):
            raise UsageError(
                f"a {card.chip.name} takes a power cap of {least} W to {most} W, not {self.watts:g} W",
                where="power cap",
                hint="give whole watts within these",
            )

    def set(self, batch: Batch) -> None:
        """Set it, on a card with its own limit."""
        self._asked = query(batch, "GetPptLimit")
        send(batch, "SetPptLimit", int(self.watts))

    def restore(self, batch: Batch) -> None:
        """Set the card's own limit again, if this one was set."""
        if self._asked is not None and self._asked.known:
            send(batch, "SetPptLimit", min(self._asked.value & 0xFFFF, batch.card.chip.power_caps[1]))


def _clock(batch: Batch, name: str) -> int:
    """The number of a clock, as arguments have it."""
    return facts.interface(batch.card.chip).clocks.index(name) << 16

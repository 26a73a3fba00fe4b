"""What the models do where sources disagree, or are silent: switches, each value with its grade.

    reset-vram=garble     in a device string: emulated?gpu=gfx1100&reset-vram=garble
    --model reset-vram=garble   for `towline emulate`; may be repeated

The first value is what a model does by itself; under `strict` it is `Switch.strict`, where there is one.
docs/emulator.md says who needs which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sdk.errors import UsageError
from sdk.facts.registers import Evidence


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch.

    Attributes:
        name: as users write it.
        values: by name, the default first: the evidence for it, and what the model does then.
        strict: the default under `strict`; "" for the same.
        card: whether it is one of the emulated GPU.
    """

    name: str
    values: Mapping[str, tuple[Evidence, str]]
    strict: str = ""
    card: bool = False

    def value(self, chosen: Mapping[str, str], *, strict: bool = False) -> str:
        """The chosen value, or the default."""
        default = self.strict if strict and self.strict else next(iter(self.values))
        return chosen.get(self.name, default)


DMA_ARM = Switch(
    "dma-arm",
    {
        "queue": (
            Evidence.INFERRED,
            "DMA_ARM written while slot DMA takes a transfer to the SRAM: the next one waits for its end; a "
            "published driver does this on silicon all the time",
        ),
        "replace": (Evidence.GUESS, "the next one begins at once, the rest of this one is lost; reported"),
    },
)
RESET_VRAM = Switch(
    "reset-vram",
    {
        "keep": (
            Evidence.TRACE,
            "VRAM outlives a mode-1 reset: a published driver writes its page tables before it and uses them "
            "after it",
        ),
        "garble": (Evidence.INFERRED, "it does not: Linux takes it for lost"),
    },
    strict="garble",
    card=True,
)
HDP_DRAIN = Switch(
    "hdp-drain",
    {
        "10us": (Evidence.GUESS, "what the host wrote through BAR 0 is in VRAM after 10 us without a flush"),
        "never": (Evidence.GUESS, "it waits for a flush, a doorbell, or until the buffer is full"),
    },
    card=True,
)
SWITCHES: Mapping[str, Switch] = {switch.name: switch for switch in (DMA_ARM, RESET_VRAM, HDP_DRAIN)}
"""By name."""


def parse(texts: Iterable[str]) -> dict[str, str]:
    """Values by the name of their switch.

    Args:
        texts: of the form NAME=VALUE; the last one of a name counts.

    Raises:
        UsageError: there is no such switch, or it has no such value.
    """
    chosen: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        switch = SWITCHES.get(name)
        if switch is None:
            known = ", ".join(f"{each.name}={'|'.join(each.values)}" for each in SWITCHES.values())
            raise UsageError(f"the models have no switch {name!r}", hint=f"switches: {known}")
        if value not in switch.values:
            raise UsageError(
                f"{text!r}: {name} has no value {value!r}",
                hint=" or ".join(f"{name}={value}" for value in switch.values),
            )
        chosen[name] = value
    return chosen

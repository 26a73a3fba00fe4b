"""Which of contradicting facts the models follow: those of the chip and of the cards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from firmware.asm2464pd import disputes as of_chip
from sdk.errors import UsageError
from sdk.facts.disputes import Dispute
from usbgpu.amd.facts import disputes as of_card

CHOICES = {dispute.name: dispute for dispute in (*of_chip.DISPUTES, *of_card.DISPUTES)}
"""What can be chosen, by name."""


@dataclass(frozen=True, slots=True)
class Model:
    """The claims that are followed.

    Attributes:
        chosen: names of claims by name of the dispute; of a dispute that is not here, the first claim.
    """

    chosen: dict[str, str] = field(default_factory=dict)

    def follows(self, dispute: Dispute, value: str, *, strict: bool = False) -> bool:
        """Whether the claim of that name is followed, in a strict model if it is one."""
        default = dispute.strict if strict and dispute.strict else dispute.claims[0].value
        return self.chosen.get(dispute.name, default) == value

    @classmethod
    def of(cls, texts: Iterable[str]) -> Model:
        """The model that choices such as `super-plus-code=2` describe; a later one replaces an earlier one.

        Raises:
            UsageError: there is no such dispute or claim.
        """
        chosen = {}
        for text in texts:
            name, _, value = text.partition("=")
            dispute = CHOICES.get(name)
            if dispute is None:
                raise UsageError(
                    f"the model has no choice {name!r}",
                    hint=f"choices: {', '.join(_forms(dispute) for dispute in CHOICES.values())}",
                )
            if value not in {claim.value for claim in dispute.claims}:
                raise UsageError(
                    f"the choice {name} has no value {value!r}", hint=f"one of {_forms(dispute)}"
                )
            chosen[name] = value
        return cls(chosen)


DEFAULT = Model()
"""The first claim of every dispute."""


def _forms(dispute: Dispute) -> str:
    return f"{dispute.name}={'|'.join(claim.value for claim in dispute.claims)}"

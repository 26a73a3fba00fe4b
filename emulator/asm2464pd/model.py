"""Which of contradicting facts the model follows (`firmware.asm2464pd.disputes`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from firmware.asm2464pd.disputes import DISPUTES, Dispute
from sdk.errors import UsageError

CHOICES = {dispute.name: dispute for dispute in DISPUTES}
"""What can be chosen, by name."""


@dataclass(frozen=True, slots=True)
class Model:
    """The claims that are followed.

    Attributes:
        chosen: names of claims by name of the dispute; of a dispute that is not here, the first claim.
    """

    chosen: dict[str, str] = field(default_factory=dict)

    def follows(self, dispute: Dispute, value: str) -> bool:
        """Whether the claim of that name is followed."""
        return self.chosen.get(dispute.name, dispute.claims[0].value) == value

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
                    hint=f"choices: {', '.join(_forms(dispute) for dispute in DISPUTES)}",
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

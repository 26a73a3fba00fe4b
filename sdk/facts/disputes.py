"""Facts that contradict each other: one question, several answers, each with its evidence."""

from __future__ import annotations

from dataclasses import dataclass

from sdk.facts.registers import Evidence, FactError


@dataclass(frozen=True, slots=True)
class Claim:
    """What one side says.

    Attributes:
        value: its name.
        doc: what it says, and which firmware needs it.
        evidence: its grade.
        source: who says so.
    """

    value: str
    doc: str
    evidence: Evidence
    source: str


@dataclass(frozen=True, slots=True)
class Dispute:
    """A question with several answers.

    Attributes:
        name: of the question.
        question: what the answers are about.
        claims: the answers; the first is followed unless another one is chosen.
        strict: name of the one that a strict model follows; "" for the first too.
    """

    name: str
    question: str
    claims: tuple[Claim, ...]
    strict: str = ""

    def __post_init__(self) -> None:
        if len({claim.value for claim in self.claims}) != len(self.claims) or len(self.claims) < 2:
            raise FactError(f"{self.name}: a dispute has at least two claims of different names")

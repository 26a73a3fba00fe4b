"""The results of a run of the suite."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Any

from usbgpu.transport import Identity


class Verdict(Enum):
    """Of a check."""

    PASSED = "pass"
    FAILED = "FAIL"
    SKIPPED = "skip"
    UNREACHED = "unreached"
    """Something it relies on does not work, which another check has reported."""


@dataclass(frozen=True, slots=True)
class Row:
    """A check and its result.

    Attributes:
        section: the heading it is listed under.
        name: the check's.
        says: the rule, with its source.
        verdict: the result.
        detail: why it failed, was skipped or not reached, or what could not be tested; else empty.
    """

    section: str
    name: str
    says: str
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A run.

    Attributes:
        target: what was tested, as the caller named it.
        identity: what it is.
        rows: the checks in order.
    """

    target: str
    identity: Identity
    rows: tuple[Row, ...]

    @property
    def counts(self) -> dict[Verdict, int]:
        """Checks by verdict."""
        found = Counter(row.verdict for row in self.rows)
        return {verdict: found[verdict] for verdict in Verdict}

    @property
    def conforms(self) -> bool:
        """Whether no check failed, and some passed."""
        return not self.counts[Verdict.FAILED] and bool(self.counts[Verdict.PASSED])

    def document(self) -> dict[str, Any]:
        """The report as plain values."""
        counts = self.counts
        return {
            "target": self.target,
            "device": str(self.identity),
            "running": self.identity.running.value,
            "speed": self.identity.speed.value,
            "passed": counts[Verdict.PASSED],
            "failed": counts[Verdict.FAILED],
            "skipped": counts[Verdict.SKIPPED],
            "unreached": counts[Verdict.UNREACHED],
            "checks": [
                {
                    "section": row.section,
                    "name": row.name,
                    "says": row.says,
                    "verdict": row.verdict.value.lower(),
                    "detail": row.detail,
                }
                for row in self.rows
            ],
        }

"""What a driver left out or did wrong, in plain words.

A real card that was set up wrongly hangs, or computes nonsense. This one does that too, and says why: the
block that notices a consequence reports the missing step, by its key.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

log = logging.getLogger(__name__)

ALIKE = 4
"""Findings that differ in addresses and other hexadecimal numbers only: so many are reported, and
then that more follow."""


@dataclass(frozen=True, slots=True)
class BootStep:
    """Something that a driver must do before the card works; each block lists its own, `boot_steps` all.

    Attributes:
        key: short name, such as `mmhub-context0`.
        what: what is to be done, in the registers' names.
        needed_by: what depends on it.
        symptom: what shows if it is left out; silicon's where that is known, the model's otherwise.
        grade: of that symptom: hardware, trace, inferred or guess.
    """

    key: str
    what: str
    needed_by: str
    symptom: str
    grade: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that the driver did not do, or did wrongly.

    Attributes:
        step: key of the boot step, or `""` if it is not about one.
        symptom: what happens because of it: a sentence.
        clock: chip clocks since power-on.
    """

    step: str
    symptom: str
    clock: int


class Diagnosis:
    """Collects findings, each once and few of a kind; calls observers, or logs a warning if there are none.

    Args:
        now: chip clocks since power-on.

    Attributes:
        findings: so far.
        observers: called with each new one.
        remedies: what a boot step does, by key: added to its warnings (`boot_steps.REMEDIES`).
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self.findings: list[Finding] = []
        self.observers: list[Callable[[Finding], None]] = []
        self.remedies: Mapping[str, str] = {}
        self._now = now
        self._known: set[tuple[str, str]] = set()
        self._kinds: Counter[tuple[str, str]] = Counter()

    def missing(self, step: str, symptom: str) -> None:
        """A missing step has a consequence now."""
        self._report(step, f"{symptom}: boot step {step} is missing")

    def wrong(self, symptom: str, step: str = "") -> None:
        """The driver did something wrong."""
        self._report(step, symptom)

    @property
    def steps(self) -> set[str]:
        """The steps that were missed."""
        return {finding.step for finding in self.findings if finding.step}

    def _report(self, step: str, symptom: str) -> None:
        kind = step, re.sub("0x[0-9a-f]+", "0x", symptom)
        if self._kinds[kind] > ALIKE or (step, symptom) in self._known:
            return
        self._known.add((step, symptom))
        self._kinds[kind] += 1
        if self._kinds[kind] > ALIKE:
            symptom = f"{symptom}; more of this kind are not reported"
        finding = Finding(step, symptom, self._now())
        self.findings.append(finding)
        if not self.observers:
            remedy = f": {self.remedies[step]}" if step in self.remedies else ""
            log.warning("gpu: %s%s", symptom, remedy)
        for observer in self.observers:
            observer(finding)

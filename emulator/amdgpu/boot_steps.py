"""Everything that a driver must do before the card works, collected from the blocks that insist on it.

Each block lists its own steps; tests leave out one after the other and see that it is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from emulator.amdgpu import card, compute, doorbells, hdp, hub, ih, psp, rlc, sdma, smu
from emulator.amdgpu.diagnosis import BootStep
from sdk.errors import InternalError

GRADES = ("hardware", "trace", "inferred", "guess")


def _unique(lists: Iterable[tuple[BootStep, ...]]) -> Mapping[str, BootStep]:
    """Steps by key. Raises InternalError if two have the same, or one says nothing."""
    steps: dict[str, BootStep] = {}
    for step in (step for steps in lists for step in steps):
        if step.key in steps:
            raise InternalError(f"two boot steps are called {step.key}")
        if not (step.key and step.what and step.needed_by and step.symptom and step.grade in GRADES):
            raise InternalError(f"the boot step {step.key} is not filled in")
        steps[step.key] = step
    return steps


STEPS: Mapping[str, BootStep] = _unique(
    block.STEPS for block in (card, hdp, doorbells, hub, ih, psp, rlc, smu, compute, sdma)
)
"""By key, in about the order of a boot."""

"""Everything that a driver must do before the card works, collected from the blocks that need it.

Each block lists its own steps; tests leave out each in turn, and the card must report it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from emulator.amdgpu import card, compute, doorbells, hdp, hub, ih, psp, rlc, sdma, smu
from emulator.amdgpu.diagnosis import BootStep
from sdk.errors import InternalError

GRADES = ("hardware", "trace", "inferred", "guess")


def _unique(lists: Iterable[tuple[BootStep, ...]]) -> Mapping[str, BootStep]:
    """Steps by key. Raises InternalError if two have the same key, or one is incomplete."""
    steps: dict[str, BootStep] = {}
    for step in (step for steps in lists for step in steps):
        if step.key in steps:
            raise InternalError(f"two boot steps have the key {step.key}")
        if not (step.key and step.what and step.needed_by and step.symptom and step.grade in GRADES):
            raise InternalError(f"the boot step {step.key} has an empty field or no valid grade")
        steps[step.key] = step
    return steps


STEPS: Mapping[str, BootStep] = _unique(
    block.STEPS for block in (card, hdp, doorbells, hub, ih, psp, rlc, smu, compute, sdma)
)
"""By key, in about the order of a boot."""

REMEDIES: Mapping[str, str] = {step.key: step.what for step in STEPS.values()}
"""What to do for each step, by key."""

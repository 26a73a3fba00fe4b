"""A trace of the card, by name and field: `towline emulate --gpu gfx1100 --trace gpu`.

    0.412345678 gpu  R NBIO:RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE = 0x6000
    0.412345721 gpu  W NBIO:RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN = 0x1  BIF_DOORBELL_APER_EN
    0.412349810 gpu  . pm4 DISPATCH_DIRECT 4x1x1
    0.412349810 gpu  ! an engine reads ...: boot step hdp-flush is missing
    0.412349810 gpu    hdp-flush: write 0 to the register that ... (grade of the symptom: inferred)

R and W are the driver's register accesses, a dot is an event inside a block, an exclamation mark a finding;
if that is about a boot step, what the step does comes after it, once.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.boot_steps import STEPS
from emulator.amdgpu.card import AmdCard
from emulator.amdgpu.context import Event
from emulator.amdgpu.diagnosis import Finding
from emulator.core.clock import seconds
from usbgpu.amd.facts.describe import DwordRegister

REPEATS = 3
"""Identical lines in a row that are printed; the rest of a polling loop is counted."""


class Trace:
    """Writes a line for every register access, event and finding.

    Args:
        card: what to watch.
        write: takes each line, without its end.
    """

    def __init__(self, card: AmdCard, write: Callable[[str], None]) -> None:
        self._card = card
        self._write = write
        self._last = ""
        self._times = 0
        self._explained: set[str] = set()
        card.register_observers.append(self._accessed)
        card.event_observers.append(self._happened)
        card.diagnosis.observers.append(self._found)

    def close(self) -> None:
        """Trace nothing more."""
        self._card.register_observers.remove(self._accessed)
        self._card.event_observers.remove(self._happened)
        self._card.diagnosis.observers.remove(self._found)
        self._end_repeats()

    def _accessed(self, kind: str, block: str, register: DwordRegister, value: int) -> None:
        head = "R" if kind == "read" else "W"
        self._print(f"{head} {block}:{register.name} = {value:#x}  {describe(register, value)}".rstrip())

    def _happened(self, event: Event) -> None:
        self._print(f". {event.source} {event.text}")

    def _found(self, finding: Finding) -> None:
        self._print(f"! {finding.symptom}")
        step = STEPS.get(finding.step)
        if step is not None and step.key not in self._explained:
            self._explained.add(step.key)
            self._print(f"  {step.key}: {step.what} (grade of the symptom: {step.grade})")

    def _print(self, text: str) -> None:
        if text == self._last:
            self._times += 1
            if self._times > REPEATS:
                return
        else:
            self._end_repeats()
            self._last, self._times = text, 1
        self._write(f"{seconds(self._card.upstream.now()):12.9f} gpu  {text}")

    def _end_repeats(self) -> None:
        """Say how often the last line was repeated, if it was."""
        if (more := self._times - REPEATS) > 0:
            self._write(f"{'':12} gpu  ... {more} more time{'s' if more > 1 else ''}")
        self._last, self._times = "", 0


def describe(register: DwordRegister, value: int) -> str:
    """The fields of a value that are not zero, without one that is the whole register."""
    words = []
    for name, content in register.unpack(value).items():
        width = register.field(name).width
        if content and width < 32:
            words.append(name if width == 1 else f"{name}={content:#x}")
    return " ".join(words)

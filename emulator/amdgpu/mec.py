"""MEC, the micro engine of the compute queues: firmware, start and halt of its four pipes.

A pipe runs when autoload has put its firmware in place, its start address was there when its reset ended, and
it is active and not halted; on gfx12 the PFP and the ME must have been started likewise (grade: inferred from
what a published driver does; what happens otherwise: guess).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep
from emulator.amdgpu.grbm import Grbm
from emulator.amdgpu.hqd import ME, PIPES
from emulator.core.clock import clocks
from usbgpu.amd.facts.firmware import RS64_START

BOOT_CLOCKS = clocks(20e-6)
"""From a pipe's start until it takes doorbells (model; grade: guess, the kernel waits 50 us)."""
START = RS64_START >> 2
"""What PRGRM_CNTR_START and _HI must hold."""

STEPS: tuple[BootStep, ...] = (
    BootStep(
        "mec-start-address",
        "CP_MEC_RS64_PRGRM_CNTR_START, _HI for me 1 and each pipe in use: a quarter of the firmware's start",
        "compute queues",
        "the pipe runs nothing: doorbells are lost",
        "inferred",
    ),
    BootStep(
        "mec-reset",
        "CP_MEC_RS64_CNTL.MEC_PIPEn_RESET 1, then 0, after the start address",
        "compute queues",
        "the pipe does not take the start address: doorbells are lost",
        "inferred",
    ),
    BootStep(
        "mec-active",
        "CP_MEC_RS64_CNTL.MEC_PIPEn_ACTIVE = 1, MEC_HALT = 0",
        "compute queues",
        "the pipe does not run: doorbells are lost",
        "inferred",
    ),
    BootStep(
        "pfp-start",
        "gfx12: CP_PFP_PRGRM_CNTR_START, _HI, then CP_ME_CNTL.PFP_PIPE0_RESET 1, then 0",
        "compute queues",
        "the MEC does not come up: doorbells are lost",
        "guess",
    ),
    BootStep(
        "me-start",
        "gfx12: CP_ME_PRGRM_CNTR_START, _HI, then CP_ME_CNTL.ME_PIPE0_RESET 1, then 0",
        "compute queues",
        "the MEC does not come up: doorbells are lost",
        "guess",
    ),
)


@dataclass(slots=True)
class _Engine:
    """A processor that a reset starts at its start address; `start`: what it has taken, None before."""

    start: int | None = None


class Mec:
    """The micro engine.

    Args:
        context: of the card.
        grbm: which selects pipes.
        require: whether an engine has its firmware and autoload has started it; if not, it
            reports a symptom and what is missing to the diagnosis (`Rlc.require`).
        up: called with the number of a pipe that has come up.
    """

    def __init__(
        self, context: Context, grbm: Grbm, require: Callable[[str, str], bool], up: Callable[[int], None]
    ) -> None:
        self._context = context
        self._require = require
        self._up = up
        self._pipes = [_Engine() for _ in range(PIPES)]
        self._front = {unit: _Engine() for unit in context.chip.family.front}
        self._epochs = [0] * PIPES
        self._booted = [False] * PIPES
        registers = context.registers
        halted = context.chip.register("GC", "CP_MEC_RS64_CNTL").pack(MEC_HALT=1)
        registers.on_write("GC", "CP_MEC_RS64_CNTL", self._control, reset=halted)
        for name in ("CP_MEC_RS64_PRGRM_CNTR_START", "CP_MEC_RS64_PRGRM_CNTR_START_HI"):
            registers.store("GC", name, selector=grbm.pipe)
        if self._front:
            registers.on_write("GC", "CP_ME_CNTL", self._front_control)
            for name in self._front:
                for half in ("", "_HI"):
                    registers.store("GC", f"CP_{name}_PRGRM_CNTR_START{half}", selector=grbm.pipe)

    def running(self, pipe: int) -> bool:
        """Whether a pipe takes doorbells and executes packets."""
        return self._booted[pipe]

    def require(self, pipe: int, symptom: str) -> bool:
        """The same; if it does not run, the symptom and its cause become a finding."""
        if self.running(pipe):
            return True
        if not self._supported(symptom):
            return False
        engine = self._pipes[pipe]
        if engine.start != START:
            self._explain_start(pipe, engine.start, symptom)
        elif self._enabled(pipe):
            self._context.diagnosis.wrong(
                f"{symptom}: pipe {pipe} of the MEC has not come up yet", "mec-active"
            )
        else:
            self._context.diagnosis.missing("mec-active", symptom)
        return False

    def reset(self) -> None:
        """A reset of the command processor: nothing runs, and starts only as after power-on."""
        halted = self._context.chip.register("GC", "CP_MEC_RS64_CNTL").pack(MEC_HALT=1)
        self._context.registers.set("GC", "CP_MEC_RS64_CNTL", halted)
        for pipe, engine in enumerate(self._pipes):
            engine.start = None
            self._settle(pipe, False)

    # -- inside -----------------------------------------------------------------------------------------

    def _supported(self, symptom: str) -> bool:
        """Whether what the MEC needs besides its own start is there; if not, that becomes a finding."""
        engines = [*(name.lower() for name in self._front), "mec"]
        if not all(self._require(name, symptom) for name in engines):
            return False
        for name, engine in self._front.items():
            if engine.start != START:
                self._context.diagnosis.missing(f"{name.lower()}-start", symptom)
                return False
        return True

    def _explain_start(self, pipe: int, taken: int | None, symptom: str) -> None:
        """Why a pipe has no good start address."""
        diagnosis = self._context.diagnosis
        if taken is None:
            diagnosis.missing("mec-reset", symptom)
        elif taken:
            diagnosis.wrong(
                f"{symptom}: pipe {pipe} was started at {taken << 2:#x}, not {START << 2:#x}",
                "mec-start-address",
            )
        elif self._start(pipe):
            diagnosis.wrong(f"{symptom}: pipe {pipe} was reset before it had a start address", "mec-reset")
        elif self._pair("CP_MEC_RS64_PRGRM_CNTR_START", (0, 0)):
            diagnosis.missing("grbm-select", symptom)
        else:
            diagnosis.missing("mec-start-address", symptom)

    def _start(self, pipe: int) -> int:
        return self._pair("CP_MEC_RS64_PRGRM_CNTR_START", (ME, pipe))

    def _pair(self, name: str, bank: tuple[int, int]) -> int:
        registers = self._context.registers
        return registers.value("GC", name + "_HI", bank) << 32 | registers.value("GC", name, bank)

    def _control(self, value: int) -> None:
        register = self._context.chip.register("GC", "CP_MEC_RS64_CNTL")
        before = self._context.registers.value("GC", "CP_MEC_RS64_CNTL")
        for pipe, engine in enumerate(self._pipes):
            name = f"MEC_PIPE{pipe}_RESET"
            was, now = register.get(before, name), register.get(value, name)
            if was and not now:
                engine.start = self._start(pipe)
            self._settle(pipe, self._enabled(pipe, value) and engine.start == START)

    def _enabled(self, pipe: int, value: int | None = None) -> bool:
        register = self._context.chip.register("GC", "CP_MEC_RS64_CNTL")
        value = self._context.registers.value("GC", "CP_MEC_RS64_CNTL") if value is None else value
        held = register.get(value, "MEC_HALT") or register.get(value, f"MEC_PIPE{pipe}_RESET")
        return bool(register.get(value, f"MEC_PIPE{pipe}_ACTIVE")) and not held

    def _settle(self, pipe: int, wanted: bool) -> None:
        """A pipe comes up after a while, or stops at once."""
        if wanted and self._booted[pipe]:
            return
        self._epochs[pipe] += 1
        self._booted[pipe] = False
        if wanted:
            epoch = self._epochs[pipe]
            self._context.link.schedule(BOOT_CLOCKS, lambda: self._boot(pipe, epoch))

    def _boot(self, pipe: int, epoch: int) -> None:
        if self._epochs[pipe] != epoch:
            return
        symptom = f"pipe {pipe} of the MEC is started and does not come up"
        if not self._supported(symptom):
            return
        self._booted[pipe] = True
        self._context.event("mec", lambda: f"pipe {pipe} has come up")
        self._up(pipe)

    def _front_control(self, value: int) -> None:
        register = self._context.chip.register("GC", "CP_ME_CNTL")
        before = self._context.registers.value("GC", "CP_ME_CNTL")
        for name, engine in self._front.items():
            was, now = (register.get(word, f"{name}_PIPE0_RESET") for word in (before, value))
            if was and not now:
                engine.start = self._pair(f"CP_{name}_PRGRM_CNTR_START", (0, 0))

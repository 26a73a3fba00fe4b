"""The run list controller (RLC): starts the engines of the graphics block, and keeps their clocks.

When the security processor gets AUTOLOAD_RLC, the IMU powers the graphics block up and the RLC copies each
engine's firmware out of the TMR. Before that no engine does anything. If one firmware that it needs is
missing, it never completes (grade: guess).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep
from emulator.core.clock import clocks
from usbgpu.amd.facts.describe import DwordRegister

AUTOLOAD_CLOCKS = clocks(5e-3)
"""From AUTOLOAD_RLC until the engines run (model; grade: guess)."""
SAFE_MODE_CLOCKS = clocks(2e-6)
"""An answer of RLC_SAFE_MODE (model; grade: guess)."""

ENGINES: Mapping[str, tuple[str, ...]] = {
    "imu": ("IMU_I", "IMU_D"),
    "rlc": ("RLC_G", "RLC_IRAM", "RLC_DRAM_BOOT"),
    "sdma": ("SDMA_UCODE_TH0",),
    "pfp": ("RS64_PFP", "RS64_PFP_P0_STACK"),
    "me": ("RS64_ME", "RS64_ME_P0_STACK"),
    "mec": ("RS64_MEC", "RS64_MEC_P0_STACK"),
}
"""Firmware that an engine runs, by the names of `facts.psp.FW_TYPES`."""
_ALL = (
    "SMU",
    "IMU_I",
    "IMU_D",
    "RLC_G",
    "RLC_IRAM",
    "RLC_DRAM_BOOT",
    "SDMA_UCODE_TH0",
    "RS64_MEC",
    "RS64_MEC_P0_STACK",
)
REQUIRED: Mapping[int, tuple[str, ...]] = {
    11: (*_ALL, "SDMA_UCODE_TH1", "RLC_P", "RLC_V"),
    12: (*_ALL, "RS64_PFP", "RS64_PFP_P0_STACK", "RS64_ME", "RS64_ME_P0_STACK"),
}
"""Firmware without which autoload does not complete, by generation: what a published driver loads. Each
pipe of the MEC beyond the first needs its own stack too."""


def firmware_step(name: str) -> str:
    """Key of the boot step that loads a firmware."""
    return f"psp-fw-{name.lower().replace('_', '-')}"


def _generations(name: str) -> str:
    only = [generation for generation, names in REQUIRED.items() if name in names]
    return "" if len(only) == len(REQUIRED) else f", gfx{only[0]} only"


STEPS: tuple[BootStep, ...] = (
    *(
        BootStep(
            firmware_step(name),
            f"LOAD_IP_FW {name}{_generations(name)}",
            "RLC autoload" if name != "SMU" else "SMU mailbox, RLC autoload",
            "RLC_RLCS_BOOTLOAD_STATUS.BOOTLOAD_COMPLETE stays 0, CP_STAT stays busy"
            if name != "SMU"
            else "SMU messages are not answered",
            "guess",
        )
        for name in dict.fromkeys(name for names in REQUIRED.values() for name in names)
    ),
    BootStep(
        "rlc-autoload",
        "AUTOLOAD_RLC",
        "command processors, SDMA, RLC registers",
        "no engine starts; BOOTLOAD_COMPLETE stays 0",
        "inferred",
    ),
    BootStep(
        "rlc-safe-mode",
        "RLC_SAFE_MODE: MESSAGE = 1, CMD = 1, before the clock gating registers; MESSAGE = 0, CMD = 1 after",
        "RLC_CGCG_CGLS_CTRL, RLC_CGTT_MGCG_OVERRIDE",
        "clocks may change under a running engine",
        "inferred",
    ),
)


def gpu_clock(now: int) -> int:
    """The GPU's clock counter at a chip clock: 100 MHz, of which a chip clock of 8.75 ns is 7/8."""
    return now * 7 // 8


class Rlc:
    """The block.

    Args:
        context: of the card.

    Attributes:
        complete: whether autoload is.
        safe_mode: whether the driver has entered it.
    """

    def __init__(self, context: Context) -> None:
        self.complete = False
        self.safe_mode = False
        self._context = context
        self._started = False
        self._loaded: Collection[str] = ()
        registers = context.registers
        registers.store("GC", "CP_STAT", "RLC_CNTL", "RLC_STAT", "RLC_SRM_CNTL", "RLC_SPM_MC_CNTL")
        registers.store("GC", "RLC_RLCS_BOOTLOAD_STATUS", "SDMA0_RLC_CGCG_CTRL", "SDMA1_RLC_CGCG_CTRL")
        registers.store("GC", "RLC_GPU_CLOCK_COUNT_LSB", "RLC_GPU_CLOCK_COUNT_MSB")
        registers.store("GC", "CP_RB_WPTR_POLL_CNTL", "CP_INT_CNTL")
        registers.on_write("GC", "RLC_CAPTURE_GPU_CLOCK_COUNT", self._capture)
        registers.on_write("GC", "RLC_SAFE_MODE", self._set_safe_mode)
        for name in ("RLC_CGCG_CGLS_CTRL", "RLC_CGTT_MGCG_OVERRIDE"):
            registers.on_write("GC", name, self._gating(name))

    def running(self, engine: str) -> bool:
        """Whether an engine (of ENGINES) has its firmware and has been started."""
        return self.complete and all(name in self._loaded for name in ENGINES[engine])

    def autoload(self, loaded: Collection[str]) -> None:
        """Start the engines; `loaded` is the firmware in the TMR."""
        if self._started:
            self._context.diagnosis.wrong("AUTOLOAD_RLC is sent a second time: ignored")
            return
        self._started = True
        self._loaded = loaded
        self._context.registers.set("GC", "CP_STAT", self._register("CP_STAT").pack(CP_BUSY=1))
        lacking = [name for name in REQUIRED[self._context.chip.generation] if name not in loaded]
        for name in lacking:
            self._context.diagnosis.missing(
                firmware_step(name), "RLC autoload does not complete, no engine starts"
            )
        if not lacking:
            self._context.link.schedule(AUTOLOAD_CLOCKS, self._done)

    def require(self, engine: str, symptom: str) -> bool:
        """Whether an engine runs; if not, the symptom and its cause become a finding."""
        if self.running(engine):
            return True
        lacking = [name for name in ENGINES[engine] if self._started and name not in self._loaded]
        step = firmware_step(lacking[0]) if lacking else "rlc-autoload"
        if self._started and not self.complete and not lacking:
            self._context.diagnosis.wrong(
                f"{symptom}: RLC autoload is not complete (BOOTLOAD_COMPLETE is 0)", step
            )
        else:
            self._context.diagnosis.missing(step, symptom)
        return False

    def _done(self) -> None:
        self.complete = True
        registers = self._context.registers
        status = self._register("RLC_RLCS_BOOTLOAD_STATUS").pack(GFX_INIT_DONE=1, BOOTLOAD_COMPLETE=1)
        registers.set("GC", "RLC_RLCS_BOOTLOAD_STATUS", status)
        registers.set("GC", "CP_STAT", 0)
        registers.set("GC", "RLC_CNTL", self._register("RLC_CNTL").pack(RLC_ENABLE_F32=1))
        self._context.event("rlc", lambda: "autoload is complete")

    def _enabled(self) -> bool:
        return self.complete and bool(self._context.registers.get("GC", "RLC_CNTL", "RLC_ENABLE_F32"))

    def _set_safe_mode(self, value: int) -> None:
        register = self._register("RLC_SAFE_MODE")
        if not register.get(value, "CMD"):
            return
        if not self._enabled():
            if self.complete:
                self._context.diagnosis.wrong("RLC_SAFE_MODE is not answered: RLC_CNTL has stopped the RLC")
            else:
                self._context.diagnosis.missing("rlc-autoload", "RLC_SAFE_MODE is not answered")
            return
        entering = bool(register.get(value, "MESSAGE"))

        def answer() -> None:
            self.safe_mode = entering
            self._context.registers.set("GC", "RLC_SAFE_MODE", register.pack(value, CMD=0))

        self._context.link.schedule(SAFE_MODE_CLOCKS, answer)

    def _gating(self, name: str) -> Callable[[int], None]:
        def write(value: int) -> None:
            if not self._enabled():
                self._context.diagnosis.missing("rlc-autoload", f"{name} is written before the RLC runs")
            elif not self.safe_mode:
                self._context.diagnosis.missing(
                    "rlc-safe-mode", f"{name} changes while engines may be running"
                )

        return write

    def _capture(self, value: int) -> None:
        now = gpu_clock(self._context.link.now())
        self._context.registers.set("GC", "RLC_GPU_CLOCK_COUNT_LSB", now & 0xFFFF_FFFF)
        self._context.registers.set("GC", "RLC_GPU_CLOCK_COUNT_MSB", now >> 32 & 0xFFFF_FFFF)

    def _register(self, name: str) -> DwordRegister:
        return self._context.chip.register("GC", name)

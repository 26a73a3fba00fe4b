"""The copy engine SDMA0: what its queues share, and how it is started, halted and reset.

Sources: `sdma_v6_0.c` and `sdma_v7_0.c` of Linux 6.12 (MIT), and the boot sequences of a published driver.
A packet that cannot be executed stops the engine until it is reset (grade: guess). UTCL1_PAGE, which is about
caches, is stored and has no effect here.
"""

from __future__ import annotations

from collections.abc import Callable

from emulator.amdgpu.context import Context
from emulator.amdgpu.cost import Cost
from emulator.amdgpu.diagnosis import BootStep
from emulator.amdgpu.power import Power
from emulator.amdgpu.sdma_packets import Packets
from emulator.amdgpu.sdma_queue import Queue
from emulator.amdgpu.seams import AddressSpace, Doorbells, Interrupts
from usbgpu.amd.facts import doorbells as doorbell_facts
from usbgpu.amd.facts.describe import DwordRegister
from usbgpu.amd.facts.interrupts import CLIENTS, SOURCES

QUEUES = 8
"""Of an engine; those are modelled whose registers are among the facts."""

STEPS: tuple[BootStep, ...] = (
    BootStep(
        "sdma-unhalt",
        "SDMA0_F32_CNTL.HALT = 0 (gfx11), SDMA0_MCU_CNTL.HALT = 0 (gfx12)",
        "every SDMA queue",
        "the doorbell is taken and no packet is executed",
        "inferred",
    ),
    BootStep(
        "sdma-ring-base",
        "SDMA0_QUEUE0_RB_BASE, RB_BASE_HI = address >> 8",
        "fetching packets",
        "packets are fetched from address 0: a page fault, or garbage",
        "inferred",
    ),
    BootStep(
        "sdma-ring-enable",
        "SDMA0_QUEUE0_RB_CNTL: RB_ENABLE, RB_SIZE, RB_PRIV, RPTR_WRITEBACK_ENABLE, ..WPTR_POLL_ENABLE",
        "everything on the queue",
        "the doorbell is taken and no packet is executed",
        "inferred",
    ),
    BootStep(
        "sdma-doorbell-offset",
        "SDMA0_QUEUE0_DOORBELL_OFFSET.OFFSET = dword index of the doorbell in BAR 2",
        "seeing the doorbell",
        "the queue waits for the doorbell at offset 0 and never starts",
        "inferred",
    ),
    BootStep(
        "sdma-doorbell-enable",
        "SDMA0_QUEUE0_DOORBELL.ENABLE = 1",
        "seeing the doorbell",
        "the queue never starts",
        "inferred",
    ),
    BootStep(
        "sdma-rptr-address",
        "SDMA0_QUEUE0_RB_RPTR_ADDR_LO, _HI, if RPTR_WRITEBACK_ENABLE is set",
        "knowing how far the ring has been read",
        "the read pointer is written to address 0: a page fault",
        "guess",
    ),
    BootStep(
        "sdma-wptr-address",
        "SDMA0_QUEUE0_RB_WPTR_POLL_ADDR_LO, _HI, if F32_WPTR_POLL_ENABLE (MCU_.. on gfx12) is set",
        "the firmware's polling of the write pointer",
        "the write pointer is read from address 0: a page fault",
        "guess",
    ),
    BootStep(
        "sdma-ib-enable",
        "SDMA0_QUEUE0_IB_CNTL.IB_ENABLE = 1",
        "INDIRECT",
        "the engine stops at the first INDIRECT",
        "guess",
    ),
    BootStep(
        "sdma-trap-enable",
        "SDMA0_CNTL.TRAP_ENABLE = 1",
        "TRAP",
        "TRAP puts no entry into the interrupt ring",
        "inferred",
    ),
    BootStep(
        "sdma-watchdog",
        "SDMA0_WATCHDOG_CNTL.QUEUE_HANG_COUNT, in 100 ms",
        "detecting a queue that waits without end",
        "no interrupt is posted for a POLL_REGMEM that is never met",
        "inferred",
    ),
    BootStep(
        "sdma-utcl1",
        "SDMA0_UTCL1_CNTL: RESP_MODE = 3, REDO_DELAY = 9",
        "SDMA's own report of page faults",
        "a page that is not mapped is requested again and again; SDMA_PAGE_FAULT is never posted",
        "guess",
    ),
)


class SdmaEngine:
    """SDMA0.

    Args:
        context: of the card.
        memory: the address space of a VMID, through the GC hub.
        interrupts: the interrupt handler.
        doorbells: the way from BAR 2.
        require: whether an engine's firmware runs; if not, it reports the symptom to the diagnosis
            (`Rlc.require`).
        cost: the model of times.
        power: of the board.

    Attributes:
        context: of the card.
        memory: as given.
        packets: what executes them, by queue.
    """

    def __init__(
        self,
        context: Context,
        memory: Callable[[int], AddressSpace],
        interrupts: Interrupts,
        doorbells: Doorbells,
        require: Callable[[str, str], bool],
        cost: Cost,
        power: Power,
    ) -> None:
        self.context = context
        self.memory = memory
        self.packets: dict[int, Packets] = {}
        self._interrupts = interrupts
        self._doorbells = doorbells
        self._require = require
        self._stuck = False
        self._has_started = False
        self._claimed: set[int] = set()
        self._busy_until = 0
        self._cost = cost
        self._power = power
        registers, gc = context.registers, context.chip.blocks["GC"]
        family = context.chip.family
        self._control, self._freeze_field = family.sdma_control, family.sdma_freeze
        self._reset_fields = family.sdma_resets
        registers.store("GC", "SDMA0_CNTL", "SDMA0_WATCHDOG_CNTL", "SDMA0_UTCL1_CNTL", "SDMA0_UTCL1_PAGE")
        registers.on_write("GC", self._control, self._run_control, reset=gc[self._control].pack(HALT=1))
        registers.on_write("GC", "SDMA0_FREEZE", self._freeze)
        registers.on_read("GC", "SDMA0_STATUS_REG", self._status)
        numbers = (one for one in range(QUEUES) if f"SDMA0_QUEUE{one}_RB_CNTL" in gc.registers)
        self.queues = [Queue(self, number) for number in numbers]
        for queue in self.queues:
            self.packets[queue.number] = Packets(
                context, cost, self.transfer, self._interrupter(queue.number), queue.run_buffer
            )
        doorbells.subscribe(0, doorbell_facts.SIZE, "sdma", self._rung)

    @property
    def busy(self) -> bool:
        """Whether a queue has work under way."""
        return any(queue.busy for queue in self.queues)

    def soft_reset(self) -> None:
        """GRBM_SOFT_RESET.SOFT_RESET_SDMA0: registers as after power-on, the firmware stays loaded."""
        registers = self.context.registers
        for name in self.context.chip.blocks["GC"].registers:
            if name.startswith("SDMA0_") and name != "SDMA0_RLC_CGCG_CTRL":
                registers.set("GC", name, 0)
        registers.set("GC", self._control, self._register(self._control).pack(HALT=1))
        self._restart()

    # -- for queues -------------------------------------------------------------------------------------

    def ready(self, *, report: bool) -> bool:
        """Whether packets are executed; `report`: if not, the reason becomes a finding."""
        if not self._has_started:
            symptom = "the doorbell of an SDMA queue has no effect"
            self._has_started = self._require("sdma", symptom)
        if not self._has_started or self._stuck:
            return False
        if self._halted:
            if report:
                self.context.diagnosis.missing("sdma-unhalt", "the doorbell of an SDMA queue has no effect")
            return False
        return not self._frozen

    def stick(self) -> None:
        """No queue continues before a reset."""
        self._stuck = True

    def claim(self, queue: Queue) -> None:
        """Note the doorbell that a queue listens to."""
        offset = queue.doorbell
        if queue.enabled and offset is not None and offset not in self._claimed:
            self._claimed.add(offset)
            self._doorbells.subscribe(offset, offset, "sdma", lambda place, value: None)

    def transfer(self, size: int, system: bool) -> int:
        """Clocks until the data path has moved that many bytes, after what it moves already."""
        now = self.context.link.now()
        lasts = self._cost.copy(size, system)
        self._busy_until = max(self._busy_until, now) + lasts
        self._power.copy(size if system else 2 * size, lasts)
        return self._busy_until - now

    def interrupt(self, queue: int, source: str, vmid: int, data: int) -> None:
        """Post an interrupt; source by name."""
        self._interrupts.post(CLIENTS["GFX"], SOURCES[source], ring=queue, vmid=vmid, data=(data, 0, 0, 0))

    # -- inside -----------------------------------------------------------------------------------------

    def _interrupter(self, queue: int) -> Callable[[str, int, int], None]:
        return lambda source, vmid, data: self.interrupt(queue, source, vmid, data)

    def _rung(self, offset: int, value: int) -> None:
        listening = [queue for queue in self.queues if queue.doorbell == offset]
        for queue in listening:
            queue.rung(value)
        if listening:
            return
        symptom = f"no SDMA queue listens to the doorbell {offset:#x}"
        deaf = [queue for queue in self.queues if queue.enabled]
        if any(queue.doorbell is None for queue in deaf):
            self.context.diagnosis.missing("sdma-doorbell-enable", symptom)
        elif any(queue.doorbell == 0 for queue in deaf):
            self.context.diagnosis.missing("sdma-doorbell-offset", symptom)
        elif not deaf:
            self.context.diagnosis.missing("sdma-ring-enable", symptom)
        else:
            self.context.diagnosis.wrong(symptom)

    @property
    def _halted(self) -> bool:
        return bool(self.context.registers.get("GC", self._control, "HALT"))

    @property
    def _frozen(self) -> bool:
        return bool(self.context.registers.get("GC", "SDMA0_FREEZE", self._freeze_field))

    def _run_control(self, value: int) -> None:
        register = self._register(self._control)
        self.context.registers.set("GC", self._control, value)
        if any(register.get(value, name) for name in self._reset_fields):
            self._restart()
        if not register.get(value, "HALT"):
            self._kick()

    def _freeze(self, value: int) -> int:
        register = self._register("SDMA0_FREEZE")
        frozen = register.get(value, self._freeze_field)
        value = register.pack(value, FROZEN=frozen)
        self.context.registers.set("GC", "SDMA0_FREEZE", value)
        if not frozen:
            self._kick()
        return value

    def _restart(self) -> None:
        """The firmware starts again."""
        self._stuck = False
        for queue in self.queues:
            queue.stop()

    def _kick(self) -> None:
        for queue in self.queues:
            queue.kick()

    def _status(self) -> int:
        idle = not self.busy
        empty = all(queue.read_pointer == queue.write_pointer for queue in self.queues)
        return self._register("SDMA0_STATUS_REG").pack(
            IDLE=idle, REG_IDLE=1, RB_EMPTY=empty, RB_CMD_IDLE=idle, IB_CMD_IDLE=idle, BLOCK_IDLE=idle,
            MC_WR_IDLE=idle, SRBM_IDLE=1, CONTEXT_EMPTY=empty, RB_MC_RREQ_IDLE=idle, IB_MC_RREQ_IDLE=idle,
            MC_RD_IDLE=idle, INT_IDLE=1,
        )  # fmt: skip

    def _register(self, name: str) -> DwordRegister:
        return self.context.chip.register("GC", name)

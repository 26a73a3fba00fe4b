"""The compute queues: doorbells, scheduling, set-up and reset of queues.

A doorbell that falls into the MEC's range, to an active queue with that doorbell, on a pipe that runs, gives
the queue a new write pointer. Each pipe executes the packets of its queues in turn, one at a time; pipes do
not wait for one another. A queue without a quantum keeps its pipe until its ring is empty.

Not modelled: the KIQ and scheduler firmware (MES), context save, AQL queues, priorities, polling of write
pointers, GDS and GWS.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Protocol

from emulator.amdgpu import dispatch, grbm, mec
from emulator.amdgpu.context import Context
from emulator.amdgpu.diagnosis import BootStep
from emulator.amdgpu.dispatch import DispatchCosts, Dispatcher
from emulator.amdgpu.grbm import Grbm
from emulator.amdgpu.hqd import ME, PIPES, QUEUES, RESET_VALUES, Hqd, Wait
from emulator.amdgpu.mec import Mec
from emulator.amdgpu.pm4 import Costs, Processor
from emulator.amdgpu.power import Power
from emulator.amdgpu.scoreboard import Record
from emulator.amdgpu.seams import AddressSpace, Doorbells, Interrupts, PageFault, Shaders
from emulator.core.clock import clocks
from usbgpu.amd.facts import doorbells as doorbell_facts
from usbgpu.amd.facts import mqd

POLL_CLOCKS = clocks(1e-6)
"""Between two checks of what a queue waits for (model; grade: guess)."""
POLL_SHARE = 256
"""The longer a wait has lasted, the less often it is checked: next after this share of its time so far."""
POLL_LIMIT = clocks(1e-3)
DEQUEUE_CLOCKS = clocks(5e-6)
"""From the request until CP_HQD_ACTIVE is 0, for a queue that is idle (model; grade: guess)."""
DRAIN, RESET_WAVES = 1, 2
"""CP_HQD_DEQUEUE_REQUEST.DEQUEUE_REQ (`amdgpu_amdkfd_gfx_v11.c`)."""

STEPS: tuple[BootStep, ...] = (
    *grbm.STEPS,
    *mec.STEPS,
    BootStep(
        "mec-doorbell-range",
        "CP_MEC_DOORBELL_RANGE_LOWER, _UPPER: offsets in bytes of the first and last doorbell",
        "doorbells of compute queues",
        "doorbells outside the range are lost",
        "inferred",
    ),
    BootStep(
        "hqd-pq-base",
        "CP_HQD_PQ_BASE, _HI: address of the ring over 256",
        "fetch of packets",
        "the ring is fetched from address 0: page fault, or no packets there",
        "inferred",
    ),
    BootStep(
        "hqd-pq-control",
        "CP_HQD_PQ_CONTROL.QUEUE_SIZE: log2 of the ring's dwords, less 1",
        "fetch of packets",
        "the ring wraps in the wrong place: old packets are executed, or no packets",
        "inferred",
    ),
    BootStep(
        "hqd-rptr-report",
        "CP_HQD_PQ_RPTR_REPORT_ADDR, _HI",
        "the read pointer in memory",
        "the read pointer is written to address 0: page fault, the queue stops",
        "inferred",
    ),
    BootStep(
        "hqd-doorbell",
        "CP_HQD_PQ_DOORBELL_CONTROL: DOORBELL_OFFSET (dwords), DOORBELL_EN",
        "the doorbell",
        "the doorbell finds no queue and is lost",
        "inferred",
    ),
    BootStep(
        "hqd-eop",
        "CP_HQD_EOP_BASE_ADDR, _HI, CP_HQD_EOP_CONTROL",
        "RELEASE_MEM",
        "the event is written to address 0: page fault, the fence never comes",
        "guess",
    ),
    BootStep(
        "hqd-mqd-base",
        "CP_MQD_BASE_ADDR, _HI: address of an MQD with the header 0xc0310800",
        "connection of the queue",
        "the state of dispatches comes from elsewhere",
        "guess",
    ),
    BootStep(
        "hqd-persistent-state",
        "CP_HQD_PERSISTENT_STATE: PRELOAD_REQ = 1, PRELOAD_SIZE = 0x55",
        "connection of the queue",
        "the MQD's state of dispatches is not loaded: no compute unit is enabled, dispatches never end",
        "guess",
    ),
    BootStep(
        "hqd-quantum",
        "CP_HQD_QUANTUM: QUANTUM_EN",
        "other queues of the same pipe",
        "they do not run while this one has work, even if it only waits",
        "guess",
    ),
    BootStep(
        "hqd-active",
        "CP_HQD_ACTIVE = 1, after all other registers of the queue",
        "the queue",
        "its doorbell is lost",
        "inferred",
    ),
    *dispatch.STEPS,
)


class ComputeCosts(Costs, DispatchCosts, Protocol):
    """`emulator.amdgpu.cost.Cost` as far as queues need it."""


class ComputeEngine:
    """The compute side of the graphics block.

    Args:
        context: of the card.
        memory: of a VMID, as the GC hub shows it to a client (CPC or TCP).
        interrupts: where interrupts go.
        doorbells: where doorbells come from.
        shaders: that run dispatches.
        cost: how long things take.
        power: of the board.
        require: whether an engine has its firmware and autoload has started it; if not, it
            reports a symptom and what is missing to the diagnosis (`Rlc.require`).
        dispatched: gets a record of each dispatch at its end.

    Attributes:
        grbm: selection and resets of the block; other engines may listen to `grbm.resets`.
        hqds: queues by pipe and number.
    """

    def __init__(
        self,
        context: Context,
        memory: Callable[[int, str], AddressSpace],
        interrupts: Interrupts,
        doorbells: Doorbells,
        shaders: Shaders,
        cost: ComputeCosts,
        power: Power,
        require: Callable[[str, str], bool],
        dispatched: Callable[[Record], None] | None = None,
    ) -> None:
        self._context = context
        self.grbm = Grbm(context)
        self.grbm.resets.append(self._soft_reset)
        self.grbm.busy = self._busy
        self._mec = Mec(context, self.grbm, require, self._kick)
        self._dispatcher = Dispatcher(
            context, shaders, cost, interrupts, self.memory_changed, power, dispatched
        )
        self._processor = Processor(context, interrupts, self._dispatcher, cost, self.memory_changed)
        spaces = functools.cache(memory)  # each keeps translations
        self.hqds = {
            (pipe, queue): Hqd(context, pipe, queue, spaces)
            for pipe in range(PIPES)
            for queue in range(QUEUES)
        }
        self._scheduled = [False] * PIPES
        self._turn = [0] * PIPES
        self._polled: set[Wait] = set()
        self._claim_registers()
        doorbells.subscribe(0, doorbell_facts.SIZE - 8, "cp", self._doorbell)

    def memory_changed(self) -> None:
        """An engine has changed memory: queues that wait check again."""
        for hqd in self.hqds.values():
            if hqd.wait is not None:
                self._look_again(hqd)

    # -- registers --------------------------------------------------------------------------------------

    def _claim_registers(self) -> None:
        registers, gc = self._context.registers, self._context.chip.blocks["GC"].registers
        base = gc["CP_MQD_BASE_ADDR"]
        mirrored = {base.offset + place for place in range(len(mqd.REGISTERS))}
        own = [name for name in gc if name.startswith(("COMPUTE_", "CP_HQD_", "CP_MQD_"))]
        own = [name for name in own if not name.startswith("CP_HQD_GFX_")]
        actions = {"CP_HQD_ACTIVE": self._set_active, "CP_HQD_DEQUEUE_REQUEST": self._dequeue}
        for name, action in actions.items():
            registers.on_write("GC", name, action)
        registers.on_write("GC", "SPI_COMPUTE_QUEUE_RESET", self._queue_reset)
        for name in own:
            registers.store("GC", name, reset=RESET_VALUES.get(name, 0), selector=self.grbm.queue)
        for offset in mirrored - {gc[name].offset for name in own if gc[name].segment == base.segment}:
            registers.reserve("GC", base.segment, offset)
        registers.store("GC", "SH_MEM_CONFIG", "SH_MEM_BASES", selector=self.grbm.vmid)
        registers.store("GC", "CP_MEC_DOORBELL_RANGE_LOWER", "CP_MEC_DOORBELL_RANGE_UPPER")
        registers.store("GC", "TCP_CNTL", "SQ_DEBUG", "CP_INT_CNTL", "CP_RB_WPTR_POLL_CNTL", "CP_MES_CNTL")
        registers.store("GC", "CC_GC_SHADER_ARRAY_CONFIG", "GC_USER_SHADER_ARRAY_CONFIG", "GB_ADDR_CONFIG")

    def _selected(self) -> Hqd | None:
        me, pipe, queue = self.grbm.queue()
        return self.hqds[pipe, queue] if me == ME else None

    def _set_active(self, value: int) -> None:
        hqd = self._selected()
        wanted = self._context.chip.register("GC", "CP_HQD_ACTIVE").get(value, "ACTIVE")
        if hqd is None:
            if wanted:
                me = self.grbm.pipe()[0]
                self._context.diagnosis.missing("grbm-select", f"CP_HQD_ACTIVE is set in micro engine {me}")
            return
        if hqd.active == bool(wanted):
            return
        if wanted:
            hqd.activate()
            self._context.event("compute", lambda: f"{hqd.name} is active")
        else:
            if hqd.has_work or hqd.pipeline.busy:
                self._context.diagnosis.wrong(
                    f"{hqd.name}: CP_HQD_ACTIVE is cleared while it works: write CP_HQD_DEQUEUE_REQUEST first"
                )
            hqd.deactivate()
            self._dispatcher.killed()

    def _busy(self, name: str) -> dict[str, int]:
        hqds = [hqd for hqd in self.hqds.values() if hqd.has_work]
        queues = int(bool(hqds))
        waves = int(any(hqd.pipeline.busy for hqd in self.hqds.values()))
        if name == "CP_STAT":
            return {"CP_BUSY": 1} if queues else {}
        if name == "CP_CPC_STATUS":
            return {"MEC1_BUSY": queues, "CPC_BUSY": queues}
        if name == "GRBM_STATUS2":
            return {"CPC_BUSY": queues, "CPF_BUSY": queues, "TCP_BUSY": waves}
        either = queues | waves
        return {
            "CP_BUSY": queues,
            "SPI_BUSY": waves,
            "TA_BUSY": waves,
            "ANY_ACTIVE": either,
            "GUI_ACTIVE": either,
        }

    # -- doorbells --------------------------------------------------------------------------------------

    def _doorbell(self, offset: int, value: int) -> None:
        symptom = f"the doorbell {offset:#x} is lost"
        hqd = self._rung(offset, symptom)
        if hqd is None or not self._in_range(offset, symptom) or not self._mec.require(hqd.pipe, symptom):
            return
        self._context.event("compute", lambda: f"{hqd.name}: write pointer {value:#x}")
        if not hqd.connected:
            self._connect(hqd)
        hqd.ring(value)
        if hqd.wait is not None:
            self._look_again(hqd)
        self._kick(hqd.pipe)

    def _rung(self, offset: int, symptom: str) -> Hqd | None:
        """The queue that a doorbell belongs to."""
        named = [hqd for hqd in self.hqds.values() if hqd.doorbell == offset and hqd.doorbell_enabled]
        for hqd in named:
            if hqd.active:
                return hqd
        active = [hqd for hqd in self.hqds.values() if hqd.active]
        if named or not active:
            self._context.diagnosis.missing("hqd-active", symptom)
        elif any(not hqd.doorbell_enabled for hqd in active):
            self._context.diagnosis.missing("hqd-doorbell", symptom)
        else:
            self._context.diagnosis.wrong(f"{symptom}: no active queue has it in CP_HQD_PQ_DOORBELL_CONTROL")
        return None

    def _in_range(self, offset: int, symptom: str) -> bool:
        registers = self._context.registers
        lower, upper = (
            registers.get("GC", f"CP_MEC_DOORBELL_RANGE_{end}", f"DOORBELL_RANGE_{end}") * 4
            for end in ("LOWER", "UPPER")
        )
        if lower <= offset <= upper:
            return True
        if upper:
            self._context.diagnosis.wrong(
                f"{symptom}: CP_MEC_DOORBELL_RANGE is {lower:#x} to {upper:#x}", "mec-doorbell-range"
            )
        else:
            self._context.diagnosis.missing("mec-doorbell-range", symptom)
        return False

    # -- connection: what the MQD says ------------------------------------------------------------------

    def _connect(self, hqd: Hqd) -> None:
        """The first doorbell connects the queue: the state of dispatches is loaded from the MQD.

        When silicon reads the MQD is not published (guess: then, since a published driver writes
        CP_HQD_ACTIVE before it flushes the HDP).
        """
        hqd.connected = True
        address = hqd.pair("CP_MQD_BASE_ADDR", "CP_MQD_BASE_ADDR_HI") & ~3
        if not address:
            self._context.diagnosis.missing("hqd-mqd-base", f"{hqd.name} loads its MQD from address 0")
        try:
            data = hqd.memory_of(hqd.get("CP_MQD_CONTROL", "VMID")).read(address, mqd.SIZE)
        except PageFault as fault:
            hqd.fault("SR_UTCL1_ERROR", "load of the MQD", fault)
            return
        words = struct.unpack(f"<{mqd.SIZE // 4}I", data)
        if words[0] != mqd.HEADER:
            self._context.diagnosis.wrong(
                f"{hqd.name}: the MQD at {address:#x} starts with {words[0]:#x}, not {mqd.HEADER:#x}",
                "hqd-mqd-base",
            )
        self._compare(hqd, words)
        if hqd.get("CP_HQD_PERSISTENT_STATE", "PRELOAD_REQ"):
            self._preload(hqd, words, hqd.get("CP_HQD_PERSISTENT_STATE", "PRELOAD_SIZE"))

    def _preload(self, hqd: Hqd, words: tuple[int, ...], size: int) -> None:
        registers = self._context.chip.blocks["GC"].registers
        for name, place in mqd.MQDS[self._context.chip.generation].offsets.items():
            if 0 < place // 4 <= size and name.upper() in registers:
                hqd.set(name.upper(), words[place // 4])

    def _compare(self, hqd: Hqd, words: tuple[int, ...]) -> None:
        """Report registers that differ from the MQD, except those that hardware changes."""
        first = self._context.chip.address("GC", "CP_MQD_BASE_ADDR")
        differing = []
        for place in mqd.REGISTERS:
            known = self._context.chip.by_address.get(first + place - mqd.REGISTERS.start)
            if known is None or known[1].name not in _SET_UP:
                continue
            name = known[1].name
            if (hqd.value(name) ^ words[place]) & ~_CHANGING.get(name, 0):
                differing.append(name)
        if differing:
            self._context.diagnosis.wrong(
                f"{hqd.name}: registers differ from the MQD: {', '.join(differing)}", "hqd-mqd-base"
            )

    # -- execution --------------------------------------------------------------------------------------

    def _kick(self, pipe: int) -> None:
        """A pipe may have something to do."""
        for (number, _), hqd in self.hqds.items():
            if number == pipe and hqd.wait is not None and hqd.wait.polls:
                self._poll(hqd)
        if not self._scheduled[pipe] and self._mec.running(pipe) and self._next(pipe) is not None:
            self._schedule(pipe, 0)

    def _schedule(self, pipe: int, clocks: int) -> None:
        self._scheduled[pipe] = True
        self._context.link.schedule(clocks, lambda: self._run(pipe))

    def _run(self, pipe: int) -> None:
        """One packet of one queue."""
        self._scheduled[pipe] = False
        if not self._mec.running(pipe):
            return
        hqd = self._next(pipe)
        if hqd is None:
            return
        self._turn[pipe] = hqd.queue
        taken = self._processor.step(hqd)
        if hqd.wait is not None and hqd.wait.polls:
            self._poll(hqd)
        self._schedule(pipe, taken)

    def _next(self, pipe: int) -> Hqd | None:
        """The queue whose packet is next: in turn, unless one without a quantum has the pipe."""
        current = self.hqds[pipe, self._turn[pipe]]
        if current.has_work and not current.get("CP_HQD_QUANTUM", "QUANTUM_EN"):
            others = [
                hqd for hqd in self.hqds.values() if hqd.pipe == pipe and hqd is not current and hqd.has_work
            ]
            if others and not current.ready:
                self._context.diagnosis.missing("hqd-quantum", f"{others[0].name} waits for {current.name}")
            return current if current.ready else None
        for step in range(1, QUEUES + 1):
            hqd = self.hqds[pipe, (self._turn[pipe] + step) % QUEUES]
            if hqd.ready:
                return hqd
        return None

    def _look_again(self, hqd: Hqd) -> bool:
        """Whether what a queue waits for has come; then it goes on."""
        if hqd.wait is None or hqd.stopped:
            return True
        try:
            if not hqd.wait.done():
                return False
        except PageFault as fault:
            hqd.fault("TC_UTCL1_ERROR", hqd.wait.text, fault)
            return True
        hqd.wait = None
        self._kick(hqd.pipe)
        return True

    def _poll(self, hqd: Hqd) -> None:
        """Check what a queue waits for, at intervals."""
        wait = hqd.wait
        if wait is None or wait in self._polled:
            return
        self._polled.add(wait)

        def look() -> None:
            self._polled.discard(wait)
            if hqd.wait is wait and self._mec.running(hqd.pipe) and not self._look_again(hqd):
                self._poll(hqd)

        waited = self._context.link.now() - wait.since
        self._context.link.schedule(min(max(POLL_CLOCKS, waited // POLL_SHARE), POLL_LIMIT), look)

    # -- the end of queues ------------------------------------------------------------------------------

    def _dequeue(self, value: int) -> None:
        hqd = self._selected()
        request = self._context.chip.register("GC", "CP_HQD_DEQUEUE_REQUEST").get(value, "DEQUEUE_REQ")
        if hqd is None or not hqd.active or not request:
            return
        if self._mec.require(hqd.pipe, f"{hqd.name}: the dequeue request is not answered"):
            self._try_dequeue(hqd, request)

    def _try_dequeue(self, hqd: Hqd, request: int) -> None:
        """Remove a queue from its slot, when its work allows."""
        if request == DRAIN:
            if hqd.stopped:
                self._context.diagnosis.wrong(
                    f"{hqd.name}: DEQUEUE_REQ 1 waits for work that never ends ({hqd.stopped}); 2 resets it"
                )
                return
            hqd.draining = True
            hqd.pipeline.after(lambda: self._leave(hqd))
        elif request == RESET_WAVES:
            hqd.draining = True
            if hqd.hung and not hqd.spi_reset:
                return  # SPI_COMPUTE_QUEUE_RESET kills the waves
            self._leave(hqd)
        else:
            self._context.diagnosis.wrong(
                f"{hqd.name}: DEQUEUE_REQ {request} is not modelled: write 1 (drain) or 2 (reset)"
            )

    def _leave(self, hqd: Hqd) -> None:
        epoch = hqd.epoch

        def leave() -> None:
            if hqd.epoch == epoch:
                hqd.deactivate()
                self._dispatcher.killed()
                self._context.event("compute", lambda: f"{hqd.name} is off")
                self._kick(hqd.pipe)

        self._context.link.schedule(DEQUEUE_CLOCKS, leave)

    def _queue_reset(self, value: int) -> int:
        """Kills the waves of the selected queue."""
        hqd = self._selected()
        if hqd is not None and value & 1 and hqd.active:
            hqd.spi_reset = True
            request = hqd.get("CP_HQD_DEQUEUE_REQUEST", "DEQUEUE_REQ")
            if request == RESET_WAVES and hqd.hung and self._mec.running(hqd.pipe):
                self._try_dequeue(hqd, request)
        return 0

    def _soft_reset(self, value: int) -> None:
        """SOFT_RESET_CP or _CPC: queues are gone, and the MEC must be started again."""
        register = self._context.chip.register("GC", "GRBM_SOFT_RESET")
        if not any(register.get(value, f"SOFT_RESET_{part}") for part in ("CP", "CPC", "GFX")):
            return
        self._mec.reset()
        self._dispatcher.caches.invalidate(code=True, scalar=True)
        for hqd in self.hqds.values():
            hqd.deactivate()
        self._dispatcher.killed()


_SET_UP = frozenset(
    (
        "CP_MQD_BASE_ADDR", "CP_MQD_BASE_ADDR_HI", "CP_MQD_CONTROL", "CP_HQD_VMID", "CP_HQD_PERSISTENT_STATE",
        "CP_HQD_QUANTUM", "CP_HQD_PQ_BASE", "CP_HQD_PQ_BASE_HI", "CP_HQD_PQ_RPTR_REPORT_ADDR",
        "CP_HQD_PQ_RPTR_REPORT_ADDR_HI", "CP_HQD_PQ_WPTR_POLL_ADDR", "CP_HQD_PQ_WPTR_POLL_ADDR_HI",
        "CP_HQD_PQ_DOORBELL_CONTROL", "CP_HQD_PQ_CONTROL", "CP_HQD_IB_CONTROL", "CP_HQD_EOP_BASE_ADDR",
        "CP_HQD_EOP_BASE_ADDR_HI", "CP_HQD_EOP_CONTROL",
    )
)  # fmt: skip
"""Registers of a queue that only the driver changes."""
_CHANGING = {"CP_HQD_PQ_DOORBELL_CONTROL": 1 << 31, "CP_HQD_PQ_CONTROL": 1 << 15, "CP_HQD_QUANTUM": 1 << 31}
"""Bits of them that hardware changes."""

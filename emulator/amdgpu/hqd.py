"""HQD, a hardware queue descriptor: a compute queue as its registers describe it.

Each of the MEC's pipes has eight. The registers are copies, of which GRBM_GFX_CNTL selects one. A queue
fetches its ring in blocks, ahead of what it executes, and reports its read pointer when it crosses a block
and when it has run dry. Work under way is kept in the order in which it was started: what waits for the end
of the pipe happens when everything before it has ended.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from emulator.amdgpu.context import Context
from emulator.amdgpu.seams import AddressSpace, PageFault
from usbgpu.amd.facts.describe import DWORD

ME = 1
"""Number of the micro engine that has the compute queues (MEC1), in GRBM_GFX_CNTL and interrupts."""
PIPES = 4
QUEUES = 8
"""Of a pipe. How many of them firmware keeps for itself differs from chip to chip; here none."""
PACKETS, WAVES = "CPC", "TCP"
"""Clients of the GC hub: the command processor's, and that of waves."""
FETCH = 64
"""Dwords that are fetched at a time (grade: guess)."""

RESET_VALUES = {
    "CP_HQD_PQ_CONTROL": 0x0030_8509,
    "CP_HQD_PERSISTENT_STATE": 0x0BE0_5501,
    "CP_HQD_IB_CONTROL": 0x0030_0000,
    "CP_HQD_EOP_CONTROL": 0x0000_0006,
}
"""What registers hold after a reset, where that is not 0 (`gfx_v12_0.c`, the kernel's defaults)."""


@dataclass(slots=True)
class Stream:
    """Dwords of a ring or of an indirect buffer.

    Attributes:
        memory: where it is.
        base: virtual address of its first dword.
        size: dwords.
        position: the next dword to be read; that of a ring counts on when it wraps.
        end: where it ends: a ring's write pointer, a buffer's size.
        what: its name in findings.
    """

    memory: AddressSpace
    base: int
    size: int
    position: int
    end: int
    what: str
    _words: tuple[int, ...] = field(default=(), repr=False)
    _start: int = field(default=0, repr=False)

    @property
    def left(self) -> int:
        """Dwords that can be read."""
        return self.end - self.position

    @property
    def address(self) -> int:
        """Virtual address of the next dword."""
        return self.base + self.position % self.size * 4

    def word(self, ahead: int = 0) -> int:
        """A dword, not consumed; the caller has checked `left`. Raises PageFault."""
        index = self.position + ahead - self._start
        if not 0 <= index < len(self._words):
            self._fetch(self.position + ahead)
            index = 0
        return self._words[index]

    def words(self, ahead: int, count: int) -> list[int]:
        """Dwords, not consumed; the caller has checked `left`. Raises PageFault."""
        return [self.word(ahead + index) for index in range(count)]

    def _fetch(self, position: int) -> None:
        offset = position % self.size
        count = min(FETCH, self.end - position, self.size - offset)
        data = self.memory.read(self.base + offset * 4, count * 4)
        self._words = struct.unpack(f"<{count}I", data)
        self._start = position


class Pipeline:
    """Work of a queue that is under way, and what waits for its end."""

    def __init__(self) -> None:
        self._entries: deque[object | Callable[[], None]] = deque()
        self._running: set[object] = set()

    @property
    def busy(self) -> bool:
        """Whether work is under way."""
        return bool(self._running)

    def begin(self) -> object:
        """Work starts; returns a token for it."""
        work = object()
        self._running.add(work)
        self._entries.append(work)
        return work

    def end(self, work: object) -> None:
        """It has ended. What waited for it and for all before it happens."""
        self._running.discard(work)
        self._retire()

    def after(self, action: Callable[[], None]) -> None:
        """Call `action` when everything that was started before has ended: at once, if it has."""
        self._entries.append(action)
        self._retire()

    def _retire(self) -> None:
        while self._entries and self._entries[0] not in self._running:
            entry = self._entries.popleft()
            if callable(entry):
                entry()


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """Why a queue waits.

    Attributes:
        done: whether it may go on. Raises PageFault.
        polls: whether it is polled; else it is checked when work of the queue ends.
        text: what it waits for.
        since: chip clocks since power-on.
    """

    done: Callable[[], bool]
    polls: bool
    text: str
    since: int


class Hqd:
    """A queue.

    Args:
        context: of the card.
        pipe: its pipe's number.
        queue: its number in the pipe.
        memory: as a VMID sees it, by the name of the client of the hub.

    Attributes:
        bank: key of its copies of registers.
        name: for messages.
        epoch: changes whenever what was under way is dropped.
        connected: whether its MQD has been loaded.
        stopped: why it executes nothing until it is reset; "" while it does.
        hung: whether stuck waves have stopped it.
        draining: whether it is being removed from its slot: it begins nothing more.
        spi_reset: whether SPI_COMPUTE_QUEUE_RESET has killed its waves.
        streams: the ring and, above it, an indirect buffer.
        pipeline: work under way.
        wait: why it waits.
        vmid: of the packets that are being executed.
    """

    def __init__(
        self, context: Context, pipe: int, queue: int, memory: Callable[[int, str], AddressSpace]
    ) -> None:
        self.pipe, self.queue = pipe, queue
        self.bank = (ME, pipe, queue)
        self.name = f"pipe {pipe} queue {queue}"
        self.epoch = 0
        self._context = context
        self._memory = memory
        self.stopped: str
        self.hung: bool
        self.streams: list[Stream]
        self.wait: Wait | None
        self._clear()

    # -- registers --------------------------------------------------------------------------------------

    def value(self, name: str) -> int:
        """What a register of the queue holds."""
        return self._context.registers.value("GC", name, self.bank)

    def get(self, name: str, part: str) -> int:
        """A field of one."""
        return self._context.registers.get("GC", name, part, self.bank)

    def set(self, name: str, value: int) -> None:
        """Change what one holds."""
        self._context.registers.set("GC", name, value, self.bank)

    def pair(self, low: str, high: str) -> int:
        """Two registers as a 64-bit number."""
        return self.value(high) << 32 | self.value(low)

    @property
    def active(self) -> bool:
        return bool(self.get("CP_HQD_ACTIVE", "ACTIVE"))

    @property
    def doorbell(self) -> int:
        """Offset of its doorbell in BAR 2, bytes."""
        return self.get("CP_HQD_PQ_DOORBELL_CONTROL", "DOORBELL_OFFSET") * 4

    @property
    def doorbell_enabled(self) -> bool:
        return bool(self.get("CP_HQD_PQ_DOORBELL_CONTROL", "DOORBELL_EN"))

    @property
    def ring_id(self) -> int:
        """What interrupts name it by (`gfx_v11_0.c`)."""
        return self.queue << 4 | ME << 2 | self.pipe

    @property
    def memory(self) -> AddressSpace:
        """What its packets see."""
        return self._memory(self.vmid, PACKETS)

    @property
    def shader_memory(self) -> AddressSpace:
        """What its waves see."""
        return self._memory(self.vmid, WAVES)

    def memory_of(self, vmid: int) -> AddressSpace:
        """What the command processor sees as another VMID."""
        return self._memory(vmid, PACKETS)

    # -- life -------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """CP_HQD_ACTIVE has been set: the registers take effect."""
        self._clear()
        self.vmid = self.get("CP_HQD_VMID", "VMID")
        size = 2 << self.get("CP_HQD_PQ_CONTROL", "QUEUE_SIZE")
        base = self.pair("CP_HQD_PQ_BASE", "CP_HQD_PQ_BASE_HI") << 8
        end = self.pair("CP_HQD_PQ_WPTR_LO", "CP_HQD_PQ_WPTR_HI")
        position = end - (end - self.value("CP_HQD_PQ_RPTR")) % size
        self._reported = position
        self.streams = [Stream(self.memory, base, size, position, end, "ring")]

    def deactivate(self) -> None:
        """The queue is removed from its slot; work under way is dropped."""
        self._clear()
        self.set("CP_HQD_ACTIVE", 0)
        self.set("CP_HQD_DEQUEUE_REQUEST", 0)

    def ring(self, end: int) -> None:
        """The doorbell gives a new write pointer, in dwords; it counts on when it wraps."""
        self.set("CP_HQD_PQ_WPTR_LO", end & DWORD)
        self.set("CP_HQD_PQ_WPTR_HI", end >> 32)
        stream = self.streams[0]
        if not stream.base:
            self._context.diagnosis.missing("hqd-pq-base", f"{self.name} fetches packets from address 0")
        behind = end - stream.position
        if not 0 <= behind <= stream.size and not self.get("CP_HQD_PQ_CONTROL", "QUEUE_SIZE"):
            self._context.diagnosis.missing("hqd-pq-control", f"the ring of {self.name} has two dwords")
        if not 0 <= behind <= stream.size:
            self._context.diagnosis.wrong(
                f"{self.name}: write pointer {end:#x} is {behind} dwords ahead of the read pointer, "
                f"the ring has {stream.size}"
            )
            # Hardware compares the pointers within the ring only.
            behind %= stream.size
        stream.end = stream.position + behind

    @property
    def has_work(self) -> bool:
        """Whether there is a packet to execute, even if it has to wait."""
        return bool(self.streams) and not (self.stopped or self.draining) and self.streams[-1].left > 0

    @property
    def ready(self) -> bool:
        """Whether it can execute one now."""
        return self.has_work and self.wait is None

    def stop(self, reason: str, *, hung: bool = False) -> None:
        """Execute nothing more until it is reset; `hung`: waves are stuck."""
        self.stopped = self.stopped or reason
        self.hung |= hung
        self._context.event("pm4", lambda: f"{self.name} stops: {reason}")

    def fault(self, error: str, what: str, fault: PageFault) -> None:
        """An access of the command processor for this queue has failed: it stops.

        Args:
            error: the field of CP_HQD_ERROR.
            what: the access, in words.
            fault: which the hub has reported already.
        """
        self._context.diagnosis.wrong(f"{self.name}: {what}: {fault}; the queue stops")
        register = self._context.chip.register("GC", "CP_HQD_ERROR")
        self.set("CP_HQD_ERROR", register.pack(self.value("CP_HQD_ERROR"), **{error: 1}))
        self.stop(f"{what}: {fault}")

    def later(self, clocks: int, action: Callable[[], None], what: str) -> None:
        """Call `action` in that many clocks, unless the queue is reset before. It may raise PageFault."""
        epoch = self.epoch
        self._context.link.schedule(clocks, lambda: self.guard(action, what) if self.epoch == epoch else None)

    def guard(self, action: Callable[[], None], what: str) -> None:
        """Call `action`; a PageFault that it raises stops the queue."""
        try:
            action()
        except PageFault as fault:
            self.fault("TC_UTCL1_ERROR", what, fault)

    def report(self) -> None:
        """Write the read pointer, if a block has been crossed or the ring is empty. Raises PageFault."""
        stream = self.streams[0]
        self.set("CP_HQD_PQ_RPTR", stream.position % stream.size)
        block = 2 << self.get("CP_HQD_PQ_CONTROL", "RPTR_BLOCK_SIZE")
        crossed = stream.position // block != self._reported // block
        if self._reported == stream.position or not (crossed or not stream.left):
            return
        self._reported = stream.position
        if self.get("CP_HQD_PQ_CONTROL", "NO_UPDATE_RPTR"):
            return
        address = self.pair("CP_HQD_PQ_RPTR_REPORT_ADDR", "CP_HQD_PQ_RPTR_REPORT_ADDR_HI") & ~3
        if not address:
            self._context.diagnosis.missing(
                "hqd-rptr-report", f"{self.name} writes its read pointer to address 0"
            )
        stream.memory.write(address, (stream.position % stream.size).to_bytes(4, "little"))

    def _clear(self) -> None:
        self.epoch += 1
        self.connected = False
        self.stopped = ""
        self.hung = False
        self.draining = False
        self.spi_reset = False
        self.streams = []
        self.pipeline = Pipeline()
        self.wait = None
        self.vmid = 0
        self._reported = 0

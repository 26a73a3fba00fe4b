"""A queue of an SDMA engine: a ring of packets; a doorbell gives its write pointer.

Ring pointers count bytes and never wrap. A queue makes progress by itself in virtual time; its transfers
share the engine's data path. A page fault stops it until the ring is enabled again; its EXCEPTION status is
not 0 then (grade: guess). Registers that deal with preemption and context switches have no effect here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from emulator.amdgpu.context import Context
from emulator.amdgpu.sdma_packets import Denied, Generator, Malformed, Packets, Stream, TimedOut
from emulator.amdgpu.seams import AddressSpace, PageFault
from emulator.pcie.function import UnsupportedRequest
from usbgpu.amd.facts import sdma
from usbgpu.amd.facts.describe import DWORD, DwordRegister

RUNNING, ILLEGAL, PAGE, DENIED, TIMEOUT = range(5)
"""Values of CONTEXT_STATUS.EXCEPTION here (grade: guess)."""


class _Ring:
    """Packets of a ring buffer; implements `sdma_packets.Stream`."""

    nested = False

    def __init__(
        self, memory: AddressSpace, vmid: int, privileged: bool, base: int, size: int, position: int
    ) -> None:
        self.memory = memory
        self.vmid = vmid
        self.privileged = privileged
        self.position = position  # bytes that have been consumed, without end
        self._base = base
        self._size = size

    def peek(self, dwords: int) -> list[int]:
        """The next dwords, the ring's wrap included."""
        start, size = self.position % self._size, 4 * dwords
        data = self.memory.read(self._base + start, min(size, self._size - start))
        while len(data) < size:
            data += self.memory.read(self._base, min(size - len(data), self._size))
        return list(struct.unpack(f"<{dwords}I", data))

    def skip(self, dwords: int) -> None:
        self.position += 4 * dwords

    def ends_at(self) -> int:
        return self.position >> 2


class _Buffer(_Ring):
    """Packets of an indirect buffer."""

    nested = True


class Engine(Protocol):
    """What a queue needs of its engine; `sdma.SdmaEngine` has it.

    Attributes:
        context: of the card.
        memory: the address space of a VMID.
        packets: what executes packets, by queue.
    """

    context: Context
    memory: Callable[[int], AddressSpace]
    packets: dict[int, Packets]

    def ready(self, *, report: bool) -> bool:
        """Whether packets are executed; if not, the diagnosis may hear why."""

    def stick(self) -> None:
        """No queue goes on before a reset."""

    def claim(self, queue: Queue) -> None:
        """Have it known which doorbell a queue listens to."""

    def interrupt(self, queue: int, source: str, vmid: int, data: int) -> None:
        """Post an interrupt; source by name."""


class Queue:
    """A queue, and what it is doing."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.number = number
        self.exception = RUNNING
        self.write_pointer = 0
        self.read_pointer = 0
        self._engine = engine
        self._context = engine.context
        self._prefix = f"SDMA0_QUEUE{number}_"
        self._written: set[str] = set()
        self._task: Generator | None = None
        self._parked = False  # the engine was stopped in the middle of the task
        self._epoch = 0
        registers, chip = self._context.registers, self._context.chip
        for name in chip.blocks["GC"].registers:
            if name.startswith(self._prefix):
                registers.on_write("GC", name, self._noting(name.removeprefix(self._prefix)))
        self._on_write("RB_CNTL", self._control)
        self._on_write("RB_WPTR", self._move_write_pointer)
        self._on_write("RB_WPTR_HI", lambda value: self._move_write_pointer(value, high=True))
        self._on_write("MINOR_PTR_UPDATE", self._end_minor_update)
        for name in ("DOORBELL", "DOORBELL_OFFSET"):
            self._on_write(name, self._claiming(name))
        for name in ("RB_RPTR", "RB_RPTR_HI", "RB_WPTR", "RB_WPTR_HI"):
            registers.on_read("GC", self._prefix + name, self._pointer(name))
        registers.on_read("GC", self._prefix + "CONTEXT_STATUS", self._status)

    # -- for the engine --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._task is not None

    @property
    def enabled(self) -> bool:
        return bool(self._get("RB_CNTL", "RB_ENABLE"))

    @property
    def doorbell(self) -> int | None:
        """Offset in BAR 2 of the doorbell that it listens to, in bytes."""
        if not self._get("DOORBELL", "ENABLE"):
            return None
        return self._get("DOORBELL_OFFSET", "OFFSET") * 4

    def rung(self, value: int) -> None:
        """Its doorbell was rung."""
        if not self.enabled:
            self._context.diagnosis.missing("sdma-ring-enable", "the doorbell of an SDMA queue has no effect")
            return
        if value < self.write_pointer and not self._minor_update:
            self._context.diagnosis.wrong(
                f"{self} gets the write pointer {value:#x} after {self.write_pointer:#x}: it must not go back"
            )
            return
        if self._minor_update:
            self._context.diagnosis.wrong(f"{self}: the doorbell waits until MINOR_PTR_UPDATE is cleared")
        self.write_pointer = value
        self.kick()

    def kick(self) -> None:
        """Start work, if there is any."""
        if self._parked:
            self._parked = False
            self._resume(self._epoch)
        elif self._task is None and self._may_run() and self._engine.ready(report=True):
            self._epoch += 1
            self._task = self._work()
            self._resume(self._epoch)

    def stop(self) -> None:
        """Stop the work under way."""
        self._epoch += 1
        self._task, self._parked = None, False

    def __str__(self) -> str:
        return f"SDMA0 queue {self.number}"

    # -- the ring ---------------------------------------------------------------------------------------

    def _may_run(self) -> bool:
        pending = self.read_pointer != self.write_pointer
        return pending and self.enabled and self.exception == RUNNING and not self._minor_update

    def _resume(self, epoch: int) -> None:
        """Go on with the task, unless it is another one by now."""
        if epoch != self._epoch or self._task is None:
            return
        if not self._engine.ready(report=False):
            self._parked = True
            return
        try:
            delay = next(self._task)
        except StopIteration:
            self._task = None
        except (Malformed, Denied, TimedOut, PageFault, UnsupportedRequest) as problem:
            self._fail(problem)
        else:
            self._context.link.schedule(max(delay, 1), lambda: self._resume(epoch))

    def _work(self) -> Generator:
        """Execute packets until the ring is empty."""
        if "RB_BASE" not in self._written:
            self._context.diagnosis.missing("sdma-ring-base", f"{self} fetches packets from address 0")
        size = 4 << self._get("RB_CNTL", "RB_SIZE")
        vmid = self._get("RB_CNTL", "RB_VMID")
        base = self._address("RB_BASE", "RB_BASE_HI") << 8
        memory = self._engine.memory(vmid)
        self._check_write_pointer(memory, size)
        if self.write_pointer - self.read_pointer > size:
            self._context.diagnosis.wrong(
                f"{self}: {self.write_pointer - self.read_pointer} bytes are pending in a ring of {size}: "
                "packets have been overwritten"
            )
        ring = _Ring(memory, vmid, bool(self._get("RB_CNTL", "RB_PRIV")), base, size, self.read_pointer)
        while left := (self.write_pointer - ring.position) >> 2:
            words = self._packet(ring, left)
            if not words:
                return  # the rest of it is yet to come
            ring.skip(len(words))
            yield from self._execute(words, ring)
            self.read_pointer = ring.position
            self._write_back(memory)

    def _packet(self, stream: _Ring, left: int) -> list[int]:
        """The next packet, if all of it is there. Raises Malformed."""
        [header] = stream.peek(1)
        length = sdma.length(header, self._context.chip.generation)
        if not length:
            name = sdma.NOT_MODELLED.get(header & 0xFF, "")
            raise Malformed(
                f"packet header {header:#010x}: " + (f"{name} is not modelled" if name else "unknown packet")
            )
        if length > left:
            return []
        words = stream.peek(length)
        kind = sdma.packet(header)
        if kind is not None and kind.name == "WRITE_UNTILED":
            length += kind.get(words, "count") + 1
            if length > left:
                return []
            words = stream.peek(length)
        return words

    def _execute(self, words: Sequence[int], stream: Stream) -> Generator:
        self._context.event("sdma", lambda: f"queue {self.number} {describe(words)}")
        start = self._context.link.now()
        yield from self._engine.packets[self.number].execute(words, stream)
        self._context.span(f"sdma queue {self.number}", start, lambda: describe(words))

    def run_buffer(self, base: int, dwords: int, vmid: int, privileged: bool) -> Generator:
        """Execute an indirect buffer. Raises what packets raise."""
        if not self._get("IB_CNTL", "IB_ENABLE"):
            self._context.diagnosis.missing("sdma-ib-enable", f"{self} stops at INDIRECT")
            raise Denied("INDIRECT is not enabled")
        if not dwords:
            return
        buffer = _Buffer(self._engine.memory(vmid), vmid, privileged, base, 4 * dwords, 0)
        while left := dwords - (buffer.position >> 2):
            words = self._packet(buffer, left) if left > 0 else []
            if not words:
                raise Malformed(f"a packet goes beyond the end of the indirect buffer at {base:#x}")
            buffer.skip(len(words))
            yield from self._execute(words, buffer)

    def _check_write_pointer(self, memory: AddressSpace, size: int) -> None:
        """The firmware looks at the write pointer in memory, if polling is enabled.

        One that is ahead by less than the ring is that of a doorbell to come.
        """
        polled = self._context.chip.family.sdma_poll
        if not self._get("RB_CNTL", polled):
            return
        if "RB_WPTR_POLL_ADDR_LO" not in self._written:
            self._context.diagnosis.missing(
                "sdma-wptr-address", f"{self} reads its write pointer at address 0"
            )
        address = self._address("RB_WPTR_POLL_ADDR_LO", "RB_WPTR_POLL_ADDR_HI")
        value = int.from_bytes(memory.read(address, 8), "little")
        if not 0 <= value - self.write_pointer < size:
            self._context.diagnosis.wrong(
                f"{self}: the write pointer in memory is {value:#x}, that of the doorbell "
                f"{self.write_pointer:#x}"
            )

    def _write_back(self, memory: AddressSpace) -> None:
        if not self._get("RB_CNTL", "RPTR_WRITEBACK_ENABLE"):
            return
        if "RB_RPTR_ADDR_LO" not in self._written:
            self._context.diagnosis.missing(
                "sdma-rptr-address", f"{self} writes its read pointer to address 0"
            )
        address = self._address("RB_RPTR_ADDR_LO", "RB_RPTR_ADDR_HI") & ~3
        memory.write(address, self.read_pointer.to_bytes(8, "little"))

    def _fail(self, problem: Exception) -> None:
        """The queue cannot go on."""
        self.stop()
        engine, diagnosis = self._engine, self._context.diagnosis
        if isinstance(problem, PageFault | UnsupportedRequest):
            self.exception = PAGE
            if self._context.registers.get("GC", "SDMA0_UTCL1_CNTL", "RESP_MODE") == sdma.RESP_MODE:
                engine.interrupt(self.number, "SDMA_PAGE_FAULT", self._get("RB_CNTL", "RB_VMID"), 0)
            else:
                diagnosis.missing("sdma-utcl1", f"{self} has a page fault and does not report it")
            why = str(problem) or "nothing answers at the PCIe address"
        else:
            self.exception = {Malformed: ILLEGAL, Denied: DENIED, TimedOut: TIMEOUT}[type(problem)]
            source = "SDMA_POLL_TIMEOUT" if isinstance(problem, TimedOut) else "SDMA_QUEUE_HANG"
            engine.interrupt(self.number, source, self._get("RB_CNTL", "RB_VMID"), 0)
            engine.stick()
            why = str(problem)
        diagnosis.wrong(f"{self} stops at {self.read_pointer:#x} of its ring: {why}")

    # -- its registers ----------------------------------------------------------------------------------

    def _on_write(self, name: str, action: Callable[[int], int | None]) -> None:
        def write(value: int) -> int | None:
            self._written.add(name)
            return action(value)

        self._context.registers.on_write("GC", self._prefix + name, write)

    def _noting(self, name: str) -> Callable[[int], None]:
        return lambda value: self._written.add(name)

    def _register(self, name: str) -> DwordRegister:
        return self._context.chip.register("GC", self._prefix + name)

    def _get(self, name: str, part: str) -> int:
        return self._context.registers.get("GC", self._prefix + name, part)

    def _set(self, name: str, value: int) -> None:
        self._context.registers.set("GC", self._prefix + name, value)

    def _address(self, low: str, high: str) -> int:
        registers = self._context.registers
        return registers.value("GC", self._prefix + high) << 32 | registers.value("GC", self._prefix + low)

    @property
    def _minor_update(self) -> bool:
        return bool(self._get("MINOR_PTR_UPDATE", "ENABLE"))

    def _control(self, value: int) -> None:
        enable = bool(self._register("RB_CNTL").get(value, "RB_ENABLE"))
        if enable == self.enabled:
            return
        self._set("RB_CNTL", value)
        self.stop()
        if enable:
            self.exception = RUNNING
            self.read_pointer = self._address("RB_RPTR", "RB_RPTR_HI")
            self.write_pointer = self._address("RB_WPTR", "RB_WPTR_HI")
            if not self._register("RB_CNTL").get(value, "RB_SIZE"):
                self._context.diagnosis.wrong(
                    f"{self} is enabled with RB_SIZE 0, a ring of one dword: set RB_SIZE"
                )
            self._engine.claim(self)
            self.kick()
        else:
            self._set("RB_RPTR", self.read_pointer & DWORD)
            self._set("RB_RPTR_HI", self.read_pointer >> 32)
            self._set("RB_WPTR", self.write_pointer & DWORD)
            self._set("RB_WPTR_HI", self.write_pointer >> 32)

    def _move_write_pointer(self, value: int, high: bool = False) -> None:
        if not self.enabled:
            return
        old = self.write_pointer
        moved = old & DWORD | value << 32 if high else old & ~DWORD | value
        if moved < old and not self._minor_update:
            self._context.diagnosis.wrong(
                f"{self}: RB_WPTR goes back from {old:#x} to {moved:#x} without MINOR_PTR_UPDATE: "
                "it is ignored"
            )
            return
        self.write_pointer = moved
        self.kick()

    def _end_minor_update(self, value: int) -> None:
        self._set("MINOR_PTR_UPDATE", value)
        self.kick()

    def _claiming(self, name: str) -> Callable[[int], None]:
        """From this write on, it may listen to another doorbell."""

        def write(value: int) -> None:
            self._set(name, value)
            self._engine.claim(self)

        return write

    def _pointer(self, name: str) -> Callable[[], int]:
        """What a pointer's register reads: how far the queue is if it is enabled, else what it holds."""

        def read() -> int:
            if not self.enabled:
                return self._context.registers.value("GC", self._prefix + name)
            pointer = self.read_pointer if "RPTR" in name else self.write_pointer
            return pointer >> 32 if name.endswith("_HI") else pointer

        return read

    def _status(self) -> int:
        return self._register("CONTEXT_STATUS").pack(
            SELECTED=self.busy, IDLE=not self.busy, EXCEPTION=self.exception, RPTR_WB_IDLE=1
        )


def describe(words: Sequence[int]) -> str:
    """A packet in the fields' names, those that are 0 left out."""
    kind = sdma.packet(words[0])
    if kind is None:
        return f"{words[0]:#010x}"
    parts = ", ".join(f"{name}={value:#x}" for name, value in kind.unpack(words).items() if value)
    return f"{kind.name} {parts}".rstrip()

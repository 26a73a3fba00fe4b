"""Launches on a compute queue: how they become submissions, how their end is waited for, which one failed.

Waiting is done by the bridge, in the same command list. What takes longer is polled at intervals, and the
card is asked whether something has gone wrong, so that a kernel that stops is not waited for to the end of
the time-out. A page fault need not stop a kernel: its accesses go to a page that is not read. So the status
of faults is read whenever launches have ended, too.

When it is a launch's turn, the command processor leaves that status as a mark in memory. From the marks and
the signal follows which launch did not end, and which one faulted.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, Protocol

from firmware.protocol.operations import CAUSES
from sdk.errors import DeviceFailed, InternalError
from usbgpu.amd import hub, layout, pm4
from usbgpu.amd.batch import ALL, RESULT_ROOM, Batch, GpuFailed
from usbgpu.amd.card import Card
from usbgpu.amd.memory import Buffer, Memory
from usbgpu.amd.queues import ComputeQueue
from usbgpu.amd.recover import CardLost
from usbgpu.bridge.seam import ListFailed
from usbgpu.seam import Launch

log = logging.getLogger(__name__)

PATIENCE, GLANCE = 0.05, 0.001
"""Seconds of device time that a command list waits for the end of launches: the first one, and later ones."""
PAUSE = 1 / 8
"""Between these, of the time that has passed."""
TIMEOUT = 10.0
"""Default of the seconds of device time that launches may take."""
KERNARG_ALIGNMENT = 16
SCRATCH_WAVES = 32
"""Waves of a shader engine that have scratch memory at a time: a compromise of speed and VRAM."""
TIMED_OUT = next(code for code, words in CAUSES.items() if words == "condition timeout")
MARKS = layout.QUEUES + 16 * layout.KIB
"""A dword for each launch of the submission that is being executed."""
MARK_LIMIT = 4096
"""Launches that have one of their own."""
NOT_YET = 0xFFFF_FFFF
"""A mark before it is the launch's turn."""
NOP_LIMIT = 48 << 10
"""Bytes of a NOP packet at most; it counts to 2^14 dwords, and arguments of a launch follow the check."""
IB_ALIGNMENT = 8
"""Dwords that indirect buffers are multiples of (Linux, `ib_size_alignment`)."""


class KernelFailed(GpuFailed):
    """A kernel did not end, or went wrong.

    Attributes:
        kernel: its name.
    """

    code = "kernel-failed"

    def __init__(self, message: str, *, kernel: str, where: str, hint: str | None = None) -> None:
        super().__init__(message, where=where, hint=hint)
        self.kernel = kernel


class Doctor(Protocol):
    """Diagnoses a card, and recovers it."""

    def complaint(self) -> str | None:
        """What went wrong, as text: a page fault, an illegal instruction; None if nothing did.

        Raises:
            CardLost: the card has been reset.
            DeviceFailed: it does not answer.
        """

    def restore(self) -> None:
        """Make the engines run again with empty queues. Raises DeviceFailed if that cannot be done."""


@dataclass(frozen=True, slots=True)
class DispatchStep:
    """A launch, the condition for its start, and what is to be measured.

    Attributes:
        launch: what.
        after: a dword of VRAM, by GPU address, and the value that it must have at least.
        clock: GPU address for the times of beginning and end, 64 bits each.
        report: what is written when it and all before have ended: GPU addresses of two dwords, and the value
            of the second. The first becomes the status of page faults, 0 if there was none.
    """

    launch: Launch
    after: tuple[int, int] | None = None
    clock: int | None = None
    report: tuple[int, int, int] | None = None


class Compute:
    """Runs launches, in order.

    Args:
        card: whose.
        queue: that has been set up.
        memory: for scratch memory.
        doctor: asked when something takes too long.

    Attributes:
        busy: whether something was submitted whose end has not been waited for.
    """

    def __init__(self, card: Card, queue: ComputeQueue, memory: Memory, doctor: Doctor) -> None:
        self.card = card
        self.queue = queue
        self._memory = memory
        self._doctor = doctor
        self._programs = pm4.Programs(card)
        self._fault_status = hub.fault_status(card, "GC")
        self._scratch: list[Buffer] = []  # grown; the old ones serve what has been prepared before
        self._flight: dict[int, tuple[str, ...]] = {}  # names of the launches by submission
        self._lost = False

    @property
    def busy(self) -> bool:
        return bool(self._flight)

    # -- building ---------------------------------------------------------------------------------------

    def program(self, steps: Sequence[DispatchStep], address: int) -> bytes:
        """Arguments and packets of launches, as they must be at a GPU address, a multiple of 16.

        NOP packets enclose the arguments, so that all of it can be executed from its first dword on.
        """
        scratch = self._scratch_for([step.launch for step in steps])
        arguments, places = _arguments([step.launch.kernarg for step in steps])
        marks, status = layout.address(MARKS), self.card.index("GC", self._fault_status)
        packets = self._programs.begin()
        packets += pm4.write(marks, *[NOT_YET] * min(max(len(steps), 1), MARK_LIMIT))
        held: pm4.Held = {}
        for number, (step, place) in enumerate(zip(steps, places, strict=True)):
            packets += self._programs.prepare(step.launch, address + place, scratch, held)
            packets += pm4.barrier()
            packets += pm4.keep(status, marks + 4 * min(number, MARK_LIMIT - 1))
            if step.after is not None:
                packets += [*pm4.wait_memory(*step.after), *pm4.acquire()]
            if step.clock is not None:
                packets += pm4.clock(step.clock)
            packets += self._programs.dispatch(step.launch)
            if step.clock is not None:
                packets += pm4.release(step.clock + 8, select=pm4.GPU_CLOCK)
            if step.report is not None:
                faults, done, value = step.report
                packets += [*pm4.barrier(), *pm4.keep(status, faults), *pm4.release(done, value)]
        if padding := -(len(arguments) // 4 + len(packets)) % IB_ALIGNMENT:
            packets += [*pm4.nop(padding), *[0] * (padding - 1)]
        return arguments + _packed(packets)

    # -- submitting and waiting -------------------------------------------------------------------------

    def batch(self) -> Batch:
        """One to which a submission will be added; recovers the card first if it has been lost."""
        if self._lost:
            self.recover()
        return Batch(self.card, "compute")

    def submit(self, batch: Batch, steps: Sequence[DispatchStep]) -> bool:
        """Add launches to a batch, arguments and all, if the ring takes so many at a time."""
        # The reserved part is aligned by dwords before it, so there may be some more.
        size = len(self.program(steps, 0)) // 4 + KERNARG_ALIGNMENT // 4
        if size > self.queue.room:
            return False
        place = self.queue.reserve(batch, size)
        lead = -place % KERNARG_ALIGNMENT // 4
        packets = [*pm4.nop(lead), *[0] * (lead - 1)] if lead else []
        program = self.program(steps, place + 4 * lead)
        self._submit(batch, [*packets, *_unpacked(program)], tuple(step.launch.name for step in steps))
        return True

    def call(
        self,
        batch: Batch,
        address: int,
        dwords: int,
        names: Sequence[str],
        after: tuple[int, int] | Callable[[Batch], None] | None = None,
    ) -> None:
        """Add launches to a batch whose program is in memory.

        Args:
            batch: gets them.
            address: of the program, for the GPU.
            dwords: of it.
            names: of the launches.
            after: when it is there and may begin: once a dword has a value or more; or behind what this adds.
        """
        wait, before = [], None
        if isinstance(after, tuple):
            wait = pm4.wait_memory(*after)
        else:
            before = after
        self._submit(batch, [*wait, *pm4.indirect(address, dwords)], tuple(names), before)

    def _submit(
        self,
        batch: Batch,
        packets: Sequence[int],
        names: tuple[str, ...],
        after: Callable[[Batch], None] | None = None,
    ) -> None:
        self._flight[self.queue.submit(batch, packets, after=after)] = names

    def make_room(self, dwords: int, timeout: float) -> None:
        """Wait until the ring has room for a submission."""
        if not self.queue.fits(dwords):
            self.finish(self.batch(), timeout)

    @contextmanager
    def at_risk(self) -> Iterator[None]:
        """If the block is interrupted, the card is recovered before the next batch.

        That begins with the first submission that is added to a batch: the queue counts it, and the card
        gets it only when the batch runs.
        """
        try:
            yield
        except KernelFailed:  # it was recovered where that was found, if possible
            raise
        except BaseException:
            self._lost = True
            raise

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """The same for streams, whose errors are the bridge's: the card is asked for their cause."""
        try:
            with self.at_risk():
                yield
        except DeviceFailed as problem:
            self.explain(problem)

    def run(self, batch: Batch) -> None:
        """Run a batch whose submissions are not waited for."""
        with self.at_risk():
            batch.run()

    def finish(
        self, batch: Batch, timeout: float, reads: Callable[[Batch], None] = lambda batch: None
    ) -> None:
        """Run a batch, wait for the end of all launches, then read.

        Args:
            batch: with submissions.
            timeout: seconds of device time that the launches may take.
            reads: adds what is to be read when they have ended.

        Raises:
            KernelFailed: a launch did not end, or went wrong; the queue is empty again.
            DeviceFailed: other errors of the bridge.
        """
        clock = self.card.bridge.clock
        start = None  # of the waiting: what is in the batch before has its own time
        patience = min(PATIENCE, timeout)
        while True:
            self.queue.wait(batch, patience)
            status = batch.read("GC", self._fault_status)
            reads(batch)
            try:
                self.run(batch)
            except GpuFailed as problem:
                if not self._timed_out(problem):
                    self.explain(problem)
                self._lost = False
            else:
                if status.value:
                    self.faulted(status.value, timeout)
                self._flight.clear()
                return
            with self.at_risk():
                complaint = self._doctor.complaint()
            now = clock.now()
            start = now - patience if start is None else start
            left = start + timeout - now
            if complaint is not None or left <= 0:
                self._give_up(complaint, timeout)
            patience = min(GLANCE, left)
            clock.sleep(min((now - start) * PAUSE, left - patience))
            batch = Batch(self.card, "compute")

    def idle(self) -> None:
        """Everything that was submitted has ended, the caller knows that."""
        self.queue.idle()
        self._flight.clear()

    def late(self, timeout: float) -> NoReturn:
        """What was submitted did not end in time: raises KernelFailed, with the card's own report."""
        with self.at_risk():
            complaint = self._doctor.complaint()
        self._give_up(complaint, timeout)

    def faulted(self, status: int, timeout: float) -> NoReturn:
        """The status of page faults says that something went wrong: raises KernelFailed."""
        with self.at_risk():
            complaint = self._doctor.complaint()
        self._give_up(complaint or f"a page fault ({status:#x})", timeout)

    def recover(self) -> None:
        """Make the queue empty and working again, from any state. Raises DeviceFailed."""
        self._doctor.restore()
        self.forget()

    def forget(self) -> None:
        """The queue has been set up again: nothing is in flight."""
        self._flight.clear()
        self._lost = False

    # -- inside -----------------------------------------------------------------------------------------

    def explain(self, problem: DeviceFailed) -> NoReturn:
        """Raise an error with the card's own report; the same error if it has none."""
        complaint = None
        try:
            complaint = self._doctor.complaint()
        except CardLost as reason:
            raise reason from problem
        except DeviceFailed as silence:
            log.info("the card does not answer: %s", silence)
        if complaint is None:
            raise problem
        raise GpuFailed(
            f"{problem.message}: {complaint}", where=problem.where or "", hint=problem.hint
        ) from problem

    def _timed_out(self, problem: GpuFailed) -> bool:
        """Whether what failed is the wait for the signal."""
        cause = problem.__cause__
        signal = self.card.bars[0] + self.queue.place.signal
        return (
            isinstance(cause, ListFailed)
            and cause.failure.address == signal
            and cause.failure.cause == TIMED_OUT
        )

    def _give_up(self, complaint: str | None, timeout: float) -> NoReturn:
        """Find the launch that failed, restore the queue, and raise the error."""
        self._lost = True
        name = self._blame(complaint is not None)
        device = self.card.bridge.name
        hint = None
        try:
            self.recover()
        except DeviceFailed as problem:
            hint = f"the card could not be recovered ({problem}): switch its power off and on"
        if complaint is not None:
            raise KernelFailed(f"{name}: {complaint}", kernel=name, where=device, hint=hint)
        raise KernelFailed(
            f"{name} did not finish within {timeout:g} s",
            kernel=name,
            where=device,
            hint=hint or "a kernel that needs longer needs a larger timeout",
        )

    def _blame(self, faulted: bool) -> str:
        """The launch that faulted, or that the queue is at."""
        batch = Batch(self.card, "diagnosis")
        signal = batch.load(self.queue.place.signal, 4)
        flight = sorted(self._flight.items())
        most = min(max((len(names) for _, names in flight), default=0), MARK_LIMIT)
        kept = [
            batch.load(MARKS + at, min(4 * most - at, RESULT_ROOM)) for at in range(0, 4 * most, RESULT_ROOM)
        ]
        batch.run()
        ended = int.from_bytes(signal.value, "little")
        marks = _unpacked(b"".join(part.value for part in kept))
        # The marks are those of the submission that does not end, or of the last one.
        left = (names for value, names in flight if 0 < value - ended & ALL < 1 << 31)
        names = next(left, flight[-1][1] if flight else ())
        turns = [mark for mark in marks[: len(names)] if mark != NOT_YET]
        if faulted:
            # What faulted had its turn before: the mark after it is the first that shows the fault.
            turns = turns[: next((at for at, mark in enumerate(turns) if mark), len(turns))]
        if turns:
            return names[len(turns) - 1]
        return "a launch before " + names[0] if names else "the compute queue"

    def _scratch_for(self, launches: Sequence[Launch]) -> pm4.Scratch | None:
        wave = max((pm4.scratch_wave(launch) for launch in launches), default=0)
        if not wave:
            return None
        size = wave * SCRATCH_WAVES * self.card.chip.shader_engines
        if not self._scratch or self._scratch[-1].size < size:
            self._scratch.append(self._memory.allocate(size))
        return pm4.Scratch(self._scratch[-1].address, self._scratch[-1].size)


def _arguments(kernargs: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """NOP packets with arguments, of which equal ones are there once, and where each one's are in them."""
    packets: list[bytearray] = []
    known: dict[bytes, int] = {}
    end = 0  # of the packets before the last one
    for kernarg in kernargs:
        if kernarg in known:
            continue
        if not packets or len(packets[-1]) + len(kernarg) > NOP_LIMIT:
            end += len(packets[-1]) if packets else 0
            packets.append(bytearray(KERNARG_ALIGNMENT))  # its header, and nothing
        known[kernarg] = end + len(packets[-1])
        packets[-1] += kernarg + bytes(-len(kernarg) % KERNARG_ALIGNMENT)
    for packet in packets:
        packet[:4] = _packed(pm4.nop(len(packet) // 4))
    return b"".join(packets), [known[kernarg] for kernarg in kernargs]


def _packed(dwords: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(dwords)}I", *dwords)


def _unpacked(data: bytes) -> tuple[int, ...]:
    if len(data) % 4:
        raise InternalError("a program that is not whole dwords")
    return struct.unpack(f"<{len(data) // 4}I", data)

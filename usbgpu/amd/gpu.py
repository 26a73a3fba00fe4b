"""A GPU as its user sees it: memory, transfers, kernels.

    with usbgpu.amd.gpu.open("emulated:firmware?gpu=gfx1100") as gpu:
        module = gpu.load(Path("kernels.co").read_bytes())
        numbers = gpu.allocate(4096)
        gpu.upload(numbers, data)
        gpu.launch(module["scan"], 4, numbers, numbers)
        gpu.download(numbers, 4096)

All waits are bounded, in the device's time. One thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sdk.clock import Clock
from sdk.errors import DeviceFailed, UsageError
from sdk.target import Rest
from sdk.telemetry import metrics as figures
from usbgpu import bridge as bridges
from usbgpu import emulation, pcie
from usbgpu.amd import compute as computing
from usbgpu.amd import information, kernels, layout, overlap
from usbgpu.amd import start as starting
from usbgpu.amd.batch import RESULT_ROOM, Batch
from usbgpu.amd.card import Card
from usbgpu.amd.compute import TIMEOUT, Compute, DispatchStep
from usbgpu.amd.doctor import Doctor
from usbgpu.amd.information import Information
from usbgpu.amd.kernels import Loaded, Module
from usbgpu.amd.memory import Buffer, Memory
from usbgpu.amd.monitor import INTERVAL, Metrics, Monitor
from usbgpu.amd.overlap import Overlap
from usbgpu.amd.places import Asked, between, cut, load, place_of, product
from usbgpu.amd.prepared import Prepared, same_launches
from usbgpu.amd.queues import ComputeQueue, SdmaQueue
from usbgpu.amd.record import BOOTED, MAGIC
from usbgpu.amd.reopening import Reopening
from usbgpu.amd.resting import Resting
from usbgpu.amd.smu import PowerCap
from usbgpu.amd.start import Function
from usbgpu.amd.streams import FETCH, PIECES, SMALL, STREAM, Fetch, Piece, Streams
from usbgpu.bridge.seam import Bridge
from usbgpu.seam import Launch, Read, Way, Write
from usbgpu.transport.emulation import Emulation

log = logging.getLogger(__name__)

CODE_ALIGNMENT = kernels.PAGE
CLOCK_RATE = 100e6
"""Hertz of the GPU's clock (`facts.pm4`)."""
ROOM_FOR_CALL = 64
"""Dwords of the ring that the call of a program takes at most."""
SMALL_READ, FETCHES = 64, 8
"""Bytes that are read through BAR 0 over a bridge with lists, at 2 us a dword: a stream takes 30 us and more;
and pieces of memory that are read together."""
FENCE = layout.QUEUES + 15 * layout.KIB
"""Offset in VRAM of the dword that holds the progress of a stream."""


def open(
    device: str | None = None,
    firmware: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
    power_cap: float | None = None,
) -> Gpu:
    """Open the GPU behind a bridge, and boot it if it is not up.

    Args:
        device: as `usbgpu.transport.open` takes it.
        firmware: directory of its firmware files; None for the system's, or for the emulator's
            if the device is emulated.
        report: gets a line for each step, at most 12 if it is booted, 3 if it is up.
        power_cap: watts that its board may draw at most, until it is closed; None for its own limit.

    Raises:
        UsageError: it does not take that power cap.
        DeviceMissing, DeviceFailed, EnvironmentMissing: bridge, card or firmware are missing, or fail.
    """
    return attach(bridges.open(device), firmware, report, power_cap)


def attach(
    bridge: Bridge,
    firmware: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
    power_cap: float | None = None,
) -> Gpu:
    """Open the GPU behind a bridge, which closes with it, also if that fails. Otherwise as `open`."""
    try:
        directory = firmware or emulation.firmware_directory(bridge)
        return on_bridge(bridge, pcie.find(bridge), directory, report, power_cap)
    except BaseException:
        bridge.close()
        raise


def on_bridge(
    bridge: Bridge,
    function: Function,
    firmware: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
    power_cap: float | None = None,
) -> Gpu:
    """Open the GPU that is a PCIe function behind a bridge, which it closes. Raises as `open` does."""
    cap = None if power_cap is None else PowerCap(power_cap)
    queues: list[tuple[ComputeQueue, SdmaQueue]] = []

    def init_queues(card: Card, batch: Batch) -> None:
        queues.append((ComputeQueue(card), SdmaQueue(card)))
        for queue in queues[-1]:
            queue.init(batch)

    started = starting.start(bridge, function, directory=firmware, finish=init_queues, report=report, cap=cap)
    compute, sdma = queues[-1]
    doctor = Doctor(started.card, started.record, compute, sdma)
    resting = Resting(doctor)

    def close() -> None:
        try:
            if resting.state != "off":
                starting.close(started.card, doctor.record, cap)
        except DeviceFailed as problem:  # the next start resets it
            log.info("%s is not left clean: %s", started.card.chip.name, problem)
        finally:
            bridge.close()

    reopening = Reopening(doctor, firmware, report, cap)
    opened = Gpu(started.card, compute, sdma, doctor, close, reopening, resting)
    if isinstance(function, pcie.Function):
        opened.monitor = Monitor(started.card, bus=function.bus)
    return opened


class Gpu:
    """A card that is up, with its queues.

    Args:
        card: whose engines run.
        compute, sdma: queues that have been set up.
        doctor: diagnoses and recovers it.
        close: called at the end.
        reopening: opens it again after a failure; None if that is not possible.
        resting: lowers its clocks; likewise.

    Attributes:
        card: as given.
        memory: of its VRAM.
        compute: runs launches.
        streams: between host and VRAM.
        monitor: checked at intervals before work is submitted.
    """

    def __init__(
        self,
        card: Card,
        compute: ComputeQueue,
        sdma: SdmaQueue,
        doctor: computing.Doctor,
        close: Callable[[], None] = lambda: None,
        reopening: Reopening | None = None,
        resting: Resting | None = None,
    ) -> None:
        self.card = card
        self._resting = resting
        self._reopening = reopening
        self.memory = Memory.of(card.vram, card.window)
        self.compute = Compute(card, compute, self.memory, doctor)
        # What fails is recovered before the next batch (`Compute.at_risk`) or stream.
        self.streams = Streams(card, sdma, self.compute.recover)
        self.monitor = Monitor(card)
        self._opened = card.bridge.clock.now()
        self._close: Callable[[], None] | None = close

    @property
    def chip(self) -> str:
        """Its name, such as gfx1100."""
        return self.card.chip.name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the card; it stays up for the next program. Idempotent.

        A card that no longer answers is not an error here: it is reset when it is opened again.
        """
        close, self._close = self._close, None
        if close is not None:
            close()

    @property
    def clock(self) -> Clock:
        """The device's time."""
        return self.card.bridge.clock

    @property
    def emulation(self) -> Emulation | None:
        """What is emulated; None for a real device."""
        return self.card.bridge.emulation

    def recover(self, seconds: float) -> bool:
        """Make the GPU work again after any failure; whatever is in flight is abandoned.

        Buffers keep their places. If the card has been reset or has lost its power, it is booted.

        Args:
            seconds: of the device's time to wait at most until bridge, card and link are there, and the card
                is cool enough; what is begun is ended.

        Returns:
            Whether VRAM is as it was. If not, all that was put there, modules and prepared launches included,
            is lost.

        Raises:
            DeviceFailed, DeviceMissing, EnvironmentMissing: that is not possible now; it may be tried again.
        """
        self._open()
        if self._reopening is None:
            raise DeviceFailed("this GPU cannot be opened again", where=self.card.bridge.name)
        end = self.clock.now() + seconds
        self._reopening.run(self.compute, seconds)
        if self._resting is not None:
            self._resting.recovered(intact=not self._reopening.lost)
        self.monitor.cool_down(end)
        self._opened = self.clock.now()
        intact, self._reopening.lost = not self._reopening.lost, False
        return intact

    @property
    def addresses_lost(self) -> bool:
        """Whether the last `recover` found the card without its addresses: PCIe link or power was gone."""
        return self._reopening is not None and self._reopening.addresses_lost

    def info(self) -> Information:
        """What card it is, its memory, its PCIe link. Raises DeviceFailed: errors of the bridge."""
        return information.describe(self.card, pcie.find(self.card.bridge))

    def metrics(self) -> Metrics:
        """Power, temperatures and clocks now. Raises DeviceFailed: errors of card and bridge."""
        return self.monitor.look()

    @property
    def rests(self) -> Rest:
        """Whether it is "awake", "idle" with low clocks, or "off"."""
        return "awake" if self._resting is None else self._resting.state

    def rest(self, *, off: bool = False) -> None:
        """Use less power until there is something to do, once everything that was launched has ended.

        Args:
            off: switch the power of the card's slot off. All that was in VRAM is lost; `recover` boots the
                card. Else the clocks are lowered; what is done next raises them first.

        Raises:
            KernelFailed, DeviceFailed: as `wait`; errors of card and bridge.
            UsageError: it has been closed.
        """
        if self.rests == "awake":
            self.wait()
        self._open()
        if self._resting is None:
            raise DeviceFailed("the clocks of this GPU cannot be lowered", where=self.card.bridge.name)
        self._resting.rest(off=off)

    def wake(self) -> None:
        """Raise the clocks again, which any work does by itself. Raises DeviceFailed: its power is off."""
        self._open()
        if self._resting is not None:
            self._resting.wake()

    def reading(self) -> figures.Metrics:
        """The same with PCIe link, supply of the dock and traffic, behind everything that was launched.

        Raises:
            KernelFailed, DeviceFailed: as `wait`; errors of card and bridge.
        """
        self._open()
        self.wait()
        return self.monitor.read()

    @property
    def last_reading(self) -> figures.Metrics | None:
        """The last `reading`, or what was measured before work was submitted; None before the first."""
        return self.monitor.reading

    @property
    def traffic(self) -> figures.Traffic:
        """What went over the cable since the bridge was opened."""
        return self.card.bridge.traffic

    def identity(self) -> figures.Identity:
        """Which card it is, and where. Raises DeviceFailed: errors of the bridge."""
        self._open()
        return figures.Identity(*self.card.bridge.plugged(), chip=self.chip)

    # -- memory -----------------------------------------------------------------------------------------

    def allocate(self, size: int, alignment: int = 256) -> Buffer:
        """VRAM with any content. Raises Unsupported if there is not enough, with the sizes; UsageError."""
        return self.memory.allocate(size, alignment)

    def upload(self, buffer: Buffer, data: bytes | memoryview, offset: int = 0) -> None:
        """Write a buffer, once everything that was launched has ended. What is launched afterwards sees it.

        Raises:
            UsageError: it is freed, or has no such bytes.
            KernelFailed, DeviceFailed: as `wait`; errors of card and bridge.
        """
        address = layout.address(buffer.place(offset, len(data)))
        self.wait()
        if data:
            self._send([Piece(address, data)])

    def download(self, buffer: Buffer, size: int, offset: int = 0) -> bytes:
        """Read a buffer, once everything that was launched has ended. Raises as `upload` and `wait` do."""
        place = buffer.place(offset, size)
        self.wait()
        return self._receive([(place, size)])[0]

    # -- kernels ----------------------------------------------------------------------------------------

    def load(self, code: bytes) -> Module:
        """Put a code object into VRAM.

        Raises:
            InvalidInput: it is damaged, for another chip, or needs what launches do not offer.
            Unsupported: there is not enough VRAM.
            DeviceFailed: errors of card and bridge.
        """
        parsed = kernels.parse(code, self.chip)
        return Module(parsed, self._keep(parsed.image, CODE_ALIGNMENT))

    def launch(
        self,
        kernel: Loaded,
        groups: int | Sequence[int],
        *arguments: int | float | bytes | Buffer,
        threads: Sequence[int] | None = None,
        wait: bool = True,
        timeout: float = TIMEOUT,
    ) -> None:
        """Run a kernel after all that was launched before.

        Args:
            kernel: of a module.
            groups: workgroups in x, or in x, y, z.
            arguments: in order: buffers, numbers, structures as bytes.
            threads: work-items of a workgroup, if the source does not fix them.
            wait: for its end.
            timeout: seconds of device time that it may take.

        Raises:
            UsageError: arguments or sizes that the kernel does not take.
            KernelFailed: it did not end, or went wrong; what else was in flight is abandoned with it.
            TooHot: the card is.
            DeviceFailed: other errors of card and bridge; likewise.
        """
        self.run([kernel.launch(groups, *arguments, threads=threads)], wait=wait, timeout=timeout)

    def run(self, launches: Sequence[Launch], *, wait: bool = True, timeout: float = TIMEOUT) -> None:
        """Run launches in order, each seeing what those before it wrote. Raises as `launch` does."""
        steps = [DispatchStep(launch) for launch in launches]
        program = self.compute.program(steps, 0)
        self._look()
        self.compute.make_room(len(program) // 4 + ROOM_FOR_CALL, timeout)
        batch = self._batch()
        buffer = None
        try:
            with self.compute.at_risk():
                if not self.compute.submit(batch, steps):
                    buffer = self.put_program(steps)
                    names = [step.launch.name for step in steps]
                    self.compute.call(batch, buffer.address, buffer.size // 4, names)
                if wait or buffer is not None:
                    self.compute.finish(batch, timeout)
                else:
                    self.compute.run(batch)
        finally:
            if buffer is not None:
                buffer.free()

    def wait(self, timeout: float = TIMEOUT) -> None:
        """Wait for the end of everything that was launched. Raises KernelFailed, DeviceFailed."""
        if self.compute.busy:
            self.compute.finish(self._batch(), timeout)

    def prepare(self, launches: Sequence[Launch]) -> Prepared:
        """Put launches into VRAM, to be run repeatedly. Raises Unsupported, DeviceFailed."""
        return Prepared(self, launches)

    def stream(
        self,
        load: Sequence[Write],
        launches: Sequence[tuple[Launch, int]],
        outputs: Sequence[Read],
        timeout: float = TIMEOUT,
    ) -> list[bytes]:
        """Upload while launches run: each starts when its data is there.

        If the bridge has no lists and an upload must be sent again, the launches begin once more behind it.

        Args:
            load: what to write, in that order.
            launches: in order, each with how many bytes of `load` must be in memory first, counted from its
                start over all its pieces; the counts do not decrease.
            outputs: read at the end.
            timeout: seconds of device time that the launches may take after the last byte is there.

        Raises:
            TransferDamaged: the launches arrived otherwise than they were sent.
            as `upload` and `launch` do.
        """
        reads = [place_of(read.buffer, read.offset, read.size) for read in outputs]
        needs = sorted({need for _, need in launches if need})
        if launches and [need for _, need in launches] != sorted(need for _, need in launches):
            raise UsageError("the bytes that launches of a stream need must not decrease")
        pieces = cut(load, needs)
        if needs and needs[-1] > sum(len(piece.data) for piece in pieces):
            raise UsageError(f"a launch needs {needs[-1]} bytes of a stream that has fewer")
        fence = layout.address(FENCE)
        # The program is the first piece, with the value 1.
        steps = [
            DispatchStep(launch, (fence, 2 + needs.index(need)) if need else None)
            for launch, need in launches
        ]
        buffer = self.allocate(len(self.compute.program(steps, 0)))
        try:
            program = self.compute.program(steps, buffer.address)
            batch = self.batch_for_call(timeout)
            batch.store(FENCE, bytes(4))
            names = [launch.name for launch, _ in launches]
            pieces.insert(0, Piece(buffer.address, program, 1))
            reads.append(place_of(buffer, 0, len(program)))
            with self.compute.at_risk():
                self.compute.call(batch, buffer.address, buffer.size // 4, names, (fence, 1))
                fetch = self._fetch(reads, self.compute.queue.value, timeout)
                if self._in_one_list(pieces):
                    self.streams.add_upload(batch, pieces, fence, fetch)
                else:
                    self.compute.run(batch)
                    self._send(pieces, fence)
                    batch = self._batch()
                    if not self.compute.busy:  # it failed at first: the card was recovered, without launches
                        self.compute.call(batch, buffer.address, buffer.size // 4, names)
                    if fetch is not None:
                        self.streams.add_fetch(batch, fetch)
                *found, launched = self._finish(batch, reads, fetch, timeout)
            same_launches(program, launched)
            return found
        finally:
            buffer.free()

    def most_frames(self, way: Way) -> int:
        """How many frames one list may have; 1 over a bridge without lists."""
        if not self.card.bridge.has_lists:
            return 1
        program = self.compute.program([DispatchStep(launch) for launch in way.launches], 0)
        return overlap.most_frames(way, len(program))

    def overlap(self, ways: tuple[Way, Way], frames: int) -> Overlap:
        """Put the launches of several frames into VRAM, to be run repeatedly: transfers beside compute.

        Args:
            ways: of frames 0, 2, ... and of frames 1, 3, ...
            frames: how many, 2 to `most_frames`.

        Raises:
            Unsupported: there is not enough VRAM.
        """
        return Overlap(self, ways, frames)

    def profile(self, launches: Sequence[Launch], timeout: float = TIMEOUT) -> list[dict[str, int | float]]:
        """Run launches in order, one at a time.

        Returns:
            Of each: `virtual_us`, microseconds by the GPU's clock from the dispatch until its results are in
            memory; `waves`, of 32 work-items; `wave_instructions`, the `wmma_instructions` among them and
            `virtual_ns`, the dispatch alone, if the device is emulated.
        """
        times = self.allocate(16 * max(len(launches), 1))
        try:
            steps = [
                DispatchStep(launch, clock=times.address + 16 * number)
                for number, launch in enumerate(launches)
            ]
            buffer = self.put_program(steps)
            try:
                self.run_program(buffer, [launch.name for launch in launches], timeout=timeout)
            finally:
                buffer.free()
            data = self.download(times, 16 * len(launches))
        finally:
            times.free()
        profiled: list[dict[str, int | float]] = [
            {
                "virtual_us": between(data, 16 * number) / CLOCK_RATE * 1e6,
                "waves": product(launch.groups) * -(-product(launch.threads) // 32),
            }
            for number, launch in enumerate(launches)
        ]
        for name, count in (
            ("wave_instructions", emulation.wave_instructions),
            ("wmma_instructions", emulation.wmma_instructions),
            ("virtual_ns", emulation.dispatch_nanoseconds),
        ):
            for each, counted in zip(profiled, count(self.card.bridge, len(launches)) or (), strict=False):
                each[name] = counted
        return profiled

    # -- programs in memory -----------------------------------------------------------------------------

    def put_program(self, steps: Sequence[DispatchStep]) -> Buffer:
        """Arguments and packets of launches, in VRAM; freed by the caller."""
        buffer, program = self.place_program(steps)
        try:
            self.upload(buffer, program)
        except BaseException:
            buffer.free()
            raise
        return buffer

    def place_program(self, steps: Sequence[DispatchStep]) -> tuple[Buffer, bytes]:
        """Room for arguments and packets of launches, and its content."""
        buffer = self.allocate(len(self.compute.program(steps, 0)))
        try:
            return buffer, self.compute.program(steps, buffer.address)
        except BaseException:
            buffer.free()
            raise

    def run_program(
        self,
        program: Buffer,
        names: Sequence[str],
        inputs: Sequence[Write] = (),
        outputs: Sequence[Read] = (),
        timeout: float = TIMEOUT,
    ) -> list[bytes]:
        """Write, run a program that is in memory, read: what `Prepared.run` does."""
        pieces = [
            Piece(layout.address(place_of(each.buffer, each.offset, len(each.data))[0]), each.data)
            for each in inputs
            if each.data
        ]
        reads = [place_of(each.buffer, each.offset, each.size) for each in outputs]
        address, dwords = program.address, program.size // 4
        batch = self.batch_for_call(timeout)
        fetch = self._fetch(reads, self.compute.queue.value + 1, timeout)
        uploaded = None
        with self.compute.at_risk():
            if self._in_one_list(pieces):
                uploaded = self.streams.begin_upload(batch, pieces, fetch=fetch)
            else:
                if pieces:
                    self.wait()  # if they must be sent again, the card is recovered, without launches
                    self._send(pieces)
                if fetch is not None:
                    self.streams.add_fetch(batch, fetch)
            self.compute.call(batch, address, dwords, names, uploaded)
            return self._finish(batch, reads, fetch, timeout)

    # -- inside -----------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._close is None:
            raise UsageError("the GPU has been closed")

    def _batch(self) -> Batch:
        self.wake()
        return self.compute.batch()

    def _look(self) -> None:
        """Before work is submitted: is the GPU open, and not too hot? A check costs two transfers."""
        self._batch()
        if self.card.bridge.clock.now() >= self._opened + INTERVAL:
            self.monitor.check()

    def _keep(self, data: bytes, alignment: int) -> Buffer:
        buffer = self.allocate(len(data), alignment)
        try:
            self.upload(buffer, data)
        except BaseException:
            buffer.free()
            raise
        return buffer

    def batch_for_call(self, timeout: float) -> Batch:
        """A batch for the call of a program and its inputs, once everything that was launched has ended."""
        self._look()
        self.wait(timeout)
        return self._batch()

    def _in_one_list(self, pieces: Sequence[Piece]) -> bool:
        """Whether an upload may go with other operations, and is large enough for a stream."""
        size = sum(len(piece.data) for piece in pieces)
        return self.card.bridge.has_lists and SMALL < size <= STREAM and len(pieces) <= PIECES

    def _send(self, pieces: Sequence[Piece], fence: int = 0) -> None:
        self._batch()
        with self.compute.streaming():
            self.streams.upload(pieces, fence)

    def _fetch(self, reads: Sequence[tuple[int, int]], submission: int, timeout: float) -> Fetch | None:
        """Plan to read when a submission has ended; None if that is too much for one plan, or too little.

        SDMA waits for it, which its watchdog reports after TIMEOUT (`sdma_engine.WATCHDOG`).
        """
        size, room = sum(size for _, size in reads), FETCH - 4 * len(reads)
        fits = SMALL_READ < size <= room and len(reads) <= FETCHES and timeout <= TIMEOUT
        if not (fits and self.card.bridge.has_lists):
            return None
        after = self.compute.queue.signal, submission
        return self.streams.fetch([(layout.address(place), size) for place, size in reads], after)

    def _finish(
        self, batch: Batch, reads: Sequence[tuple[int, int]], fetch: Fetch | None, timeout: float
    ) -> list[bytes]:
        """Run a batch, wait for everything that was launched, read."""
        if fetch is not None:
            self.compute.finish(batch, timeout, lambda batch: self.streams.take(batch, fetch))
            return fetch.values
        if sum(size for _, size in reads) > RESULT_ROOM - 8 * len(reads):
            self.compute.finish(batch, timeout)
            return self._receive(reads)
        parts: list[Asked] = []

        def ask(batch: Batch) -> None:
            parts[:] = [load(batch, *read) for read in reads]

        self.compute.finish(batch, timeout, ask)
        return [part.value for part in parts]

    def _receive(self, reads: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read VRAM: small pieces through BAR 0, the rest as streams."""
        batch = self._batch()
        asked = {read: load(batch, *read) for read in reads if self._little(read[1])}
        if asked:  # reads of a card that was reset do not fail by themselves
            batch.wait("GC", BOOTED, MAGIC, seconds=0, what="the card has not been reset")
        with self.compute.streaming():
            batch.run()
            return [
                asked[read].value
                if read in asked
                else bytes(self.streams.download(layout.address(read[0]), read[1]))
                for read in reads
            ]

    def _little(self, size: int) -> bool:
        """Whether reading through BAR 0 is better: without lists, a stream is dozens of transfers."""
        return size <= (SMALL_READ if self.card.bridge.has_lists else RESULT_ROOM - 8)

"""Inferences of several frames in one command list: transfers in both directions beside compute.

The launches of all frames are one program of the compute queue: those of a frame wait until its inputs are in
memory, and report the frame's end. Frames alternate between two sets of launches, with places of their own
for inputs and outputs, so that the copy engine fills one while the other is computed with. Meanwhile the
inputs of the frame after the next come through the bridge, into a place from which they are copied once the
outputs that they replace have been read: with compute as long as the transfers, all of them are busy.

What goes in and out shares one engine of the bridge, in which one transfer at a time can be armed. So outputs
are put into the SRAM first, a fence reports that, and the transfer to the host then takes as long as their
bytes. In the order of a list:

    inputs of frames 0 and 1
    for each frame n: inputs of n + 2; fence: outputs of n are in the SRAM; SLOT_IN, GO, SYNC

and in that of the copy engine's program:

    inputs of frames 0 and 1 to their places
    for each frame n: inputs of n + 2 into the waiting room; when n has been computed, its outputs into the
    SRAM; n + 2 from the waiting room to its place; when GO comes, the completion entry

Both programs are in VRAM, and are the same each time: they count from 1, and the dwords that they count in
are reset before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from firmware.asm2464pd.registers.memory import SLOT_SIZE, SRAM_WINDOW
from firmware.asm2464pd.wire import COMPLETION_TRIGGER
from firmware.protocol.command_list import CommandList
from firmware.protocol.commands import EXTENSION, LIST_BYTES, OPERATION
from firmware.protocol.operations import DWORD, SECTOR, Data, Parts
from usbgpu.amd import layout
from usbgpu.amd.batch import GpuFailed
from usbgpu.amd.compute import DispatchStep
from usbgpu.amd.prepared import Patience, Runner, same_launches
from usbgpu.amd.sdma import AT_LEAST, Program
from usbgpu.amd.stream_parts import FIRST, Copy, Part, Piece, fill
from usbgpu.amd.streams import DRAINED, GO, LANDED, PATIENCE, SLOTS
from usbgpu.bridge.seam import ListFailed
from usbgpu.seam import Launch, Read, Way

READY, ENDED, FAULTS = (layout.QUEUES + 15 * layout.KIB + 0x40 + DWORD * number for number in range(3))
"""Offsets in VRAM of dwords: frames whose inputs are in their places, frames that have been computed, and the
status of page faults then."""
STORED = 8
"""Offset in SRAM slot 0 of the fence that counts outputs there."""
MOST_OUT = 4
"""Slots for outputs; longer ones are several transfers."""
ALIGNMENT = 256
"""Of what is next to each other in the waiting room."""
PROGRAM_LIMIT = 2 << 20
"""Bytes that the launches of all frames may take: an indirect buffer has fewer than 1 Mi dwords."""
MOST_FRAMES = 64
"""Of one list: what it costs beside them is less than 2 % of each then."""
LIST_ROOM = (LIST_BYTES - 1024) // 8
"""Bytes of a list for one frame: up to 7 are not in its loop."""
PLAIN, EXTENDED = OPERATION.size, OPERATION.size + EXTENSION.size


def most_frames(way: Way, program: int) -> int:
    """How many frames may be computed in one list, if the launches of one take so many bytes."""
    outputs = sum(-(-read.size // DWORD) * DWORD for read in way.outputs) + DWORD
    inputs = sum(read.size for read in way.inputs)
    parts = 1 + inputs // ((SLOTS - 1 - MOST_OUT) // 2 * SLOT_SIZE - DWORD)
    cuts = -(-outputs // (MOST_OUT * SLOT_SIZE))
    operations = parts * (EXTENDED + PLAIN) + EXTENDED + cuts * 2 * PLAIN + PLAIN
    if operations > LIST_ROOM:
        return 1
    return max(1, min(MOST_FRAMES, PROGRAM_LIMIT // max(program, 1)))


class Overlap:
    """A number of frames that are computed in one list, again and again.

    Args:
        gpu: over a bridge that has lists.
        ways: of frames 0, 2, ... and of frames 1, 3, ...
        frames: how many, 2 or more.

    Raises:
        Unsupported: VRAM has not enough room.
        UsageError: buffers have been freed, or have no such bytes.
    """

    def __init__(self, gpu: Runner, ways: tuple[Way, Way], frames: int) -> None:
        self.frames = frames
        self._gpu = gpu
        self._card = gpu.card
        self._patience = Patience()
        self._sizes = [place.size for place in ways[0].inputs]
        # Outputs and the status of faults, one behind the other, in dwords.
        self._reads = [
            [*((_address(read), read.size) for read in way.outputs), (_va(FAULTS), DWORD)] for way in ways
        ]
        self._places = _behind([size for _, size in self._reads[0]], DWORD)
        self._size = self._places.pop()
        out = min(-(-self._size // SLOT_SIZE), MOST_OUT)
        rest = SLOTS - 1 - out
        self._out = 1
        self._windows = (1 + out, rest // 2), (1 + out + rest // 2, rest - rest // 2)
        pieces = [Piece(0, bytes(size)) for size in self._sizes]
        self._count = len(fill(pieces, self._windows))
        self._staged = self._count > 1
        most = out * SLOT_SIZE
        self._cuts = [(start, min(most, self._size - start)) for start in range(0, self._size, most)]
        steps = [step for number in range(frames) for step in _steps(ways[number % 2].launches, number)]
        self._names = tuple(step.launch.name for step in steps)
        self._buffers = [gpu.allocate(max(sum(self._aligned), ALIGNMENT))]
        try:
            launches, program = gpu.place_program(steps)
            self._buffers.append(launches)
            copies = self._copies(ways)
            self._buffers.append(gpu.allocate(DWORD * len(copies)))
        except BaseException:
            self.free()
            raise
        self._launches, self._program = self._buffers[1:]
        self._dwords = len(copies)
        self._unsent = [(self._launches, program), (self._program, copies.pack())]

    @property
    def _aligned(self) -> list[int]:
        return [-(-size // ALIGNMENT) * ALIGNMENT for size in self._sizes]

    def run(self, frames: Sequence[Sequence[Data]]) -> Iterator[list[bytes]]:
        """Compute frames.

        Args:
            frames: the pieces of each one's input.

        Returns:
            The outputs of each, as soon as they are here. To be used to the end; else the card is recovered
            before it is used again.

        Raises:
            KernelFailed: a launch did not end, or went wrong; its frame and those behind it have no outputs.
            DeviceFailed: other errors of card and bridge; likewise.
        """
        gpu, compute, queue = self._gpu, self._gpu.compute, self._gpu.streams.queue
        for buffer, data in self._unsent:
            gpu.upload(buffer, data)
        for buffer, data in self._unsent:
            same_launches(data, gpu.download(buffer, len(data)))
        self._unsent = []
        clock, timeout = self._card.bridge.clock, self._patience.seconds
        batch = gpu.batch_for_call(timeout)
        status = 0
        with compute.at_risk():
            reset = CommandList()
            reset.xdata_write(SRAM_WINDOW.address + LANDED + DWORD - 1, 0)
            batch.bridge(reset, "a fence in the SRAM")
            batch.write("GC", GO, 0)
            begin = Program()
            begin.indirect(self._program.address, self._dwords, queue.reserve(batch, 16) // DWORD)
            queue.submit(batch, begin.dwords)
            first, rest = CommandList(), CommandList()
            self._bring(first, frames, [0])
            batch.bridge(first, "a frame")
            batch.bare = True  # the compute queue gets its work while the first frame is on its way
            compute.call(batch, self._launches.address, self._launches.size // DWORD, self._names)
            self._exchange(rest, frames, timeout)
            batch.bridge(rest, f"{len(frames)} frames")
            with contextlib.closing(batch.stream()) as transfers:
                try:
                    began = clock.now()
                    for found in self._whole(transfers):
                        self._patience.note(clock.now() - began)
                        status = int.from_bytes(found[-DWORD:], "little")
                        if status:
                            break
                        yield [
                            found[start : start + size]
                            for start, (_, size) in zip(self._places, self._reads[0][:-1], strict=False)
                        ]
                        began = clock.now()
                except GpuFailed as problem:
                    cause = problem.__cause__
                    if isinstance(cause, ListFailed) and cause.failure.address == STORED:
                        compute.late(timeout)
                    compute.explain(problem)
            if status:
                compute.faulted(status, timeout)
        compute.idle()
        queue.idle()

    def free(self) -> None:
        """Free what it holds on the GPU. Idempotent."""
        for buffer in self._buffers:
            buffer.free()

    def _whole(self, transfers: Iterator[bytes]) -> Iterator[bytes]:
        """The outputs of each frame."""
        received = bytearray()
        for sectors in transfers:
            received += sectors[: self._size - len(received)]
            if len(received) == self._size:
                yield bytes(received)
                received.clear()

    # -- the bridge's list ------------------------------------------------------------------------------

    def _exchange(self, commands: CommandList, frames: Sequence[Sequence[Data]], timeout: float) -> None:
        """Everything behind the first frame's inputs."""
        self._bring(commands, frames, [1])
        self._turn(commands, frames, [0], timeout)
        rounds = max(0, self.frames - 3) // 2  # of two frames each, which differ in numbers alone
        if rounds:
            with commands.loop(rounds):
                for first in (1, 2):
                    self._turn(commands, frames, range(first, first + 2 * rounds, 2), timeout)
        for number in range(1 + 2 * rounds, self.frames):
            self._turn(commands, frames, [number], timeout)
        for queue in (self._gpu.compute.queue, self._gpu.streams.queue):
            signal = self._card.bars[0] + queue.place.signal
            commands.poll(signal, queue.value & 0xFFFF_FFFF, microseconds=_us(PATIENCE))

    def _turn(
        self, commands: CommandList, frames: Sequence[Sequence[Data]], numbers: Sequence[int], timeout: float
    ) -> None:
        """Outputs of a frame, or in a loop of each one of `numbers`; before, inputs of the next but one."""
        first = numbers[0]
        if first + 2 < self.frames:
            self._bring(commands, frames, [number + 2 for number in numbers])
        go = self._card.bars[5] + DWORD * self._card.index("GC", GO)
        if self._alone(first):
            commands.write(go, self._go(first, -1))
        commands.fence(STORED, FIRST + first, step=_step(numbers), microseconds=_us(timeout))
        for cut, (_, size) in enumerate(self._cuts):
            commands.slot_in(self._out, -(-size // SLOT_SIZE), -(-size // SECTOR))
            commands.write(go, self._go(first, cut))
        commands.sync()

    def _bring(self, commands: CommandList, frames: Sequence[Sequence[Data]], numbers: Sequence[int]) -> None:
        """Inputs of frames into the SRAM, each part when the one before has landed and its slots are free.

        A part of its own has the slots of the frame before the last, which have been copied when the one
        before has landed. From frame 3 on, its outputs have been read since.
        """
        first, step = numbers[0], _step(numbers)
        fence = DRAINED if first and self._staged else LANDED
        for parts in zip(*(self._parts(frames[number], number) for number in numbers), strict=True):
            slot, slots, number = parts[0].slot, parts[0].slots, parts[0].number
            if self._staged or first < 3:
                commands.fence(fence, number - 1, step=step * self._count, microseconds=_us(PATIENCE))
            commands.slot_out(slot, slots, Parts([part.buffers for part in parts]))
            fence = LANDED

    # -- the copy engine's program ----------------------------------------------------------------------

    def _copies(self, ways: tuple[Way, Way]) -> Program:
        program = Program()
        sram = self._sram(0)
        for dword in (READY, ENDED, FAULTS):
            program.fence(_va(dword), 0)
        blank = [bytes(size) for size in self._sizes]
        for number in range(2):
            for part in self._parts(blank, number):  # what was there is not a part's number
                program.fence(sram + part.tail, 0)
        for fence in (STORED, DRAINED, LANDED):  # the last one starts the host's side
            program.fence(sram + fence, FIRST - 1)
        targets = [[_address(place) for place in way.inputs] for way in ways]
        for number in range(2):
            self._take(program, blank, number, targets[number])
            program.fence(_va(READY), number + 1)
        waiting = [self._buffers[0].address + start for start in _behind(self._sizes, ALIGNMENT)[:-1]]
        for number in range(self.frames):
            follows = number + 2 < self.frames
            if follows and self._staged:
                self._take(program, blank, number + 2, waiting)
            elif follows:
                self._land(program, self._parts(blank, number + 2)[0])
            program.poll(_va(ENDED), number + 1, AT_LEAST)
            if self._alone(number):
                program.poll_register(self._card.index("GC", GO), self._go(number, -1))
            for cut, (start, size) in enumerate(self._cuts):
                if cut:
                    program.poll_register(self._card.index("GC", GO), self._go(number, cut))
                self._store(program, number % 2, start, size)
                if not cut:
                    program.fence(sram + STORED, FIRST + number)
                    program.poll_register(self._card.index("GC", GO), self._go(number, cut))
                program.fence(layout.COMPLETION_VA + COMPLETION_TRIGGER.start, 0)
            # The last outputs have been written before GO came, or before that fence.
            if follows and self._staged:
                self._flag(program, number)
                for source, target, size in zip(waiting, targets[number % 2], self._sizes, strict=True):
                    program.copy(source, target, size)
            elif follows:
                self._copy(program, self._parts(blank, number + 2, targets[number % 2])[0])
            if follows:
                program.fence(_va(READY), number + 3)
        return program

    def _take(self, program: Program, data: Sequence[Data], number: int, targets: Sequence[int]) -> None:
        """Take the inputs of a frame out of the SRAM."""
        parts = self._parts(data, number, targets)
        for part in parts:
            self._land(program, part)
            self._copy(program, part)
        program.fence(self._sram(0) + DRAINED, parts[-1].number)

    def _land(self, program: Program, part: Part) -> None:
        program.poll(self._sram(0) + part.tail, part.number)
        program.fence(self._sram(0) + LANDED, part.number)

    def _copy(self, program: Program, part: Part) -> None:
        for step in part.steps:
            assert isinstance(step, Copy)
            program.copy(self._sram(part.slot) + step.source, step.target, step.size)

    def _flag(self, program: Program, number: int) -> None:
        """What follows begins when everything before has ended."""
        flag = layout.address(layout.STREAMS) + layout.STREAMS_SIZE - DWORD
        program.fence(flag, FIRST + number)
        program.poll(flag, FIRST + number)

    def _store(self, program: Program, way: int, start: int, size: int) -> None:
        """Put a part of the outputs into the SRAM."""
        for place, (address, count) in zip(self._places, self._reads[way], strict=True):
            first, end = max(place, start), min(place + count, start + size)
            if first < end:
                program.copy(address + first - place, self._sram(self._out) + first - start, end - first)

    # -- inside -----------------------------------------------------------------------------------------

    def _parts(self, data: Sequence[Data], number: int, targets: Sequence[int] = ()) -> list[Part]:
        """The parts of a frame's inputs; all frames have as many. Without targets for their bytes alone."""
        addresses = targets or [0] * len(data)
        pieces = [Piece(address, each) for address, each in zip(addresses, data, strict=True)]
        if not self._staged:
            return fill(pieces, [self._windows[number % 2]], first=FIRST + number, trim=True)
        return fill(pieces, self._windows, first=FIRST + number * self._count)

    def _alone(self, number: int) -> bool:
        """Whether only GO reports that the outputs of the frame before have left the SRAM.

        Else inputs have come since that are sent after that.
        """
        return number > 0 and number + 2 >= self.frames

    def _go(self, number: int, cut: int) -> int:
        """What GO becomes for a transfer, and before the first one: never what it was before."""
        return 2 + number % 2 * (len(self._cuts) + 1) + cut

    @staticmethod
    def _sram(slot: int) -> int:
        return layout.SRAM_VA + slot * SLOT_SIZE


def _steps(launches: Sequence[Launch], number: int) -> Iterator[DispatchStep]:
    """The launches of a frame."""
    for place, launch in enumerate(launches):
        yield DispatchStep(
            launch,
            after=None if place else (_va(READY), number + 1),
            report=(_va(FAULTS), _va(ENDED), number + 1) if place == len(launches) - 1 else None,
        )


def _step(numbers: Sequence[int]) -> int:
    """From one round of a loop to the next; 0 outside of loops."""
    return numbers[1] - numbers[0] if len(numbers) > 1 else 0


def _behind(sizes: Sequence[int], alignment: int) -> list[int]:
    """Where things begin that lie one behind the other, and where the last one ends."""
    found = [0]
    for size in sizes:
        found.append(found[-1] + -(-size // alignment) * alignment)
    return found


def _address(place: Read) -> int:
    return place.buffer.address + place.offset


def _va(offset: int) -> int:
    return layout.address(offset)


def _us(seconds: float) -> int:
    return round(seconds * 1e6)

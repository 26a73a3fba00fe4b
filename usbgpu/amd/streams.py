"""Streams: bytes between the host and VRAM at the link's rate, through the bridge's SRAM.

Towards VRAM, a stream is cut into parts. The bridge's slot DMA puts a part into slots of the SRAM; its last
dword, the part's number, comes last. SDMA waits for that dword, reports that the part has landed, copies it,
and reports that its slots are free. Two halves of the SRAM are filled and drained in turn, paced by fences
that the firmware waits for, so that all of it is one command list. The program for SDMA is in the first part:
VRAM written through BAR 0 is 200 times slower.

Without command lists a fence would be a transfer for each part, and there is none: a part is the whole SRAM,
and the next one is sent when the bridge has taken the last one's bytes. SDMA copies faster than the next part
arrives; but it does not rely on that. Each block of a part begins with the part's number too, and SDMA looks
at it again when it has copied the block. Bytes arrive in order, so if a block's first dword has not been
overwritten, nothing behind it has. If it has, SDMA waits without end, the stream fails, and it is sent again
with a fence after each part. What that assumes (grade: inferred): slot DMA writes the SRAM upwards; a
POLL_REGMEM behind the FENCE behind a COPY_LINEAR reads after the copy has.

Towards the host, SDMA fills slots, and waits on a register of the card for a number that the bridge writes
when it has armed the slot DMA for them; then it writes the completion entry that releases them. Meanwhile it
fills the other half.

Data in transit is protected by USB's and PCIe's own checks only. When something fails, what
is in VRAM where the stream should have gone is undefined, and SDMA is in the middle of a program: before
the next stream it is recovered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from firmware.asm2464pd.registers.memory import SLOT_SIZE, SRAM_WINDOW
from firmware.asm2464pd.wire import COMPLETION_TRIGGER
from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import DWORD, SECTOR, Parts
from sdk.errors import UsageError
from usbgpu.amd import layout
from usbgpu.amd.batch import Batch, GpuFailed, Later
from usbgpu.amd.card import Card
from usbgpu.amd.queues import SdmaQueue
from usbgpu.amd.sdma import Program
from usbgpu.amd.stream_parts import FIRST, Check, Copy, Part, Piece, Value, cut, fill, windows_of
from usbgpu.bridge.seam import SRAM_SIZE

__all__ = ["PIECES", "SMALL", "STREAM", "Piece", "Streams"]

log = logging.getLogger(__name__)

SLOTS = SRAM_SIZE // SLOT_SIZE
LANDED, DRAINED = 0, 4
"""Offsets in SRAM slot 0 of the fences of a stream towards VRAM: number of the last part that has landed, and
of the last that has been copied."""
OUT_HALVES = ((1, 15), (16, 16))
"""First slot and slots: the fences have slot 0."""
IN_HALVES = ((0, 16), (16, 16))
WHOLE = ((0, SLOTS),)
BLOCKS = (0, 96 << 10)
"""Where the blocks of a part begin that is sent without fences, each with its own check. The first one is
overwritten first, 40 us after the part has come, so it is small. At 3.4 GB/s, four lanes of Gen3, either is
copied in time with 10 us to spare; a slower link has the fences."""
GO = "SCRATCH_REG0"
GO_VALUES = 8
"""GO counts from 1 to this and starts over. It is also the number of transfers in a round of a list's loop:
the end of a round costs the bridge 5 us."""
DIRECT = 64
"""Dwords of a program that are written into the ring; a longer one travels as data."""
INLINE = 4 << 10
"""Bytes that may be in the program if they save a part."""
SMALL = 512
"""Bytes up to which BAR 0 is used: 1 us a dword, where a stream takes 140 us more to begin with."""
STREAM, PIECES = 256 << 20, 2000
"""Bytes and pieces of one stream at most, for the size of its program; longer ones are cut."""
RING_STREAM, RING_PIECES = 64 << 20, 100
"""The same without lists, where the program is written into the ring."""
PATIENCE = 2.0
"""Seconds that a part may take: the host may be busy meanwhile."""

FETCH_SLOT = 1
FETCH = (SLOTS - FETCH_SLOT) * SLOT_SIZE
"""Bytes of a `Fetch`: slot 0 may still have fences that are waited for."""

T = TypeVar("T")


@dataclass
class Fetch:
    """A read that takes place as early as possible: `Streams.fetch`.

    Attributes:
        program: for SDMA.
        places: offset and size of each read in the result, which has `size` bytes.
        taken: the result, when a batch has run.
    """

    program: Program
    places: Sequence[tuple[int, int]]
    size: int
    taken: Later[bytes] = field(default_factory=Later)

    @property
    def values(self) -> list[bytes]:
        """The bytes of each read."""
        return [bytes(self.taken.value[start : start + size]) for start, size in self.places]


class Streams:
    """Streams of a card; one at a time.

    Args:
        card: whose.
        queue: of its copy engine, set up. Streams leave it idle.
        recover: makes the queue work again when it hangs in a program; None if that is not possible.
        sram: GPU address of the bridge's SRAM; so is `completion` that of the page with its completion queue.
        program: GPU address of `layout.STREAMS_SIZE` bytes of VRAM for programs.

    Attributes:
        queue: as given.
    """

    def __init__(
        self,
        card: Card,
        queue: SdmaQueue,
        recover: Callable[[], None] | None = None,
        *,
        sram: int = layout.SRAM_VA,
        completion: int = layout.COMPLETION_VA,
        program: int = layout.address(layout.STREAMS),
    ) -> None:
        self._card = card
        self.queue = queue
        self._recover = recover
        self._sram = sram
        self._completion = completion
        self._program = program
        self._hangs = False
        self._paced = False  # without lists: a fence is waited for after each part

    # -- towards VRAM -----------------------------------------------------------------------------------

    def upload(self, pieces: Sequence[Piece], fence: int = 0) -> None:
        """Write bytes to memory of the card; when it returns they are there.

        Args:
            pieces: in the order in which they must arrive.
            fence: GPU address of a dword that becomes the `value` of each piece when that and all before it
                are in VRAM: work that was queued before, and waits for it, runs meanwhile.

        Raises:
            UsageError: not all of the addresses are VRAM's.
            GpuFailed: SDMA or the bridge did not finish in time; what has arrived is undefined.
            DeviceFailed, DeviceMissing: the transport's errors.
        """
        if not pieces or (all(piece.value is None for piece in pieces) and self._store(pieces)):
            return
        if self._card.bridge.has_lists:
            for some in cut(pieces, STREAM, PIECES):
                self._run(partial(self.add_upload, pieces=some, fence=fence), "upload")
            return
        for some in cut(pieces, RING_STREAM, RING_PIECES):
            if not self._paced:
                try:
                    self._run(partial(self._add_upload, pieces=some, fence=fence), "upload")
                    continue
                except GpuFailed as problem:
                    log.warning("%s; uploads are slower from now on", problem)
                    self._paced = True
            self._run(partial(self._add_upload, pieces=some, fence=fence), "upload")

    def add_upload(
        self, batch: Batch, pieces: Sequence[Piece], fence: int = 0, fetch: Fetch | None = None
    ) -> None:
        """Add an upload to operations on the card, over a bridge that has lists.

        Args:
            batch: what is added to it afterwards finds the bytes in VRAM.
            pieces: as for `upload`; at most STREAM bytes and PIECES of them.
            fence: as for `upload`.
            fetch: what SDMA continues with.
        """
        self.begin_upload(batch, pieces, fence, fetch)(batch)

    def begin_upload(
        self, batch: Batch, pieces: Sequence[Piece], fence: int = 0, fetch: Fetch | None = None
    ) -> Callable[[Batch], None]:
        """The same without the wait for its end, while SDMA copies the last part.

        Returns:
            Adds that wait, to the same batch.
        """
        total = self._total(pieces, fence)
        parts = fill(pieces, OUT_HALVES)
        program = self._copies(parts, fence)
        long = len(program) > DIRECT
        if long:
            # Again, behind a piece as long as the program will be.
            bound = len(program) + 2 * (7 + 4 + 4 + 6 + 4)
            parts = fill([Piece(self._program, bytes(DWORD * bound)), *pieces], OUT_HALVES)
            _, *rest = parts[0].steps
            parts[0].steps = rest
            program = self._copies(parts, fence, landed=True)
            assert len(program) <= bound
            parts[0].buffers[0] = program.pack().ljust(DWORD * bound, b"\0")
        boot = Program()
        for part in parts[: len(OUT_HALVES)]:  # what was there is not a part's number
            boot.fence(self._sram + part.tail, 0)
        boot.fence(self._sram + LANDED, FIRST - 1)
        if long:
            self._boot(batch, boot, parts[0], program)
        else:
            boot.dwords += program.dwords
        if fetch is not None:
            batch.write("GC", GO, 0)
            boot.dwords += fetch.program.dwords
        self._reset_fences(batch)
        self.queue.submit(batch, boot.dwords)
        commands = CommandList()
        pairs = (len(parts) - 1) // 2  # the last part may be short
        if pairs > 1:
            with commands.loop(pairs):
                for number in range(2):
                    self._bring(commands, parts[number : 2 * pairs : 2], step=2)
        else:
            pairs = 0
        for part in parts[2 * pairs :]:
            self._bring(commands, [part])
        label = f"upload of {total} bytes"
        batch.bridge(commands, label)
        end = CommandList()
        end.fence(DRAINED, parts[-1].number, microseconds=_us(PATIENCE))

        def wait(batch: Batch) -> None:
            batch.bridge(end, label)

        return wait

    def _bring(self, commands: CommandList, parts: Sequence[Part], step: int = 0) -> None:
        """Parts for the same slots, one a round, each when the part before has landed.

        Then its slots are free too: the copy of what was in them comes before that in SDMA's program.
        """
        first = parts[0]
        commands.fence(LANDED, first.number - 1, step=step, microseconds=_us(PATIENCE))
        commands.slot_out(first.slot, first.slots, Parts([part.buffers for part in parts]))

    def _copies(self, parts: Sequence[Part], fence: int, *, landed: bool = False) -> Program:
        """The program that copies parts to their targets; `landed`: the first one has been waited for."""
        program = Program()
        for part in parts:
            if not landed:
                program.poll(self._sram + part.tail, part.number)
                if not part.blocks and part is not parts[-1]:
                    program.fence(self._sram + LANDED, part.number)
            landed = False
            start = self._sram + part.slot * SLOT_SIZE
            for step in part.steps:
                match step:
                    case Copy(source, target, size):
                        program.copy(start + source, target, size)
                    case Check(offset):
                        program.fence(self._flag, part.number)
                        program.poll(start + offset, part.number)
                    case Value(value):
                        program.fence(fence, value)
            if part.blocks or part is parts[-1]:
                program.fence(self._sram + DRAINED, part.number)
        return program

    def _boot(self, batch: Batch, boot: Program, part: Part, program: Program) -> None:
        """Execute a program that is at the beginning of a part."""
        source = self._sram + part.slot * SLOT_SIZE
        boot.fence(self._flag, 0)
        boot.poll(self._sram + part.tail, part.number)
        boot.fence(self._sram + LANDED, part.number)
        boot.copy(source, self._program, DWORD * len(program))
        boot.fence(self._flag, 1)
        boot.poll(self._flag, 1)
        place = self.queue.reserve(batch, len(boot) + 16) // DWORD
        boot.indirect(self._program, len(program), place)

    def _reset_fences(self, batch: Batch) -> None:
        commands = CommandList()
        for fence in (LANDED, DRAINED):
            commands.xdata_write(SRAM_WINDOW.address + fence + DWORD - 1, 0)
        batch.bridge(commands, "fences in the SRAM")

    @property
    def _flag(self) -> int:
        """GPU address of a dword of VRAM for programs."""
        return self._program + layout.STREAMS_SIZE - DWORD

    def _add_upload(self, batch: Batch, pieces: Sequence[Piece], fence: int) -> None:
        """An upload over a bridge without lists."""
        total = self._total(pieces, fence)
        parts = fill(pieces, WHOLE, BLOCKS)
        start = Program()
        first = pieces[0]
        rest = -(-sum(step.size for step in parts[-1].steps if isinstance(step, Copy)) // DWORD) * DWORD
        if len(parts) > 1 and rest <= min(INLINE, len(first.data)) and first.address % DWORD == 0:
            view = memoryview(first.data).cast("B")
            start.write(first.address, bytes(view[:rest]))
            parts = fill([Piece(first.address + rest, view[rest:], first.value), *pieces[1:]], WHOLE, BLOCKS)
        start.fence(self._sram + parts[0].tail, 0)
        start.dwords += self._copies(parts, fence).dwords
        self.queue.submit(batch, start.dwords)
        commands = CommandList()
        for part in parts:
            commands.slot_out(part.slot, part.slots, Parts([part.buffers]))
            if self._paced:
                commands.fence(DRAINED, part.number, microseconds=_us(PATIENCE))
        commands.delay(200)
        commands.fence(DRAINED, parts[-1].number, microseconds=_us(PATIENCE))
        batch.bridge(commands, f"upload of {total} bytes")

    def _store(self, pieces: Sequence[Piece]) -> bool:
        """Write small pieces through BAR 0; returns whether that is possible."""
        if sum(len(piece.data) for piece in pieces) > SMALL:
            return False
        if any(
            piece.address % DWORD
            or len(piece.data) % DWORD
            or not 0 <= piece.address - layout.VA <= self._card.window - len(piece.data)
            for piece in pieces
        ):
            return False
        batch = Batch(self._card, "upload")
        for piece in pieces:
            batch.store(piece.address - layout.VA, bytes(piece.data))
        batch.flush_hdp()
        batch.run()
        return True

    # -- towards the host -------------------------------------------------------------------------------

    def download(self, address: int, size: int) -> memoryview:
        """Read memory of the card.

        Args:
            address: of the GPU.
            size: bytes.

        Raises:
            UsageError, GpuFailed, DeviceFailed, DeviceMissing: as for `upload`.
        """
        most = STREAM if self._card.bridge.has_lists else RING_STREAM
        found = [
            self._run(
                partial(self.add_download, address=address + start, size=min(most, size - start)), "download"
            )
            for start in range(0, size, most)
        ]
        data = found[0].value if len(found) == 1 else b"".join(later.value for later in found)
        return memoryview(data)[:size]

    def add_download(self, batch: Batch, address: int, size: int) -> Later[bytes]:
        """Add a download to operations on the card.

        Args:
            batch: operations added before have been done when memory is read, if they were waited for.
            address: of the GPU.
            size: bytes, 1 to STREAM, or without lists to RING_STREAM.

        Returns:
            The bytes, rounded up to whole sectors, once the batch has run.
        """
        self._check(address, size)
        has_lists = self._card.bridge.has_lists
        parts = list(windows_of(size, IN_HALVES if has_lists else WHOLE))
        program = Program()
        go = self._card.index("GC", GO)
        trigger = self._completion + COMPLETION_TRIGGER.start
        copied = 0
        for number, (slot, part) in enumerate(parts):
            value = 1 + number % GO_VALUES
            if not has_lists:  # the slots are those of the transfer before
                program.poll_register(go, value)
            program.copy(address + copied, self._sram + slot * SLOT_SIZE, part)
            if has_lists:
                program.poll_register(go, value)
            program.fence(trigger, 0)
            copied += part
        batch.write("GC", GO, 0)
        if len(program) > DIRECT and has_lists:
            self._send_program(batch, program)
        else:
            self.queue.submit(batch, program.dwords)
        commands = CommandList()
        register = self._card.bars[5] + DWORD * go
        rounds = (len(parts) - (size % parts[0][1] != 0)) // GO_VALUES
        if rounds > 1:
            with commands.loop(rounds):
                _arm(commands, parts[:GO_VALUES], register)
        else:
            rounds = 0
        _arm(commands, parts[rounds * GO_VALUES :], register)
        commands.sync()
        return batch.bridge(commands, f"download of {size} bytes")

    def fetch(self, reads: Sequence[tuple[int, int]], after: tuple[int, int]) -> Fetch:
        """Plan to read at most FETCH bytes as early as possible; over a bridge that has lists.

        Args:
            reads: GPU addresses and bytes.
            after: GPU address of a dword, and the value that it has as soon as memory can be read.
        """
        program, places, size = Program(), [], 0
        program.poll(*after)
        for address, count in reads:
            self._check(address, count)
            places.append((size, count))
            program.copy(address, self._sram + FETCH_SLOT * SLOT_SIZE + size, count)
            size += -(-count // DWORD) * DWORD
        program.poll_register(self._card.index("GC", GO), 1)
        program.fence(self._completion + COMPLETION_TRIGGER.start, 0)
        return Fetch(program, places, size)

    def add_fetch(self, batch: Batch, fetch: Fetch) -> None:
        """Make SDMA begin with a plan; see `add_upload` for one that begins behind an upload."""
        batch.write("GC", GO, 0)
        self.queue.submit(batch, fetch.program.dwords)

    def take(self, batch: Batch, fetch: Fetch) -> None:
        """Add the reading itself, once the dword has its value; the plan has its bytes when that has run."""
        commands = CommandList()
        _arm(commands, [(FETCH_SLOT, fetch.size)], self._card.bars[5] + DWORD * self._card.index("GC", GO))
        commands.sync()
        fetch.taken = batch.bridge(commands, f"download of {fetch.size} bytes")

    def _send_program(self, batch: Batch, program: Program) -> None:
        """Execute a long program."""
        slot, slots = OUT_HALVES[0]
        part = Part(slot, slots, FIRST, ())
        data = program.pack()
        assert part.take(self._program, memoryview(data)) == len(data)
        part.slot += part.shorten()
        part.close()
        boot = Program()
        boot.fence(self._sram + part.tail, 0)
        boot.fence(self._sram + LANDED, FIRST - 1)
        self._boot(batch, boot, part, program)
        self._reset_fences(batch)
        self.queue.submit(batch, boot.dwords)
        commands = CommandList()
        commands.fence(LANDED, FIRST - 1, microseconds=_us(PATIENCE))
        commands.slot_out(part.slot, part.slots, Parts([part.buffers]))
        commands.fence(LANDED, FIRST, microseconds=_us(PATIENCE))
        batch.bridge(commands, "a program for SDMA")

    def _total(self, pieces: Sequence[Piece], fence: int) -> int:
        """Bytes of an upload. Raises UsageError."""
        for piece in pieces:
            self._check(piece.address, len(piece.data))
            if piece.value is not None:
                self._check(fence, DWORD)
        return sum(len(piece.data) for piece in pieces)

    def _check(self, address: int, size: int) -> None:
        """Refuse addresses outside VRAM: SDMA would ignore the page fault."""
        if not layout.VA <= address <= layout.address(self._card.vram) - size:
            raise UsageError(
                f"{size} bytes at {address:#x} are not in VRAM", where=f"{self._card.bridge.name}, stream"
            )

    # -- inside -----------------------------------------------------------------------------------------

    def _run(self, add: Callable[[Batch], T], what: str) -> T:
        """Run a stream, and remember if it leaves SDMA in mid-program. Returns what `add` returns."""
        if self._hangs:
            if self._recover is None:
                raise GpuFailed(
                    "SDMA hangs in a stream that failed",
                    where=f"{self._card.bridge.name}, {what}",
                    hint="close the device and open it again",
                )
            self._recover()
        batch = Batch(self._card, what)
        self._hangs = True  # what is added counts as submitted; the card does not have it yet
        try:
            added = add(batch)
        except UsageError:  # before anything was added
            self._hangs = False
            raise
        batch.run()
        self._hangs = False
        self.queue.idle()
        return added


def _arm(commands: CommandList, parts: Sequence[tuple[int, int]], register: int) -> None:
    """Make the host read transfers, each when SDMA has been notified that it is armed."""
    for number, (slot, size) in enumerate(parts):
        commands.slot_in(slot, -(-size // SLOT_SIZE), -(-size // SECTOR))
        commands.write(register, 1 + number % GO_VALUES)


def _us(seconds: float) -> int:
    return round(seconds * 1e6)

"""The bridge with our firmware: a command list is one round trip.

What travels, and what the firmware makes of it, is specified in `firmware.protocol.commands`. The host's
part of it is here: lists are numbered; payload goes out in pieces, and results come in meanwhile if the
firmware could not keep them; sectors are read where a SLOT_IN has armed them, and acknowledged. Whatever goes
wrong, host and bridge are in step again before the caller gets the error.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator

from firmware.protocol import commands as facts
from firmware.protocol import requests
from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import REFUSED, SECTOR, Failure, ListError
from firmware.protocol.payload import SYNC_PACKET
from sdk.errors import DeviceFailed, UsageError
from sdk.facts.structures import Malformed
from usbgpu.bridge.base import DAMAGED, PIECE, BaseBridge, patience
from usbgpu.bridge.seam import ListFailed, Reply
from usbgpu.transport import Disconnected, Pending, Transport, WireFailed

log = logging.getLogger(__name__)

AHEAD = 2
"""Reads that are queued: the next one is queued before the one ahead of it has ended."""
LAST_CHANCE = 0.1
"""Seconds that a transfer gets even if the list's time is up: the answer may be there already."""
INFO_PATIENCE = 1.0


class ListBridge(BaseBridge):
    """A `seam.Bridge` over command lists.

    Args:
        transport: to a device that runs our firmware, and has just been reset.
    """

    has_lists = True

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._sequence = 0
        self._open()

    def resume(self) -> None:
        """See `BaseBridge`."""
        super().resume()
        self._open()

    def power(self, on: bool) -> None:
        """See `seam.Bridge`."""
        self._in_step = False  # the request closes list mode
        super().power(on)

    def run(self, commands: CommandList) -> Reply:
        """See `seam.Bridge`."""
        transfers = self.stream(commands)
        while True:
            try:
                next(transfers)
            except StopIteration as end:
                reply: Reply = end.value
                return reply

    def stream(self, commands: CommandList) -> Generator[bytes, None, Reply]:
        """Run a list as `run` does, and yield what each SLOT_IN transfers when it is here.

        What the list's later operations need has been sent by then, so that they go on while the caller works
        with it. A caller that does not take everything abandons the list.
        """
        try:
            return (yield from self._attempt(commands))
        except ListFailed as problem:
            if problem.failure.opcode or problem.failure.cause < REFUSED:
                raise
            log.warning("%s; none of it has run, so it is sent again", problem)
            self.repeated += 1
        return (yield from self._attempt(commands))

    # -- inside -----------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open list mode."""
        request = requests.LIST
        self.transport.control_out(request.request_type, request.code, value=1, index=self._sequence)
        self._in_step = True  # the firmware expects list number `_sequence`, and nothing else is going on

    def _attempt(self, commands: CommandList) -> Generator[bytes, None, Reply]:
        names = {operation.opcode.name for operation in commands.operations}
        _check(commands)
        if not self._in_step:
            self.restart()  # which closes list mode, if it is open
            self._open()
        sequence = self._sequence
        head = commands.head(sequence, self.transport.packet_size)
        end = self.clock.now() + patience(commands)
        self._sequence = sequence + 1 & 0xFFFF
        self._in_step = False  # until it is over, also if an unexpected exception ends it
        self._armed = not names.isdisjoint(("SLOT_IN", "SLOT_OUT"))
        try:
            answer, sectors = yield from self._exchange(commands, head, end)
            result = commands.parse(answer, sequence)
        except Disconnected:
            raise
        except (DeviceFailed, ListError) as problem:
            raise self._diagnosed(problem, commands, sequence) from problem
        self._armed = False
        failure = result.failure
        self._in_step = failure is None or failure.opcode != 0  # one that was refused has used no number
        if failure is not None:
            raise self.failed(failure, result.values)
        return Reply(result.values, sectors)

    def _exchange(
        self, commands: CommandList, head: bytes, end: float
    ) -> Generator[bytes, None, tuple[bytes, bytes]]:
        """Send a list with its payload; its result, and the sectors that came before."""
        packet = self.transport.packet_size
        sizes = [
            operation.value * SECTOR
            for operation, _, _ in commands.steps()
            if operation.opcode.name == "SLOT_IN"
        ]
        sectors = bytearray(sum(sizes))
        answer = bytearray(commands.result_size // packet * packet + packet)  # with room for a short packet
        parts = [*_cut(sectors, sizes), *_cut(answer, [PIECE] * -(-len(answer) // PIECE))]
        reads: list[Pending] = []
        sent: deque[Pending] = deque()
        first, *segments = commands.segments(packet)
        try:
            reads += (self._read(part, end) for part in parts[:AHEAD])
            self.send(itertools.chain([head], first), self._left(end))
            for number, part in enumerate(parts):
                read = reads[number]
                read.result(sent)
                if read.received < len(part):  # the end of a result; or the list has failed before a SYNC
                    break
                if number < len(sizes):
                    for pieces in ([SYNC_PACKET], segments[number]):
                        self.begin(pieces, self._left(end), sent)
                reads += (self._read(later, end) for later in parts[len(reads) : number + 1 + AHEAD])
                if number < len(sizes):
                    yield bytes(part)
            while sent and number >= len(sizes):
                sent.popleft().result()
        finally:
            for transfer in [*reversed(reads), *reversed(sent)]:
                transfer.cancel()
        if number < len(sizes):
            return bytes(part[: reads[number].received]), b""
        size = sum(read.received for read in reads[len(sizes) :])
        return bytes(answer[:size]), bytes(sectors)

    def _read(self, part: memoryview, end: float) -> Pending:
        return self.transport.submit(self.transport.in_call(part, timeout=self._left(end)))

    def _left(self, end: float) -> float:
        return max(LAST_CHANCE, end - self.clock.now())

    def _diagnosed(self, problem: Exception, commands: CommandList, sequence: int) -> DeviceFailed:
        """What to raise for a list that brought no result.

        The bridge is in step then, if it still answers; else the next list tries that again.
        """
        failure = None
        with contextlib.suppress(DeviceFailed, Malformed):
            failure = self._reported(commands, sequence)
            self.restart()  # aborts what still runs
            self._open()
        if failure is not None and not isinstance(problem, WireFailed):  # a WireFailed is itself the cause
            return self.failed(failure, ())
        if isinstance(problem, DeviceFailed):
            return problem
        return DeviceFailed(str(problem), where=self.name, hint=DAMAGED)

    def _reported(self, commands: CommandList, sequence: int) -> Failure | None:
        """The list's failure as INFO reports it; None if it reports none, or that of another list."""
        request = requests.INFO
        info = facts.INFO.unpack(
            self.transport.control_in(
                request.request_type, request.code, length=facts.INFO.size, timeout=INFO_PATIENCE
            )
        )
        index, opcode = info["index"], info["opcode"]
        if info["sequence"] != sequence or not info["cause"] or index >= len(commands.operations):
            return None
        if commands.operations[index].opcode.code != opcode:
            return None
        return Failure(info["cause"], index, opcode, info["address"])


def _cut(buffer: bytearray, sizes: Iterable[int]) -> Iterator[memoryview]:
    """A buffer in parts of these sizes; the last one may be shorter."""
    rest = memoryview(buffer)
    for size in sizes:
        yield rest[:size]
        rest = rest[size:]


def _check(commands: CommandList) -> None:
    """Raises UsageError for a list whose results would come at the wrong time."""
    given = facts.RESULT_TRAILER.size
    payload = False
    for operation, _, _ in commands.steps():
        payload = payload or bool(operation.payload)
        if operation.opcode.name == "SYNC" and given >= SECTOR:
            raise UsageError(
                f"results before a list's last SYNC must be below a sector ({SECTOR} bytes): {given} bytes",
                hint="read in a list of its own",
            )
        given += operation.result_size
    if payload and given > AHEAD * PIECE:
        raise UsageError(
            f"results of a list with payload must not exceed {AHEAD * PIECE} bytes: {given} bytes",
            hint="read in a list of its own",
        )

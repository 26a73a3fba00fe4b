"""Launches in VRAM that are run again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from usbgpu.amd.batch import Batch
from usbgpu.amd.card import Card
from usbgpu.amd.compute import TIMEOUT, Compute, DispatchStep
from usbgpu.amd.memory import Buffer
from usbgpu.amd.streams import Streams
from usbgpu.seam import Launch, Read, TransferDamaged, Write

LEAST, TIMES = 2.0, 20
"""Seconds of device time that launches may always take, for the host may be busy meanwhile; and how many
times as long as the longest of them so far: a network that hangs is noticed before TIMEOUT."""


class Runner(Protocol):
    """What such launches need of a GPU that is up; see `gpu.Gpu`."""

    card: Card
    compute: Compute
    streams: Streams

    def allocate(self, size: int, alignment: int = 256) -> Buffer: ...

    def upload(self, buffer: Buffer, data: bytes | memoryview, offset: int = 0) -> None: ...

    def download(self, buffer: Buffer, size: int, offset: int = 0) -> bytes: ...

    def place_program(self, steps: Sequence[DispatchStep]) -> tuple[Buffer, bytes]: ...

    def batch_for_call(self, timeout: float) -> Batch: ...

    def run_program(
        self,
        program: Buffer,
        names: Sequence[str],
        inputs: Sequence[Write] = (),
        outputs: Sequence[Read] = (),
        timeout: float = TIMEOUT,
    ) -> list[bytes]: ...


class Patience:
    """How long launches may take, by how long they took.

    Attributes:
        seconds: of device time.
    """

    def __init__(self) -> None:
        self.seconds = TIMEOUT
        self._longest = 0.0

    def note(self, seconds: float) -> None:
        """They have ended after so long."""
        self._longest = max(self._longest, seconds)
        self.seconds = min(TIMEOUT, max(LEAST, TIMES * self._longest))


def same_launches(sent: bytes, found: bytes) -> None:
    """Arguments and packets are on the card as they were sent. Raises TransferDamaged."""
    if found != sent:
        raise TransferDamaged("the launches were damaged in transit")


class Prepared:
    """Launches whose packets and arguments go to VRAM with the first run: later ones are one submission."""

    def __init__(self, gpu: Runner, launches: Sequence[Launch]) -> None:
        self._gpu = gpu
        self._names = tuple(launch.name for launch in launches)
        self._buffer, program = gpu.place_program([DispatchStep(launch) for launch in launches])
        self._unsent: bytes | None = program
        self._patience = Patience()

    def run(
        self, inputs: Sequence[Write] = (), outputs: Sequence[Read] = (), timeout: float | None = None
    ) -> list[bytes]:
        """Write the inputs, run all launches in order, read the outputs.

        Args:
            inputs: to write.
            outputs: to read.
            timeout: seconds of device time that the launches may take; None for `Patience`'s.

        Raises:
            KernelFailed: a launch did not end, or went wrong.
            TransferDamaged: the launches arrived otherwise than they were sent; the next run sends them.
            DeviceFailed: other errors of card and bridge.
            UsageError: something has been freed.
        """
        writes, reads = list(inputs), list(outputs)
        if self._unsent is not None:
            writes.insert(0, Write(self._buffer, 0, self._unsent))
            reads.append(Read(self._buffer, 0, len(self._unsent)))
        clock = self._gpu.card.bridge.clock
        began = clock.now()
        limit = timeout or self._patience.seconds
        results = self._gpu.run_program(self._buffer, self._names, writes, reads, limit)
        self._patience.note(clock.now() - began)
        if self._unsent is not None:
            same_launches(self._unsent, results.pop())
            self._unsent = None
        return results

    def free(self) -> None:
        """Free what it holds on the GPU. Idempotent."""
        self._buffer.free()

"""What the phone's program is given, and what it leaves: the layouts of runner/runner.h and runner/main.c."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from sdk.errors import DeviceFailed
from sdk.target import Program

FOR_C, FOR_DSP = 1, 2
ANY = 0xFFFF_FFFF
EMPTY = hashlib.sha256().digest()

_PLAN = struct.Struct("<8s4I3Q32sQ32sQ32sQ2I")
_HEAD = struct.Struct("<8s3q2I")
_DIGEST = 32


@dataclass(frozen=True)
class Job:
    """One input on one network.

    Attributes:
        engine: FOR_C or FOR_DSP.
        runs: inferences that are timed.
        layers: how many layers are timed, each on its own; 0 for none.
        output_bytes, trace_bytes: what comes back; of every layer's output 0 bytes if they are not wanted.
        code: the object that a DSP loads; for the target c the program has it.
        weights, input: as the network takes them.
        domain: of the DSP, its number; or ANY.
        process: 0 unsigned, 1 signed, or ANY.
        driver: of the DSP: 0 mainline's, 1 Android's, or ANY.
    """

    engine: int
    runs: int
    layers: int
    output_bytes: int
    trace_bytes: int
    code: bytes
    weights: memoryview
    input: bytes
    domain: int = ANY
    process: int = ANY
    driver: int = ANY

    def files(self) -> dict[str, bytes | memoryview]:
        """The files that the plan names, by their names: their SHA-256."""
        parts = [part for part in (self.code, self.weights, self.input) if len(part)]
        return {hashlib.sha256(part).hexdigest(): part for part in parts}

    def plan(self) -> bytes:
        """The plan, with its digest at the end."""
        parts: list[bytes | int] = []
        for part in (self.code, self.weights, self.input):
            parts += [hashlib.sha256(part).digest(), len(part)]
        body = _PLAN.pack(
            *(b"TOWPLAN2", self.engine, self.runs, self.layers, self.driver),
            *(len(self.input), self.output_bytes, self.trace_bytes),
            *parts,
            *(self.domain, self.process),
        )
        return body + hashlib.sha256(body).digest()


@dataclass(frozen=True)
class Done:
    """What came back.

    Attributes:
        failure: (step, index, limit) if an index was out of range; the rest is empty then.
        runs_us: microseconds of each timed inference.
        layers_us: microseconds of each layer.
        output, trace: their bytes.
    """

    failure: tuple[int, int, int] | None
    runs_us: Sequence[float]
    layers_us: Sequence[float]
    output: bytes
    trace: bytes

    @staticmethod
    def of(data: bytes, job: Job) -> Done:
        """Read a result.

        Raises:
            DeviceFailed: it is damaged, or of another job.
        """
        times = 8 * (job.runs + job.layers)
        size = _HEAD.size + times + job.output_bytes + job.trace_bytes
        if len(data) != size + _DIGEST or hashlib.sha256(data[:size]).digest() != data[size:]:
            raise DeviceFailed(
                f"the result of {len(data):,} bytes is damaged; {size + _DIGEST:,} were to come",
                hint="push again; if it persists, change the cable",
            )
        magic, step, index, limit, runs, layers = _HEAD.unpack_from(data)
        if (magic, runs, layers) != (b"TOWDONE1", job.runs, job.layers):
            raise DeviceFailed("the result is of another version of the program")
        if step >= 0:
            return Done((step, index, limit), (), (), b"", b"")
        nanoseconds = struct.unpack_from(f"<{runs + layers}Q", data, _HEAD.size)
        microseconds = [one / 1000 for one in nanoseconds]
        output, trace = size - job.trace_bytes - job.output_bytes, size - job.trace_bytes
        return Done(None, microseconds[:runs], microseconds[runs:], data[output:trace], data[trace:size])


def network_digest(program: Program) -> str:
    """SHA-256 of a program's code, file by file in the order of their names, and its weights."""
    whole = hashlib.sha256()
    for name in sorted(program.code):
        whole.update(program.code[name])
    for piece in program.weights:
        whole.update(piece)
    return whole.hexdigest()

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
MOST_RUNS = 0xFFFF_FFFF
"""The plan has 32 bits for them."""
EMPTY = hashlib.sha256().digest()

_PLAN = struct.Struct("<8s4I3Q32sQ32sQ32sQ4IQ")
_HEAD = struct.Struct("<8s3q3Ii")
_RUN = struct.Struct("<3Q")
_UNKNOWN = (1 << 64) - 1
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
        contexts: of the DSP, that share an inference: 1, 2, or ANY for as many as it gives; 0: the object has
            no methods for contexts and clock, and does not report.
        clock: whether to vote for the DSP's highest clock rate.
        schedule: where two contexts meet, as `HexagonPlan.schedule` gives it; nothing for one.
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
    contexts: int = 0
    clock: bool = False
    schedule: bytes = b""

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
            *(b"TOWPLAN3", self.engine, self.runs, self.layers, self.driver),
            *(len(self.input), self.output_bytes, self.trace_bytes),
            *parts,
            *(self.domain, self.process, self.contexts, self.clock, len(self.schedule)),
        )
        body += self.schedule
        return body + hashlib.sha256(body).digest()


@dataclass(frozen=True)
class Done:
    """What came back.

    Attributes:
        failure: (step, index, limit) if an index was out of range; the rest is empty then.
        runs_us: microseconds of each timed inference.
        device_us: the same by the DSP's own clock, without the way there and back; None if unknown.
        run_contexts: how many of the DSP's contexts computed each; 0 on the processor.
        layers_us: microseconds of each layer.
        contexts: how many the DSP gives the object; 0 on the processor.
        clock: 0, or the DSP's reason for taking no vote for its clock rate.
        output, trace: their bytes.
    """

    failure: tuple[int, int, int] | None
    runs_us: Sequence[float] = ()
    device_us: Sequence[int | None] = ()
    run_contexts: Sequence[int] = ()
    layers_us: Sequence[float] = ()
    contexts: int = 0
    clock: int = 0
    output: bytes = b""
    trace: bytes = b""

    @staticmethod
    def of(data: bytes, job: Job) -> Done:
        """Read a result.

        Raises:
            DeviceFailed: it is damaged, or of another job; or the DSP's report cannot be.
        """
        layers = _HEAD.size + _RUN.size * job.runs
        output = layers + 8 * job.layers
        trace = output + job.output_bytes
        size = trace + job.trace_bytes
        if len(data) != size + _DIGEST or hashlib.sha256(data[:size]).digest() != data[size:]:
            raise DeviceFailed(
                f"the result of {len(data):,} bytes is damaged; {size + _DIGEST:,} were expected",
                hint="push again; if it persists, the way to the phone damages or cuts files",
            )
        magic, step, index, limit, runs, profiled, contexts, clock = _HEAD.unpack_from(data)
        if (magic, runs, profiled) != (b"TOWDONE2", job.runs, job.layers):
            raise DeviceFailed("the result is of another version of the program")
        if step >= 0:
            return Done((step, index, limit))
        each = list(_RUN.iter_unpack(data[_HEAD.size : layers]))
        if strange := {count for _, _, count in each} - {0, 1, 2}:
            raise DeviceFailed(
                f"the DSP reported {strange.pop()} HVX contexts, not 1 or 2",
                hint="this is a bug: please report it with the network and the phone's name",
            )
        return Done(
            failure=None,
            runs_us=[nanoseconds / 1000 for nanoseconds, _, _ in each],
            device_us=[None if time == _UNKNOWN else time for _, time, _ in each],
            run_contexts=[count for _, _, count in each],
            layers_us=[one / 1000 for one in struct.unpack_from(f"<{profiled}Q", data, layers)],
            contexts=contexts,
            clock=clock,
            output=data[output:trace],
            trace=data[trace:size],
        )


def network_digest(program: Program) -> str:
    """SHA-256 of a program's code, file by file in the order of their names, and its weights."""
    whole = hashlib.sha256()
    for name in sorted(program.code):
        whole.update(program.code[name])
    for piece in program.weights:
        whole.update(piece)
    return whole.hexdigest()

"""The driving network on a GPU over USB, as a car runs it: compile, load, and a step for every frame.

Times are virtual on an emulated card: of the bridge's and the card's models. Transfers and bytes are counted
at the transport: a transfer is one control or one bulk call, and the command lists are among the bytes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdk import cache, compiler
from sdk.arena import align
from sdk.artifact import Artifact
from sdk.check import check
from sdk.errors import CheckFailed, InternalError
from sdk.graph import Array
from sdk.session import Session
from sdk.target import OpenOptions
from sdk.zoo.benchmark import write
from sdk.zoo.catalogue import find
from sdk.zoo.inputs import example_inputs
from usbgpu import bridge as bridges
from usbgpu import seam, transport
from usbgpu.amd import gpu as gpus
from usbgpu.target.device import CardDevice
from usbgpu.transport import Call, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = {"small": "driving_small", "50m": "driving_50m", "large": "driving_large"}
"""Networks of the zoo."""
LINK = 700e6
"""Bytes a second that slot DMA does over the link (published for silicon)."""
DEPTH = 4
"""Frames in flight where it is measured how many a second are possible."""
SETTLED = 2
"""Steps after the first one that bring launches along: those of either order of states."""
SPARE = 256 << 20
"""Bytes of the card's memory beside the network's."""


@dataclass
class _Meter:
    """What crosses the link, and when.

    Attributes:
        now: seconds of the device's clock.
        transfers, bytes_in, bytes_out: so far; in is towards the card.
    """

    now: Callable[[], float]
    transfers: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def seen(self, call: Call, outcome: Outcome) -> None:
        self.transfers += 1
        self.bytes_in += len(call.data)
        self.bytes_out += len(outcome.data)

    @contextmanager
    def measured(self, into: list[_Step]) -> Iterator[None]:
        before = self.now(), self.transfers, self.bytes_in, self.bytes_out
        yield
        after = self.now(), self.transfers, self.bytes_in, self.bytes_out
        into.append(_Step(*(end - begin for begin, end in zip(before, after, strict=True))))  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Step:
    """Seconds of the device's clock, transfers and bytes of something."""

    seconds: float
    transfers: int
    bytes_in: int
    bytes_out: int


@dataclass
class _Class:
    """Wave-instructions of dispatches, by class."""

    counts: dict[str, int] = field(default_factory=dict)
    launches: int = 0

    def seen(self, record: Any) -> None:
        self.launches += 1
        for kind, count in record.outcome.instructions.items():
            self.counts[kind] = self.counts.get(kind, 0) + count


def compiled(size: str, target: str, directory: Path) -> tuple[Path, Artifact, dict[str, float]]:
    """Write the network and compile it twice: with an empty kernel cache, and with what that has left.

    Returns:
        The model, the artefact, and wall seconds `compile_seconds` and `compile_warm_seconds`.
    """
    model = directory / "driving.onnx"
    name = find(SIZES[size])
    if name is None:
        raise InternalError(f"the zoo has no {SIZES[size]}")
    write(name, model)
    seconds = {}
    with cache.empty():
        for key in ("compile_seconds", "compile_warm_seconds"):
            started = time.perf_counter()
            network = compiler.compile(model, target, host="none")
            seconds[key] = round(time.perf_counter() - started, 3)
    return model, network, seconds


def memory(network: Artifact) -> str:
    """Memory that an emulated card needs for it, as its device string says it."""
    needed = network.program.weights.nbytes + network.program.plan["memory"]["arena"] + SPARE
    return f"{align(needed, SPARE) >> 20}M"


def measure(
    network: Artifact,
    model: Path,
    device: str,
    options: OpenOptions,
    steps: int,
    checked: bool,
    progress: Callable[[str, int, int], None],
) -> dict[str, Any]:
    """Run the network on a card behind a bridge.

    Args:
        network: compiled for that card.
        model: the file of it.
        device: string of a bridge with a card.
        options: for the card's firmware.
        steps: that are measured, after the first, which loads the network.
        checked: compare every layer of one inference with its definition.
        progress: gets what is done, how many, of how many.

    Returns:
        `weights_bytes`, `load`, `step`, `pipelined`, `outside`, `mismatches`, `worst_share`, `wmma_share`,
        `wave_instructions` and `launches` as docs/plug.md has them; None is what was not counted or checked.

    Raises:
        CheckFailed: a step gave other results than an inference on the same states.
        Unsupported: the card has too little memory.
        DeviceFailed, EnvironmentMissing: a part does not work, or is missing.
    """
    states = {name for _, name in network.states}

    def frame(seed: int) -> dict[str, Array]:
        return {name: array for name, array in example_inputs(model, seed).items() if name not in states}

    opened = transport.open(device)
    meter = _Meter(opened.clock.now)
    card = getattr(opened.emulation, "card", None)
    gpu = cast(seam.Gpu, gpus.attach(bridges.attach(opened), options.firmware))
    with Session(network, device, options, opened=CardDevice(gpu)) as session:
        opened.observers.append(meter.seen)
        load: list[_Step] = []
        found: list[_Step] = []
        classes = _Class()
        with meter.measured(load):
            session.step(frame(0))
        progress("step", 1, 1 + steps)
        for number in range(1, 1 + steps):
            inputs = frame(number)
            last = number == steps
            before = session.states() if last else {}
            if last and card is not None:
                card.scoreboard.observers.append(classes.seen)
            with meter.measured(found):
                result = session.step(inputs)
            progress("step", 1 + number, 1 + steps)
        if card is not None:
            card.scoreboard.observers.remove(classes.seen)
        rate = _pipelined(session, [frame(number) for number in range(DEPTH)], meter)
        again = session.run({**inputs, **before})
        _require_same(result, again)
        outcome = check(network, session, {**inputs, **before}) if checked else None
    settled = found[SETTLED:] or found
    total = sum(classes.counts.values())
    weights = network.program.weights.nbytes
    times = [1e3 * step.seconds for step in found]
    return {
        "weights_bytes": weights,
        "load": {
            "virtual_s": round(load[0].seconds, 6),
            "share_of_link": round(weights / LINK / load[0].seconds, 4),
        },
        "step": {
            "virtual_ms_median": round(statistics.median(times), 4),
            "virtual_ms_worst": round(max(times), 4),
            "transfers": max(step.transfers for step in settled),
            "bytes_in": max(step.bytes_in for step in settled),
            "bytes_out": max(step.bytes_out for step in settled),
        },
        "pipelined": {"frames_per_virtual_s": round(rate, 2)},
        "outside": None if outcome is None else outcome.outside,
        "mismatches": None if outcome is None else outcome.mismatches,
        "worst_share": None if outcome is None else outcome.worst_share,
        "wmma_share": round(classes.counts["wmma"] / total, 4) if total else None,
        "wave_instructions": total or None,
        "launches": len(network.program.plan["launches"]),
    }


def _pipelined(session: Session, frames: Sequence[Mapping[str, Array]], meter: _Meter) -> float:
    """Frames a second of the device's clock, with DEPTH of them in flight."""
    began = 0.0
    for _ in range(2):  # the first time brings their launches
        began = meter.now()
        tickets = [session.submit(inputs, step=True) for inputs in frames]
        for ticket in tickets:
            session.collect(ticket)
    return len(frames) / (meter.now() - began)


def _require_same(step: Mapping[str, Array], run: Mapping[str, Array]) -> None:
    for name, array in step.items():
        if array.tobytes() != run[name].tobytes():
            wrong = int(np.count_nonzero(array != run[name]))
            raise CheckFailed(
                f"{wrong:,} of {array.size:,} elements of a step differ from an inference on the same states",
                where=f"output {name}",
            )

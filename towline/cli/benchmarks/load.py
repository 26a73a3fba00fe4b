"""How fast weights reach a card, and how much of the host's memory that takes. `towline bench load`.

The network is a chain of matrix products whose weights lie far apart in a file of any size: between them are
random bytes that no launch reads, but that travel like all others. So a file of gigabytes is made in seconds,
in little memory, and its results are those of the chain.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import time
from bisect import bisect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdk import artifact, reference
from sdk.arena import align
from sdk.artifact import Artifact
from sdk.errors import UsageError
from sdk.graph import Array, Gemm, Graph, Quantization, Tensor
from sdk.target import Options, Program
from sdk.weights import Weights
from usbgpu import bridge as bridges
from usbgpu import seam, transport
from usbgpu.amd import gpu as gpus
from usbgpu.target import checksum
from usbgpu.target.device import CardDevice
from usbgpu.target.plan import ALIGNMENT, CardPlan, LaunchPlan
from usbgpu.target.target import AmdTarget

if TYPE_CHECKING:
    from emulator.amdgpu.vram import Vram

LINK = 700e6
"""Bytes a second that slot DMA does over the link (published for silicon)."""
LAYERS, WIDTH = 16, 512
LEAST = 2 * LAYERS * WIDTH * WIDTH
"""Bytes of weights that the chain needs room for."""
FILLING = 16 << 20
SAMPLE = 16
"""Transfers, of 1 MiB at most, from one look at the memory to the next."""


def network() -> Graph:
    """The chain; its weights and biases are seeded, and sums use about all of a byte."""
    chance = np.random.default_rng(0)
    activation = Quantization.per_tensor(0.05, 128)
    tensors = {"x": Tensor("x", (1, WIDTH), "uint8", activation)}
    nodes, x = [], "x"
    for layer in range(LAYERS):
        name = f"layer {layer}"
        scale = np.full(WIDTH, 0.05 / math.sqrt(WIDTH), np.float32)
        zeros = np.zeros(WIDTH, np.int32)
        weights = chance.integers(-127, 128, (WIDTH, WIDTH), np.int8)
        bias = chance.integers(-1000, 1000, WIDTH, np.int32)
        for tensor in (
            Tensor(f"{name}.w", weights.shape, "int8", Quantization(scale, zeros, 0), weights),
            Tensor(f"{name}.b", bias.shape, "int32", Quantization(scale * np.float32(0.05), zeros, 0), bias),
            Tensor(name, (1, WIDTH), "uint8", activation),
        ):
            tensors[tensor.name] = tensor
        nodes.append(Gemm(name, (x, f"{name}.w", f"{name}.b"), name, (0, 255)))
        x = name
    return Graph("load", ("x",), (x,), tensors, tuple(nodes))


def spread(program: Program, nbytes: int) -> Program:
    """The same program with so many bytes of weights: those of each launch lie far behind the last one's.

    Raises:
        UsageError: too few bytes.
    """
    plan = CardPlan.of(program)
    if nbytes < LEAST:
        raise UsageError(f"{nbytes} bytes are too few weights", hint=f"give at least {LEAST >> 20}M")
    ends = [launch.weights for launch in plan.launches]
    gap = (nbytes - plan.memory["weights"]) // (len(ends) - 1) // ALIGNMENT * ALIGNMENT
    starts = [offset for offset, _ in program.weights.pieces]
    moved = [offset + gap * bisect(ends, offset) for offset in starts]

    def new(launch: LaunchPlan, rank: int) -> LaunchPlan:
        relocations = []
        for offset, space, place in launch.relocations:
            if space == "weights":
                piece = bisect(starts, place) - 1
                place += moved[piece] - starts[piece]
            relocations.append((offset, space, place))
        return dataclasses.replace(launch, relocations=relocations, weights=launch.weights + gap * rank)

    launches = [new(launch, rank) for rank, launch in enumerate(plan.launches)]
    pieces = zip(moved, (piece for _, piece in program.weights.pieces), strict=True)
    weights = Weights(nbytes, tuple(_filled(pieces, nbytes)))
    sums = () if plan.checksum is None else checksum.sums(weights).tolist()
    larger = dataclasses.replace(
        plan, launches=launches, memory={**plan.memory, "weights": nbytes}, sums=sums
    )
    return dataclasses.replace(program, plan=larger.to_json(), weights=weights)


def _filled(pieces: Iterator[tuple[int, memoryview]], nbytes: int) -> Iterator[tuple[int, memoryview]]:
    """The pieces, and between them the same random bytes, again and again."""
    filling = memoryview(random.Random(0).randbytes(FILLING))
    at = 0
    for offset, piece in (*pieces, (nbytes, memoryview(b""))):
        for start in range(at, offset, FILLING):
            yield start, filling[: min(FILLING, offset - start)]
        if piece:
            yield offset, piece
        at = offset + piece.nbytes


def make(target: AmdTarget, nbytes: int, path: Path) -> None:
    """Compile the network, and write it with weights of so many bytes."""
    graph = network()
    program = spread(target.compile(graph, Options()), nbytes)
    artifact.save(Artifact((program,), graph, target.arithmetic, hosted=()), path)


def measure(path: Path, device: str, firmware: Path | None) -> dict[str, Any]:
    """Load a file of `make` onto a card and run it for the first time.

    Returns:
        `bytes` of weights; `virtual_s` of the device from the first byte to the result, and `share_of_link`;
        `transfers`; `host_seconds` of reading the file and of that; `peak_rss_bytes` of this process
        meanwhile, the emulated card's memory apart, which takes `vram_rss_bytes`, and `base_rss_bytes`
        before; these are None where the system does not say. `mismatches` of two inferences.

    Raises:
        Unsupported: the card has too little memory.
        DeviceFailed, EnvironmentMissing, InvalidArtifact: a part does not work, or is missing.
    """
    memory = _Resident()
    began = time.perf_counter()
    network = artifact.load(path)
    reading = time.perf_counter() - began
    opened = transport.open(device)
    with gpus.attach(bridges.attach(opened), firmware) as gpu:
        memory.vram = getattr(getattr(opened.emulation, "card", None), "vram", None)
        memory.look(peak=True)
        calls = 0

        def seen(*_: object) -> None:
            nonlocal calls
            calls += 1
            if calls % SAMPLE == 0:
                memory.look()

        opened.observers.append(seen)
        inputs = _inputs(network.program.graph)
        with CardDevice(cast(seam.Gpu, gpu)).load(network.program) as session:
            before, began = opened.clock.now(), time.perf_counter()
            results = [session.run(inputs)]
            virtual, host = opened.clock.now() - before, time.perf_counter() - began
            transfers = calls
            memory.look()
            results.append(session.run(inputs))
    expected = reference.run(network.program.graph, inputs, network.arithmetic)
    nbytes = network.program.weights.nbytes
    return {
        "target": network.target,
        "bytes": nbytes,
        "virtual_s": round(virtual, 6),
        "share_of_link": round(nbytes / LINK / virtual, 4),
        "transfers": transfers,
        "host_seconds": round(reading + host, 3),
        "peak_rss_bytes": memory.peak,
        "base_rss_bytes": memory.base,
        "vram_rss_bytes": memory.apart,
        "mismatches": sum(
            int(np.count_nonzero(found != expected[name]))
            for result in results
            for name, found in result.items()
        ),
    }


def _inputs(graph: Graph) -> dict[str, Array]:
    chance = np.random.default_rng(1)
    return {name: chance.integers(0, 256, graph.tensor(name).shape, np.uint8) for name in graph.inputs}


class _Resident:
    """What of this process is in memory (Linux).

    Attributes:
        vram: of an emulated card: it is the card's memory, and not counted.
        base: bytes at the beginning.
        peak: the most bytes that were seen.
        apart: bytes of the card's memory when they were last seen.
    """

    def __init__(self) -> None:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again
        self.vram: Vram | None = None
        self.apart: int | None = None
        self.base = self.peak = _status("VmRSS")

    def look(self, *, peak: bool = False) -> None:
        """Look at the memory now; with `peak`, at the most there was so far, which has no VRAM worth it."""
        if self.peak is None:
            return
        now = _status("VmHWM" if peak else "VmRSS") or 0
        if self.vram is not None:
            self.apart = self.vram.resident()
            now -= 0 if peak else self.apart
        self.peak = max(self.peak, now)


def _status(name: str) -> int | None:
    """Bytes of a line in /proc; None elsewhere than on Linux."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def room(nbytes: int) -> str:
    """Memory that an emulated card needs for it, as its device string says it."""
    return f"{align(nbytes + (256 << 20), 256 << 20) >> 20}M"

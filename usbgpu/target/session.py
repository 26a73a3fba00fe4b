"""A compiled network on a card: the first inference streams it in, the following ones only their inputs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from sdk.errors import DeviceFailed, InvalidArtifact, TowlineError, Unsupported
from sdk.graph import Array, Tensor
from sdk.passes import from_unsigned, to_unsigned
from sdk.report import size as human
from sdk.target import LayerProfile, Profile, Program, check_inputs, zero_point_inputs
from usbgpu.seam import Buffer, Gpu, Launch, Prepared, Read, Write
from usbgpu.target.plan import ALIGNMENT, MARGIN, CardPlan, LaunchPlan

CODE_ALIGNMENT = 4096

log = logging.getLogger(__name__)


class CardDevice:
    """A GPU that is up. It is closed with the session that is loaded on it."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def load(self, program: Program) -> CardSession:
        """Make room for a program on the card; what it consists of follows with the first inference.

        Raises:
            InvalidArtifact: the program is incomplete, its plan damaged, or it is for another GPU.
            Unsupported: it does not fit the card's memory; with the sizes.
        """
        try:
            return CardSession(program, self._gpu)
        except BaseException:
            _close_broken(self._gpu)
            raise


class CardSession:
    """A program on a card; a context manager."""

    def __init__(self, program: Program, gpu: Gpu) -> None:
        self._graph = program.graph
        self._plan = plan = CardPlan.of(program)
        if plan.chip != gpu.chip:
            raise InvalidArtifact(
                f"the program is for {plan.chip}, the GPU is a {gpu.chip}",
                hint=f"compile the model with --target amd-{gpu.chip}",
            )
        self._gpu = gpu
        self._closed = False
        self._loaded = False
        self._prepared: Prepared | None = None
        self._image = _image(plan, program.code)
        self._weights_data = program.weights.buffer()
        self._buffers: list[Buffer] = []
        try:
            self._code, self._weights, self._arena = self._room()
            self._launches = [self._launch(launch) for launch in plan.launches]
        except BaseException:
            self._release()
            raise

    # -- sdk.target.DeviceSession -----------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        writes = self._encode(inputs)
        with self._exchange():
            if not self._loaded:
                return self._decode(self._first(writes))
            if self._prepared is None:
                self._prepared = self._gpu.prepare(self._launches)
            return self._decode(self._prepared.run(writes, self._reads()))

    def _first(self, writes: Sequence[Write]) -> list[bytes]:
        """The inference that brings code and weights along, in the order in which launches need them."""
        load = [Write(self._code, 0, self._image), *writes]
        before = sum(len(write.data) for write in load)
        load.append(Write(self._weights, 0, self._weights_data))
        launches = []
        needed = before
        for launch, plan in zip(self._launches, self._plan.launches, strict=True):
            needed = max(needed, before + plan.weights)
            launches.append((launch, needed))
        results = self._gpu.stream(load, launches, self._reads())
        self._loaded = True
        return results

    def _load(self) -> None:
        """Code and weights, without an inference."""
        if not self._loaded:
            self._gpu.upload(self._code, self._image)
            self._gpu.upload(self._weights, self._weights_data)
            self._loaded = True

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        writes = self._encode(inputs)
        with self._exchange():
            self._load()
            for write in writes:
                self._gpu.upload(write.buffer, write.data, write.offset)
            values: dict[str, Array] = {}
            waiting: list[Launch] = []
            for launch, plan in zip(self._launches, self._plan.launches, strict=True):
                waiting.append(launch)
                if plan.tensor is not None:
                    self._run_now(waiting)
                    waiting = []
                    values[plan.tensor] = self._read_tensor(plan.tensor)
            if waiting:
                self._run_now(waiting)
            outputs = [self._gpu.download(read.buffer, read.size, read.offset) for read in self._reads()]
            return values | self._decode(outputs)

    def profile(self) -> Profile:
        writes = self._encode(zero_point_inputs(self._graph))
        with self._exchange():
            self._load()
            for write in writes:
                self._gpu.upload(write.buffer, write.data, write.offset)
            counted = self._gpu.profile(self._launches)
        layers = []
        total: dict[str, int | float] = {"launches": len(self._launches), "macs": 0}
        for launch, counters in zip(self._plan.launches, counted, strict=True):
            known = {"waves": self._waves(launch), **counters}
            layers.append(LayerProfile(launch.name, launch.op, launch.macs, known))
            total["macs"] += launch.macs
            for name, count in known.items():
                total[name] = total.get(name, 0) + count
        return Profile(layers, total, self._plan.memory)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._release()
        finally:
            self._gpu.close()

    def __enter__(self) -> CardSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- for timelines ----------------------------------------------------------------------------------

    @property
    def launches(self) -> Sequence[Launch]:
        """What an inference launches, in order."""
        return self._launches

    # -- for the contract tests -------------------------------------------------------------------------

    def poison(self, byte: int) -> None:
        """Fill the arena and the margins around it with one byte."""
        with self._exchange():
            self._gpu.upload(self._arena, bytes([byte]) * self._arena.size)

    def dump(self) -> tuple[bytes, bytes, bytes]:
        """The margin before the arena, the arena, the margin behind it."""
        with self._exchange():
            whole = self._gpu.download(self._arena, self._arena.size)
        return whole[:MARGIN], whole[MARGIN:-MARGIN], whole[-MARGIN:]

    # -- memory and launches ----------------------------------------------------------------------------

    def _room(self) -> list[Buffer]:
        """Memory for code, weights and arena. Raises Unsupported if there is not enough, with the sizes."""
        sizes = len(self._image), len(self._weights_data), self._plan.memory["arena"] + 2 * MARGIN
        try:
            for nbytes, alignment in zip(sizes, (CODE_ALIGNMENT, ALIGNMENT, ALIGNMENT), strict=True):
                self._buffers.append(self._gpu.allocate(max(nbytes, 1), alignment))
        except Unsupported as problem:
            code, weights, arena = map(human, sizes)
            raise Unsupported(
                f"the network takes {human(sum(sizes))} of the card's memory ({weights} of weights, "
                f"{arena} of activations, {code} of code): {problem.message}",
                where=self._graph.name,
                hint=problem.hint,
            ) from problem
        return self._buffers

    def _release(self) -> None:
        if self._prepared is not None:
            self._prepared.free()
        for buffer in self._buffers:
            buffer.free()

    def _launch(self, plan: LaunchPlan) -> Launch:
        """A launch with the addresses that it has on this card."""
        bases = {"arena": self._arena.address + MARGIN, "weights": self._weights.address}
        kernel = self._plan.kernels[plan.kernel]
        kernarg = bytearray(plan.kernarg.ljust(kernel.kernarg, b"\0"))
        for offset, space, addend in plan.relocations:
            kernarg[offset : offset + 8] = (bases[space] + addend).to_bytes(8, "little")
        return Launch(
            name=plan.name,
            code=self._code.address + kernel.entry,
            rsrc1=kernel.rsrc1,
            rsrc2=kernel.rsrc2,
            rsrc3=kernel.rsrc3,
            scratch=kernel.scratch,
            kernarg=bytes(kernarg),
            groups=plan.groups,
            threads=(kernel.threads, 1, 1),
        )

    def _waves(self, plan: LaunchPlan) -> int:
        groups = plan.groups[0] * plan.groups[1] * plan.groups[2]
        return groups * -(-self._plan.kernels[plan.kernel].threads // 32)

    def _run_now(self, launches: Sequence[Launch]) -> None:
        prepared = self._gpu.prepare(launches)
        try:
            prepared.run([], [])
        finally:
            prepared.free()

    @contextmanager
    def _exchange(self) -> Iterator[None]:
        """Work on the card; if it is interrupted, the session is closed: the card's content is unknown."""
        if self._closed:
            raise DeviceFailed("the session is closed", hint="load the network again")
        try:
            yield
        except BaseException:
            self._closed = True
            self._release()
            _close_broken(self._gpu)
            raise

    # -- tensors ----------------------------------------------------------------------------------------

    def _tensor(self, name: str) -> Tensor:
        return self._graph.tensor(name)

    def _encode(self, inputs: Mapping[str, Array]) -> list[Write]:
        writes = []
        for name, array in check_inputs(self._graph, inputs).items():
            data = to_unsigned(array, self._tensor(name))
            writes.append(Write(self._arena, MARGIN + self._plan.inputs[name], data))
        return writes

    def _reads(self) -> list[Read]:
        return [
            Read(self._arena, MARGIN + self._plan.outputs[name], self._tensor(name).nbytes)
            for name in self._graph.outputs
        ]

    def _decode(self, outputs: Sequence[bytes]) -> dict[str, Array]:
        return {
            name: from_unsigned(data, self._tensor(name))
            for name, data in zip(self._graph.outputs, outputs, strict=True)
        }

    def _read_tensor(self, name: str) -> Array:
        place = self._plan.tensors[name]
        data = self._gpu.download(self._arena, place.nbytes, MARGIN + place.offset)
        data += bytes(place.pitch - place.channels)  # what is behind the last pixel need not be there
        pixels = np.frombuffer(data, np.uint8).reshape(place.pixels, place.pitch)[:, : place.channels]
        return from_unsigned(pixels.T.tobytes(), self._tensor(name))


def _close_broken(gpu: Gpu) -> None:
    """Close a GPU while another error is on its way; that is the one to report."""
    try:
        gpu.close()
    except TowlineError as problem:
        log.warning("the GPU was not closed properly: %s", problem)


def _image(plan: CardPlan, code: Mapping[str, bytes]) -> bytes:
    image = bytearray(plan.memory["code"])
    for piece in plan.image:
        image[piece.at : piece.at + piece.size] = code[piece.file][piece.offset : piece.offset + piece.size]
    return bytes(image)

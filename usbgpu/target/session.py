"""A compiled network on a card: the first inference streams it in, the following ones only their inputs."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import numpy as np

from sdk.dtypes import storage
from sdk.errors import DeviceFailed, InvalidArtifact, Unsupported
from sdk.graph import Array
from sdk.inputs import check_inputs, zero_point_inputs
from sdk.report import size as human
from sdk.target import LayerProfile, Profile, Program, Verification
from usbgpu.seam import Buffer, Gpu, Launch, Prepared, Read, TransferDamaged, Way, Write
from usbgpu.target import checksum
from usbgpu.target.checksum import blocks
from usbgpu.target.ends import Ends, Pieces, decoded
from usbgpu.target.flights import Flights, Frame
from usbgpu.target.plan import ALIGNMENT, MARGIN, CardPlan, LaunchPlan, image
from usbgpu.target.verification import Claim, Region, Verifier

log = logging.getLogger(__name__)

CODE_ALIGNMENT = 4096
LINK_RATE = 700e6
"""Bytes a second in either direction: what users of the bridge report for a link of 10 Gb/s."""
TOGETHER = 64 << 10
"""Bytes of weights that are copied on the host at most to go as one piece."""


T = TypeVar("T")


class Owner(Protocol):
    """What a session needs of the device that it is on."""

    def check(self) -> None:
        """Raises DeviceFailed: nothing can run on it now."""

    def fail(self) -> None:
        """Something went wrong on it, or was interrupted."""

    def leave(self, session: CardSession) -> None:
        """A session needs it no longer."""


class CardSession:
    """A program on a card; a context manager.

    Code and weights that arrive damaged are sent once more; so is an inference whose inputs or outputs do, if
    `verify` has them compared.
    """

    def __init__(self, program: Program, gpu: Gpu, device: Owner, verify: bool = False) -> None:
        self._graph = program.graph
        self._plan = plan = CardPlan.of(program)
        if plan.chip != gpu.chip:
            raise InvalidArtifact(
                f"the program is for {plan.chip}, the GPU is a {gpu.chip}",
                hint=f"compile the model with --target amd-{gpu.chip}",
            )
        self._ends = Ends(self._graph, plan)
        self._gpu = gpu
        self._device = device
        self._closed = False
        self._loaded = False
        self._prepared: dict[Hashable, Prepared] = {}
        self._verifies = verify  # inputs and outputs, too
        if verify and plan.checksum is None:
            raise InvalidArtifact(
                "the program has no checksum kernel: it was compiled by an earlier release",
                hint="compile the model again, or leave --verify-transfers out",
            )
        # States are in VRAM, or else here for the next step to bring along.
        first = zero_point_inputs(self._graph) if plan.states else {}
        self._held: dict[str, Array] | None = {given: first[given] for _, given in plan.states}
        self._spare: Buffer | None = None  # a second arena, if frames overlap
        self._lost = False  # they are in neither place
        self._swapped = False  # whether states and next states have changed places
        self._image = image(plan.memory["code"], plan.image, program.code)
        self._constants = program.weights
        self._buffers: list[Buffer] = []
        self._flights = Flights(gpu, self)
        try:
            self._code, self._weights, self._arena = self._room()
            self._launches = {swapped: self._placed(swapped) for swapped in (False, bool(plan.states))}
            self._verifier = self._verifier_of(plan)
            self._stored = self._storage(plan)
        except BaseException:
            self._release()
            raise

    # -- sdk.target.DeviceSession -----------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self._flights.land()
        return self.alone(self._frame(inputs, step=False))

    def _infer(self, arrays: Mapping[str, Array], outputs: Sequence[str]) -> Pieces:
        """One inference; the part of the arena that the outputs are in."""
        writes, spans = self._encode(arrays), self._spans(outputs)
        reads = [Read(self._arena, MARGIN + start, end - start) for start, end in spans]
        found = self._again(lambda: self._inferred(writes, reads))
        return Pieces([(read.offset - MARGIN, data) for read, data in zip(reads, found, strict=True)])

    def _again(self, work: Callable[[], T]) -> T:
        """Do something, and once more if it was damaged on its way."""
        try:
            return work()
        except TransferDamaged as problem:
            log.warning("%s: sent again", problem)
            return work()

    def _inferred(self, writes: Sequence[Write], reads: Sequence[Read]) -> list[bytes]:
        """The bytes of the outputs. Raises TransferDamaged: of code, weights; with `verify` of anything."""
        sent = [_claim("inputs", each.buffer, each.offset, each.data) for each in writes if self._verifies]
        came = [Region("outputs", each.buffer, each.offset, each.size) for each in reads if self._verifies]
        stored = [] if self._loaded else self._stored
        regions = [*(region for region, _ in (*sent, *stored)), *came]
        checks = self._verifier.launches(regions)
        before, behind = checks[: len(sent)], checks[len(sent) :]
        wanted = [*reads, *self._verifier.reads(regions)]
        if not self._loaded:
            found = self._first(writes, before, behind, wanted)
        else:
            key = self._swapped, *((region.offset, region.nbytes) for region in regions)
            if key not in self._prepared:
                self._prepared[key] = self._gpu.prepare([*before, *self.launches, *behind])
            found = self._prepared[key].run(writes, wanted)
        found, sums = found[: len(reads)], found[len(reads) :]
        got = [(region, checksum.sums([data])) for region, data in zip(came, found, strict=False)]
        self._verifier.check([*sent, *stored, *got], sums)
        self._loaded = True
        return found

    def _first(
        self,
        writes: Sequence[Write],
        before: Sequence[Launch],
        behind: Sequence[Launch],
        reads: Sequence[Read],
    ) -> list[bytes]:
        """The inference that brings code and weights along, in the order in which launches need them.

        Args:
            writes: the inputs.
            before: launches in front of those of the network, once the inputs are there.
            behind: launches behind them, once everything is there.
            reads: at the end.
        """
        load = [Write(self._code, 0, self._image), *writes]
        needed = given = sum(len(write.data) for write in load)
        load += self._weight_writes()
        launches = [(launch, needed) for launch in before]
        for launch, plan in zip(self.launches, self._plan.launches, strict=True):
            needed = max(needed, given + plan.weights)
            launches.append((launch, needed))
        launches += [(launch, given + self._constants.nbytes) for launch in behind]
        return self._gpu.stream(load, launches, reads, self._summing)

    def _load(self) -> None:
        """Code and weights, without an inference."""
        if not self._loaded:
            self._again(self._load_alone)
            self._loaded = True

    def _load_alone(self) -> None:
        load = [Write(self._code, 0, self._image), *self._weight_writes()]
        nbytes = len(self._image) + self._constants.nbytes
        regions = [region for region, _ in self._stored]
        launches = [(launch, nbytes) for launch in self._verifier.launches(regions)]
        reads = self._verifier.reads(regions)
        self._verifier.check(self._stored, self._gpu.stream(load, launches, reads, self._summing))

    def _weight_writes(self) -> Iterator[Write]:
        """The weights piece by piece, each where it lies on the host: in memory, or in a mapped file.

        Small ones, which lie next to each other on the card, are copied together: a stream's program has a
        limit for its pieces.
        """
        together = bytearray()
        end = 0
        for offset, piece in self._constants.spans():
            if len(together) + piece.nbytes > TOGETHER and together:
                yield Write(self._weights, end - len(together), bytes(together))
                together.clear()
            if piece.nbytes > TOGETHER:
                yield Write(self._weights, offset, piece)
            else:
                together += piece
            end = offset + piece.nbytes
        if together:
            yield Write(self._weights, end - len(together), bytes(together))

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self._flights.land()
        arrays = check_inputs(self._graph, inputs)
        with self.exchange():
            self._begin(arrays)
            values: dict[str, Array] = {}
            waiting: list[Launch] = []
            for launch, plan in zip(self.launches, self._plan.launches, strict=True):
                waiting.append(launch)
                if plan.tensor is not None:
                    self._run_now(waiting)
                    waiting = []
                    values[plan.tensor] = self._read_tensor(plan.tensor)
            if waiting:
                self._run_now(waiting)
            spans = self._spans(self._graph.outputs)
            read = Pieces([(start, self._download(start, end - start)) for start, end in spans])
        return values | self._decode(read, self._graph.outputs)

    def _begin(self, arrays: Mapping[str, Array]) -> None:
        """Bring all that an inference needs, for launches one by one."""
        self._fetch_states()
        self._load()
        self._again(lambda: self._upload(self._encode(arrays)))

    def _upload(self, writes: Sequence[Write]) -> None:
        for write in writes:
            self._gpu.upload(write.buffer, write.data, write.offset)
        if self._verifies:
            self._verify([_claim("inputs", each.buffer, each.offset, each.data) for each in writes])

    def _verify(self, claims: Sequence[Claim]) -> None:
        """Sum what is on the card, now. Raises TransferDamaged."""
        regions = [region for region, _ in claims]
        prepared = self._gpu.prepare(self._verifier.launches(regions))
        try:
            self._verifier.check(claims, prepared.run([], self._verifier.reads(regions)))
        finally:
            prepared.free()

    def profile(self) -> Profile:
        self._flights.land()
        with self.exchange():
            self._begin(zero_point_inputs(self._graph))
            counted = self._gpu.profile(self.launches)
        layers = []
        total: dict[str, int | float] = {"launches": len(counted), "macs": 0}
        for launch, counters in zip(self._plan.launches, counted, strict=True):
            known = {"waves": self._waves(launch), **counters}
            known.pop("virtual_ns", None)  # a measurement's
            layers.append(LayerProfile(launch.name, launch.op, launch.macs, known))
            total["macs"] += launch.macs
            for name, count in known.items():
                total[name] = total.get(name, 0) + count
        if total.get("wave_instructions") and "wmma_instructions" in total:
            total["wmma_share"] = round(total["wmma_instructions"] / total["wave_instructions"], 4)
        return Profile(layers, total, self._plan.memory)

    # -- sdk.target.ComparesTransfers -------------------------------------------------------------------

    def verification(self) -> Verification | None:
        if not self._verifies:
            return None
        self._flights.land()
        arrays = zero_point_inputs(self._graph)
        with self.exchange():
            self._begin(arrays)
            writes, spans = self._encode(arrays), self._spans(self._graph.outputs)
            ends = [Region("inputs", each.buffer, each.offset, len(each.data)) for each in writes]
            ends += [Region("outputs", self._arena, MARGIN + start, end - start) for start, end in spans]
            counted = self._gpu.profile([*self.launches, *self._verifier.launches(ends)])
        seconds = [counters["virtual_us"] / 1e6 for counters in counted]
        sizes = [region.nbytes for region in ends]
        inputs, outputs = sum(sizes[: len(writes)]), sum(sizes[len(writes) :])
        return Verification(inputs, outputs, sum(seconds[len(self.launches) :]), sum(seconds))

    def close(self) -> None:
        if self._closed:
            return
        self._flights.drop(DeviceFailed("the session was closed"))
        self._closed = True
        try:
            self._release()
        finally:
            self._device.leave(self)

    def __enter__(self) -> CardSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- sdk.target.KeepsStates -------------------------------------------------------------------------

    @property
    def kept(self) -> Sequence[tuple[str, str]]:
        return self._plan.states

    def step(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self._flights.land()
        self._check_states()
        found = self.alone(self._frame(inputs, step=True))
        self._flights.caught_up()
        return found

    def reset(self, states: Mapping[str, Array]) -> None:
        self._flights.land()
        names = tuple(given for _, given in self.kept)
        self._held = check_inputs(dataclasses.replace(self._graph, inputs=names), states)
        self._swapped = self._lost = False
        self._flights.caught_up()

    def states(self) -> dict[str, Array]:
        self._flights.land()
        self._check_states()
        if self._held is not None:
            return {name: array.copy() for name, array in self._held.items()}
        with self.exchange():
            return self._read_states()

    def _fetch_states(self) -> None:
        """Bring the states here, for something else will be in their places."""
        if self._held is None and not self._lost:
            self._held, self._swapped = self._read_states(), False

    def _check_states(self) -> None:
        if self._lost:
            raise DeviceFailed(
                "the states were on the card, which has been reset since",
                where=self._graph.name,
                hint="reset() puts states in place",
            )

    def _read_states(self) -> dict[str, Array]:
        found = {}
        for _, given in self.kept:
            data = self._download(*self._ends.place(given, self._swapped))
            found[given] = decoded(data, self._graph.tensor(given)).copy()
        return found

    # -- sdk.target.Submits -----------------------------------------------------------------------------

    def submit(self, inputs: Mapping[str, Array], *, step: bool = False) -> Callable[[], dict[str, Array]]:
        return self._flights.submit(self._frame(inputs, step))

    def _frame(self, inputs: Mapping[str, Array], step: bool) -> Frame:
        held = {name for pair in self.kept for name in pair} if step else set()
        names = tuple(name for name in self._graph.inputs if name not in held)
        arrays = check_inputs(dataclasses.replace(self._graph, inputs=names), inputs)
        return Frame(arrays, tuple(name for name in self._graph.outputs if name not in held), step)

    # -- flights.Ground ---------------------------------------------------------------------------------

    def kind(self, frame: Frame) -> Hashable:
        if self._verifies or not self._loaded or (frame.step and self._held is not None):
            return None  # the first one brings weights and states along
        if self.kept and (not frame.step or self._plan.status is not None):
            return None  # a step that is refused must not be followed by another one
        return frame.step, self._swapped

    def alone(self, frame: Frame) -> dict[str, Array]:
        with self.exchange():
            if frame.step:
                self._check_states()
                read = self._infer({**frame.arrays, **(self._held or {})}, frame.outputs)
            else:
                self._fetch_states()
                read = self._infer(frame.arrays, frame.outputs)
        return self._finished(frame, read)

    def encode(self, frame: Frame) -> list[Write]:
        return self._encode(frame.arrays)

    def ways(self, frame: Frame) -> tuple[Way, Way]:
        if self._spare is None:
            self._spare = self._gpu.allocate(self._arena.size, ALIGNMENT)
            self._buffers.append(self._spare)
        inputs = [(write.offset, len(write.data)) for write in self.encode(frame)]
        outputs = [(MARGIN + start, end - start) for start, end in self._spans(frame.outputs)]
        swaps = (self._swapped, self._swapped != bool(self.kept))
        first, second = (
            Way(
                [self._launch(plan, swapped, arena) for plan in self._plan.launches],
                [Read(arena, start, size) for start, size in inputs],
                [Read(arena, start, size) for start, size in outputs],
            )
            for swapped, arena in zip(swaps, (self._arena, self._spare), strict=True)
        )
        return first, second

    def torn(self) -> None:
        self._lost = self._lost or (bool(self.kept) and self._held is None)

    def flown(self, frame: Frame, found: Sequence[bytes]) -> dict[str, Array]:
        spans = self._spans(frame.outputs)
        parts = [(start, data) for (start, _), data in zip(spans, found, strict=True)]
        return self._finished(frame, Pieces(parts))

    def _finished(self, frame: Frame, read: Pieces) -> dict[str, Array]:
        results = self._decode(read, frame.outputs)
        if frame.step:  # only now, so that a step that failed begins again from the same states
            self._held, self._swapped = None, not self._swapped
        return results

    # -- sdk.target.Linked ------------------------------------------------------------------------------

    def link_seconds(self, *, step: bool = False) -> float:
        held = {name for pair in self.kept for name in pair} if step else set()
        names = {*self._graph.inputs, *self._graph.outputs} - held
        return sum(self._graph.tensor(name).nbytes for name in names) / LINK_RATE

    # -- for its device ---------------------------------------------------------------------------------

    def land(self) -> None:
        """Compute everything that was submitted."""
        self._flights.land()

    def drop(self) -> None:
        """What was submitted and has no answer yet will have none."""
        self._flights.drop(DeviceFailed("the device was recovered meanwhile", hint="submit it again"))

    def settle(self, *, states: bool) -> None:
        """Compute everything that was submitted; `states`: and bring the states to the host."""
        self._flights.land()
        if states and not self._lost:
            with self.exchange():
                self._fetch_states()

    def renew(self, *, intact: bool) -> bool:
        """The card works again after a failure.

        Args:
            intact: its memory is as it was. Then what was complete is still there: code and weights after a
                first inference, launches that have run, and the states, for only a step whose results are
                here makes them change places.

        Returns:
            Whether the states are those of the last step whose results were returned.
        """
        if not intact:
            self._forget_launches()
            self._loaded = False
            self._lost = self._lost or self._held is None
        if self._flights.ahead and self._held is None:
            self._lost = True
        return not self._lost

    # -- for timelines ----------------------------------------------------------------------------------

    @property
    def launches(self) -> Sequence[Launch]:
        """What an inference launches, in order."""
        return self._launches[self._swapped]

    # -- for the contract tests -------------------------------------------------------------------------

    def poison(self, byte: int) -> None:
        """Fill the arena and the margins around it with one byte."""
        with self.exchange():
            self._gpu.upload(self._arena, bytes([byte]) * self._arena.size)

    def dump(self) -> tuple[bytes, bytes, bytes]:
        """The margin before the arena, the arena, the margin behind it."""
        with self.exchange():
            whole = self._gpu.download(self._arena, self._arena.size)
        return whole[:MARGIN], whole[MARGIN:-MARGIN], whole[-MARGIN:]

    # -- memory and launches ----------------------------------------------------------------------------

    def _room(self) -> list[Buffer]:
        """Memory for code, weights and arena. Raises Unsupported if there is not enough, with the sizes."""
        sizes = len(self._image), self._constants.nbytes, self._plan.memory["arena"] + 2 * MARGIN
        try:
            # Kernels may read behind the weights, too.
            rooms = (sizes[0], CODE_ALIGNMENT), (sizes[1] + MARGIN, ALIGNMENT), (sizes[2], ALIGNMENT)
            for nbytes, alignment in rooms:
                self._buffers.append(self._gpu.allocate(nbytes, alignment))
        except Unsupported as problem:
            code, weights, arena = map(human, sizes)
            raise Unsupported(
                f"the network takes {human(sum(sizes))} of the card's memory ({weights} of weights, "
                f"{arena} of activations, {code} of code): {problem.message}",
                where=self._graph.name,
                hint="use a card with more memory, or a smaller network: float16 takes half of float32's",
            ) from problem
        return self._buffers

    def _verifier_of(self, plan: CardPlan) -> Verifier:
        sizes = len(self._image), self._constants.nbytes, *2 * [self._arena.size]
        spans = len(self._graph.inputs) + len(self._graph.outputs) + 2
        kernel = None if plan.checksum is None else plan.kernels[plan.checksum]
        verifier = Verifier(self._gpu, kernel, self._code.address, sum(map(blocks, sizes)) + spans)
        self._buffers.append(verifier.buffer)
        return verifier

    @property
    def _summing(self) -> Verifier | None:
        return None if self._plan.checksum is None else self._verifier

    def _storage(self, plan: CardPlan) -> list[Claim]:
        """What code and weights on the card should be."""
        if plan.checksum is None:
            return []
        found = [_claim("code", self._code, 0, self._image)]
        if self._constants.nbytes:
            weights = Region("weights", self._weights, 0, self._constants.nbytes)
            found.append((weights, np.array(plan.sums, np.uint32)))
        return found

    def _forget_launches(self) -> None:
        self._flights.free()
        for prepared in self._prepared.values():
            prepared.free()
        self._prepared.clear()

    def _release(self) -> None:
        self._forget_launches()
        for buffer in self._buffers:
            buffer.free()

    def _placed(self, swapped: bool) -> list[Launch]:
        """All launches, on states in their own places or in those of their next values."""
        return [self._launch(plan, swapped) for plan in self._plan.launches]

    def _launch(self, plan: LaunchPlan, swapped: bool, arena: Buffer | None = None) -> Launch:
        """A launch with the addresses that it has on this card; in another arena than the first, which keeps
        the states.
        """
        bases = {"arena": (arena or self._arena).address + MARGIN, "weights": self._weights.address}
        kernel = self._plan.kernels[plan.kernel]
        kernarg = bytearray(plan.kernarg.ljust(kernel.kernarg, b"\0"))
        for offset, space, addend in plan.relocations:
            base = bases[space]
            other = self._plan.swapped(self._graph, addend) if space == "arena" else addend
            if other != addend:  # a state
                base, addend = self._arena.address + MARGIN, other if swapped else addend
            kernarg[offset : offset + 8] = (base + addend).to_bytes(8, "little")
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
    def exchange(self) -> Iterator[None]:
        """Work on the card; if it is interrupted, the card's content is unknown, and nothing runs on it until
        it has been recovered.
        """
        if self._closed:
            raise DeviceFailed("the session is closed", hint="load the network again")
        self._device.check()
        try:
            yield
        except BaseException:
            self._device.fail()
            raise

    # -- tensors ----------------------------------------------------------------------------------------

    def _spans(self, outputs: Sequence[str]) -> list[tuple[int, int]]:
        return self._ends.spans(outputs, self._swapped)

    def _encode(self, arrays: Mapping[str, Array]) -> list[Write]:
        pieces = self._ends.encode(arrays, self._swapped)
        return [Write(self._arena, MARGIN + start, data) for start, data in pieces]

    def _decode(self, read: Pieces, outputs: Sequence[str]) -> dict[str, Array]:
        return self._ends.decode(read, outputs, self._swapped)

    def _read_tensor(self, name: str) -> Array:
        tensor, place = self._graph.tensor(name), self._plan.tensors[name]
        dtype = storage(tensor.dtype)
        size = place.nbytes(tensor.shape, dtype.itemsize)
        data = np.frombuffer(self._download(place.offset, size), dtype)
        steps = [step * dtype.itemsize for step in place.steps]
        elements = np.lib.stride_tricks.as_strided(data, tensor.shape, steps)
        return decoded(np.ascontiguousarray(elements).tobytes(), tensor)

    def _download(self, offset: int, size: int) -> bytes:
        """Bytes of the arena."""
        return self._again(lambda: self._downloaded(MARGIN + offset, size))

    def _downloaded(self, offset: int, size: int) -> bytes:
        data = self._gpu.download(self._arena, size, offset)
        if self._verifies:
            self._verify([_claim("outputs", self._arena, offset, data)])
        return data


def _claim(what: str, buffer: Buffer, offset: int, data: bytes | memoryview) -> Claim:
    return Region(what, buffer, offset, len(data)), checksum.sums([data])

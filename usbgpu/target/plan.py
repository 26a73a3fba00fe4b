"""The plan that travels in a `.tow`: all that a host must know of a program to run it on a card.

The checks keep the host safe and find damage; they cannot know what the code in the file does on the card.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from sdk.arena import align
from sdk.codec import multiple, names, pattern, require, within
from sdk.graph import Graph
from sdk.plan import (
    LIMIT,
    UNTUNED,
    BufferPlan,
    Count,
    Plan,
    Size,
    TuningPlan,
    activation_nbytes,
    check_buffers,
)
from sdk.target import Program

MARGIN = 256
"""Bytes on either side of the arena that kernels may read, never use, never write."""
ALIGNMENT = 256
"""Of a piece of code, and of a kernel's first instruction: COMPUTE_PGM_LO has its address without 8 bits."""
PREFETCH = 512
"""Bytes behind the last instruction that the card may fetch and never runs; LLVM has 384 of them filled."""
LDS_UNIT, LDS_SHIFT, LDS_LIMIT = 512, 15, 64 << 10
"""RSRC2.LDS_SIZE counts units; a workgroup has 64 KiB at most."""
SCRATCH_LIMIT = 16 << 10
"""Bytes of a work-item, more than any of our kernels spills."""

STATUS_BYTES = 8
"""Number of a launch, counted from 1, and an index that it found out of range."""

SUMMED, SUMMERS = 64 << 10, 256
"""Bytes of a block that has a checksum, and the work-items that sum it (kernels/checksum.cl)."""

Space = Literal["arena", "weights"]
Place = Count
"""An offset in the arena or the weights: kernels get 64-bit addresses, and count with 32 bits from there."""
Word = Annotated[int, within(0, 1 << 32)]


@dataclass(frozen=True)
class Slice:
    """Bytes [offset, offset + size) of a code file are bytes `at` and following of the code image."""

    file: str
    offset: Size
    size: Size
    at: Size


def image(nbytes: int, slices: Sequence[Slice], files: Mapping[str, bytes]) -> bytes:
    """The code image of this size that consists of these pieces."""
    found = bytearray(nbytes)
    for piece in slices:
        found[piece.at : piece.at + piece.size] = files[piece.file][piece.offset : piece.offset + piece.size]
    return bytes(found)


@dataclass(frozen=True)
class KernelPlan:
    """A kernel of the image.

    Attributes:
        entry: of its code, bytes from the image's start.
        rsrc1, rsrc2, rsrc3: COMPUTE_PGM_RSRC1 to 3, RSRC2 with LDS_SIZE.
        lds: bytes of a workgroup, for tables: RSRC2 says it to the card.
        scratch: bytes of a work-item.
        kernarg: bytes of the argument segment.
        threads: work-items of a workgroup; waves have 32.
    """

    name: str
    entry: Annotated[int, within(0, LIMIT), multiple(ALIGNMENT)]
    rsrc1: Word
    rsrc2: Word
    rsrc3: Word
    lds: Annotated[int, within(0, LDS_LIMIT + 1)]
    scratch: Annotated[int, within(0, SCRATCH_LIMIT + 1)]
    kernarg: Annotated[int, within(0, 1 << 16)]
    threads: Annotated[int, within(1, 1025)]

    def __post_init__(self) -> None:
        units = self.rsrc2 >> LDS_SHIFT & 0x1FF
        require(units == -(-self.lds // LDS_UNIT), f"{self.lds} bytes in {units} units of rsrc2", "lds")


@dataclass(frozen=True)
class LaunchPlan:
    """A launch.

    Attributes:
        name, op, macs: for tables.
        kernel: its number.
        groups: workgroups in x, y, z.
        kernarg: the arguments, addresses 0; what the kernel has more of is 0.
        relocations: (offset in the arguments, "arena" or "weights", offset in that).
        tensor: the activation that is complete after it, if one is.
        weights: bytes of the weights, from their start, that must be there.
    """

    name: str
    op: str
    macs: Count
    kernel: Size
    groups: tuple[Size, Size, Size]
    kernarg: bytes
    relocations: Sequence[tuple[Annotated[int, within(0, LIMIT), multiple(8)], Space, Place]]
    tensor: str | None
    weights: Place

    def __post_init__(self) -> None:
        for number, (offset, _, _) in enumerate(self.relocations):
            inside = offset + 8 <= len(self.kernarg)
            require(inside, f"an address at {offset} is outside of the arguments", "relocations", number)


@dataclass(frozen=True)
class TensorPlan:
    """Where an activation is: `offset` bytes into the arena its first element, and `steps` elements from one
    to the next along each axis.
    """

    offset: Place
    steps: Sequence[Size]

    def nbytes(self, shape: Sequence[int], itemsize: int) -> int:
        """Bytes from the first element to the last, both included."""
        return (1 + sum((n - 1) * step for n, step in zip(shape, self.steps, strict=True))) * itemsize


@dataclass(frozen=True)
class CardPlan(Plan):
    """The whole plan.

    Attributes:
        toolchain: tool name -> version that made the code.
        chip: what the code is for.
        image: the pieces of the code image.
        memory: bytes by kind.
        inputs, outputs: offset in the arena of each, in C order, by tensor name.
        tensors: how each activation lies when it is complete, by tensor name.
        status: offset in the arena of two words: the number of a launch, counted from 1, that found an index
            out of range, and the index; None if none can.
        states: pairs (output, input) that change places from one step to the next: every address in one of
            the two becomes that in the other.
        tuning: which products of floats are cut as was measured.
        checksum: number of the kernel that sums memory; None in files from before there was one.
        sums: of the weights, one for each block (usbgpu/target/checksum.py).
    """

    toolchain: Mapping[str, str]
    chip: Annotated[str, pattern("gfx[0-9a-f]+")]
    image: Sequence[Slice]
    kernels: Sequence[KernelPlan]
    launches: Sequence[LaunchPlan]
    memory: Annotated[Mapping[str, Count], names("code", "weights", "arena", "live_peak", "margin")]
    buffers: Sequence[BufferPlan]
    inputs: Mapping[str, Place]
    outputs: Mapping[str, Place]
    tensors: Mapping[str, TensorPlan]
    status: Place | None = None
    states: Sequence[tuple[str, str]] = ()
    tuning: TuningPlan = UNTUNED
    checksum: Size | None = None
    sums: Sequence[Word] = ()

    def check(self, program: Program) -> None:
        graph, memory, arena = program.graph, self.memory, self.memory["arena"]
        require(memory["margin"] == MARGIN, f"{memory['margin']} is not {MARGIN}", "memory", "margin")
        end = 0
        for number, piece in enumerate(self.image):
            require(piece.at == end, f"the piece before it ends at {end}", "image", number, "at")
            held = len(program.code.get(piece.file, b""))
            require(piece.offset + piece.size <= held, f"{piece.file!r} has {held} bytes", "image", number)
            end += align(piece.size, ALIGNMENT)
        require(memory["code"] == end + PREFETCH, f"it is not {end + PREFETCH}", "memory", "code")
        for number, kernel in enumerate(self.kernels):
            require(
                kernel.entry < end, f"it is outside of the image of {end} bytes", "kernels", number, "entry"
            )
        for number, launch in enumerate(self.launches):
            self._check_launch(launch, number)
        check_buffers(self.buffers, arena)
        for what, places, ends in (
            ("inputs", self.inputs, graph.inputs),
            ("outputs", self.outputs, graph.outputs),
        ):
            require(places.keys() == set(ends), "they are not the graph's", what)
            for name, offset in places.items():
                inside = offset + activation_nbytes(graph, name, what) <= arena
                require(inside, f"it is outside of the arena of {arena} bytes", what, name)
        for name, tensor in self.tensors.items():
            size, shape = activation_nbytes(graph, name, "tensors"), graph.tensors[name].shape
            same = len(tensor.steps) == len(shape)
            require(same, f"the graph has {len(shape)} axes", "tensors", name, "steps")
            itemsize = size // max(graph.tensors[name].size, 1)
            inside = tensor.offset + tensor.nbytes(shape, itemsize) <= arena
            require(inside, f"it is outside of the arena of {arena} bytes", "tensors", name)
        if self.status is not None:
            inside = self.status + STATUS_BYTES <= arena
            require(inside, f"it is outside of the arena of {arena} bytes", "status")
        if self.checksum is None:
            require(not self.sums, "there is no kernel that makes sums", "sums")
        else:
            require(self.checksum < len(self.kernels), f"there is no kernel {self.checksum}", "checksum")
            same = self.kernels[self.checksum].threads == SUMMERS
            require(same, f"kernel {self.checksum} does not have {SUMMERS} work-items", "checksum")
            count = -(-memory["weights"] // SUMMED)
            require(len(self.sums) == count, f"there must be {count} of these weights", "sums")
        ranges: list[tuple[int, int]] = []
        for number, (output, given) in enumerate(self.states):
            known = output in self.outputs and given in self.inputs
            require(known, f"{output!r} is not an output, or {given!r} not an input", "states", number)
            size = activation_nbytes(graph, given, "states")
            same = size == activation_nbytes(graph, output, "states")
            require(same, f"{output!r} and {given!r} differ in size", "states", number)
            for start in (self.outputs[output], self.inputs[given]):
                end = start + align(size)
                apart = all(end <= first or last <= start for first, last in ranges)
                require(apart, "states overlap", "states", number)
                ranges.append((start, end))

    def swapped(self, graph: Graph, offset: int) -> int:
        """A place in the arena when all states have changed places with their next values."""
        for output, given in self.states:
            places = self.outputs[output], self.inputs[given]
            for own, other in (places, places[::-1]):
                if 0 <= offset - own < align(max(graph.tensor(given).nbytes, 1)):
                    return offset - own + other
        return offset

    def _check_launch(self, launch: LaunchPlan, number: int) -> None:
        memory, path = self.memory, ("launches", number)
        require(launch.kernel < len(self.kernels), f"there is no kernel {launch.kernel}", *path, "kernel")
        most = self.kernels[launch.kernel].kernarg
        require(len(launch.kernarg) <= most, f"the kernel has {most} bytes of arguments", *path, "kernarg")
        # Each workgroup writes something.
        sound = 1 <= math.prod(launch.groups) <= memory["arena"]
        require(sound, f"{launch.groups} workgroups for {memory['arena']} bytes", *path, "groups")
        held = memory["weights"]
        require(launch.weights <= held, f"{launch.weights} exceeds the {held} bytes", *path, "weights")
        known = launch.tensor is None or launch.tensor in self.tensors
        require(known, f"{launch.tensor!r} has no place", *path, "tensor")
        for place, (_, space, addend) in enumerate(launch.relocations):
            require(addend < memory[space], f"{addend} is beyond the {space}", *path, "relocations", place)

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
from sdk.plan import LIMIT, BufferPlan, Count, Plan, Size, activation_nbytes, check_buffers
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

Space = Literal["arena", "weights"]
Word = Annotated[int, within(0, 1 << 32)]


@dataclass(frozen=True)
class Slice:
    """Bytes [offset, offset + size) of a code file are bytes `at` and following of the code image."""

    file: str
    offset: Size
    size: Size
    at: Size


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
    relocations: Sequence[tuple[Annotated[int, within(0, LIMIT), multiple(8)], Space, Size]]
    tensor: str | None
    weights: Size

    def __post_init__(self) -> None:
        for number, (offset, _, _) in enumerate(self.relocations):
            inside = offset + 8 <= len(self.kernarg)
            require(inside, f"an address at {offset} is outside of the arguments", "relocations", number)


@dataclass(frozen=True)
class TensorPlan:
    """Where an activation is: `pixels` of `channels` bytes, `pitch` bytes from one to the next, from `offset`
    of the arena on. What is in C order is one pixel.
    """

    offset: Size
    pixels: Size
    channels: Size
    pitch: Size

    def __post_init__(self) -> None:
        require(self.channels <= self.pitch, f"{self.pitch} bytes for {self.channels} channels", "pitch")

    @property
    def nbytes(self) -> int:
        """Bytes from the first that counts to the last."""
        return (self.pixels - 1) * self.pitch + self.channels


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
    """

    toolchain: Mapping[str, str]
    chip: Annotated[str, pattern("gfx[0-9a-f]+")]
    image: Sequence[Slice]
    kernels: Sequence[KernelPlan]
    launches: Sequence[LaunchPlan]
    memory: Annotated[Mapping[str, Size], names("code", "weights", "arena", "live_peak", "margin")]
    buffers: Sequence[BufferPlan]
    inputs: Mapping[str, Size]
    outputs: Mapping[str, Size]
    tensors: Mapping[str, TensorPlan]

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
            pixels = math.prod(shape[2:]) if len(shape) == 4 else 1
            same = tensor.pixels in (1, pixels) and tensor.pixels * tensor.channels == size
            require(same, f"the graph has {size} elements in {pixels} pixels", "tensors", name)
            inside = tensor.offset + tensor.nbytes <= arena and tensor.pitch <= arena
            require(inside, f"it is outside of the arena of {arena} bytes", "tensors", name)

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

"""The plan that travels in a `.tow`: all that a host must know of a program to run it on a card.

Written by the target, read by the session. Reading trusts nothing: a plan comes from a file. The checks keep
the host safe and find damage; they cannot know what the code in the file does on the card.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdk.arena import BufferPlan, align
from sdk.errors import InvalidArtifact
from sdk.fields import activation, count, require, text
from sdk.graph import Graph

LIMIT = 2**31
"""No size of a plan reaches this."""
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
SPACES = ("arena", "weights")


@dataclass(frozen=True)
class Slice:
    """Bytes [offset, offset + size) of a code file are bytes `at` and following of the code image."""

    file: str
    offset: int
    size: int
    at: int


@dataclass(frozen=True)
class KernelPlan:
    """A kernel of the image.

    Attributes:
        entry: of its code, bytes from the image's start; a multiple of 256.
        rsrc1, rsrc2, rsrc3: COMPUTE_PGM_RSRC1 to 3, RSRC2 with LDS_SIZE.
        lds: bytes of a workgroup, for tables: RSRC2 says it to the card.
        scratch: bytes of a work-item.
        kernarg: bytes of the argument segment.
        threads: work-items of a workgroup; waves have 32.
    """

    name: str
    entry: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    lds: int
    scratch: int
    kernarg: int
    threads: int


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
    macs: int
    kernel: int
    groups: tuple[int, int, int]
    kernarg: bytes
    relocations: Sequence[tuple[int, str, int]]
    tensor: str | None
    weights: int


@dataclass(frozen=True)
class TensorPlan:
    """Where an activation is: `pixels` of `channels` bytes, `pitch` bytes from one to the next, from `offset`
    of the arena on. What is in C order is one pixel.
    """

    offset: int
    pixels: int
    channels: int
    pitch: int

    @property
    def nbytes(self) -> int:
        """Bytes from the first that counts to the last."""
        return (self.pixels - 1) * self.pitch + self.channels


@dataclass(frozen=True)
class CardPlan:
    """The whole plan.

    Attributes:
        toolchain: tool name -> version that made the code.
        chip: what the code is for, such as gfx1100.
        image: the pieces of the code image.
        memory: bytes by kind: code, weights, arena, live_peak, margin.
        inputs, outputs: offset in the arena of each, in C order, by tensor name.
        tensors: how each activation lies when it is complete, by tensor name.
    """

    toolchain: Mapping[str, str]
    chip: str
    image: Sequence[Slice]
    kernels: Sequence[KernelPlan]
    launches: Sequence[LaunchPlan]
    memory: Mapping[str, int]
    buffers: Sequence[BufferPlan]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    tensors: Mapping[str, TensorPlan]

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = dataclasses.asdict(self)
        document["buffers"] = [buffer.to_json() for buffer in self.buffers]
        for launch in document["launches"]:
            launch["kernarg"] = launch["kernarg"].hex()
            launch["groups"] = list(launch["groups"])
            launch["relocations"] = [list(relocation) for relocation in launch["relocations"]]
        return document

    @staticmethod
    def from_json(document: Any, graph: Graph, code: Mapping[str, bytes]) -> CardPlan:
        """Read the plan of a program with this graph and these code files.

        Raises:
            InvalidArtifact: a field is missing, ill-typed or out of range, or names what is not there.
        """
        try:
            plan = _read(document)
            _check(plan, graph, code)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
            raise InvalidArtifact(
                f"the plan is damaged: {type(problem).__name__}: {problem}", hint="compile the model again"
            ) from problem
        return plan


def _read(document: Any) -> CardPlan:
    return CardPlan(
        toolchain={text(tool): text(version) for tool, version in document["toolchain"].items()},
        chip=text(document["chip"]),
        image=[Slice(text(one["file"]), *_sizes(one, "offset", "size", "at")) for one in document["image"]],
        kernels=[
            KernelPlan(
                text(one["name"]),
                _size(one["entry"]),
                *(_word(one[name]) for name in ("rsrc1", "rsrc2", "rsrc3")),
                *_sizes(one, "lds", "scratch", "kernarg", "threads"),
            )
            for one in document["kernels"]
        ],
        launches=[_launch(one) for one in document["launches"]],
        memory={text(name): _size(size) for name, size in document["memory"].items()},
        buffers=[
            BufferPlan(text(one["name"]), *_sizes(one, "offset", "size", "first", "last"))
            for one in document["buffers"]
        ],
        inputs={text(name): _size(offset) for name, offset in document["inputs"].items()},
        outputs={text(name): _size(offset) for name, offset in document["outputs"].items()},
        tensors={
            text(name): TensorPlan(*_sizes(one, "offset", "pixels", "channels", "pitch"))
            for name, one in document["tensors"].items()
        },
    )


def _launch(one: Any) -> LaunchPlan:
    x, y, z = (_size(count) for count in one["groups"])
    return LaunchPlan(
        name=text(one["name"]),
        op=text(one["op"]),
        macs=count(one["macs"]),
        kernel=_size(one["kernel"]),
        groups=(x, y, z),
        kernarg=bytes.fromhex(text(one["kernarg"])),
        relocations=[
            (_size(offset), text(space), _size(addend)) for offset, space, addend in one["relocations"]
        ],
        tensor=None if one["tensor"] is None else text(one["tensor"]),
        weights=_size(one["weights"]),
    )


def _check(plan: CardPlan, graph: Graph, code: Mapping[str, bytes]) -> None:
    """Whether everything lies within what it is in, and nothing that the session reads is missing."""
    memory = plan.memory
    for name in ("code", "weights", "arena", "live_peak", "margin"):
        require(name in memory, f"memory.{name} is missing")
    require(memory["margin"] == MARGIN, f"a margin of {memory['margin']}")
    end = 0
    for piece in plan.image:
        require(piece.at == end, f"{piece.file} is not next to what is before it in the image")
        require(piece.offset + piece.size <= len(code[piece.file]), f"{piece.file} is too short")
        end += align(piece.size, ALIGNMENT)
    require(memory["code"] == end + PREFETCH, f"an image of {memory['code']} bytes for {end} of code")
    for kernel in plan.kernels:
        _check_kernel(kernel, end)
    for launch in plan.launches:
        _check_launch(launch, plan)
    for buffer in plan.buffers:
        require(buffer.offset + buffer.nbytes <= memory["arena"], f"{buffer.name} is outside of the arena")
    for names, places in ((graph.inputs, plan.inputs), (graph.outputs, plan.outputs)):
        require(set(names) == set(places), f"places of {sorted(places)}, not of {sorted(names)}")
        for name, offset in places.items():
            require(offset + activation(graph, name) <= memory["arena"], f"{name} is outside of the arena")
    for name, tensor in plan.tensors.items():
        require(tensor.pixels * tensor.channels == activation(graph, name), f"{name} has another size")
        require(tensor.channels <= tensor.pitch <= memory["arena"], f"{name} has a pitch of {tensor.pitch}")
        require(tensor.offset + tensor.nbytes <= memory["arena"], f"{name} is outside of the arena")
        shape = graph.tensors[name].shape
        require(
            tensor.pixels in (1, math.prod(shape[2:]) if len(shape) == 4 else 1),
            f"{name} has {tensor.pixels} pixels",
        )


def _check_kernel(kernel: KernelPlan, end: int) -> None:
    """Whether the card can be asked to run it; `end` is that of the code."""
    name = kernel.name
    require(kernel.entry < end, f"{name} is not in the image")
    require(kernel.entry % ALIGNMENT == 0, f"{name} starts at {kernel.entry}")
    require(1 <= kernel.threads <= 1024, f"{name} has {kernel.threads} work-items")
    require(kernel.kernarg < 1 << 16, f"{name} has {kernel.kernarg} bytes of arguments")
    require(kernel.scratch <= SCRATCH_LIMIT, f"{name} has {kernel.scratch} bytes of scratch memory")
    require(kernel.lds <= LDS_LIMIT, f"{name} has {kernel.lds} bytes of LDS")
    units = kernel.rsrc2 >> LDS_SHIFT & 0x1FF
    require(units == -(-kernel.lds // LDS_UNIT), f"{name} has {kernel.lds} bytes of LDS in {units} units")


def _check_launch(launch: LaunchPlan, plan: CardPlan) -> None:
    where, memory = f"launch {launch.name}", plan.memory
    require(len(launch.kernarg) <= plan.kernels[launch.kernel].kernarg, f"{where}: too many arguments")
    # Each workgroup writes something.
    require(1 <= math.prod(launch.groups) <= memory["arena"], f"{where}: {launch.groups} workgroups")
    require(launch.weights <= memory["weights"], f"{where}: more weights than there are")
    require(launch.tensor is None or launch.tensor in plan.tensors, f"{where}: {launch.tensor} has no place")
    for offset, space, addend in launch.relocations:
        require(space in SPACES, f"{where}: an address in {space}")
        require(offset % 8 == 0 and offset + 8 <= len(launch.kernarg), f"{where}: an address at {offset}")
        require(addend < memory[space], f"{where}: an address beyond the {space}")


def _word(value: Any) -> int:
    return count(value, 1 << 32)


def _size(value: Any) -> int:
    return count(value, LIMIT)


def _sizes(document: Any, *names: str) -> list[int]:
    return [_size(document[name]) for name in names]

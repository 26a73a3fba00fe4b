"""The plan that travels in a `.tow`: all that a host must know about an OpenCL program to run it.

Activations are texels: four channels of one pixel as CL_RGBA, CL_UNSIGNED_INT8. A tensor of channels x height
x width has blocks of four channels; block b of pixel (row h, column w) is the texel

    x = w + width * (b % fold)        y = h + height * (b // fold)

of its storage, an image. `fold` is a power of two, and 1 wherever all blocks fit below each other into the
limits of a6xx: kernels then increment only one coordinate. A tensor that is not a picture (any shape but
[1,C,H,W]) is one pixel with as many channels as elements. The channels that pad the last block may have any
value.

The source compiles in two forms:

=========== ============================================ ===============================================
argument    images (the default)                         buffers (-D ACTIVATIONS_BUFFER)
=========== ============================================ ===============================================
storage     image2d_t of width x height texels; a tensor a buffer of 4 * width * height bytes; a tensor
            is its upper left corner                     is its first bytes, its own width from one row
                                                         of texels to the next
weights     image2d_t, CL_RGBA and CL_SIGNED_INT8 or     a buffer of short4, whatever the dtype
            CL_SIGNED_INT16 by its dtype
tables      a buffer: the first `tables` bytes of Program.weights
memory      a buffer of bytes: inputs, outputs and plain tensors
offset      cl_int: bytes of the memory before it to the argument's first one
constants   cl_int: the same of the tables
int, float  cl_int, cl_float
words       a struct of 32-bit words
=========== ============================================ ===============================================

With dot products (`dsp.adreno.opencl.DOT_PRODUCTS`) images of storages, and of weights of kernels whose
constant `dots` is 1, are CL_R and CL_UNSIGNED_INT32, and buffers of such weights are of words: the same
bytes.

Inputs and outputs are in C order, quantised ones unsigned (`sdk.passes.flip_sign`). Plain tensors lie in
memories by steps along their axes (`sdk.opencl.views`), of which some are parts of others.

In either form no kernel accesses memory outside of its arguments, or reads a storage that it writes.

The dump for the contract tests is all storages, one after the other, the rows of each without a gap: bytes
[offset, offset + 4 * width * height) of an arena of memory["arena"] bytes, and then all memories. `buffers`
says where tensors are in it: `rows` of `size` bytes, `pitch` bytes from one to the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from sdk import dtypes
from sdk.codec import names, pattern, require, shown, within
from sdk.graph import Array, Graph
from sdk.opencl.context import STATUS_BYTES
from sdk.plan import LIMIT as LARGEST
from sdk.plan import Count, Plan, Size, activation_nbytes
from sdk.target import Program

SOURCE = "network.cl"
"""The code file."""

LIMIT = 16384
"""Texels of a row, and rows, of an image: CL_DEVICE_IMAGE2D_MAX_WIDTH and _HEIGHT of Adreno 630.

Grade: published (clinfo of Snapdragon 845 phones); PoCL reports the same.
"""

TEXEL = 4
"""Bytes of a texel, and channels."""

Extent = Annotated[int, within(1, LIMIT + 1)]
Items = Annotated[int, within(1, LARGEST)]
Identifier = Annotated[str, pattern("[A-Za-z_][A-Za-z0-9_]*")]
Word = Annotated[int, within(0, 1 << 32)]
Int32 = Annotated[int, within(-(1 << 31), 1 << 31)]

Argument = (
    tuple[Literal["storage", "weights"], Size]
    | tuple[Literal["tables", "constant_halves", "constant_floats"], Literal[0]]
    | tuple[Literal["memory", "halves", "floats"], Size]
    | tuple[Literal["offset", "constants"], Size]
    | tuple[Literal["int"], Int32]
    | tuple[Literal["float"], float]
    | tuple[Literal["words"], Sequence[Word]]
)
"""(kind, value): the number of a storage, of weights or of a memory, 0, bytes, or the value.
Halves and floats are images of texels of a memory, or of the tables."""


@dataclass(frozen=True)
class StoragePlan:
    """Memory of activations: an image.

    Attributes:
        offset: of the dumped arena.
        width, height: in texels.
    """

    offset: Size
    width: Extent
    height: Extent

    @property
    def nbytes(self) -> int:
        return TEXEL * self.width * self.height


@dataclass(frozen=True)
class WeightsPlan:
    """The weights of a layer: an image of texels, its rows in Program.weights from `offset` on without a gap.

    Attributes:
        dtype: of a texel's four numbers.
    """

    offset: Size
    width: Extent
    height: Extent
    dtype: Literal["int8", "int16"]

    @property
    def nbytes(self) -> int:
        """Bytes in Program.weights."""
        return TEXEL * np.dtype(self.dtype).itemsize * self.width * self.height


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in texels.

    Attributes:
        channels, height, width: of the picture.
        fold: blocks side by side.
    """

    channels: Items
    height: Items
    width: Items
    fold: Items

    def __post_init__(self) -> None:
        require(self.fold < 2 * self.blocks, f"{self.fold} of {self.blocks} blocks are side by side", "fold")

    @property
    def blocks(self) -> int:
        return -(-self.channels // TEXEL)

    @property
    def folds(self) -> int:
        """Rows of blocks."""
        return -(-self.blocks // self.fold)

    @property
    def columns(self) -> int:
        """Texels of a row."""
        return self.width * self.fold

    @property
    def rows(self) -> int:
        return self.height * self.folds

    @property
    def nbytes(self) -> int:
        """Bytes of all its texels."""
        return TEXEL * self.columns * self.rows

    def unpack(self, texels: Array) -> Array:
        """uint8 [rows, columns, 4] -> [channels, height, width]."""
        apart = texels.reshape(self.folds, self.height, self.fold, self.width, TEXEL)
        blocks = apart.transpose(0, 2, 4, 1, 3).reshape(-1, self.height, self.width)
        return np.ascontiguousarray(blocks[: self.channels])


@dataclass(frozen=True)
class TensorPlan:
    """Where an activation is, from the step that completes it to the last that reads it."""

    storage: Size
    layout: Layout


@dataclass(frozen=True)
class MemoryPlan:
    """Memory of inputs, outputs and plain tensors: a buffer.

    Attributes:
        offset: of the dumped arena.
    """

    offset: Size
    nbytes: Size


@dataclass(frozen=True)
class PlacePlan:
    """Where a plain tensor, an input or an output is.

    Attributes:
        memory: its number.
        offset: bytes to the first element.
        steps: elements from one to the next along each axis.
    """

    memory: Size
    offset: Size
    steps: Sequence[Annotated[int, within(-LARGEST, LARGEST)]]


@dataclass(frozen=True)
class RowsPlan:
    """A tensor's texels in the dumped arena: `rows` of `size` bytes, `pitch` apart, from `offset` on.

    Attributes:
        first, last: the steps between which it lives.
    """

    name: str
    offset: Size
    size: Size
    rows: Items
    pitch: Size
    first: Size
    last: Size


@dataclass(frozen=True)
class KernelPlan:
    """A kernel of the program.

    Attributes:
        function: of kernels/*.cl that it calls; "gather" is generated whole.
        constants: arguments of that function that are the same in all launches.
    """

    name: Identifier
    function: Identifier
    constants: Mapping[str, Int32]


@dataclass(frozen=True)
class StepPlan:
    """A launch.

    Attributes:
        name: of the node whose output it makes, or of the tensor that it converts.
        op: what tables call it: the operator, "Conv+Add", or "Layout".
        nodes: names of all nodes that it computes.
        macs: of those.
        kernel: its number.
        items: work-items that have something to do, in x, y, z.
        local: of a work-group, as it is best on a6xx; the NDRange is `items` rounded up to it.
        fixed: whether the kernel depends on it; else a device that does not support it may use any other.
        reason: why that size.
        trips: iterations of the inner loop of one work-item; 0 if unknown.
        arguments: in the order of the kernel's.
        tensors: names of the activations that are complete after it.
    """

    name: str
    op: str
    nodes: Sequence[str]
    macs: Count
    kernel: Size
    items: tuple[Items, Items, Items]
    local: tuple[Items, Items, Items]
    reason: str
    fixed: bool
    trips: Size
    arguments: Sequence[Argument]
    tensors: Sequence[str]

    def __post_init__(self) -> None:
        require(math.prod(self.range) < LARGEST, f"{self.items} are too many work-items", "items")

    @property
    def range(self) -> tuple[int, int, int]:
        """The NDRange's global size with `local`."""
        x, y, z = (-(-n // size) * size for n, size in zip(self.items, self.local, strict=True))
        return x, y, z


@dataclass(frozen=True)
class AdrenoPlan(Plan):
    """The whole plan.

    Attributes:
        memory: bytes by kind: weights, arena (all storages), live_peak (of the texels alive at once).
        tables: bytes of Program.weights, from its start, that hold tables.
        tensors: of all activations in texels, by name.
        places: of all plain activations, by name.
        inputs, outputs: of the network.
        states: pairs (output, input) that change places from one step to the next: each is a memory.
        precision: what floats are computed in (`sdk.reference.expect`).
        status: the memory to which launches write the number of a step, from 1 on, and an index that is out
            of range; None if none can. It begins as zeros.
    """

    memory: Annotated[Mapping[str, Size], names("weights", "arena", "live_peak")]
    tables: Size
    storages: Sequence[StoragePlan]
    weights: Sequence[WeightsPlan]
    tensors: Mapping[str, TensorPlan]
    memories: Sequence[MemoryPlan]
    places: Mapping[str, PlacePlan]
    inputs: Mapping[str, PlacePlan]
    outputs: Mapping[str, PlacePlan]
    states: Sequence[tuple[str, str]]
    precision: Literal["float32", "half sums"]
    status: Size | None
    buffers: Sequence[RowsPlan]
    kernels: Sequence[KernelPlan]
    steps: Sequence[StepPlan]

    @property
    def largest_image(self) -> tuple[int, int]:
        """The fewest texels of a row, and rows, that a device's images must have."""
        images = [(one.width, one.height) for one in self.storages]
        images += [(one.width, one.height) for one in self.weights]
        return max((width for width, _ in images), default=0), max(
            (height for _, height in images), default=0
        )

    def swapped(self, memory: int) -> int:
        """The memory in whose place this one is in every other step."""
        for output, given in self.states:
            a, b = self.outputs[output].memory, self.inputs[given].memory
            if memory in (a, b):
                return b if memory == a else a
        return memory

    def check(self, program: Program) -> None:
        graph, weights = program.graph, self.memory["weights"]
        require(SOURCE in program.code, f"there is no code file {SOURCE}")
        require(self.tables <= weights, f"{self.tables} exceeds the {weights} bytes of weights", "tables")
        end = 0
        for number, storage in enumerate(self.storages):
            require(
                storage.offset == end, f"the storage before it ends at {end}", "storages", number, "offset"
            )
            end += storage.nbytes
        for number, memory in enumerate(self.memories):
            require(memory.offset == end, f"what is before it ends at {end}", "memories", number, "offset")
            end += memory.nbytes
        require(0 < end == self.memory["arena"], f"they have {end} bytes, not the arena's", "memories")
        for number, one in enumerate(self.weights):
            inside = one.offset + one.nbytes <= weights
            require(inside, f"it is outside of the {weights} bytes of weights", "weights", number)
        for name, tensor in self.tensors.items():
            self._check_tensor(graph, name, tensor)
        for number, buffer in enumerate(self.buffers):
            last = buffer.offset + (buffer.rows - 1) * buffer.pitch + buffer.size
            require(last <= end, f"it is outside of the arena of {end} bytes", "buffers", number)
        for number, step in enumerate(self.steps):
            self._check_step(step, number)
        for what, names_, held in (
            ("inputs", graph.inputs, self.inputs),
            ("outputs", graph.outputs, self.outputs),
        ):
            require(set(names_) == held.keys(), "some are missing, or are other tensors", what)
        for what, places in (("inputs", self.inputs), ("outputs", self.outputs), ("places", self.places)):
            for name, place in places.items():
                self._check_place(graph, name, place, what)
        for pair in self.states:
            require(
                pair[0] in self.outputs and pair[1] in self.inputs, f"{pair} are not tensors of it", "states"
            )
        if self.status is not None:
            inside = self.status < len(self.memories) and self.memories[self.status].nbytes >= STATUS_BYTES
            require(inside, "there is no such memory", "status")

    def _check_tensor(self, graph: Graph, name: str, tensor: TensorPlan) -> None:
        layout, number = tensor.layout, tensor.storage
        size = activation_nbytes(graph, name, "tensors")
        held = layout.channels * layout.height * layout.width
        require(size == held, f"it has {held} elements, the tensor {size}", "tensors", name, "layout")
        require(number < len(self.storages), f"there is no storage {number}", "tensors", name, "storage")
        storage = self.storages[number]
        inside = layout.columns <= storage.width and layout.rows <= storage.height
        require(inside, f"it is outside of storage {number}", "tensors", name)

    def _check_place(self, graph: Graph, name: str, place: PlacePlan, what: str) -> None:
        require(name in graph.tensors, "the graph has no such tensor", what, name)
        require(place.memory < len(self.memories), f"there is no memory {place.memory}", what, name)
        tensor = graph.tensor(name)
        require(len(place.steps) == len(tensor.shape), f"the tensor has {len(tensor.shape)} axes", what, name)
        itemsize = dtypes.dtype(tensor.dtype).nbytes
        before = itemsize * sum((n - 1) * min(s, 0) for n, s in zip(tensor.shape, place.steps, strict=True))
        after = itemsize * sum((n - 1) * max(s, 0) for n, s in zip(tensor.shape, place.steps, strict=True))
        inside = place.offset + before >= 0 and (
            place.offset + after + itemsize <= self.memories[place.memory].nbytes or 0 in tensor.shape
        )
        require(inside, f"it is outside of memory {place.memory}", what, name)

    def _check_step(self, step: StepPlan, number: int) -> None:
        require(
            step.kernel < len(self.kernels), f"there is no kernel {step.kernel}", "steps", number, "kernel"
        )
        missing = set(step.tensors) - self.tensors.keys() - self.places.keys()
        require(not missing, f"{shown(missing)} have no place", "steps", number, "tensors")
        held = {"storage": len(self.storages), "weights": len(self.weights), "memory": len(self.memories)}
        held |= dict.fromkeys(("halves", "floats"), len(self.memories))
        for place, (kind, value) in enumerate(step.arguments):
            exists = kind not in held or (isinstance(value, int) and value < held[kind])
            require(exists, f"there is no {kind} {value}", "steps", number, "arguments", place)

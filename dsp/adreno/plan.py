"""The plan that travels in a `.tow`: all that a host must know about an OpenCL program to run it.

Written by the target, read by the runtime. Reading trusts nothing: a plan comes from a file.

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
input       a buffer of the tensor's bytes as ONNX has them, unsigned (`sdk.passes.flip_sign`)
output      the same, written
int, float  cl_int, cl_float
=========== ============================================ ===============================================

In either form no kernel accesses memory outside of its arguments, or reads a storage that it writes.

The dump for the contract tests is all storages, one after the other, the rows of each without a gap: bytes
[offset, offset + 4 * width * height) of an arena of memory["arena"] bytes. `buffers` says where tensors are
in it: `rows` of `size` bytes, `pitch` bytes from one to the next.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk.errors import InvalidArtifact
from sdk.fields import activation, count, integer, require, text
from sdk.graph import Array, Graph
from sdk.target import Program

SOURCE = "network.cl"
"""The code file."""

LIMIT = 16384
"""Texels of a row, and rows, of an image: CL_DEVICE_IMAGE2D_MAX_WIDTH and _HEIGHT of Adreno 630.

Grade: published (clinfo of Snapdragon 845 phones); PoCL reports the same.
"""

TEXEL = 4
"""Bytes of a texel, and channels."""

MEMORY = ("weights", "arena", "live_peak")
LARGEST = 2**31
"""All sizes of a plan are below this."""

Argument = tuple[str, int | float | str]
"""(kind, value): "storage", its number; "weights", their number; "tables", 0; "input" or "output", the name
of a tensor; "int" or "float", the value."""


@dataclass(frozen=True)
class StoragePlan:
    """Memory of activations: an image.

    Attributes:
        offset: of the dumped arena.
        width, height: in texels.
    """

    offset: int
    width: int
    height: int


@dataclass(frozen=True)
class WeightsPlan:
    """The weights of a layer: an image of texels, its rows in Program.weights from `offset` on without a gap.

    Attributes:
        dtype: of a texel's four numbers: int8 or int16.
    """

    offset: int
    width: int
    height: int
    dtype: str

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

    channels: int
    height: int
    width: int
    fold: int

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

    storage: int
    layout: Layout


@dataclass(frozen=True)
class RowsPlan:
    """A tensor's texels in the dumped arena: `rows` of `size` bytes, `pitch` apart, from `offset` on.

    Attributes:
        first, last: the steps between which it lives.
    """

    name: str
    offset: int
    size: int
    rows: int
    pitch: int
    first: int
    last: int


@dataclass(frozen=True)
class KernelPlan:
    """A kernel of the program.

    Attributes:
        function: of kernels/*.cl that it calls; "gather" is generated whole.
        constants: arguments of that function that are the same in all launches.
    """

    name: str
    function: str
    constants: Mapping[str, int]


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
        local: of a work-group, as it is best on a6xx; the NDRange is `items` rounded up to it. Kernels do
            not depend on it: a device that does not support it may use any other.
        reason: why that size.
        trips: iterations of the inner loop of one work-item; 0 if unknown.
        arguments: in the order of the kernel's.
        tensors: names of the activations that are complete after it.
    """

    name: str
    op: str
    nodes: Sequence[str]
    macs: int
    kernel: int
    items: tuple[int, int, int]
    local: tuple[int, int, int]
    reason: str
    trips: int
    arguments: Sequence[Argument]
    tensors: Sequence[str]

    @property
    def range(self) -> tuple[int, int, int]:
        """The NDRange's global size with `local`."""
        x, y, z = (-(-n // size) * size for n, size in zip(self.items, self.local, strict=True))
        return x, y, z


@dataclass(frozen=True)
class AdrenoPlan:
    """The whole plan.

    Attributes:
        memory: bytes by kind: weights, arena (all storages), live_peak (of the texels alive at once).
        tables: bytes of Program.weights, from its start, that hold tables.
        tensors: of all activations in memory, by name.
        source: the program.
    """

    memory: Mapping[str, int]
    tables: int
    storages: Sequence[StoragePlan]
    weights: Sequence[WeightsPlan]
    tensors: Mapping[str, TensorPlan]
    buffers: Sequence[RowsPlan]
    kernels: Sequence[KernelPlan]
    steps: Sequence[StepPlan]
    source: bytes

    @property
    def largest_image(self) -> tuple[int, int]:
        """The fewest texels of a row, and rows, that a device's images must have."""
        images = [(one.width, one.height) for one in self.storages]
        images += [(one.width, one.height) for one in self.weights]
        return max(width for width, _ in images), max(height for _, height in images)

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = dataclasses.asdict(self)
        del document["source"]
        for step in document["steps"]:
            step |= {name: list(step[name]) for name in ("nodes", "items", "local", "tensors")}
            step["arguments"] = [list(argument) for argument in step["arguments"]]
        return document

    @staticmethod
    def of(program: Program) -> AdrenoPlan:
        """The plan of a program, checked against its graph, weights and code.

        Raises:
            InvalidArtifact: something is missing, ill-typed or out of range, or names what does not exist.
        """
        try:
            plan = _read(program.plan, program.code[SOURCE])
            _check(plan, program.graph, len(program.weights))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
            raise InvalidArtifact(
                f"the plan is damaged: {type(problem).__name__}: {problem}", hint="compile the model again"
            ) from problem
        return plan


def _read(document: Any, source: bytes) -> AdrenoPlan:
    return AdrenoPlan(
        memory={text(name): _size(size) for name, size in document["memory"].items()},
        tables=_size(document["tables"]),
        storages=[StoragePlan(*_sizes(one, "offset", "width", "height")) for one in document["storages"]],
        weights=[
            WeightsPlan(_size(one["offset"]), _size(one["width"]), _size(one["height"]), text(one["dtype"]))
            for one in document["weights"]
        ],
        tensors={
            text(name): TensorPlan(
                _size(one["storage"]),
                Layout(*_sizes(one["layout"], "channels", "height", "width", "fold")),
            )
            for name, one in document["tensors"].items()
        },
        buffers=[
            RowsPlan(text(one["name"]), *_sizes(one, "offset", "size", "rows", "pitch", "first", "last"))
            for one in document["buffers"]
        ],
        kernels=[
            KernelPlan(
                text(one["name"]),
                text(one["function"]),
                {text(name): integer(value) for name, value in one["constants"].items()},
            )
            for one in document["kernels"]
        ],
        steps=[_step(one) for one in document["steps"]],
        source=source,
    )


def _step(one: Any) -> StepPlan:
    x, y, z = (_size(count) for count in one["items"])
    i, j, k = (_size(count) for count in one["local"])
    return StepPlan(
        name=text(one["name"]),
        op=text(one["op"]),
        nodes=[text(name) for name in one["nodes"]],
        macs=_size(one["macs"], 1 << 63),
        kernel=_size(one["kernel"]),
        items=(x, y, z),
        local=(i, j, k),
        reason=text(one["reason"]),
        trips=_size(one["trips"]),
        arguments=[_argument(*argument) for argument in one["arguments"]],
        tensors=[text(name) for name in one["tensors"]],
    )


def _argument(kind: Any, value: Any) -> Argument:
    match kind:
        case "storage" | "weights" | "tables":
            return kind, _size(value)
        case "input" | "output":
            return kind, text(value)
        case "int":
            return kind, integer(value)
        case "float":
            if not isinstance(value, float) or not math.isfinite(value):
                raise ValueError(f"{value!r} is not a finite float")
            return kind, value
    raise ValueError(f"an argument of kind {kind!r}")


def _check(plan: AdrenoPlan, graph: Graph, weights: int) -> None:
    """Whether everything lies within what it is in, and nothing that the runtime reads is missing."""
    for name in MEMORY:
        require(name in plan.memory, f"memory.{name} is missing")
    require(weights == plan.memory["weights"], "the weights are incomplete")
    require(plan.tables <= weights, "the tables are incomplete")
    require(bool(plan.storages), "there are no storages")
    end = 0
    for storage in plan.storages:
        require(
            1 <= storage.width <= LIMIT and 1 <= storage.height <= LIMIT, "a storage does not fit an image"
        )
        require(storage.offset == end, "a storage is not next to the one before it")
        end += TEXEL * storage.width * storage.height
    require(end == plan.memory["arena"], f"storages of {end} bytes")
    for one in plan.weights:
        require(one.dtype in ("int8", "int16"), f"weights of {one.dtype}")
        require(1 <= one.width <= LIMIT and 1 <= one.height <= LIMIT, "weights do not fit an image")
        require(plan.tables <= one.offset <= one.offset + one.nbytes <= weights, "weights are incomplete")
    for name, tensor in plan.tensors.items():
        _check_tensor(plan, graph, name, tensor)
    for buffer in plan.buffers:
        last = buffer.offset + (buffer.rows - 1) * buffer.pitch + buffer.size
        require(buffer.rows >= 1 and last <= end, f"{buffer.name} is outside of the arena")
    for step in plan.steps:
        _check_step(step, plan, graph)
    written = {value for step in plan.steps for kind, value in step.arguments if kind in ("input", "output")}
    require(written == {*graph.inputs, *graph.outputs}, "inputs or outputs are missing")


def _check_tensor(plan: AdrenoPlan, graph: Graph, name: str, tensor: TensorPlan) -> None:
    layout, storage = tensor.layout, plan.storages[tensor.storage]
    size = layout.channels * layout.height * layout.width
    require(size == activation(graph, name), f"{name} has another size")
    require(1 <= layout.fold < 2 * layout.blocks, f"{name} is folded at {layout.fold}")
    within = layout.columns <= storage.width and layout.rows <= storage.height
    require(within, f"{name} is outside of its storage")


def _check_step(step: StepPlan, plan: AdrenoPlan, graph: Graph) -> None:
    where = f"step {step.name}"
    require(step.kernel < len(plan.kernels), f"{where}: no such kernel")
    require(min(*step.items, *step.local) >= 1, f"{where}: {step.items} work-items")
    require(math.prod(step.range) < LARGEST, f"{where}: {step.items} work-items")
    for name in step.tensors:
        require(name in plan.tensors, f"{where}: {name} has no place")
    for kind, value in step.arguments:
        match kind, value:
            case "storage", int(number):
                require(number < len(plan.storages), f"{where}: no storage {number}")
            case "weights", int(number):
                require(number < len(plan.weights), f"{where}: no weights {number}")
            case "int", int(number):
                require(-LARGEST <= number < LARGEST, f"{where}: {number} is not an int of 32 bits")
            case "input" | "output", str(name):
                activation(graph, name)


def _size(value: Any, limit: int = LARGEST) -> int:
    return count(value, limit)


def _sizes(document: Any, *names: str) -> list[int]:
    return [_size(document[name]) for name in names]

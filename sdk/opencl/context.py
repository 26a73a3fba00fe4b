"""What the lowerings of plain tensors share: where tensors are, and the launches so far.

Offsets stay symbolic until memory is planned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from sdk import arena, dtypes
from sdk.arena import Blob, Buffer
from sdk.errors import InternalError
from sdk.graph import Array, Graph, Node, Tensor
from sdk.opencl.calls import At, Call, KernelSource, Pointer, Weights, Words
from sdk.opencl.views import View, channels_last_steps, dense_steps

PIECE = 16
"""Bytes that a pixel of a plain tensor with its channels innermost is a multiple of: of one load."""

TENSOR_LIMIT = 1 << 30
"""Bytes of a tensor as it lies in memory: offsets in kernels have 32 bits."""

STATUS_BYTES = 8
"""Of the two words that launches write an index out of range to."""


class PlainContext(ABC):
    """A network on its way into launches.

    Attributes:
        blob: constants so far, in the order in which launches read them.
        made: how each tensor lies that a launch completes.
        views: plain tensors that are there, by name.
        placed: plain tensors that are made as parts of others: of which, along which axis, from where on.
        channels_last: plain tensors [N,C,H,W] that are made with their channels innermost.
        stored: where plain tensors belong that have a place already: the results of a step.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.blob = Blob()
        self.calls: list[Call] = []
        self.buffers: list[Buffer] = []
        self.made: dict[str, View] = {}
        self.views: dict[str, View] = {}
        self.placed: dict[str, tuple[str, int, int]] = {}
        self.channels_last: set[str] = set()
        self.stored: dict[str, View] = {}
        self._status: list[View] = []
        self._inner = False

    def inner(self, body: Graph) -> Self:
        """The context of a graph within this one: its launches are parts of one of the network's nodes."""
        found = self._for(body)
        found.blob, found.calls, found.buffers = self.blob, self.calls, self.buffers
        found._status = self._status
        found._inner = True
        return found

    @abstractmethod
    def _for(self, body: Graph) -> Self:
        """A context of the same kind."""

    # -- where tensors are ------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The number of the next launch."""
        return len(self.calls)

    def buffer(self, name: str, nbytes: int) -> At:
        buffer = Buffer(name, arena.align(nbytes), self.now, self.now)
        self.buffers.append(buffer)
        return At(buffer)

    def view(self, name: str) -> View:
        """A tensor as it lies: plain, quantised or constant."""
        tensor = self.graph.tensor(name)
        if name in self.views:
            return self.views[name]
        if tensor.data is not None:
            return self.constant_view(tensor.data, tensor.dtype)
        return self._quantised_view(tensor)

    def _quantised_view(self, tensor: Tensor) -> View:
        """A quantised tensor as it lies."""
        raise InternalError(f"{tensor.name} is not there")

    def _new_quantised_view(self, tensor: Tensor) -> View:
        """Room for a quantised tensor that launches store element by element."""
        raise InternalError(f"no room for the quantised tensor {tensor.name}")

    def new_view(self, tensor: Tensor) -> View:
        """Room for a tensor that launches store element by element."""
        if tensor.quantization is not None:
            return self._new_quantised_view(tensor)
        if tensor.name in self.stored:
            made = self.stored[tensor.name]
        elif tensor.name in self.placed:
            outer, axis, start = self.placed[tensor.name]
            whole = self.views.get(outer) or self.new_view(self.graph.tensor(outer))
            starts = [start if one == axis else 0 for one in range(len(tensor.shape))]
            made = whole.sliced(starts, (1,) * len(starts), tensor.shape)
        else:
            steps, elements = dense_steps(tensor.shape), tensor.size
            if tensor.name in self.channels_last:
                pitch = arena.align(tensor.shape[1], PIECE // dtypes.dtype(tensor.dtype).nbytes)
                steps = channels_last_steps(tensor.shape, pitch)
                elements = tensor.size // tensor.shape[1] * pitch
            at = self.buffer(tensor.name, max(elements, 1) * dtypes.dtype(tensor.dtype).nbytes)
            made = View(at, tensor.shape, steps, tensor.dtype)
        self.views[tensor.name] = made
        return made

    def status(self) -> View:
        """Two words that launches write an index out of range to; the host clears them before each run."""
        if not self._status:
            buffer = Buffer("status", arena.align(STATUS_BYTES), 0, 0)
            self.buffers.append(buffer)
            self._status.append(View(At(buffer), (2,), (1,), "int32"))
        return self._status[0]

    @property
    def status_at(self) -> At | None:
        at = self._status[0].at if self._status else None
        return at if isinstance(at, At) else None

    def alias(self, name: str, view: View) -> None:
        """A plain tensor whose elements are there already."""
        self.views[name] = view

    def constant_view(self, array: Array, dtype: str | None = None) -> View:
        return View(self.constant(array), array.shape, dense_steps(array.shape), dtype or array.dtype.name)

    # -- launches ---------------------------------------------------------------------------------------

    def append(self, call: Call) -> None:
        for pointer in call.pointers:
            if isinstance(pointer, At):
                pointer.buffer.last = max(pointer.buffer.last, self.now)
        self.calls.append(call)

    def emit(
        self,
        node: Node,
        op: str,
        kernel: KernelSource,
        groups: tuple[int, int],
        pointers: Sequence[Pointer],
        words: Words,
        work: int = 0,
        complete: bool = True,
    ) -> None:
        """Append a launch of the node whose output it makes."""
        complete = complete and not self._inner
        tensor = node.output if complete else None
        reads = self.blob.nbytes if any(isinstance(pointer, Weights) for pointer in pointers) else 0
        self.append(Call(node.name, op, kernel, groups, pointers, words, work, tensor, reads))
        if complete:
            self.made[node.output] = self.view(node.output)

    def complete(self, node: Node) -> None:
        """The node's output is there after the launch before."""
        if not self._inner:
            self.calls[-1].tensor = node.output
            self.made[node.output] = self.view(node.output)

    # -- constants --------------------------------------------------------------------------------------

    def constant(self, array: Array) -> Weights:
        return Weights(self.blob.add(array))

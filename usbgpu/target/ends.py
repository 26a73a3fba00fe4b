"""Inputs and outputs in a card's arena: where they lie, and the bytes that they are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sdk.arena import align
from sdk.dtypes import storage
from sdk.errors import InvalidInput
from sdk.graph import Array, Graph, Tensor
from sdk.passes import from_unsigned, to_unsigned
from usbgpu.target.plan import STATUS_BYTES, CardPlan


@dataclass(frozen=True)
class Pieces:
    """What was read of the arena: offsets, and the bytes from there on."""

    parts: Sequence[tuple[int, bytes]]

    def at(self, offset: int, size: int) -> bytes:
        start, data = next(part for part in self.parts if 0 <= offset - part[0] <= len(part[1]) - size)
        return data[offset - start : offset - start + size]


class Ends:
    """The inputs, outputs and status of a program.

    `swapped` says whether states and next states have changed places.
    """

    def __init__(self, graph: Graph, plan: CardPlan) -> None:
        self._graph = graph
        self._plan = plan

    def place(self, name: str, swapped: bool) -> tuple[int, int]:
        """Offset and size of an input or output."""
        plan = self._plan
        offset = plan.inputs[name] if name in plan.inputs else plan.outputs[name]
        return plan.swapped(self._graph, offset) if swapped else offset, self._graph.tensor(name).nbytes

    def spans(self, outputs: Sequence[str], swapped: bool) -> list[tuple[int, int]]:
        """Ranges [start, end) that have these outputs and the status."""
        status = [] if self._plan.status is None else [(self._plan.status, STATUS_BYTES)]
        return _joined([*status, *(self.place(name, swapped) for name in outputs)])

    def encode(self, arrays: Mapping[str, Array], swapped: bool) -> list[tuple[int, bytes]]:
        """What inputs and status become: offsets and bytes, in as few pieces as possible."""
        parts = {}
        for name, array in arrays.items():
            tensor = self._graph.tensor(name)
            data = np.ascontiguousarray(array).tobytes()
            if tensor.quantization is not None:
                data = to_unsigned(array, tensor)
            parts[self.place(name, swapped)[0]] = data
        if self._plan.status is not None:
            parts[self._plan.status] = bytes(STATUS_BYTES)
        pieces = []
        for start, end in _joined((offset, len(data)) for offset, data in parts.items()):
            piece = bytearray(end - start)
            for offset, data in parts.items():
                if start <= offset < end:
                    piece[offset - start : offset - start + len(data)] = data
            pieces.append((start, bytes(piece)))
        return pieces

    def decode(self, read: Pieces, outputs: Sequence[str], swapped: bool) -> dict[str, Array]:
        """The outputs by name.

        Raises:
            InvalidInput: the status says that an index was out of range.
        """
        if self._plan.status is not None:
            number, index = np.frombuffer(read.at(self._plan.status, STATUS_BYTES), "<i4").tolist()
            if number:
                launches = self._plan.launches
                name = launches[number - 1].name if number <= len(launches) else "unknown"
                raise InvalidInput(f"index {index} is out of range", where=f"node {name}")
        return {
            name: decoded(read.at(*self.place(name, swapped)), self._graph.tensor(name)) for name in outputs
        }


def decoded(data: bytes, tensor: Tensor) -> Array:
    """A tensor whose elements follow each other."""
    if tensor.quantization is not None:
        return from_unsigned(data, tensor)
    return np.frombuffer(data, storage(tensor.dtype)).reshape(tensor.shape)


def _joined(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges [start, end) that have these places, offset and size: neighbours are one range.

    What is between neighbours fills the first one up to its alignment.
    """
    found: list[tuple[int, int]] = []
    for offset, size in sorted(places):
        if found and offset <= align(found[-1][1]):
            start, end = found[-1]
            found[-1] = start, max(end, offset + size)
        else:
            found.append((offset, offset + size))
    return found

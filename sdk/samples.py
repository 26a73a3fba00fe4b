"""Files of arrays as the inputs of single inferences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sdk.array_files import StoredArray, open_arrays
from sdk.errors import InvalidInput
from sdk.graph import Array, Tensor


@dataclass(frozen=True)
class Sample:
    """The inputs of one inference, and where they came from."""

    name: str
    feeds: Mapping[str, Array]


ARRAY_SUFFIXES = (".npy", ".npz")

UNNAMED = ("", "arr_0")
"""The only array of an .npy, and of an .npz that was saved without names (`numpy.savez(file, array)`)."""


def arrays(
    path: str, inputs: Mapping[str, Tensor], quantized: Mapping[str, Tensor] | None = None
) -> Iterator[Sample]:
    """The inferences that a file of arrays is for: as many as they hold along their first axes.

    Args:
        path: an .npy or .npz.
        inputs: what the network takes, by name.
        quantized: what may be given in their place.

    Raises:
        InvalidInput: it cannot be read, or its arrays are not the network's by name or shape.
    """
    tensors = {**inputs, **(quantized or {})}
    found = open_arrays(path)
    if len(inputs) == 1 and len(found) == 1 and next(iter(found)) in UNNAMED:
        (array,) = found.values()
        fitting = [name for name, tensor in tensors.items() if tensor.dtype == array.dtype.name]
        found = {(fitting or list(tensors))[0]: array}
    if not found or not found.keys() <= tensors.keys():
        raise _misnamed(found, path, inputs, quantized or {})
    counts = {name: _count(array, tensors[name], path) for name, array in found.items()}
    if len(set(counts.values())) != 1:
        raise InvalidInput(f"its arrays hold different numbers of samples: {counts}", where=path)
    count = next(iter(counts.values()))
    streams = [array.parts(tensors[name].shape[0]) for name, array in found.items()]
    for index, parts in enumerate(zip(*streams, strict=True)):
        feeds = {name: np.ascontiguousarray(part) for name, part in zip(found, parts, strict=True)}
        yield Sample(path if count == 1 else f"{path}[{index}]", feeds)


def _misnamed(
    found: Iterable[str], path: str, inputs: Mapping[str, Tensor], quantized: Mapping[str, Tensor]
) -> InvalidInput:
    held = ", ".join("one without a name" if name in UNNAMED else repr(name) for name in found)
    instead = ", ".join(repr(name) for name in quantized if name not in inputs)
    expected = ", ".join(map(repr, inputs)) + (f", or quantised {instead}" if instead else "")
    return InvalidInput(
        f"its arrays are not named as the network's inputs: it holds {held or 'no array'}; "
        f"expected {expected}",
        where=path,
        hint=f"numpy.savez(FILE, **{{{next(iter(inputs))!r}: ARRAY}}) gives an array its name",
    )


def _count(array: StoredArray, tensor: Tensor, path: str) -> int:
    """How many inferences an array holds along its first axis."""
    name, shape = tensor.name, tensor.shape
    whole = len(array.shape) == len(shape) > 0 and array.shape[1:] == shape[1:]
    if not whole or array.shape[0] == 0 or array.shape[0] % shape[0]:
        raise InvalidInput(
            f"the array for {name} has shape {list(array.shape)}; the network takes {list(shape)}",
            where=path,
            hint="several samples are stacked along the first axis",
        )
    return array.shape[0] // shape[0]

"""Files given to `towline run` and `debug`: inputs of single inferences, and the names of classes."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sdk.errors import InternalError, InvalidInput, UsageError

if TYPE_CHECKING:
    from sdk.graph import Array, Graph, Tensor
    from sdk.session import Session


@dataclass(frozen=True)
class Sample:
    """The inputs of one inference, and where they came from."""

    name: str
    feeds: Mapping[str, Array]


ARRAY_SUFFIXES = (".npy", ".npz")

UNNAMED = ("", "arr_0")
"""The only array of an .npy, and of an .npz that was saved without names (`numpy.savez(file, array)`)."""


def add_network_and_inputs(parser: argparse.ArgumentParser) -> None:
    """Declare NET.tow, FILE ... and --input; `given` has the files of both."""
    parser.add_argument("network", metavar="NET.tow", help="the compiled network")
    parser.add_argument(
        "files",
        nargs="*",
        default=[],
        metavar="FILE",
        help="inputs: pictures, or .npy and .npz files of arrays as the network takes them",
    )
    parser.add_argument(
        "--input", nargs="+", action="extend", default=[], metavar="FILE", help="the same, as an option"
    )


def given(args: argparse.Namespace) -> list[str]:
    """The inputs of the command line.

    Raises:
        UsageError: no input was given.
    """
    paths = [*args.files, *args.input]
    if not paths:
        raise UsageError(
            "no input was given",
            hint=f"name pictures or arrays behind the network: {args.parser.prog} {args.network} cat.jpg; "
            f"see `{args.parser.prog} --help`",
        )
    return paths


def require_inputs(paths: Sequence[str]) -> None:
    """Refuse files that are not there, or of no known kind, before any of them is run.

    Raises:
        UsageError: naming the first.
    """
    from sdk.calibration import PICTURE_SUFFIXES

    for path in paths:
        if not Path(path).is_file():
            raise UsageError("no such file", where=path)
        if Path(path).suffix.lower() not in (*PICTURE_SUFFIXES, *ARRAY_SUFFIXES):
            raise UsageError(
                "is neither a picture nor arrays by its suffix",
                where=path,
                hint=f"pictures: {', '.join(sorted(PICTURE_SUFFIXES))}; arrays: {', '.join(ARRAY_SUFFIXES)}",
            )


def samples(session: Session, paths: Sequence[str]) -> Iterator[Sample]:
    """One sample for a picture; as many as the arrays hold for an .npy or .npz.

    Args:
        session: the network.
        paths: files that `require_inputs` accepted.

    Raises:
        InvalidInput: a file that cannot be read, or does not fit the network.
    """
    from sdk.calibration import PICTURE_SUFFIXES

    for path in paths:
        suffix = Path(path).suffix.lower()
        if suffix in PICTURE_SUFFIXES:
            yield Sample(path, session.prepare(path))
        elif suffix in ARRAY_SUFFIXES:
            yield from _arrays(session, path)
        else:
            raise InternalError("an input that was not checked", where=path)


def _arrays(session: Session, path: str) -> Iterator[Sample]:
    import numpy as np

    tensors = {**session.inputs, **session.quantized_inputs}
    arrays = _read(path)
    if len(session.inputs) == 1 and len(arrays) == 1 and next(iter(arrays)) in UNNAMED:
        (array,) = arrays.values()
        fitting = [name for name, tensor in tensors.items() if tensor.dtype == array.dtype.name]
        arrays = {(fitting or list(tensors))[0]: array}
    if not arrays or not arrays.keys() <= tensors.keys():
        raise _misnamed(session, arrays, path)
    counts = {name: _count(array, tensors[name], path) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        raise InvalidInput(f"its arrays hold different numbers of samples: {counts}", where=path)
    count = next(iter(counts.values()))
    for index in range(count):
        feeds = {}
        for name, array in arrays.items():
            batch = tensors[name].shape[0]
            feeds[name] = np.ascontiguousarray(array[index * batch : (index + 1) * batch])
        yield Sample(path if count == 1 else f"{path}[{index}]", feeds)


def _misnamed(session: Session, arrays: Mapping[str, Array], path: str) -> InvalidInput:
    found = ", ".join("one without a name" if name in UNNAMED else repr(name) for name in arrays)
    quantized = ", ".join(repr(name) for name in session.quantized_inputs if name not in session.inputs)
    expected = ", ".join(map(repr, session.inputs)) + (f", or quantised {quantized}" if quantized else "")
    return InvalidInput(
        f"its arrays are not named as the network's inputs: it holds {found or 'no array'}; "
        f"expected {expected}",
        where=path,
        hint=f"numpy.savez(FILE, **{{{next(iter(session.inputs))!r}: ARRAY}}) gives an array its name",
    )


def _count(array: Array, tensor: Tensor, path: str) -> int:
    """How many inferences an array holds along its first axis."""
    name, shape = tensor.name, tensor.shape
    whole = array.ndim == len(shape) and array.ndim > 0 and array.shape[1:] == shape[1:]
    if not whole or len(array) == 0 or len(array) % shape[0]:
        raise InvalidInput(
            f"the array for {name} has shape {list(array.shape)}; the network takes {list(shape)}",
            where=path,
            hint="several samples are stacked along the first axis",
        )
    return len(array) // shape[0]


def _read(path: str) -> dict[str, Array]:
    import numpy as np

    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {"": loaded}
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, MemoryError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise InvalidInput(f"its arrays cannot be read: {reason}", where=path) from problem


def class_count(graph: Graph) -> int:
    """How many classes a classifier tells apart.

    Raises:
        UsageError: the network has more than one output.
    """
    if len(graph.outputs) != 1:
        raise UsageError("--labels is for a network with one output", where=graph.name)
    return graph.tensor(graph.outputs[0]).size


def read_labels(path: str, classes: int) -> list[str]:
    """One name a line, in the classes' order.

    Raises:
        UsageError: no such file.
        InvalidInput: not text, or not as many lines as the network has classes.
    """
    try:
        # Windows editors put a byte order mark in front; other separators than the newline are text.
        lines = Path(path).read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as problem:
        raise InvalidInput("is not UTF-8 text", where=path) from problem
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", where=path) from problem
    if len(lines) != classes:
        raise InvalidInput(
            f"names {len(lines)} classes, the network has {classes}",
            where=path,
            hint="one name a line, in the classes' order",
        )
    return lines

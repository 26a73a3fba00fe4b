"""Calibration data: a directory of pictures or arrays, as the inputs the quantiser feeds to the network.

Pictures are chosen by suffix, in sorted order, from the whole tree below the directory; anything else is
skipped and counted, and so is a picture that cannot be read. Of more than `limit` samples, evenly spaced
ones are taken. Arrays are fed as they are: they must be of the network's shape and kind of dtype, with any
number of samples along the first axis.

A network with states (`sdk.states`) is calibrated over sequences, unless the arrays give its states too:
arrays [sequences, steps, *shape], or without that axis one sequence, step by step.

Samples are put in the order of a digest of their content, so that nothing behind depends on names of files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sdk.array_files import open_arrays
from sdk.errors import InvalidInput, UsageError
from sdk.preprocess import Preprocessing, default_for, require_shape

Shape = tuple[int, ...]
Feeds = dict[str, NDArray[Any]]
Progress = Callable[[str, int, int], None]
"""Called with the stage's name, the steps done and their number."""

Source = str | os.PathLike[str] | Mapping[str, NDArray[Any]] | NDArray[Any]
"""A directory or picture, an .npz or .npy file, arrays by input name, or the single input's array."""

PICTURE_SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)


class Input(NamedTuple):
    """An input of the network: its static shape, and its dtype as numpy names it."""

    shape: Shape
    dtype: str = "float32"


@dataclass(frozen=True)
class Skipped:
    """A picture that was not used, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Calibration:
    """Samples ready to be fed.

    Attributes:
        samples: arrays by input name, each of the input's shape and dtype. Without the states, of sequences.
        names: where each sample comes from: a path, or its index.
        units: indices of samples that belong together; each is one by itself, but for steps of a sequence.
        available: pictures, or samples in the arrays, from which these were taken.
        other_files: files in the directory that are not pictures by suffix.
        skipped: pictures that could not be read.
        preprocessing: what the pictures went through; for arrays, what the caller states.
    """

    samples: Sequence[Feeds]
    names: Sequence[str]
    units: Sequence[Sequence[int]]
    available: int
    other_files: int = 0
    skipped: tuple[Skipped, ...] = ()
    preprocessing: Preprocessing | None = None


def load(
    source: Source,
    inputs: Mapping[str, Input],
    preprocessing: Preprocessing | None,
    limit: int | None,
    progress: Progress,
    states: Collection[str] = (),
) -> Calibration:
    """Read calibration data for a network with these `inputs`, of which some may be `states`.

    Raises:
        InvalidInput: nothing usable, or not the network's names, shapes or dtypes.
        UsageError: a limit that is not a whole number of 1 or more; no such file or directory.
    """
    if limit is not None and (not isinstance(limit, int | np.integer) or limit < 1):
        raise UsageError(
            f"the limit of calibration samples must be a whole number of 1 or more, not {limit!r}"
        )
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if not path.exists():
            raise UsageError("no such file or directory", where=str(path))
        if not (path.is_dir() or path.is_file()):  # reading a pipe may never end
            raise UsageError("is neither a directory nor a regular file", where=str(path))
        if path.is_dir() or path.suffix.lower() in PICTURE_SUFFIXES:
            return _pictures(path, inputs, preprocessing, limit, progress)
        return _stored(path, inputs, preprocessing, limit, states)
    return _arrays(source, inputs, preprocessing, limit, "calibration data", states)


def digest(samples: Sequence[Feeds], unit: Sequence[int]) -> str:
    """Of the values of samples that belong together."""
    whole = hashlib.sha256()
    for index in unit:
        for name in sorted(samples[index]):
            whole.update(np.ascontiguousarray(samples[index][name]).tobytes())
    return whole.hexdigest()


def _ordered(data: Calibration) -> Calibration:
    """The same with its units, and the samples in them, in the order of the units' digests."""
    units = sorted(data.units, key=lambda unit: digest(data.samples, unit))
    order = [index for unit in units for index in unit]
    starts = np.cumsum([0, *map(len, units)])
    return dataclasses.replace(
        data,
        samples=[data.samples[index] for index in order],
        names=[data.names[index] for index in order],
        units=[tuple(range(start, end)) for start, end in pairwise(starts.tolist())],
    )


def _pictures(
    path: Path,
    inputs: Mapping[str, Input],
    preprocessing: Preprocessing | None,
    limit: int | None,
    progress: Progress,
) -> Calibration:
    if len(inputs) != 1:
        raise InvalidInput(
            f"pictures cannot feed a network with {len(inputs)} inputs ({', '.join(inputs)})",
            where=str(path),
            hint="give an .npz file with one array for each input",
        )
    ((name, (shape, dtype)),) = inputs.items()
    if dtype != "float32":
        raise InvalidInput(
            f"pictures become float32 inputs; the network's input {name!r} is {dtype}",
            where=str(path),
            hint=f"give an .npz or .npy file of {dtype} arrays",
        )
    preprocessing = preprocessing or default_for(shape)
    require_shape(preprocessing, shape)
    files = files_below(path)
    pictures = [file for file in files if file.suffix.lower() in PICTURE_SUFFIXES]
    chosen = spread(len(pictures), limit)
    samples: list[Feeds] = []
    names: list[str] = []
    skipped: list[Skipped] = []
    for done, index in enumerate(chosen):
        progress("read pictures", done, len(chosen))
        try:
            samples.append({name: preprocessing.apply(pictures[index])})
            names.append(str(pictures[index]))
        except InvalidInput as problem:
            skipped.append(Skipped(str(pictures[index]), problem.message))
    progress("read pictures", len(chosen), len(chosen))
    if not samples:
        others = len(files) - len(pictures)
        found = f"unreadable pictures: {len(skipped)}, other files: {others}" if files else "no files"
        raise InvalidInput(
            f"no usable picture for calibration: found {found}",
            where=skipped[0].path if len(pictures) == 1 else str(path),
            hint=f"pictures have the suffixes {', '.join(sorted(PICTURE_SUFFIXES))}",
        )
    return _ordered(
        Calibration(
            samples,
            names,
            [(index,) for index in range(len(samples))],
            len(pictures),
            len(files) - len(pictures),
            tuple(skipped),
            preprocessing,
        )
    )


def files_below(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found: list[Path] = []
    seen = {os.path.realpath(path)}
    for folder, folders, names in os.walk(path, followlinks=True):
        found.extend(Path(folder) / name for name in names)
        names_by_target = {
            os.path.realpath(os.path.join(folder, name)): name for name in sorted(folders, reverse=True)
        }
        folders[:] = sorted(names_by_target[target] for target in names_by_target.keys() - seen)
        seen.update(names_by_target)  # links may lead in circles
    return sorted(found)


def spread(count: int, limit: int | None) -> list[int]:
    """At most `limit` indices below `count`, evenly spaced."""
    if limit is None or count <= limit:
        return list(range(count))
    return [index * count // limit for index in range(limit)]


def _stored(
    path: Path,
    inputs: Mapping[str, Input],
    preprocessing: Preprocessing | None,
    limit: int | None,
    states: Collection[str],
) -> Calibration:
    """Of a file, whose arrays' shapes fit before any is read, and of which only what is chosen is read."""
    try:
        stored = open_arrays(path)

        def take(name: str, rows: Sequence[int], steps: int | None) -> NDArray[Any]:
            return (stored[name] if len(stored) > 1 else next(iter(stored.values()))).take(rows, steps)

        empty = {name: array.empty for name, array in stored.items()}
        return _arrays(empty, inputs, preprocessing, limit, str(path), states, take)
    except InvalidInput as problem:
        hint = problem.hint or "give a directory of pictures, or an .npz or .npy file of float arrays"
        raise InvalidInput(problem.message, where=problem.where, hint=hint) from problem


def _arrays(
    source: Mapping[str, NDArray[Any]] | NDArray[Any],
    inputs: Mapping[str, Input],
    preprocessing: Preprocessing | None,
    limit: int | None,
    where: str,
    states: Collection[str],
    take: Callable[[str, Sequence[int], int | None], NDArray[Any]] | None = None,
) -> Calibration:
    """Of arrays; or of their shapes alone, where `take` reads rows of one, and the first steps of those."""
    given = _by_name(source, inputs, where, states)
    wanted = {name: inputs[name] for name in inputs if name in given}
    arrays = {name: _checked(given[name], name, wanted[name], where, bool(states)) for name in wanted}
    if preprocessing is not None and len(wanted) == 1:
        require_shape(preprocessing, next(iter(wanted.values())).shape)
    sequences = len(wanted) < len(inputs)
    timed = {name for name, array in arrays.items() if array.ndim > len(wanted[name].shape)}
    if timed and (timed != arrays.keys() or not sequences):
        raise InvalidInput(
            "only some of the arrays have an axis of steps"
            if sequences
            else "the arrays have an axis of steps, and give the states too",
            where=where,
            hint="give [sequences, steps, ...] for every input but the states, which are fed back",
        )
    counts = {
        name: array.shape[:2] if timed else (_samples(array, wanted[name].shape, name, where), 1)
        for name, array in arrays.items()
    }
    if len(set(counts.values())) != 1:
        shown = {name: list(count) if timed else count[0] for name, count in counts.items()}
        raise InvalidInput(f"the inputs have different numbers of samples: {shown}", where=where)
    available, steps = next(iter(counts.values()))
    if available * steps == 0:
        raise InvalidInput("holds no sample for calibration", where=where)
    limit = limit or available * steps
    steps, total = min(steps, limit), available * steps
    in_order = sequences and not timed  # samples of one sequence
    rows = list(range(min(available, limit))) if in_order else spread(available, limit // steps)

    def chosen(name: str) -> NDArray[Any]:
        """[rows, steps, batch, ...] of an input."""
        shape = wanted[name].shape
        batch = 1 if timed else shape[0]
        along = [row * batch + sample for row in rows for sample in range(batch)]
        found = arrays[name][along] if take is None else take(name, along, steps if timed else None)
        return (found[:, :steps] if timed else found).reshape(len(rows), steps, *shape)

    read = {name: chosen(name) for name in arrays}
    samples = [
        {name: array[row, step] for name, array in read.items()}
        for row in range(len(rows))
        for step in range(steps)
    ]
    unit = len(samples) if in_order else steps
    units = [tuple(range(first, first + unit)) for first in range(0, len(samples), unit)]
    label = "sequence {}, step {}" if timed else "sample {}"
    names = [label.format(row, step) for row in rows for step in range(steps)]
    for which, feeds in zip(names, samples, strict=True):
        for name, array in feeds.items():
            feeds[name] = np.ascontiguousarray(array, wanted[name].dtype)
            if array.dtype.kind == "f" and not np.isfinite(feeds[name]).all():
                raise InvalidInput(f"{which} of {name!r} contains NaN or infinite values", where=where)
    return _ordered(Calibration(samples, names, units, total, preprocessing=preprocessing))


def _samples(array: NDArray[Any], shape: Shape, name: str, where: str) -> int:
    """How many samples of the input an array holds along its first axis."""
    if len(array) % shape[0]:
        raise InvalidInput(
            f"the array for {name!r} holds {len(array)} along its first axis, not a multiple of the "
            f"network's batch of {shape[0]}",
            where=where,
        )
    return len(array) // shape[0]


def _by_name(
    source: Mapping[str, NDArray[Any]] | NDArray[Any],
    inputs: Mapping[str, Input],
    where: str,
    states: Collection[str],
) -> dict[str, NDArray[Any]]:
    """The arrays that are given, one for each input; for none of the states, if they are left out."""
    if not isinstance(source, Mapping):
        source = {"": source}
    try:
        given = {name: np.asarray(array) for name, array in source.items()}
    except ValueError as problem:  # lists of unequal lengths
        raise InvalidInput(f"is not an array: {problem}", where=where) from problem
    wanted = [name for name in inputs if name not in states]
    if len(wanted) == 1 and len(given) == 1:
        given = {wanted[0]: next(iter(given.values()))}
    if not wanted or any(name in given for name in states):
        wanted = list(inputs)
    if missing := [name for name in wanted if name not in given]:
        raise InvalidInput(
            f"no array for the input {missing[0]!r}",
            where=where,
            hint=f"arrays given: {', '.join(map(repr, given)) or 'none'}",
        )
    return {name: given[name] for name in wanted}


def _checked(array: NDArray[Any], name: str, wanted: Input, where: str, steps: bool) -> NDArray[Any]:
    """The array, if it is of the input's kind and shape, with an axis of steps if there may be one."""
    shape, dtype = wanted
    if np.dtype(dtype).kind == "f":
        if not np.issubdtype(array.dtype, np.floating):
            raise InvalidInput(
                f"the array for {name!r} is {array.dtype}, not float",
                where=where,
                hint="arrays are fed as they are: apply the network's preprocessing first",
            )
    elif not np.can_cast(array.dtype, dtype, "safe"):
        raise InvalidInput(
            f"the array for {name!r} is {array.dtype}; the network takes {dtype}",
            where=where,
            hint=f"save it as {dtype}",
        )
    if array.ndim == len(shape) and array.shape[1:] == shape[1:]:
        return array
    if steps and array.ndim == len(shape) + 1 and array.shape[2:] == shape[1:] and shape[0] == 1:
        return array[:, :, None]
    if steps and array.ndim == len(shape) + 2 and array.shape[2:] == shape:
        return array
    raise InvalidInput(
        f"the array for {name!r} has shape {list(array.shape)}; the network takes {list(shape)}",
        where=where,
        hint=f"stack the samples along the first axis: {['N', *shape[1:]]}".replace("'", ""),
    )

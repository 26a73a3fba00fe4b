"""Calibration data: a directory of pictures or arrays, as the inputs the quantiser feeds to the network.

Pictures are chosen by suffix, in sorted order, from the whole tree below the directory; anything else is
skipped and counted, and so is a picture that cannot be read. Of more than `limit` samples, evenly spaced
ones are taken. Arrays are fed as they are: they must be float and of the network's shape, with any number
of samples along the first axis.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.errors import InvalidInput, UsageError
from sdk.preprocess import Preprocessing, default_for, require_shape

Shape = tuple[int, ...]
Feeds = dict[str, NDArray[np.float32]]
Progress = Callable[[str, int, int], None]
"""Called with the stage's name, the steps done and their number."""

Source = str | os.PathLike[str] | Mapping[str, NDArray[Any]] | NDArray[Any]
"""A directory or picture, an .npz or .npy file, arrays by input name, or the single input's array."""

PICTURE_SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)


@dataclass(frozen=True)
class Skipped:
    """A picture that was not used, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Calibration:
    """Samples ready to be fed.

    Attributes:
        samples: float32 arrays by input name, each of the input's shape.
        names: where each sample comes from: a path, or its index.
        available: pictures, or samples in the arrays, from which these were taken.
        other_files: files in the directory that are not pictures by suffix.
        skipped: pictures that could not be read.
        preprocessing: what the pictures went through; for arrays, what the caller states.
    """

    samples: Sequence[Feeds]
    names: Sequence[str]
    available: int
    other_files: int = 0
    skipped: tuple[Skipped, ...] = ()
    preprocessing: Preprocessing | None = None


def load(
    source: Source,
    inputs: Mapping[str, Shape],
    preprocessing: Preprocessing | None,
    limit: int | None,
    progress: Progress,
) -> Calibration:
    """Read calibration data for a network with these `inputs`.

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
        return _arrays(_read_arrays(path), inputs, preprocessing, limit, str(path))
    return _arrays(source, inputs, preprocessing, limit, "calibration data")


def _pictures(
    path: Path,
    inputs: Mapping[str, Shape],
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
    ((name, shape),) = inputs.items()
    preprocessing = preprocessing or default_for(shape)
    require_shape(preprocessing, shape)
    files = _files(path)
    pictures = [file for file in files if file.suffix.lower() in PICTURE_SUFFIXES]
    chosen = _spread(len(pictures), limit)
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
    return Calibration(
        samples, names, len(pictures), len(files) - len(pictures), tuple(skipped), preprocessing
    )


def _files(path: Path) -> list[Path]:
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


def _spread(count: int, limit: int | None) -> list[int]:
    """At most `limit` indices below `count`, evenly spaced."""
    if limit is None or count <= limit:
        return list(range(count))
    return [index * count // limit for index in range(limit)]


def _read_arrays(path: Path) -> Mapping[str, NDArray[Any]] | NDArray[Any]:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            return {name: loaded[name] for name in loaded.files}
    except Exception as problem:  # a damaged file can raise nearly anything out of numpy and zipfile
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise InvalidInput(
            f"cannot be read as calibration data: {reason}",
            where=str(path),
            hint="give a directory of pictures, or an .npz or .npy file of float arrays",
        ) from problem


def _arrays(
    source: Mapping[str, NDArray[Any]] | NDArray[Any],
    inputs: Mapping[str, Shape],
    preprocessing: Preprocessing | None,
    limit: int | None,
    where: str,
) -> Calibration:
    arrays = _by_input(source, inputs, where)
    counts = {name: _samples(array, inputs[name], name, where) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        raise InvalidInput(f"the inputs have different numbers of samples: {counts}", where=where)
    available = next(iter(counts.values()))
    if available == 0:
        raise InvalidInput("holds no sample for calibration", where=where)
    if preprocessing is not None and len(inputs) == 1:
        require_shape(preprocessing, next(iter(inputs.values())))
    chosen = _spread(available, limit)
    samples = [
        {
            name: np.ascontiguousarray(array[index * batch : (index + 1) * batch], np.float32)
            for name, array in arrays.items()
            for batch in (inputs[name][0],)
        }
        for index in chosen
    ]
    for index, feeds in zip(chosen, samples, strict=True):
        for name, array in feeds.items():
            if not np.isfinite(array).all():
                raise InvalidInput(f"sample {index} of {name!r} contains NaN or infinite values", where=where)
    return Calibration(
        samples, [f"sample {index}" for index in chosen], available, preprocessing=preprocessing
    )


def _samples(array: NDArray[Any], shape: Shape, name: str, where: str) -> int:
    """How many samples of the input an array holds along its first axis."""
    if len(array) % shape[0]:
        raise InvalidInput(
            f"the array for {name!r} holds {len(array)} along its first axis, not a multiple of the "
            f"network's batch of {shape[0]}",
            where=where,
        )
    return len(array) // shape[0]


def _by_input(
    source: Mapping[str, NDArray[Any]] | NDArray[Any], inputs: Mapping[str, Shape], where: str
) -> dict[str, NDArray[Any]]:
    if not isinstance(source, Mapping):
        source = {"": source}
    try:
        given = {name: np.asarray(array) for name, array in source.items()}
    except ValueError as problem:  # lists of unequal lengths
        raise InvalidInput(f"is not an array: {problem}", where=where) from problem
    if len(inputs) == 1 and len(given) == 1:
        given = {next(iter(inputs)): next(iter(given.values()))}
    if missing := [name for name in inputs if name not in given]:
        raise InvalidInput(
            f"no array for the input {missing[0]!r}",
            where=where,
            hint=f"arrays given: {', '.join(map(repr, given)) or 'none'}",
        )
    for name, shape in inputs.items():
        array = given[name]
        if not np.issubdtype(array.dtype, np.floating):
            raise InvalidInput(
                f"the array for {name!r} is {array.dtype}, not float",
                where=where,
                hint="arrays are fed as they are: apply the network's preprocessing first",
            )
        if array.ndim != len(shape) or array.shape[1:] != shape[1:]:
            raise InvalidInput(
                f"the array for {name!r} has shape {list(array.shape)}; the network takes {list(shape)}",
                where=where,
                hint=f"stack the samples along the first axis: {['N', *shape[1:]]}".replace("'", ""),
            )
    return {name: given[name] for name in inputs}

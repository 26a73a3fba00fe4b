"""What a network is evaluated on: pictures or arrays in a fixed order, and the classes they should have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from sdk.errors import InvalidInput, UsageError
from sdk.graph import Array, Tensor
from sdk.quantizer.calibration import PICTURE_SUFFIXES, files_below
from sdk.samples import ARRAY_SUFFIXES, arrays
from sdk.suggestions import did_you_mean

FOLDERS = "folders"
"""In place of a file of labels: a picture's class is the name of the folder it is in."""

NAMED = 3
"""Files that an error names."""


@dataclass(frozen=True)
class Item:
    """One inference.

    Attributes:
        name: the picture's path below the directory, or the place in the arrays as a number.
        picture: the picture's file; "" for arrays.
        feeds: the arrays by input name; empty for a picture.
    """

    name: str
    picture: str
    feeds: Mapping[str, Array]


def items(source: str | os.PathLike[str], inputs: Mapping[str, Tensor]) -> list[Item]:
    """All that there is, in order.

    Raises:
        UsageError: no such file or directory, or of no known kind.
        InvalidInput: there is no picture in the directory; the arrays cannot be read, or do not fit.
    """
    path = Path(source)
    if not path.exists():
        raise UsageError("no such file or directory", where=str(path))
    suffix = path.suffix.lower()
    if path.is_file() and suffix in ARRAY_SUFFIXES:
        found = [Item(str(n), "", sample.feeds) for n, sample in enumerate(arrays(str(path), inputs))]
    elif path.is_dir() or (path.is_file() and suffix in PICTURE_SUFFIXES):
        root = path if path.is_dir() else path.parent
        found = [
            Item(file.relative_to(root).as_posix(), str(file), {})
            for file in files_below(path)
            if file.suffix.lower() in PICTURE_SUFFIXES
        ]
    else:
        raise UsageError(
            "is not a directory, and has neither the suffix of a picture nor that of an array file",
            where=str(path),
            hint=f"pictures: {', '.join(sorted(PICTURE_SUFFIXES))}; arrays: {', '.join(ARRAY_SUFFIXES)}",
        )
    if not found:
        raise InvalidInput(
            "there is no picture in it",
            where=str(path),
            hint=f"pictures have the suffixes {', '.join(sorted(PICTURE_SUFFIXES))}",
        )
    return found


def read_labels(
    source: str, where: Sequence[Item], known: Sequence[str], classes: int, names: Sequence[str] | None
) -> dict[str, int]:
    """The class that each item should have, by its name.

    Args:
        source: a text file with a line `picture,class` (or `picture class`) for each of them, or FOLDERS. A
            picture is named by its path below the directory, or by its file's name if no other has it; an
            inference of arrays by its place, from 0. A class is its number, or its name if the network
            has names.
        where: the items to be labelled.
        known: names of all items that may have a label; those of `where` and those beyond a limit.
        classes: how many there are.
        names: of the classes.

    Raises:
        UsageError: no such file.
        InvalidInput: a line that is not of this form, a picture that does not exist or has no label, two
            different labels for one, or a class that the network does not have.
    """
    if source == FOLDERS:
        result = {}
        for item in where:
            folder = PurePath(item.name).parent.name
            if not folder:
                raise InvalidInput(
                    "is in no folder that could be its class",
                    where=item.picture or f"sample {item.name}",
                    hint=f"--labels {FOLDERS} expects DIR/CLASS/PICTURE; else give a file of labels",
                )
            result[item.name] = _class(folder, classes, names, item.picture)
        return result
    places = _places(known)
    result = {}
    missing: list[str] = []
    for number, (key, text) in _lines(source):
        line = f"{source}, line {number}"
        name = places.get(key)
        if name is None:
            missing.append(key)
            continue
        found = _class(text, classes, names, line)
        if result.setdefault(name, found) != found:
            raise InvalidInput(
                f"labels {key} as {found}, and an earlier line as {result[name]}",
                where=line,
                hint="remove one of the two lines",
            )
    if missing:
        raise InvalidInput(
            f"labels pictures that do not exist: {_some(missing)}",
            where=source,
            hint=did_you_mean(missing[0], list(places))
            or "name pictures by their path below the directory of --images",
        )
    if unlabelled := [item.name for item in where if item.name not in result]:
        raise InvalidInput(
            f"has no label for {_some(unlabelled)}",
            where=source,
            hint="add a line `picture,class` for each, or move these pictures elsewhere",
        )
    return {item.name: result[item.name] for item in where}


def _places(known: Sequence[str]) -> dict[str, str]:
    """An item's name by what a line may call it: its path, or the last part of that if it is unique."""
    short: dict[str, list[str]] = {}
    for name in known:
        short.setdefault(PurePath(name).name, []).append(name)
    unique = {key: names[0] for key, names in short.items() if len(names) == 1}
    return unique | {name: name for name in known}


def _lines(source: str) -> list[tuple[int, tuple[str, str]]]:
    """(line number, (picture, class)); empty lines and a heading `file,class` are left out."""
    try:
        lines = Path(source).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as problem:
        raise InvalidInput("is not UTF-8 text", where=source) from problem
    except OSError as problem:
        raise UsageError(
            f"cannot be read: {problem.strerror}",
            where=source,
            hint=f"give a file of lines `picture,class`, or --labels {FOLDERS}",
        ) from problem
    result = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        mark = next((mark for mark in (",", "\t") if mark in line), None)
        parts = line.strip().rsplit(mark, 1)
        key, text = (part.strip().strip('"') for part in (parts if len(parts) == 2 else ("", "")))
        if not key or not text:
            raise InvalidInput(
                f"{line.strip()!r} is not a picture and its class",
                where=f"{source}, line {number}",
                hint="write it like cat.jpg,281",
            )
        if number == 1 and text.lower() in ("class", "label"):
            continue
        result.append((number, (key.removeprefix("./"), text)))
    if not result:
        raise InvalidInput("holds no label", where=source, hint="write one line `picture,class` for each")
    return result


def _class(text: str, classes: int, names: Sequence[str] | None, where: str) -> int:
    if names and text in names:
        return names.index(text)
    if text.isascii() and text.isdigit():
        if len(text) < 10 and int(text) < classes:
            return int(text)
        raise InvalidInput(
            f"there is no class {text}",
            where=where,
            hint=f"the network has {classes}, numbered from 0 to {classes - 1}",
        )
    raise InvalidInput(
        f"{text!r} is not a class of the network",
        where=where,
        hint=did_you_mean(text, names or ())
        or f"give its number, 0 to {classes - 1}, or its name if the network was compiled with --labels",
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more

"""Files given to `towline run` and `debug`: inputs of single inferences, and the names of classes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sdk.errors import InternalError, InvalidInput, UsageError

if TYPE_CHECKING:
    from sdk.graph import Graph
    from sdk.samples import Sample
    from sdk.session import Session


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
            hint=f"name pictures or arrays after the network: {args.parser.prog} {args.network} cat.jpg; "
            f"see `{args.parser.prog} --help`",
        )
    return paths


def require_inputs(paths: Sequence[str]) -> None:
    """Refuse files that are not there, or of no known kind, before any of them is run.

    Raises:
        UsageError: naming the first.
    """
    from sdk.quantizer.calibration import PICTURE_SUFFIXES
    from sdk.samples import ARRAY_SUFFIXES

    for path in paths:
        if Path(path).is_dir():
            raise UsageError(
                "is a directory, not a file", where=path, hint=f"{path}/*.png names its pictures"
            )
        if not Path(path).is_file():
            raise UsageError("no such file", where=path)
        if Path(path).suffix.lower() not in (*PICTURE_SUFFIXES, *ARRAY_SUFFIXES):
            raise UsageError(
                "has neither the suffix of a picture nor that of an array file",
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
    from sdk.quantizer.calibration import PICTURE_SUFFIXES
    from sdk.samples import ARRAY_SUFFIXES, Sample, arrays

    for path in paths:
        suffix = Path(path).suffix.lower()
        if suffix in PICTURE_SUFFIXES:
            yield Sample(path, session.prepare(path))
        elif suffix in ARRAY_SUFFIXES:
            yield from arrays(path, session.inputs, session.quantized_inputs)
        else:
            raise InternalError("an input that was not checked", where=path)


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

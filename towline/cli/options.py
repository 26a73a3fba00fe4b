"""What several verbs read from the command line in the same way."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdk import settings
from sdk.errors import OutputFailed, UsageError

if TYPE_CHECKING:
    from sdk.target import Options

Shape = tuple[int, ...]


IMAGES = ("firmware", "vendor", "storage", "calibration", "maker")
"""The images that come with the emulator; a test compares it with them, which take time to load."""
IMAGE = f"Intel HEX, plain binary, wrapped image, flash dump, or an image by name: {', '.join(IMAGES)}"
"""What an argument that names firmware may be."""


def add_verb(verbs: Any, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """A verb's parser, below what `add_subparsers` gave."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=summary,
        epilog="example:\n  " + example.replace("\n", "\n  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(parser=parser)
    return parser


def add_common_again(parser: argparse.ArgumentParser) -> None:
    """`towline` declares these for the verb; they may follow an inner verb too."""
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.add_argument("-v", "--verbose", action="count", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def add_input_shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input-shape",
        action="append",
        default=[],
        metavar="NAME=1x3x224x224",
        help="static shape of an input whose shape is dynamic; may be repeated",
    )


def add_arithmetic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--arithmetic",
        choices=("f32", "q31", "q15"),
        help="how the target requantises, of those that it offers; default: the first of them. On hexagon-*: "
        "q31, or q15, which is faster and has multipliers of 16 bits",
    )


def add_cut(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--outputs",
        action="append",
        default=[],
        metavar="NAME,...",
        help="of an .onnx: end the network at these tensors instead of its own outputs; may be repeated",
    )
    parser.add_argument(
        "--constant",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="of an .onnx: make an input a constant, such as a sample rate that chooses a branch; "
        "may be repeated",
    )


Reading = Mapping[str, Any]
"""How a model is read: the keyword arguments of `sdk.importers.load_model`."""


def reading(args: argparse.Namespace) -> Reading:
    """What --input-shape, --outputs and --constant say.

    Raises:
        UsageError: one of them is malformed.
    """
    return {
        "input_shapes": input_shapes(args.input_shape),
        "outputs": outputs(args.outputs),
        "constants": constants(args.constant),
    }


def outputs(texts: Sequence[str]) -> list[str]:
    """The names of --outputs.

    Raises:
        UsageError: one is empty.
    """
    names = [name for text in texts for name in text.split(",")]
    if not all(names):
        raise UsageError("--outputs holds an empty name", hint="write it like --outputs boxes,scores")
    return names


def constants(texts: Sequence[str]) -> dict[str, Any]:
    """`NAME=NUMBER` by name; true and false are numbers too.

    Raises:
        UsageError: not of that form, or a name twice.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            value = json.loads(number)
        except (ValueError, RecursionError):
            value = None
        if not (name and equals and isinstance(value, int | float)):
            hint = "write it like --constant rate=16000"
            raise UsageError(f"--constant {text!r} is not a name and a number", hint=hint)
        if name in found:
            raise UsageError(f"--constant gives {name!r} twice")
        found[name] = value
    return found


def add_preprocess(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--preprocess",
        metavar="HOW",
        help="how a picture becomes the input: imagenet, unit (0..1), symmetric (-1..1), "
        f"or a JSON file (default: {default})",
    )


def add_pool(parser: argparse.ArgumentParser, what: str) -> None:
    """`--jobs` or `--scheduler`, which `pool` reads."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=positive, metavar="N", help=f"{what} at a time (default: one a core)")
    where.add_argument(
        "--scheduler",
        type=_address,
        metavar="tcp://HOST:8786",
        help="compute on the workers of a Dask scheduler instead; use only one that you trust",
    )


def pool(args: argparse.Namespace) -> AbstractContextManager[Executor]:
    """Where to compute, as `add_pool`'s options say.

    Raises:
        TowlineError: as `tuner.dask`.
    """
    from sdk import tuner

    return tuner.local(args.jobs) if args.scheduler is None else tuner.dask(args.scheduler)


def _address(text: str) -> str:
    if not re.fullmatch(r"(tcp|tls)://\S+:\d{1,5}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a scheduler's address, such as tcp://host:8786")
    return text


def cache_bytes(text: str | None) -> int | None:
    """The bytes that --l2 asks for. Raises UsageError: it is not written so."""
    if text is None:
        return None
    if not (found := re.fullmatch(r"(\d{1,6})([KM])", text.upper())):
        raise UsageError(f"--l2 {text} is not a size", hint="for example 512K or 1M")
    return int(found[1]) << {"K": 10, "M": 20}[found[2]]


def add_tuning(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tuning",
        metavar="FILE",
        help="what `towline tune` has written (default: the user's own tuning file, if there is one)",
    )


def tuned(args: argparse.Namespace) -> Options | None:
    """The options that --tuning asks for; None without it.

    Raises:
        UsageError: there is no such file, or the target has nothing to tune.
        InvalidInput: it is not a tuning file of this target.
    """
    if args.tuning is None:
        return None
    from sdk import tuner, tuning
    from sdk.target import Options

    tuner.tunable(args.target)
    return Options(tuning=tuning.read(args.tuning, args.target))


def tuning_line(plan: Any) -> str:
    """Which variants a compiled network took, from its plan's `tuning`; "" where nothing has variants."""
    try:
        chosen = Counter(f"{entry['choice']} ({entry['by']})" for entry in plan["chosen"])
        heuristic = int(plan["heuristic"])
    except (TypeError, KeyError, ValueError):
        return ""
    if not chosen and not heuristic:
        return ""
    taken = [f"{count} x {what}" for what, count in sorted(chosen.items())]
    return f"kernels: {', '.join([f'{heuristic} by the heuristic', *taken])}"


def input_shapes(texts: Sequence[str]) -> dict[str, Shape] | None:
    """`NAME=1x3x224x224`, any number of them; None for none.

    Raises:
        UsageError: not of that form, or a name twice.
    """
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, equals, extents = text.rpartition("=")
        try:
            shape = tuple(int(extent) for extent in extents.lower().split("x"))
        except ValueError:
            shape = ()
        if not (name and equals and shape) or min(shape) < 1:
            raise UsageError(
                f"--input-shape {text!r} is not a name and a shape",
                hint="write it like --input-shape input=1x3x224x224",
            )
        if name in shapes:
            raise UsageError(f"--input-shape gives {name!r} twice")
        shapes[name] = shape
    return shapes or None


def whole(text: str) -> int:
    """A whole number, 0 included, for argparse."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return value


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def duration(text: str) -> float:
    """A time in seconds, for argparse: 45ms, 1.5s."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(us|ms|s)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, such as 45ms or 1.5s")
    return float(match[1]) * _UNITS[match[2]]


def watts(text: str) -> float:
    """A power in watts, for argparse: 100W."""
    match = re.fullmatch(r"([0-9]{1,4})W?", text)
    if match is None or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a power in whole watts, such as 100W")
    return float(match[1])


def add_required_keys(parser: argparse.ArgumentParser) -> None:
    """Declare --require-signature, which `required_keys` reads."""
    parser.add_argument(
        "--require-signature",
        metavar="KEYS",
        help="refuse it unless a key of this file has signed it (`towline sign`; default: "
        f"{settings.SIGNERS.name}, or no signature is needed)",
    )


def required_keys(args: argparse.Namespace) -> str | None:
    """The file of the keys that are trusted; None if no signature is needed."""
    keys: str | None = args.require_signature or settings.SIGNERS.value()
    return keys


def memory_bytes(text: str) -> int:
    """Bytes as 65536, 64K, 2M or 1G; a type of argparse's."""
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    if not digits.isdecimal() or unit not in ("", "K", "M", "G") or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: for example 64K or 2M")
    return int(digits) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def require_directory(path: str) -> None:
    """Refuse an output that could not be written, before the work that makes it.

    Raises:
        OutputFailed: its directory is not there.
    """
    if not Path(path).absolute().parent.is_dir():
        raise OutputFailed(
            "cannot be written: its directory does not exist",
            where=path,
            hint="make the directory, or name another file",
        )


def require_suffix(path: str, expected: Mapping[str, str], *, exists: bool = True) -> Path:
    """The path, if its suffix is one of `expected` (suffix -> what such a file is).

    Args:
        path: as the user gave it.
        expected: what the command takes.
        exists: whether it must be there already: an input rather than an output.

    Raises:
        UsageError: another suffix, no such file, or not a regular one.
        OutputFailed: an output whose directory is not there or not writable, or that is a directory.
    """
    result = Path(path)
    if exists and not result.exists():
        raise UsageError("no such file", where=path)
    if exists and result.is_dir():
        raise UsageError("is a directory, not a file", where=path)
    if exists and not result.is_file():  # a pipe would be waited for, a device read without end
        raise UsageError("is not a regular file", where=path)
    if not exists:
        require_directory(path)
        if result.is_dir():
            raise OutputFailed("is not a regular file", where=path, hint="name a file to write")
        if not os.access(result.absolute().parent, os.W_OK):
            raise OutputFailed(
                "cannot be written: its directory is not writable",
                where=path,
                hint="change the directory's permissions, or name another file",
            )
    suffix = result.suffix.lower()
    if suffix not in expected:
        if not exists:
            raise UsageError(f"the name of the file must end in {' or '.join(expected)}", where=path)
        wanted = " or ".join(f"{what} ({known})" for known, what in expected.items())
        raise UsageError(f"is not {wanted}", where=path, hint=_HINTS.get(suffix))
    return result


ONNX = {".onnx": "an ONNX model"}
MODEL = ONNX | {".tflite": "a TFLite model"}
TOW = {".tow": "a compiled network"}
HTML = {".html": "an HTML page", ".htm": "an HTML page"}

_HINTS = {
    ".onnx": "compile it first: towline compile NET.onnx --target TARGET -o NET.tow",
    ".tow": "this file is compiled already; `towline inspect` shows what it is",
    ".pt": "export it to ONNX first (torch.onnx.export)",
    ".pth": "export it to ONNX first (torch.onnx.export)",
    ".tflite": "compile it as it is, or quantise it when it is made (docs/tflite.md)",
    ".pb": "convert it to ONNX first (tf2onnx)",
    ".h5": "convert it to ONNX first (tf2onnx)",
    ".keras": "convert it to ONNX first (tf2onnx)",
}

"""`towline export`: a network compiled for the target `c` as a folder of C."""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sdk import artifact, dtypes, files, reference
from sdk.artifact import Artifact
from sdk.errors import OutputFailed, UsageError
from sdk.graph import Array, Graph
from sdk.report import Console, Result, table
from towline.cli.options import TOW, memory_bytes, require_directory, require_suffix

if TYPE_CHECKING:
    from dsp.c.boards import Profile

EXAMPLE = "towline compile q.onnx --target c -o net.tow\ntowline export net.tow -o net"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", metavar="NET.tow", help="a network compiled with --target c")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder to create")
    parser.add_argument("--name", help="prefix of files and functions (default: the name of the .tow)")
    parser.add_argument(
        "--profile",
        metavar="PART",
        help="for a microcontroller without an operating system: cortex-m4, cortex-m7 or cortex-m55",
    )
    for memory in ("flash", "ram"):
        meaning = f"the part's {memory}, as 512K (default: a usual part's)"
        parser.add_argument(f"--{memory}", type=memory_bytes, metavar="SIZE", help=meaning)
    parser.add_argument("--force", action="store_true", help="write into a folder that is not empty")


def run(args: argparse.Namespace, console: Console) -> Result:
    from dsp.c.export import export, identifier

    profile = _profile(args)
    path = require_suffix(args.network, TOW)
    folder = Path(args.output)
    require_directory(args.output)
    if folder.exists() and not folder.is_dir():
        raise UsageError("is not a directory", where=args.output)
    occupied = folder.is_dir() and any(folder.iterdir())
    if occupied and not args.force:
        raise UsageError(
            "the directory is not empty", where=args.output, hint="name another, or give --force"
        )
    name = args.name if args.name is not None else identifier(path.stem)
    if name != identifier(name):
        hint = f"for example {identifier(name)}"
        raise UsageError(f"--name {name!r} cannot begin a C identifier", hint=hint)
    network = artifact.load(path)
    contents = export(network.graph, network.program, name, network.preprocessing, profile, recorded(network))
    _write(folder, contents)
    rows = [(file, len(data)) for file, data in contents.items()]
    document = {"output": args.output, "name": name, "files": dict(rows)}
    return Result(document, f"{table(('file', 'bytes'), rows)}\n\nnow: make -C {folder}")


def random_inputs(graph: Graph, seed: int = 1) -> dict[str, Array]:
    """Inputs to check and to time a network with: normal floats, any bytes, zero for what may be indices."""
    random = np.random.default_rng(seed)
    found = {}
    for tensor in map(graph.tensor, graph.inputs):
        if dtypes.is_float(tensor.dtype):
            found[tensor.name] = dtypes.encode(random.standard_normal(tensor.shape), tensor.dtype)
        elif tensor.dtype in ("int8", "uint8"):
            low = -128 if tensor.dtype == "int8" else 0
            found[tensor.name] = random.integers(low, low + 256, tensor.shape).astype(tensor.dtype)
        else:
            found[tensor.name] = np.zeros(tensor.shape, tensor.dtype)
    return found


def recorded(network: Artifact) -> tuple[bytes, bytes]:
    """A sample, and what the reference makes of it, as the exported program reads and writes them."""
    inputs = random_inputs(network.graph)
    outputs = reference.run(network.graph, inputs, network.arithmetic)
    return (
        b"".join(inputs[name].tobytes() for name in network.graph.inputs),
        b"".join(outputs[name].tobytes() for name in network.graph.outputs),
    )


def _profile(args: argparse.Namespace) -> Profile | None:
    """The microcontroller that the options describe. Raises UsageError."""
    from dsp.c.boards import named

    sizes = {name: size for name in ("flash", "ram") if (size := getattr(args, name)) is not None}
    if args.profile is None:
        if sizes:
            raise UsageError("--flash and --ram are for --profile", hint="--profile cortex-m4")
        return None
    return dataclasses.replace(named(args.profile), **sizes)


def _write(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files or none: they are made within the file system of their place, and moved there.

    A directory that exists is kept: it may be a working directory, or a mount.
    """
    target = Path(os.path.realpath(folder))
    there = target.is_dir()
    for path in (target / file for file in contents):
        if path.is_dir():
            raise UsageError("is a directory", where=str(path), hint="name another folder for the export")
    try:
        parent = target if there else target.parent
        with files.scratch_directory(parent) as scratch:
            made = scratch / "made"  # unlike the scratch directory with the permissions of the umask
            made.mkdir()
            for file, data in contents.items():
                files.write(made / file, data)
            if there:
                for file in contents:
                    os.replace(made / file, target / file)
            else:
                os.replace(made, target)
    except OSError as problem:
        raise OutputFailed(
            f"cannot be written: {problem.strerror or problem}",
            where=str(folder),
            hint="check the directory, its permissions and the space left on the disk",
        ) from None

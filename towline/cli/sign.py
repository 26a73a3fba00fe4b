"""`towline sign`: a signature for a compiled network or a firmware image."""

from __future__ import annotations

import argparse
from pathlib import Path

from sdk import artifact, files, settings, signatures
from sdk.errors import UsageError
from sdk.report import Console, Result

EXAMPLE = """towline sign net.tow --key ~/.ssh/id_ed25519
towline sign bridge.bin --key ~/.ssh/id_ed25519"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .tow, which gets the signature; or any other file")
    parser.add_argument(
        "--key",
        metavar="KEY",
        default="~/.ssh/id_ed25519",
        help="a private key of OpenSSH, or the public key of one that an agent has (default: %(default)s)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="of a .tow: write the signed file there (default: replace it)"
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    path = Path(args.file)
    if not path.is_file():
        what = "is a directory, not a file" if path.is_dir() else "no such file"
        raise UsageError(what, where=args.file)
    key = Path(args.key).expanduser()
    if path.suffix == ".tow":
        output = args.output or args.file
        artifact.sign(path, key, output)
    else:
        if args.output is not None:
            raise UsageError("-o is for a .tow; other files get a signature beside them", where=args.file)
        output = f"{args.file}{signatures.SUFFIX}"
        files.write(output, signatures.sign(path.read_bytes(), key))
    document = {"file": args.file, "output": output, "key": str(key)}
    hint = (
        f"`towline verify {args.file} --keys KEYS` checks it; {settings.SIGNERS.name} requires it everywhere"
    )
    return Result(document, f"signed: {output}\n{hint}")

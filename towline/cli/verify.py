"""`towline verify`: whose signature a compiled network or a firmware image has."""

from __future__ import annotations

import argparse
from pathlib import Path

from sdk import artifact, settings, signatures
from sdk.errors import UsageError
from sdk.report import Console, Result

EXAMPLE = "towline verify net.tow --keys team.pub"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a .tow, or a file whose signature lies beside it")
    parser.add_argument(
        "--keys",
        metavar="KEYS",
        help="the keys that are trusted: public keys, or allowed signers of OpenSSH "
        f"(default: {settings.SIGNERS.name})",
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    path = Path(args.file)
    if not path.is_file():
        what = "is a directory, not a file" if path.is_dir() else "no such file"
        raise UsageError(what, where=args.file)
    keys = args.keys or settings.SIGNERS.value()
    if keys is None:
        raise UsageError("no trusted keys were given", hint="--keys team.pub")
    if path.suffix == ".tow":
        signer = artifact.signer(path, keys)
        artifact.load(path, keys)  # the digests in what was signed, too
    else:
        signer = signatures.verify(path.read_bytes(), signatures.beside(path), keys, args.file)
    return Result({"file": args.file, "signer": signer}, f"{args.file}: signed by {signer}")

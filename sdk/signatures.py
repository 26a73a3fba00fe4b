"""Signatures of what holds code: `.tow` files and firmware images, by OpenSSH's keys and its `ssh-keygen`.

`ssh-keygen -Y` signs with any key that ssh can use, of an agent or a security token too (PROTOCOL.sshsig, in
the namespace `towline`). Keys are trusted by a file: lines of OpenSSH's allowed signers, or public keys as in
`.pub` files. A `.tow` holds the signature of its manifest, whose digests cover all other members; that of any
other file lies beside it, in FILE.sig.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import ClassVar

from sdk import files, settings, toolchain
from sdk.errors import ToolMissing, TowlineError, UsageError

NAMESPACE = "towline"
SUFFIX = ".sig"
MOST_BYTES = 1 << 16
"""Of a signature; usual ones have some hundred."""
KEY_TYPES = ("ssh-", "ecdsa-", "sk-")
"""What a line of a public key begins with, and one of allowed signers does not."""


class SignatureRefused(TowlineError):
    """A file is not signed by a key that is trusted, or was changed since."""

    code: ClassVar[str] = "signature"


def sign(data: bytes, key: str | os.PathLike[str]) -> bytes:
    """The signature of data, armoured text.

    Args:
        data: what is signed.
        key: path of a private key; or of a public one, whose private key an agent has.

    Raises:
        UsageError: there is no such key, or it cannot be used.
        ToolMissing: there is no OpenSSH.
    """
    if not Path(key).is_file():
        raise UsageError("no such key", where=os.fspath(key), hint="ssh-keygen -t ed25519 makes one")
    # The terminal stays its own: it asks there for a passphrase.
    done = _keygen(["-Y", "sign", "-n", NAMESPACE, "-f", os.fspath(key)], data)
    if done.returncode or b"BEGIN SSH SIGNATURE" not in done.stdout:
        raise UsageError(f"the key cannot sign: {_said(done)}", where=os.fspath(key))
    return done.stdout


def verify(data: bytes, signature: bytes | None, keys: str | os.PathLike[str], where: str) -> str:
    """Check a signature.

    Args:
        data: what was signed.
        signature: as `sign` made it; None if there is none.
        keys: path of a file of trusted keys.
        where: what is checked, for errors.

    Returns:
        Whose it is, as the file of keys says.

    Raises:
        SignatureRefused: there is none, it is by another key, or the data are not those that were signed.
        UsageError: the file of keys cannot be read, or holds none.
        ToolMissing: there is no OpenSSH.
    """
    trusted = _trusted(keys)
    if signature is None:
        raise SignatureRefused("is not signed", where=where, hint=f"towline sign {where}")
    if len(signature) > MOST_BYTES:
        raise SignatureRefused(f"its signature exceeds {MOST_BYTES:,} bytes", where=where)
    known = False
    with files.scratch_directory() as directory:
        allowed, signed = directory / "allowed", directory / "signature"
        files.write(signed, signature)
        # One after the other: of a file with several lines of a key, ssh-keygen looks at the first alone.
        for line, name in trusted:
            files.write(allowed, f"{line}\n".encode())
            found = _keygen(["-Y", "find-principals", "-s", str(signed), "-f", str(allowed)])
            # One a line, or with commas between them (OpenSSH 8.8); those with ! are who it is not.
            listed = found.stdout.decode("utf-8", "replace").replace(",", "\n").splitlines()
            names = [one for one in listed if not one.startswith("!")]
            if found.returncode or not names:
                continue
            known = True
            checked = ["-Y", "verify", "-n", NAMESPACE, "-f", str(allowed), "-I", names[0], "-s", str(signed)]
            if not _keygen(checked, data).returncode:
                return name or names[0]
    if known:
        raise SignatureRefused(
            "was changed after it was signed, or was signed for another purpose", where=where
        )
    raise SignatureRefused(
        "is signed by a key that is not trusted", where=where, hint=f"the keys trusted are in {keys}"
    )


def read(path: str | os.PathLike[str], keys: str | os.PathLike[str] | None) -> bytes:
    """The content of a file whose signature lies beside it.

    Args:
        path: of the file.
        keys: path of a file of trusted keys; None if no signature is needed.

    Raises:
        OSError: it cannot be read.
        SignatureRefused, UsageError, ToolMissing: as `verify`.
    """
    data = Path(path).read_bytes()
    if keys is not None:
        verify(data, beside(path), keys, os.fspath(path))
    return data


def beside(path: str | os.PathLike[str]) -> bytes | None:
    """The signature that lies beside a file; None if there is none."""
    place = Path(f"{os.fspath(path)}{SUFFIX}")
    try:
        with place.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError:
        return None


def _trusted(keys: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """The lines of a file of keys, as allowed signers, with the names of those that have none in ssh's way.

    A public key has its comment for a name, which may hold what allowed signers give a meaning.
    """
    where = os.fspath(keys)
    try:
        text = Path(keys).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise UsageError(f"the trusted keys cannot be read: {reason}", where=where) from None
    lines = []
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith("#"):
            if line.startswith(KEY_TYPES):
                kind, key, *comment = [*line.split(maxsplit=2), ""]
                lines.append((f"key {kind} {key}", comment[0] or "unnamed"))
            else:
                lines.append((line, ""))
    if not lines:
        raise UsageError("holds no key", where=where, hint="a line for each key, as in a .pub file")
    return lines


def _keygen(args: list[str], data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Raises ToolMissing."""
    program = toolchain.find("ssh").with_name("ssh-keygen")
    if not os.access(program, os.X_OK):
        raise ToolMissing(
            f"ssh-keygen is needed, and is not beside ssh: {program}",
            hint=f"install OpenSSH (Debian: openssh-client), or let {settings.SSH.name} name its ssh",
        )
    # Without a time limit: it may wait for a passphrase, or for a finger on a token.
    return subprocess.run(
        toolchain.dying_with_us([program, *args]), input=data, capture_output=True, check=False
    )


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"

"""The program that runs a network on the phone: static, for arm64, built once and kept in the cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dsp.c.context import amalgamate
from dsp.c.plan import SOURCE, CPlan
from dsp.c.session import FLAGS, POSIX, sizes_and_spans
from sdk import cache, settings, toolchain
from sdk.errors import BuildFailed, OutputFailed, ToolMissing
from sdk.target import Program

SOURCES = Path(__file__).parent / "runner"
BASE = ("main.c", "sha256.c")
DSP = (*BASE, "dsp.c", "listener.c", "system.c")

ARM64 = "--target=aarch64-linux-gnu"
LIBC = Path("/usr/aarch64-linux-gnu/include/stdio.h")
"""Of Debian's libc6-dev-arm64-cross, which clang finds by itself."""


def runner(program: Program) -> Path:
    """Path of the program for a network; that of the target c holds the network, the DSP's is for all.

    Raises:
        InvalidArtifact: the network is incomplete, or its plan damaged.
        ToolMissing: clang, ld.lld or the C library for arm64 is missing.
        BuildFailed: the compiler refused it.
        OutputFailed: the cache cannot be written.
    """
    if program.target != "c":
        return built([SOURCES / name for name in DSP])
    network = "\n".join(
        [
            POSIX.decode() + program.code[SOURCE].decode("ascii"),
            amalgamate(["plain/failure.h"]),
            sizes_and_spans(CPlan.of(program), program.graph),
            (SOURCES / "network.c").read_text(encoding="ascii"),
        ]
    )
    return built([SOURCES / name for name in BASE], network)


def built(sources: Sequence[Path], network: str = "") -> Path:
    """The program of C files, and of a text where there is one. Raises as `runner`."""
    flags = [ARM64, "-static", *FLAGS, "-D_GNU_SOURCE", f"-I{SOURCES}"]
    headers = sorted(SOURCES.glob("*.h"))
    facts = [toolchain.version("clang"), *flags, network]
    facts += [path.read_text(encoding="ascii") for path in [*headers, *sources]]
    folder = cache.directory("phone")
    image = folder / f"runner-{cache.digest(facts)}"
    if image.exists():
        return image
    if not LIBC.exists():
        raise ToolMissing(
            "the C library for arm64 is missing, with which the phone's program is built",
            where=str(LIBC),
            hint="sudo apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        )
    given: list[str | Path] = [*sources, *(["-x", "c", "-"] if network else [])]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The compiler writes it, as dsp.c.session says.
        with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
            made = Path(scratch, "runner")
            linker = f"--ld-path={toolchain.find('lld')}"
            toolchain.run(
                "clang", [*flags, linker, "-o", made, *given, "-lm", "-lpthread"], input=network.encode()
            )
            if not made.exists():
                raise BuildFailed("it wrote nothing", where="clang")
            os.replace(made, image)
    except OSError as problem:
        raise OutputFailed(
            f"the cache cannot be written: {problem.strerror}",
            where=str(folder),
            hint=f"set {settings.CACHE.name} to a directory that can be written",
        ) from problem
    return image

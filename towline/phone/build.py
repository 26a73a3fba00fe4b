"""The program that runs a network on the phone: static, for arm64, built once and kept in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsp.c.context import amalgamate
from dsp.c.plan import SOURCE, CPlan
from dsp.c.session import FLAGS, POSIX, sizes_and_spans
from sdk import cache, files, toolchain
from sdk.errors import BuildFailed, ToolMissing
from sdk.target import Program

SOURCES = Path(__file__).parent / "runner"
BASE = ("main.c", "sha256.c")
DSP = (*BASE, "dsp.c", "mainline.c", "android.c", "listener.c", "system.c")
IMAGE = "runner"
"""The program's name in the cache."""

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
    folder = cache.directory("phone") / f"runner-{cache.digest(facts)}"
    if cache.has_files(folder, [IMAGE]):
        return folder / IMAGE
    if not LIBC.exists():
        raise ToolMissing(
            "the C library for arm64 is missing; the phone's program is built with it",
            where=str(LIBC),
            hint="sudo apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        )
    given: list[str | Path] = [*sources, *(["-x", "c", "-"] if network else [])]
    # The compiler writes it, as dsp.c.session says.
    with cache.writing(folder.parent), files.scratch_directory(folder.parent) as scratch:
        made = scratch / IMAGE
        linker = f"--ld-path={toolchain.find('lld')}"
        toolchain.run(
            "clang",
            [*flags, linker, "-o", made, *given, "-lm", "-lpthread"],
            input=network.encode(),
            scratch=scratch,
        )
        if not made.exists():
            raise BuildFailed("it wrote nothing", where="clang")
        cache.keep_files(folder, {IMAGE: made})
    return folder / IMAGE

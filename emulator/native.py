"""The emulator's C, compiled on first use into the user's cache and called through cffi.

A folder whose header marks declarations with "cffi begin" and "cffi end" is native: its C files become part
of one shared library, and the marked declarations are what Python sees. The C is freestanding: clang's own
headers and lld are all it takes, no C library's headers, no gcc, no Python.h.

The library is keyed by what determines it (compiler and version, command, sources, headers) and written
whole or not at all, so that any number of processes may build it at once. Its own digest follows it:
loading a damaged one would kill the process.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from emulator.mcs51 import opcodes
from sdk import cache, settings, toolchain
from sdk.errors import EnvironmentMissing
from sdk.extras import require
from sdk.files import scratch_directory, write

ROOT = Path(__file__).parent

FLAGS = (
    "-std=gnu17",
    "-O2",
    "-fPIC",
    "-ffreestanding",
    "-fno-plt",
    "-Wall",
    "-Wextra",
    "-Werror",
)

LINK_FLAGS = ("-shared", "--build-id=none", "-s")

CACHE = "emulator"
"""The cache's directory of the library."""

GENERATED = {"opcodes.h": opcodes.c_header}
"""Headers written by Python, by the name under which C includes them."""

_MARKED = re.compile(r"/\* cffi begin \*/(.*?)/\* cffi end \*/", re.DOTALL)
_INCLUDE = re.compile(r'^#include "(.+)"$', re.MULTILINE)


_loading = threading.Lock()


def library() -> tuple[Any, Any]:
    """The cffi instance that knows the declarations, and the loaded library: one for the process.

    Two boards may be made at the same time, in a thread each, and structures of one instance are not those of
    another.

    Raises:
        EnvironmentMissing: cffi is not installed, or the library cannot be loaded.
        ToolMissing: clang or lld is not there.
        BuildFailed: one of them refused its input.
        OutputFailed: the cache cannot be written.
    """
    with _loading:
        return _library()


@functools.cache
def _library() -> tuple[Any, Any]:
    ffi = require("cffi", extra="emulator").FFI()
    for header in _in_order(_headers()):
        for declarations in _MARKED.findall(header.read_text()):
            ffi.cdef(declarations)
    path = _built()
    try:
        return ffi, ffi.dlopen(str(path))
    except OSError as problem:
        raise EnvironmentMissing(
            f"the emulator's library cannot be loaded: {str(problem).partition('.  Additionally')[0]}",
            where=str(path),
            hint=f"set {settings.CACHE.name} to a directory that programs may be run from",
        ) from None


def _headers() -> list[Path]:
    """Headers with declarations for Python."""
    return [path for path in sorted(ROOT.rglob("*.h")) if _MARKED.search(path.read_text())]


def _in_order(headers: Iterable[Path]) -> list[Path]:
    """Headers after those that they include."""
    todo = {path.name: path for path in headers}
    done: list[Path] = []

    def visit(name: str) -> None:
        path = todo.pop(name, None)
        if path is not None:
            for included in _INCLUDE.findall(path.read_text()):
                visit(Path(included).name)
            done.append(path)

    for name in list(todo):
        visit(name)
    return done


def _built() -> Path:
    """Path of the library in the cache, built if it is not there."""
    folders = sorted({path.parent for path in _headers()})
    sources = [path for folder in folders for path in sorted(folder.glob("*.c"))]
    facts = [toolchain.version("clang"), toolchain.version("lld"), platform.machine(), *FLAGS, *LINK_FLAGS]
    facts += [text for name, header in GENERATED.items() for text in (name, header())]
    for folder in folders:
        for path in sorted((*folder.glob("*.c"), *folder.glob("*.h"))):
            facts += [str(path.relative_to(ROOT)), path.read_text()]
    cached = cache.directory(CACHE) / f"emulator-{cache.digest(facts)}.so"
    if cache.load_path(cached) is None:
        cache.keep(cached, _build(sources))
    return cached


def _build(sources: Iterable[Path]) -> bytes:
    """The shared library."""
    with scratch_directory() as directory:
        for name, header in GENERATED.items():
            write(directory / name, header().encode())

        def compiled(numbered: tuple[int, Path]) -> Path:
            number, source = numbered
            target = directory / f"{number}.o"
            args: list[str | Path] = [
                *FLAGS,
                f"-I{directory}",
                f"-I{ROOT.parent}",
                "-c",
                "-o",
                target,
                source,
            ]
            toolchain.run("clang", args, timeout=300)
            return target

        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            objects = list(pool.map(compiled, enumerate(sources)))
        target = directory / "emulator.so"
        toolchain.run("lld", [*LINK_FLAGS, "-o", target, *objects], timeout=120)
        return target.read_bytes()

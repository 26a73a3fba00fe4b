"""OpenCL programs, built; and what a driver's compiler made of them, kept for the next time.

A binary is kept under a digest of all that it depends on (device, driver's version, source, options), behind
its own SHA-256: drivers trust a binary, and PoCL crashes on one that is cut short. What is damaged, or what
the driver refuses all the same, is built anew.

PoCL is not asked for binaries: it keeps its own and would compile each kernel once more.
"""

from __future__ import annotations

import hashlib
import logging
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsp.adreno import opencl
from dsp.adreno.opencl import Found
from sdk import cache
from sdk.errors import BuildFailed, OutputFailed

LOG_LINES = 20
"""Lines of the compiler's log that go into an error."""

_DIGEST = hashlib.sha256().digest_size

log = logging.getLogger(__name__)


def build(
    found: Found, context: Any, source: bytes, options: Sequence[str], kernels: Sequence[str]
) -> list[Any]:
    """A program's kernels (pyopencl.Kernel), from the cache or from source.

    Args:
        found: the device.
        context: pyopencl.Context with that device alone.
        source: OpenCL C.
        options: of clBuildProgram.
        kernels: names of kernels; one that is named twice is had twice, each with arguments of its own.

    Raises:
        BuildFailed: the compiler refused it, or there is no such kernel in it.
    """
    cl = opencl._pyopencl()
    path = None if found.platform == opencl.POCL else file(found, source, options)
    if path is not None and (binary := _read(path)) is not None:
        try:
            program = _built(cl.Program(context, [found.handle], [binary]), options)
            return [cl.Kernel(program, name) for name in kernels]
        except cl.Error as problem:
            log.info("%s is built anew: %s", path, opencl.reason(problem))
    # Of a raw program pyopencl keeps no binary in a cache of its own.
    program = cl.Program(cl._Program(context, source.decode("ascii", "replace")))
    try:
        _built(program, options)
        found_kernels = [cl.Kernel(program, name) for name in kernels]
    except cl.Error as problem:
        raise _refused(cl, program, found, problem) from problem
    if path is not None:
        _keep(path, program.get_info(cl.program_info.BINARIES)[0])
    return found_kernels


def file(found: Found, source: bytes, options: Sequence[str]) -> Path:
    """Where a program's binary is kept."""
    return cache.directory("opencl") / f"{cache.digest([*found.identity, *options, source])}.bin"


def _built(program: Any, options: Sequence[str]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the compiler said something: it is shown if it refuses
        return program.build(list(options))


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    binary = data[_DIGEST:]
    return binary if binary and hashlib.sha256(binary).digest() == data[:_DIGEST] else None


def _keep(path: Path, binary: bytes) -> None:
    """Keep a binary; a cache that cannot be written costs time, and no more."""
    if not binary:
        return  # a driver need not give one
    try:
        cache.keep(path, hashlib.sha256(binary).digest() + binary)
    except OutputFailed as problem:
        log.warning("the compiled program is not kept: %s", problem)


def _refused(cl: Any, program: Any, found: Found, problem: Any) -> BuildFailed:
    said = ""
    if problem.code == cl.status_code.BUILD_PROGRAM_FAILURE:
        said = program.get_build_info(found.handle, cl.program_build_info.LOG) or ""
    # PoCL names the temporary file that it has written the source to.
    lines = re.sub(r"\S*/tempfile_\w+\.cl\b", "network.cl", said).strip().splitlines()
    if len(lines) > LOG_LINES:
        lines = [*lines[:LOG_LINES], f"... and {len(lines) - LOG_LINES} lines more"]
    return BuildFailed(
        f"{found.name} did not build the program: " + ("\n".join(lines) or opencl.reason(problem)),
        where="network.cl",
        hint="the source is network.cl in the .tow, a zip file; compile the model again if it was altered",
    )

"""Builds OpenCL programs, and caches the binaries that a driver's compiler made of them.

A binary is kept under a digest of all that it depends on (device, driver's version, source, options), behind
its own SHA-256: drivers trust a binary, and PoCL crashes on one that is cut short. A binary that is damaged,
or that the driver refuses nevertheless, is built again from source.

PoCL is not asked for binaries: it keeps its own and would compile each kernel once more.
"""

from __future__ import annotations

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
        kernels: names of kernels; a name given twice makes two kernels, each with its own arguments.

    Raises:
        BuildFailed: the compiler refused it, or it has no such kernel.
    """
    cl = opencl._pyopencl()
    path = None if found.platform == opencl.POCL else file(found, source, options)
    if path is not None and (binary := cache.load(path)) is not None:
        try:
            program = _built(cl.Program(context, [found.handle], [binary]), options)
            return [cl.Kernel(program, name) for name in kernels]
        except cl.Error as problem:
            log.info("%s is built again: %s", path, opencl.reason(problem))
    # pyopencl does not put the binary of a raw program into its own cache.
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
        warnings.simplefilter("ignore")  # of the compiler's output, which is shown if it refuses
        return program.build(list(options))


def _keep(path: Path, binary: bytes) -> None:
    """Keep a binary; a cache that cannot be written only costs time."""
    if not binary:
        return  # a driver may have none
    try:
        cache.keep(path, binary)
    except OutputFailed as problem:
        log.warning("the compiled program is not kept: %s", problem)


def _refused(cl: Any, program: Any, found: Found, problem: Any) -> BuildFailed:
    said = ""
    if problem.code == cl.status_code.BUILD_PROGRAM_FAILURE:
        said = program.get_build_info(found.handle, cl.program_build_info.LOG) or ""
    # PoCL names the temporary file to which it wrote the source.
    lines = re.sub(r"\S*/tempfile_\w+\.cl\b", "network.cl", said).strip().splitlines()
    if len(lines) > LOG_LINES:
        lines = [*lines[:LOG_LINES], f"... and {len(lines) - LOG_LINES} more lines"]
    return BuildFailed(
        f"{found.name} did not build the program: " + ("\n".join(lines) or opencl.reason(problem)),
        where="network.cl",
        hint="the source is network.cl in the .tow, a zip file; compile the model again if it was changed",
    )

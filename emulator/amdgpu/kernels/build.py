"""OpenCL C to code objects: clang and lld, kept in the cache."""

from __future__ import annotations

from pathlib import Path

from emulator.amdgpu.code_object import CodeObject, parse
from sdk import cache, toolchain
from sdk.files import scratch_directory, write

SOURCES = Path(__file__).parent
FLAGS = (
    "--target=amdgcn-amd-amdhsa",
    "-x",
    "cl",
    "-nogpulib",
    "-cl-std=CL2.0",
    "-cl-kernel-arg-info",
    "-O3",
    "-mcode-object-version=5",
    "-Wall",
    "-Wextra",
    "-Werror",
)
CACHE = "amdgpu"
"""The cache's directory of code objects."""


def code_object(source: str, chip: str) -> bytes:
    """The code object of a source file of this folder.

    Args:
        source: its name without `.cl`.
        chip: the target, such as `gfx1100`.

    Raises:
        ToolMissing: clang or lld is not there.
        BuildFailed: one of them refused its input.
        OutputFailed: the cache cannot be written.
    """
    path = SOURCES / f"{source}.cl"
    facts = [toolchain.version("clang"), toolchain.version("lld"), chip, *FLAGS, path.read_text()]
    facts += [header.read_text() for header in sorted(SOURCES.glob("*.h"))]
    cached = cache.directory(CACHE) / f"{source}-{chip}-{cache.digest(facts)}.co"
    code = cache.load(cached)
    if code is None:
        code = compile_file(path, chip)
        cache.keep(cached, code)
    return code


def compile_file(path: Path, chip: str) -> bytes:
    """The code object of any file of OpenCL C. Raises ToolMissing or BuildFailed."""
    args = [*FLAGS, f"-mcpu={chip}", f"-I{SOURCES}", "-c", "-o", "-", str(path)]
    compiled = toolchain.run("clang", args, timeout=300).stdout
    with scratch_directory() as directory:
        made = directory / "kernel.o"
        write(made, compiled)
        return toolchain.run("lld", ["-shared", "--build-id=none", "-o", "-", made], timeout=120).stdout


def build(source: str, chip: str) -> CodeObject:
    """`code_object`, taken apart. Raises as it does."""
    return parse(code_object(source, chip))

"""LLVM IR to host code, kept in the cache for the next process.

Object code is keyed by all that determines it: the kernel's code and mode, the chip, the host's processor,
llvmlite's version, and our own sources.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sdk import cache
from sdk.extras import require

CACHE = "shaders"
"""The cache's directory of object code."""

PASSES = ("sroa", "instruction_combine", "simplify_cfg", "new_gvn")
"""The passes that pay for themselves: SSA of the registers, and the folding of EXEC where it is known."""

OPTIMISATION = 2
"""Of the code generator."""

LIBRARIES = ("libm.so.6", "libgcc_s.so.1")
"""What code calls on hosts that have no FMA or no conversions of f16 (before x86-64-v3)."""


@functools.cache
def _binding() -> Any:
    llvm = require("llvmlite.binding", extra="emulator")
    for name in LIBRARIES:
        with contextlib.suppress(RuntimeError):  # `unresolved` reports what is missing
            llvm.load_library_permanently(name)
    return llvm


def _machine() -> Any:
    """The host as a target; a JIT engine takes it over. Raises EnvironmentMissing without llvmlite."""
    llvm = _binding()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(), opt=OPTIMISATION, jit=True
    )


def _features() -> str:
    flattened: str = _binding().get_host_cpu_features().flatten()
    return flattened


@functools.cache
def _own_sources() -> str:
    """Digest of the sources that determine the code."""
    folder = Path(__file__).parent
    whole = hashlib.sha256()
    for path in sorted((*folder.rglob("*.py"), *folder.glob("*.h"))):
        whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def key(*facts: str | bytes) -> str:
    """Name of what these facts, the host and our sources determine."""
    llvm = _binding()
    version = ".".join(map(str, llvm.llvm_version_info))
    return cache.digest((*facts, llvm.get_host_cpu_name(), _features(), version, _own_sources()))


def kept(name: str) -> bytes | None:
    """Object code from the cache, None if it is not there or damaged."""
    return cache.load(cache.directory(CACHE) / f"{name}.o")


def keep(name: str, code: bytes) -> None:
    """Put object code into the cache. Raises OutputFailed."""
    cache.keep(cache.directory(CACHE) / f"{name}.o", code)


def compiled(text: str) -> bytes:
    """Object code of a module.

    Raises:
        RuntimeError: it is not well-formed: a mistake in a semantics.
    """
    llvm = _binding()
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    manager = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, builder)
    code: bytes = machine.emit_object(module)
    return code


def unresolved(code: bytes, functions: Iterable[str]) -> list[str]:
    """What object code (ELF) calls that is neither among these functions nor in the process: a call of it
    would go to address 0.
    """
    if not code.startswith(b"\x7fELF"):
        return []
    file = require("elftools.elf.elffile", extra="emulator").ELFFile(io.BytesIO(code))
    table = file.get_section_by_name(".symtab")
    names = [each.name for each in table.iter_symbols() if each.name and each["st_shndx"] == "SHN_UNDEF"]
    return [name for name in names if name not in functions and not _binding().address_of_symbol(name)]


class Loaded:
    """Object code in memory; released with this object.

    Args:
        code: from `compiled`.
        functions: host addresses of what it calls, by name.
    """

    def __init__(self, code: bytes, functions: dict[str, int]) -> None:
        llvm = _binding()
        for name, address in functions.items():
            llvm.add_symbol(name, address)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Host address of a function."""
        found: int = self._engine.get_function_address(name)
        return found

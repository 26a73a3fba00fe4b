"""LLVM's disassemblers, by the C interface (llvm-c/Disassembler.h) of the libLLVM that clang came with."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import threading
from collections.abc import Iterator
from pathlib import Path

from sdk import toolchain
from sdk.errors import EnvironmentMissing


class Disassembler:
    """The disassembler of one processor. Several threads may use it: LLVM's own is for one at a time.

    Args:
        target: LLVM's target, such as AMDGPU or Hexagon.
        triple: such as amdgcn-amd-amdhsa.
        cpu: LLVM's name of it: gfx1100, hexagonv65, ...
        features: as clang's -mattr.

    Raises:
        EnvironmentMissing: there is no libLLVM with the target.
        ToolMissing: there is no clang.
    """

    def __init__(self, target: str, triple: str, cpu: str, features: str = "") -> None:
        self._llvm = _library(target)
        self._handle = self._llvm.LLVMCreateDisasmCPUFeatures(
            triple.encode(), cpu.encode(), features.encode(), None, 0, None, None
        )
        if not self._handle:
            raise EnvironmentMissing(
                f"libLLVM does not know {cpu}", hint=f"{toolchain.TOOLS['clang'].install}, complete"
            )
        self._lock = threading.Lock()
        self._text = ctypes.create_string_buffer(2048)

    def disassemble(self, data: bytes, address: int = 0) -> tuple[int, str]:
        """Bytes and text of the first instruction, or packet of them. 0 bytes if the data is neither."""
        with self._lock:  # ctypes lets other threads run meanwhile
            nbytes = self._llvm.LLVMDisasmInstruction(
                self._handle, data, len(data), address, self._text, len(self._text)
            )
            return nbytes, self._text.value.decode().strip() if nbytes else ""


@functools.cache
def _library(target: str) -> ctypes.CDLL:
    """The libLLVM of the installed clang, with a target's disassembler in it and set up."""
    tried = []
    for name in _candidates():
        try:
            llvm = ctypes.CDLL(name)
            for part in ("TargetInfo", "TargetMC", "Disassembler"):
                getattr(llvm, f"LLVMInitialize{target}{part}")()
        except (OSError, AttributeError):
            tried.append(name)
            continue
        pointer, number, text, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t
        llvm.LLVMCreateDisasmCPUFeatures.restype = pointer
        llvm.LLVMCreateDisasmCPUFeatures.argtypes = [text, text, text, pointer, number, pointer, pointer]
        llvm.LLVMDisasmInstruction.restype = size
        llvm.LLVMDisasmInstruction.argtypes = [pointer, text, ctypes.c_uint64, ctypes.c_uint64, text, size]
        return llvm
    major = toolchain.version("clang").partition(".")[0]
    raise EnvironmentMissing(
        f"no libLLVM with the {target} target was found: {', '.join(tried)}",
        hint=f"sudo apt-get install libllvm{major}, which clang-{major} is linked against",
    )


def _candidates() -> Iterator[str]:
    """Names and paths under which distributions keep clang's libLLVM, the likeliest first."""
    major = toolchain.version("clang").partition(".")[0]
    prefix = Path(toolchain.find("clang")).resolve().parent.parent
    names = (
        f"libLLVM-{major}.so",
        f"libLLVM.so.{major}.1",
        f"libLLVM-{major}.so.1",
        "libLLVM.so",
        "libLLVM.dylib",
    )
    yield from (str(prefix / "lib" / name) for name in names if (prefix / "lib" / name).exists())
    yield from names[:3]
    if found := ctypes.util.find_library(f"LLVM-{major}"):  # runs a compiler: slow
        yield found

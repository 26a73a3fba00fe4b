"""Kernels, made ready to run: decoded, checked, translated, loaded; each once."""

from __future__ import annotations

from functools import cached_property

from emulator import native
from emulator.amdgpu.isa import flow, jit
from emulator.amdgpu.isa.decode import decoder
from emulator.amdgpu.isa.emit import Mode
from emulator.amdgpu.isa.flow import Fetch, Program
from emulator.amdgpu.isa.operands import Instruction
from emulator.amdgpu.isa.translate import Layout, classes, kind, products, translate
from sdk.errors import EnvironmentMissing, InternalError

CALLED = (
    "waves_load",
    "waves_store",
    "waves_atomic",
    "waves_scalar_load",
    "waves_signal",
    "waves_wait",
    "waves_stop",
)
"""Functions of the library that translated code calls."""

RUN_FIELDS = (
    "counts", "sites", "lds", "lds_size", "lds_bad", "read", "code", "budget", "least", "shared_aperture",
    "private_aperture",
)  # fmt: skip
WAVE_FIELDS = ("vgpr", "sgpr", "scc", "scratch")


class CompiledKernel:
    """Code and a floating-point mode.

    Args:
        chip: as LLVM calls it.
        generation: 11 or 12.
        program: the code.
        mode: at its entry.
        keep: whether waves write their registers back at the end.

    Attributes:
        program: the code.
        classes: instructions by class, for each block in order.
        products: of the matrix instructions, by bits of an element, likewise.

    Raises:
        Refused: an instruction is not implemented.
    """

    def __init__(
        self, chip: str, generation: int, program: Program, mode: Mode, *, keep: bool = False
    ) -> None:
        self.program = program
        self.chip = chip
        self.generation = generation
        self.mode = mode
        self.keep = keep
        self.classes = classes(program, generation)
        self.products = products(program, generation)
        self._loaded: dict[bool, jit.Loaded] = {}

    @cached_property
    def vgprs(self) -> int:
        """One more than the highest VGPR that is named."""
        parts = (part for each in self.program.instructions for part in (each.pair or (each,)))
        operands = (operand for part in parts for operand in part.operands if operand.kind == "v")
        return max((operand.index + operand.count for operand in operands), default=0)

    def kind(self, instruction: Instruction) -> str:
        """The class that an instruction counts in."""
        return kind(instruction, self.generation)

    @cached_property
    def uses(self) -> frozenset[str]:
        """What it reaches: "lds", "scratch"."""
        names = [each.mnemonic for each in self.program.instructions]
        found = {"lds"} if any(name.startswith("ds_") for name in names) else set()
        return frozenset(
            found | ({"scratch"} if any(name.startswith("scratch_") for name in names) else set())
        )

    def function(self, *, full: bool) -> int:
        """Host address of the code for waves with all lanes, or for others.

        Raises:
            Refused: a form of an instruction is not implemented.
        """
        if full not in self._loaded:
            name = jit.key(self.chip, *self._facts(), "full" if full else "partial", str(self.keep))
            code = jit.kept(name)
            if code is None:
                code = self._compiled(full)
                jit.keep(name, code)
            self._loaded[full] = jit.Loaded(code, _functions())
        return self._loaded[full].address("full" if full else "partial")

    def _facts(self) -> list[str | bytes]:
        """What determines the translation, wherever the code is loaded."""
        facts: list[str | bytes] = [str(self.mode.bits)]
        for address, block in self.program.blocks.items():
            facts.append(str(address))
            facts += [part.code.to_bytes(part.size, "little") for part in block.instructions]
        return facts

    def _compiled(self, full: bool) -> bytes:
        translation = translate(self.program, self.generation, self.mode, layout(), full=full, keep=self.keep)
        try:
            code = jit.compiled(translation.text)
        except RuntimeError as problem:
            raise InternalError(f"a shader was translated to IR that is not well-formed: {problem}") from None
        if missing := jit.unresolved(code, CALLED):
            raise EnvironmentMissing(
                f"shaders need functions that are not on this host: {', '.join(missing)}",
                hint="install libgcc_s and libm of a current distribution",
            )
        return code


class Kernels:
    """The kernels of a chip that have been seen.

    Args:
        chip: as LLVM calls it.
        generation: 11 or 12.
    """

    def __init__(self, chip: str, generation: int) -> None:
        self.chip = chip
        self.generation = generation
        self._programs: dict[int, Program] = {}
        self._kernels: dict[tuple[tuple[tuple[int, bytes], ...], int], CompiledKernel] = {}

    def find(self, entry: int, fetch: Fetch, mode: Mode) -> CompiledKernel:
        """The kernel at an address.

        Raises:
            PageFault: code is not mapped.
            Refused: an instruction is not implemented.
        """
        program = self._programs.get(entry)
        if program is None or not _unchanged(program, fetch):
            program = self._programs[entry] = flow.read(decoder(self.chip), fetch)
        key = (tuple(program.chunks.items()), mode.bits)
        if key not in self._kernels:
            self._kernels[key] = CompiledKernel(self.chip, self.generation, program, mode)
        return self._kernels[key]


def _unchanged(program: Program, fetch: Fetch) -> bool:
    """Whether memory still holds a program's code; neighbouring chunks are read together."""
    start, held = None, b""
    for address, data in program.chunks.items():
        if start is not None and address == start + len(held):
            held += data
            continue
        if start is not None and fetch(start, len(held)) != held:
            return False
        start, held = address, data
    return start is None or fetch(start, len(held)) == held


def layout() -> Layout:
    """Where the library's structures have their fields."""
    ffi, _ = native.library()
    return Layout(
        {name: ffi.offsetof("struct waves_run", name) for name in RUN_FIELDS},
        {name: ffi.offsetof("struct waves_wave", name) for name in WAVE_FIELDS},
    )


def _functions() -> dict[str, int]:
    ffi, library = native.library()
    return {name: int(ffi.cast("uintptr_t", ffi.addressof(library, name))) for name in CALLED}

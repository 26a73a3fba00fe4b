"""Runs dispatches: sets waves up as the dispatch registers say, and brings back what they wrote.

Start values of registers: RDNA3 and RDNA4 ISA manuals and LLVM's AMDGPU documentation ("Initial Kernel
Execution State"). Registers that nothing sets hold garbage, always the same.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import Any

from emulator import native
from emulator.amdgpu.diagnosis import BootStep, Diagnosis
from emulator.amdgpu.isa import control
from emulator.amdgpu.isa.emit import CLASSES, Mode, Refused
from emulator.amdgpu.isa.kernels import CompiledKernel, Kernels
from emulator.amdgpu.isa.operands import LANES
from emulator.amdgpu.seams import AddressSpace, Dispatch, Extent, Outcome, PageFault, WaveFault
from emulator.amdgpu.vram import NO_RESERVE, Vram
from usbgpu.amd.facts.chips import Chip

STEPS = (
    BootStep(
        "dispatch-lds-size",
        "COMPUTE_PGM_RSRC2.LDS_SIZE = LDS of the workgroup / 512, rounded up; the code object has 0 there",
        "kernels that use LDS",
        "DS loads return 0 and DS stores vanish",
        "inferred",
    ),
    BootStep(
        "dispatch-scratch",
        "COMPUTE_DISPATCH_SCRATCH_BASE and COMPUTE_TMPRING_SIZE",
        "kernels that use scratch memory",
        "scratch accesses go to address 0 and fault",
        "inferred",
    ),
)
"""What a driver has to do for shaders, beyond what the dispatch needs."""

BUDGET = 1 << 26
"""Back-edges of a wave before the watchdog ends the dispatch; the model's own limit."""

GARBAGE = 0x7FA5_A5A5
"""What uninitialised registers hold: a NaN, and not a plausible address."""

WAVES = 1 << 28
"""Waves of the largest dispatch; the model's own limit: it would take minutes at the very least."""

LDS_GRANULE = 512
LDS_LIMIT = 64 << 10
GROUP_LIMIT = 1024
PAGE = 4096
POOL = 1 << 30
"""Bytes of PCIe memory that one dispatch may touch."""
KEEP = 64 << 20
"""Host memory for saved pages that is kept for the next dispatch."""


class _Host:
    """Host memory that waves write in place, with what is needed to take it back."""

    def __init__(self, ffi: Any, base: int, size: int) -> None:
        self._regions = [_reserve(size), _reserve(size // 8), _reserve(size // PAGE // 8 + 8)]
        self.struct = ffi.new("struct waves_memory *")
        old, marks, saved = (ffi.from_buffer(region) for region in self._regions)
        self._buffers = (old, marks, saved)
        self.struct.base = ffi.cast("uint8_t *", base)
        self.struct.size = size
        self.struct.old = ffi.cast("uint8_t *", old)
        self.struct.marks = ffi.cast("uint8_t *", marks)
        self.struct.saved = ffi.cast("uint64_t *", saved)

    def release(self) -> None:
        """Give memory back to the host; everything is zero afterwards."""
        for region in self._regions:
            region.madvise(mmap.MADV_DONTNEED)


def _reserve(size: int) -> mmap.mmap:
    """Zeroed memory that costs nothing until it is touched."""
    return mmap.mmap(-1, max(size, PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)


def _guard(base: int, stack: int, count: int) -> None:
    """Protect the lowest page of each of `count` stacks: an overflow must not reach the next one."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for number in range(count):
        if protect(base + number * stack, mmap.PAGESIZE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")


class Executor:
    """The shader engines of one card: `seams.Shaders`.

    Args:
        chip: the facts.
        vram: video memory; dispatches change it while they run, and put it back.
        diagnosis: collects mistakes of the driver.
        budget: back-edges of a wave before the watchdog ends the dispatch.

    Attributes:
        backwards: whether the last workgroup, and the last wave of each, comes first. Silicon promises no
            order: a result that depends on it is a race.

    Raises:
        EnvironmentMissing: the native library, libLLVM or llvmlite is missing.
    """

    def __init__(self, chip: Chip, vram: Vram, diagnosis: Diagnosis, *, budget: int = BUDGET) -> None:
        self._ffi, self._library = native.library()
        self._chip = chip
        self._vram = vram
        self._diagnosis = diagnosis
        self._kernels = Kernels(chip.name, chip.generation)
        self._native = _Native(self._ffi, vram, budget)
        self.backwards = False

    def run(self, dispatch: Dispatch, memory: AddressSpace) -> Outcome:
        """See `seams.Shaders`. One dispatch at a time."""
        mode = Mode.of(dispatch.rsrc1, self._chip.generation)
        threads = math.prod(dispatch.threads)
        if threads > GROUP_LIMIT:
            self._diagnosis.wrong(f"a workgroup of {threads} work-items is larger than {GROUP_LIMIT}")
            threads = 0
        if not threads or not all(dispatch.groups):
            return Outcome(0, dict.fromkeys(CLASSES, 0), 0, 0)
        waves = math.prod(dispatch.groups) * -(-threads // LANES)
        if waves > WAVES:
            return _nothing(
                WaveFault("watchdog", dispatch.code, f"{waves} waves: the model runs at most {WAVES}")
            )
        try:
            kernel = self._kernel(dispatch, memory, mode)
            functions = self._functions(kernel, threads)
        except Refused as refused:
            return _nothing(WaveFault("instruction", dispatch.code + refused.address, str(refused)))
        except PageFault as fault:
            text = f"instruction fetch: {fault}"
            return _nothing(WaveFault("page fault", fault.address, text, fault.address, fault.write))
        self._check(kernel, dispatch)
        self._native.run_struct.backwards = self.backwards
        return self._native.run(self._chip.generation, kernel, functions, dispatch, memory, self._diagnosis)

    def _kernel(self, dispatch: Dispatch, memory: AddressSpace, mode: Mode) -> CompiledKernel:
        def fetch(address: int, size: int) -> bytes:
            start = end = (dispatch.code + address) % (1 << 64)
            while end < start + size:
                extent = memory.translate(end)
                if not extent.executable:
                    raise PageFault(end, write=False, reason="the page is not executable")
                end = extent.end
            return memory.read(start, size)

        kernel = self._kernels.find(dispatch.code, fetch, mode)
        allocated = ((dispatch.rsrc1 & 0x3F) + 1) * 8
        if kernel.vgprs > allocated:
            text = f"the kernel uses {kernel.vgprs} VGPRs, but COMPUTE_PGM_RSRC1 allocates {allocated}"
            raise Refused(0, text)
        return kernel

    def _functions(self, kernel: CompiledKernel, threads: int) -> tuple[int, int]:
        """Code for waves with all lanes and for others, if there are such waves."""
        full = kernel.function(full=True) if threads >= LANES else 0
        partial = kernel.function(full=False) if threads % LANES else 0
        return full, partial

    def _check(self, kernel: CompiledKernel, dispatch: Dispatch) -> None:
        if "lds" in kernel.uses and not dispatch.rsrc2 >> 15 & 0x1FF and _needs_share(kernel):
            self._diagnosis.missing("dispatch-lds-size", "a kernel uses LDS, but has none")
        if "scratch" in kernel.uses and not dispatch.scratch_wave:
            self._diagnosis.missing("dispatch-scratch", "a kernel uses scratch memory, but has none")


def _needs_share(kernel: CompiledKernel) -> bool:
    """Whether a DS instruction needs memory: permutations do not."""
    crossbar = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop")
    names = (each.mnemonic for each in kernel.program.instructions)
    return any(name.startswith("ds_") and not name.startswith(crossbar) for name in names)


def _nothing(fault: WaveFault) -> Outcome:
    return Outcome(0, dict.fromkeys(CLASSES, 0), 0, 0, fault=fault)


class _Native:
    """The library's structures, and one dispatch's way through them."""

    def __init__(self, ffi: Any, vram: Vram, budget: int) -> None:
        self._ffi, self._library = native.library()
        self._vram = vram
        self._main = _Host(ffi, vram.pointer, vram.size)
        self._pool_memory = _reserve(POOL)
        self._pool_buffer = ffi.from_buffer(self._pool_memory)
        self._pool = _Host(ffi, int(ffi.cast("uintptr_t", self._pool_buffer)), POOL)
        self._pool_used = 0
        wave = ffi.sizeof("struct waves_wave")
        self._regions = {
            "waves": _reserve(wave * self._library.WAVES_GROUP),
            "stacks": _reserve(self._library.WAVES_STACK * self._library.WAVES_GROUP),
            "pages": _reserve(ffi.sizeof("struct waves_page") * ((vram.size + POOL) // PAGE)),
            "extents": _reserve(ffi.sizeof("struct waves_extent") * self._library.WAVES_EXTENTS),
            "lds": _reserve(LDS_LIMIT + PAGE),
        }
        self._buffers = {name: ffi.from_buffer(region) for name, region in self._regions.items()}
        self.run_struct = run = ffi.new("struct waves_run *")
        run.waves = ffi.cast("struct waves_wave *", self._buffers["waves"])
        run.stacks = ffi.cast("uint8_t *", self._buffers["stacks"])
        run.pages = ffi.cast("struct waves_page *", self._buffers["pages"])
        run.extents = ffi.cast("struct waves_extent *", self._buffers["extents"])
        run.lds = ffi.cast("uint8_t *", self._buffers["lds"])
        _guard(int(ffi.cast("uintptr_t", run.stacks)), self._library.WAVES_STACK, self._library.WAVES_GROUP)
        run.budget = budget
        run.garbage = GARBAGE
        self._memory: AddressSpace | None = None
        self._fault: PageFault | None = None
        self._problem: BaseException | None = None
        self._callback = ffi.callback("int(uint64_t, int)", self._translate, error=1, onerror=self._failed)
        run.translate = self._callback

    def run(
        self,
        generation: int,
        kernel: CompiledKernel,
        functions: tuple[int, int],
        dispatch: Dispatch,
        memory: AddressSpace,
        diagnosis: Diagnosis,
    ) -> Outcome:
        """Run a dispatch."""
        ffi, run = self._ffi, self.run_struct
        run.full, run.partial = (ffi.cast("void *", address) for address in functions)
        self._memory, self._fault, self._problem = memory, None, None
        counts = ffi.new("uint64_t[]", len(kernel.program.blocks))
        sites = ffi.new("struct waves_site[]", len(kernel.program.instructions) + 1)
        run.counts, run.sites = counts, sites
        self._set(generation, kernel, dispatch)
        try:
            outcome = self._library.waves_dispatch(run)
            if self._problem is not None:
                raise self._problem
            if outcome == control.INTERRUPTED:  # and the handler of Ctrl-C defers it for now
                return _nothing(WaveFault("watchdog", dispatch.code, "interrupted"))
            writes = self._collect()
        except BaseException:
            self._library.waves_take_back(run)
            raise
        executed = dict.fromkeys(CLASSES, 0)
        for number, classes in zip(counts, kernel.classes, strict=True):
            for kind, count in classes.items():
                executed[kind] += number * count
        products: dict[int, int] = {}
        for number, made in zip(counts, kernel.products, strict=True):
            for bits, count in made.items():
                products[bits] = products.get(bits, 0) + number * count
        fault = None
        if outcome != control.DONE:
            fault = self._wave_fault(outcome, kernel, dispatch)
            for kind, count in _unexecuted(kernel, run.fault_pc).items():
                executed[kind] -= count
        if run.lds_bad:
            diagnosis.wrong(
                f"a DS instruction reaches beyond the {run.lds_size} bytes of LDS of its workgroup"
            )
        return Outcome(run.waves_started, executed, run.read, run.written, writes, fault, products)

    def _set(self, generation: int, kernel: CompiledKernel, dispatch: Dispatch) -> None:
        """Fill in the fields of a dispatch."""
        run = self.run_struct
        rsrc2 = dispatch.rsrc2
        run.generation = generation
        run.groups, run.threads = dispatch.groups, dispatch.threads
        run.user_count = rsrc2 >> 1 & 0x1F
        for at in range(run.user_count):
            run.user[at] = dispatch.user_data[at] if at < len(dispatch.user_data) else GARBAGE
        run.group_ids = rsrc2 >> 7 & 0xF
        run.item_ids = rsrc2 >> 11 & 3
        run.lds_size = min((rsrc2 >> 15 & 0x1FF) * LDS_GRANULE, LDS_LIMIT)
        run.vgprs = kernel.vgprs
        run.code = dispatch.code
        run.scratch, run.scratch_wave = dispatch.scratch, dispatch.scratch_wave
        run.shared_aperture, run.private_aperture = dispatch.shared_aperture, dispatch.private_aperture
        run.lds_bad = run.read = run.written = run.waves_started = 0
        run.extent_count = run.last_extent = 0
        run.page_count = 0
        self._pool_used = 0

    def _translate(self, address: int, write: int) -> int:
        """Called by the library: make an address known. 1 if it cannot be."""
        assert self._memory is not None
        self._fault = None
        try:
            extent = self._memory.translate(address, write=bool(write))
            if write and not extent.writable:
                raise PageFault(address, write=True, reason="the page is read-only")
            add = self._add_system if extent.system else self._add_vram
            return add(address, extent)
        except PageFault as fault:
            self._fault = fault
        return 1

    def _failed(self, kind: object, problem: BaseException, traceback: object) -> None:
        """Any other end of a callback, such as Ctrl-C: `run` raises it again."""
        self._problem = problem

    def _add_vram(self, address: int, extent: Extent) -> int:
        size = min(extent.end - extent.start, self._vram.size - extent.target)
        if address >= extent.start + size:
            raise PageFault(address, write=False, reason=f"VRAM ends at {self._vram.size:#x}")
        host = self._ffi.cast("uint8_t *", self._vram.pointer + extent.target)
        return self._add(extent.start, extent.start + size, host, self._main, extent.writable)

    def _add_system(self, address: int, extent: Extent) -> int:
        """Copy a page of PCIe memory, and let waves work on the copy."""
        assert self._memory is not None
        start = max(address - address % PAGE, extent.start)
        end = min(address - address % PAGE + PAGE, extent.end)
        if self._pool_used + PAGE > POOL:
            raise PageFault(
                address, write=False, reason=f"more than {POOL >> 20} MiB of PCIe memory in a dispatch"
            )
        data = self._memory.read(start, end - start)
        offset = self._pool_used + start % PAGE
        self._pool_used += PAGE
        self._pool_memory[offset : offset + len(data)] = data
        host = self._ffi.cast("uint8_t *", self._pool_buffer) + offset
        return self._add(start, end, host, self._pool, extent.writable)

    def _add(self, start: int, end: int, host: Any, memory: _Host, writable: bool) -> int:
        run = self.run_struct
        if self._library.waves_add(run, start, end, host, memory.struct, writable):
            return 0
        run.outcome = control.TABLE_FULL
        return 1

    def _collect(self) -> list[tuple[int, bytes]]:
        """What was written, in order of address; memory is as it was before."""
        ffi, run, library = self._ffi, self.run_struct, self._library
        total = ffi.new("uint64_t *")
        pages = run.page_count
        count = library.waves_written(run, total)
        writes = ffi.new("struct waves_write[]", count + 1)
        data = bytearray(total[0])
        library.waves_collect(run, writes, ffi.from_buffer(data) if data else ffi.NULL)
        if max(pages * PAGE, self._pool_used) > KEEP:
            self._main.release()
            self._pool.release()
            self._pool_memory.madvise(mmap.MADV_DONTNEED)
        at, result = 0, []
        for number in range(count):
            size = writes[number].size
            result.append((writes[number].address, bytes(data[at : at + size])))
            at += size
        return result

    def _wave_fault(self, outcome: int, kernel: CompiledKernel, dispatch: Dispatch) -> WaveFault:
        run = self.run_struct
        pc = dispatch.code + run.fault_pc
        name = _instruction_text(kernel, run.fault_pc)
        if outcome == control.PAGE_FAULT:
            reason = self._fault.reason if self._fault else "not mapped"
            write = bool(run.fault_write)
            text = f"{name}: {'write to' if write else 'read of'} {run.fault_address:#x}: {reason}"
            return WaveFault("page fault", pc, text, run.fault_address, write)
        if outcome == control.TABLE_FULL:
            return WaveFault("watchdog", pc, f"{name}: memory is in more pieces than the model can follow")
        if outcome == control.TRAP:
            return WaveFault("trap", pc, f"{name}: trap {run.fault_address} and no trap handler")
        if outcome == control.JUMP:
            return WaveFault(
                "instruction", pc, f"{name}: a jump to {run.fault_address:#x}, where no code was found"
            )
        if outcome == control.BUFFER:
            text = f"{name}: a swizzled buffer, or one that adds the lane's number, is not implemented"
            return WaveFault("instruction", pc, text)
        if outcome == control.STUCK:
            return WaveFault("watchdog", pc, f"{name}: waves wait at a barrier that others never signal")
        return WaveFault("watchdog", pc, f"{name}: a wave did not end within {run.budget} loop iterations")


def _block_at(kernel: CompiledKernel, pc: int) -> tuple[int, int]:
    """Number of the block that holds an address, and of the instruction in it."""
    for number, block in enumerate(kernel.program.blocks.values()):
        for at, instruction in enumerate(block.instructions):
            if instruction.address == pc:
                return number, at
    return -1, 0


def _instruction_text(kernel: CompiledKernel, pc: int) -> str:
    number, at = _block_at(kernel, pc)
    return list(kernel.program.blocks.values())[number].instructions[at].text if number >= 0 else "?"


def _unexecuted(kernel: CompiledKernel, pc: int) -> dict[str, int]:
    """Instructions of a block after the one at `pc`, by class: counted, but not reached."""
    number, at = _block_at(kernel, pc)
    rest: dict[str, int] = {}
    if number >= 0:
        block = list(kernel.program.blocks.values())[number]
        for instruction in block.instructions[at + 1 :]:
            kind = kernel.kind(instruction)
            rest[kind] = rest.get(kind, 0) + 1
    return rest

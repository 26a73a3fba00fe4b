"""Kernels compiled or assembled by clang, and a card's memory with nothing around it, to run them in."""

from __future__ import annotations

import functools
import hashlib
import io
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile

from emulator.amdgpu.diagnosis import Diagnosis
from emulator.amdgpu.isa.executor import Executor
from emulator.amdgpu.seams import Dispatch, Extent, Outcome, PageFault
from emulator.amdgpu.vram import Vram
from sdk import cache, toolchain
from usbgpu.amd.facts.chips import CHIPS

BASE = 0x2000_0000_0000
"""Virtual address of VRAM's first byte."""
SHARED, PRIVATE = 0x1000_0000, 0x3000_0000
CODE = 1 << 16
DATA = 1 << 20
SCRATCH = 48 << 20
SIZE = 64 << 20


class FlatSpace:
    """VRAM mapped in one piece, but for holes; PCIe memory elsewhere."""

    def __init__(self, vram: Vram) -> None:
        self.vram = vram
        self.holes: list[tuple[int, int]] = []
        self.read_only: tuple[int, int] = (0, 0)
        self.system: dict[int, bytearray] = {}
        self.translations = 0
        self.piece = SIZE

    def translate(self, address: int, *, write: bool = False) -> Extent:
        self.translations += 1
        for start, data in self.system.items():
            if start <= address < start + len(data):
                return Extent(start, start + len(data), start & 0xFFFF_FFFF, True, True, False)
        offset = address - BASE
        if not 0 <= offset < SIZE or any(low <= offset < high for low, high in self.holes):
            raise PageFault(address, write=write, reason="not mapped")
        start = offset - offset % self.piece
        end = min(start + self.piece, SIZE)
        for low, high in (*self.holes, self.read_only):
            if high > low:
                start, end = (
                    max(start, high if offset >= high else 0),
                    min(end, low if offset < low else SIZE),
                )
        writable = not self.read_only[0] <= offset < self.read_only[1]
        if not writable:
            start, end = self.read_only
        return Extent(BASE + start, BASE + end, start, False, writable, True)

    def read(self, address: int, size: int) -> bytes:
        for start, data in self.system.items():
            if start <= address < start + len(data):
                return bytes(data[address - start : address - start + size])
        extent = self.translate(address)
        return self.vram.read(extent.target + address - extent.start, size)

    def write(self, address: int, data: bytes) -> None:
        for start, held in self.system.items():
            if start <= address < start + len(held):
                held[address - start : address - start + len(data)] = data
                return
        self.vram.write(address - BASE, data)


@dataclass
class Code:
    """A code object in memory form."""

    image: bytes
    symbols: dict[str, int]

    def descriptor(self, name: str) -> tuple[int, int, int, int, int, int]:
        """Entry, rsrc1, rsrc2, rsrc3, LDS bytes, scratch bytes of a lane."""
        at = self.symbols[f"{name}.kd"]
        lds, scratch = struct.unpack_from("<II", self.image, at)
        entry = at + struct.unpack_from("<q", self.image, at + 16)[0]
        rsrc3, rsrc1, rsrc2 = struct.unpack_from("<III", self.image, at + 44)
        return entry, rsrc1, rsrc2, rsrc3, lds, scratch


@functools.cache
def build(chip: str, source: str, language: str = "cl", level: str = "-O2", feature: str = "") -> Code:
    """Compile OpenCL C, or assemble; `feature` is one of LLVM's."""
    options = ["-x", "cl", "-nogpulib", "-cl-std=CL2.0", level] if language == "cl" else ["-x", "assembler"]
    options += ["-Xclang", "-target-feature", "-Xclang", feature] if feature else []
    args = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={chip}", "-mcode-object-version=5", *options]
    key = hashlib.sha256(repr((args, source, toolchain.version("clang"))).encode()).hexdigest()[:24]
    path = Path(cache.directory("test-shaders")) / f"{key}.co"
    if not path.exists():
        built = toolchain.run("clang", [*args, "-o", "-", "-"], input=source.encode()).stdout
        cache.keep(path, built)
    file = ELFFile(io.BytesIO(path.read_bytes()))
    segments = [each for each in file.iter_segments() if each["p_type"] == "PT_LOAD"]
    image = bytearray(max(each["p_vaddr"] + each["p_memsz"] for each in segments))
    for each in segments:
        image[each["p_vaddr"] : each["p_vaddr"] + each["p_filesz"]] = each.data()
    table = file.get_section_by_name(".symtab")
    return Code(bytes(image), {each.name: each["st_value"] for each in table.iter_symbols()})


class Bench:
    """An executor with memory."""

    def __init__(self, chip: str, **options) -> None:
        self.chip = CHIPS[chip]
        self.vram = Vram(SIZE)
        self.space = FlatSpace(self.vram)
        self.diagnosis = Diagnosis(lambda: 0)
        self.executor = Executor(self.chip, self.vram, self.diagnosis, **options)
        self.used = DATA

    def put(self, array: np.ndarray) -> int:
        """Place data; its virtual address."""
        at = self.used
        self.vram.write(at, array.tobytes())
        self.used += (array.nbytes + 4095) // 4096 * 4096 + 4096
        return BASE + at

    def get(self, address: int, like: np.ndarray) -> np.ndarray:
        data = self.space.read(address, like.nbytes)
        return np.frombuffer(data, like.dtype).reshape(like.shape).copy()

    def dispatch(self, code: Code, name: str, groups, threads, args, *, lds: int | None = None) -> Dispatch:
        """What a driver would make of a kernel: code and arguments placed, registers filled in."""
        self.vram.write(CODE, code.image)
        entry, rsrc1, rsrc2, rsrc3, static, scratch = code.descriptor(name)
        packed = b""
        for arg in args:
            form = {int: "<Q", float: "<f"}.get(type(arg))
            raw = struct.pack(form, arg) if form else np.asarray(arg).tobytes()
            packed += bytes(-len(packed) % len(raw)) + raw
        kernarg = self.put(np.frombuffer(packed + bytes(256), np.uint8))
        properties = struct.unpack_from("<H", code.image, code.symbols[f"{name}.kd"] + 56)[0]
        before = sum(count for bit, count in ((0, 4), (1, 2), (2, 2)) if properties >> bit & 1)
        user = (0,) * before + (kernarg & 0xFFFF_FFFF, kernarg >> 32)
        rsrc2 |= -(-(static if lds is None else lds) // 512) << 15
        scratch_wave = -(-scratch * 32 // 1024) * 1024
        return Dispatch(
            BASE + CODE + entry, groups, threads, user + (0,) * (16 - len(user)),
            rsrc1, rsrc2, rsrc3, BASE + SCRATCH, scratch_wave, SHARED, PRIVATE,
        )  # fmt: skip

    def run(self, code: Code, name: str, groups, threads, args, **options) -> Outcome:
        """Run and apply what was written."""
        outcome = self.executor.run(self.dispatch(code, name, groups, threads, args, **options), self.space)
        for address, data in outcome.writes:
            self.space.write(address, data)
        return outcome

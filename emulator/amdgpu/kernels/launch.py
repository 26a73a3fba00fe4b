"""Kernels on the shader executor alone: memory without page tables, and one launch in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from emulator.amdgpu.code_object import CodeObject
from emulator.amdgpu.kernels.cases import Array, Case
from emulator.amdgpu.seams import Dispatch, Extent, Outcome, PageFault, Shaders
from emulator.amdgpu.vram import Vram
from sdk.errors import InternalError

BASE = 0x2000_0000_0000
"""Virtual address of VRAM's first byte."""
BORDER = 256
"""Bytes of poison around each buffer."""
POISON = 0x5A
WAVE = 32
"""Work-items of a wave."""
APERTURES = 0x0001_0000, 0x0002_0000
"""Upper halves of the addresses that FLAT takes for LDS and for scratch."""


class Flat:
    """All of VRAM from BASE on, readable, writable and executable; implements `seams.AddressSpace`."""

    def __init__(self, vram: Vram) -> None:
        self._vram = vram

    def translate(self, address: int, *, write: bool = False) -> Extent:
        """See AddressSpace."""
        if not BASE <= address < BASE + self._vram.size:
            raise PageFault(address, write=write, reason="there is no memory")
        return Extent(BASE, BASE + self._vram.size, 0, system=False, writable=True, executable=True)

    def read(self, address: int, size: int) -> bytes:
        """See AddressSpace."""
        self._check(address, size, write=False)
        return self._vram.read(address - BASE, size)

    def write(self, address: int, data: bytes) -> None:
        """See AddressSpace."""
        self._check(address, len(data), write=True)
        self._vram.write(address - BASE, data)

    def _check(self, address: int, size: int, *, write: bool) -> None:
        self.translate(address, write=write)
        if size:
            self.translate(address + size - 1, write=write)


@dataclass(frozen=True, slots=True)
class Placed:
    """A case in memory, ready to run any number of times.

    Attributes:
        case: what it is.
        dispatch: its launch.
        memory: where it is.
        places: virtual address of each buffer.
    """

    case: Case
    dispatch: Dispatch
    memory: Flat
    places: Mapping[str, int]

    def run(self, shaders: Shaders) -> Outcome:
        """Run it, and apply its writes to memory."""
        outcome = shaders.run(self.dispatch, self.memory)
        for address, data in outcome.writes:
            self.memory.write(address, data)
        return outcome

    def restore(self) -> None:
        """Restore the first contents of all buffers, with poison around them."""
        for name, array in self.case.buffers.items():
            border = bytes([POISON]) * BORDER
            self.memory.write(self.places[name] - BORDER, border + array.tobytes() + border)

    def results(self) -> dict[str, Array]:
        """The buffers as they are now. Raises InternalError if something wrote outside of them."""
        found: dict[str, Array] = {}
        for name, before in self.case.buffers.items():
            data = self.memory.read(self.places[name] - BORDER, before.nbytes + 2 * BORDER)
            if any(byte != POISON for byte in data[:BORDER] + data[-BORDER:]):
                raise InternalError(f"{self.case.kernel} wrote outside of {name}")
            inside = np.frombuffer(data, np.uint8)[BORDER:-BORDER]
            found[name] = inside.copy().view(before.dtype).reshape(before.shape)
        return found


def place(case: Case, code: CodeObject, vram: Vram) -> Placed:
    """Put a case into VRAM: code, arguments, buffers, scratch memory for each wave.

    Raises:
        InvalidInput: the code object's kernel takes other arguments.
        InternalError: it does not fit.
    """
    memory = Flat(vram)
    kernel = code.kernels[case.kernel]
    image = BASE
    kernarg = end = image + (len(code.image) + 0xFFF & ~0xFFF)
    end += kernel.kernarg_size
    places = {}
    for name, array in case.buffers.items():
        places[name] = end = (end + BORDER + 0xFF) & ~0xFF
        end += array.nbytes + BORDER
    scratch = end = (end + 0xFF) & ~0xFF
    waves = case.waves if kernel.scratch else 0
    scratch_wave = (kernel.scratch * WAVE + 0xFF) & ~0xFF
    end += waves * scratch_wave
    if end > BASE + vram.size:
        raise InternalError(f"{case.kernel} takes {end - BASE} bytes of VRAM")
    values = [
        places[name] if isinstance(value, np.ndarray) else value for name, value in case.arguments.items()
    ]
    memory.write(image, code.image)
    memory.write(kernarg, kernel.pack(values))
    dispatch = Dispatch(
        image + kernel.entry,
        case.groups,
        case.threads,
        kernel.user_data(kernarg),
        kernel.rsrc1,
        kernel.rsrc2,
        kernel.rsrc3,
        scratch=scratch,
        scratch_wave=scratch_wave,
        shared_aperture=APERTURES[0],
        private_aperture=APERTURES[1],
    )
    placed = Placed(case, dispatch, memory, places)
    placed.restore()
    return placed

"""The interfaces between blocks of the card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class PageFault(Exception):
    """An address that is not mapped, or not for this.

    Attributes:
        address: virtual, of the first byte that is refused.
        write: whether it was a write.
        reason: in words.
    """

    def __init__(self, address: int, *, write: bool, reason: str) -> None:
        super().__init__(f"{'write to' if write else 'read of'} {address:#x}: {reason}")
        self.address = address
        self.write = write
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Extent:
    """A stretch of virtual addresses that lies in one piece.

    Attributes:
        start: first virtual address.
        end: after the last one.
        target: where `start` is: an offset in VRAM, or a PCIe address.
        system: whether it is a PCIe address.
        writable: whether it may be written.
        executable: whether code may be fetched from it.
    """

    start: int
    end: int
    target: int
    system: bool
    writable: bool
    executable: bool


class AddressSpace(Protocol):
    """Memory as the VM hub of a block shows it to a VMID: through page tables, TLB and apertures."""

    def translate(self, address: int, *, write: bool = False) -> Extent:
        """The extent that holds an address, as far as one translation reaches.

        Raises:
            PageFault: none does; status registers and interrupt ring have the fault.
        """

    def read(self, address: int, size: int) -> bytes:
        """Bytes at virtual addresses. Raises PageFault."""

    def write(self, address: int, data: bytes) -> None:
        """Change bytes at virtual addresses. Raises PageFault."""


class Interrupts(Protocol):
    """The interrupt handler block."""

    def post(
        self, client: int, source: int, *, ring: int = 0, vmid: int = 0, data: Sequence[int] = (0, 0, 0, 0)
    ) -> None:
        """Put an entry into the ring, if it is enabled; `data` are its four context dwords."""


class Doorbells(Protocol):
    """The way from BAR 2 to the engines: `emulator.amdgpu.doorbells`."""

    def subscribe(self, first: int, last: int, kind: str, ring: Callable[[int, int], None]) -> None:
        """Have `ring` called with offset and 64-bit value of each doorbell that is routed to an engine.

        Args:
            first: offset in BAR 2 of the first doorbell of interest, bytes, a multiple of 8.
            last: that of the last one.
            kind: the engine that a route must name: "cp", "sdma" or "ih".
            ring: gets the offset, in bytes, and the value.
        """


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Workgroups to run: the registers of a dispatch, taken apart.

    Attributes:
        code: virtual address of the first instruction.
        groups: workgroups in x, y, z.
        threads: work-items of a workgroup in x, y, z.
        user_data: the user SGPRs, in order.
        rsrc1: COMPUTE_PGM_RSRC1.
        rsrc2: COMPUTE_PGM_RSRC2.
        rsrc3: COMPUTE_PGM_RSRC3.
        scratch: virtual address of scratch memory.
        scratch_wave: its bytes for a wave.
        shared_aperture: upper 32 bits of the addresses that FLAT takes for LDS.
        private_aperture: those that it takes for scratch.
    """

    code: int
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]
    user_data: tuple[int, ...]
    rsrc1: int
    rsrc2: int
    rsrc3: int
    scratch: int = 0
    scratch_wave: int = 0
    shared_aperture: int = 0
    private_aperture: int = 0


@dataclass(frozen=True, slots=True)
class WaveFault:
    """Why a wave stopped.

    Attributes:
        kind: "page fault", "instruction", "trap" or "watchdog".
        pc: virtual address of the instruction.
        text: in words, with the instruction's name.
        address: virtual address that was refused, for a page fault.
        write: whether that was a write.
    """

    kind: str
    pc: int
    text: str
    address: int = 0
    write: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a dispatch did.

    Attributes:
        waves: that ran.
        instructions: wave-instructions by class: valu, salu, smem, vmem, lds, wmma, branch, other.
        read: bytes that lanes read from memory, LDS and scratch apart.
        written: bytes that lanes wrote.
        writes: what memory is to hold when the dispatch ends: virtual address and bytes, in order.
        fault: why it ended early, if it did.
        products: of the class wmma: products of 16 x 16 x 16, by bits of an element (16, 8 or 4).
    """

    waves: int
    instructions: Mapping[str, int]
    read: int
    written: int
    writes: Sequence[tuple[int, bytes]] = field(default=(), repr=False)
    fault: WaveFault | None = None
    products: Mapping[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Wave-instructions."""
        return sum(self.instructions.values())


class Shaders(Protocol):
    """The shader engines: `emulator.amdgpu.isa.executor`."""

    def run(self, dispatch: Dispatch, memory: AddressSpace) -> Outcome:
        """Run a dispatch to its end, or to its first fault. Memory is read as it is now, and is not changed:
        the caller applies `Outcome.writes` when the dispatch ends in virtual time.
        """

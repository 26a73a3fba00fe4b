"""Packets for the command processor: what a compute queue gets.

Sources of the packets are those of `facts.pm4`. The order of what is done around a dispatch is that of
published drivers: the host data path is flushed and all caches are invalidated once a submission, before
anything is read; between dispatches the one before has to end, and the caches that compute units have of
their own are invalidated; at the end everything is written back and a signal reports it. Registers of a
dispatch are set before the wait for the one before it, whose waves have begun with the old values: what is
between the end of one and the start of the next is kept short (the packet order of Mesa's
`si_state_draw.cpp`).

Two things differ from the driver whose boot trace is published:

* RSRC1.PRIV stays 0 on gfx11, as LLVM's ABI has it. That driver sets it for a context save that goes wrong in
  unprivileged waves; our queue has no save area and is never preempted (grade: inferred). A privileged
  wave may do more than a kernel should.
* Registers that do not change from launch to launch of a submission are set once.
"""

from __future__ import annotations

from dataclasses import dataclass

from usbgpu.amd.card import Card
from usbgpu.amd.facts import pm4
from usbgpu.amd.facts.describe import DWORD
from usbgpu.seam import Launch

PACKETS = pm4.PACKETS
MEMORY = 1
"""WAIT_REG_MEM.MEM_SPACE; 0 are registers."""
EQUAL, AT_LEAST = pm4.FUNCTIONS.index("=="), pm4.FUNCTIONS.index(">=")
POLL_INTERVAL = 4
WORD, LONG, GPU_CLOCK = 1, 2, 3
"""RELEASE_MEM.DATA_SEL."""
MEMORY_THROUGH_L2 = 5
"""DST_SEL of WRITE_DATA and COPY_DATA: memory, in order with what shaders write."""
CLOCK_SOURCE = 9
"""COPY_DATA.SRC_SEL."""
EVERYTHING = 1 << 40
"""Of COHER_SIZE, in units of 256 bytes: all of a 48-bit address space."""
SCRATCH_UNIT = 256
"""Bytes that COMPUTE_TMPRING_SIZE.WAVESIZE counts (LLVM and Mesa for gfx11 on)."""
WAVE = 32
"""Work-items: kernels are wave32."""

Held = dict[str, tuple[int, ...]]
"""Values of registers of a queue, in a row from a named one on."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory for the stacks and spills of waves.

    Attributes:
        address: a multiple of 256.
        size: bytes.
    """

    address: int
    size: int


def scratch_wave(launch: Launch) -> int:
    """Bytes of scratch memory of a wave of a launch."""
    return -(-launch.scratch * WAVE // SCRATCH_UNIT) * SCRATCH_UNIT


def nop(dwords: int) -> list[int]:
    """The header of padding of `dwords` dwords in all; what follows it is ignored."""
    return [pm4.ONE_DWORD_NOP if dwords == 1 else pm4.header(PACKETS["NOP"].opcode, dwords - 1)]


def acquire() -> list[int]:
    """Invalidate all caches: code, constants, data. GL2 is written back too."""
    return PACKETS["ACQUIRE_MEM"].pack(
        COHER_SIZE=EVERYTHING, GLI_INV=1, GLM_WB=1, GLM_INV=1, GLK_WB=1, GLK_INV=1, GLV_INV=1, GL1_INV=1,
        GL2_INV=1, GL2_WB=1,
    )  # fmt: skip


def barrier() -> list[int]:
    """Wait for earlier dispatches; later ones see what they wrote.

    GL2 is one for all compute units, so the caches before it are enough.
    """
    return [
        *PACKETS["EVENT_WRITE"].pack(
            EVENT_TYPE=pm4.EVENTS["CS_PARTIAL_FLUSH"], EVENT_INDEX=pm4.EVENT_INDICES["CS_PARTIAL_FLUSH"]
        ),
        *PACKETS["ACQUIRE_MEM"].pack(
            COHER_SIZE=EVERYTHING, GLM_WB=1, GLM_INV=1, GLK_WB=1, GLK_INV=1, GLV_INV=1, GL1_INV=1
        ),
    ]


def wait_memory(address: int, value: int, function: int = AT_LEAST) -> list[int]:
    """Wait until a dword of memory compares with a value: unsigned, and without limit."""
    return PACKETS["WAIT_REG_MEM"].pack(
        FUNCTION=function, MEM_SPACE=MEMORY, ADDR=address, REFERENCE=value, MASK=DWORD,
        POLL_INTERVAL=POLL_INTERVAL,
    )  # fmt: skip


def write(address: int, *dwords: int) -> list[int]:
    """Write dwords to memory when the command processor gets here."""
    return PACKETS["WRITE_DATA"].pack(*dwords, DST_SEL=MEMORY_THROUGH_L2, DST_ADDR=address)


def release(address: int, value: int = 0, select: int = WORD) -> list[int]:
    """When everything before has ended and is in memory, write a value, or the GPU's clock, to an address.

    Args:
        address: a multiple of the size of what is written.
        value: to write.
        select: what: WORD, LONG, or GPU_CLOCK, which counts 100 MHz in 64 bits.
    """
    event = "CACHE_FLUSH_AND_INV_TS_EVENT"
    return PACKETS["RELEASE_MEM"].pack(
        EVENT_TYPE=pm4.EVENTS[event], EVENT_INDEX=pm4.EVENT_INDICES[event], GLM_WB=1, GLM_INV=1, GLV_INV=1,
        GL1_INV=1, GL2_INV=1, GL2_WB=1, SEQ=1, DATA_SEL=select, ADDR=address, DATA=value,
    )  # fmt: skip


def keep(register: int, address: int) -> list[int]:
    """Copy a register, by its index, to memory when the command processor gets here."""
    return PACKETS["COPY_DATA"].pack(SRC_ADDR=register, DST_SEL=MEMORY_THROUGH_L2, DST_ADDR=address)


def clock(address: int) -> list[int]:
    """Write the GPU's clock to memory when the command processor gets here: 64 bits, 100 MHz."""
    return PACKETS["COPY_DATA"].pack(
        SRC_SEL=CLOCK_SOURCE, DST_SEL=MEMORY_THROUGH_L2, COUNT_SEL=1, DST_ADDR=address
    )


def indirect(address: int, dwords: int) -> list[int]:
    """Execute the packets of a buffer, then continue here."""
    return PACKETS["INDIRECT_BUFFER"].pack(IB_BASE=address, IB_SIZE=dwords, VALID=1)


class Programs:
    """Builds the packets of launches for a card."""

    def __init__(self, card: Card) -> None:
        self._card = card
        self._flush = [card.index("NBIO", f"BIF_BX_PF0_GPU_HDP_FLUSH_{what}") for what in ("REQ", "DONE")]
        # The flush is that of pipe 0 of the first micro engine for compute (`gfx_v11_0.c`).
        self._flusher = card.chip.register("NBIO", "BIF_BX_PF0_GPU_HDP_FLUSH_DONE").pack(CP2=1)
        register = card.chip.register("GC", "COMPUTE_DISPATCH_INITIATOR")
        self._initiator = register.pack(COMPUTE_SHADER_EN=1, FORCE_START_AT_000=1, CS_W32_EN=1)

    def begin(self) -> list[int]:
        """What a submission begins with, so that it sees what the host and other engines have written."""
        flush = PACKETS["WAIT_REG_MEM"].pack(
            FUNCTION=EQUAL, OPERATION=pm4.WRITE_WAIT, REG1=self._flush[0], REG2=self._flush[1],
            REFERENCE=self._flusher, MASK=self._flusher, POLL_INTERVAL=POLL_INTERVAL,
        )  # fmt: skip
        return [
            *flush,
            *acquire(),
            *self.registers("COMPUTE_START_X", 0, 0, 0),
            *self.registers("COMPUTE_RESTART_X", 0, 0, 0),
            *self.registers("COMPUTE_RESOURCE_LIMITS", 0),
        ]

    def prepare(
        self, launch: Launch, kernarg: int, scratch: Scratch | None = None, held: Held | None = None
    ) -> list[int]:
        """Set the registers of a launch; may be done while the launch before it runs.

        Args:
            launch: what.
            kernarg: address of its arguments.
            scratch: memory for its waves, if it needs some: `scratch_wave` bytes for each.
            held: what the launches before it in the same submission have set; what is the same is left out.
        """
        wanted: Held = {
            "COMPUTE_PGM_LO": _halves(launch.code >> 8),
            "COMPUTE_PGM_RSRC1": (launch.rsrc1, launch.rsrc2),
            "COMPUTE_PGM_RSRC3": (launch.rsrc3,),
            **self._scratch(launch, scratch),
            "COMPUTE_USER_DATA_0": _halves(kernarg),
            "COMPUTE_NUM_THREAD_X": launch.threads,
        }
        packets = []
        for first, values in wanted.items():
            if held is None or held.get(first) != values:
                packets += self.registers(first, *values)
        if held is not None:
            held.update(wanted)
        return packets

    def dispatch(self, launch: Launch) -> list[int]:
        """Start the launch that was prepared last."""
        x, y, z = launch.groups
        return PACKETS["DISPATCH_DIRECT"].pack(DIM_X=x, DIM_Y=y, DIM_Z=z, INITIATOR=self._initiator)

    def registers(self, first: str, *values: int) -> list[int]:
        """Write a queue's registers, from one on."""
        offset = self._card.index("GC", first) - pm4.SH_REGISTERS.start
        return PACKETS["SET_SH_REG"].pack(*values, REG_OFFSET=offset)

    def _scratch(self, launch: Launch, scratch: Scratch | None) -> Held:
        if not launch.scratch or scratch is None:
            return {"COMPUTE_TMPRING_SIZE": (0,)}
        ring = self._card.chip.register("GC", "COMPUTE_TMPRING_SIZE")
        wave = scratch_wave(launch)
        # WAVES counts those of one shader engine (Mesa for gfx11 on).
        waves = scratch.size // wave // self._card.chip.shader_engines
        size = ring.pack(WAVES=min(waves, ring["WAVES"]), WAVESIZE=wave // SCRATCH_UNIT)
        return {
            "COMPUTE_TMPRING_SIZE": (size,),
            "COMPUTE_DISPATCH_SCRATCH_BASE_LO": _halves(scratch.address >> 8),
        }


def _halves(value: int) -> tuple[int, int]:
    return value & DWORD, value >> 32

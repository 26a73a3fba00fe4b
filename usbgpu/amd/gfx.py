"""The graphics block: its processors started, doorbells routed, clocks gated.

What is written is what Linux' `gfx_v11_0.c`, `gfx_v12_0.c` and `nbio_v4_3.c` write, and the published boot
traces show; values without names are theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

from usbgpu.amd.batch import Batch
from usbgpu.amd.facts import doorbells

AUTOLOAD_TIME = 2.0
"""Seconds until all engines run."""
COME_UP = 1e-3
"""Seconds to wait after a command processor has started; Linux waits 50 us."""
SETTLE = 50e-3
"""Seconds that published drivers wait after a reset of the command processor."""
VMIDS = 16
DOORBELLS = (0, 0xF8)
"""Byte offsets in BAR 2 of the first and last doorbell that are the compute queues'."""
COMPUTE = 1
"""Micro engine of the compute queues."""

GATED = (
    "RLC_CGTT_SCLK", "GFXIP_MGCG", "GFXIP_CGCG", "GFXIP_CGLS", "GRBM_CGTT_SCLK", "GFXIP_FGCG",
    "GFXIP_REPEATER_FGCG",
)  # fmt: skip
"""Clocks whose gating RLC_CGTT_MGCG_OVERRIDE no longer prevents."""


def select(batch: Batch, *, me: int = 0, pipe: int = 0, queue: int = 0, vmid: int = 0) -> None:
    """Select the copy of banked registers that the next operations access."""
    register = batch.card.chip.register("GC", "GRBM_GFX_CNTL")
    batch.write("GC", register.name, register.pack(MEID=me, PIPEID=pipe, QUEUEID=queue, VMID=vmid))


def wait_for_engines(batch: Batch) -> None:
    """Wait until autoload is done."""
    done = batch.card.chip.register("GC", "RLC_RLCS_BOOTLOAD_STATUS")["BOOTLOAD_COMPLETE"]
    batch.wait("GC", "RLC_RLCS_BOOTLOAD_STATUS", done, done, AUTOLOAD_TIME, what="engines started by the RLC")
    batch.wait("GC", "CP_STAT", 0, seconds=AUTOLOAD_TIME, what="command processor idle")


def init(batch: Batch) -> None:
    """Set up what lasts as long as the card is up; the processors are started later."""
    batch.modify("GC", "TCP_CNTL", 1 << 29, 1 << 29)
    batch.write("GC", "RLC_CNTL", 1)
    batch.set("GC", "RLC_SRM_CNTL", SRM_ENABLE=1, AUTO_INCR_ADDR=1)
    batch.write("GC", "RLC_SPM_MC_CNTL", 0xF)
    route(batch, doorbells.CP_PORT, AWID=0x3, AWADDR_31_28_VALUE=0x3)
    route(batch, doorbells.CP_SECOND_PORT, AWID=0x6, AWADDR_31_28_VALUE=0x3)
    batch.set("GC", "GRBM_CNTL", READ_TIMEOUT=0xFF)
    for vmid in range(VMIDS):
        select(batch, vmid=vmid)
        batch.write("GC", "SH_MEM_CONFIG", 0xC00C)  # 64-bit addresses, unaligned accesses, prefetch 3
        batch.write("GC", "SH_MEM_BASES", 0x1_0002)  # LDS at 1 << 48, scratch at 2 << 48
    select(batch)
    for end, offset in zip(("LOWER", "UPPER"), DOORBELLS, strict=True):
        batch.write("GC", f"CP_MEC_DOORBELL_RANGE_{end}", offset)


def reset_front(batch: Batch, starts: Mapping[str, int]) -> None:
    """Start the other command processors that the MEC needs; `starts` as for `reset`."""
    for unit in batch.card.chip.family.front:
        _start_at(batch, f"CP_{unit}_PRGRM_CNTR_START", starts[unit], me=0)
        _pulse(batch, "CP_ME_CNTL", f"{unit}_PIPE0_RESET")


def reset(batch: Batch, starts: Mapping[str, int]) -> None:
    """Reset the MEC, which runs the compute queues; it begins from its start address when it is started.

    Args:
        batch: takes the operations.
        starts: addresses at which PFP, ME and MEC start, by name.
    """
    _start_at(batch, "CP_MEC_RS64_PRGRM_CNTR_START", starts["MEC"], me=COMPUTE)
    _pulse(batch, "CP_MEC_RS64_CNTL", "MEC_PIPE0_RESET")


def start(batch: Batch) -> None:
    """Start the MEC."""
    batch.set("GC", "CP_MEC_RS64_CNTL", MEC_PIPE0_ACTIVE=1, MEC_HALT=0)
    batch.pause(COME_UP)


def stop(batch: Batch) -> None:
    """Take the queue off its pipe, which must have no work left, and halt the MEC."""
    select(batch, me=COMPUTE)
    batch.write("GC", "CP_HQD_DEQUEUE_REQUEST", 1)
    batch.wait("GC", "CP_HQD_ACTIVE", 0, 1, what="compute queue off")
    select(batch)
    batch.set("GC", "CP_MEC_RS64_CNTL", MEC_HALT=1, MEC_PIPE0_ACTIVE=0)


def kill_waves(batch: Batch) -> None:
    """Take the queue off its pipe, and kill its waves; the queue's registers stay selected."""
    select(batch, me=COMPUTE)
    batch.write("GC", "CP_HQD_DEQUEUE_REQUEST", 2)
    batch.write("GC", "SPI_COMPUTE_QUEUE_RESET", 1)
    batch.pause(COME_UP)


def reset_command_processor(batch: Batch) -> None:
    """Take all queues off a command processor that may hang; it must be started again. For families with
    `soft_resets` only.
    """
    _pulse(batch, "GRBM_SOFT_RESET", "SOFT_RESET_CP", "SOFT_RESET_CPC", settle=SETTLE)


def route(batch: Batch, port: int, **fields: int) -> None:
    """Make a port take doorbells; `fields` are those of its register, without their prefix."""
    name = batch.card.chip.family.doorbell_entry.format(port)
    values = {f"S2A_DOORBELL_PORT{port}_{part}": value for part, value in fields.items()}
    register = batch.card.chip.register("NBIO", name)
    batch.write("NBIO", name, register.pack(**{f"S2A_DOORBELL_PORT{port}_ENABLE": 1}, **values))


def gate_clocks(batch: Batch) -> None:
    """Make idle blocks switch their clocks off; the engines are held in the meantime."""
    batch.set("HDP", "HDP_MEM_POWER_CTRL", ATOMIC_MEM_POWER_CTRL_EN=1, ATOMIC_MEM_POWER_DS_EN=1)
    if "MM_ATC_L2_MISC_CG" in batch.card.chip.blocks["MMHUB"].registers:
        batch.write("MMHUB", "MM_ATC_L2_MISC_CG", 0xC_0000)
    safe = batch.card.chip.register("GC", "RLC_SAFE_MODE")
    batch.write("GC", safe.name, safe.pack(CMD=1, MESSAGE=1))
    batch.wait("GC", safe.name, 0, safe["CMD"])
    batch.set(
        "GC", "RLC_CGCG_CGLS_CTRL",
        CGCG_EN=1, CGLS_EN=1, CGLS_REP_COMPANSAT_DELAY=0xF, CGCG_GFX_IDLE_THRESHOLD=0x36,
    )  # fmt: skip
    batch.write("GC", "CP_RB_WPTR_POLL_CNTL", 0x90_0100)
    batch.set("GC", "CP_INT_CNTL", CMP_BUSY_INT_ENABLE=1, CNTX_BUSY_INT_ENABLE=1, CNTX_EMPTY_INT_ENABLE=1)
    for engine in (0, 1):
        batch.set("GC", f"SDMA{engine}_RLC_CGCG_CTRL", CGCG_INT_ENABLE=1)
    overrides = batch.card.chip.register("GC", "RLC_CGTT_MGCG_OVERRIDE")
    batch.set("GC", overrides.name, **{f"{name}_OVERRIDE": 0 for name in GATED}, PERFMON_CLOCK_STATE=1)
    batch.write("GC", safe.name, safe.pack(CMD=1))


def _start_at(batch: Batch, register: str, address: int, *, me: int) -> None:
    """Set where a processor starts; it counts in units of 4 bytes."""
    select(batch, me=me)
    batch.pair("GC", register, f"{register}_HI", address >> 2)
    select(batch)


def _pulse(batch: Batch, register: str, *fields: str, settle: float = 0) -> None:
    """Set bits, and clear them."""
    batch.set("GC", register, **dict.fromkeys(fields, 1))
    if settle:
        batch.pause(settle)
    batch.set("GC", register, **dict.fromkeys(fields, 0))
    if settle:
        batch.pause(settle)

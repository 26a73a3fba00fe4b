"""Sources of interrupts, and the format of an entry of the interrupt ring.

Sources: Linux 6.12, `soc15_ih_clientid.h` (the soc21 list), `irqsrcs_gfx_11_0_0.h`, `amdgpu_ih.c`,
`ih_v6_0.c`, `gmc_v11_0.c` and `smu_v13_0.c` (MIT). gfx12 has no list of sources of its own: the kernel uses
gfx11's.
"""

from __future__ import annotations

from collections.abc import Mapping

ENTRY = 32
"""Bytes of an entry: eight dwords."""
TIMESTAMP_HZ = 100_000_000
"""Of the 48-bit time of entries (grade: inferred, the reference clock)."""

CLIENTS: Mapping[str, int] = {
    "IH": 0x00,
    "ATHUB": 0x02,
    "BIF": 0x03,
    "RLC": 0x07,
    "GFX": 0x0A,
    "IMU": 0x0B,
    "THM": 0x0F,
    "VMC": 0x12,
    "GRBM_CP": 0x14,
    "MP0": 0x1E,
    "MP1": 0x1F,
}
"""Client ids. GFX: UTCL2 of the GC hub, and SDMA; VMC: the MM hub."""

SOURCES: Mapping[str, int] = {
    "UTCL2_FAULT": 0,
    "SDMA_TRAP": 49,
    "SDMA_SRBMWRITE": 50,
    "SDMA_DOORBELL_INVALID": 54,
    "SDMA_QUEUE_HANG": 55,
    "SDMA_POLL_TIMEOUT": 57,
    "SDMA_PAGE_FAULT": 60,
    "CP_GENERIC_INT": 177,
    "CP_PM4_PKT_RSVD_BIT_ERROR": 180,
    "CP_EOP_INTERRUPT": 181,
    "CP_BAD_OPCODE_ERROR": 183,
    "CP_PRIV_REG_FAULT": 184,
    "CP_PRIV_INSTR_FAULT": 185,
    "SQ_INTERRUPT_ID": 239,
    "SMU_TO_DRIVER": 254,
}
"""Source ids. UTCL2_FAULT comes from GFX or VMC, those of SDMA from GFX, of CP and SQ from GRBM_CP, and
SMU_TO_DRIVER from MP1, which masks it by MP1_SMN_IH_SW_INT_CTRL.INT_MASK."""
THERMAL_THROTTLING = 7
"""The first context dword of SMU_TO_DRIVER when heat makes the SMU lower clocks (`smu13_driver_if_v13_0_0.h`;
grade: hardware, though for 14.0 Linux handles no other than those of the fans)."""

FAULT_WRITE, FAULT_RETRY = 1 << 5, 1 << 7
"""Bits of the second context dword of UTCL2_FAULT. The first one, and 3:0 of the second: the page number."""

MC_SPACE_VIRTUAL, MC_SPACE_BUS = 4, 2
"""IH_RB_CNTL.MC_SPACE: the ring is where the MM hub has it, or at a PCIe address."""


def entry(
    client: int, source: int, ring: int, vmid: int, data: tuple[int, ...], *, timestamp: int, mm_hub: bool
) -> tuple[int, ...]:
    """The dwords of an entry.

    Args:
        client: one of CLIENTS.
        source: one of SOURCES.
        ring: id of the client's ring.
        vmid: of whose work.
        data: four context dwords.
        timestamp: 48 bits.
        mm_hub: whether the VMID is one of the MM hub.
    """
    first = client & 0xFF | (source & 0xFF) << 8 | (ring & 0xFF) << 16 | (vmid & 0xF) << 24 | mm_hub << 31
    return (first, timestamp & 0xFFFF_FFFF, timestamp >> 32 & 0xFFFF, 0, *data)

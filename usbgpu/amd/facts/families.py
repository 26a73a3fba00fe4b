"""What differs between the generations of these GPUs, beyond formats that have tables of their own.

Names of registers, fields and firmware are those of the kernel's headers; that a family has them is in Linux'
`gfx_v11_0.c`, `gfx_v12_0.c`, `sdma_v6_0.c`, `sdma_v7_0.c`, `nbio_v4_3.c`, `nbif_v6_3_1.c` (hardware), and in
published boot traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """A generation.

    Attributes:
        name: AMD's.
        front: command processors that the MEC needs started besides itself.
        soft_resets: whether GRBM_SOFT_RESET takes the command processors' queues off.
        rlc_helpers: firmware of the RLC that it loads besides the others.
        sdma_firmware: of a copy engine, in the order in which published drivers load it.
        sdma_control: the register that halts a copy engine.
        sdma_resets: fields of that register that reset it.
        sdma_freeze: the field of SDMA0_FREEZE that stops it.
        sdma_poll: the field of SDMA0_QUEUEn_RB_CNTL that makes it poll the write pointer in memory.
        sdma_page: fields of SDMA0_UTCL1_PAGE that are set besides the policies.
        sdma_byte_addresses: whether SRBM_WRITE has the address of a byte, instead of that of a dword and
            enables of its bytes.
        register_bar: bytes of BAR 5 (hardware: kernel logs of users).
        fault_status: a VM hub's register, without the hub's prefix.
        doorbell_entry: the register of a doorbell port.
    """

    name: str
    front: tuple[str, ...]
    soft_resets: bool
    rlc_helpers: tuple[str, ...]
    sdma_firmware: tuple[str, ...]
    sdma_control: str
    sdma_resets: tuple[str, ...]
    sdma_freeze: str
    sdma_poll: str
    sdma_page: Mapping[str, int]
    sdma_byte_addresses: bool
    register_bar: int
    fault_status: str
    doorbell_entry: str


FAMILIES: Mapping[int, Family] = {
    11: Family(
        "RDNA3",
        front=(),
        soft_resets=True,
        rlc_helpers=("RLC_P", "RLC_V"),
        sdma_firmware=("SDMA_UCODE_TH1", "SDMA_UCODE_TH0"),
        sdma_control="SDMA0_F32_CNTL",
        sdma_resets=("TH0_RESET", "TH1_RESET"),
        sdma_freeze="FREEZE",
        sdma_poll="F32_WPTR_POLL_ENABLE",
        sdma_page={"LLC_NOALLOC": 1},
        sdma_byte_addresses=False,
        register_bar=1 << 20,
        fault_status="L2_PROTECTION_FAULT_STATUS",
        doorbell_entry="S2A_DOORBELL_ENTRY_{}_CTRL",
    ),
    12: Family(
        "RDNA4",
        front=("PFP", "ME"),
        soft_resets=False,
        rlc_helpers=(),
        sdma_firmware=("SDMA_UCODE_TH0",),
        sdma_control="SDMA0_MCU_CNTL",
        sdma_resets=("RESET",),
        sdma_freeze="MCU_FREEZE",
        sdma_poll="MCU_WPTR_POLL_ENABLE",
        sdma_page={},
        sdma_byte_addresses=True,
        register_bar=1 << 19,
        fault_status="L2_PROTECTION_FAULT_STATUS_LO32",
        doorbell_entry="GDC_S2A0_S2A_DOORBELL_ENTRY_{}_CTRL",
    ),
}
"""By the major version of GC."""

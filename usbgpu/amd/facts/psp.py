"""The security processor (PSP, MP0): its bootloader, its command ring, its commands.

From `psp_gfx_if.h` and `amdgpu_psp.h` of Linux 6.12 (MIT text). Registers are C2PMSG_n of MP0 (13.x) or MPASP
(14.x):

| register | use |
|---|---|
| 33 | bit 31 when the card's own firmware has started, and the discovery table is there |
| 35 | bootloader: command; bit 31 when it is ready for one |
| 36 | bootloader: address of the blob, in MiB |
| 81 | not 0 when the secure OS (sOS) is alive |
| 64 | sOS: control command; bit 31 when done, status in bits 15:0 |
| 67 | ring: write pointer, in dwords |
| 69, 70, 71 | ring: address, low and high, and size in bytes |
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sdk.facts.registers import Evidence
from sdk.facts.structures import c_struct

_struct = partial(c_struct, evidence=Evidence.HARDWARE, source="Linux 6.12, psp_gfx_if.h")

READY = 0x8000_0000
"""Bit 31 of C2PMSG_35 and 64."""
PREFIXES: Mapping[int, str] = {13: "MP0", 14: "MPASP"}
"""What the registers' names start with, by major version of MP."""
BOOTLOADER: Mapping[str, int] = {
    "SYS_DRV": 0x1_0000,
    "SOS": 0x2_0000,
    "KDB": 0x8_0000,
    "SOC_DRV": 0xB_0000,
    "DBG_DRV": 0xC_0000,
    "INTF_DRV": 0xD_0000,
    "RAS_DRV": 0xE_0000,
    "IPKEYMGR_DRV": 0xF_0000,
    "SPL": 0x1000_0000,
}
"""Commands of the bootloader by the blob that they load (`enum psp_bootloader_cmd`); blobs as in
`firmware.KINDS`."""
CONTROL: Mapping[str, int] = {
    "INIT_RBI_RING": 0x1_0000,
    "INIT_GPCOM_RING": 0x2_0000,
    "DESTROY_RINGS": 0x3_0000,
    "ENABLE_INT": 0x5_0000,
    "DISABLE_INT": 0x6_0000,
    "MODE1_RST": 0x7_0000,
}
"""Control commands for C2PMSG_64 (`enum psp_gfx_crtl_cmd_id`)."""
COMMANDS: Mapping[str, int] = {
    "LOAD_TA": 0x01,
    "UNLOAD_TA": 0x02,
    "INVOKE_CMD": 0x03,
    "LOAD_ASD": 0x04,
    "SETUP_TMR": 0x05,
    "LOAD_IP_FW": 0x06,
    "DESTROY_TMR": 0x07,
    "SAVE_RESTORE": 0x08,
    "PROG_REG": 0x0B,
    "GET_FW_ATTESTATION": 0x0F,
    "LOAD_TOC": 0x20,
    "AUTOLOAD_RLC": 0x21,
    "BOOT_CFG": 0x22,
}
"""`cmd_id` of a command buffer (`enum psp_gfx_cmd_id`)."""
FRAME = _struct(
    "psp_gfx_rb_frame",
    "u32 cmd_buf_addr_lo, u32 cmd_buf_addr_hi, u32 cmd_buf_size, u32 fence_addr_lo, u32 fence_addr_hi, "
    "u32 fence_value, u32 sid_lo, u32 sid_hi, u8 vmid, u8 frame_type, u8 reserved1[2], u32 reserved2[7]",
)
"""A frame of the ring: 64 bytes."""
COMMAND_BUFFER = _struct(
    "psp_gfx_cmd_resp",
    "u32 buf_size, u32 buf_version, u32 cmd_id, u32 resp_buf_addr_lo, u32 resp_buf_addr_hi, u32 resp_offset, "
    "u32 resp_buf_size, u32 cmd[209], u32 resp[24], u32 reserved[16]",
)
"""A command buffer: 1024 bytes. `cmd` depends on `cmd_id`, `resp` is RESPONSE. `buf_size` and `buf_version`
are left 0 by Linux."""
LOAD_IP_FW = _struct(
    "psp_gfx_cmd_load_ip_fw", "u32 fw_phy_addr_lo, u32 fw_phy_addr_hi, u32 fw_size, u32 fw_type"
)
LOAD_TOC = _struct("psp_gfx_cmd_load_toc", "u32 toc_phy_addr_lo, u32 toc_phy_addr_hi, u32 toc_size")
SETUP_TMR = _struct(
    "psp_gfx_cmd_setup_tmr",
    "u32 buf_phy_addr_lo, u32 buf_phy_addr_hi, u32 buf_size, u32 tmr_flags, u32 system_phy_addr_lo, "
    "u32 system_phy_addr_hi",
)
"""Linux sets bit 1 of `tmr_flags` (both addresses are given)."""
RESPONSE = _struct(
    "psp_gfx_resp",
    "u32 status, u32 session_id, u32 fw_addr_lo, u32 fw_addr_hi, u32 tmr_size, u32 reserved[11], "
    "u32 uresp[8]",
)
FIRMWARE_ALIGNMENT = 0x1000
"""Of the addresses in commands."""
BLOB_ALIGNMENT = TMR_ALIGNMENT = 0x10_0000
"""Of a bootloader's blob (C2PMSG_36 counts MiB), and of the TMR in Linux."""
TMR_MAXIMUM = 0x130_0000
"""Largest trusted memory region (TMR) in bytes, as a published driver for both chips checks."""
BOOT_TIME_TMR = frozenset({(14, 0, 2), (14, 0, 3)})
"""Versions of MP that have a TMR from the start, so that SETUP_TMR is left out."""
FW_TYPES: Mapping[str, int] = {
    "CP_ME": 1, "CP_PFP": 2, "CP_CE": 3, "CP_MEC": 4, "RLC_V": 7, "RLC_G": 8, "SDMA0": 9, "SDMA1": 10,
    "SMU": 18, "RLC_RESTORE_LIST_GPM_MEM": 20, "RLC_RESTORE_LIST_SRM_MEM": 21,
    "RLC_RESTORE_LIST_SRM_CNTL": 22, "TOC": 24, "RLC_P": 25, "RLC_IRAM": 26, "GLOBAL_TAP_DELAYS": 27,
    "SE0_TAP_DELAYS": 28, "SE1_TAP_DELAYS": 29, "CP_MES": 33, "MES_STACK": 34, "RLC_DRAM_BOOT": 48,
    "VCN0_RAM": 49, "VCN1_RAM": 50, "DMUB": 51, "IMU_I": 68, "IMU_D": 69, "SDMA_UCODE_TH0": 71,
    "SDMA_UCODE_TH1": 72, "PPTABLE": 73, "RS64_MES": 76, "RS64_MES_STACK": 77, "RS64_KIQ": 78,
    "RS64_KIQ_STACK": 79, "RS64_PFP": 87, "RS64_ME": 88, "RS64_MEC": 89, "RS64_PFP_P0_STACK": 90,
    "RS64_PFP_P1_STACK": 91, "RS64_ME_P0_STACK": 92, "RS64_ME_P1_STACK": 93, "RS64_MEC_P0_STACK": 94,
    "RS64_MEC_P1_STACK": 95, "RS64_MEC_P2_STACK": 96, "RS64_MEC_P3_STACK": 97,
}  # fmt: skip
"""`fw_type` of LOAD_IP_FW (`enum psp_gfx_fw_type`)."""
STATUS: Mapping[str, int] = {
    "SUCCESS": 0,
    "UNKNOWN_COMMAND": 0x0000_0100,
    "GENERIC": 0xFFFF_0000,
    "ACCESS_DENIED": 0xFFFF_0001,
    "BAD_FORMAT": 0xFFFF_0005,
    "BAD_PARAMETERS": 0xFFFF_0006,
    "BAD_STATE": 0xFFFF_0007,
    "NOT_SUPPORTED": 0xFFFF_000A,
    "SECURITY": 0xFFFF_000F,
}
"""`status` of a response: success, unknown and not supported from the kernel's header, the others from the
GlobalPlatform TEE Internal Core API that the secure OS follows."""

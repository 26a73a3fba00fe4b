"""MP registers of mp_14_0_2, extracted by usbgpu.amd.facts.extract. Do not edit."""

from usbgpu.amd.facts.describe import Block

MP_14_0_2 = Block(
    "MP",
    "mp_14_0_2",
    "Linux 6.12.117, drivers/gpu/drm/amd/include/asic_reg/mp/mp_14_0_2_offset.h and _sh_mask.h (MIT)",
    """
MPASP_SMN_C2PMSG_33 0 0x61 CONTENT:0:32
MPASP_SMN_C2PMSG_35 0 0x63 CONTENT:0:32
MPASP_SMN_C2PMSG_36 0 0x64 CONTENT:0:32
MPASP_SMN_C2PMSG_64 0 0x80 CONTENT:0:32
MPASP_SMN_C2PMSG_67 0 0x83 CONTENT:0:32
MPASP_SMN_C2PMSG_69 0 0x85 CONTENT:0:32
MPASP_SMN_C2PMSG_70 0 0x86 CONTENT:0:32
MPASP_SMN_C2PMSG_71 0 0x87 CONTENT:0:32
MPASP_SMN_C2PMSG_81 0 0x91 CONTENT:0:32
MP1_SMN_IH_SW_INT 0 0x341 ID:0:8 VALID:8:1
MP1_SMN_IH_SW_INT_CTRL 0 0x342 INT_MASK:0:1 INT_ACK:8:1
""",
)

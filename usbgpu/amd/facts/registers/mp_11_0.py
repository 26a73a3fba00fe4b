"""SMU registers of mp_11_0, extracted by usbgpu.amd.facts.extract. Do not edit."""

from usbgpu.amd.facts.describe import Block

MP_11_0 = Block(
    "SMU",
    "mp_11_0",
    "Linux 6.12.117, drivers/gpu/drm/amd/include/asic_reg/mp/mp_11_0_offset.h and _sh_mask.h (MIT)",
    """
MP1_SMN_C2PMSG_53 0 0x275 CONTENT:0:32
MP1_SMN_C2PMSG_54 0 0x276 CONTENT:0:32
MP1_SMN_C2PMSG_66 0 0x282 CONTENT:0:32
MP1_SMN_C2PMSG_75 0 0x28b CONTENT:0:32
MP1_SMN_C2PMSG_82 0 0x292 CONTENT:0:32
MP1_SMN_C2PMSG_90 0 0x29a CONTENT:0:32
""",
)

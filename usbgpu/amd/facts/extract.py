"""Extract the registers that are used from the headers of the Linux kernel.

    python -m usbgpu.amd.facts.extract LINUX    # LINUX: a source tree; Debian has it in linux-source-6.12

Writes `registers/`, one module a header pair. The headers carry the MIT licence (NOTICE). Only names in
WANTED are taken; a pattern that matches nothing is an error. Add a name here when a driver or
the model needs it.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

HEADERS = Path("drivers/gpu/drm/amd/include/asic_reg")
TARGET = Path(__file__).parent / "registers"

_GC = """
    SCRATCH_REG[0-7] GRBM_CNTL GRBM_STATUS GRBM_STATUS2 GRBM_GFX_CNTL GRBM_GFX_INDEX GRBM_SOFT_RESET
    CP_STAT CP_CPC_STATUS CP_INT_CNTL CP_ME1_PIPE?_INT_CNTL CP_RB_WPTR_POLL_CNTL
    CP_MEC_DOORBELL_RANGE_LOWER CP_MEC_DOORBELL_RANGE_UPPER CP_MEC_RS64_CNTL
    CP_MEC_RS64_PRGRM_CNTR_START CP_MEC_RS64_PRGRM_CNTR_START_HI
    CP_MQD_BASE_ADDR CP_MQD_BASE_ADDR_HI CP_MQD_CONTROL CP_HQD_*
    COMPUTE_DISPATCH_INITIATOR COMPUTE_DIM_[XYZ] COMPUTE_START_[XYZ] COMPUTE_NUM_THREAD_[XYZ]
    COMPUTE_PGM_LO COMPUTE_PGM_HI COMPUTE_PGM_RSRC[123] COMPUTE_VMID COMPUTE_RESOURCE_LIMITS
    COMPUTE_STATIC_THREAD_MGMT_SE* COMPUTE_TMPRING_SIZE COMPUTE_DISPATCH_SCRATCH_BASE_LO
    COMPUTE_DISPATCH_SCRATCH_BASE_HI COMPUTE_RESTART_[XYZ] COMPUTE_USER_DATA_* COMPUTE_USER_ACCUM_*
    COMPUTE_THREAD_TRACE_ENABLE COMPUTE_PERFCOUNT_ENABLE COMPUTE_MISC_RESERVED COMPUTE_REQ_CTRL
    COMPUTE_DISPATCH_INTERLEAVE COMPUTE_DISPATCH_TUNNEL COMPUTE_PIPELINESTAT_ENABLE
    SH_MEM_BASES SH_MEM_CONFIG SPI_COMPUTE_QUEUE_RESET SQ_DEBUG TCP_CNTL
    RLC_CNTL RLC_STAT RLC_SAFE_MODE RLC_SRM_CNTL RLC_SPM_MC_CNTL RLC_CGCG_CGLS_CTRL RLC_CGTT_MGCG_OVERRIDE
    RLC_RLCS_BOOTLOAD_STATUS RLC_GPU_CLOCK_COUNT_LSB RLC_GPU_CLOCK_COUNT_MSB RLC_CAPTURE_GPU_CLOCK_COUNT
    CP_MES_CNTL CC_GC_SHADER_ARRAY_CONFIG GC_USER_SHADER_ARRAY_CONFIG GB_ADDR_CONFIG
    GCMC_VM_FB_LOCATION_BASE GCMC_VM_FB_LOCATION_TOP GCMC_VM_FB_OFFSET GCMC_VM_AGP_BASE GCMC_VM_AGP_BOT
    GCMC_VM_AGP_TOP GCMC_VM_SYSTEM_APERTURE_LOW_ADDR GCMC_VM_SYSTEM_APERTURE_HIGH_ADDR
    GCMC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_LSB GCMC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_MSB
    GCMC_VM_MX_L1_TLB_CNTL GCVM_L2_CNTL GCVM_L2_CNTL[2345] GCVM_L2_STATUS
    GCVM_L2_PROTECTION_FAULT_CNTL* GCVM_L2_PROTECTION_FAULT_STATUS* GCVM_L2_PROTECTION_FAULT_ADDR_*
    GCVM_L2_PROTECTION_FAULT_DEFAULT_ADDR_* GCVM_L2_CONTEXT1_IDENTITY_APERTURE_*
    GCVM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_* GCVM_CONTEXT*
    GCVM_INVALIDATE_ENG*
    SDMA0_CNTL SDMA0_WATCHDOG_CNTL SDMA0_UTCL1_CNTL SDMA0_UTCL1_PAGE SDMA0_STATUS_REG SDMA0_FREEZE
    SDMA0_RLC_CGCG_CTRL SDMA1_RLC_CGCG_CTRL SDMA0_QUEUE0_*
    SDMA0_QUEUE1_RB_* SDMA0_QUEUE1_IB_CNTL SDMA0_QUEUE1_DOORBELL SDMA0_QUEUE1_DOORBELL_OFFSET
    SDMA0_QUEUE1_MINOR_PTR_UPDATE SDMA0_QUEUE1_CONTEXT_STATUS
"""
_HUB = """
    MMMC_VM_FB_LOCATION_BASE MMMC_VM_FB_LOCATION_TOP MMMC_VM_FB_OFFSET MMMC_VM_AGP_BASE MMMC_VM_AGP_BOT
    MMMC_VM_AGP_TOP MMMC_VM_SYSTEM_APERTURE_LOW_ADDR MMMC_VM_SYSTEM_APERTURE_HIGH_ADDR
    MMMC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_LSB MMMC_VM_SYSTEM_APERTURE_DEFAULT_ADDR_MSB
    MMMC_VM_MX_L1_TLB_CNTL MMVM_L2_CNTL MMVM_L2_CNTL[2345] MMVM_L2_STATUS
    MMVM_L2_PROTECTION_FAULT_CNTL* MMVM_L2_PROTECTION_FAULT_STATUS* MMVM_L2_PROTECTION_FAULT_ADDR_*
    MMVM_L2_PROTECTION_FAULT_DEFAULT_ADDR_* MMVM_L2_CONTEXT1_IDENTITY_APERTURE_*
    MMVM_L2_CONTEXT_IDENTITY_PHYSICAL_OFFSET_* MMVM_CONTEXT* MMVM_INVALIDATE_ENG*
    MMVM_L2_BANK_SELECT_RESERVED_CID2
"""
_NBIO = """
    BIF_BX_PF0_MM_INDEX BIF_BX_PF0_MM_INDEX_HI BIF_BX_PF0_MM_DATA BIF_BX_PF0_RSMU_INDEX
    BIF_BX_PF0_RSMU_INDEX_HI BIF_BX_PF0_RSMU_DATA BIF_BX0_REMAP_HDP_MEM_FLUSH_CNTL
    BIF_BX0_REMAP_HDP_REG_FLUSH_CNTL BIF_BX0_BIF_DOORBELL_INT_CNTL
    BIF_BX_PF0_GPU_HDP_FLUSH_REQ BIF_BX_PF0_GPU_HDP_FLUSH_DONE BIF_BX_PF0_HDP_MEM_COHERENCY_FLUSH_CNTL
    BIF_BX_PF0_HDP_REG_COHERENCY_FLUSH_CNTL
    RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN RCC_DEV0_EPF2_STRAP2
"""
_OSS = """
    IH_RB_CNTL IH_RB_CNTL_RING1 IH_RB_BASE IH_RB_BASE_HI IH_RB_BASE_RING1 IH_RB_BASE_HI_RING1 IH_RB_RPTR
    IH_RB_RPTR_RING1 IH_RB_WPTR IH_RB_WPTR_RING1 IH_RB_WPTR_ADDR_LO IH_RB_WPTR_ADDR_HI IH_DOORBELL_RPTR
    IH_DOORBELL_RPTR_RING1 IH_STORM_CLIENT_LIST_CNTL IH_INT_FLOOD_CNTL IH_MSI_STORM_CTRL IH_STATUS IH_CNTL
    IH_RING1_CLIENT_CFG_INDEX IH_RING1_CLIENT_CFG_DATA
"""
_MP = "{0}_SMN_C2PMSG_33 {0}_SMN_C2PMSG_35 {0}_SMN_C2PMSG_36 {0}_SMN_C2PMSG_64 {0}_SMN_C2PMSG_67"
_MP += " {0}_SMN_C2PMSG_69 {0}_SMN_C2PMSG_70 {0}_SMN_C2PMSG_71 {0}_SMN_C2PMSG_81"
_MP += " MP1_SMN_IH_SW_INT MP1_SMN_IH_SW_INT_CTRL"
_SMU = "MP1_SMN_C2PMSG_53 MP1_SMN_C2PMSG_54 MP1_SMN_C2PMSG_66"
_SMU += " MP1_SMN_C2PMSG_75 MP1_SMN_C2PMSG_82 MP1_SMN_C2PMSG_90"
_HDP = "HDP_MEM_POWER_CTRL HDP_MISC_CNTL HDP_NONSURFACE_BASE HDP_NONSURFACE_BASE_HI HDP_NONSURFACE_INFO"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Registers of a header pair.

    Attributes:
        block: its name for all versions.
        folder: below HEADERS.
        version: start of the headers' names.
        names: patterns of register names, separated by white space.
    """

    block: str
    folder: str
    version: str
    names: str


WANTED = (
    Wanted("GC", "gc", "gc_11_0_0", _GC + "SDMA0_F32_CNTL"),
    Wanted(
        "GC",
        "gc",
        "gc_12_0_0",
        _GC
        + "SDMA0_MCU_CNTL CP_PFP_PRGRM_CNTR_START CP_PFP_PRGRM_CNTR_START_HI CP_ME_PRGRM_CNTR_START "
        + "CP_ME_PRGRM_CNTR_START_HI CP_ME_CNTL",
    ),
    Wanted("MMHUB", "mmhub", "mmhub_3_0_0", _HUB + "MM_ATC_L2_MISC_CG"),
    Wanted("MMHUB", "mmhub", "mmhub_3_0_2", _HUB),
    Wanted("MMHUB", "mmhub", "mmhub_4_1_0", _HUB),
    Wanted("NBIO", "nbio", "nbio_4_3_0", _NBIO + "S2A_DOORBELL_ENTRY_*_CTRL"),
    Wanted("NBIO", "nbif", "nbif_6_3_1", _NBIO + "GDC_S2A0_S2A_DOORBELL_ENTRY_*_CTRL"),
    Wanted("MP", "mp", "mp_13_0_0", _MP.format("MP0")),
    Wanted("MP", "mp", "mp_14_0_2", _MP.format("MPASP")),
    Wanted("SMU", "mp", "mp_11_0", _SMU),
    Wanted("HDP", "hdp", "hdp_6_0_0", _HDP),
    Wanted("HDP", "hdp", "hdp_7_0_0", _HDP),
    Wanted("OSSSYS", "oss", "osssys_6_0_0", _OSS),
    Wanted("OSSSYS", "oss", "osssys_7_0_0", _OSS),
)

_DEFINE = re.compile(r"^#define (?:reg|mm)(\w+?)(_BASE_IDX)?\s+(0x[0-9a-fA-F]+|\d+)\s*$", re.M)
_BITS = re.compile(r"^#define (\w+?)__(\w+?)(?:__SHIFT|_MASK)\s+(0x[0-9a-fA-F]+)L?\s*$", re.M)
_LINE = '''"""{block} registers of {version}, extracted by usbgpu.amd.facts.extract. Do not edit."""

from usbgpu.amd.facts.describe import Block

{name} = Block(
    "{block}",
    "{version}",
    "Linux {linux}, {headers}/{folder}/{version}_offset.h and _sh_mask.h (MIT)",
    """
{lines}
""",
)
'''


def extract(linux: Path, wanted: Wanted, release: str) -> str:
    """The module for one header pair."""
    stem = linux / HEADERS / wanted.folder / wanted.version
    offsets: dict[str, int] = {}
    segments: dict[str, int] = {}
    for name, is_segment, number in _DEFINE.findall(Path(f"{stem}_offset.h").read_text()):
        (segments if is_segment else offsets)[name] = int(number, 0)
    fields: dict[str, dict[str, int]] = {}
    for register, field, number in _BITS.findall(Path(f"{stem}_sh_mask.h").read_text()):
        # The shift and the mask of a field come in this order; the mask has both.
        fields.setdefault(register, {})[field] = int(number, 16)
    chosen: list[str] = []
    for pattern in wanted.names.split():
        found = [name for name in offsets if fnmatchcase(name, pattern) and name in segments]
        if not found:
            raise SystemExit(f"{wanted.version}: no register matches {pattern}")
        chosen += found
    lines = [
        " ".join((name, str(segments[name]), f"{offsets[name]:#x}", *_fields(fields.get(name, {}))))
        for name in dict.fromkeys(chosen)
    ]
    return _LINE.format(
        block=wanted.block,
        version=wanted.version,
        name=wanted.version.upper(),
        linux=release,
        headers=HEADERS,
        folder=wanted.folder,
        lines="\n".join(lines),
    )


def _fields(masks: dict[str, int]) -> list[str]:
    return [
        f"{name}:{(mask & -mask).bit_length() - 1}:{mask.bit_length() - (mask & -mask).bit_length() + 1}"
        for name, mask in masks.items()
        if mask
    ]


def main(linux: Path) -> None:
    makefile = (linux / "Makefile").read_text() if (linux / "Makefile").exists() else ""
    parts = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)", makefile, re.M))
    release = ".".join(parts[part] for part in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))
    for wanted in WANTED:
        (TARGET / f"{wanted.version}.py").write_text(extract(linux, wanted, release))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))

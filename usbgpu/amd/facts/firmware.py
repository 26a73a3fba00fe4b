"""The firmware files of the chips, and what is in them.

A file (`/lib/firmware/amdgpu`, from linux-firmware) starts with a header of the kernel's `amdgpu_ucode.h`
(Linux 6.12, MIT text), which says where its parts are. Each part that the security processor takes is a
*blob*: a 256-byte header, what is signed, and a 256-byte signature. The blob's header is not published; what
SIGNED_HEADER and KINDS say of it was read off the files of Debian's firmware-amd-graphics 20250410-2: all 196
blobs in 58 files of RDNA3 and RDNA4 chips agree (grade: inferred).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from sdk.facts.registers import Evidence
from sdk.facts.structures import Struct, c_struct
from usbgpu.amd.facts.chips import GFX1100, GFX1102, GFX1200, GFX1201, Chip

_struct = partial(c_struct, evidence=Evidence.HARDWARE, source="Linux 6.12, amdgpu_ucode.h")

_COMMON = (
    "u32 size_bytes, u32 header_size_bytes, u16 header_version_major, u16 header_version_minor, "
    "u16 ip_version_major, u16 ip_version_minor, u32 ucode_version, u32 ucode_size_bytes, "
    "u32 ucode_array_offset_bytes, u32 crc32"
)
COMMON = _struct("common_firmware_header", _COMMON)
"""What every file starts with. `size_bytes` is the file's size. `crc32` is of different spans in different
files, and is not checked."""
_RLC_2_1 = _COMMON + (
    ", u32 ucode_feature_version, u32 jt_offset, u32 jt_size, u32 save_and_restore_offset, "
    "u32 clear_state_descriptor_offset, u32 avail_scratch_ram_locations, u32 reg_restore_list_size, "
    "u32 reg_list_format_start, u32 reg_list_format_separate_start, u32 starting_offsets_start, "
    "u32 reg_list_format_size_bytes, u32 reg_list_format_array_offset_bytes, u32 reg_list_size_bytes, "
    "u32 reg_list_array_offset_bytes, u32 reg_list_format_separate_size_bytes, "
    "u32 reg_list_format_separate_array_offset_bytes, u32 reg_list_separate_size_bytes, "
    "u32 reg_list_separate_array_offset_bytes, u32 reg_list_format_direct_reg_list_length, "
    "u32 save_restore_list_cntl_ucode_ver, u32 save_restore_list_cntl_feature_ver, "
    "u32 save_restore_list_cntl_size_bytes, u32 save_restore_list_cntl_offset_bytes, "
    "u32 save_restore_list_gpm_ucode_ver, u32 save_restore_list_gpm_feature_ver, "
    "u32 save_restore_list_gpm_size_bytes, u32 save_restore_list_gpm_offset_bytes, "
    "u32 save_restore_list_srm_ucode_ver, u32 save_restore_list_srm_feature_ver, "
    "u32 save_restore_list_srm_size_bytes, u32 save_restore_list_srm_offset_bytes"
)
_RLC_2_2 = _RLC_2_1 + (
    ", u32 rlc_iram_ucode_size_bytes, u32 rlc_iram_ucode_offset_bytes, u32 rlc_dram_ucode_size_bytes, "
    "u32 rlc_dram_ucode_offset_bytes"
)
_RLC_2_3 = _RLC_2_2 + (
    ", u32 rlcp_ucode_version, u32 rlcp_ucode_feature_version, u32 rlcp_ucode_size_bytes, "
    "u32 rlcp_ucode_offset_bytes, u32 rlcv_ucode_version, u32 rlcv_ucode_feature_version, "
    "u32 rlcv_ucode_size_bytes, u32 rlcv_ucode_offset_bytes"
)
_SMC = _COMMON + ", u32 ucode_start_addr"
_LEGACY = ", u32 {0}_fw_version, u32 {0}_offset_bytes, u32 {0}_size_bytes"
_PSP_1_1 = _COMMON + "".join(map(_LEGACY.format, ("sos", "toc", "kdb")))
_SDMA_1 = _COMMON + ", u32 ucode_feature_version, u32 ucode_change_version, u32 jt_offset, u32 jt_size"
HEADERS: Mapping[tuple[str, int, int], Struct] = {
    ("psp", 1, 0): _struct("psp_firmware_header_v1_0", _COMMON + _LEGACY.format("sos")),
    ("psp", 1, 1): _struct("psp_firmware_header_v1_1", _PSP_1_1),
    ("psp", 1, 3): _struct(
        "psp_firmware_header_v1_3",
        _PSP_1_1 + "".join(map(_LEGACY.format, ("spl", "rl", "sys_drv_aux", "sos_aux"))),
    ),
    ("psp", 2, 0): _struct("psp_firmware_header_v2_0", _COMMON + ", u32 psp_fw_bin_count"),
    ("psp", 2, 1): _struct(
        "psp_firmware_header_v2_1", _COMMON + ", u32 psp_fw_bin_count, u32 psp_aux_fw_bin_index"
    ),
    ("smu", 1, 0): _struct("smc_firmware_header_v1_0", _SMC),
    ("smu", 2, 0): _struct("smc_firmware_header_v2_0", _SMC + ", u32 ppt_offset_bytes, u32 ppt_size_bytes"),
    ("smu", 2, 1): _struct(
        "smc_firmware_header_v2_1", _SMC + ", u32 pptable_count, u32 pptable_entry_offset"
    ),
    ("gfx", 1, 0): _struct(
        "gfx_firmware_header_v1_0", _COMMON + ", u32 ucode_feature_version, u32 jt_offset, u32 jt_size"
    ),
    ("gfx", 2, 0): _struct(
        "gfx_firmware_header_v2_0",
        # The header names its own size of the code like the common one's of everything: rs64_ here.
        _COMMON
        + ", u32 ucode_feature_version, u32 rs64_size_bytes, u32 rs64_offset_bytes, u32 data_size_bytes, "
        "u32 data_offset_bytes, u32 ucode_start_addr_lo, u32 ucode_start_addr_hi",
    ),
    ("rlc", 2, 1): _struct("rlc_firmware_header_v2_1", _RLC_2_1),
    ("rlc", 2, 2): _struct("rlc_firmware_header_v2_2", _RLC_2_2),
    ("rlc", 2, 3): _struct("rlc_firmware_header_v2_3", _RLC_2_3),
    ("sdma", 1, 0): _struct("sdma_firmware_header_v1_0", _SDMA_1),
    ("sdma", 1, 1): _struct("sdma_firmware_header_v1_1", _SDMA_1 + ", u32 digest_size"),
    ("sdma", 2, 0): _struct(
        "sdma_firmware_header_v2_0",
        _COMMON
        + ", u32 ucode_feature_version, u32 ctx_ucode_size_bytes, u32 ctx_jt_offset, u32 ctx_jt_size, "
        "u32 ctl_ucode_offset, u32 ctl_ucode_size_bytes, u32 ctl_jt_offset, u32 ctl_jt_size",
    ),
    ("sdma", 3, 0): _struct(
        "sdma_firmware_header_v3_0",
        _COMMON + ", u32 ucode_feature_version, u32 ucode_offset_bytes, u32 sdma_size_bytes",
    ),
    ("imu", 1, 0): _struct(
        "imu_firmware_header_v1_0",
        _COMMON + ", u32 imu_iram_ucode_size_bytes, u32 imu_iram_ucode_offset_bytes, "
        "u32 imu_dram_ucode_size_bytes, u32 imu_dram_ucode_offset_bytes",
    ),
}
"""Headers by family and version. A family is what decides about the layout: psp, smu, gfx (one command
processor of `pfp`, `me`, `mec`), rlc, sdma or imu."""
PSP_BIN = _struct("psp_fw_bin_desc", "u32 fw_type, u32 fw_version, u32 offset_bytes, u32 size_bytes")
"""An entry of the array behind a psp header of version 2; offsets count from `ucode_array_offset_bytes`."""
PPTABLE_ENTRY = _struct("smc_soft_pptable_entry", "u32 id, u32 ppt_offset_bytes, u32 ppt_size_bytes")
"""An entry of a smu header of version 2.1, at `pptable_entry_offset`. No USB driver needs it."""
PSP_BINS: Mapping[int, str] = {
    1: "SOS", 2: "SYS_DRV", 3: "KDB", 4: "TOC", 5: "SPL", 6: "RL", 7: "SOC_DRV", 8: "INTF_DRV", 9: "DBG_DRV",
    10: "RAS_DRV", 11: "IPKEYMGR_DRV",
}  # fmt: skip
"""`fw_type` of PSP_BIN (`enum psp_fw_type`)."""


@dataclass(frozen=True, slots=True)
class BlobPart:
    """Where a header says that a blob is.

    Attributes:
        name: the blob's, as in KINDS.
        size: member of the header with its bytes.
        offset: member with the offset; None if it starts where the payload does.
        relative: whether that counts from the payload (`ucode_array_offset_bytes`) instead of the file.
    """

    name: str
    size: str
    offset: str | None = None
    relative: bool = False


_RLC_LISTS = (
    BlobPart("RLC_G", "ucode_size_bytes"),
    BlobPart(
        "RLC_RESTORE_LIST_GPM_MEM", "save_restore_list_gpm_size_bytes", "save_restore_list_gpm_offset_bytes"
    ),
    BlobPart(
        "RLC_RESTORE_LIST_SRM_MEM", "save_restore_list_srm_size_bytes", "save_restore_list_srm_offset_bytes"
    ),
    BlobPart(
        "RLC_RESTORE_LIST_SRM_CNTL",
        "save_restore_list_cntl_size_bytes",
        "save_restore_list_cntl_offset_bytes",
    ),
)
_RLC_MEMORIES = (
    *_RLC_LISTS,
    BlobPart("RLC_IRAM", "rlc_iram_ucode_size_bytes", "rlc_iram_ucode_offset_bytes"),
    BlobPart("RLC_DRAM_BOOT", "rlc_dram_ucode_size_bytes", "rlc_dram_ucode_offset_bytes"),
)
PARTS: Mapping[tuple[str, int, int], tuple[BlobPart, ...]] = {
    ("smu", 1, 0): (BlobPart("SMU", "ucode_size_bytes"),),
    ("smu", 2, 0): (BlobPart("SMU", "ucode_size_bytes"),),
    ("smu", 2, 1): (BlobPart("SMU", "ucode_size_bytes"),),
    # {0} is PFP, ME or MEC. All four pipes of a MEC take the same stack.
    ("gfx", 2, 0): (
        BlobPart("RS64_{0}", "rs64_size_bytes", "rs64_offset_bytes"),
        BlobPart("RS64_{0}_STACK", "data_size_bytes", "data_offset_bytes"),
    ),
    ("rlc", 2, 1): _RLC_LISTS,
    ("rlc", 2, 2): _RLC_MEMORIES,
    ("rlc", 2, 3): (
        *_RLC_MEMORIES,
        BlobPart("RLC_P", "rlcp_ucode_size_bytes", "rlcp_ucode_offset_bytes"),
        BlobPart("RLC_V", "rlcv_ucode_size_bytes", "rlcv_ucode_offset_bytes"),
    ),
    ("sdma", 2, 0): (
        BlobPart("SDMA_UCODE_TH0", "ctx_ucode_size_bytes"),
        BlobPart("SDMA_UCODE_TH1", "ctl_ucode_size_bytes", "ctl_ucode_offset"),
    ),
    ("sdma", 3, 0): (BlobPart("SDMA_UCODE_TH0", "sdma_size_bytes", "ucode_offset_bytes"),),
    ("imu", 1, 0): (
        BlobPart("IMU_I", "imu_iram_ucode_size_bytes", "imu_iram_ucode_offset_bytes", relative=True),
        BlobPart("IMU_D", "imu_dram_ucode_size_bytes", "imu_dram_ucode_offset_bytes", relative=True),
    ),
}
"""The blobs of the headers that the chips' files have; psp ones list theirs themselves."""
SIGNED_HEADER = c_struct(
    "blob_header",
    "u8 nonce[16], u8 magic[4], u32 signed_bytes, u32 encrypted, u32 reserved_1c[5], u32 signed, "
    "u32 reserved_34, u8 key[16], u32 compressed, u32 zero_4c, u32 unpacked_bytes, u32 zero_54, u32 kind, "
    "u32 reserved_5c, "
    "u32 version, u32 reserved_64[2], u32 file_bytes, u32 reserved_70[36]",
    Evidence.INFERRED,
    "the files of Debian's firmware-amd-graphics 20250410-2",
)
"""The first 256 bytes of a blob, as far as the files show. Names are ours."""
SIGNED_EXTRA = 0x200
"""Bytes of a blob beyond `signed_bytes`: this header and the signature. A stack is padded beyond them."""
MAGIC = b"$PS1"
"""`magic`; the key database (KDB) of MP0 13.0.0 alone has zeros there."""
SIGNATURE = 0x100
"""Bytes of the signature, at the end."""
KINDS: Mapping[str, int] = {
    "SOS": 0x0009, "SYS_DRV": 0x000A, "KDB": 0x004F, "SPL": 0x0056, "RL": 0x0135, "SOC_DRV": 0x014A,
    "DBG_DRV": 0x014B, "INTF_DRV": 0x014C, "RAS_DRV": 0x0152, "IPKEYMGR_DRV": 0x01E1, "TOC": 0x200E,
    "SMU": 0x1001, "RLC_G": 0x2009, "RLC_V": 0x200A, "RLC_RESTORE_LIST_GPM_MEM": 0x200B,
    "RLC_RESTORE_LIST_SRM_MEM": 0x200C, "RLC_P": 0x200F, "RLC_IRAM": 0x2016, "RLC_DRAM_BOOT": 0x2017,
    "IMU_I": 0x203B, "IMU_D": 0x203C, "SDMA_UCODE_TH1": 0x203F, "RS64_PFP": 0x2044, "RS64_PFP_STACK": 0x2045,
    "RS64_ME": 0x2046, "RS64_ME_STACK": 0x2047, "RS64_MEC": 0x2048, "RS64_MEC_STACK": 0x2049,
}  # fmt: skip
"""Lower half of `kind`: what the blob is. The upper half is of the build (0x100, 0x8101 or 0x8202)."""
SDMA_KINDS: Mapping[int, int] = {11: 0x203E, 12: 0x2025}
"""That of SDMA_UCODE_TH0, by generation of the chip."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of a chip.

    Attributes:
        name: without `.bin`.
        header: family and version of its header.
        unit: PFP, ME or MEC for a gfx one.
        toc_end: of a psp one: where the last entry of its TOC ends, in bytes.
        sizes: of its blobs, in bytes, in the order of the file; Debian's 20250410-2.
    """

    name: str
    header: tuple[str, int, int]
    sizes: Mapping[str, int]
    unit: str = ""
    toc_end: int = 0


def _rdna3(chip: Chip, psp: Mapping[str, int], toc_end: int, restore_list: int) -> tuple[File, ...]:
    """Files of a chip of RDNA3: their names have the versions of its blocks.

    Args:
        chip: whose.
        psp: bytes of the blobs of its sOS.
        toc_end: as in File.
        restore_list: bytes of RLC_RESTORE_LIST_SRM_MEM.
    """
    gc = _version(chip, "GC")
    return (
        File(f"psp_{_version(chip, 'MP')}_sos", ("psp", 2, 0), psp, toc_end=toc_end),
        File(f"smu_{_version(chip, 'SMU')}", ("smu", 2, 1), {"SMU": 0x3FE00}),
        File(
            f"sdma_{_version(chip, 'SDMA0')}",
            ("sdma", 2, 0),
            {"SDMA_UCODE_TH0": 0x4400, "SDMA_UCODE_TH1": 0x4200},
        ),
        File(f"gc_{gc}_mec", ("gfx", 2, 0), {"RS64_MEC": 0x41300, "RS64_MEC_STACK": 0x22000}, "MEC"),
        File(f"gc_{gc}_imu", ("imu", 1, 0), {"IMU_I": 0x10200, "IMU_D": 0x10200}),
        File(
            f"gc_{gc}_rlc",
            ("rlc", 2, 3),
            {**_rlc(restore_list), "RLC_P": 0x2200, "RLC_V": 0x3200},
        ),
    )


def _rdna4(chip: Chip, drivers: Mapping[str, int], sdma: int, restore_list: int) -> tuple[File, ...]:
    """The same of RDNA4.

    Args:
        chip: whose.
        drivers: bytes of the blobs of its sOS beyond those that all have.
        sdma: bytes of SDMA_UCODE_TH0.
        restore_list: bytes of RLC_RESTORE_LIST_SRM_MEM.
    """
    gc = _version(chip, "GC")
    psp = {
        "KDB": 0x1AA0,
        "SYS_DRV": 0x131C0,
        "SOS": 0x1EA20,
        "SOC_DRV": 0x19570,
        "INTF_DRV": 0x91A0,
        "DBG_DRV": 0xD060,
        "TOC": 0x900,
        "IPKEYMGR_DRV": 0x3230,
        "SPL": 0x340,
    }
    codes = {"PFP": 0x15CD0, "ME": 0x27200, "MEC": 0x2D2E0}
    return (
        File(f"psp_{_version(chip, 'MP')}_sos", ("psp", 2, 0), {**psp, **drivers}, toc_end=0x170_0000),
        File(f"smu_{_version(chip, 'SMU')}", ("smu", 2, 0), {"SMU": 0x4FE00}),
        File(f"sdma_{_version(chip, 'SDMA0')}", ("sdma", 3, 0), {"SDMA_UCODE_TH0": sdma}),
        *(
            File(
                f"gc_{gc}_{unit.lower()}",
                ("gfx", 2, 0),
                {f"RS64_{unit}": size, f"RS64_{unit}_STACK": 0x40000},
                unit,
            )
            for unit, size in codes.items()
        ),
        File(f"gc_{gc}_imu", ("imu", 1, 0), {"IMU_I": 0x10200, "IMU_D": 0x10200}),
        File(f"gc_{gc}_rlc", ("rlc", 2, 2), _rlc(restore_list)),
    )


def _rlc(restore_list: int) -> dict[str, int]:
    return {
        "RLC_G": 0x6200,
        "RLC_RESTORE_LIST_GPM_MEM": 0xA00,
        "RLC_RESTORE_LIST_SRM_MEM": restore_list,
        "RLC_IRAM": 0x10200,
        "RLC_DRAM_BOOT": 0x8200,
    }


def _version(chip: Chip, block: str) -> str:
    return "_".join(map(str, chip.versions[block]))


FILES: Mapping[str, tuple[File, ...]] = {
    "gfx1100": _rdna3(
        GFX1100,
        {"SYS_DRV": 0x26790, "SOS": 0x18380, "TOC": 0x900, "KDB": 0x1700, "SPL": 0x2A0, "RL": 0x960},
        toc_end=0x9B_0000,
        restore_list=0x8F20,
    ),
    "gfx1102": _rdna3(
        GFX1102,
        {"SYS_DRV": 0x22790, "SOS": 0x18370, "TOC": 0x900, "KDB": 0x1310, "SPL": 0x2A0},
        toc_end=0x9A_0000,
        restore_list=0x75A0,
    ),
    "gfx1200": _rdna4(GFX1200, {}, sdma=0xB200, restore_list=0x5BB0),
    "gfx1201": _rdna4(GFX1201, {"RAS_DRV": 0x31A0, "RL": 0x6B0}, sdma=0xB400, restore_list=0x5C40),
}
"""By chip: what a compute-only driver needs; no display, video, TA or MES firmware. Names, header versions
and sizes are those of Debian's 20250410-2 (grade: hardware)."""


def toc_end(chip: Chip) -> int:
    """Where the published table of contents of a chip ends."""
    return max(file.toc_end for file in FILES[chip.name])


def has(chip: Chip, blob: str) -> bool:
    """Whether the published files of a chip have a blob."""
    return any(blob in file.sizes for file in FILES[chip.name])


RS64_START = 0x0007_0000_0000_3000
"""`ucode_start_addr` of the PFP, ME and MEC files: where the processor starts. PRGRM_CNTR_START takes a
quarter."""

TOC_IDS: Mapping[int, str] = {
    1: "RLC_G", 2: "RLC_TOC", 3: "RLCG_SCRATCH", 4: "RLC_SRM_ARAM", 5: "RLC_P", 6: "RLC_V", 7: "RLC_IRAM",
    9: "RLC_DRAM_BOOT", 11: "SDMA_UCODE_TH0", 12: "SDMA_UCODE_TH1", 18: "RS64_PFP", 19: "RS64_ME",
    20: "RS64_MEC", 23: "RS64_PFP_STACK", 25: "RS64_ME_STACK", 27: "RS64_MEC_STACK", 42: "UMF_ZONE_PAD",
}  # fmt: skip
"""Entries of the table of contents (TOC) by id (SOC21_ and SOC24_FIRMWARE_ID in `amdgpu_rlc.h`)."""


@dataclass(frozen=True, slots=True)
class TocFormat:
    """Entries of a TOC's signed part: dwords, the first with offset (bits 24:0) and id (31:25), the second
    with the size (31:14); an id of 0 ends the list (`RLC_TABLE_OF_CONTENT`, `_V2`).

    Attributes:
        dwords: of an entry.
        offset_unit: bytes that offset 1 means.
    """

    dwords: int
    offset_unit: int


TOC_FORMATS: Mapping[int, TocFormat] = {11: TocFormat(4, 4), 12: TocFormat(2, 32)}
"""By generation. Sizes count dwords; in the second format 1024 of them if bit 12 of the second dword is
set."""

"""The discovery binary: a table at the end of VRAM that says which IP blocks a card has, and where.

Source: Linux 6.12, `drivers/gpu/drm/amd/include/discovery.h` (MIT) for the layouts, `amdgpu_discovery.c` for
the ranges of the checksums. All is little-endian and packed. Checksums are sums of bytes, modulo 2**16.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sdk.facts.registers import Evidence, FactError
from sdk.facts.structures import Struct, c_struct

OFFSET_FROM_END = 64 << 10
"""Bytes between the binary's start and the end of VRAM."""
BINARY_SIZE_LIMIT = 10 << 10
"""Bytes of VRAM that drivers read for it."""

_struct = partial(c_struct, evidence=Evidence.HARDWARE, source="Linux 6.12, discovery.h", packed=True)

BINARY_SIGNATURE = 0x2821_1407
BINARY_HEADER = _struct(
    "binary_header", "u32 signature, u16 version_major, u16 version_minor, u16 checksum, u16 size"
)
"""Followed by the table list. The checksum is of all that follows its field."""
TABLES = ("IP_DISCOVERY", "GC", "HARVEST_INFO", "VCN_INFO", "MALL_INFO", "NPS_INFO")
"""The table list, in order; a missing table has offset 0."""
TABLE_INFO = _struct("table_info", "u16 offset, u16 checksum, u16 size, u16 padding")
"""An entry of the list; the offset is from the start of the binary."""

IP_SIGNATURE = 0x5344_5049
IP_HEADER = _struct("ip_discovery_header", "u32 signature, u16 version, u16 size, u32 id, u16 num_dies")
"""Followed by MAX_DIES times DIE_INFO, then IP_FLAGS."""
MAX_DIES = 16
DIE_INFO = _struct("die_info", "u16 die_id, u16 die_offset")
"""The offset is from the start of the binary."""
IP_FLAGS = _struct("ip_flags", "u8 flags, u8 reserved")
BASE_ADDRESS_64_BIT = 1
"""Bit of `flags`, from version 4 on: base addresses have 64 bits."""
DIE_HEADER = _struct("die_header", "u16 die_id, u16 num_ips")
IP = _struct(
    "ip",
    "u16 hw_id, u8 instance, u8 num_base_address, u8 major, u8 minor, u8 revision, u8 sub_revision_variant",
)
"""Followed by the base addresses, in dwords."""
IP_VERSIONS: Mapping[int, int] = {11: 3, 12: 4}
"""Version of the IP table by generation (inferred)."""

GC_TABLE_ID = 0x4347
GC_HEADER = _struct("gpu_info_header", "u32 table_id, u16 version_major, u16 version_minor, u32 size")
"""Followed by one of GC_INFOS. `size` counts the header."""
_GC_FIELDS = (
    "gc_num_se",
    "gc_num_wgp0_per_sa",
    "gc_num_wgp1_per_sa",
    "gc_num_rb_per_se",
    "gc_num_gl2c",
    "gc_num_gprs",
    "gc_num_max_gs_thds",
    "gc_gs_table_depth",
    "gc_gsprim_buff_depth",
    "gc_parameter_cache_depth",
    "gc_double_offchip_lds_buffer",
    "gc_wave_size",
    "gc_max_waves_per_simd",
    "gc_max_scratch_slots_per_cu",
    "gc_lds_size",
    "gc_num_sc_per_se",
    "gc_num_sa_per_se",
    "gc_num_packer_per_sc",
    "gc_num_gl2a",
    "gc_num_tcp_per_sa",
    "gc_num_sdp_interface",
    "gc_num_tcps",
    "gc_num_tcp_per_wpg",
    "gc_tcp_l1_size",
    "gc_num_sqc_per_wgp",
    "gc_l1_instruction_cache_size_per_sqc",
    "gc_l1_data_cache_size_per_sqc",
    "gc_gl1c_per_sa",
    "gc_gl1c_size_per_instance",
    "gc_gl2c_per_gpu",
    "gc_tcp_size_per_cu",
    "gc_tcp_cache_line_size",
    "gc_instruction_cache_size_per_sqc",
    "gc_instruction_cache_line_size",
    "gc_scalar_data_cache_size_per_sqc",
    "gc_scalar_data_cache_line_size",
    "gc_tcc_size",
    "gc_tcc_cache_line_size",
)
GC_INFOS: Mapping[tuple[int, int], Struct] = {
    (1, minor): _struct(f"gc_info_v1_{minor}", ", ".join(f"u32 {name}" for name in _GC_FIELDS[:count]))
    for minor, count in enumerate((19, 22, 30, 38))
}
"""What follows the header, by version of the table; sizes are KiB, LDS too, lines bytes."""
GC_VERSIONS: Mapping[int, tuple[int, int]] = {11: (1, 2), 12: (1, 3)}
"""Version of the GC table by generation (guess)."""

HARVEST_SIGNATURE = 0x5652_4148
HARVEST_HEADER = _struct("harvest_info_header", "u32 signature, u32 version")
"""Followed by HARVEST_ENTRIES times HARVEST_INFO; entries after the last one are 0."""
HARVEST_INFO = _struct("harvest_info", "u16 hw_id, u8 instance, u8 reserved")
HARVEST_ENTRIES = 32

if BINARY_HEADER.size + len(TABLES) * TABLE_INFO.size != 60:
    raise FactError("the binary header has 60 bytes")
if IP_HEADER.size + MAX_DIES * DIE_INFO.size + IP_FLAGS.size != 80:
    raise FactError("the IP discovery header has 80 bytes")
if GC_INFOS[1, 3].size != 4 * len(_GC_FIELDS):
    raise FactError("version 1.3 of the GC table has all its fields")

"""The discovery binary: a table at the end of VRAM that says which IP blocks a card has, and where.

Source: Linux 6.12, `drivers/gpu/drm/amd/include/discovery.h` (MIT) for the layouts, `amdgpu_discovery.c` for
the ranges of the checksums. All is little-endian and packed. Checksums are sums of bytes, modulo 2**16.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import calcsize

from sdk.facts.registers import FactError

OFFSET_FROM_END = 64 << 10
"""Bytes between the binary's start and the end of VRAM."""
BINARY_SIZE_LIMIT = 10 << 10
"""Bytes of VRAM that drivers read for it."""

Layout = tuple[tuple[str, str], ...]
"""Fields in order: name, and code of `struct`."""

BINARY_SIGNATURE = 0x2821_1407
BINARY_HEADER: Layout = (
    ("signature", "I"),
    ("version_major", "H"),
    ("version_minor", "H"),
    ("checksum", "H"),
    ("size", "H"),
)
"""Followed by the table list. The checksum is of all that follows its field."""
TABLES = ("IP_DISCOVERY", "GC", "HARVEST_INFO", "VCN_INFO", "MALL_INFO", "NPS_INFO")
"""The table list, in order; a table that there is not has offset 0."""
TABLE_INFO: Layout = (("offset", "H"), ("checksum", "H"), ("size", "H"), ("padding", "H"))
"""An entry of the list; the offset is from the start of the binary."""

IP_SIGNATURE = 0x5344_5049
IP_HEADER: Layout = (
    ("signature", "I"),
    ("version", "H"),
    ("size", "H"),
    ("id", "I"),
    ("num_dies", "H"),
)
"""Followed by MAX_DIES times DIE_INFO, then IP_FLAGS."""
MAX_DIES = 16
DIE_INFO: Layout = (("die_id", "H"), ("die_offset", "H"))
"""The offset is from the start of the binary."""
IP_FLAGS: Layout = (("flags", "B"), ("reserved", "B"))
BASE_ADDRESS_64_BIT = 1
"""Bit of `flags`, from version 4 on: base addresses have 64 bits."""
DIE_HEADER: Layout = (("die_id", "H"), ("num_ips", "H"))
IP: Layout = (
    ("hw_id", "H"),
    ("instance", "B"),
    ("num_base_address", "B"),
    ("major", "B"),
    ("minor", "B"),
    ("revision", "B"),
    ("sub_revision_variant", "B"),
)
"""Followed by the base addresses, in dwords."""
IP_VERSIONS: Mapping[int, int] = {11: 3, 12: 4}
"""Version of the IP table by generation (inferred)."""

GC_TABLE_ID = 0x4347
GC_HEADER: Layout = (("table_id", "I"), ("version_major", "H"), ("version_minor", "H"), ("size", "I"))
"""Followed by dwords: the first ones of GC_FIELDS, as many as the version has. `size` counts the header."""
GC_FIELDS = (
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
"""Of table versions 1.0 to 1.3; sizes are KiB, LDS too, lines bytes."""
GC_FIELD_COUNTS: Mapping[tuple[int, int], int] = {(1, 0): 19, (1, 1): 22, (1, 2): 30, (1, 3): 38}
GC_VERSIONS: Mapping[int, tuple[int, int]] = {11: (1, 2), 12: (1, 3)}
"""Version of the GC table by generation (guess)."""

HARVEST_SIGNATURE = 0x5652_4148
HARVEST_HEADER: Layout = (("signature", "I"), ("version", "I"))
"""Followed by HARVEST_ENTRIES times HARVEST_INFO; entries after the last one are 0."""
HARVEST_INFO: Layout = (("hw_id", "H"), ("instance", "B"), ("reserved", "B"))
HARVEST_ENTRIES = 32


def size_of(layout: Layout) -> int:
    """Bytes of a layout."""
    return calcsize(format_of(layout))


def format_of(layout: Layout) -> str:
    """Its format for `struct`."""
    return "<" + "".join(code for _, code in layout)


if size_of(BINARY_HEADER) + len(TABLES) * size_of(TABLE_INFO) != 60:
    raise FactError("the binary header has 60 bytes")
if size_of(IP_HEADER) + MAX_DIES * size_of(DIE_INFO) + size_of(IP_FLAGS) != 80:
    raise FactError("the IP discovery header has 80 bytes")
if len(GC_FIELDS) != GC_FIELD_COUNTS[1, 3]:
    raise FactError("version 1.3 of the GC table has all its fields")

"""The discovery binary that the security processor leaves at the end of VRAM at power-on."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from usbgpu.amd.facts import discovery as facts
from usbgpu.amd.facts.chips import BASES, HARDWARE_IDS, Chip

REGISTERS_OF: Mapping[str, str] = {"SDMA0": "GC"}
"""Blocks whose registers are among those of another."""

_COMMON: Mapping[str, int] = {
    "gc_num_wgp1_per_sa": 0,
    "gc_num_rb_per_se": 4,
    "gc_num_max_gs_thds": 32,
    "gc_gs_table_depth": 32,
    "gc_gsprim_buff_depth": 1792,
    "gc_parameter_cache_depth": 1024,
    "gc_double_offchip_lds_buffer": 1,
    "gc_wave_size": 32,
    "gc_max_waves_per_simd": 16,
    "gc_max_scratch_slots_per_cu": 32,
    "gc_lds_size": 64,
    "gc_num_sc_per_se": 1,
    "gc_num_packer_per_sc": 4,
    "gc_num_gl2a": 4,
    "gc_num_tcp_per_wpg": 2,
    "gc_num_sqc_per_wgp": 1,
    "gc_l1_instruction_cache_size_per_sqc": 32,
    "gc_l1_data_cache_size_per_sqc": 16,
    "gc_gl1c_per_sa": 4,
    "gc_tcp_cache_line_size": 128,
    "gc_instruction_cache_size_per_sqc": 32,
    "gc_instruction_cache_line_size": 64,
    "gc_scalar_data_cache_size_per_sqc": 16,
    "gc_scalar_data_cache_line_size": 64,
    "gc_tcc_cache_line_size": 128,
}
"""What both generations have in common (inferred from AMD's ISA and RDNA documents, or guess)."""
_OWN: Mapping[int, Mapping[str, int]] = {
    11: {"gc_tcp_l1_size": 32, "gc_gl1c_size_per_instance": 64},
    12: {"gc_tcp_l1_size": 32, "gc_tcp_size_per_cu": 32, "gc_tcc_size": 256},
}
"""What differs (guess)."""
L2_BANK = 256 << 10
"""Bytes of the L2 cache that one GL2C holds (guess)."""


def binary(chip: Chip) -> bytes:
    """The discovery binary of a card, with its checksums."""
    version = facts.IP_VERSIONS[chip.generation]
    start = facts.BINARY_HEADER.size + len(facts.TABLES) * facts.TABLE_INFO.size
    tables = {"IP_DISCOVERY": _ip_table(chip, version, start)}
    tables |= {"GC": _gc_table(chip), "HARVEST_INFO": _harvest_table()}
    listed, body, place = b"", b"", start
    for name in facts.TABLES:
        table = tables.get(name, b"")
        listed += facts.TABLE_INFO.pack(
            offset=place if table else 0, checksum=checksum(table), size=len(table)
        )
        padded = table + bytes(-len(table) % 4)
        body += padded
        place += len(padded)
    header = {"signature": facts.BINARY_SIGNATURE, "version_major": 1, "size": place}
    made = facts.BINARY_HEADER.pack(**header) + listed + body
    checked = checksum(made[facts.BINARY_HEADER.offset("size") :])
    return facts.BINARY_HEADER.pack(**header, checksum=checked) + listed + body


def checksum(data: bytes) -> int:
    """The sum of bytes that the tables carry."""
    return sum(data) & 0xFFFF


def _ip_table(chip: Chip, version: int, start: int) -> bytes:
    """The IP discovery table, for its place `start` in the binary."""
    wide = version >= 4
    blocks = [
        facts.IP.pack(
            hw_id=identity,
            num_base_address=len(bases),
            **dict(zip(("major", "minor", "revision"), chip.versions[name], strict=True)),
        )
        + struct.pack(f"<{len(bases)}{'Q' if wide else 'I'}", *bases)
        for name, identity in HARDWARE_IDS.items()
        for bases in (BASES[REGISTERS_OF.get(name, name)],)
    ]
    die = facts.DIE_HEADER.pack(num_ips=len(blocks)) + b"".join(blocks)
    flags = facts.BASE_ADDRESS_64_BIT if wide else 0
    infos = facts.MAX_DIES * facts.DIE_INFO.size
    header_size = facts.IP_HEADER.size + infos + facts.IP_FLAGS.size
    header = facts.IP_HEADER.pack(
        signature=facts.IP_SIGNATURE, version=version, size=header_size + len(die), num_dies=1
    )
    dies = facts.DIE_INFO.pack(die_offset=start + header_size).ljust(infos, b"\0")
    return header + dies + facts.IP_FLAGS.pack(flags=flags) + die


def _gc_table(chip: Chip) -> bytes:
    version = facts.GC_VERSIONS[chip.generation]
    arrays, processors = chip.arrays, chip.workgroup_processors
    values = {
        **_COMMON,
        **_OWN[chip.generation],
        "gc_num_se": chip.shader_engines,
        "gc_num_sa_per_se": arrays,
        "gc_num_wgp0_per_sa": processors,
        "gc_num_tcp_per_sa": 2 * processors,
        "gc_num_tcps": chip.compute_units,
        "gc_num_gprs": chip.vgprs,
        "gc_num_gl2c": chip.l2 // L2_BANK,
    }
    values["gc_gl2c_per_gpu"] = values["gc_num_sdp_interface"] = values["gc_num_gl2c"]
    info = facts.GC_INFOS[version]
    major, minor = version
    header = facts.GC_HEADER.pack(
        table_id=facts.GC_TABLE_ID,
        version_major=major,
        version_minor=minor,
        size=facts.GC_HEADER.size + info.size,
    )
    return header + info.pack(**{name: values[name] for name in info.offsets if name in values})


def _harvest_table() -> bytes:
    """Nothing is harvested: the other tables count only the units that a product has."""
    header = facts.HARVEST_HEADER.pack(signature=facts.HARVEST_SIGNATURE)
    return header + bytes(facts.HARVEST_ENTRIES * facts.HARVEST_INFO.size)

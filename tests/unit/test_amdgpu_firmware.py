"""Firmware files and blobs: facts against the kernel's structures, the model's checks, synthetic files."""

from __future__ import annotations

import contextlib
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.amdgpu import firmware_files, synthetic
from emulator.amdgpu.firmware_files import FirmwareError
from sdk.facts.registers import Evidence, FactError
from sdk.facts.structures import Malformed, c_struct
from sdk.settings import FIRMWARE
from usbgpu.amd.facts import firmware, psp, smu
from usbgpu.amd.facts.chips import CHIPS, GFX1100, GFX1201, Chip

REAL = Path(FIRMWARE.value() or FIRMWARE.default)
BOTH = pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)


# -- structures ------------------------------------------------------------------------------------------


def test_members_are_where_c_puts_them() -> None:
    structure = c_struct("s", "u8 a, u16 b[3], u8 c, u64 d, u32 e", Evidence.HARDWARE, "the test")
    assert [structure.offset(name) for name in "abcde"] == [0, 2, 8, 16, 24]
    assert structure.size == 32
    packed = c_struct("s", "u8 a, u32 b, u8 c", Evidence.HARDWARE, "the test", packed=True)
    assert ([packed.offset(name) for name in "abc"], packed.size) == ([0, 1, 5], 6)
    data = structure.pack(a=1, b=[2, 3], d=4)
    assert (structure.get(data, "b", 1), structure.get(data, "b", 2), structure.get(data, "d")) == (3, 0, 4)
    assert structure.unpack(data) == {"a": 1, "c": 0, "d": 4, "e": 0}


def test_wrong_use_of_a_structure_is_refused() -> None:
    structure = c_struct("s", "u16 a, u16 b[2]", Evidence.HARDWARE, "the test")
    with pytest.raises(FactError):
        structure.pack(c=1)
    for values in ({"a": 65536}, {"b": [1, 2, 3]}, {"a": -1}, {"a": [1]}, {"b": [1, -1]}):
        with pytest.raises(Malformed):
            structure.pack(**values)
    for name, index in (("b", 2), ("c", 0), ("b", -1)):
        with pytest.raises(FactError):
            structure.get(bytes(6), name, index)
    with pytest.raises(Malformed):
        structure.get(bytes(5), "b", 1)
    with pytest.raises(Malformed):
        structure.unpack_from(bytes(9), 4)
    for members in ("u16 a, u16 a", "u24 a", "u8 a-b"):
        with pytest.raises(FactError):
            c_struct("s", members, Evidence.HARDWARE, "the test")


def test_sizes_are_those_that_the_kernels_headers_give() -> None:
    # sizeof and offsetof of the structures, as clang says from the kernel's headers
    assert {key: structure.size for key, structure in firmware.HEADERS.items()} == {
        ("psp", 1, 0): 44, ("psp", 1, 1): 68, ("psp", 1, 3): 116, ("psp", 2, 0): 36, ("psp", 2, 1): 40,
        ("smu", 1, 0): 36, ("smu", 2, 0): 44, ("smu", 2, 1): 44, ("gfx", 1, 0): 44, ("gfx", 2, 0): 60,
        ("rlc", 2, 1): 156, ("rlc", 2, 2): 172, ("rlc", 2, 3): 204, ("sdma", 1, 0): 48, ("sdma", 1, 1): 52,
        ("sdma", 2, 0): 64, ("sdma", 3, 0): 44, ("imu", 1, 0): 48,
    }  # fmt: skip
    names = ("MetricsCounter", "EnergyAccumulator", "AvgTemperature", "AvgFanRpm", "D3HotEntryCountPerMode")
    tables = {version: interface.metrics for version, interface in smu.INTERFACES.items()}
    assert {version: [table.offset(name) for name in names] for version, table in tables.items()} == {
        (13, 0, 0): [80, 112, 120, 152, 180],
        (13, 0, 7): [80, 112, 120, 152, 176],
        (14, 0, 2): [104, 132, 140, 170, 196],
        (14, 0, 3): [104, 132, 140, 170, 196],
    }
    assert [table.size for table in tables.values()] == [392, 392, 412, 412]
    assert (psp.FRAME.size, psp.COMMAND_BUFFER.size, psp.RESPONSE.size) == (64, 1024, 96)
    assert (psp.COMMAND_BUFFER.offset("cmd"), psp.COMMAND_BUFFER.offset("resp")) == (28, 864)
    assert (psp.FRAME.offset("fence_addr_lo"), psp.FRAME.offset("vmid")) == (12, 32)
    assert firmware.SIGNED_HEADER.size == 256


# -- files -----------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("full_size", [False, True])
def test_synthetic_files_have_the_parts_of_the_published_ones(chip: Chip, full_size: bool) -> None:
    files = synthetic.directory(chip, full_size=full_size)
    found = firmware_files.blobs(chip, files)
    sizes = {name: size for file in firmware.FILES[chip.name] for name, size in file.sizes.items()}
    assert found.keys() == sizes.keys()
    for name, blob in found.items():
        firmware_files.check(chip, name, blob)
        assert len(blob) == sizes[name] or not full_size
    assert files == synthetic.directory(chip, full_size=full_size)
    total = sum(map(len, files.values()))
    assert (1_250_000 < total < 2_400_000) if full_size else total < 50_000


@BOTH
def test_published_files_are_understood(chip: Chip) -> None:
    files = firmware_files.installed(chip, REAL)
    if files is None:
        pytest.skip(f"no {chip.name} firmware in {REAL} (Debian: firmware-amd-graphics; TOWLINE_FIRMWARE)")
    found = firmware_files.blobs(chip, files)
    assert found.keys() == {name for file in firmware.FILES[chip.name] for name in file.sizes}
    for name, blob in found.items():
        firmware_files.check(chip, name, blob)
        for other in found:
            if firmware_files.kind(chip, other) != firmware_files.kind(chip, name) and (name, other) != (
                "KDB",
                "SPL",
            ):
                with pytest.raises(FirmwareError, match="not"):
                    firmware_files.check(chip, other, blob)
    end = max(entry.offset + entry.size for entry in firmware_files.contents(chip, found["TOC"]))
    assert end == firmware.toc_end(chip)
    for file in firmware.FILES[chip.name]:
        if file.header[0] == "gfx":
            header, data = firmware.HEADERS[file.header], files[f"{file.name}.bin"]
            start = header.get(data, "ucode_start_addr_hi") << 32 | header.get(data, "ucode_start_addr_lo")
            assert start == firmware.RS64_START


@BOTH
def test_the_table_of_contents_names_the_firmware(chip: Chip) -> None:
    toc = firmware_files.blobs(chip, synthetic.directory(chip))["TOC"]
    entries = {firmware.TOC_IDS[entry.id]: entry for entry in firmware_files.contents(chip, toc)}
    assert entries["RS64_MEC"].size >= 0x2D2E0
    assert entries["UMF_ZONE_PAD"].offset == firmware.toc_end(chip)
    spans = sorted((entry.offset, entry.size) for entry in entries.values())
    assert all(offset + size <= after for (offset, size), (after, _) in pairwise(spans))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_file_crashes_the_parser(data: st.DataObject) -> None:
    chip = data.draw(st.sampled_from(list(CHIPS.values())))
    file = data.draw(st.sampled_from(firmware.FILES[chip.name]))
    content = bytearray(SMALL[chip.name][f"{file.name}.bin"])
    for offset, value in data.draw(
        st.lists(st.tuples(st.integers(0, 0xFF), st.integers(0, 255)), max_size=4)
    ):
        content[offset] = value
    content = content[: data.draw(st.integers(0, len(content)))]
    found = {}
    with contextlib.suppress(FirmwareError):
        found = firmware_files.parse(file, bytes(content))
    assert all(found.values())


SMALL = {chip.name: synthetic.directory(chip) for chip in CHIPS.values()}


def test_missing_and_mistaken_files_are_named() -> None:
    files = dict(SMALL["gfx1100"])
    del files["sdma_6_0_0.bin"]
    with pytest.raises(FirmwareError, match=r"sdma_6_0_0\.bin"):
        firmware_files.blobs(GFX1100, files)
    files["sdma_6_0_0.bin"] = SMALL["gfx1201"]["sdma_7_0_1.bin"]
    with pytest.raises(FirmwareError, match=r"sdma_6_0_0: header version 3.0, expected 2.0"):
        firmware_files.blobs(GFX1100, files)


def test_inconsistent_files_are_refused() -> None:
    file = next(file for file in firmware.FILES["gfx1100"] if file.name == "sdma_6_0_0")
    good = SMALL["gfx1100"]["sdma_6_0_0.bin"]
    with pytest.raises(FirmwareError, match=r"its header says \d+"):
        firmware_files.parse(file, good + b"?")
    long = bytearray(good)
    at = firmware.HEADERS[file.header].offset("ctl_ucode_size_bytes")
    long[at : at + 4] = (0x601).to_bytes(4, "little")
    with pytest.raises(FirmwareError, match=r"SDMA_UCODE_TH1 .* beyond the file's end"):
        firmware_files.parse(file, bytes(long))


def test_sizes_of_the_second_toc_format_may_count_4_kib() -> None:
    body = struct.pack("<4I", 37 << 25 | 0x10, 3 << 14 | 1 << 12, 5 << 25 | 0x20, 3 << 14) + bytes(16)
    toc = synthetic.blob(GFX1201, "TOC", 0x600, body)
    assert [(entry.id, entry.offset, entry.size) for entry in firmware_files.contents(GFX1201, toc)] == [
        (37, 0x200, 0x3000),
        (5, 0x400, 12),
    ]


# -- blobs -----------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(offset=st.integers(0, 0x5FF), bit=st.integers(0, 7))
def test_a_bit_that_changed_is_noticed(offset: int, bit: int) -> None:
    blob = bytearray(synthetic.blob(GFX1100, "RS64_MEC", 0x600))
    blob[offset] ^= 1 << bit
    key = firmware.SIGNED_HEADER.offset("key")
    if key <= offset < key + 8:  # then it is another vendor's, whose signature cannot be checked
        firmware_files.check(GFX1100, "RS64_MEC", bytes(blob))
        return
    with pytest.raises(FirmwareError):
        firmware_files.check(GFX1100, "RS64_MEC", bytes(blob))


def test_blobs_are_refused_for_the_right_reason() -> None:
    mec = synthetic.blob(GFX1100, "RS64_MEC", 0x600)
    for name, blob, why in (
        ("RS64_MEC", mec[:-1], "cut short"),
        ("RS64_MEC", b"", "0 bytes"),
        ("RS64_MEC", bytes(0x600), "not signed firmware"),
        ("RS64_MEC", mec[:256] + bytes(0x500), "blank"),
        ("IMU_I", mec, "it is RS64_MEC, not IMU_I"),
        ("RS64_MEC", synthetic.blob(GFX1201, "RS64_MEC", 0x600), "for gfx1201, not for gfx1100"),
    ):
        with pytest.raises(FirmwareError, match=why):
            firmware_files.check(GFX1100, name, blob)
    firmware_files.check(GFX1100, "RS64_MEC", mec + bytes(100))  # padding, as stacks have


def test_a_key_database_passes_for_a_security_patch_table_on_gfx11_only() -> None:
    firmware_files.check(GFX1100, "SPL", synthetic.blob(GFX1100, "KDB", 0x600))
    with pytest.raises(FirmwareError, match="it is KDB, not SPL"):
        firmware_files.check(GFX1201, "SPL", synthetic.blob(GFX1201, "KDB", 0x600))

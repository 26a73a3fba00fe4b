"""Firmware files as the driver finds, unpacks and checks them."""

from __future__ import annotations

import lzma
import shutil
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.amdgpu import firmware_files, synthetic
from tests.gpu_host import firmware
from usbgpu.amd.facts.chips import CHIPS, GFX1100
from usbgpu.amd.facts.firmware import MAGIC, RS64_START
from usbgpu.amd.firmware import FirmwareMissing, InvalidFirmware, files, load, missing, needed

BOTH = pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)


@pytest.fixture
def folder(tmp_path) -> Path:
    """The files of a gfx1100, to be damaged."""
    return Path(shutil.copytree(firmware("gfx1100"), tmp_path / "amdgpu"))


@BOTH
def test_blobs_are_those_that_the_model_finds(chip):
    loaded = load(chip, firmware(chip.name))
    assert loaded.blobs == firmware_files.blobs(chip, synthetic.directory(chip))
    assert set(needed(chip)) <= set(loaded.blobs)
    units = {"PFP", "ME", "MEC"} if chip.generation == 12 else {"MEC"}
    assert loaded.starts == dict.fromkeys(units, RS64_START)


def test_compressed_files(folder):
    plain = load(GFX1100, folder).blobs
    for path in folder.iterdir():
        (folder / f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()
    assert load(GFX1100, folder).blobs == plain


def test_damaged_compressed_file(folder):
    path = folder / "smu_13_0_0.bin"
    packed = lzma.compress(path.read_bytes())
    path.unlink()
    for data, message in ((packed[:-20], "cut short"), (b"nonsense", "cannot be unpacked")):
        (folder / "smu_13_0_0.bin.xz").write_bytes(data)
        with pytest.raises(InvalidFirmware, match=message):
            load(GFX1100, folder)


def test_a_bomb_is_not_unpacked(folder, monkeypatch):
    path = folder / "smu_13_0_0.bin"
    most = max(file.stat().st_size for file in folder.iterdir())
    monkeypatch.setattr("usbgpu.amd.firmware.LARGEST", most)
    (folder / "smu_13_0_0.bin.xz").write_bytes(lzma.compress(bytes(most + 1)))
    path.unlink()
    with pytest.raises(InvalidFirmware, match=f"more than {most} bytes"):
        load(GFX1100, folder)
    path.write_bytes(bytes(most + 1))
    with pytest.raises(InvalidFirmware, match=f"{most + 1} bytes") as caught:
        load(GFX1100, folder)
    assert "install" in (caught.value.hint or "")


def test_zstd_says_what_to_do(folder, monkeypatch):
    path = folder / "smu_13_0_0.bin"
    data = path.read_bytes()
    path.rename(folder / "smu_13_0_0.bin.zst")
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(FirmwareMissing, match="zstd") as caught:
        load(GFX1100, folder)
    assert "zstandard" in (caught.value.hint or "")

    class Unpacker:
        def decompress(self, given: bytes, most: int) -> bytes:
            return given[:most]

    monkeypatch.setitem(sys.modules, "backports.zstd", SimpleNamespace(ZstdDecompressor=Unpacker))
    assert load(GFX1100, folder).blobs["SMU"] in data


def test_missing_files_are_named_with_their_package(tmp_path, folder):
    with pytest.raises(FirmwareMissing, match=r"gfx1100 needs psp_13_0_0_sos\.bin, smu.*rlc\.bin") as caught:
        load(GFX1100, tmp_path)
    assert "firmware-amd-graphics" in (caught.value.hint or "")
    assert "--firmware" in (caught.value.hint or "")
    assert caught.value.exit_code == 3
    (folder / "gc_11_0_0_imu.bin").unlink()
    assert missing(GFX1100, folder) == ["gc_11_0_0_imu.bin"]
    with pytest.raises(FirmwareMissing, match=r"needs gc_11_0_0_imu\.bin$"):
        load(GFX1100, folder)


@pytest.mark.parametrize(
    ("file", "spoil", "message"),
    [
        ("smu_13_0_0", lambda data: b"", r"\b0 bytes"),
        ("smu_13_0_0", lambda data: data[:-1], "cut short, or altered"),
        ("psp_13_0_0_sos", lambda data: data[:40], "cut short, or altered"),
        ("sdma_6_0_0", lambda data: data + b"\0", "cut short, or altered"),
        ("smu_13_0_0", lambda data: data[:8] + b"\x09\0" + data[10:], r"version 9\.1"),
        ("psp_13_0_0_sos", lambda data: data[:8] + b"\x01\0\x01\0" + data[12:], "older chip"),
        ("gc_11_0_0_mec", lambda data: data[:24] + b"\xff\xff\xff\x00" + data[28:], ""),
        ("psp_13_0_0_sos", lambda data: data[:32] + struct.pack("<I", 70) + data[36:], "lists 70 parts"),
    ],
)
def test_spoiled_files_are_refused_by_name(folder, file, spoil, message):
    path = folder / f"{file}.bin"
    path.write_bytes(spoil(path.read_bytes()))
    if not message:
        load(GFX1100, folder)  # a field that this kind of file does not use
        return
    with pytest.raises(InvalidFirmware, match=message) as caught:
        load(GFX1100, folder)
    assert f"{file}.bin" in str(caught.value)
    assert "reinstall" in (caught.value.hint or "")


def test_parts_that_are_longer_than_the_file_are_refused(folder):
    """By the header of the file, and by that of the blob."""
    path = folder / "smu_13_0_0.bin"
    good = path.read_bytes()
    (size,) = struct.unpack_from("<I", good, 20)  # ucode_size_bytes
    path.write_bytes(good[:20] + struct.pack("<I", size + 4) + good[24:])
    with pytest.raises(InvalidFirmware, match="SMU is beyond its end"):
        load(GFX1100, folder)
    place = good.index(MAGIC) + 4  # signed_bytes
    (size,) = struct.unpack_from("<I", good, place)
    path.write_bytes(good[:place] + struct.pack("<I", size + 4) + good[place + 4 :])
    with pytest.raises(InvalidFirmware, match=r"SMU is cut short: it has \d+ bytes"):
        load(GFX1100, folder)


def test_a_file_of_another_chip_is_refused(folder):
    shutil.copy(firmware("gfx1201") / "sdma_7_0_1.bin", folder / "sdma_6_0_0.bin")
    with pytest.raises(InvalidFirmware, match="TH0 is of kind 0x2025"):
        load(GFX1100, folder)
    shutil.copy(firmware("gfx1100") / "sdma_6_0_0.bin", folder / "sdma_6_0_0.bin")
    shutil.copy(folder / "gc_11_0_0_imu.bin", folder / "smu_13_0_0.bin")
    with pytest.raises(InvalidFirmware, match="SMU is IMU_I"):
        load(GFX1100, folder)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_headers_of_any_content_are_accepted_or_refused(folder, data):
    path = folder / f"{data.draw(st.sampled_from([file.name for file in files(GFX1100)]))}.bin"
    good = path.read_bytes()
    spoiled = bytearray(good)
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(4, 0x1FF), st.integers(0, 255)), min_size=1, max_size=5)
    ):
        spoiled[place] = value
    try:
        path.write_bytes(spoiled)
        load(GFX1100, folder)
    except InvalidFirmware:
        pass
    finally:
        path.write_bytes(good)


def test_every_known_chip_has_a_list_of_files():
    names = {name: [file.name for file in files(chip)] for name, chip in CHIPS.items()}
    assert names["gfx1102"][0] == "psp_13_0_7_sos"
    assert "gc_12_0_0_mec" in names["gfx1200"]
    assert len({tuple(each) for each in names.values()}) == 4

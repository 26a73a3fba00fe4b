"""Building the firmware, its sizes, and the check of images."""

import json
import zlib

import pytest

from emulator import images, symbols
from firmware import build as product
from firmware.asm2464pd import flash_layout, image
from firmware.check import check
from firmware.generate import differences
from sdk.errors import BuildFailed
from towline.cli import main

BODY = bytes(range(256)) * 40
LIMIT = 11 * 1024
"""Bytes of code, everything included."""


@pytest.fixture(scope="module")
def built() -> product.Built:
    return product.build()


def test_a_build_is_kept_and_wrapped(built):
    assert product.build() == built
    code = built.bin.read_bytes()
    assert image.unwrap(built.image.read_bytes()) == code
    assert len(code) <= LIMIT
    assert built.ihx == images.build("firmware").ihx, "the emulator runs the same build"


def test_sizes_add_up(built):
    rows = {row.module: row for row in product.sizes(built)}
    assert {"main", "usb", "pcie", "list", "(library)"} <= rows.keys()
    assert sum(row.code for row in rows.values()) == built.bin.stat().st_size
    assert 0 < rows["(library)"].code < 300
    assert sum(row.xram for row in rows.values()) < 0x1000
    assert sum(row.iram for row in rows.values()) < 0x80


def test_generated_files_are_up_to_date():
    assert differences() == ""


@pytest.mark.slow
def test_two_builds_in_two_places_are_the_same(tmp_path, monkeypatch, built):
    sources = tmp_path / "tree" / "src"
    places = (product.SOURCES, product.INCLUDE)
    for place, target in zip(places, (sources, sources.parent / "include"), strict=True):
        target.mkdir(parents=True)
        for path in place.iterdir():
            if path.is_file():
                (target / path.name).write_bytes(path.read_bytes())
    one = product.compile_into(tmp_path / "one")
    assert [path.read_bytes() for path in one.paths] == [path.read_bytes() for path in built.paths]
    monkeypatch.setattr(product, "SOURCES", sources)
    other = product.compile_into(tmp_path / "other")
    assert [path.read_bytes() for path in other.paths] == [path.read_bytes() for path in built.paths]


@pytest.mark.slow
def test_a_source_that_does_not_compile_is_reported_with_the_compilers_message(tmp_path, monkeypatch):
    broken = tmp_path / "broken.c"
    broken.write_text("void broken(void) { return undeclared; }\n")
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BuildFailed, match=r"broken.c:1: error.*undeclared"):
        product.build(broken)
    assert not list((tmp_path / "cache").rglob("*.ihx"))


# -- checking -------------------------------------------------------------------------------------------


def blocks() -> bytes:
    return b"".join(flash_layout.seal(index, bytes([0xFF] * 4) + bytes(0x7C)) for index in (0, 1))


def test_a_good_image():
    report = check(image.wrap(BODY) + b"tail")
    assert (report.kind, report.body, report.trailing, report.bad) == ("wrapped image", len(BODY), 4, ())
    assert [field.name for field in report.fields] == [
        "image body_length", "image magic", "image checksum", "image crc",
    ]  # fmt: skip
    assert report.fields[3].found == f"{zlib.crc32(BODY):#x}"
    assert report.fields[3].offset == 4 + len(BODY) + 2


def test_a_flash_dump_has_its_configuration_checked():
    dump = bytearray(blocks() + image.wrap(BODY)).ljust(0x20000, b"\xff")
    report = check(bytes(dump))
    assert (report.kind, report.body, report.bad) == ("flash dump", len(BODY), ())
    assert report.fields[0].name == "CONFIG_BLOCK_0 magic"
    dump[0x20] ^= 1
    dump[0x200] ^= 1
    assert [field.name for field in check(bytes(dump)).bad] == [
        "CONFIG_BLOCK_0 checksum", "image checksum", "image crc",
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"short", bytes(64), b"\xff" * 0x300, image.wrap(BODY)[:-1]])
def test_data_that_is_not_an_image(data):
    report = check(data)
    assert report.body == 0
    assert [field.good for field in report.fields] == [False]


@pytest.mark.slow
def test_the_command(tmp_path, capfd, built):
    output = tmp_path / "bridge.bin"
    assert main(["firmware", "build", "-o", str(output), "--json"]) == 0
    result = json.loads(capfd.readouterr().out)["result"]
    assert output.read_bytes() == built.image.read_bytes()
    assert (result["code_bytes"], result["api_level"]) == (built.bin.stat().st_size, "1.1")
    assert sorted(result["written"]) == sorted(str(path) for path in tmp_path.iterdir())
    assert main(["firmware", "build", "--check", str(output)]) == 0
    assert "wrapped image" in capfd.readouterr().out
    image_bytes = bytearray(output.read_bytes())
    image_bytes[100] ^= 1
    output.write_bytes(image_bytes)
    assert main(["firmware", "build", "--check", str(output), "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert "image crc" in found["error"]["message"]
    assert [field["good"] for field in found["result"]["fields"]] == [True, True, False, False]
    assert main(["firmware", "size", "--json"]) == 0
    size = json.loads(capfd.readouterr().out)["result"]
    assert size["code_bytes"] == result["code_bytes"]
    assert size["stack"]["main"]["bytes"] + size["stack"]["interrupt"]["bytes"] == size["stack"]["bytes"]
    assert main(["firmware", "size"]) == 0
    assert "stack: at most" in capfd.readouterr().out
    assert main(["firmware", "build", "-o", "x.bin", "--check", str(output)]) == 2
    assert main(["firmware", "build", "-o", str(tmp_path / "bridge.map")]) == 2, "its symbols go there"
    assert main(["firmware", "build", "--check", str(tmp_path / "nothing")]) == 2
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_symbols_go_with_an_image(tmp_path, capsys, built):
    output, wrapped = tmp_path / "bridge.bin", tmp_path / "again.bin"
    assert main(["firmware", "build", "-o", str(output)]) == 0
    names = symbols.beside(built.ihx)
    assert names.functions
    assert names.lines
    assert symbols.beside(output) == names
    assert images.source_directories(str(output), output) == images.source_directories("firmware")
    assert main(["firmware", "build", "--wrap", str(output), "-o", str(wrapped)]) == 0
    assert symbols.beside(wrapped) == names
    output.with_suffix(".cdb").unlink()
    output.with_suffix(".map").unlink()
    assert not images.source_directories(str(output), output)
    capsys.readouterr()
    assert main(["firmware", "build", "--wrap", str(output), "-o", str(wrapped), "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["result"]["written"] == [str(wrapped)]
    assert str(wrapped.with_suffix(".map")) in shown.err, "stale symbols are named"

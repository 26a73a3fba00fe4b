"""Firmware images: the wrapped layout, the flash around it, and reading every file format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.image_file import Kind, load, locate
from firmware.asm2464pd import flash_layout, image
from sdk.errors import InvalidInput, UsageError
from sdk.facts.structures import Malformed

BODY = b"\x02\x00\x03" + bytes(range(256)) * 3


def hex_file(*records: tuple[int, int, bytes]) -> str:
    """Intel HEX of (type, address, data)."""
    lines = []
    for kind, address, data in (*records, (1, 0, b"")):
        raw = bytes([len(data), address >> 8, address & 0xFF, kind]) + data
        lines.append(f":{raw.hex().upper()}{-sum(raw) & 0xFF:02X}")
    return "\n".join(lines) + "\n"


def flash_dump(wrapped: bytes, size: int = 0x20000) -> bytes:
    blocks = b"".join(flash_layout.seal(index, b"\xff" * 0x80) for index in (0, 1))
    return (blocks + wrapped).ljust(size, b"\xff")


@given(st.binary(min_size=1, max_size=600), st.binary(max_size=20))
def test_unwrapping_is_the_inverse_of_wrapping_and_ignores_what_follows(body, rest):
    assert image.unwrap(image.wrap(body) + rest) == body


@given(st.integers(min_value=4), st.integers(1, 255))
def test_any_changed_byte_after_the_length_is_found(position, flip):
    damaged = bytearray(image.wrap(BODY))
    damaged[4 + (position - 4) % (len(damaged) - 4)] ^= flip
    assert image.examine(bytes(damaged))


def test_the_fields_of_a_wrapped_image():
    wrapped = image.wrap(b"123456789")
    assert wrapped == b"\x09\0\0\0" + b"123456789" + b"\xa5\xdd" + bytes.fromhex("2639f4cb")


@pytest.mark.parametrize("size", [0, image.MAX_BODY + 1])
def test_an_empty_or_too_large_body_is_refused(size):
    with pytest.raises(Malformed, match=f"expected 1 to {image.MAX_BODY} bytes"):
        image.wrap(bytes(size))


def test_the_largest_body_is_as_large_as_the_vendors():
    assert image.MAX_BODY == 98006
    assert image.MAX_IMAGE == 98016
    assert flash_layout.IMAGE.size == image.MAX_IMAGE


def test_a_body_goes_to_the_common_half_and_the_banks():
    body = bytearray(image.MAX_BODY)
    body[0x7FFF], body[0x8000], body[0xFF6A], body[0xFF6B], body[0x17ED5] = 1, 2, 3, 4, 5
    bank0, high0 = image.code(bytes(body), 0)
    bank1, high1 = image.code(bytes(body), 1)
    assert (bank0[0x7FFF], bank0[0x8000], bank0[0xFF6A]) == (1, 2, 3)
    assert (bank1[0x7FFF], bank1[0x8000], bank1[0xFF6A]) == (1, 4, 5)
    assert bank0[0xFF6B:] == bank1[0xFF6B:] == b"\xff" * 0x95
    assert high0 == high1 == range(0x8000, 0xFF6B)


def test_a_configuration_block_is_sealed_and_its_damage_named():
    block = flash_layout.seal(0, bytes(4) + b"\xff" * 0x7C)
    assert block[0x7E] == 0x5A
    assert block[0x7F] == (0xFF * 0x7A + 0x5A) & 0xFF
    assert flash_layout.examine(0, block) == []
    assert [finding.what for finding in flash_layout.examine(1, block)] == ["magic"]
    damaged = bytearray(block)
    damaged[0x74] ^= 1
    assert [finding.what for finding in flash_layout.examine(0, bytes(damaged))] == ["checksum"]
    damaged[0] ^= 1
    assert len(flash_layout.examine(0, bytes(damaged))) == 1


def test_a_serial_number_survives_only_with_its_check_byte():
    page = flash_layout.otp(bytes.fromhex("12345678"))
    assert page == bytes.fromhex("1234567808")
    assert flash_layout.serial_number(page + b"\xff" * 10) == "12345678"
    assert flash_layout.serial_number(b"\xff" * 15) == "ffffffff"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (Kind.BINARY, BODY),
        (Kind.WRAPPED, image.wrap(BODY)),
        (Kind.WRAPPED, image.wrap(BODY) + b"\xff" * 100),
        (Kind.FLASH, flash_dump(image.wrap(BODY))),
        (Kind.FLASH, bytes(0x100) + image.wrap(BODY) + bytes(0x10000 - 0x100 - len(BODY) - 10)),
        (Kind.FLASH, b"\xff" * 0x100 + image.wrap(BODY) + b"\xff" * 0x4041),  # of `emulate --flash`
        (Kind.HEX, hex_file(*((0, at, BODY[at : at + 200]) for at in range(0, len(BODY), 200))).encode()),
    ],
)
def test_every_format_gives_the_same_code(tmp_path, kind, content):
    path = tmp_path / "any.name"
    path.write_bytes(content)
    read = load(path)
    assert read.kind is kind
    assert read.banks[0] == read.banks[1] == BODY.ljust(0x10000, b"\xff")
    assert read.loaded[0] == (b"\x01" * len(BODY)).ljust(0x10000, b"\0")


def test_a_binary_whose_first_jump_reads_as_a_length_is_not_a_wrapped_image(tmp_path):
    path = tmp_path / "plain.bin"
    path.write_bytes(b"\x02\x01\x00\x00" + bytes(0x102) + b"\xa5" + bytes(20))
    assert load(path).kind is Kind.BINARY


def test_intel_hex_above_64k_is_bank_1(tmp_path):
    path = tmp_path / "banked.ihx"
    path.write_text(hex_file((0, 0x7FFE, b"\1\2\3\4"), (4, 0, b"\0\1"), (0, 0x8000, b"\5\6")))
    read = load(path)
    assert read.banks[0][0x7FFE:0x8003] == b"\1\2\3\4\xff"
    assert read.banks[1][0x7FFE:0x8003] == b"\1\2\5\6\xff"
    assert (sum(read.loaded[0]), sum(read.loaded[1])) == (4, 4)


@pytest.mark.parametrize("first", [b"\x02\x00\x05", b"\x01\x05", b"\x80\x03"], ids=["LJMP", "AJMP", "SJMP"])
def test_a_plain_binary_begins_with_a_jump_into_itself(tmp_path, first):
    path = tmp_path / "code.bin"
    path.write_bytes(first.ljust(5, b"\0") + b"\x80\xfe")
    assert load(path).kind is Kind.BINARY
    for content in (first.ljust(5, b"\0"), b"\0" + first.ljust(5, b"\0") + b"\x80\xfe"):
        path.write_bytes(content)  # a jump beyond its end; a jump after another instruction
        with pytest.raises(InvalidInput) as refused:
            load(path)
        assert refused.value.where == str(path)


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"\xff\xd8\xff\xe0\0\x10JFIF\0", id="jpeg"),
        pytest.param(b"\x89PNG\r\n\x1a\n", id="png"),
        pytest.param(b"\x7fELF\x02\x01\x01", id="elf"),
        pytest.param(b"PK\x03\x04", id="zip"),
        pytest.param(b"!<arch>\n", id="an AJMP by chance"),
        pytest.param(b"\x08\x07\x12\x07pytorch", id="onnx"),
        pytest.param(b"\x02\0\0\0", id="a number"),
        pytest.param(b"\0\0\0\0", id="zeros"),
        pytest.param(b"\xff\xff\xff\xff", id="erased"),
    ],
)
def test_a_file_that_is_not_code_is_refused(tmp_path, start):
    path = tmp_path / "other.bin"
    path.write_bytes(start + start[-1:] * 5000)
    with pytest.raises(InvalidInput) as refused:
        load(path)
    assert refused.value.where == str(path)


def patched(data: bytes, offset: int, value: int) -> bytes:
    return data[:offset] + bytes([value]) + data[offset + 1 :]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (
            patched(image.wrap(BODY), 20, 0xEE),
            "wrapped image: checksum at offset 0x308 .* crc at offset 0x309",
        ),
        (patched(image.wrap(BODY), len(BODY) + 4, 0), "magic at offset 0x307 is 0x0, expected 0xa5"),
        (patched(image.wrap(BODY), 3, 9), "body_length at offset 0x0 is 150995715"),
        (image.wrap(BODY)[:-1], "body_length at offset 0x0 is 771, expected at most 770"),
        (patched(flash_dump(image.wrap(BODY)), 0x120, 0xEE), "damaged flash dump: checksum at offset 0x408"),
        (b"\x02\x00\x03" + bytes(99_998), "has 100001 bytes of code"),
        (b":0300000002000\n", "damaged Intel HEX"),
        (hex_file((0, 0, b"\1"))[:-6].replace("01FE", "01FF").encode(), "damaged Intel HEX"),
        (hex_file().encode(), "holds no data records"),
        (hex_file((4, 0, b"\0\1"), (0, 0x10, b"\1")).encode(), "0x10010 to 0x10010, which is not CODE"),
    ],
)
def test_a_damaged_file_says_what_is_wrong_with_it(tmp_path, content, complaint):
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=complaint) as caught:
        load(path)
    assert caught.value.where == str(path)


def test_a_file_that_does_not_exist(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        load(tmp_path / "missing.ihx")


@pytest.mark.parametrize("lines", [slice(None, -1), slice(None, 1), slice(None, None, -1)])
def test_intel_hex_without_its_end_is_refused(tmp_path, lines):
    path = tmp_path / "image.ihx"
    text = hex_file((0, 0, BODY[:16]), (0, 16, BODY[16:32])).splitlines()
    path.write_text("\n".join(text))
    load(path)
    path.write_text("\n".join(text[lines]))
    with pytest.raises(InvalidInput, match="end-of-file record"):
        load(path)


def test_two_files_of_intel_hex_in_one_are_refused(tmp_path):
    path = tmp_path / "image.ihx"
    path.write_text(hex_file((0, 0, BODY[:16])) * 2)
    with pytest.raises(InvalidInput, match="records follow the end-of-file record"):
        load(path)


@pytest.mark.parametrize("text", ["void main(void)\n{\n}\n", "\u00fcberhaupt kein Programm"])
def test_text_is_not_firmware(tmp_path, text):
    path = tmp_path / "main.c"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match="is text"):
        load(path)
    path.write_text(":" + text, encoding="utf-8")
    with pytest.raises(InvalidInput, match="damaged Intel HEX"):
        load(path)


def test_an_endless_file_is_refused():
    with pytest.raises(InvalidInput, match="has more than"):
        load("/dev/zero")


def test_a_name_is_a_test_image_or_a_file(tmp_path):
    assert locate("storage").name == "storage.ihx"
    (tmp_path / "mine.bin").touch()
    assert locate(tmp_path / "mine.bin") == tmp_path / "mine.bin"
    with pytest.raises(UsageError, match="directory"):
        locate(tmp_path)
    with pytest.raises(UsageError, match="no such file, and no image of that name"):
        locate("venodr")

"""The mask ROM's boot loader, from the wire."""

from __future__ import annotations

import functools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.asm2464pd import timing
from emulator.asm2464pd.flash_chip import BLOCK, SIZE, FlashChip
from emulator.asm2464pd.rom import Restart, boot, find_image, identity
from emulator.core.clock import Scheduler
from emulator.usb.wire import Handshake, Speed
from firmware.asm2464pd import flash_layout, image
from firmware.asm2464pd.describe import Space
from tests.unit.rom_bench import IN, OUT, Host, Stalled


def config(index: int, **changes: int) -> bytes:
    block = bytearray(b"\xff" * 0x80)
    struct.pack_into("<HHH", block, 0x74, changes.get("vendor", 0xADD1), changes.get("product", 1), 0x100)
    return flash_layout.seal(index, bytes(block))


@functools.cache
def body(size: int) -> bytes:
    return bytes((place * 31 + (place >> 9)) & 0xFF for place in range(size))


# -- what runs ------------------------------------------------------------------------------------------


def flash(contents: bytes) -> FlashChip:
    return FlashChip(Scheduler(), contents)


def test_a_good_image_runs() -> None:
    code = body(5000)
    chip = flash(b"\xff" * 0x100 + image.wrap(code))
    assert find_image(chip) == code
    found = boot(chip, strap=False)
    assert (found.body, found.loader) == (code, False)
    assert boot(chip, strap=True).body is None
    assert boot(chip, strap=True).loader


@pytest.mark.parametrize(
    ("offset", "named"), [(0x103, "body_length"), (0x200, "checksum"), (0x104 + 5000, "magic"), (-1, "crc")]
)
def test_a_damaged_image_does_not(offset: int, named: str) -> None:
    contents = bytearray(b"\xff" * 0x100 + image.wrap(body(5000)))
    contents[offset] ^= 0x10
    chip = flash(bytes(contents))
    reason = find_image(chip)
    assert isinstance(reason, str)
    assert named in reason
    assert boot(chip, strap=False).loader
    assert named in boot(chip, strap=False).reason
    without = boot(chip, strap=False, fallback=False)
    assert (without.body, without.loader) == (None, False)


def test_an_erased_flash_has_no_image() -> None:
    assert isinstance(find_image(flash(b"")), str)


# -- enumeration ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("best", [Speed.SUPER_PLUS, Speed.SUPER, Speed.HIGH])
def test_enumeration(best: Speed) -> None:
    host = Host(best=best, configure=False)
    assert host.speed is best
    assert host.clock.now == timing.LINK_TRAINING.clocks
    device = host.control(0x80, 6, 0x0100, length=64)
    assert len(device) == 18
    version, packet, vendor, product, release = struct.unpack_from("<H3xBHHH", device, 2)
    assert (version, packet) == ((0x0320, 9) if best.is_super else (0x0210, 64))
    assert (vendor, product, release) == (0x174C, 0x2463, 0x0001)
    host.control(0x00, 5, 7)
    header = host.control(0x80, 6, 0x0200, length=9)
    total = int.from_bytes(header[2:4], "little")
    assert total == (44 if best.is_super else 32)
    whole = host.control(0x80, 6, 0x0200, length=total)
    assert len(whole) == total
    parts, place = [], 0
    while place < total:
        parts.append(whole[place : place + whole[place]])
        place += whole[place]
    interface = next(part for part in parts if part[1] == 4)
    assert tuple(interface[5:8]) == (0x08, 0x06, 0x50)
    endpoints = {part[2]: int.from_bytes(part[4:6], "little") for part in parts if part[1] == 5}
    assert endpoints == dict.fromkeys((0x81, 0x02), 1024 if best.is_super else 512)
    bos = host.control(0x80, 6, 0x0F00, length=255)
    assert len(bos) == int.from_bytes(bos[2:4], "little") == 42
    assert host.control(0x80, 8, length=1) == b"\0"
    host.control(0x00, 9, 1)
    assert host.control(0x80, 8, length=1) == b"\1"
    assert host.control(0xA1, 0xFE, length=1) == b"\0"
    assert host.control(0x80, 0, length=2) == b"\1\0"


def test_strings() -> None:
    host = Host()
    names = [host.control(0x80, 6, 0x0300 | index, 0x409, 255)[2:].decode("utf-16-le") for index in (1, 2, 3)]
    assert names == ["0" * 20, "ASMedia", "AS2462"]
    assert host.control(0x80, 6, 0x0300, 0, 255) == b"\x04\x03\x09\x04"


def test_the_configuration_block_names_the_device() -> None:
    host = Host(config(0, vendor=0x1234, product=0x5678))
    assert struct.unpack_from("<HHH", host.control(0x80, 6, 0x0100, length=18), 8) == (0x1234, 0x5678, 0x100)
    damaged = bytearray(config(0))
    damaged[0x7F] ^= 1
    assert identity(flash(bytes(damaged))).vendor == 0x174C


@pytest.mark.parametrize(
    ("best", "request_type", "code", "value", "index"),
    [
        (Speed.SUPER, 0x80, 6, 0x0600, 0),  # a qualifier is for High Speed
        (Speed.HIGH, 0x80, 6, 0x0304, 0),
        (Speed.SUPER, 0x80, 6, 0x0201, 0),
        (Speed.SUPER, 0xC0, 0xE4, 0, 0),
        (Speed.SUPER, 0x00, 9, 2, 0),
        (Speed.SUPER, 0x01, 11, 1, 0),
        (Speed.SUPER, 0x02, 3, 0, 0x83),
        (Speed.SUPER, 0x80, 0x55, 0, 0),
    ],
)
def test_what_is_not_supported_is_stalled(best, request_type, code, value, index) -> None:
    host = Host(best=best)
    with pytest.raises(Stalled):
        host.control(request_type, code, value, index, length=18 if request_type & 0x80 else 0)
    assert host.control(0x80, 8, length=1) == b"\1", "the next request is answered"


def test_high_speed_has_a_qualifier() -> None:
    host = Host(best=Speed.HIGH)
    assert len(host.control(0x80, 6, 0x0600, length=10)) == 10
    assert host.control(0x80, 6, 0x0700, length=9)[1] == 7


def test_super_speed_requests_without_effect() -> None:
    host = Host()
    host.control(0x00, 0x30, data=bytes(6))
    host.control(0x00, 0x31, 40)
    host.control(0x00, 3, 48)


def test_no_bulk_traffic_before_the_configuration() -> None:
    host = Host(configure=False)
    assert host.device.bulk_out(OUT, bytes(31)) is Handshake.NAK
    assert host.device.bulk_in(IN) is Handshake.NAK
    host.control(0x00, 9, 1)
    assert host.device.bulk_out(0x04, bytes(31)) is Handshake.NAK


# -- a disk without a medium ----------------------------------------------------------------------------


def test_what_a_host_asks_of_any_disk() -> None:
    host = Host()
    status, data, residue = host.command(bytes((0x12, 0, 0, 0, 36, 0)), wanted=36)
    assert (status, residue, len(data)) == (0, 0, 36)
    assert (data[8:16], data[16:22]) == (b"ASMT    ", b"ASM246")
    assert data[4] == len(data) - 5
    assert host.command(bytes(6)) == (1, b"", 0)
    assert host.sense() == (0x2, 0x3A00)
    assert host.sense() == (0, 0), "sense data are reported once"
    assert host.command(bytes((0x25,)).ljust(10, b"\0"), wanted=8) == (1, b"", 8)
    assert host.command(bytes((0x1A, 0, 0x3F, 0, 192, 0)), wanted=192)[:2] == (0, b"\x03\0\0\0")
    assert host.command(bytes((0x12, 1, 0x80, 0, 36, 0)), wanted=36)[0] == 1
    assert host.sense() == (0x5, 0x2400)


@pytest.mark.parametrize("opcode", [0xE6, 0x2A, 0xFF])
def test_unknown_commands_are_refused(opcode: int) -> None:
    host = Host()
    assert host.command(bytes((opcode,)).ljust(10, b"\0"), wanted=512) == (1, b"", 512)
    assert host.sense() == (0x5, 0x2000)
    assert host.command(bytes((opcode,)).ljust(10, b"\0"), out=bytes(3000)) == (1, b"", 3000)


# -- the thirteen cases, and worse ----------------------------------------------------------------------

PHASE_ERROR = 2
INQUIRY = bytes((0x12, 0, 0, 0, 36, 0))
CONFIG_WRITE = bytes((0xE1, 0x50, 0))


def test_case_2_data_that_the_host_does_not_expect() -> None:
    assert Host().command(INQUIRY) == (PHASE_ERROR, b"", 0)


def test_case_3_data_that_the_host_does_not_send() -> None:
    assert Host().command(CONFIG_WRITE) == (PHASE_ERROR, b"", 0)


def test_case_4_no_data_where_some_is_expected() -> None:
    host = Host()
    host.command(bytes((0xE5, 0x42, 0x50, 0x01, 0x00)), wanted=64)
    assert host.bus.load(Space.XDATA, 0x0100, 1) == b"\x42"
    assert host.command(bytes((0xE5, 0x42, 0x50, 0x01, 0x00)), wanted=64) == (0, b"", 64)


@pytest.mark.slow
def test_case_5_less_data_than_expected() -> None:
    host = Host(body(SIZE))
    assert host.command(INQUIRY, wanted=96)[2] == 60
    status, data, residue = host.command(bytes((0xE2, 0x50)) + (1024).to_bytes(4, "big"), wanted=4096)
    assert (status, data, residue) == (0, body(SIZE)[0x100:0x500], 3072)


def test_case_5_a_short_packet_needs_no_stall() -> None:
    host = Host()
    host.send_packet(struct.pack("<IIIBBB16s", 0x43425355, 9, 96, 0x80, 0, 6, INQUIRY.ljust(16, b"\0")))
    assert len(host.receive(96)) == 36
    assert host.control(0x82, 0, 0, IN, 2) == b"\0\0"
    assert struct.unpack("<8xIB", host.receive(13)) == (60, 0)


def test_case_9_the_host_ends_unwanted_data_early() -> None:
    host = Host()
    host.send_packet(struct.pack("<IIIBBB16s", 0x43425355, 9, 3000, 0, 0, 6, b"\x99".ljust(16, b"\0")))
    assert host.device.bulk_in(IN) is Handshake.NAK
    host.send(bytes(1100))
    assert struct.unpack("<8xIB", host.receive(13)) == (3000, 1)


def test_case_7_more_data_than_expected() -> None:
    status, data, residue = Host().command(INQUIRY, wanted=8)
    assert (status, len(data), residue) == (PHASE_ERROR, 8, 0)


def test_case_8_the_host_reads_where_the_device_does() -> None:
    assert Host().command(CONFIG_WRITE, wanted=128) == (PHASE_ERROR, b"", 128)


def test_case_10_the_host_writes_where_the_device_does() -> None:
    assert Host().command(INQUIRY, out=bytes(36)) == (PHASE_ERROR, b"", 36)


def test_case_11_more_data_than_wanted() -> None:
    host = Host()
    assert host.command(CONFIG_WRITE, out=config(0) + bytes(2000)) == (0, b"", 2128 - 1024)


def test_case_13_less_data_than_wanted() -> None:
    host = Host()
    cdb = bytes((0xE3, 0x50)) + (2048).to_bytes(4, "big")
    assert host.command(cdb, out=bytes(1024)) == (PHASE_ERROR, b"", 0)


def test_every_case_leaves_the_device_ready() -> None:
    host = Host()
    host.command(INQUIRY)
    host.command(CONFIG_WRITE, wanted=128)
    host.command(INQUIRY, out=bytes(36))
    assert host.command(INQUIRY, wanted=36)[0] == 0


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        bytes(31),
        b"USBC" + bytes(26),
        b"USBC" + bytes(28),
        struct.pack("<IIIBBB16s", 0x43425355, 1, 0, 0, 0, 0, bytes(16)),
        struct.pack("<IIIBBB16s", 0x43425355, 1, 0, 0, 0, 17, bytes(16)),
        struct.pack("<IIIBBB16s", 0x43425355, 1, 0, 0, 1, 6, bytes(16)),
    ],
)
def test_an_invalid_cbw_needs_a_reset_recovery(packet: bytes) -> None:
    host = Host()
    host.send_packet(packet)
    for _ in range(2):
        with pytest.raises(Stalled):
            host.receive(13)
        with pytest.raises(Stalled):
            host.send_packet(bytes(31))
        assert host.control(0x82, 0, 0, IN, 2) == b"\1\0"
        host.control(0x02, 1, 0, IN)
        host.control(0x02, 1, 0, OUT)
    host.control(0x21, 0xFF)
    with pytest.raises(Stalled):
        host.receive(13)
    host.control(0x02, 1, 0, IN)
    host.control(0x02, 1, 0, OUT)
    assert host.command(INQUIRY, wanted=36)[0] == 0


def test_the_host_can_halt_an_endpoint() -> None:
    host = Host()
    host.control(0x02, 3, 0, OUT)
    with pytest.raises(Stalled):
        host.send_packet(bytes(31))
    host.control(0x02, 1, 0, OUT)
    assert host.command(INQUIRY, wanted=36)[0] == 0


def test_a_bus_reset_in_the_middle_of_a_command() -> None:
    host = Host()
    host.send_packet(struct.pack("<IIIBBB16s", 0x43425355, 9, 36, 0x80, 0, 6, INQUIRY.ljust(16, b"\0")))
    host.device.bus_reset()
    assert host.device.bulk_in(IN) is Handshake.NAK
    host.control(0x00, 9, 1)
    assert host.command(INQUIRY, wanted=36)[0] == 0


CDBS = st.builds(
    lambda opcode, rest: bytes((opcode,)) + rest,
    st.sampled_from([0x00, 0x03, 0x12, 0x1A, 0x25, 0xE0, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE8, 0x99]),
    st.one_of(
        st.binary(min_size=5, max_size=15),
        st.builds(
            lambda part, length: bytes((part,)) + length.to_bytes(4, "big"),
            st.sampled_from([0x50, 0xD0]),
            st.integers(0, 5000),
        ),
    ),
)
CBWS = st.builds(
    lambda tag, length, flags, cdb: struct.pack(
        "<IIIBBB16s", 0x43425355, tag, length, flags, 0, len(cdb), cdb.ljust(16, b"\0")
    ),
    st.integers(0, 0xFFFF_FFFF),
    st.sampled_from([0, 1, 13, 36, 128, 512, 1024, 4097]),
    st.sampled_from([0x00, 0x80]),
    CDBS,
)
ACTIONS = st.one_of(
    CBWS.map(lambda packet: ("out", packet)),
    st.binary(max_size=1024).map(lambda packet: ("out", packet)),
    st.just(("in", b"")),
    st.just(("time", b"")),
    st.just(("reset", b"")),
    st.binary(min_size=8, max_size=8).map(lambda packet: ("setup", packet)),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(ACTIONS, max_size=30), st.sampled_from([Speed.SUPER, Speed.HIGH]))
def test_nothing_a_host_sends_harms_the_boot_loader(actions, best) -> None:
    host = Host(best=best)
    for kind, data in actions:
        match kind:
            case "out":
                assert host.device.bulk_out(OUT, data[: host.packet]) in Handshake
            case "in":
                answer = host.device.bulk_in(IN)
                assert isinstance(answer, Handshake) or len(answer) <= host.packet
            case "time" if host.clock.next is not None:
                host.step()
            case "reset":
                host.device.bus_reset()
                host.control(0x00, 9, 1)
            case "setup":
                host.device.setup(data)
                host.device.control_in()
                host.device.control_out(b"")
                host.device.status()
    if host.speed is None:
        return  # it got a restart command
    host.device.bus_reset()
    host.control(0x00, 9, 1)
    assert host.command(INQUIRY, wanted=36)[0] == 0


# -- the vendor commands --------------------------------------------------------------------------------


def test_xdata_access() -> None:
    host = Host()
    for place, value in enumerate(b"towline"):
        assert host.command(bytes((0xE5, value, 0x50, 0x12, 0x34 + place, 0))) == (0, b"", 0)
    assert host.command(bytes((0xE4, 7, 0x50, 0x12, 0x34, 0)), wanted=7) == (0, b"towline", 0)
    assert host.command(bytes((0xE4, 7, 0x00, 0x12, 0x34, 0)), wanted=7)[0] == 1
    assert host.sense() == (0x5, 0x2400)


def test_writing_and_reading_configuration_blocks_keeps_the_rest() -> None:
    start = body(SIZE)
    host = Host(start)
    for index in (0, 1):
        began = host.clock.now
        assert host.command(bytes((0xE1, 0x50, index)).ljust(15, b"\0"), out=config(index))[0] == 0
        assert host.clock.now - began > timing.FLASH_BLOCK_ERASE.clocks
        assert host.command(bytes((0xE0, index, 0, 0, 0, 0)), wanted=128) == (0, config(index), 0)
    contents = host.chip.contents
    assert contents[:0x80] == config(0)
    assert contents[0x80:0x100] == config(1)
    assert contents[0x100:] == start[0x100:]
    assert host.command(bytes((0xE1, 0x50, 2)), out=config(0))[0] == 1
    assert host.command(bytes((0xE1, 0x00, 0)), out=config(0))[0] == 1
    assert host.command(bytes((0xE0, 2)), wanted=128)[0] == 1


def update(host: Host, wrapped: bytes) -> None:
    """What the open firmware's flash script does."""
    parts = (0x50, wrapped[:0xFF00]), (0xD0, wrapped[0xFF00:])
    for index in (0, 1):
        assert host.command(bytes((0xE1, 0x50, index)).ljust(15, b"\0"), out=config(index))[0] == 0
    for part, data in parts:
        assert host.command(bytes((0xE3, part)) + len(data).to_bytes(4, "big"), out=data) == (0, b"", 0)
    assert host.command(bytes((0xE8, 0x51)).ljust(15, b"\0")) == (0, b"", 0)


@pytest.mark.slow
@pytest.mark.parametrize("best", [Speed.SUPER, Speed.HIGH])
@pytest.mark.parametrize("size", [98006, 8000])
def test_a_firmware_update(best: Speed, size: int) -> None:
    host = Host(bytes(SIZE), best=best)
    code = body(size)
    wrapped = image.wrap(code)
    update(host, wrapped)
    assert host.restarts == []
    while host.speed is not None:
        host.step()
    assert host.restarts == [Restart.COMMIT]
    assert find_image(host.chip) == code
    assert host.chip.contents[:0x100] == config(0) + config(1)
    assert host.chip.contents[2 * BLOCK] == 0, "what the image does not need is left alone"


def test_reading_the_flash_in_two_parts() -> None:
    contents = body(SIZE)
    host = Host(contents)
    first = bytes((0xE2, 0x50)) + (0xFF00).to_bytes(4, "big")
    second = bytes((0xE2, 0xD0)) + (0x8001).to_bytes(4, "big")
    assert host.command(first, wanted=0xFF00) == (0, contents[0x100:0x10000], 0)
    assert host.command(second, wanted=0x8001) == (0, contents[0x10000:0x18001], 0)
    assert host.command(bytes((0xE2, 0x50)) + (0xFF01).to_bytes(4, "big"), wanted=0xFF01)[0] == 1
    assert host.command(bytes((0xE2, 0x51)) + (1).to_bytes(4, "big"), wanted=1)[0] == 1


def test_data_wait_for_the_erase() -> None:
    host = Host(bytes(SIZE))
    cdb = bytes((0xE3, 0x50)) + (1024).to_bytes(4, "big")
    host.send_packet(struct.pack("<IIIBBB16s", 0x43425355, 1, 1024, 0, 0, 6, cdb.ljust(16, b"\0")))
    assert host.device.bulk_out(OUT, bytes(1024)) is Handshake.NAK
    assert host.device.bulk_in(IN) is Handshake.NAK
    began = host.clock.now
    host.send_packet(bytes(1024))
    assert host.clock.now - began >= timing.FLASH_BLOCK_ERASE.clocks
    began = host.clock.now
    assert len(host.receive(13)) == 13
    assert host.clock.now - began == 4 * timing.FLASH_PAGE_PROGRAM.clocks


def test_a_protected_flash_is_unprotected() -> None:
    host = Host(bytes(SIZE))
    host.chip.transfer(b"\x06")
    host.chip.transfer(b"\x01\x1c")
    host.clock.now += timing.FLASH_STATUS_WRITE.clocks
    update(host, image.wrap(body(100)))
    assert find_image(host.chip) == body(100)


def test_a_command_waits_for_flash_work_of_an_aborted_one() -> None:
    host = Host(body(SIZE))
    cdb = bytes((0xE3, 0xD0)) + (1024).to_bytes(4, "big")
    host.send_packet(struct.pack("<IIIBBB16s", 0x43425355, 1, 1024, 0, 0, 6, cdb.ljust(16, b"\0")))
    host.device.bus_reset()
    host.control(0x00, 9, 1)
    assert host.command(bytes((0xE1, 0x50, 1)), out=config(1))[0] == 0
    assert host.chip.contents[:0x200] == body(0x80) + config(1) + body(0x200)[0x100:]
    assert host.chip.contents[0x10000:0x20000] == b"\xff" * BLOCK


@pytest.mark.parametrize("restart", [Restart.CPU, Restart.SOFT])
def test_resets(restart: Restart) -> None:
    host = Host()
    assert host.command(bytes((0xE8, restart.value)).ljust(12, b"\0")) == (0, b"", 0)
    while host.speed is not None:
        host.step()
    assert host.restarts == [restart]
    assert host.clock.next is None


def test_a_reset_whose_status_was_not_taken_is_dropped() -> None:
    host = Host()
    host.send_packet(struct.pack("<IIIBBB16s", 0x43425355, 1, 0, 0, 0, 6, b"\xe8".ljust(16, b"\0")))
    host.device.bus_reset()
    host.control(0x00, 9, 1)
    assert host.command(INQUIRY, wanted=36)[0] == 0
    assert host.clock.next is None
    assert host.restarts == []


def test_an_unknown_reset_is_refused() -> None:
    host = Host()
    assert host.command(bytes((0xE8, 0x33)))[0] == 1
    assert host.clock.next is None


def test_a_power_cut_during_an_update_leaves_no_image() -> None:
    host = Host(b"\xff" * 0x100 + image.wrap(body(3000)))
    cdb = bytes((0xE3, 0x50)) + (3010).to_bytes(4, "big")
    host.send_packet(struct.pack("<IIIBBB16s", 0x43425355, 1, 3010, 0, 0, 6, cdb.ljust(16, b"\0")))
    host.clock.now += timing.FLASH_BLOCK_ERASE.clocks // 2
    host.chip.cut_power()
    assert isinstance(find_image(host.chip), str)
    assert host.chip.contents[0x100] == 0xFF

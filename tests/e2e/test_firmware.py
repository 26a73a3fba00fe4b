"""The firmware on an emulated board, under --strict and all guards: enumeration, requests of hosts."""

from __future__ import annotations

import struct

import pytest

from emulator.asm2464pd.flash_chip import FlashChip
from emulator.board import Board
from emulator.core.clock import Scheduler
from emulator.image_file import load
from emulator.images import build
from emulator.mcs51.stack import bound
from emulator.options import Options
from emulator.usb.wire import Setup, Speed, Stall
from firmware import build as product
from firmware.asm2464pd import flash_layout
from firmware.protocol import commands
from tests.reference_host import (
    CFGRD0,
    CFGRD1,
    CFGWR0,
    IN,
    MRD32,
    MRD64,
    MWR32,
    MWR64,
    OUT,
    RAM,
    REGISTERS,
    Host,
    power_up,
)


@pytest.fixture(scope="module", params=[Speed.SUPER_PLUS, Speed.HIGH], ids=["superspeed", "highspeed"])
def host(request) -> Host:
    made = power_up(request.param)
    made.set_up_pcie()
    return made


def is_super(host: Host) -> bool:
    return host.board.usb.speed.is_super


def pattern(size: int) -> bytes:
    return bytes((7 * place + (place >> 8)) & 0xFF for place in range(size))


def descriptor(host: Host, kind: int, index: int = 0, length: int = 255, language: int = 0) -> bytes:
    return host.board.usb.control(Setup(0x80, 6, kind << 8 | index, language, length), timeout=5)


def text(host: Host, index: int) -> str:
    found = descriptor(host, 3, index, language=0x0409)
    assert found[:2] == bytes((len(found), 3))
    return found[2:].decode("utf-16-le")


def refused(host: Host, kind: int, request: int, value: int = 0, index: int = 0, length: int = 0) -> bool:
    """Whether a request is stalled, and EP0 still works."""
    data = b"" if kind & 0x80 else bytes(length)
    try:
        host.board.usb.control(Setup(kind, request, value, index, length), data, timeout=5)
    except Stall:
        return host.board.usb.control(Setup(0x80, 8, 0, 0, 1), timeout=1) in (b"\0", b"\1")
    return False


# -- descriptors, field by field ------------------------------------------------------------------------


@pytest.mark.slow
def test_device_descriptor(host):
    found = descriptor(host, 1)
    names = (
        "length kind usb klass subclass protocol ep0 vendor product release maker name serial configurations"
    )
    device = dict(zip(names.split(), struct.unpack("<BBHBBBBHHHBBBB", found), strict=True))
    assert (device["length"], device["kind"], device["configurations"]) == (18, 1, 1)
    assert (device["usb"], device["ep0"]) == ((0x0320, 9) if is_super(host) else (0x0210, 64))
    assert (device["klass"], device["subclass"], device["protocol"]) == (0, 0, 0), "given by the interface"
    assert (device["vendor"], device["product"]) == (0xADD1, 0x0001)
    assert device["release"] == commands.API_LEVEL
    assert descriptor(host, 1, length=8) == found[:8], "no more than the host asks for"
    assert text(host, device["maker"]) == "towline"
    assert text(host, device["name"]).startswith("custom")
    assert text(host, device["serial"]) == "00c0ffee"
    assert descriptor(host, 3) == b"\x04\x03\x09\x04"


def check_configuration(found: bytes, kind: int, packet: int, *, companions: bool) -> None:
    length, own, total, interfaces, value, name, attributes, power = struct.unpack_from("<BBHBBBBB", found)
    assert (length, own, total) == (9, kind, len(found))
    assert (interfaces, value, name, power) == (1, 1, 0, 0)
    assert attributes == 0xC0, "bit 7 is always set; self-powered; no remote wake-up"
    parts, place = [], 9
    while place < total:
        parts.append(found[place : place + found[place]])
        place += found[place]
    assert place == total
    assert parts[0] == bytes((9, 4, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0))
    endpoints = [part for part in parts[1:] if part[1] == 5]
    assert [(part[2], part[3], *struct.unpack_from("<HB", part, 4)) for part in endpoints] == [
        (IN, 2, packet, 0),
        (OUT, 2, packet, 0),
    ], "bulk"
    if companions:
        assert [part[1] for part in parts[1:]] == [5, 48, 5, 48], "each after its endpoint"
        assert {part for part in parts if part[1] == 48} == {bytes((6, 48, 15, 0, 0, 0))}
    else:
        assert len(parts) == 3


def test_configuration_descriptor(host):
    packet = 1024 if is_super(host) else 512
    check_configuration(descriptor(host, 2), 2, packet, companions=is_super(host))


def test_qualifier_and_other_speed_only_at_high_speed(host):
    if is_super(host):
        assert refused(host, 0x80, 6, 6 << 8, 0, 10)
        assert refused(host, 0x80, 6, 7 << 8, 0, 9)
        return
    assert descriptor(host, 6) == struct.pack("<BBHBBBBBB", 10, 6, 0x0210, 0, 0, 0, 64, 1, 0)
    check_configuration(descriptor(host, 7), 7, 64, companions=False)


def test_bos_descriptor(host):
    found = descriptor(host, 15)
    assert struct.unpack_from("<BBHB", found) == (5, 15, len(found), 3)
    parts, place = {}, 5
    while place < len(found):
        part = found[place : place + found[place]]
        assert part[1] == 16
        parts[part[2]] = part
        place += found[place]
    assert struct.unpack("<BBBI", parts[2]) == (7, 16, 2, 2), "USB 2.0 extension: LPM"
    attributes, speeds, functional, u1, u2 = struct.unpack_from("<BHBBH", parts[3], 3)
    assert attributes == 0, "no latency tolerance messages"
    assert speeds >> functional & 1, "the lowest speed of full function is supported"
    assert speeds & 0x0C == 0x0C, "5 Gb/s and high speed"
    assert (u1 <= 10, u2 <= 2047) == (True, True), "table 9-16"
    length, _, _, _, attributes, support, reserved = struct.unpack_from("<BBBBIHH", parts[10])
    speeds = struct.unpack_from(f"<{(length - 12) // 4}I", parts[10], 12)
    assert (len(speeds), reserved) == ((attributes & 0x1F) + 1, 0)
    assert attributes >> 5 & 0xF == len({speed & 0xF for speed in speeds}) - 1
    assert (support >> 8 & 0xF, support >> 12) == (1, 1), "one lane each way"
    for speed in speeds:
        assert (speed >> 14 & 3, speed >> 4 & 3, speed >> 16) == (1, 3, 10), "SuperSpeedPlus, 10 Gb/s"
    assert [speed >> 7 & 1 for speed in speeds] == [0, 1], "receive, transmit"


@pytest.mark.parametrize(
    ("page", "serial"),
    [(flash_layout.otp(b"\x01\x23\xab\xcd"), "0123abcd"), (b"\x01\x23\xab\xcd\x00", "ffffffff")],
)
def test_the_serial_number_is_that_of_the_otp_page(tmp_path, page, serial):
    chip = FlashChip(Scheduler(), b"", page)
    kept = tmp_path / "flash"
    kept.write_bytes(chip.save())
    board = Board(load(build("firmware").ihx), Options(strict=True, flash=kept))
    assert board.usb.wait_attached(3.0)
    assert text(Host(board), 3) == serial


# -- standard requests ----------------------------------------------------------------------------------


def test_standard_requests(host):
    usb = host.board.usb
    usb.control(Setup(0x00, 9, 0, 0, 0))
    assert usb.control(Setup(0x80, 8, 0, 0, 1)) == b"\0"
    for kind, request, value, index, length in (
        (0x81, 10, 0, 0, 1), (0x01, 11, 0, 0, 0), (0x82, 0, 0, IN, 2), (0x02, 3, 0, IN, 0),
        (0x81, 0, 0, 0, 2),
    ):  # fmt: skip
        assert refused(host, kind, request, value, index, length), "not before a configuration"
    usb.control(Setup(0x00, 9, 1, 0, 0))
    assert usb.control(Setup(0x80, 8, 0, 0, 1)) == b"\1"
    assert usb.control(Setup(0x81, 10, 0, 0, 1)) == b"\0"
    assert usb.control(Setup(0x81, 0, 0, 0, 2)) == b"\0\0"
    usb.control(Setup(0x01, 11, 0, 0, 0))
    assert usb.control(Setup(0x80, 0, 0, 0, 2)) == b"\1\0", "self-powered"
    assert usb.control(Setup(0x82, 0, 0, 0, 2)) == usb.control(Setup(0x82, 0, 0, 0x80, 2)) == b"\0\0"
    for endpoint in (OUT, IN):
        usb.control(Setup(0x02, 3, 0, endpoint, 0))
        assert usb.control(Setup(0x82, 0, 0, endpoint, 2)) == b"\1\0", "halted"
        usb.control(Setup(0x02, 1, 0, endpoint, 0))
        assert usb.control(Setup(0x82, 0, 0, endpoint, 2)) == b"\0\0"


def test_the_requests_of_a_linux_host(host):
    """Enumeration by usbcore, suspend and resume, usbfs: all are answered, except optional ones."""
    usb = host.board.usb
    usb.reset()
    usb.control(Setup(0x00, 5, 9, 0, 0))
    if is_super(host):
        usb.control(Setup(0x00, 49, 40, 0, 0))  # SET_ISOCH_DELAY
    assert descriptor(host, 1, length=8 if is_super(host) else 64)[1] == 1
    bos = descriptor(host, 15, length=5)
    assert len(descriptor(host, 15, length=int.from_bytes(bos[2:4], "little"))) == bos[2]
    if not is_super(host):
        assert len(descriptor(host, 6, length=10)) == 10
    head = descriptor(host, 2, length=9)
    assert len(descriptor(host, 2, length=int.from_bytes(head[2:4], "little"))) == head[2]
    assert refused(host, 0x80, 6, 0x03EE, 0, 18), "Microsoft's string, which Windows asks for"
    assert refused(host, 0x80, 6, 0x0A00, 0, 255), "debug descriptor, which EHCI's asks for"
    assert descriptor(host, 3)[:2] == b"\4\3"
    usb.control(Setup(0x00, 9, 1, 0, 0))
    usb.control(Setup(0x01, 11, 0, 0, 0))
    for endpoint in (OUT, IN):
        usb.control(Setup(0x02, 1, 0, endpoint, 0))
    assert usb.control(Setup(0x80, 0, 0, 0, 2)) == b"\1\0"
    if is_super(host):
        usb.control(Setup(0x00, 48, 0, 0, 6), bytes(6))  # SET_SEL
        for feature in (48, 49):  # U1 and U2 for idle times, off for the suspended one
            usb.control(Setup(0x00, 3, feature, 0, 0))
            usb.control(Setup(0x00, 1, feature, 0, 0))
        usb.control(Setup(0x01, 3, 0, 0x0300, 0))  # FUNCTION_SUSPEND: low power, remote wake-up
        assert usb.control(Setup(0x81, 0, 0, 0, 2)) == b"\0\0", "no remote wake-up"
        usb.control(Setup(0x01, 1, 0, 0, 0))
    else:
        assert refused(host, 0x00, 3, 1), "remote wake-up is not in the configuration's attributes"
    assert usb.control(Setup(0x80, 8, 0, 0, 1)) == b"\1"


def test_link_power_features_are_superspeed_ones(host):
    usb = host.board.usb
    if not is_super(host):
        assert refused(host, 0x00, 3, 48)
        assert refused(host, 0x00, 49, 20)
        assert refused(host, 0x00, 48, 0, 0, 6)
        return
    usb.control(Setup(0x00, 48, 0, 0, 6), bytes(6))  # SET_SEL
    usb.control(Setup(0x00, 49, 40, 0, 0))  # SET_ISOCH_DELAY
    usb.control(Setup(0x01, 3, 0, 0, 0))  # FUNCTION_SUSPEND
    for feature, status in ((48, 5), (49, 13)):
        usb.control(Setup(0x00, 3, feature, 0, 0))
        assert usb.control(Setup(0x80, 0, 0, 0, 2)) == bytes((status, 0))
    usb.control(Setup(0x00, 1, 48, 0, 0))
    assert usb.control(Setup(0x80, 0, 0, 0, 2)) == b"\x09\0"
    usb.control(Setup(0x00, 9, 1, 0, 0))
    assert usb.control(Setup(0x80, 0, 0, 0, 2)) == b"\x01\0", "a configuration begins with neither"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "request_", "value", "index", "length"),
    [
        (0x00, 9, 2, 0, 0), (0x00, 9, 1, 0, 4), (0x80, 9, 1, 0, 1), (0x01, 11, 1, 0, 0),
        (0x01, 11, 0, 1, 0), (0x02, 3, 0, 0x83, 0), (0x02, 3, 1, IN, 0), (0x82, 0, 0, 4, 2),
        (0x80, 0, 0, 0, 0), (0x80, 8, 0, 0, 0), (0x00, 7, 0, 0, 0), (0x00, 5, 128, 0, 0),
        (0x80, 6, 0x0101, 0, 18), (0x80, 6, 0x0201, 0, 9), (0x80, 6, 0x0304, 0, 9), (0x80, 6, 0x0800, 0, 9),
        (0x80, 6, 0x0100, 0, 0), (0x00, 6, 0x0100, 0, 18), (0x21, 0xFF, 0, 0, 0), (0xA1, 0xFE, 0, 0, 1),
        (0x00, 3, 1, 0, 0), (0x00, 3, 2, 0x100, 0),
        # vendor: unknown, wrong directions, lengths, values
        (0x40, 0xF1, 0, 0, 12), (0xC0, 0x00, 0, 0, 1), (0xC1, 0xE4, 0, 0, 1), (0x40, 0xE4, 0, 0, 0),
        (0xC0, 0xE4, 0, 0, 0), (0xC0, 0xE4, 0, 0x0200, 1), (0xC0, 0xE5, 0, 0, 1), (0x40, 0xE5, 0, 0, 1),
        (0x40, 0xE5, 0, 0x0200, 0), (0x40, 0xF0, 0x0F00, 0, 0), (0x40, 0xF0, 0x0F00, 0, 11),
        (0x40, 0xF0, 0x0F00, 0, 13), (0x40, 0xF0, 0x0F00, 3, 12), (0x40, 0xF0, 0x0F74, 0, 12),
        (0x40, 0xF0, 0xFF00, 0, 12), (0x40, 0xF0, 0x0F60, 2, 12), (0xC0, 0xF0, 0, 0, 4),
        (0xC0, 0xF0, 0, 0, 512), (0x40, 0xF2, 1, 0, 1), (0x40, 0xF2, 0, 0x0100, 0),
        (0x40, 0xF2, 33, 0x0100, 0), (0x40, 0xF2, 1, 0x0120, 0), (0x40, 0xF2, 1, 0x021F, 0),
        (0xC0, 0xF2, 1, 0x0100, 1), (0x40, 0xF3, 1, 0, 1), (0xC0, 0xF3, 1, 0, 1), (0x40, 0xF8, 2, 0, 0),
        (0x40, 0xF8, 1, 0, 2), (0xC0, 0xF8, 1, 0, 1), (0xC0, 0xF9, 0, 0, 0), (0x40, 0xF9, 0, 0, 0),
    ],
)  # fmt: skip
def test_malformed_and_unknown_requests_are_stalled(host, kind, request_, value, index, length):
    assert refused(host, kind, request_, value, index, length)


# -- E4, E5 ---------------------------------------------------------------------------------------------


def test_memory_of_both_planes(host):
    for place, value in enumerate(b"wharf"):
        host.poke(0x0F00 + place, value)
    assert host.peek(0x0F00, 5) == b"wharf"
    before = host.peek(0x7807, 1, bank=1)
    host.poke(0x7807, before[0] ^ 0xFF, bank=1)
    assert host.peek(0x7807, 1, bank=1) == bytes((before[0] ^ 0xFF,))
    host.poke(0x7807, before[0], bank=1)
    for place in range(0x0E00, 0x0E00 + 70):
        host.poke(place, place & 0xFF)
    longest = host.peek(0x0E00, 70)
    assert longest == bytes(range(70 if is_super(host) else 64)), "the cap of the open firmware"
    assert len(host.peek(0xF000, 600)) == (512 if is_super(host) else 64), "full packets, and then none"


# -- F0 -------------------------------------------------------------------------------------------------


def test_single_tlps(host):
    assert host.config_read(0, 0) & 0xFFFF == 0x1B21, "the root port"
    assert host.config_read(4, 0) == 0x70E1_1234, "the endpoint"
    host.write32(RAM + 0x40, 0x0123_4567)
    assert host.read32(RAM + 0x40) == 0x0123_4567
    host.tlp(MWR64, RAM + 0x40, 0xAABBCCDD, enables=0b0110)
    assert host.read32(RAM + 0x40) == 0x01BBCC67
    host.tlp(MRD64, RAM + 0x40, enables=0b0001)
    assert host.result()[1:] == (0, 1, 0), "byte count"
    host.write32(REGISTERS + 4, 0x5EED)
    assert host.read32(REGISTERS + 4) == 0x5EED
    host.tlp(MWR32, 0, 0)
    assert host.control_in(0xF0, 0, 0, 8)[7] == 0, "posted: done"


def test_outcomes_of_single_tlps(host):
    host.tlp(CFGRD1, 9 << 24)
    assert host.result()[1::2] == (1, 0), "unsupported request: bus 9 is empty"
    host.tlp(MRD32, REGISTERS + 0x44)
    assert host.result()[1::2] == (4, 0), "completer abort"
    host.tlp(CFGWR0, 0x3C, 0)
    assert host.control_in(0xF0, 0, 0, 8)[6] == 0, "no data in the completion of a write"
    host.tlp(CFGRD0, 0)
    first = host.control_in(0xF0, 0, 0, 8)
    assert first[6] == 1
    assert host.control_in(0xF0, 0, 0, 8) == first, "the same answer twice"


@pytest.mark.parametrize("dwords", [1, 127, 128, 129, 256, 700])
def test_streams(host, dwords):
    data = pattern(dwords * 4)
    start = 0xFFF8  # addresses carry
    host.stream_write(RAM + start, data)
    host.tlp(MRD64, RAM + start + len(data) - 4)  # a request after the stream sees all of it
    assert host.result()[0] == struct.unpack("<I", data[-4:])[0]
    assert host.board.endpoint.memory[start : start + len(data)] == data
    assert host.stream_read(RAM + start, len(data)) == data


def test_a_stream_in_pieces_and_other_requests_meanwhile(host):
    data = pattern(4096)
    host.tlp(MWR64, RAM, 1024, mode=1)
    for place in range(0, 4096, 1024):
        host.bulk(OUT, data[place : place + 1024])
        assert host.peek(0xB450) == b"\x78"
    host.tlp(MRD64, RAM, 1024, mode=2)
    packet = 1024 if is_super(host) else 512
    for place in range(0, 2 * packet, packet):
        assert host.bulk(IN, packet) == data[place : place + packet]
        assert host.peek(0xB450) == b"\x78"
    host.board.usb.control(Setup(0x00, 9, 1, 0, 0))
    assert host.read32(RAM) == struct.unpack("<I", data[:4])[0]


def test_a_stream_ends_the_one_before(host):
    data = pattern(1200)
    host.board.endpoint.memory[:1200] = data
    host.tlp(MRD64, RAM, 300, mode=2)
    host.sleep(1e-3)  # a packet of it waits for the host
    host.stream_write(RAM + 0x1000, data)
    assert host.read32(RAM + 0x1000) == struct.unpack_from("<I", data)[0]
    with pytest.raises(TimeoutError):
        host.bulk(IN, 1024, timeout=0.01)
    assert host.board.endpoint.memory[0x1000 : 0x1000 + 1200] == data
    host.tlp(MWR64, RAM, 300, mode=1)
    assert host.stream_read(RAM, 1200) == data
    with pytest.raises(TimeoutError):
        host.bulk(OUT, bytes(1024), timeout=0.01)
    assert host.board.endpoint.memory[:1200] == data


def test_bad_packets_end_a_stream(host):
    for packet in (b"abc", bytes(16)):  # not whole dwords; more than announced
        host.tlp(MWR64, RAM, 2, mode=1)
        host.bulk(OUT, packet)
        with pytest.raises(TimeoutError):
            host.bulk(OUT, bytes(4), timeout=0.01)
        host.board.usb.control(Setup(0x02, 1, 0, OUT, 0))
    host.tlp(MWR64, RAM, 1, mode=1)
    host.bulk(OUT, b"")  # empty, which counts as whole dwords
    host.bulk(OUT, b"fine")
    assert host.read32(RAM) == 0x656E6966


# -- F2 -------------------------------------------------------------------------------------------------


def test_slots_both_ways(host):
    data = pattern(40 * 512)
    host.arm_slots(40, 3, 2)
    host.bulk(OUT, data)
    sram = host.board.machine.bus.sram
    assert sram[3 * 0x4000 : 3 * 0x4000 + len(data)] == data
    host.arm_slots(40, 3, 2, to_host=True)
    transfer = host.begin(IN, len(data))
    host.sleep(1e-3)
    assert transfer.actual == 0, "not before the device has written the completion entry"
    host.write32(REGISTERS + 0x2C, 0x0082_200C)
    host.write32(REGISTERS + 0x30, 0)
    host.write32(REGISTERS + 0x34, 1)
    host.board.usb.wait(transfer, timeout=1)
    assert transfer.data == data
    host.arm_slots(32, 31, 0)
    host.bulk(OUT, pattern(0x4000))
    assert sram[31 * 0x4000 :] == pattern(0x4000), "0 slots means 1"


# -- F3 -------------------------------------------------------------------------------------------------


def test_power(host):
    host.power(on=False)
    assert not host.link_up
    host.tlp(CFGRD0, 0)
    assert host.result()[3] == 1, "no link: an error, at once"
    host.power(on=True)
    assert host.link_up
    host.set_up_pcie()
    assert host.config_read(4, 0) == 0x70E1_1234


# -- F8, F9 ---------------------------------------------------------------------------------------------


def info(host: Host) -> dict:
    return commands.INFO.unpack(host.control_in(0xF9, 0, 0, 32))


@pytest.mark.slow
def test_info(host):
    first = info(host)
    assert (first["api_level"], first["list_bytes"], first["result_bytes"]) == (0x0101, 0x4000, 0x1000)
    assert (first["ltssm"], first["link_rate"]) == (0x78, 0x43)
    assert first["build"] != 0
    host.sleep(0.1)
    second = info(host)
    assert 90 <= second["uptime"] - first["uptime"] <= 120
    assert abs(host.now * 1000 - second["uptime"]) < 0.02 * second["uptime"] + 20


@pytest.mark.parametrize("length", [1, 8, 31, 64, 512])
def test_info_has_its_length_or_the_requested_one_if_shorter(host, length):
    assert len(host.control_in(0xF9, 0, 0, length)) == min(length, 32)


def test_lost_links_are_counted(host):
    before = info(host)["links_lost"]
    board = host.board
    board.machine.clock.after(1000, lambda: board.chip.link.drop(None))
    host.sleep(1e-3)
    assert (info(host)["links_lost"], host.link_up) == (before + 1, False)
    host.power(on=True)
    assert (info(host)["links_lost"], host.link_up) == (before + 1, True)
    host.power(on=False)
    host.power(on=True)
    assert info(host)["links_lost"] == before + 1, "a link that was switched off is not lost"
    host.set_up_pcie()


def test_opening_and_closing_list_mode(host):
    host.control_out(0xF8, 1, 7)
    host.control_out(0xF8, 1, 8)
    host.control_out(0xF8, 0, 0)
    with pytest.raises(TimeoutError):
        host.bulk(OUT, bytes(8), timeout=0.01)
    host.stream_write(RAM, b"calm")
    assert host.read32(RAM) == 0x6D6C6163
    host.control_out(0xF8, 1, 0)
    host.stream_write(RAM, b"once")  # closes it
    assert host.stream_read(RAM, 4) == b"once"


# -- the stack ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_stack_stays_within_its_bound(host):
    """Internal RAM is cleared at start: bytes at its upper end that are not zero have been used."""
    used = host.board.machine.cpu.state()[:256].rstrip(b"\0")
    stack = bound(product.build())
    print(f"{len(used) - stack.start} bytes used, at most {stack.bytes}")
    assert stack.start < len(used) <= stack.start + stack.bytes

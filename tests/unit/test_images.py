"""The test images: how they are built, and what they answer on a board under --strict and guards."""

import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from emulator import images
from emulator.board import Board
from emulator.mcs51.core import GUARDS
from emulator.options import Options
from emulator.usb.wire import Outcome, Setup, Speed, Stall
from firmware.asm2464pd.phy import PCIE_FINAL, USB_LANE_SETUP, USB_LANES
from firmware.asm2464pd.registers import ASM2464PD
from sdk.errors import BuildFailed, UsageError
from tests.bulk_only import EP_IN, EP_OUT, bulk, command, xdata
from towline.cli import options

VENDOR_OUT, VENDOR_IN = 0x40, 0xC0
XRAM_FREE = 0x5000
"""XRAM that no image uses."""


def board(name: str, speed: Speed = Speed.SUPER_PLUS) -> Board:
    # Without "uninit": some requests here have the firmware read unwritten memory.
    made = Board.of(name, Options(port=speed, strict=True, guards=frozenset(GUARDS) - {"uninit"}))
    made.text = bytearray()
    made.on_uart(made.text.append)
    assert made.usb.wait_attached(3.0)
    return made


@pytest.fixture(scope="module", params=[Speed.SUPER_PLUS, Speed.HIGH], ids=["superspeed", "highspeed"])
def vendor(request) -> Board:
    return board("vendor", request.param)


@pytest.fixture(scope="module", params=[Speed.SUPER_PLUS, Speed.HIGH], ids=["superspeed", "highspeed"])
def storage(request) -> Board:
    return board("storage", request.param)


def descriptor(device: Board, kind: int, index: int = 0, length: int = 255) -> bytes:
    return device.usb.control(Setup(0x80, 6, kind << 8 | index, 0, length))


def configure(device: Board, value: int = 1) -> None:
    device.usb.control(Setup(0x00, 9, value, 0, 0))


# -- building -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", images.IMAGES)
def test_an_image_is_built_once(name):
    built = images.build(name)
    assert images.build(name) == built, "from the cache"
    code = built.bin.read_bytes()
    assert code[0] == 0x02, "LJMP"
    assert len(code) <= (11 if name == "firmware" else 12) * 1024
    assert built.ihx.read_text().endswith(":00000001FF\n")
    assert "\nL:" in built.cdb.read_text()


@pytest.mark.slow
def test_builds_at_the_same_time_give_the_same_files(tmp_path, monkeypatch):
    built = images.build("storage")
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(images.build, ["storage", "storage"])
    assert one == other != built
    assert [path.read_bytes() for path in one.paths] == [path.read_bytes() for path in built.paths]
    one.map.unlink()
    assert images.build("storage").map.exists(), "a deleted file is made again"


def test_a_refused_source_is_reported_in_the_assemblers_words(tmp_path, monkeypatch):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "start.asm").write_text("\t.area CSEG\n\tmov a, #undeclared\n")
    monkeypatch.setattr(images, "SOURCES", tmp_path)
    monkeypatch.setattr(images, "RECIPES", {"storage": images.Recipe(("broken",), ("start.asm",))})
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BuildFailed, match=r"undeclared|<u>"):
        images.build("storage")
    assert not list((tmp_path / "cache").rglob("*.ihx"))


def test_an_unknown_image_names_the_known_ones():
    with pytest.raises(UsageError) as error:
        images.build("vendr")
    assert error.value.hint == "images: firmware, vendor, storage, calibration, maker"


# -- both -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vendor", "storage"])
@pytest.mark.parametrize("speed", [Speed.SUPER_PLUS, Speed.HIGH])
def test_descriptors_are_those_of_the_speed(name, speed, request):
    device = board(name, speed)
    high = speed is Speed.HIGH
    whole = descriptor(device, 1)
    assert struct.unpack_from("<BBH", whole) == (18, 1, 0x0210 if high else 0x0320)
    assert whole[7] == (64 if high else 9)
    assert descriptor(device, 1, length=8) == whole[:8], "no more than the host wants"
    configuration = descriptor(device, 2)
    assert len(configuration) == int.from_bytes(configuration[2:4], "little")
    found, place = [], 0
    while place < len(configuration):
        length, kind = configuration[place : place + 2]
        if kind == 5:
            size = struct.unpack_from("<H", configuration, place + 4)[0]
            found.append((configuration[place + 2], size))
        place += length
    assert place == len(configuration)
    assert sorted(found) == [(EP_OUT, 512 if high else 1024), (EP_IN, 512 if high else 1024)]
    bos = descriptor(device, 15)
    assert len(bos) == int.from_bytes(bos[2:4], "little")
    assert descriptor(device, 3, 0) == b"\x04\x03\x09\x04"
    texts = [descriptor(device, 3, number)[2:].decode("utf-16-le") for number in (1, 2, 3)]
    assert texts[:2] == ["towline", "towline test storage" if name == "storage" else "custom towline"]
    if high:
        assert descriptor(device, 6)[:2] == b"\x0a\x06"
    for kind, index in ((3, 4), (2, 1), (8, 0), *(() if high else ((6, 0),))):
        with pytest.raises(Stall):
            descriptor(device, kind, index)
    assert (b"towline test storage image" if name == "storage" else b"towline firmware\n") in device.text


@pytest.mark.parametrize("name", ["vendor", "storage"])
def test_the_lanes_are_tuned_as_the_facts_say(name):
    device = board(name)
    for lane in USB_LANES:
        last = {update.offset: update.apply(0) for update in USB_LANE_SETUP}
        for offset, value in last.items():
            assert device.machine.bus.planes[ASM2464PD["USB_CONFIG"].space][lane + offset] == value


# -- vendor ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_vendor_standard_requests(vendor):
    usb = vendor.usb
    configure(vendor, 0)
    assert usb.control(Setup(0x80, 8, 0, 0, 1)) == b"\0"
    with pytest.raises(Stall):
        usb.control(Setup(0x81, 10, 0, 0, 1))  # GET_INTERFACE before a configuration
    configure(vendor)
    assert usb.control(Setup(0x80, 8, 0, 0, 1)) == b"\1"
    assert usb.control(Setup(0x81, 10, 0, 0, 1)) == b"\0"
    usb.control(Setup(0x01, 11, 0, 0, 0))
    assert usb.control(Setup(0x80, 0, 0, 0, 2)) == b"\1\0", "self-powered"
    for endpoint in (EP_OUT, EP_IN):
        usb.control(Setup(0x02, 3, 0, endpoint, 0))
        assert usb.control(Setup(0x82, 0, 0, endpoint, 2)) == b"\1\0", "halted"
        usb.control(Setup(0x02, 1, 0, endpoint, 0))
        assert usb.control(Setup(0x82, 0, 0, endpoint, 2)) == b"\0\0"
    for kind, request, value, index in (
        (0x00, 9, 2, 0),  # no second configuration
        (0x01, 11, 1, 0),  # nor alternate setting
        (0x02, 3, 0, 0x83),  # nor third endpoint
        (0x82, 0, 0, 4),
        (0x00, 7, 0, 0),  # SET_DESCRIPTOR
        (0x21, 0xFF, 0, 0),  # a class request
    ):
        with pytest.raises(Stall):
            usb.control(Setup(kind, request, value, index, 2 if kind & 0x80 else 0))
    with pytest.raises(Stall):
        usb.control(Setup(0x00, 9, 1, 0, 4), b"data")  # no data stage is wanted


def test_vendor_memory_requests_reach_both_planes(vendor):
    usb = vendor.usb
    for index, value in enumerate(b"wharf"):
        usb.control(Setup(VENDOR_OUT, 0xE5, XRAM_FREE + index, value, 0))
    assert usb.control(Setup(VENDOR_IN, 0xE4, XRAM_FREE, 0, 5)) == b"wharf"
    address, value = next(iter(PCIE_FINAL.items()))
    assert usb.control(Setup(VENDOR_IN, 0xE4, address, 0x0100, 1)) == bytes((value,)), "PHY plane"
    usb.control(Setup(VENDOR_OUT, 0xE5, address, 0x0100 | value ^ 0xFF, 0))
    assert usb.control(Setup(VENDOR_IN, 0xE4, address, 0x0100, 1)) == bytes((value ^ 0xFF,))
    usb.control(Setup(VENDOR_OUT, 0xE5, address, 0x0100 | value, 0))
    most = usb.control(Setup(VENDOR_IN, 0xE4, 0xB800, 0, 4096))
    assert len(most) == (64 if usb.speed is Speed.HIGH else 512)


def tlp(device: Board, kind: int, address: int, value: int, mode: int = 0) -> None:
    data = struct.pack("<QI", address, value)
    device.usb.control(Setup(VENDOR_OUT, 0xF0, 0x0F00 | kind, mode, 12), data)


def test_vendor_tlps(vendor):
    tlp(vendor, 0x04, 0x00, 0)
    data, completion, has_data, status = struct.unpack(
        "<I2sBB", vendor.usb.control(Setup(VENDOR_IN, 0xF0, 0, 0, 8))
    )
    assert (data & 0xFFFF, completion, has_data, status) == (0x1B21, b"\x00\x04", 1, 0), "the root port's id"
    tlp(vendor, 0x05, 0x09 << 24, 0)
    completion, _, status = struct.unpack_from("2sBB", vendor.usb.control(Setup(VENDOR_IN, 0xF0, 0, 0, 8)), 4)
    assert (completion[0] >> 5, status) == (1, 0), "unsupported request: bus 9 is empty"
    with pytest.raises(Stall):
        tlp(vendor, 0x04, 0, 0, mode=3)
    with pytest.raises(Stall):
        vendor.usb.control(Setup(VENDOR_OUT, 0xF0, 0x0F04, 0, 4), bytes(4))


@pytest.mark.slow
def test_vendor_waits_for_a_completion_with_a_bound(vendor):
    address = 0x8_FFFF_0000
    vendor.chip.tlp.dead(range(address, address + 4))
    tlp(vendor, 0x20, address, 0)
    assert vendor.usb.control(Setup(VENDOR_IN, 0xF0, 0, 0, 8), timeout=1)[7] == 0xFF


def test_vendor_streams_and_slot_dma(vendor):
    usb, base = vendor.usb, 0x8_0000_0000
    configure(vendor)
    for bus in range(4):
        for register, value in (
            (0x18, bus | bus + 1 << 8 | 4 << 16), (0x24, 0xFFF1_0001), (0x28, 8), (0x2C, 8), (0x04, 6),
        ):  # fmt: skip
            tlp(vendor, 0x45 if bus else 0x44, bus << 24 | register, value)
    for register, value in ((0x10, 0), (0x14, 8), (0x18, 0x1000_0000), (0x04, 6)):
        tlp(vendor, 0x45, 4 << 24 | register, value)
    data = bytes(index * 5 & 0xFF for index in range(1100 * 4))
    start = 0xFF00  # crosses addresses whose lowest two bytes carry
    tlp(vendor, 0x60, base + start, len(data) // 4, mode=1)
    bulk(vendor, EP_OUT, data)
    usb.clock.sleep(2e-3)  # the CPU has the last packet when the host is done
    assert vendor.endpoint.memory[start : start + len(data)] == data
    tlp(vendor, 0x20, base + start, len(data) // 4, mode=2)
    assert bulk(vendor, EP_IN, len(data)) == data
    usb.control(Setup(VENDOR_OUT, 0xF2, 40, 0x0203, 0))  # 40 sectors to slots 3 and 4
    bulk(vendor, EP_OUT, data + bytes(40 * 512 - len(data)))
    assert vendor.machine.bus.sram[3 * 0x4000 : 3 * 0x4000 + len(data)] == data


def test_vendor_power_request_takes_the_link_down_and_up(vendor):
    ltssm = Setup(VENDOR_IN, 0xE4, 0xB450, 0, 1)
    assert vendor.usb.control(ltssm) == b"\x78"
    vendor.usb.control(Setup(VENDOR_OUT, 0xF3, 0, 0, 0))
    assert vendor.usb.control(ltssm) != b"\x78"
    tlp(vendor, 0x04, 0, 0)
    assert vendor.usb.control(Setup(VENDOR_IN, 0xF0, 0, 0, 8))[7] == 1, "no link: an error, at once"
    vendor.usb.control(Setup(VENDOR_OUT, 0xF3, 1, 0, 0), timeout=10)
    assert vendor.usb.control(ltssm) == b"\x78"


def test_vendor_lives_on_after_nonsense(vendor):
    """E5 can write anything, the engine that shares the endpoints included; bad streams end unarmed."""
    usb = vendor.usb
    configure(vendor)
    for register, value in ((0x900B, 1), (0xC42C, 1)):
        usb.control(Setup(VENDOR_OUT, 0xE5, register, value, 0))
    bulk(vendor, EP_OUT, b"USBC" + bytes(27))
    assert usb.control(Setup(0x80, 8, 0, 0, 1)) == b"\1"
    configure(vendor)
    for packet in (b"abc", bytes(16)):  # no whole dwords; more than announced
        tlp(vendor, 0x60, 0, 2, mode=1)
        bulk(vendor, EP_OUT, packet)
        with pytest.raises(TimeoutError):
            usb.wait(usb.submit(EP_OUT, bytes(4)), timeout=0.01)
        usb.control(Setup(0x02, 1, 0, EP_OUT, 0))
    assert usb.control(Setup(0x80, 8, 0, 0, 1)) == b"\1"


# -- storage --------------------------------------------------------------------------------------------


def test_storage_standard_and_class_requests(storage):
    usb = storage.usb
    configure(storage, 0)
    with pytest.raises(Stall):
        usb.control(Setup(0xA1, 0xFE, 0, 0, 1))
    configure(storage)
    assert usb.control(Setup(0xA1, 0xFE, 0, 0, 1)) == b"\0", "GET_MAX_LUN"
    assert usb.control(Setup(0x80, 8, 0, 0, 1)) == b"\1"
    assert usb.control(Setup(0x81, 10, 0, 0, 1)) == b"\0"
    assert usb.control(Setup(0x80, 0, 0, 0, 2)) == b"\1\0"
    assert usb.control(Setup(0x82, 0, 0, EP_IN, 2)) == b"\0\0"
    for kind, request, value, index in (
        (0x00, 9, 2, 0),
        (0x02, 3, 0, EP_IN),
        (0x02, 1, 0, 0x83),
        (0x40, 0xE5, 0, 0),
    ):
        with pytest.raises(Stall):
            usb.control(Setup(kind, request, value, index, 0))


def test_storage_e4_and_e5(storage):
    configure(storage)
    for index, value in enumerate(b"quay"):
        assert command(storage, xdata(0xE5, value, XRAM_FREE + index)) == (b"", 0, 0)
    assert command(storage, xdata(0xE4, 4, XRAM_FREE), expect=4) == (b"quay", 0, 0)
    assert command(storage, xdata(0xE4, 4, XRAM_FREE), expect=64) == (b"quay", 0, 60)
    assert len(command(storage, xdata(0xE4, 255, XRAM_FREE), expect=255)[0]) == 255
    assert command(storage, xdata(0xE5, 0x5A, 0x7807, bank=1)) == (b"", 0, 0), "PHY plane"
    assert command(storage, xdata(0xE4, 1, 0x7807, bank=1), expect=1) == (b"\x5a", 0, 0)


def test_storage_scsi(storage):
    configure(storage)
    assert command(storage, bytes(6)) == (b"", 0, 0), "TEST UNIT READY"
    inquiry, status, residue = command(storage, bytes((0x12, 0, 0, 0, 255, 0)), expect=255)
    assert (inquiry[0], inquiry[8:32], len(inquiry)) == (3, b"towline test storage    ", 36)
    assert (status, residue) == (0, 219)
    assert command(storage, bytes((0x12, 0, 0, 0, 5, 0)), expect=5) == (inquiry[:5], 0, 0)
    assert command(storage, bytes((0x28, *bytes(9))), expect=512) == (b"", 1, 512), "READ(10)"
    sense, status, _ = command(storage, bytes((3, 0, 0, 0, 18, 0)), expect=18)
    assert (sense[0], sense[2], sense[7], sense[12], status) == (0x70, 5, 10, 0x20, 0)
    assert command(storage, bytes((3, 0, 0, 0, 18, 0)), expect=18)[0][2] == 0, "reported once"


def test_storage_answers_hosts_that_disagree_with_the_command(storage):
    """The cases of Bulk-Only Transport, 6.7, in which host and device expect different things."""
    configure(storage)
    assert command(storage, xdata(0xE4, 4, XRAM_FREE)) == (b"", 2, 0), "none is wanted"
    assert command(storage, xdata(0xE4, 4, XRAM_FREE), expect=2)[1:] == (2, 0), "less than there is"
    assert command(storage, bytes(6), expect=8) == (b"", 0, 8), "data wanted where there is none"
    assert command(storage, bytes(6), data=bytes(1500)) == (b"", 0, 1500), "data sent that is not wanted"
    assert command(storage, xdata(0xE4, 4, XRAM_FREE), data=bytes(2048)) == (b"", 2, 2048), "wrong way"
    assert command(storage, bytes(6)) == (b"", 0, 0)


def test_storage_reset_recovery(storage):
    usb = storage.usb
    configure(storage)
    for endpoint, what in ((EP_OUT, bytes(31)), (EP_OUT, bytes(31)), (EP_IN, 13)):  # no command wrapper
        transfer = usb.submit(endpoint, what)
        usb.wait(transfer, timeout=1)
        assert transfer.outcome is Outcome.STALL
    usb.control(Setup(0x21, 0xFF, 0, 0, 0))
    for endpoint in (EP_IN, EP_OUT):
        usb.control(Setup(0x02, 1, 0, endpoint, 0))
    assert command(storage, bytes(6)) == (b"", 0, 0)


def test_the_help_names_every_image():
    assert options.IMAGES == images.IMAGES

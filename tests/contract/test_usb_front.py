"""What a program sees of an emulated USB device, whichever front is between them.

The device has the requests of `emulator/images/vendor/selftest.h`. `usb_fixture.RIGS` lists the fronts and
devices on which all of this must hold.
"""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import usb.core
import usb.util

from emulator.usb.pyusb_backend import SPEEDS
from tests.contract.loopback_function import BULK, COUNT, ECHO, IDLE, LOOPBACK, REFUSED, SINK, SOURCE
from tests.contract.usb_fixture import RIGS, Rig

VENDOR_OUT, VENDOR_IN = 0x40, 0xC0
OUT, IN = 0x02, 0x81
TIMEOUT = 20_000  # virtual milliseconds


def rigs():
    """Each front at its best speed; the others are slow tests."""
    for name in RIGS:
        extra = not name.startswith("pyusb") and name.endswith("highspeed")
        yield pytest.param(name, marks=pytest.mark.slow if extra else ())


@pytest.fixture(scope="module", params=rigs())
def powered(request):
    with RIGS[request.param]() as rig:
        yield rig


@pytest.fixture
def rig(powered):
    powered.refresh()
    yield powered
    usb.util.dispose_resources(powered.device)


def pattern(size: int) -> bytes:
    return bytes((7 * i + (i >> 8)) & 0xFF for i in range(size))


def use_bulk(device, mode: int) -> None:
    device.ctrl_transfer(VENDOR_OUT, BULK, mode, 0)


def taken(device) -> int:
    return int.from_bytes(device.ctrl_transfer(VENDOR_IN, COUNT, 0, 0, 4), "little")


def exchange(device, data: bytes) -> bytes:
    """Write through the loopback, reading at the same time: the device holds one packet."""
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(device.write, OUT, data, TIMEOUT)
        back = bytes(device.read(IN, len(data), TIMEOUT))
        assert written.result() == len(data)
    return back


# -- enumeration ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_enumeration(rig: Rig):
    device = rig.device
    assert device.idVendor == 0xADD1
    assert device.bMaxPacketSize0 == (9 if rig.speed.is_super else 64)
    assert device.speed == SPEEDS[rig.speed]
    assert device.address >= 2
    assert device.manufacturer == "towline"
    configuration = device.get_active_configuration()
    interface = configuration[0, 0]
    endpoints = {endpoint.bEndpointAddress: endpoint for endpoint in interface}
    assert {OUT, IN} <= set(endpoints)
    assert endpoints[OUT].wMaxPacketSize == endpoints[IN].wMaxPacketSize == rig.packet
    assert (len(endpoints[IN].extra_descriptors) == 6) is rig.speed.is_super  # the companion


def test_configuring_again(rig: Rig):
    rig.device.set_configuration()
    usb.util.claim_interface(rig.device, 0)
    assert rig.device.get_active_configuration().bConfigurationValue == 1
    assert not rig.device.is_kernel_driver_active(0)
    usb.util.release_interface(rig.device, 0)


# -- control --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 63, 64, 65, 511, 512])
def test_control_both_ways(rig: Rig, size: int):
    data = pattern(size)
    assert rig.device.ctrl_transfer(VENDOR_OUT, ECHO, 0, 0, data) == size
    assert bytes(rig.device.ctrl_transfer(VENDOR_IN, ECHO, 0, 0, size)) == data


def test_a_short_answer_ends_the_data_stage(rig: Rig):
    rig.device.ctrl_transfer(VENDOR_OUT, ECHO, 0, 0, b"short")
    assert bytes(rig.device.ctrl_transfer(VENDOR_IN, ECHO, 0, 0, 512)) == b"short"


def test_an_answer_of_whole_packets_ends_with_an_empty_one(rig: Rig):
    rig.device.ctrl_transfer(VENDOR_OUT, ECHO, 0, 0, pattern(64))
    assert bytes(rig.device.ctrl_transfer(VENDOR_IN, ECHO, 0, 0, 128)) == pattern(64)


def test_control_without_data(rig: Rig):
    assert rig.device.ctrl_transfer(VENDOR_OUT, BULK, IDLE, 0) == 0


@pytest.mark.parametrize("direction", [VENDOR_IN, VENDOR_OUT])
def test_a_stalled_request_leaves_ep0_alive(rig: Rig, direction: int):
    for _ in range(2):
        with pytest.raises(usb.core.USBError) as caught:
            rig.device.ctrl_transfer(direction, REFUSED, 0, 0, 0 if direction == VENDOR_OUT else 4)
        assert caught.value.errno == errno.EPIPE
        assert caught.value.backend_error_code == -9
    assert rig.device.ctrl_transfer(VENDOR_OUT, ECHO, 0, 0, b"on") == 2
    assert bytes(rig.device.ctrl_transfer(VENDOR_IN, ECHO, 0, 0, 2)) == b"on"


# -- bulk -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [None, -1, 0, 1])
def test_one_packet_more_or_less(rig: Rig, extra: int | None):
    use_bulk(rig.device, LOOPBACK)
    data = pattern(1 if extra is None else rig.packet + extra)
    assert exchange(rig.device, data) == data


def test_64_kib_and_threads_on_both_endpoints(rig: Rig):
    use_bulk(rig.device, LOOPBACK)
    data = pattern(65536)
    assert exchange(rig.device, data) == data
    assert taken(rig.device) == len(data)


def test_source_and_sink(rig: Rig):
    use_bulk(rig.device, SOURCE)
    packet = bytes(i & 0xFF for i in range(rig.packet))
    assert bytes(rig.device.read(IN, 16 * rig.packet, TIMEOUT)) == 16 * packet
    use_bulk(rig.device, SINK)
    assert rig.device.write(OUT, bytes(3 * rig.packet + 5), TIMEOUT) == 3 * rig.packet + 5
    assert taken(rig.device) == 3 * rig.packet + 5


def test_a_short_packet_ends_a_read(rig: Rig):
    use_bulk(rig.device, LOOPBACK)
    rig.device.write(OUT, b"abc", TIMEOUT)
    assert bytes(rig.device.read(IN, 4 * rig.packet, TIMEOUT)) == b"abc"


def test_an_empty_packet_travels(rig: Rig):
    use_bulk(rig.device, LOOPBACK)
    assert rig.device.write(OUT, b"", TIMEOUT) == 0
    assert bytes(rig.device.read(IN, rig.packet, TIMEOUT)) == b""


# -- failures -------------------------------------------------------------------------------------------


def test_a_read_of_nothing_times_out_in_the_devices_time(rig: Rig):
    use_bulk(rig.device, LOOPBACK)
    before = rig.now()
    with pytest.raises(usb.core.USBTimeoutError) as caught:
        rig.device.read(IN, 64, 20)
    assert caught.value.errno == errno.ETIMEDOUT
    assert caught.value.backend_error_code == -7
    assert 0.020 <= rig.now() - before < 0.020 + rig.late
    rig.device.write(OUT, b"late", TIMEOUT)
    assert bytes(rig.device.read(IN, 64, TIMEOUT)) == b"late"


def test_a_cancelled_write_reports_how_much_was_sent(rig: Rig):
    use_bulk(rig.device, LOOPBACK)
    if rig.keeps_part:
        assert rig.device.write(OUT, pattern(4 * rig.packet), 20) % rig.packet == 0
    else:
        with pytest.raises(usb.core.USBTimeoutError):
            rig.device.write(OUT, pattern(4 * rig.packet), 20)
    use_bulk(rig.device, SINK)
    assert rig.device.write(OUT, pattern(100), TIMEOUT) == 100
    assert taken(rig.device) == 100


def test_halt_and_its_clearing(rig: Rig):
    use_bulk(rig.device, LOOPBACK)
    rig.device.ctrl_transfer(0x02, 3, 0, IN)  # SET_FEATURE(ENDPOINT_HALT)
    for _ in range(2):
        with pytest.raises(usb.core.USBError) as caught:
            rig.device.read(IN, 64, 20)
        assert caught.value.errno == (errno.EPIPE if rig.stalls_bulk else errno.ETIMEDOUT)
    rig.device.clear_halt(IN)
    use_bulk(rig.device, LOOPBACK)
    assert exchange(rig.device, b"again") == b"again"


def test_reset_keeps_the_device_usable(rig: Rig):
    use_bulk(rig.device, LOOPBACK)
    rig.device.reset()
    assert rig.device.get_active_configuration().bConfigurationValue == 1
    use_bulk(rig.device, LOOPBACK)
    assert exchange(rig.device, b"after") == b"after"


def test_control_goes_on_beside_a_pending_read(rig: Rig):
    use_bulk(rig.device, LOOPBACK)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(rig.device.read, IN, 64, 600_000)
        for size in range(1, 20):
            rig.device.ctrl_transfer(VENDOR_OUT, ECHO, 0, 0, pattern(size))
            assert bytes(rig.device.ctrl_transfer(VENDOR_IN, ECHO, 0, 0, size)) == pattern(size)
        rig.device.write(OUT, b"end", TIMEOUT)
        assert bytes(read.result()) == b"end"


def test_many_threads(rig: Rig):
    use_bulk(rig.device, SINK)
    usb.util.claim_interface(rig.device, 0)
    start = threading.Barrier(4)

    def write(_: int) -> int:
        start.wait()
        return sum(rig.device.write(OUT, pattern(700), TIMEOUT) for _ in range(8))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(write, range(4))) == [5600] * 4
    assert taken(rig.device) == 4 * 5600


def test_unplugging_ends_a_pending_transfer(rig: Rig):
    use_bulk(rig.device, LOOPBACK)
    usb.util.claim_interface(rig.device, 0)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(rig.device.read, IN, 64, 600_000)
        rig.device.ctrl_transfer(VENDOR_OUT, BULK, LOOPBACK, 0)
        rig.unplug()
        with pytest.raises(usb.core.USBError) as caught:
            read.result()
        assert caught.value.errno == errno.ENODEV
    with pytest.raises(usb.core.USBError) as caught:
        rig.device.ctrl_transfer(VENDOR_IN, ECHO, 0, 0, 4)
    assert caught.value.errno == errno.ENODEV
    assert caught.value.backend_error_code == -4
    rig.plug()
    again = rig.find()
    assert again is not None
    assert again.address != rig.device.address
    use_bulk(again, LOOPBACK)
    assert exchange(again, b"back") == b"back"

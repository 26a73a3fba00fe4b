"""Where the pyusb backend must do as libusb does, beyond what every front must do."""

from __future__ import annotations

import errno
from array import array

import pytest
import usb.core

from emulator.usb.host import Host
from emulator.usb.pyusb_backend import Backend
from emulator.usb.wire import Speed
from tests.contract.loopback_function import BABBLE, BULK, LOOPBACK, LoopbackFunction
from tests.contract.usb_fixture import QuietWorld

OUT, IN = 0x02, 0x81


class Rig:
    """A backend with two ports; the device in the second is plugged in by the test."""

    def __init__(self) -> None:
        self.functions = []
        self.hosts = []
        for _ in range(2):
            world = QuietWorld()
            self.functions.append(LoopbackFunction(world.clock))
            self.hosts.append(Host(self.functions[-1], world, best=Speed.SUPER))
        self.hosts[0].plug()
        self.backend = Backend(self.hosts)

    def open(self):
        (device,) = self.backend.enumerate_devices()
        return device, self.backend.open_device(device)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def code_of(call, *args):
    """(errno, libusb's code) of the USBError that a call raises."""
    with pytest.raises(usb.core.USBError) as caught:
        call(*args)
    return caught.value.errno, caught.value.backend_error_code


def test_descriptors_are_cached_and_indices_end(rig):
    device, _ = rig.open()
    seen = len(rig.functions[0].seen)
    assert list(rig.backend.enumerate_devices()) == [device]
    assert rig.backend.get_device_descriptor(device).speed == 4
    assert rig.backend.get_configuration_descriptor(device, 0).bConfigurationValue == 1
    assert rig.backend.get_endpoint_descriptor(device, 1, 0, 0, 0).bEndpointAddress == OUT
    for get, indices in (
        (rig.backend.get_configuration_descriptor, (1,)),
        (rig.backend.get_interface_descriptor, (1, 0, 0)),
        (rig.backend.get_interface_descriptor, (0, 1, 0)),
        (rig.backend.get_endpoint_descriptor, (2, 0, 0, 0)),
    ):
        with pytest.raises(IndexError):
            get(device, *indices)
    assert len(rig.functions[0].seen) == seen


def test_ports_fill_one_after_the_other(rig):
    assert len(list(rig.backend.enumerate_devices())) == 1
    rig.hosts[1].plug()
    found = [rig.backend.get_device_descriptor(device) for device in rig.backend.enumerate_devices()]
    assert [(each.port_number, each.address) for each in found] == [(1, 2), (2, 3)]


def test_claims_are_exclusive(rig):
    device, first = rig.open()
    second = rig.backend.open_device(device)
    rig.backend.claim_interface(first, 0)
    rig.backend.claim_interface(first, 0)
    assert code_of(rig.backend.claim_interface, second, 0) == (errno.EBUSY, -6)
    assert code_of(rig.backend.claim_interface, first, 1) == (errno.ENOENT, -5)
    assert code_of(rig.backend.release_interface, second, 0) == (errno.ENOENT, -5)
    rig.backend.close_device(first)
    rig.backend.claim_interface(second, 0)


def test_no_kernel_driver(rig):
    _, handle = rig.open()
    assert rig.backend.is_kernel_driver_active(handle, 0) is False
    assert code_of(rig.backend.detach_kernel_driver, handle, 0) == (errno.ENOENT, -5)
    assert code_of(rig.backend.attach_kernel_driver, handle, 0) == (errno.ENOENT, -5)


def test_too_much_data(rig):
    _, handle = rig.open()
    control = rig.backend.ctrl_transfer
    assert code_of(control, handle, 0xC0, BABBLE, 0, 0, array("B", bytes(8)), 0) == (errno.EOVERFLOW, -8)
    assert code_of(control, handle, 0xC0, 0xA0, 0, 0, array("B", bytes(4097)), 0) == (errno.EINVAL, -2)
    control(handle, 0x40, BULK, LOOPBACK, 0, array("B"), 0)
    rig.backend.bulk_write(handle, OUT, 0, array("B", bytes(100)), 0)
    assert code_of(rig.backend.bulk_read, handle, IN, 0, array("B", bytes(50)), 0) == (errno.EOVERFLOW, -8)


def test_a_time_out_with_some_data_returns_it(rig):
    _, handle = rig.open()
    rig.backend.ctrl_transfer(handle, 0x40, BULK, LOOPBACK, 0, array("B"), 0)
    rig.backend.bulk_write(handle, OUT, 0, array("B", bytes(range(256)) * 4), 0)
    buffer = array("B", bytes(2048))
    assert rig.backend.bulk_read(handle, IN, 0, buffer, 10) == 1024
    assert bytes(buffer[:1024]) == bytes(range(256)) * 4
    assert code_of(rig.backend.bulk_read, handle, IN, 0, buffer, 10) == (errno.ETIMEDOUT, -7)


def test_a_reset_that_brings_up_something_else(rig):
    device, handle = rig.open()
    rig.backend.reset_device(handle)
    rig.functions[0].kind = (8, 6, 0x50)
    assert code_of(rig.backend.reset_device, handle) == (errno.ENOENT, -5)
    assert code_of(rig.backend.get_configuration, handle) == (errno.ENODEV, -4)
    (other,) = rig.backend.enumerate_devices()
    assert rig.backend.get_interface_descriptor(other, 0, 0, 0).bInterfaceClass == 8
    assert other is not device


def test_configuration_is_restored_by_a_reset(rig):
    _, handle = rig.open()
    rig.backend.set_configuration(handle, -1)
    assert rig.backend.get_configuration(handle) == 0
    rig.backend.reset_device(handle)
    assert rig.backend.get_configuration(handle) == 0
    rig.backend.set_configuration(handle, 1)
    rig.backend.set_interface_altsetting(handle, 0, 0)
    rig.backend.reset_device(handle)
    assert rig.backend.get_configuration(handle) == 1


def test_a_device_that_left_and_came_back_is_another(rig):
    device, handle = rig.open()
    rig.hosts[0].unplug()
    rig.hosts[0].plug()
    (again,) = rig.backend.enumerate_devices()
    assert again is not device
    assert again.address != device.address
    for call, args in (
        (rig.backend.open_device, (device,)),
        (rig.backend.get_configuration, (handle,)),
        (rig.backend.reset_device, (handle,)),
        (rig.backend.clear_halt, (handle, IN)),
    ):
        assert code_of(call, *args) == (errno.ENODEV, -4)

"""What bypasses pyusb and goes to libusb: transfers in flight, and devices given as file descriptors.

The libusb is `fake_libusb.c`, compiled here: so structures, constants and callbacks are tested.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import usb.backend.libusb1 as pyusb_libusb

from sdk.errors import DeviceFailed, DeviceMissing, EnvironmentMissing, UsageError
from usbgpu import transport
from usbgpu.transport import Abandoned, Disconnected, Speed, Stalled, TimedOut, libusb

SOURCE = __file__.replace("test_transport_libusb.py", "fake_libusb.c")
MIB = 1 << 20


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    compiler = shutil.which("clang-19") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("libusb") / "fake.so"
    subprocess.run([compiler, "-O1", "-pthread", "-shared", "-fPIC", "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def fake(built, tmp_path, monkeypatch):
    """A library just loaded, which pyusb has not loaded yet."""
    copy = tmp_path / "libusb-1.0.so"  # of another name, so that its variables are new
    shutil.copy(built, copy)
    library = ctypes.CDLL(str(copy))
    monkeypatch.setenv("TOWLINE_LOCKS", str(tmp_path))
    monkeypatch.setattr(pyusb_libusb, "_lib", None)
    monkeypatch.setattr(pyusb_libusb, "_load_library", lambda find_library=None: ctypes.CDLL(str(copy)))
    yield library
    gc.collect()  # pyusb's finalisers need the library


@pytest.fixture
def descriptor():
    """Of a file in place of the device's."""
    number = os.open("/dev/null", os.O_RDWR)
    yield number
    os.close(number)


@pytest.fixture
def device(fake, descriptor):
    with transport.open(f"usb:fd={descriptor}") as device:
        yield device
    del device


def count(library, name: str) -> int:
    return ctypes.c_int.in_dll(library, name).value


def put(library, name: str, value: int) -> None:
    ctypes.c_int.in_dll(library, name).value = value


# -- file descriptors -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_device_given_as_a_file_descriptor(fake, descriptor):
    with transport.open(f"usb:fd={descriptor}") as device:
        assert not count(fake, "discovery"), "this libusb does not start a discovery"
        assert (device.speed, device.place, device.packet_size) == (Speed.SUPER, "usb-3-9", 1024)
        assert not device.is_emulated
        assert device.emulation is None
        assert device.control_in(0xC0, 0xE4, length=3) == b"\x5a" * 3
        device.bulk_out(b"there and back")
        assert device.bulk_in(1024) == b"there and back"
        device.reset()
        device.bulk_out(b"again")
        assert device.bulk_in(1024) == b"again"
        assert (count(fake, "opened"), count(fake, "closed"), count(fake, "resets")) == (1, 0, 1)
        with pytest.raises(Disconnected):
            device.reopen()
    assert (count(fake, "closed"), count(fake, "claimed"), count(fake, "living")) == (1, 0, 0)
    os.fstat(descriptor)  # still its owner's, and open
    with pytest.raises(UsageError, match="closed"):
        device.bulk_in(1024)
    transport.open(f"usb:fd={descriptor}").close()
    assert count(fake, "closed") == 2


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "0x7", "7 ", "99999999999", "٣"])
def test_invalid_file_descriptor_numbers(fake, text):
    with pytest.raises(UsageError, match="file descriptor number"):
        transport.open(f"usb:fd={text}")


@pytest.mark.slow
def test_file_descriptors_that_are_not_a_device(fake, tmp_path):
    number = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    with pytest.raises(DeviceMissing, match="not a USB device: it is not of a device"):
        transport.open(f"usb:fd={number}")
    os.close(number)
    with pytest.raises(DeviceMissing, match=f"usb:fd={number}: .* not open"):
        transport.open(f"usb:fd={number}")
    other = os.open("/dev/zero", os.O_RDWR)
    with pytest.raises(DeviceMissing, match="not a USB device: No such device"):
        transport.open(f"usb:fd={other}")
    os.close(other)
    assert (count(fake, "opened"), count(fake, "closed")) == (0, 0)


@pytest.mark.slow
def test_without_a_libusb(fake, descriptor, monkeypatch):
    def refuse(find_library=None):
        raise OSError("not there")

    monkeypatch.setattr(pyusb_libusb, "_load_library", refuse)
    with pytest.raises(EnvironmentMissing, match="libusb"):
        transport.open(f"usb:fd={descriptor}")


@pytest.mark.slow
def test_the_real_libusb_refuses_what_is_not_a_device(descriptor):
    if ctypes.util.find_library("usb-1.0") is None:
        pytest.skip("no libusb")
    script = f"from usbgpu import transport; transport.open('usb:fd={descriptor}')"
    done = subprocess.run(
        [sys.executable, "-c", script], pass_fds=(descriptor,), capture_output=True, text=True, check=False
    )
    assert f"DeviceMissing: usb:fd={descriptor}: this file descriptor is not a USB device" in done.stderr


def test_the_structure_is_pyusbs():
    mine, theirs = libusb.Transfer, pyusb_libusb._libusb_transfer
    for name, _ in mine._fields_:
        assert getattr(mine, name).offset == getattr(theirs, name).offset, name
        assert getattr(mine, name).size == getattr(theirs, name).size, name


# -- several in flight ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_order_with_many_in_flight(fake, device):
    parts = [np.full(256 << 10, number, np.uint8) for number in range(40)]
    back = [device.submit(device.in_call(bytearray(256 << 10))) for _ in range(8)]
    sent = [device.submit(device.out_call(part)) for part in parts[:8]]
    assert count(fake, "submitted") >= 8 + 4, "they are with the system before any wait"
    for pending in sent:
        assert pending.result() == b""
    for number, pending in enumerate(back):
        assert pending.result() == b""
        assert pending.received == 256 << 10
        assert set(pending.call.into) == {number}
    for pending in [device.submit(device.out_call(part)) for part in parts[8:]]:
        pending.result()
    order = (ctypes.c_char * 40).in_dll(fake, "order").raw
    assert order == bytes(range(40))
    assert count(fake, "living") == 0


@pytest.mark.slow
def test_a_failure_cancels_what_is_behind_it(fake, device):
    put(fake, "held", 2)
    sent = [device.submit(device.out_call(bytes([number]) * 10)) for number in range(3)]
    put(fake, "stalled", 2)
    put(fake, "held", 0)
    with pytest.raises(Stalled):
        sent[0].result()
    for pending in sent[1:]:
        with pytest.raises(Abandoned, match="EP 0x02, 10 bytes: the device"):
            pending.result()
    device.clear_halt(2)
    device.bulk_out(b"on")
    assert device.bulk_in(1024) == b"on", "nothing of the others had arrived"


@pytest.mark.slow
def test_a_time_out_cancels_the_last_one_first(fake, device):
    put(fake, "held", 2)
    sent = [device.submit(device.out_call(bytes(10), timeout=0.05)) for _ in range(3)]
    began = time.monotonic()
    with pytest.raises(Abandoned) as behind:
        sent[2].result()
    assert time.monotonic() - began < 1
    assert isinstance(behind.value.cause, TimedOut)
    with pytest.raises(TimedOut, match=r"within 0\.05 s"):
        sent[0].result()
    assert count(fake, "living") == 0
    put(fake, "held", 0)
    device.bulk_out(b"on")
    assert device.bulk_in(1024) == b"on"


@pytest.mark.slow
def test_a_device_that_leaves_the_bus(fake, device):
    put(fake, "held", 2)
    sent = device.submit(device.out_call(b"x"))
    put(fake, "gone", 1)
    put(fake, "held", 0)
    with pytest.raises(Disconnected):
        sent.result()
    with pytest.raises(Disconnected):
        device.bulk_out(b"x")


@pytest.mark.slow
def test_no_memory(fake, device):
    put(fake, "fails_submit", 1)
    with pytest.raises(DeviceFailed) as failed:
        device.bulk_out(b"x")
    assert "usbfs_memory_mb" in failed.value.hint
    assert count(fake, "living") == 0


@pytest.mark.slow
def test_closing_cancels_what_is_in_flight(fake, descriptor):
    with transport.open(f"usb:fd={descriptor}") as device:
        pending = device.submit(device.in_call(bytearray(8)))
    with pytest.raises(Abandoned, match="closed"):
        pending.result()
    assert (count(fake, "living"), count(fake, "closed")) == (0, 1)


@pytest.mark.slow
def test_ctrl_c_while_waiting(fake, device):
    main = threading.main_thread().ident
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))

    def pressed():
        timer.start()  # here: on a busy machine the time may pass at once
        device.bulk_in(1024)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pressed()
    assert time.monotonic() - began < 1
    assert count(fake, "living") == 0, "perform leaves nothing behind"
    device.bulk_out(b"on")
    assert device.bulk_in(1024) == b"on"


@pytest.mark.slow
def test_two_threads_that_wait(fake, device):
    found = []
    reader = threading.Thread(target=lambda: found.append(device.bulk_in(1024)))
    reader.start()
    time.sleep(0.02)
    device.bulk_out(b"for the other")
    reader.join(5)
    assert found == [b"for the other"]


@pytest.mark.slow
def test_buffers_are_not_copied(fake, device):
    data = np.arange(4 * MIB, dtype=np.uint32).view(np.uint8)[: 4 * MIB]
    room = np.zeros(4 * MIB, np.uint8)
    device.bulk_out(data)
    assert device.bulk_in_into(room) == 4 * MIB
    assert np.array_equal(room, data)
    with pytest.raises(UsageError, match="contiguous"):
        device.bulk_out(data[::2])
    with pytest.raises(UsageError, match="written"):
        device.bulk_in_into(b"read only")

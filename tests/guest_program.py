"""What a libusb program does with the device of the tests' requests; run in a guest, against a real kernel.

python -m tests.guest_program [halt]    "halt": the device can halt an endpoint
"""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import usb.core
import usb.util

from tests.contract.loopback_function import BULK, COUNT, ECHO, IN, LOOPBACK, OUT, REFUSED, SINK, SOURCE

VENDOR_OUT, VENDOR_IN = 0x40, 0xC0
PATIENCE = 60.0
TIMEOUT = 5000


@contextmanager
def refused(number: int) -> Iterator[None]:
    found = None
    try:
        yield
    except usb.core.USBError as problem:
        found = problem.errno
    assert found == number


def found() -> Any:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        device = usb.core.find(idVendor=0xADD1)
        if device is not None:
            return device
        time.sleep(0.05)
    raise AssertionError("no device")


def pattern(size: int) -> bytes:
    return bytes((7 * i + (i >> 8)) & 0xFF for i in range(size))


class Program:
    """The steps, in their order."""

    def __init__(self) -> None:
        self.device = found()

    def use(self, mode: int) -> None:
        self.device.ctrl_transfer(VENDOR_OUT, BULK, mode, 0, timeout=TIMEOUT)

    def enumeration(self) -> None:
        self.device.set_configuration()
        assert self.device.manufacturer == "towline"
        assert {IN, OUT} <= {endpoint.bEndpointAddress for endpoint in self.device[0][0, 0]}
        usb.util.claim_interface(self.device, 0)
        print(f"speed {self.device.speed}")

    def control(self) -> None:
        for size in (1, 64, 512):
            assert self.device.ctrl_transfer(VENDOR_OUT, ECHO, 0, 0, pattern(size), TIMEOUT) == size
            assert bytes(self.device.ctrl_transfer(VENDOR_IN, ECHO, 0, 0, size, TIMEOUT)) == pattern(size)
        with refused(errno.EPIPE):
            self.device.ctrl_transfer(VENDOR_IN, REFUSED, 0, 0, 4, TIMEOUT)

    def bulk(self) -> None:
        self.use(LOOPBACK)
        for size in (1, 511, 512):
            assert self.device.write(OUT, pattern(size), TIMEOUT) == size
            assert bytes(self.device.read(IN, 4096, TIMEOUT)) == pattern(size)
        self.use(SOURCE)
        assert len(self.device.read(IN, 64 * 1024, TIMEOUT)) == 64 * 1024
        self.use(SINK)
        with ThreadPoolExecutor(4) as pool:
            sent = pool.map(lambda _: self.device.write(OUT, pattern(16 * 1024), TIMEOUT), range(4))
            assert list(sent) == [16 * 1024] * 4
        answer = self.device.ctrl_transfer(VENDOR_IN, COUNT, 0, 0, 4, TIMEOUT)
        assert int.from_bytes(answer, "little") == 64 * 1024

    def cancel(self) -> None:
        self.use(LOOPBACK)
        before = time.monotonic()
        with refused(errno.ETIMEDOUT):
            self.device.read(IN, 512, 200)
        assert time.monotonic() - before >= 0.2
        self.device.write(OUT, b"late", TIMEOUT)
        assert bytes(self.device.read(IN, 512, TIMEOUT)) == b"late"

    def halt(self) -> None:
        self.device.ctrl_transfer(0x02, 3, 0, IN, timeout=TIMEOUT)  # SET_FEATURE(ENDPOINT_HALT)
        for _ in range(2):
            with refused(errno.EPIPE):
                self.device.read(IN, 64, TIMEOUT)
        self.device.clear_halt(IN)
        self.use(LOOPBACK)
        self.device.write(OUT, b"again", TIMEOUT)
        assert bytes(self.device.read(IN, 64, TIMEOUT)) == b"again"

    def reset(self) -> None:
        self.device.reset()
        usb.util.claim_interface(self.device, 0)
        self.use(LOOPBACK)
        self.device.write(OUT, b"after", TIMEOUT)
        assert bytes(self.device.read(IN, 64, TIMEOUT)) == b"after"


def main() -> None:
    program = Program()
    if "slow" in sys.argv:
        program.device.ctrl_transfer(VENDOR_IN, COUNT, 0, 0, 4, 1000)
        print("slow: good")
        return
    steps = [program.enumeration, program.control, program.bulk, program.cancel, program.reset, program.bulk]
    if "halt" in sys.argv:
        steps.insert(4, program.halt)
    for step in steps:
        step()
        print(f"{step.__name__}: good", flush=True)


if __name__ == "__main__":
    main()

"""What the contract of the USB fronts runs on: a pyusb device by front, and by the device under it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import usb.core

from emulator.board import Board
from emulator.core.clock import Scheduler
from emulator.options import Options
from emulator.usb.host import Host
from emulator.usb.pyusb_backend import Backend
from emulator.usb.server import ProtocolSession, Server
from emulator.usb.usbip import UsbIp
from emulator.usb.usbredir import UsbRedir
from emulator.usb.wire import Speed
from tests.contract.loopback_function import BULK, IDLE, LoopbackFunction
from tests.usb_remote import Remote, UsbIpClient, UsbRedirClient


class QuietWorld:
    """A world in which nothing runs but the scheduler."""

    def __init__(self) -> None:
        self.clock = Scheduler()
        self.lock = threading.RLock()

    def step(self, until: int) -> None:
        due = self.clock.next
        self.clock.now = max(self.clock.now, until if due is None else min(until, due))
        self.clock.run_due()


@dataclass
class Rig:
    """A device behind a front.

    Attributes:
        find: looks for the device; None if it is not there.
        device: as a program sees it, by `refresh`.
        unplug, plug: the cable.
        now: seconds of the device's time.
        speed: the best that this port does.
        stalls_bulk: the device can answer STALL on a bulk endpoint, so that SET_FEATURE(HALT) shows.
        keeps_part: a transfer that was cancelled half-way says how far it came.
        late: seconds of the device's time by which a time-out of the host's may come late.
    """

    find: Callable[[], usb.core.Device | None]
    unplug: Callable[[], None]
    plug: Callable[[], None]
    now: Callable[[], float]
    speed: Speed
    stalls_bulk: bool
    keeps_part: bool = True
    late: float = 0.005
    device: usb.core.Device = field(init=False)

    def refresh(self) -> None:
        """Find the device, as a program that has just started does, and have it forget the last one."""
        device = self.find()
        assert device is not None
        device.ctrl_transfer(0x40, BULK, IDLE, 0)
        self.device = device

    @property
    def packet(self) -> int:
        """The largest bulk packet."""
        return 1024 if self.speed.is_super else 512


@contextmanager
def pyusb_front(host: Host, *, stalls_bulk: bool) -> Iterator[Rig]:
    """The front in this process."""
    backend = Backend([host])

    def find() -> usb.core.Device | None:
        return usb.core.find(backend=backend, idVendor=0xADD1)

    rig = Rig(find, host.unplug, host.plug, host.clock.now, host.best, stalls_bulk)
    rig.refresh()
    yield rig


@contextmanager
def loopback(best: Speed) -> Iterator[Rig]:
    """The plainest device, in process."""
    world = QuietWorld()
    host = Host(LoopbackFunction(world.clock), world, best=best)
    host.plug()
    with pyusb_front(host, stalls_bulk=True) as rig:
        yield rig


@contextmanager
def board(best: Speed) -> Iterator[Rig]:
    """The emulated chip with the vendor test image; no register is known that stalls its bulk endpoints."""
    with pyusb_front(Board.of("vendor", Options(port=best)).usb, stalls_bulk=False) as rig:
        yield rig


@contextmanager
def served(
    host: Host, front: type[ProtocolSession], client: Callable[[int, Any], Remote], *, keeps_part: bool
) -> Iterator[Rig]:
    """A front on a TCP port, served in a thread, and a program on the other end."""
    server = Server(host, 0, front, lambda line: None)
    thread = threading.Thread(target=server.serve)
    thread.start()
    remote = client(server.port, host.clock)
    backend = Backend([remote])  # type: ignore[list-item]  # what it needs of a port

    def find() -> usb.core.Device | None:
        return usb.core.find(backend=backend, idVendor=0xADD1)

    try:
        rig = Rig(find, host.unplug, host.plug, host.clock.now, host.best, True, keeps_part, late=10.0)
        rig.refresh()
        yield rig
    finally:
        remote.close()
        server.stop()
        thread.join()
        server.close()


@contextmanager
def served_loopback(
    best: Speed, front: type[ProtocolSession], client: Callable[[int, Any], Remote], *, keeps_part: bool
) -> Iterator[Rig]:
    """The plainest device behind a front on a TCP port."""
    world = QuietWorld()
    host = Host(LoopbackFunction(world.clock), world, best=best)
    host.plug()
    with served(host, front, client, keeps_part=keeps_part) as rig:
        yield rig


def usbredir(best: Speed) -> AbstractContextManager[Rig]:
    return served_loopback(best, UsbRedir, UsbRedirClient, keeps_part=True)


def usbip(best: Speed) -> AbstractContextManager[Rig]:
    return served_loopback(best, UsbIp, UsbIpClient, keeps_part=False)


RIGS = {
    "pyusb-loopback-superspeed": lambda: loopback(Speed.SUPER_PLUS),
    "pyusb-loopback-highspeed": lambda: loopback(Speed.HIGH),
    "pyusb-chip-superspeed": lambda: board(Speed.SUPER_PLUS),
    "pyusb-chip-highspeed": lambda: board(Speed.HIGH),
    "usbredir-loopback-superspeed": lambda: usbredir(Speed.SUPER),
    "usbredir-loopback-highspeed": lambda: usbredir(Speed.HIGH),
    "usbip-loopback-superspeed": lambda: usbip(Speed.SUPER),
    "usbip-loopback-highspeed": lambda: usbip(Speed.HIGH),
}
"""Front and device, by name."""

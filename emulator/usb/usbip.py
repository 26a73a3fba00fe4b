"""USB/IP: the emulated device as one that Linux's `usbip attach`, or any client of that protocol, imports.

This is the server's side of version 1.1.1 (Documentation/usb/usbip_protocol.rst of Linux), without
isochronous transfers. The client's controller (vhci_hcd) keeps SET_ADDRESS and bus resets to itself, so
neither comes here: the device is reset when it is imported. The protocol has no message for a
device that leaves the bus, so the connection is closed, and none for one that comes back: the client attaches
again.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import partial

from emulator.usb import bulk, standard
from emulator.usb.host import FIRST_ADDRESS
from emulator.usb.server import MAX_DATA, Packets, Peer, ProtocolSession, Refused
from emulator.usb.standard import Descriptors
from emulator.usb.wire import Outcome, Setup, Transfer

VERSION = 0x0111
REQ_DEVLIST, REP_DEVLIST, REQ_IMPORT, REP_IMPORT = 0x8005, 0x0005, 0x8003, 0x0003
CMD_SUBMIT, CMD_UNLINK, RET_SUBMIT, RET_UNLINK = 1, 2, 3, 4

BUS = 1
BUSID = "1-1"
BUSID_LENGTH = 32
PATH = "/sys/devices/platform/towline/usb1/1-1"
"""Of the device, as the client shows it."""
SPEED_HIGH, SPEED_SUPER = 3, 5
"""Of enum usb_device_speed; vhci_hcd takes no faster one."""
PATIENCE = 2.0
"""Virtual seconds that a client waits for a device that is still booting."""
FAILED = 1
"""Status of an import that is refused."""

SHORT_NOT_OK, ZERO_PACKET = 0x0001, 0x0040
"""Of transfer_flags: a short IN is an error; an OUT of whole packets ends with an empty one."""
NO_PACKETS = 0xFFFFFFFF
"""The number of isochronous packets of any other transfer; Linux says 0, and expects that back."""
ISO_DESCRIPTOR = 16

EPIPE, EINVAL, EPROTO, EOVERFLOW, ECONNRESET, ESHUTDOWN, EREMOTEIO = 32, 22, 71, 75, 104, 108, 121
"""Linux's numbers, on any machine: the client's kernel reads them."""
STATUS = {
    Outcome.DONE: 0,
    Outcome.STALL: -EPIPE,
    Outcome.CANCELLED: -ECONNRESET,
    Outcome.GONE: -ESHUTDOWN,
    Outcome.OVERFLOW: -EOVERFLOW,
    Outcome.ERROR: -EPROTO,
}
"""The status of a URB by the outcome of its transfer."""

OPERATION = struct.Struct(">HHI")
"""Version, code, status."""
DEVICE = struct.Struct(">256s32sIIIHHH6B")
COMMAND = struct.Struct(">5I5I8s")
"""command, seqnum, devid, direction, ep; transfer_flags (unlink_seqnum), length, start_frame,
number_of_packets, interval; setup."""
REPLY = struct.Struct(">5Ii4I8x")
"""command, seqnum, 3 unused; status, actual_length, start_frame, number_of_packets, error_count."""


@dataclass(frozen=True, slots=True)
class Urb:
    """A transfer as the client submits it; what USBIP_CMD_SUBMIT says of it."""

    seqnum: int
    number: int
    is_in: bool
    setup: Setup
    flags: int
    length: int
    packets: int
    data: bytes


class UsbIp(ProtocolSession):
    """A connection to a client."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        self._unlinked: set[int] = set()  # URBs that do not return
        self._is_super = False

    # -- server.ProtocolSession -------------------------------------------------------------------------

    def packets(self) -> Packets:
        """See `ProtocolSession.packets`."""
        given, code, _ = OPERATION.unpack((yield OPERATION.size))
        if given != VERSION or code not in (REQ_DEVLIST, REQ_IMPORT):
            raise Refused("not a request of USB/IP 1.1.1")
        with self.peer.server.working():
            self.host.wait_attached(PATIENCE)
        if code == REQ_DEVLIST:
            self._list()
            return
        busid = yield BUSID_LENGTH
        if not self._import(busid.partition(b"\0")[0].decode("latin-1")):
            return
        while True:
            command, seqnum, _, direction, endpoint, *fields, setup = COMMAND.unpack((yield COMMAND.size))
            if command == CMD_UNLINK:
                self._unlink(seqnum, fields[0])
            elif command == CMD_SUBMIT:
                flags, length, _, packets, _ = fields
                data = (yield length) if length and not direction else b""
                isochronous = packets not in (0, NO_PACKETS)
                if isochronous:
                    yield packets * ISO_DESCRIPTOR
                    packets = 0  # of the answer
                urb = Urb(
                    seqnum, endpoint, bool(direction), Setup.unpack(setup), flags, length, packets, data
                )
                if isochronous or length > MAX_DATA:
                    self._reply(urb, -EINVAL)
                else:
                    self._submit(urb)
            else:
                raise Refused(f"unknown command {command}")

    def link_changed(self) -> None:
        """See `ProtocolSession.link_changed`."""
        if self.attachment and not self.has_device:
            self.attachment = 0
            self.cancel_all()
            self.peer.server.finish_transfers()
            self.peer.open = False

    # -- operations -------------------------------------------------------------------------------------

    def _list(self) -> None:
        found = self.peer.server.descriptors()
        reply = OPERATION.pack(VERSION, REP_DEVLIST, 0) + struct.pack(">I", found is not None)
        if found is not None:
            reply += self._record(found)
            for settings in standard.parse_configuration(found.configurations[0]).interfaces:
                reply += settings[0].raw[5:8] + b"\0"
        self.peer.send(reply)

    def _import(self, busid: str) -> bool:
        """Give the device to the client; returns whether that is possible."""
        server = self.peer.server
        found = None
        if busid != BUSID:
            server.say(f"{self.peer.name} asks for {busid!r}: the device is {BUSID}")
        elif self.taken:
            server.say(f"{self.peer.name} asks for the device, which another client has")
        else:
            found = server.enumerate()
        if found is None:
            self.peer.send(OPERATION.pack(VERSION, REP_IMPORT, FAILED))
            return False
        self.attachment = self.host.attachments
        self._is_super = self.host.speed is not None and self.host.speed.is_super
        self.peer.send(OPERATION.pack(VERSION, REP_IMPORT, 0) + self._record(found))
        return True

    def _record(self, found: Descriptors) -> bytes:
        """The device in the form that both replies have."""
        is_super = self.host.speed is not None and self.host.speed.is_super
        configuration = standard.parse_configuration(found.configurations[0])
        return DEVICE.pack(
            PATH.encode(),
            BUSID.encode(),
            BUS,
            FIRST_ADDRESS,
            SPEED_SUPER if is_super else SPEED_HIGH,
            *struct.unpack_from("<HHH", found.device, 8),
            *found.device[4:7],
            configuration.value,
            len(found.configurations),
            len(configuration.interfaces),
        )

    # -- URBs -------------------------------------------------------------------------------------------

    def _submit(self, urb: Urb) -> None:
        if urb.number > 15:
            raise Refused(f"there is no endpoint {urb.number}")
        seqnum, setup = urb.seqnum, urb.setup
        if seqnum in self.pending or ~seqnum in self.pending:
            self._reply(urb, -EINVAL)
        elif not urb.number:
            if setup.length != urb.length or (setup.is_in != urb.is_in and urb.length):
                self._reply(urb, -EINVAL)
            else:
                self.control(seqnum, setup, urb.data, partial(self._return, urb))
        elif urb.is_in:
            self.bulk(seqnum, urb.number | 0x80, urb.length, partial(self._return, urb))
        elif urb.flags & ZERO_PACKET and urb.length and not urb.length % bulk.MAX_PACKET[self._is_super]:
            whole: list[Transfer] = []
            self.bulk(seqnum, urb.number, urb.data, whole.append)
            self.bulk(~seqnum, urb.number, b"", lambda empty: self._return(urb, whole[0], empty))
        else:
            self.bulk(seqnum, urb.number, urb.data, partial(self._return, urb))

    def _return(self, urb: Urb, transfer: Transfer, empty: Transfer | None = None) -> None:
        """Its transfer has ended, and with it the empty packet after it, if there is one."""
        if urb.seqnum in self._unlinked:
            self._unlinked.remove(urb.seqnum)
            return
        outcome = transfer.outcome
        if empty is not None and outcome is Outcome.DONE:
            outcome = empty.outcome
        status = STATUS[outcome or Outcome.GONE]
        if urb.is_in and urb.flags & SHORT_NOT_OK and not status and transfer.actual < transfer.length:
            status = -EREMOTEIO
        self._reply(urb, status, transfer.actual, bytes(transfer.data) if urb.is_in else b"")

    def _unlink(self, seqnum: int, victim: int) -> None:
        """Cancel a URB. It returns with the answer to this, unless it has returned already."""
        self.peer.server.finish_transfers()
        keys = [key for key in (victim, ~victim) if key in self.pending]
        if keys:
            self._unlinked.add(victim)
        for key in keys:
            self.cancel(key)
        status = -ECONNRESET if keys else 0
        self.peer.send(REPLY.pack(RET_UNLINK, seqnum, 0, 0, 0, status, 0, 0, 0, 0))

    def _reply(self, urb: Urb, status: int, actual: int = 0, data: bytes = b"") -> None:
        head = REPLY.pack(RET_SUBMIT, urb.seqnum, 0, 0, 0, status, actual, 0, urb.packets, 0)
        self.peer.send(head + data)

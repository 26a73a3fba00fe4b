"""usbredir: the emulated device as one that QEMU, or another guest of that protocol, has redirected to it.

This is the host's side of the USB Network Redirection protocol 0.7 ("USB Network Redirection protocol
description", and usbredirproto.h for the numbers), as far as bulk devices need it: no isochronous, interrupt
and buffered bulk transfers. What it calls a host's operating system, which has enumerated and configured the
device before the guest sees it, is `Server.enumerate`.

A link that drops becomes device_disconnect; when it is up again, the device connects again. The guest's
SET_ADDRESS never comes (QEMU keeps it), so a reset gives the device its address again.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from importlib.metadata import version

from emulator.core.clock import seconds
from emulator.usb import control, standard, timing
from emulator.usb.host import FIRST_ADDRESS
from emulator.usb.server import MAX_DATA, Packets, Peer, ProtocolSession, Refused
from emulator.usb.standard import ConfigurationDescriptor, InterfaceDescriptor
from emulator.usb.wire import Outcome, Setup, Stall, Transfer

COMPANION = 0x30
"""bDescriptorType of a SuperSpeed endpoint companion (USB 3.2, table 9-6)."""


class Kind(IntEnum):
    """Types of packets."""

    HELLO = 0
    DEVICE_CONNECT = 1
    DEVICE_DISCONNECT = 2
    RESET = 3
    INTERFACE_INFO = 4
    EP_INFO = 5
    SET_CONFIGURATION = 6
    GET_CONFIGURATION = 7
    CONFIGURATION_STATUS = 8
    SET_ALT_SETTING = 9
    GET_ALT_SETTING = 10
    ALT_SETTING_STATUS = 11
    START_ISO_STREAM = 12
    STOP_ISO_STREAM = 13
    ISO_STREAM_STATUS = 14
    START_INTERRUPT_RECEIVING = 15
    STOP_INTERRUPT_RECEIVING = 16
    INTERRUPT_RECEIVING_STATUS = 17
    ALLOC_BULK_STREAMS = 18
    FREE_BULK_STREAMS = 19
    BULK_STREAMS_STATUS = 20
    CANCEL_DATA_PACKET = 21
    FILTER_REJECT = 22
    FILTER_FILTER = 23
    DEVICE_DISCONNECT_ACK = 24
    CONTROL_PACKET = 100
    BULK_PACKET = 101


CAP_BULK_STREAMS, CAP_CONNECT_DEVICE_VERSION, CAP_FILTER, CAP_DISCONNECT_ACK = 1 << 0, 1 << 1, 1 << 2, 1 << 3
CAP_MAX_PACKET_SIZE, CAP_64BITS_IDS, CAP_32BITS_BULK_LENGTH = 1 << 4, 1 << 5, 1 << 6
CAPABILITIES = (
    CAP_BULK_STREAMS
    | CAP_CONNECT_DEVICE_VERSION
    | CAP_FILTER
    | CAP_DISCONNECT_ACK
    | CAP_MAX_PACKET_SIZE
    | CAP_64BITS_IDS
    | CAP_32BITS_BULK_LENGTH
)
"""What this side can do; what both sides can is used."""

SUCCESS, CANCELLED, INVAL, IOERROR, STALL, TIMEOUT, BABBLE = range(7)
STATUS = {
    Outcome.DONE: SUCCESS,
    Outcome.STALL: STALL,
    Outcome.CANCELLED: CANCELLED,
    Outcome.GONE: IOERROR,
    Outcome.OVERFLOW: BABBLE,
    Outcome.ERROR: IOERROR,
}
"""The status of a transfer by its outcome."""

SPEED_HIGH, SPEED_SUPER = 2, 3
TYPE_CONTROL, TYPE_INVALID = 0, 255

HELLO_LENGTH = 64
"""The version, without capabilities."""
HEADER = {False: struct.Struct("<III"), True: struct.Struct("<IIQ")}
"""Type, length, id; by whether ids have 64 bits."""
CONTROL = struct.Struct("<BBBBHHH")
BULK = {False: struct.Struct("<BBHI"), True: struct.Struct("<BBHIH")}
"""Endpoint, status, length, stream; and the upper half of the length, if both sides have 32 bits of it."""
STREAMS_STATUS = struct.Struct("<IIB")


class UsbRedir(ProtocolSession):
    """A connection to a guest."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        self._capabilities = 0  # of both sides
        self._ready = False  # the guest's hello has come
        self._acknowledged = True  # the guest knows that the last one has gone
        self._configurations: list[ConfigurationDescriptor] = []
        self._alternates: dict[int, int] = {}

    # -- server.ProtocolSession -------------------------------------------------------------------------

    def packets(self) -> Packets:
        """See `ProtocolSession.packets`."""
        name = f"towline {version('towline')}".encode().ljust(HELLO_LENGTH, b"\0")
        self._send(Kind.HELLO, 0, name + struct.pack("<I", CAPABILITIES))
        kind, length, _ = HEADER[False].unpack((yield HEADER[False].size))
        if kind != Kind.HELLO or not HELLO_LENGTH <= length <= 2 * HELLO_LENGTH:
            raise Refused("not a hello of usbredir")
        hello = yield length
        self._capabilities = int.from_bytes(hello[HELLO_LENGTH : HELLO_LENGTH + 4], "little") & CAPABILITIES
        self._ready = True
        self.link_changed()
        while True:
            header = HEADER[self._can(CAP_64BITS_IDS)]
            kind, length, key = header.unpack((yield header.size))
            body = (yield length) if length else b""
            try:
                self._handle(kind, key, body)
            except struct.error:
                raise Refused(f"a packet of type {kind} with {length} bytes") from None

    def link_changed(self) -> None:
        """See `ProtocolSession.link_changed`."""
        if self.attachment and not self.has_device:
            self._disconnect()
        if self._ready and self._acknowledged and not self.attachment and not self.taken:
            self._connect()

    # -- the guest's packets ----------------------------------------------------------------------------

    def _handle(self, kind: int, key: int, body: bytes) -> None:
        if kind == Kind.DEVICE_DISCONNECT_ACK:
            self._acknowledged = True
            self.link_changed()
        elif kind == Kind.FILTER_REJECT:
            self.peer.server.say(f"{self.peer.name} rejects the device")
        elif not self.attachment or kind == Kind.FILTER_FILTER:
            return  # meant for a device that has gone
        elif kind == Kind.CONTROL_PACKET:
            self._control(key, body)
        elif kind == Kind.BULK_PACKET:
            self._bulk(key, body)
        elif kind == Kind.CANCEL_DATA_PACKET:
            if key in self.pending:
                self.cancel(key)
        else:
            with self.peer.server.working():
                self._handle_alone(kind, key, body)

    def _handle_alone(self, kind: int, key: int, body: bytes) -> None:
        """A control packet: nothing else is served until it is done."""
        match kind:
            case Kind.RESET:
                self._reset()
            case Kind.SET_CONFIGURATION:
                (value,) = struct.unpack("<B", body)
                status = self._request(standard.set_configuration(value))
                if status == SUCCESS:
                    self._alternates.clear()
                    self._describe()
                self._send(Kind.CONFIGURATION_STATUS, key, bytes((status, self.host.configuration)))
            case Kind.GET_CONFIGURATION:
                self._send(Kind.CONFIGURATION_STATUS, key, bytes((SUCCESS, self.host.configuration)))
            case Kind.SET_ALT_SETTING:
                interface, alternate = struct.unpack("<BB", body)
                status = self._request(standard.set_interface(interface, alternate))
                if status == SUCCESS:
                    self._alternates[interface] = alternate
                    self._describe()
                self._send_alternate(key, status, interface)
            case Kind.GET_ALT_SETTING:
                (interface,) = struct.unpack("<B", body)
                self._send_alternate(key, SUCCESS, interface)
            case Kind.ALLOC_BULK_STREAMS:
                endpoints, streams = struct.unpack("<II", body)
                self._send(Kind.BULK_STREAMS_STATUS, key, STREAMS_STATUS.pack(endpoints, streams, SUCCESS))
            case Kind.FREE_BULK_STREAMS:
                (endpoints,) = struct.unpack("<I", body)
                self._send(Kind.BULK_STREAMS_STATUS, key, STREAMS_STATUS.pack(endpoints, 0, SUCCESS))
            case Kind.START_ISO_STREAM | Kind.STOP_ISO_STREAM:
                (endpoint,) = struct.unpack_from("<B", body)
                self._send(Kind.ISO_STREAM_STATUS, key, bytes((INVAL, endpoint)))
            case Kind.START_INTERRUPT_RECEIVING | Kind.STOP_INTERRUPT_RECEIVING:
                (endpoint,) = struct.unpack_from("<B", body)
                self._send(Kind.INTERRUPT_RECEIVING_STATUS, key, bytes((INVAL, endpoint)))
            case _:
                raise Refused(f"a packet of type {kind}")

    def _reset(self) -> None:
        self.cancel_all()
        self.peer.server.finish_transfers()
        try:
            self.host.reset()
            if self.host.wait_attached(standard.ATTACH_PATIENCE):
                self.host.control(standard.set_address(FIRST_ADDRESS), timeout=standard.PATIENCE)
                self.host.clock.sleep(seconds(timing.ADDRESS_RECOVERY.clocks))
                return
        except (ConnectionError, TimeoutError, Stall):
            pass
        self.peer.server.say("the device does not answer after a reset")
        self._disconnect()

    def _request(self, setup: Setup) -> int:
        """A request that has a packet of its own; its status."""
        self.cancel_all()
        self.peer.server.finish_transfers()
        try:
            self.host.control(setup, timeout=standard.PATIENCE)
        except Stall:
            return STALL
        except TimeoutError:
            return TIMEOUT
        except ConnectionError:
            return IOERROR
        return SUCCESS

    def _control(self, key: int, body: bytes) -> None:
        endpoint, request, kind, _, value, index, length = CONTROL.unpack_from(body)
        data = body[CONTROL.size :]
        setup = Setup(kind, request, value, index, length)

        def reply(transfer: Transfer) -> None:
            head = (endpoint, request, kind, _status(transfer), value, index, transfer.actual)
            self._send(Kind.CONTROL_PACKET, key, CONTROL.pack(*head) + _received(transfer, setup.is_in))

        wrong = endpoint != kind & 0x80 or len(data) != (0 if setup.is_in else length)
        if wrong or key in self.pending:
            head = (endpoint, request, kind, INVAL, value, index, 0)
            self._send(Kind.CONTROL_PACKET, key, CONTROL.pack(*head))
        else:
            self.control(key, setup, data, reply)

    def _bulk(self, key: int, body: bytes) -> None:
        layout = BULK[self._can(CAP_32BITS_BULK_LENGTH)]
        endpoint, _, length, stream, *upper = layout.unpack_from(body)
        length |= (upper[0] if upper else 0) << 16
        data = body[layout.size :]
        is_in = bool(endpoint & 0x80)

        def answer(status: int, actual: int, received: bytes) -> None:
            head = [endpoint, status, actual & 0xFFFF, stream, actual >> 16][: 4 + len(upper)]
            self._send(Kind.BULK_PACKET, key, layout.pack(*head) + received)

        wrong = endpoint & 0x70 or not endpoint & 0x0F or len(data) != (0 if is_in else length)
        if wrong or length > MAX_DATA or key in self.pending:
            answer(INVAL, 0, b"")
            return

        def reply(transfer: Transfer) -> None:
            answer(_status(transfer), transfer.actual, _received(transfer, is_in))

        self.bulk(key, endpoint, length if is_in else data, reply, stream)

    # -- packets to the guest ---------------------------------------------------------------------------

    def _connect(self) -> None:
        """Announce the device."""
        found = self.peer.server.enumerate()
        speed = self.host.speed
        if found is None or speed is None:
            return
        self._configurations = [standard.parse_configuration(raw) for raw in found.configurations]
        self._alternates.clear()
        self.attachment = self.host.attachments
        self._describe()
        kind, subclass, protocol = found.device[4:7]
        ids = struct.unpack_from("<HHH", found.device, 8)
        connect = struct.pack(
            "<4BHHH", SPEED_SUPER if speed.is_super else SPEED_HIGH, kind, subclass, protocol, *ids
        )
        self._send(Kind.DEVICE_CONNECT, 0, connect if self._can(CAP_CONNECT_DEVICE_VERSION) else connect[:-2])

    def _disconnect(self) -> None:
        """Announce that it has gone, after the last replies of its transfers."""
        self.attachment = 0
        self.cancel_all()
        self.peer.server.finish_transfers()
        self._send(Kind.DEVICE_DISCONNECT, 0)
        self._acknowledged = not self._can(CAP_DISCONNECT_ACK)

    def _describe(self) -> None:
        """Describe the endpoints and interfaces as they are configured now."""
        settings = self._settings()
        is_super = self.host.speed is not None and self.host.speed.is_super
        kinds, intervals, owners = [TYPE_INVALID] * 32, [0] * 32, [0] * 32
        sizes, streams = [0] * 32, [0] * 32
        for place in (0, 16):
            kinds[place], sizes[place] = TYPE_CONTROL, control.MAX_PACKET[is_super]
        for setting in settings:
            for endpoint in setting.endpoints:
                address, attributes, size, interval = struct.unpack_from("<BBHB", endpoint.raw, 2)
                place = address & 0x0F | (16 if address & 0x80 else 0)
                kinds[place], intervals[place], owners[place] = attributes & 3, interval, setting.number
                sizes[place] = size
                streams[place] = _streams(endpoint.extra)
        body = bytes(kinds) + bytes(intervals) + bytes(owners)
        if self._can(CAP_MAX_PACKET_SIZE):
            body += struct.pack("<32H", *sizes)
            if self._can(CAP_BULK_STREAMS):
                body += struct.pack("<32I", *streams)
        self._send(Kind.EP_INFO, 0, body)
        body = struct.pack("<I", len(settings))
        for place in (2, 5, 6, 7):  # bInterfaceNumber, Class, SubClass, Protocol
            body += bytes(setting.raw[place] for setting in settings).ljust(32, b"\0")
        self._send(Kind.INTERFACE_INFO, 0, body)

    def _settings(self) -> list[InterfaceDescriptor]:
        """The alternate setting in use of each interface, as far as the packets have room."""
        for configuration in self._configurations:
            if configuration.value == self.host.configuration:
                return [
                    setting
                    for settings in configuration.interfaces
                    for setting in settings
                    if setting.alternate == self._alternates.get(setting.number, 0)
                ][:32]
        return []

    def _send_alternate(self, key: int, status: int, interface: int) -> None:
        alternate = self._alternates.get(interface, 0)
        self._send(Kind.ALT_SETTING_STATUS, key, bytes((status, interface, alternate)))

    def _send(self, kind: int, key: int, body: bytes = b"") -> None:
        header = HEADER[self._can(CAP_64BITS_IDS)]
        self.peer.send(header.pack(kind, len(body), key) + body)

    def _can(self, capability: int) -> bool:
        """Whether both sides can."""
        return bool(self._capabilities & capability)


def _status(transfer: Transfer) -> int:
    return STATUS[transfer.outcome] if transfer.outcome else IOERROR


def _received(transfer: Transfer, is_in: bool) -> bytes:
    """Data that goes back to the guest."""
    return bytes(transfer.data) if is_in else b""


def _streams(extra: bytes) -> int:
    """Streams of a bulk endpoint, by its SuperSpeed companion descriptor (USB 3.2, 9.6.7)."""
    companion = extra[:6]
    exponent = companion[3] & 0x1F if len(companion) == 6 and companion[1] == COMPANION else 0
    return 1 << exponent if exponent else 0

"""The mask ROM on the USB: link, standard requests, and the class requests of bulk-only mass storage.

Chapter 9 of USB 3.2 and USB 2.0 as far as a device with one interface and two bulk endpoints needs it. The
ROM brings the link up itself; the registers of the PHY do not matter.
"""

from __future__ import annotations

from emulator.asm2464pd import rom_descriptors as descriptors
from emulator.asm2464pd import timing
from emulator.asm2464pd.rom_bot import IN_ENDPOINT, OUT_ENDPOINT, BulkOnlyTransport, CommandSet
from emulator.asm2464pd.rom_descriptors import Identity
from emulator.core.clock import Event, Scheduler, at_rate
from emulator.usb.timing import HIGH_SPEED_BYTES_PER_SECOND
from emulator.usb.wire import Handshake, Partner, Setup, Speed


class _Request:
    """bRequest (USB 3.2, table 9-4; bulk-only transport 1.0, section 3)."""

    GET_STATUS = 0x00
    CLEAR_FEATURE = 0x01
    SET_FEATURE = 0x03
    SET_ADDRESS = 0x05
    GET_DESCRIPTOR = 0x06
    GET_CONFIGURATION = 0x08
    SET_CONFIGURATION = 0x09
    GET_INTERFACE = 0x0A
    SET_INTERFACE = 0x0B
    SET_SEL = 0x30
    SET_ISOCH_DELAY = 0x31
    GET_MAX_LUN = 0xFE
    BULK_ONLY_RESET = 0xFF


_TYPE, _STANDARD, _CLASS = 0x60, 0x00, 0x20
_RECIPIENT, _DEVICE, _ENDPOINT = 0x1F, 0x00, 0x02
_ENDPOINT_HALT = 0x00
_STATUS_SELF_POWERED = 0x01


class BulkOnlyDevice:
    """A mass storage device as a host port sees it; a `Function`.

    Args:
        clock: virtual time.
        commands: what it does.
        identity: vendor, product and release.
        wants_reset: bulk transfers are taken only after a bus reset that follows the first configuration.
    """

    def __init__(
        self, clock: Scheduler, commands: CommandSet, identity: Identity, *, wants_reset: bool = False
    ) -> None:
        self._clock = clock
        self._identity = identity
        self._transport = BulkOnlyTransport(clock, commands, self._wake, self._bulk_packet)
        self._partner: Partner | None = None
        self._attaching: Event | None = None
        self._speed = Speed.SUPER_PLUS
        self._configuration = 0
        self._wants_reset = self._deaf = wants_reset
        self._setup = Setup(0, 0, 0, 0, 0)
        self._answer: bytes | None = None
        """What is left of the answer; None refuses the request."""

    # -- link -------------------------------------------------------------------------------------------

    def connect(self, partner: Partner | None) -> None:
        """The cable is plugged in or pulled."""
        self._clock.cancel(self._attaching)
        self.bus_reset()
        self._deaf = self._wants_reset
        self._partner = partner
        if partner is not None:
            self._speed = partner.best
            self._attaching = self._clock.after(timing.LINK_TRAINING.clocks, self._attach)

    def disconnect(self) -> None:
        """Leave the bus, and drop what was under way."""
        partner = self._partner
        self.connect(None)
        if partner is not None:
            partner.detached()

    def bus_reset(self) -> None:
        """Back to the default state, without a configuration."""
        self._deaf = self._deaf and not self._configuration
        self._configuration = 0
        self._transport.abort()

    def packet_clocks(self, endpoint: int, size: int) -> int:
        """The CPU handles every packet: its turn-around, or the wire where that is slower."""
        if self._speed.is_super:
            return timing.PACKET_TURNAROUND.clocks
        wire = at_rate(size, HIGH_SPEED_BYTES_PER_SECOND)
        return max(timing.PACKET_TURNAROUND.clocks, wire)

    # -- packets ----------------------------------------------------------------------------------------

    def setup(self, packet: bytes) -> None:
        """Take a SETUP packet; its request is carried out at once."""
        self._setup = Setup.unpack(packet)
        answer = self._request(self._setup)
        self._answer = None if answer is None else answer[: self._setup.length]

    def control_out(self, data: bytes) -> Handshake:
        """Data of SET_SEL, on which nothing depends here."""
        return Handshake.STALL if self._answer is None else Handshake.ACK

    def control_in(self) -> bytes | Handshake:
        """The next packet of the answer."""
        if self._answer is None:
            return Handshake.STALL
        size = descriptors.CONTROL_PACKET_SUPER if self._speed.is_super else descriptors.CONTROL_PACKET_HIGH
        packet, self._answer = self._answer[:size], self._answer[size:]
        return packet

    def status(self) -> Handshake:
        """The status stage."""
        return Handshake.STALL if self._answer is None else Handshake.ACK

    def bulk_out(self, endpoint: int, data: bytes) -> Handshake:
        """A packet for EP 0x02; there is no other, and none before SET_CONFIGURATION."""
        if endpoint != OUT_ENDPOINT or not self._configuration or self._deaf:
            return Handshake.NAK
        return self._transport.bulk_out(data)

    def bulk_in(self, endpoint: int) -> bytes | Handshake:
        """A packet of EP 0x81; there is no other, and none before SET_CONFIGURATION."""
        if endpoint != IN_ENDPOINT or not self._configuration or self._deaf:
            return Handshake.NAK
        return self._transport.bulk_in()

    # -- requests ---------------------------------------------------------------------------------------

    def _request(self, setup: Setup) -> bytes | None:
        kind = setup.request_type & _TYPE
        if kind == _CLASS:
            return self._class_request(setup)
        if kind != _STANDARD:
            return None
        match setup.request:
            case _Request.GET_DESCRIPTOR:
                kind, index = setup.value >> 8, setup.value & 0xFF
                return descriptors.find(kind, index, self._identity, super_speed=self._speed.is_super)
            case _Request.GET_STATUS:
                return self._status_of(setup).to_bytes(2, "little")
            case _Request.GET_CONFIGURATION:
                return bytes((self._configuration,))
            case _Request.SET_CONFIGURATION if setup.value in (0, 1):
                self._transport.abort()
                self._configuration = setup.value
                return b""
            case _Request.GET_INTERFACE if setup.index == 0:
                return b"\0"
            case _Request.SET_INTERFACE if setup.value == setup.index == 0:
                self._transport.abort()
                return b""
            case _Request.SET_FEATURE | _Request.CLEAR_FEATURE:
                return self._feature(setup)
            case _Request.SET_ADDRESS | _Request.SET_SEL | _Request.SET_ISOCH_DELAY:
                return b""
        return None

    def _status_of(self, setup: Setup) -> int:
        recipient = setup.request_type & _RECIPIENT
        if recipient == _ENDPOINT:
            return int(setup.index in self._transport.halted)
        return _STATUS_SELF_POWERED if recipient == _DEVICE else 0

    def _feature(self, setup: Setup) -> bytes | None:
        if setup.request_type & _RECIPIENT != _ENDPOINT:
            return b""  # power management of the link: accepted, without effect here
        if setup.value != _ENDPOINT_HALT or setup.index not in (IN_ENDPOINT, OUT_ENDPOINT):
            return None
        if setup.request == _Request.SET_FEATURE:
            self._transport.set_halt(setup.index)
        else:
            self._transport.clear_halt(setup.index)
        return b""

    def _class_request(self, setup: Setup) -> bytes | None:
        match setup.request:
            case _Request.GET_MAX_LUN if setup.is_in:
                return b"\0"
            case _Request.BULK_ONLY_RESET if not setup.is_in:
                self._transport.reset()
                return b""
        return None

    # -- inside -----------------------------------------------------------------------------------------

    def _attach(self) -> None:
        if self._partner is not None:
            self._partner.attached(self._speed)

    def _wake(self, endpoint: int) -> None:
        if self._partner is not None:
            self._partner.ready(endpoint)

    def _bulk_packet(self) -> int:
        return descriptors.BULK_PACKET_SUPER if self._speed.is_super else descriptors.BULK_PACKET_HIGH

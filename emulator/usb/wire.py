"""The two seams of USB in the emulator.

`Function` is the packet level: what a device controller answers to transactions on the wire. The chip's
controller is one, its mask ROM another. `UsbDevice` is the transfer level that fronts are written against:
`emulator.usb.host.Host` makes it out of any `Function`, adding the host's side of the protocol and its
timing. Terms are those of the USB 3.2 and 2.0 specifications.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class Speed(Enum):
    """Link speeds; the value is the name Linux prints."""

    HIGH = "high-speed"
    SUPER = "super-speed"
    SUPER_PLUS = "super-speed-plus"

    @property
    def is_super(self) -> bool:
        return self is not Speed.HIGH


class Handshake(Enum):
    """A device's answer to a transaction, besides data."""

    ACK = "ACK"
    NAK = "NAK"
    """Not now (NRDY at SuperSpeed); the device says `ready` when to try again."""
    STALL = "STALL"


@dataclass(frozen=True, slots=True)
class Setup:
    """A SETUP packet (USB 2.0, 9.3)."""

    request_type: int
    request: int
    value: int
    index: int
    length: int

    @property
    def is_in(self) -> bool:
        return bool(self.request_type & 0x80)

    def pack(self) -> bytes:
        return struct.pack("<BBHHH", self.request_type, self.request, self.value, self.index, self.length)

    @classmethod
    def unpack(cls, data: bytes) -> Setup:
        return cls(*struct.unpack("<BBHHH", data))


class Partner(Protocol):
    """What a host port offers the device on its other end."""

    best: Speed
    """The fastest the port does (a cable or a port may allow High Speed only)."""

    def attached(self, speed: Speed) -> None:
        """The link is up at this speed; enumeration may begin."""

    def detached(self) -> None:
        """The link is gone; every transfer ends."""

    def ready(self, endpoint: int) -> None:
        """An endpoint that answered NAK may answer otherwise now (ERDY); 0 for either phase of EP0."""


class Function(Protocol):
    """The device's end of the wire. Called at the virtual time of each transaction; answers at once."""

    def connect(self, partner: Partner | None) -> None:
        """The cable is plugged into a port, or (None) pulled. The device calls `attached` when it is up."""

    def bus_reset(self) -> None:
        """The host resets the link (warm or hot reset at SuperSpeed)."""

    def setup(self, packet: bytes) -> None:
        """A SETUP packet of 8 bytes; always accepted, and ends what EP0 was doing."""

    def control_out(self, data: bytes) -> Handshake:
        """A data packet of an OUT control transfer."""

    def control_in(self) -> bytes | Handshake:
        """A data packet of an IN control transfer; shorter than the maximum ends the data stage."""

    def status(self) -> Handshake:
        """The status stage, in whichever direction it goes."""

    def bulk_out(self, endpoint: int, data: bytes) -> Handshake:
        """A data packet for a bulk OUT endpoint."""

    def bulk_in(self, endpoint: int) -> bytes | Handshake:
        """A data packet of a bulk IN endpoint."""

    def packet_clocks(self, endpoint: int, size: int) -> int:
        """Clocks that a data packet of a bulk endpoint takes, in the endpoint's present state.

        Its time on the wire and the turn-around of both ends. The host lets it pass before each
        transaction, so that a packet reaches the device when all of it is there.
        """


class Stall(Exception):
    """The device answered STALL."""


class Outcome(Enum):
    """How a transfer ended."""

    DONE = "done"
    STALL = "stall"
    CANCELLED = "cancelled"
    GONE = "gone"
    """The device was reset or detached."""
    OVERFLOW = "overflow"
    """The device sent more than was asked for (babble); what fitted has been kept."""
    ERROR = "error"
    """Packets did not get through in spite of the host controller's retries."""


@dataclass(slots=True, eq=False)
class Spoilt:
    """What befalls a bulk transfer, for rehearsals.

    Attributes:
        outcome: ERROR half-way; STALL by the device; CANCELLED, for the device never takes it; DONE, with
            one bit inverted.
        struck: called when it happens.
        byte: that has the inverted bit; None for one in the middle.
        bit: that is inverted.
        over: it has happened.
    """

    outcome: Outcome
    struck: Callable[[], None]
    byte: int | None = None
    bit: int = 3
    over: bool = False

    def strike(self) -> None:
        """It happens; again, if the device is asked again."""
        if not self.over:
            self.over = True
            self.struck()


@dataclass(slots=True, eq=False)
class Transfer:
    """A control or bulk transfer on its way.

    Attributes:
        endpoint: address with direction bit, 0 for control.
        setup: of a control transfer.
        data: bytes to send; what arrived so far for IN.
        length: bytes wanted (IN) or sent (OUT).
        stream: SuperSpeed bulk stream id, 0 for none.
        outcome: None while pending.
        actual: bytes transferred.
        on_done: called once, in the emulator's thread of execution, when `outcome` is set.
    """

    endpoint: int
    length: int
    data: bytearray
    setup: Setup | None = None
    stream: int = 0
    outcome: Outcome | None = None
    actual: int = 0
    on_done: Callable[[Transfer], None] | None = None
    spoilt: Spoilt | None = None
    """What befalls it, if anything."""
    submitted: int = 0
    """Clock of submission."""
    completed: int = 0
    """Clock of completion."""
    scratch: dict[str, object] = field(default_factory=dict)
    """The host controller's own notes."""


class Clock(Protocol):
    """Virtual time as a user of the device sees it."""

    def now(self) -> float:
        """Seconds since power-on."""

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""


class UsbDevice(Protocol):
    """What an emulated device offers fronts; safe to call from several threads.

    Attributes:
        clock: virtual time.
        speed: of the link, None while nothing is attached.
    """

    clock: Clock

    @property
    def speed(self) -> Speed | None: ...

    def wait_attached(self, seconds: float) -> bool:
        """Let virtual time pass until the link is up, at most so long; whether it is."""

    def control(self, setup: Setup, data: bytes = b"", *, timeout: float | None = None) -> bytes:
        """A whole control transfer. Data of an IN transfer, else empty.

        Raises:
            Stall: the device stalled it.
            TimeoutError: `timeout` virtual seconds passed.
            ConnectionError: the device went away.
            DeviceFailed: it sent more than was asked for.
        """

    def submit(
        self,
        endpoint: int,
        data_or_length: bytes | int,
        stream: int = 0,
        on_done: Callable[[Transfer], None] | None = None,
    ) -> Transfer:
        """Begin a bulk transfer; time only passes in `wait`, `control` and `clock.sleep`."""

    def wait(self, transfer: Transfer, *, timeout: float | None = None) -> None:
        """Let virtual time pass until the transfer has ended.

        Raises:
            TimeoutError: `timeout` virtual seconds passed; the transfer has been cancelled.
        """

    def cancel(self, transfer: Transfer) -> None:
        """Cancel a transfer; what has been transferred stays."""

    def reset(self) -> None:
        """A bus reset; pending transfers end as GONE."""

    def why(self, endpoint: int | None) -> str:
        """Why a transfer on an endpoint does not end, or (None) why nothing attaches; "" if not known."""

"""The USB device controller of the chip, as a host port sees it: link, EP0 and bulk endpoints in one.

The parts are files of their own: usb_link.py, usb_control.py, usb_bulk.py, usb_storage.py. A bulk packet is
offered to the slot DMA first, then to the mass-storage engine, then to the CPU's path; that the DMA comes
first is inferred from its armed slots taking every packet. EP 0x83 and 0x04, which descriptors of the open
firmware name, have no known registers but those of their halts: they answer NAK or STALL.
"""

from __future__ import annotations

import functools
import logging
from typing import Protocol

from emulator.asm2464pd import timing
from emulator.asm2464pd.interrupts import Interrupts
from emulator.asm2464pd.usb_bulk import IN, OUT, BulkEndpoints
from emulator.asm2464pd.usb_control import ControlEndpoint
from emulator.asm2464pd.usb_link import Link
from emulator.asm2464pd.usb_storage import StorageEngine, is_command
from emulator.core.bus import Bus
from emulator.core.clock import at_rate
from emulator.model import DEFAULT, Model
from emulator.usb.timing import HIGH_SPEED_BYTES_PER_SECOND
from emulator.usb.wire import Handshake, Partner, Speed
from firmware.asm2464pd.registers import usb as regs

log = logging.getLogger(__name__)

CONTROL = 0
ENDPOINTS = (CONTROL, OUT, IN)
FURTHER = {0x83: regs.BULK_HALT_STATUS, 0x04: regs.BULK_HALT_COMMAND}
"""The halt register of each further endpoint."""


class BulkEngine(Protocol):
    """A DMA engine that may take the bulk endpoints over from the CPU path.

    The controller asks it first, for every bulk packet of EP 0x02 and EP 0x81.
    """

    def bulk_out(self, data: bytes) -> Handshake | None:
        """Take a packet of EP 0x02 (ACK), refuse it (NAK, STALL), or leave it to the CPU path (None)."""

    def bulk_in(self) -> bytes | Handshake | None:
        """A packet for EP 0x81 of at most the maximum size, a handshake, or None for the CPU path."""

    def busy(self, endpoint: int) -> bool:
        """Whether the next packet of that endpoint is the engine's, at the engine's rate."""

    def reset(self) -> None:
        """The endpoints are reset: disarm."""


class UsbController:
    """The controller; an `emulator.usb.wire.Function`.

    Args:
        bus: registers, buffers and time.
        interrupts: the interrupt summary.
        model: which of contradicting facts it follows.

    Attributes:
        engine: the slot DMA, once there is one.
    """

    def __init__(self, bus: Bus, interrupts: Interrupts, model: Model = DEFAULT) -> None:
        self._bus = bus
        self.engine: BulkEngine | None = None
        self._storm_until = 0
        self._reported: set[int] = set()
        self._command_waits = False  # a command wrapper was answered NAK last
        self._link = Link(bus, interrupts, self._link_changed, model)
        self._control = ControlEndpoint(bus, interrupts, lambda: self.wake(CONTROL))
        self._bulk = BulkEndpoints(bus, interrupts, self.wake)
        self._storage = StorageEngine(bus, interrupts, self._bulk, self.wake, model)
        for endpoint, halt in FURTHER.items():
            bus.map(halt, "usb", write=lambda value, endpoint=endpoint: self.wake(endpoint))  # type: ignore[misc]

    @property
    def speed(self) -> Speed | None:
        """Speed of the link, None while it is down."""
        return self._link.speed

    @property
    def packet_size(self) -> int:
        """Maximum packet of a bulk endpoint, in bytes."""
        return self._bulk.packet_size

    # -- for the rest of the chip -----------------------------------------------------------------------

    def wake(self, endpoint: int) -> None:
        """An endpoint that answered NAK may answer otherwise now; 0 for EP0."""
        if self._link.partner is not None and self._link.speed is not None:
            self._link.partner.ready(endpoint)

    def reconnect(self) -> None:
        """Power the controller off and on: the device leaves the bus and comes back when its link is up."""
        self._storage.power_off()
        self._link.reconnect()

    # -- faults -----------------------------------------------------------------------------------------

    def drop_link(self, retrain_after: int | None) -> None:
        """The link goes down, and trains again after that many clocks; None: not until the cable is moved."""
        self._link.drop(retrain_after)

    def nak_until(self, clock: int) -> None:
        """Answer NAK to everything but SETUP until that clock."""
        self._storm_until = clock
        self._bus.clock.at(clock, self._storm_over)

    def _storm_over(self) -> None:
        for endpoint in (*ENDPOINTS, *filter(self._further_halted, FURTHER)):
            self.wake(endpoint)

    @property
    def _storm(self) -> bool:
        return self._bus.clock.now < self._storm_until

    # -- the wire ---------------------------------------------------------------------------------------

    def connect(self, partner: Partner | None) -> None:
        """The cable is plugged into a port, or (None) pulled."""
        self._link.connect(partner)

    def bus_reset(self) -> None:
        """The host resets the device: every endpoint drops its work, and firmware gets an event."""
        if self._link.speed is not None:
            self._reset_endpoints(self._link.speed)
            self._link.bus_reset()

    def setup(self, packet: bytes) -> None:
        """A SETUP packet of 8 bytes."""
        if self._link.speed is not None:
            self._control.setup(packet)

    def control_out(self, data: bytes) -> Handshake:
        """A data packet of an OUT control transfer."""
        return Handshake.NAK if self._storm else self._control.data_out(data)

    def control_in(self) -> bytes | Handshake:
        """A data packet of an IN control transfer."""
        return Handshake.NAK if self._storm else self._control.data_in()

    def status(self) -> Handshake:
        """The status stage of a control transfer."""
        return Handshake.NAK if self._storm else self._control.status()

    def bulk_out(self, endpoint: int, data: bytes) -> Handshake:
        """A data packet for EP 0x02."""
        if self._further_halted(endpoint):
            return Handshake.STALL
        if self._deaf(endpoint, OUT):
            return Handshake.NAK
        if self._bulk.halted(OUT) or len(data) > self._bulk.packet_size:
            return Handshake.STALL
        answer = self.engine.bulk_out(data) if self.engine is not None else None
        if answer is None:
            answer = self._storage.bulk_out(data)
        if answer is None:
            answer = self._bulk.receive(data)
            if answer is Handshake.ACK:
                self._storage.received()
        self._command_waits = answer is Handshake.NAK and is_command(data)
        return answer

    def bulk_in(self, endpoint: int) -> bytes | Handshake:
        """A data packet of EP 0x81."""
        if self._further_halted(endpoint):
            return Handshake.STALL
        if self._deaf(endpoint, IN):
            return Handshake.NAK
        if self._bulk.halted(IN):
            return Handshake.STALL
        answer = self.engine.bulk_in() if self.engine is not None else None
        if answer is None and not self._bulk.sending:
            answer = self._storage.bulk_in()
        return self._bulk.send() if answer is None else answer

    def waits_for(self, endpoint: int | None) -> str:
        """Why a transfer of the host does not end, as a sentence; empty if the reason is not known.

        Args:
            endpoint: of the transfer, 0 for EP0; None if no device attaches.
        """
        if endpoint is None or self._link.speed is None:
            return self._link.waits_for()
        if self._storm:
            return "every endpoint answers NAK: an injected fault"
        if endpoint == CONTROL:
            what = self._control.waits_for()
            return f"EP0 waits for {what}" if what else ""
        if endpoint not in (OUT, IN):
            return f"EP {endpoint:#04x} answers NAK: no register of it is known"
        what = self._storage.waits_for(endpoint) or self._bulk.waits_for(endpoint)
        if endpoint == OUT and self._command_waits:
            if self._storage.is_off:
                what += f"; the mass-storage engine would start with {self._storage.starts_with()}"
            return f"the command wrapper on EP 0x02 is not taken: the device waits for {what}"
        return f"EP {endpoint:#04x} answers NAK: it waits for {what}" if what else ""

    def packet_clocks(self, endpoint: int, size: int) -> int:
        """Clocks until the next bulk packet of that endpoint may start, in the present state."""
        if self._link.speed is Speed.HIGH:
            return _clocks(size, HIGH_SPEED_BYTES_PER_SECOND)
        if self.engine is not None and self.engine.busy(endpoint):
            return _clocks(size, timing.SLOT_DMA_BYTES_PER_SECOND)
        return timing.PACKET_TURNAROUND.clocks

    # -- inside -----------------------------------------------------------------------------------------

    def _further_halted(self, endpoint: int) -> bool:
        halt = FURTHER.get(endpoint)
        if halt is None or self._link.speed is None or self._storm:
            return False
        return bool(self._bus.value(halt) & halt["HALT"])

    def _deaf(self, endpoint: int, known: int) -> bool:
        """Whether a bulk endpoint answers NAK without asking the parts behind it."""
        if endpoint != known:
            if endpoint not in self._reported:
                self._reported.add(endpoint)
                log.warning("EP %#04x: no register of it is known; it answers NAK", endpoint)
            return True
        return self._link.speed is None or self._storm

    def _link_changed(self, speed: Speed | None) -> None:
        self._reset_endpoints(speed or Speed.SUPER)

    def _reset_endpoints(self, speed: Speed) -> None:
        self._control.reset(speed)
        self._bulk.reset(speed)
        for halt in FURTHER.values():
            self._bus.set(halt, halt.reset)
        self._storage.reset()
        if self.engine is not None:
            self.engine.reset()


@functools.cache
def _clocks(size: int, bytes_per_second: int) -> int:
    return max(1, at_rate(size, bytes_per_second))

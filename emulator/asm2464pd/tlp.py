"""The PCIe TLP engine: launches requests into the fabric and latches what comes back.

Two halves share the work. The native half (tlp.c) runs in the CPU core's loop, decodes every launch,
carries out those that concern plain memory behind a BAR, and is the only one to latch a completion. This half
keeps the native one's table of memory, and takes every other request through the fabric.

What a launch leads to, from the chip's register contract (`firmware.asm2464pd.registers.tlp`): a posted
request is accepted at once and has no completion. A non-posted one is completed after the link's round
trip, with any status; or the engine gives up on it after a time-out and raises ERROR. Without a link it
raises ERROR at once (inferred). A new launch gives an outstanding request up, and its completion is dropped
when it comes. A request that is not one of the known kinds is reported, and not sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from emulator import native
from emulator.asm2464pd import timing
from emulator.asm2464pd.undefined import Reporter
from emulator.core.bus import Bus
from emulator.pcie.fabric import Completion, Fabric
from emulator.pcie.function import Status
from firmware.asm2464pd.describe import ByteRegister, Space
from firmware.asm2464pd.registers import tlp as facts
from sdk.errors import InternalError

NEVER = (1 << 64) - 1
"""The clock of what does not happen (the core's UINT64_MAX)."""

PAGE = facts.TLP_STATUS.address & ~0xFF

LATCHED = (
    facts.TLP_DATA,
    facts.TLP_COMPLETION,
    facts.TLP_COMPLETER,
    facts.TLP_COMPLETION_STATUS,
    facts.TLP_COMPLETION_TAIL,
    facts.TLP_COMPLETION_KIND,
    facts.TLP_STATUS,
)
"""Registers that a completion changes."""

STORAGE = (
    facts.TLP_FMT_TYPE,
    facts.TLP_TRAFFIC_CLASS,
    facts.TLP_ATTRIBUTES,
    facts.TLP_LENGTH,
    facts.TLP_REQUESTER,
    facts.TLP_TAG,
    facts.TLP_BYTE_ENABLES,
    facts.TLP_ADDRESS,
    facts.TLP_ADDRESS_HIGH,
    facts.TLP_DOORBELL,
)
"""Registers that only hold what is written until a launch reads them."""


class Kind(Enum):
    """What can be wrong with an address, by injection."""

    DEAD = "neither completion nor time-out"
    LATE = "the completion is late, and dropped if it was given up"
    STALE = "the completion is late, and latched even if it was given up"


@dataclass(frozen=True, slots=True)
class Fault:
    """An injected fault.

    Attributes:
        addresses: memory addresses concerned.
        delay: clocks by which a completion is late.
    """

    kind: Kind
    addresses: range
    delay: int = 0


class TlpEngine:
    """The chip's PCIe requester.

    Args:
        bus: of the chip.
        fabric: what is behind the link.

    Attributes:
        device: the native device for the CPU core (`struct mcs51_device *`).
    """

    def __init__(self, bus: Bus, fabric: Fabric) -> None:
        self._bus = bus
        self._fabric = fabric
        self._undefined = Reporter(bus)
        self._faults: list[Fault] = []
        self._routing_missing = False
        self._ffi, self._library = native.library()
        buffer, offset = bus.planes[Space.XDATA].pages[PAGE >> 8]
        self._page = self._ffi.from_buffer(buffer, require_writable=True)
        self._engine: Any = self._ffi.new("struct tlp *")
        self._library.tlp_init(self._engine, self._page + offset, timing.PCIE_READ.clocks)
        self.device: Any = self._ffi.addressof(self._engine, "device")
        self._request: Any = self._ffi.addressof(self._engine, "request")
        self._memory: list[Any] = []  # what the native half points into
        for register in (*STORAGE, *LATCHED):
            bus.map(register, "tlp")
        bus.map(facts.TLP_LAUNCH, "tlp", write=self._launch, native=True)
        fabric.on_route_change(self._refresh)
        self._refresh()

    # -- for the machine --------------------------------------------------------------------------------

    def service(self, reason: int) -> None:
        """Do what the native half asks for; the machine calls this when the core stops for it.

        Raises:
            Undefined: under strict, a launch of something unknown.
        """
        if reason == self._library.TLP_ROUTE:
            self._route()
            self._announce((facts.TLP_STATUS,))
        elif reason == self._library.TLP_CHANGED:
            self._announce(LATCHED)
        elif reason == self._library.TLP_UNKNOWN:
            self._unknown(self._engine.code)
        else:
            raise InternalError(f"the TLP engine stopped the CPU for reason {reason}")

    def tick(self, clock: int) -> None:
        """Latch what is due at `clock`; for when no CPU core does it."""
        if reason := self._library.tlp_tick(self._engine, clock):
            self.service(reason)

    @property
    def due(self) -> int | None:
        """The clock at which the outstanding request ends; None if there is none, or it never does."""
        due = int(self.device.due)
        return None if due == NEVER else due

    @property
    def waits(self) -> bool:
        """Whether a request is outstanding, one that will never end included."""
        return bool(self._engine.outstanding)

    @property
    def served(self) -> int:
        """Requests that the native half has carried out by itself."""
        return int(self._engine.served)

    @property
    def notify(self) -> bool:
        """Whether the bus's observers get every latched completion; off, the core need not stop."""
        return bool(self._engine.notify)

    @notify.setter
    def notify(self, value: bool) -> None:
        self._engine.notify = value

    # -- for the link -----------------------------------------------------------------------------------

    def connect(self, *, link: bool, routing: bool) -> None:
        """Whether the link is up, and whether requests are routed to it; both let TLPs through.

        A request that is outstanding when the link goes down ends in ERROR.
        """
        self._routing_missing = link and not routing
        self._engine.up = link and routing
        if not self._engine.up and self._engine.outstanding:
            self._engine.pending.arrived = 0
            self.device.due = self._bus.clock.now
            self.tick(self._bus.clock.now)

    # -- for fault injection ----------------------------------------------------------------------------

    def dead(self, addresses: range) -> None:
        """Reads of these memory addresses never end, not even in a time-out."""
        self._inject(Fault(Kind.DEAD, addresses))

    def late(self, addresses: range, clocks: int, *, stale: bool) -> None:
        """Reads of these memory addresses are completed late.

        Args:
            addresses: PCIe memory addresses.
            clocks: by how much.
            stale: the completion of a request that was given up is latched anyway.
        """
        self._inject(Fault(Kind.STALE if stale else Kind.LATE, addresses, clocks))

    # -- inside -----------------------------------------------------------------------------------------

    def _launch(self, value: int) -> None:
        """A launch that came over the bus: the register is watched."""
        reason = self._library.tlp_write(self._engine, self._bus.clock.now, facts.TLP_LAUNCH.address, value)
        if reason:
            self.service(reason)

    def _route(self) -> None:
        """Take the request that was launched through the fabric."""
        request = self._engine.request
        name = facts.FMT_TYPES.get(request.fmt_type)
        if name is None or request.length != 1 or request.last_enables:
            self._malformed(request, name)
            return
        if not self._engine.up:
            if self._routing_missing:
                self._undefined.report(
                    "a TLP was launched while the link is up and TLP routing is off",
                    hint="nothing gets through before bit 7 of PCIE_ROUTING is set",
                )
            if not request.posted:
                self._answer(request.clock, Completion(None))
            return
        address, enables, data = int(request.address), int(request.enables), bytes(request.data)
        match name:
            case "MWR32" | "MWR64":
                self._fabric.memory_write(address, data, enables)
            case "MRD32" | "MRD64":
                self._read(address, enables)
            case "CFGRD0" | "CFGRD1":
                self._complete(self._fabric.config_read(address, enables, type1=name == "CFGRD1"))
            case _:
                self._complete(self._fabric.config_write(address, data, enables, type1=name == "CFGWR1"))

    def _read(self, address: int, enables: int) -> None:
        fault = next((entry for entry in self._faults if address in entry.addresses), None)
        if fault is None:
            self._complete(self._fabric.memory_read(address, enables))
        elif fault.kind is Kind.DEAD:
            self._answer(NEVER, Completion(None))
        else:
            answer = self._fabric.memory_read(address, enables)
            answer = Completion(answer.status, answer.data, answer.completer, answer.delay + fault.delay)
            self._complete(answer, stale=fault.kind is Kind.STALE)

    def _complete(self, answer: Completion, *, stale: bool = False) -> None:
        """An answer is on its way; the engine waits for it no longer than its time-out."""
        launched = int(self._engine.request.clock)
        arrival = launched + timing.PCIE_READ.clocks + answer.delay
        give_up = launched + timing.PCIE_TIMEOUT.clocks
        if stale and answer.status is not None:
            # The completion is latched when it comes, whether or not a request waits then.
            completion = self._completion(answer)
            self._answer(give_up, Completion(None))
            self._bus.clock.at(arrival, lambda: self._arrive(launched, completion))
        elif answer.status is None or arrival > give_up:
            self._answer(give_up, Completion(None))
        else:
            self._answer(arrival, answer)

    def _arrive(self, launched: int, completion: Any) -> None:
        """A late completion comes in."""
        if self._engine.outstanding and self._engine.request.clock == launched:
            self._library.tlp_abandon(self._engine)
        self._library.tlp_latch(self._engine, completion)
        self._announce(LATCHED)

    def _answer(self, due: int, answer: Completion) -> None:
        self._library.tlp_answer(self._engine, due, self._completion(answer))
        if due <= self._bus.clock.now:
            self.tick(due)

    def _completion(self, answer: Completion) -> Any:
        """The native half's form of an answer."""
        completion = self._ffi.new("struct tlp_completion *")
        self._library.tlp_describe(self._request, completion)
        if answer.status is not None:
            completion.arrived = 1
            completion.status = answer.status
            completion.completer = answer.completer
            if answer.status is Status.SC and answer.data is not None:
                completion.has_data = 1
                completion.data = answer.data
        return completion

    def _malformed(self, request: Any, name: str | None) -> None:
        """Report a request that is not sent; if firmware waits for it, it ends in ERROR (guess)."""
        what = (
            f"a request of unknown kind {request.fmt_type:#04x} was launched"
            if name is None
            else "a request was launched that is not one dword long"
        )
        self._undefined.report(
            what,
            hint="fmt/type must be one of TLP_FMT_TYPE's, TLP_LENGTH 1 and the last byte enables 0",
            detail=f"{name or 'TLP'} of length {request.length}, last byte enables {request.last_enables:#x}",
        )
        if not request.posted:
            self._answer(request.clock, Completion(None))

    def _unknown(self, code: int) -> None:
        name = facts.TLP_LAUNCH.field("CODE").values.get(code)
        self._undefined.report(
            f"{name or 'an unknown code'} ({code:#04x}) was written to TLP_LAUNCH",
            hint="only 0x0f, which launches the request, is modelled; nothing was sent",
        )

    def _inject(self, fault: Fault) -> None:
        self._faults.append(fault)
        self._refresh()

    def _refresh(self) -> None:
        """Give the native half the memory that it may touch: what is routed and not faulty."""
        ranges = [
            entry
            for entry in self._fabric.raw_ranges()
            if not any(
                fault.addresses.start < entry.base + entry.size and entry.base < fault.addresses.stop
                for fault in self._faults
            )
        ][: self._library.TLP_RANGES]
        self._memory = [self._ffi.from_buffer(entry.memory, require_writable=True) for entry in ranges]
        for slot, entry, memory in zip(self._engine.ranges, ranges, self._memory, strict=False):
            slot.base = entry.base
            slot.size = entry.size
            slot.memory = self._ffi.cast("uint8_t *", memory) + entry.offset
            slot.completer = entry.completer
        self._engine.range_count = len(ranges)

    def _announce(self, registers: tuple[ByteRegister, ...]) -> None:
        """Report what the native half has changed to observers."""
        for observer in self._bus.observers:
            for register in registers:
                data = self._bus.load(register.space, register.address, register.size)
                observer.changed(register.space, register.address, data)

"""What goes wrong in a test, counted by kind and place.

An error is an operation of the test that failed, or whose data were wrong, or that a layer below repeated.
Its kind is that of the USB transfer in which it began, if one failed: what the layers above made of it is a
consequence. Transfers that fail while the test recovers from an error are consequences too, and not counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from firmware.protocol.commands import RESULT_TRAILER
from sdk.errors import TowlineError
from sdk.telemetry.metrics import Supply
from usbgpu.bridge.base import HINTS
from usbgpu.bridge.seam import ListFailed
from usbgpu.transport import Call, CallKind, Outcome
from usbgpu.transport.device import IN_BIT

CONSEQUENCES = ("ok", "abandoned")
"""Outcomes of transfers that are no errors of their own."""
SHOWN = 16
"""Places of wrong bytes that are kept."""


@dataclass(frozen=True, slots=True)
class WrongBytes:
    """Bytes that did not come back as they were sent.

    Attributes:
        address: of the first one, in the memory that was tested.
        count: how many.
        expected, found: the dword that it is in, little-endian.
        bits: of that dword that are wrong, as a mask.
        pattern: what was written.
        where: "in" if a second read was right, "out" if writing again made it right, else "memory".
    """

    address: int
    count: int
    expected: int
    found: int
    bits: int
    pattern: str
    where: str


@dataclass(frozen=True, slots=True)
class Incident:
    """An error.

    Attributes:
        kind: its code: "wire-failed", "timed-out", "wrong-bytes", "wrong-result", ...
        place: "bulk OUT", "bulk IN", "control", "bus", "memory" or "kernel"; "" if unknown.
        at: seconds since the test began.
        message: in words.
        during: what the test did: "open", "out", "in" or "kernel".
    """

    kind: str
    place: str
    at: float
    message: str
    during: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """How the test came back after an error.

    Attributes:
        cause: kind of the error.
        at: seconds since the test began.
        seconds: it took.
        left_bus: the device was away.
        restarted: the bridge's firmware has started again; None if it does not report that.
        link_lost: the PCIe link went down, or is down; None likewise.
        state_lost: what the card held is lost; None without a card.
    """

    cause: str
    at: float
    seconds: float
    left_bus: bool
    restarted: bool | None
    link_lost: bool | None
    state_lost: bool | None


@dataclass
class Record:
    """What has happened so far.

    Attributes:
        transfers: USB transfers.
        sent, received: bytes of patterns that went to the memory and came from it.
        out_seconds, in_seconds: of transfers that went well, and not first after a recovery; so are
            `out_bytes` and `in_bytes`.
        kernels: launches whose results were checked.
        incidents: errors, in order.
        wrong: the first SHOWN places of wrong bytes.
        recoveries: in order.
        left_bus: the device was away since the last error was counted.
        lowest, highest: of the supply's measurements, by volts; None without any.
        fault: the supply reported a fault.
    """

    transfers: int = 0
    sent: int = 0
    received: int = 0
    out_bytes: int = 0
    in_bytes: int = 0
    out_seconds: float = 0.0
    in_seconds: float = 0.0
    kernels: int = 0
    incidents: list[Incident] = field(default_factory=list)
    wrong: list[WrongBytes] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    left_bus: bool = False
    lowest: Supply | None = None
    highest: Supply | None = None
    fault: bool = False
    _first: tuple[Call, Outcome] | None = None

    def saw(self, call: Call, outcome: Outcome) -> None:
        """Observe a transfer: a `transport.Observer`."""
        self.transfers += 1
        self.left_bus = self.left_bus or outcome.code == "disconnected"
        if self._first is None and outcome.code not in CONSEQUENCES:
            self._first = call, outcome

    def measured(self, supply: Supply) -> None:
        """Take a measurement of the supply."""
        self.lowest = min(self.lowest or supply, supply, key=lambda each: each.volts)
        self.highest = max(self.highest or supply, supply, key=lambda each: each.volts)
        self.fault = self.fault or supply.fault

    def forget(self) -> None:
        """What has failed so far belongs to an error that has been counted."""
        self._first, self.left_bus = None, False

    def failed(self, problem: TowlineError, at: float, during: str) -> Incident:
        """Count an operation that failed."""
        if self.repeated(at, during):
            return self.incidents[-1]
        kind = _cause(problem)
        place = {"kernel-failed": "kernel", "bad-payload": "bulk OUT", "bad-checksum": "bulk OUT"}.get(
            kind, ""
        )
        self.incidents.append(Incident(kind, place, at, str(problem), during))
        return self.incidents[-1]

    def repeated(self, at: float, during: str) -> bool:
        """Count a transfer that failed since the last error was counted, if one did; whether one did."""
        first, self._first = self._first, None
        if first is not None:
            call, outcome = first
            self.incidents.append(Incident(outcome.code, _place(call), at, outcome.message, during))
        return first is not None

    def damaged(self, at: float, during: str) -> None:
        """Count a command list that arrived damaged, and was sent again."""
        self.incidents.append(Incident("bad-checksum", "bulk OUT", at, "a list arrived damaged", during))

    def differed(self, wrong: WrongBytes, at: float) -> None:
        """Count wrong bytes."""
        place = {"in": "bulk IN", "out": "bulk OUT"}.get(wrong.where, "memory")
        message = f"{wrong.count} bytes from {wrong.address:#x} on are wrong, bits {wrong.bits:#010x}"
        self.incidents.append(Incident("wrong-bytes", place, at, message, "in"))
        if len(self.wrong) < SHOWN:
            self.wrong.append(wrong)

    def miscomputed(self, count: int, at: float) -> None:
        """Count a kernel with wrong results."""
        message = f"{count} numbers that a kernel computed are wrong"
        self.incidents.append(Incident("wrong-result", "kernel", at, message, "kernel"))

    @property
    def kinds(self) -> Counter[tuple[str, str]]:
        """Errors by kind and place."""
        return Counter((each.kind, each.place) for each in self.incidents)


def difference(
    address: int, expected: bytes, found: bytes, pattern: str, where: str = "memory"
) -> WrongBytes | None:
    """How two pieces of memory of the same size differ; None if they do not."""
    if expected == found:
        return None
    places = np.flatnonzero(np.frombuffer(expected, np.uint8) != np.frombuffer(found, np.uint8))
    dword = int(places[0]) // 4 * 4
    want, have = (int.from_bytes(data[dword : dword + 4], "little") for data in (expected, found))
    return WrongBytes(address + int(places[0]), len(places), want, have, want ^ have, pattern, where)


def _cause(problem: BaseException) -> str:
    """The kind of an error that no transfer shows: why a list failed, if that is at its bottom."""
    kind = problem.code if isinstance(problem, TowlineError) else ""
    below: BaseException | None = problem
    while below is not None:
        if isinstance(below, ListFailed):
            words = RESULT_TRAILER.member("cause").values.get(below.failure.cause, "")
            return words.replace(" ", "-") if words in HINTS else kind
        below = below.__cause__
    return kind


def _place(call: Call) -> str:
    if not call.kind.is_bulk:
        return "control" if call.kind is CallKind.CONTROL else "bus"
    return "bulk IN" if call.endpoint & IN_BIT else "bulk OUT"

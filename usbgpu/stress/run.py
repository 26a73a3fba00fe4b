"""The test itself: write, read, compare, again; after an error recover, and go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sdk.errors import DeviceFailed, DeviceMissing, TowlineError
from usbgpu.bridge import health
from usbgpu.bridge.health import Health
from usbgpu.stress import patterns, verdict
from usbgpu.stress.memories import Memory
from usbgpu.stress.record import Incident, Record, Recovery, difference
from usbgpu.stress.verdict import LinkErrors, Verdict
from usbgpu.transport import Running, Speed, sysfs

PATIENCE = 30.0
"""Seconds of the device's clock that a recovery may take: a supply that comes back, a card that boots."""
SUPPLY_INTERVAL = 0.02
"""Seconds between two measurements of the supply."""
UPTIME_ERROR = 0.05
"""Seconds by which the firmware's time since its start may be behind: it counts in steps of 10 ms."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a memory is tested.

    Attributes:
        seconds: of the device's clock.
        names: of patterns, in turn.
        seed: of the first transfer; each has the next one.
    """

    seconds: float
    names: Sequence[str] = tuple(patterns.PATTERNS)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a test found.

    Attributes:
        seconds: it took, of the device's clock.
        rounds: transfers in either direction that were tried.
        record: of what happened.
        speed: of the link at the end; None if the device is gone.
        link_errors: the host controller's count; None where it has none.
        gone: why the test ended early; None if it did not.
        interrupted: the user ended it early.
        verdict: which part is to blame.
        evidence: for it, a sentence each.
    """

    seconds: float
    rounds: int
    record: Record
    speed: Speed | None
    link_errors: LinkErrors | None
    gone: TowlineError | None
    verdict: Verdict
    evidence: tuple[str, ...]
    interrupted: bool

    @property
    def errors_per_hour(self) -> float:
        """Of the errors that were counted, at the same rate."""
        return 3600 * len(self.record.incidents) / self.seconds if self.seconds else 0.0


def run(
    memory: Memory,
    plan: Plan,
    progress: Callable[[float], None] = lambda seconds: None,
    record: Record | None = None,
) -> Report:
    """Test a memory and the way to it.

    Args:
        memory: which.
        plan: how long, and with what.
        progress: is called with the seconds so far.
        record: of what happened before; None for nothing.

    Raises:
        DeviceFailed: the device does not answer at the start.
    """
    return _Test(memory, plan, record or Record()).run(progress)


class _Test:
    def __init__(self, memory: Memory, plan: Plan, record: Record) -> None:
        self._memory = memory
        self._plan = plan
        self._bridge = memory.bridge
        self._clock = memory.bridge.clock
        self._record = record
        self._health = self._asked()
        self._damaged = self._bridge.repeated
        self._began = self._clock.now()
        self._during = ""
        self._first = False  # after a recovery: a part of it may be done late
        self._measures = self._began  # when the supply is measured next

    def run(self, progress: Callable[[float], None]) -> Report:
        """See `run`."""
        transport, record = self._bridge.transport, self._record
        before = None if transport.is_emulated else sysfs.link_errors(transport.place)
        rounds, gone, interrupted = 0, None, False
        transport.observers.append(record.saw)
        try:
            while self._so_far() < self._plan.seconds and gone is None:
                try:
                    self._round(self._plan.seed + rounds)
                    self._first = False
                    self._repeated()
                    self._measure()
                except (DeviceFailed, DeviceMissing) as problem:
                    gone = self._recover(record.failed(problem, self._so_far(), self._during))
                rounds += 1
                progress(self._so_far())
        except KeyboardInterrupt:  # what was found so far is the result, if there is any
            if not rounds:
                raise
            interrupted = True
        finally:
            transport.observers.remove(record.saw)
        seconds = self._so_far()
        after = None if transport.is_emulated or gone else sysfs.link_errors(transport.place)
        counted = None if before is None or after is None else LinkErrors(before, after, seconds)
        speed = None if gone is not None else transport.speed
        found, evidence = verdict.judge(
            record,
            of_card=self._memory.of_card,
            loaded=self._memory.computes,
            speed=speed,
            link_errors=counted,
            gone=gone is not None,
        )
        return Report(seconds, rounds, record, speed, counted, gone, found, evidence, interrupted)

    def _so_far(self) -> float:
        return self._clock.now() - self._began

    def _round(self, number: int) -> None:
        memory, record = self._memory, self._record
        record.forget()
        name = self._plan.names[number % len(self._plan.names)]
        data = patterns.made(name, memory.size, number)
        self._write(number, data)
        wanted = data[: memory.checked]
        address = memory.address(number)
        wrong = difference(address, wanted, self._read(number), name)
        if wrong is None:
            return
        if (second := difference(address, wanted, self._read(number), name, "memory")) is None:
            record.differed(replace(wrong, where="in"), self._so_far())
            return
        self._write(number, data)
        if difference(address, wanted, self._read(number), name) is None:
            second = replace(second, where="out")
        record.differed(second, self._so_far())

    def _asked(self) -> Health:
        running = Running.OURS if self._bridge.has_lists else Running.COMPATIBLE
        return health.ask(self._bridge.transport, running)

    def _repeated(self) -> None:
        """Count what a layer below has repeated: a transfer, or a list that arrived damaged."""
        record, damaged = self._record, self._bridge.repeated - self._damaged
        self._damaged = self._bridge.repeated
        if not record.repeated(self._so_far(), self._during):
            for _ in range(damaged):
                record.damaged(self._so_far(), self._during)

    def _measure(self) -> None:
        """Measure the supply, if it has a sensor and it is time."""
        if self._clock.now() < self._measures:
            return
        self._during = "supply"
        supply = self._bridge.supply()
        self._measures = math.inf if supply is None else self._clock.now() + SUPPLY_INTERVAL
        if supply is not None:
            self._record.measured(supply)

    def _write(self, number: int, data: bytes) -> None:
        record, began = self._record, self._clock.now()
        self._during = "out"
        wrong = self._memory.write(number, data)
        record.sent += len(data)
        if not self._first:
            record.out_seconds += self._clock.now() - began
            record.out_bytes += len(data)
        if wrong is not None:
            record.kernels += 1
        if wrong:
            record.miscomputed(wrong, self._so_far())

    def _read(self, number: int) -> bytes:
        record, began = self._record, self._clock.now()
        self._during = "in"
        found = self._memory.read(number)
        record.received += len(found)
        if not self._first:
            record.in_seconds += self._clock.now() - began
            record.in_bytes += len(found)
        return found

    def _recover(self, incident: Incident) -> TowlineError | None:
        """Go on after an error; what prevents it, None for nothing."""
        began, last, self._first = self._clock.now(), self._health, True
        try:
            lost = self._memory.recover(PATIENCE)
            self._health = now = self._asked()
        except TowlineError as problem:
            self._record.forget()
            return problem
        restarted = None
        if now.uptime is not None:
            restarted = now.uptime + UPTIME_ERROR < now.at - last.at
        link_lost = None
        if now.links_lost is not None and last.links_lost is not None:
            link_lost = not restarted and now.links_lost != last.links_lost
        if self._memory.addresses_lost and not restarted:  # a short loss, which the firmware did not see
            link_lost = True
        self._record.recoveries.append(
            Recovery(
                incident.kind,
                incident.at,
                self._clock.now() - began,
                self._record.left_bus,
                restarted,
                link_lost,
                lost,
            )
        )
        self._record.forget()
        return None

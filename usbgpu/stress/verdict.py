"""Which part is to blame for what a test found.

What an error looked like to the host says less than what the bridge and the card report once they are back:

* The bridge's firmware has started again: it was without power, as only a supply can make it. A compatible
  firmware does not report that; then it is a card that lost its state while the bridge was off the bus.
* The PCIe link went down and the bridge went on: the card was without power or contact; under load, a supply
  that is too weak is the usual reason (hardware: docks with 100 W lose the link above it).
* The card has lost its state, and neither of these: it was reset by itself.
* The device left the bus and came back as it was: the contact, or the port.
* Transfers that failed on the wire, or data that were right in memory and wrong here: the cable.
* The dock's sensor saw less than 11.04 V, or a fault: the supply, whatever else failed with it.
* More than 5 link errors a second: the link is unstable although the data got through (hardware: above that
  rate docks failed; the counter alone was not enough to tell good docks from bad ones).
* A link at USB 2: the cable's or the port's wires for USB 3 have no contact.

What remains, transfers that the bridge stalls or does not answer and wrong bytes of its own memory, is the
bridge's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from sdk.telemetry.metrics import LOW_VOLTS
from usbgpu.stress.record import Incident, Record, Recovery
from usbgpu.transport import Speed

UNSTABLE = 5.0
"""Link errors a second from which on a link is unstable (field notes of 2026: hardware)."""


class Verdict(Enum):
    """The part to blame; the value is stable: scripts read it."""

    GOOD = "good"
    CABLE = "cable"
    PORT = "port"
    UNSTABLE_LINK = "unstable link"
    SUPPLY = "supply"
    CARD = "card"
    BRIDGE = "bridge"


ADVICE = {
    Verdict.CABLE: "try another cable, shorter and for 10 Gb/s",
    Verdict.PORT: "try another port of the computer, without a hub, and push the plug in fully",
    Verdict.UNSTABLE_LINK: "try another cable, then another port",
    Verdict.SUPPLY: "check the supply of dock and card: its rating, its plugs, the card's own connectors",
    Verdict.CARD: "check that the card sits in its slot and is cooled; then try another card",
    Verdict.BRIDGE: "`towline firmware info` shows what runs on the bridge; write its firmware again",
}
"""What to do next."""

CARDS = ("wrong-result", "kernel-failed", "too-hot")
WIRES = ("wire-failed", "bad-header", "bad-checksum", "bad-payload")


@dataclass(frozen=True, slots=True)
class LinkErrors:
    """The host controller's count of link errors.

    Attributes:
        before, after: the test; the counter has 16 bits and starts at 0 with every connection.
        seconds: between.
    """

    before: int
    after: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Of those that were counted meanwhile."""
        count = self.after - self.before if self.after >= self.before else self.after
        return count / self.seconds if self.seconds else 0.0


def judge(
    record: Record,
    *,
    of_card: bool,
    loaded: bool,
    speed: Speed | None,
    link_errors: LinkErrors | None,
    gone: bool,
) -> tuple[Verdict, tuple[str, ...]]:
    """The part to blame, and why.

    Args:
        record: of what happened.
        of_card: it was a card's memory; else the bridge's.
        loaded: kernels ran on it.
        speed: of the link; None if the device is gone.
        link_errors: None where they are not counted.
        gone: the device did not come back.
    """
    recovered = {each.at: each for each in record.recoveries}
    blamed = [
        (_blame(each, recovered.get(each.at), of_card=of_card, loaded=loaded), each)
        for each in record.incidents
    ]
    counts = Counter(verdict for verdict, _ in blamed)
    evidence = [_sentence(verdict, [each for one, each in blamed if one is verdict]) for verdict in counts]
    weak = False
    if record.lowest is not None and record.highest is not None:
        volts = f"{record.lowest.volts:.2f} to {record.highest.volts:.2f} V"
        reported = "reported a fault" if record.fault else "no fault"
        evidence.append(f"the supply gave {volts}, at the lowest {record.lowest.amperes:.2f} A; {reported}")
        weak = record.fault or record.lowest.volts < LOW_VOLTS
    if gone:
        evidence.append("the device did not work again after the last error")
    if link_errors is not None:
        rate = link_errors.per_second
        evidence.append(f"the host controller counts {rate:.2g} link errors a second")
        if rate > UNSTABLE and not counts[Verdict.SUPPLY] and not weak:
            return Verdict.UNSTABLE_LINK, tuple(evidence)
    if weak:
        return Verdict.SUPPLY, tuple(evidence)
    if counts:
        order = list(Verdict)
        worst = max(counts, key=lambda verdict: (counts[verdict], order.index(verdict)))
        return worst, tuple(evidence)
    if speed is not None and not speed.is_super:
        evidence.append("the link is at USB 2: its wires for USB 3 have no contact, or are not there")
        return Verdict.CABLE, tuple(evidence)
    return Verdict.GOOD, tuple(evidence)


def _blame(incident: Incident, recovery: Recovery | None, *, of_card: bool, loaded: bool) -> Verdict:
    if recovery is not None and (recovery.restarted or _without_power(recovery)):
        return Verdict.SUPPLY
    if recovery is not None and recovery.link_lost:
        return Verdict.SUPPLY if loaded else Verdict.CARD
    if incident.kind == "disconnected" or (recovery is not None and recovery.left_bus):
        return Verdict.PORT
    if incident.kind in WIRES or (incident.kind == "wrong-bytes" and incident.place != "memory"):
        return Verdict.CABLE
    if incident.kind in CARDS or (incident.kind == "wrong-bytes" and of_card):
        return Verdict.CARD
    if recovery is not None and recovery.state_lost:
        return Verdict.CARD
    return Verdict.BRIDGE


def _without_power(recovery: Recovery) -> bool:
    """Whether bridge and card were away together, where the bridge does not report that it started again."""
    return recovery.restarted is None and recovery.left_bus and bool(recovery.state_lost)


_WORDS = {
    Verdict.CABLE: "on the wire",
    Verdict.PORT: "in which the device left the bus, and came back as it was",
    Verdict.SUPPLY: "in which the bridge started again, or the PCIe link went down under load",
    Verdict.CARD: "of the card: wrong numbers or bytes, kernels that did not end, or a reset by itself",
    Verdict.BRIDGE: "of the bridge: it stalled, did not answer, or its memory has wrong bytes",
}


def _sentence(verdict: Verdict, incidents: Iterable[Incident]) -> str:
    kinds = Counter(f"{each.kind}, {each.place}" if each.place else each.kind for each in incidents)
    listed = "; ".join(f"{count} x {kind}" for kind, count in kinds.most_common(3))
    total = sum(kinds.values())
    return f"{total} error{'s' if total > 1 else ''} {_WORDS[verdict]} ({listed})"

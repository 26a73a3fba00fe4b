"""Faults that a user injects: `towline emulate --inject FAULT`.

    link-drop@5ms          the USB link drops at 5 ms and stays down
    link-drop@5ms+2ms      and trains again 2 ms later
    nak-storm@5ms+10ms     every endpoint answers NAK for 10 ms
    perst-stuck            PERST# stays asserted, even if the firmware releases it
    pcie-dead=1000-1fff    PCIe reads of these addresses never complete
    pcie-late=1000-1fff+9ms   they complete 9 ms late
    pcie-stale=1000-1fff+9ms  the same, and the completion arrives even if it was given up
    flash-flip=100.3       bit 3 of flash byte 0x100 is inverted
    power-cut@5ms          all power fails at 5 ms; an erase or program is left half done

Times take ns, us, ms or s, or are chip clocks without a unit; addresses are hexadecimal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from emulator.core.clock import clocks
from sdk.errors import UsageError

_UNITS = {"": None, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
TIME = r"(?:[0-9]{1,15}(?:\.[0-9]{1,15})?)(?:ns|us|ms|s)?"
"""A time as users write it: a regular expression."""
_RANGE = r"(?P<low>[0-9a-f]+)(?:-(?P<high>[0-9a-f]+))?"

FORMS = {
    "link-drop": rf"@(?P<at>{TIME})(?:\+(?P<length>{TIME}))?",
    "nak-storm": rf"@(?P<at>{TIME})\+(?P<length>{TIME})",
    "perst-stuck": "",
    "pcie-dead": rf"={_RANGE}",
    "pcie-late": rf"={_RANGE}\+(?P<length>{TIME})",
    "pcie-stale": rf"={_RANGE}\+(?P<length>{TIME})",
    "flash-flip": r"=(?P<low>[0-9a-f]+)\.(?P<bit>[0-7])",
    "power-cut": rf"@(?P<at>{TIME})",
}
"""Kinds of faults, and the form of what follows the name."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to inject.

    Attributes:
        kind: a key of FORMS.
        at: clock at which it begins, 0 for one that is there from power-on.
        length: clocks it lasts, or by which something is late; None for no end.
        low: first address.
        high: last address.
        bit: of the byte at `low`.
    """

    kind: str
    at: int = 0
    length: int | None = None
    low: int = 0
    high: int = 0
    bit: int = 0


def parse(text: str) -> Fault:
    """The fault that a user wrote.

    Raises:
        UsageError: no such fault, or not in the form it takes.
    """
    kind = re.match(r"[a-z-]*", text.lower()).group()  # type: ignore[union-attr]
    if kind not in FORMS:
        raise UsageError(
            f"there is no fault {kind or repr(text)} to inject", hint=f"faults: {', '.join(FORMS)}"
        )
    match = re.fullmatch(FORMS[kind], text.lower()[len(kind) :])
    if match is None:
        raise UsageError(
            f"{text!r} is not how {kind} is written",
            hint="examples: link-drop@5ms+2ms, nak-storm@5ms+10ms, pcie-late=1000-1fff+9ms, flash-flip=100.3",
        )
    part = match.groupdict()
    low = int(part.get("low") or "0", 16)
    high = int(part["high"], 16) if part.get("high") else low
    if high < low:
        raise UsageError(f"{text!r}: the range ends before it begins", hint="for example pcie-dead=1000-1fff")
    return Fault(
        kind,
        at=_clocks(part["at"]) if part.get("at") else 0,
        length=_clocks(part["length"]) if part.get("length") else None,
        low=low,
        high=high,
        bit=int(part.get("bit") or 0),
    )


def duration(text: str) -> int:
    """Clocks of a time as a user writes it: `5ms`, `0.2s`, or a number of clocks.

    Raises:
        UsageError: it is not a time.
    """
    if not re.fullmatch(TIME, text):
        raise UsageError(
            f"{text!r} is not a time", hint="for example 5ms, 20us, 1.5s, or a number of chip clocks"
        )
    return _clocks(text)


def _clocks(text: str) -> int:
    number = text.rstrip("nmus")
    unit = _UNITS[text[len(number) :]]
    return round(float(number)) if unit is None else clocks(float(number) * unit)

"""Faults that a user injects: `towline emulate --inject FAULT`, and `inject=FAULT,...` in a device string.

FORMS has all of them. Times take ns, us, ms or s, or are chip clocks without a unit, counted from power-on;
addresses are hexadecimal. What they do to a board is `emulator.injection`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from emulator.core.clock import clocks
from sdk.errors import UsageError

_UNITS = {"": None, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
TIME = r"(?:[0-9]{1,15}(?:\.[0-9]{1,15})?)(?:ns|us|ms|s)?"
"""A time as users write it: a regular expression."""
_RANGE = r"(?P<low>[0-9a-f]+)(?:-(?P<high>[0-9a-f]+))?"

_AT = rf"@(?P<at>{TIME})"
_FROM_TO = rf"{_AT}\+(?P<length>{TIME})"
_PERHAPS_TO = rf"{_AT}(?:\+(?P<length>{TIME}))?"
_VOLTS = r"(?:=(?P<volts>[0-9]{1,2}(?:\.[0-9]{1,3})?)v)?"
_NUMBER = r"@(?P<number>[1-9][0-9]{0,8})"
_CHANCE = r"=(?P<chance>(?:0?\.[0-9]{1,12}|1(?:\.0*)?|[1-9](?:\.[0-9]{1,6})?e-[0-9]{1,2}))"


@dataclass(frozen=True, slots=True)
class Form:
    """How a fault is written, and what it does.

    Attributes:
        pattern: regular expression of what follows the name.
        example: a whole fault.
        effect: in words.
        card: whether it takes a GPU.
        torment: one of about the usual severity, which passes; "" if it lasts, or ends the emulation.
    """

    pattern: str
    example: str
    effect: str
    card: bool = False
    torment: str = ""


FORMS = {
    "link-drop": Form(
        _PERHAPS_TO,
        "link-drop@5ms+2ms",
        "the USB link drops at 5 ms and trains again 2 ms later (without `+2ms`: stays down)",
        torment="link-drop@1ms+20ms",
    ),
    "unplug": Form(
        _PERHAPS_TO,
        "unplug@1s+10s",
        "the cable is pulled at 1 s, and plugged in 10 s later (without `+10s`: never)",
        torment="unplug@1ms+300ms",
    ),
    "nak-storm": Form(
        _FROM_TO, "nak-storm@5ms+10ms", "every endpoint answers NAK for 10 ms", torment="nak-storm@1ms+20ms"
    ),
    "bulk-error": Form(
        _NUMBER, "bulk-error@7", "the 7th bulk transfer breaks off half-way (EIO)", torment="bulk-error@3"
    ),
    "bulk-stall": Form(
        _NUMBER, "bulk-stall@7", "the 7th bulk transfer is answered with STALL", torment="bulk-stall@3"
    ),
    "bulk-timeout": Form(
        _NUMBER, "bulk-timeout@7", "the 7th bulk transfer is never taken (NAK)", torment="bulk-timeout@3"
    ),
    "bit-flip": Form(
        _NUMBER + r"(?:=(?P<byte>[0-9a-f]{1,8})\.(?P<bit>[0-7]))?",
        "bit-flip@7",
        "a bit of the 7th bulk transfer (in the middle of an OUT one) is inverted, and no CRC notices; with "
        "`=1f4.3` behind it, bit 3 of byte 0x1f4, in the first transfer from there on that has one",
    ),
    "bad-cable": Form(
        _CHANCE,
        "bad-cable=1e-4",
        "each bulk transfer breaks off half-way (EIO) with that probability, in every run at the same ones",
    ),
    "host-stop": Form(
        _FROM_TO,
        "host-stop@1s+2s",
        "the host's program stands still for 2 s, as after SIGSTOP; the devices do not",
        torment="host-stop@1ms+500ms",
    ),
    "bridge-reset": Form(
        _AT,
        "bridge-reset@1s",
        "the bridge's CPU starts again; its firmware resets the card",
        torment="bridge-reset@1ms",
    ),
    "supply-sag": Form(
        _FROM_TO + _VOLTS,
        "supply-sag@1s+300ms",
        "bridge and card are without power for 300 ms; with `=10.5V` behind it the supply gives that voltage "
        "without load, and what it feeds runs on, as long as 9 V are left of it",
        torment="supply-sag@1ms+300ms",
    ),
    "supply-fault": Form(
        _PERHAPS_TO,
        "supply-fault@1s+300ms",
        "the dock's supply reports a fault for 300 ms (without `+300ms`: from then on); nothing else happens",
        torment="supply-fault@1ms+300ms",
    ),
    "no-sensor": Form("", "no-sensor", "no sensor of the dock's supply answers on the I2C bus"),
    "perst-stuck": Form("", "perst-stuck", "PERST# stays asserted, even if the firmware releases it"),
    "pcie-drop": Form(
        _PERHAPS_TO,
        "pcie-drop@1s+50ms",
        "the PCIe link goes down at 1 s, which resets the card, and may train again 50 ms later "
        "(without `+50ms`: after PERST# or a power cycle)",
        torment="pcie-drop@1ms+50ms",
    ),
    "pcie-lanes": Form(
        r"=(?P<count>[124])",
        "pcie-lanes=2",
        "the PCIe link does not train with more than 2 lanes: it stays in Configuration",
    ),
    "pcie-rate": Form(
        r"=(?P<count>[1-4])",
        "pcie-rate=2",
        "the PCIe link does not hold a rate above that of Gen2: 20 ms later it trains again",
    ),
    "link-width": Form(
        rf"{_PERHAPS_TO}=(?P<count>[12])",
        "link-width@320ms+50ms=1",
        "the PCIe link goes on with 1 lane at 320 ms, and with all 50 ms later (without `+50ms`: when it "
        "trains again)",
        torment="link-width@1ms+50ms=1",
    ),
    "pcie-dead": Form(rf"={_RANGE}", "pcie-dead=1000-1fff", "PCIe reads of these addresses never complete"),
    "pcie-late": Form(
        rf"={_RANGE}\+(?P<length>{TIME})", "pcie-late=1000-1fff+9ms", "they complete 9 ms late"
    ),
    "pcie-stale": Form(
        rf"={_RANGE}\+(?P<length>{TIME})",
        "pcie-stale=1000-1fff+90ms",
        "the same, and the completion arrives even if the firmware gave up the request",
    ),
    "card-reset": Form(
        _AT,
        "card-reset@1s",
        "the card resets itself: it is away for 0.2 s, link and addresses stay, the rest is lost",
        card=True,
        torment="card-reset@1ms",
    ),
    "kernel-hang": Form(
        rf"@(?:(?P<number>[1-9][0-9]{{0,8}})|(?P<at>{TIME}))",
        "kernel-hang@5",
        "the 5th dispatch never ends; with a time as in `kernel-hang@20ms`, the first one from then on",
        card=True,
        torment="kernel-hang@2",
    ),
    "heat": Form(
        rf"{_FROM_TO}(?:=(?P<amount>[1-9][0-9]?|100))?",
        "heat@1s+3s",
        "the card's sensors report 100 degrees more for 3 s (with `=70`: 70 degrees); several add up",
        card=True,
        torment="heat@1ms+2s",
    ),
    "flash-flip": Form(
        r"=(?P<low>[0-9a-f]+)\.(?P<bit>[0-7])", "flash-flip=100.3", "bit 3 of flash byte 0x100 is inverted"
    ),
    "power-cut": Form(
        _AT,
        "power-cut@5ms",
        "all power fails and the run ends; an erase or program under way stays half done",
    ),
}
"""By kind."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to inject.

    Attributes:
        kind: a key of FORMS.
        at: clock at which it begins, 0 for one that is there from power-on.
        number: of the transfer or dispatch that it strikes, from 1; 0 if it is not struck by number.
        length: clocks it lasts, or by which something is late; None for no end.
        low: first address.
        high: last address.
        bit: of the byte at `low`, or of `byte`.
        byte: of a transfer; None for one in its middle.
        chance: probability with which it strikes a transfer; 0 if it is not struck by chance.
        volts: that are left; None for none.
        count: of lanes, or a generation; 0 if it has none.
        amount: of what it adds; 0 if nothing was said.
        text: as the user wrote it.
    """

    kind: str
    at: int = 0
    number: int = 0
    length: int | None = None
    low: int = 0
    high: int = 0
    bit: int = 0
    chance: float = 0.0
    volts: float | None = None
    count: int = 0
    amount: int = 0
    byte: int | None = None
    text: str = field(default="", compare=False)


def parse(text: str) -> Fault:
    """The fault that a user wrote.

    Raises:
        UsageError: no such fault, or not in the form it takes.
    """
    kind = re.match(r"[a-z-]*", text.lower()).group()  # type: ignore[union-attr]
    if kind not in FORMS:
        raise UsageError(
            f"there is no fault {kind or repr(text)} to inject",
            hint=f"faults: {', '.join(FORMS)}; for example {FORMS['link-drop'].example}",
        )
    match = re.fullmatch(FORMS[kind].pattern, text.lower()[len(kind) :])
    if match is None:
        raise UsageError(f"{text!r} is not how {kind} is written", hint=f"for example {FORMS[kind].example}")
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
        number=int(part.get("number") or 0),
        chance=float(part.get("chance") or 0.0),
        volts=float(part["volts"]) if part.get("volts") else None,
        count=int(part.get("count") or 0),
        amount=int(part.get("amount") or 0),
        byte=int(part["byte"], 16) if part.get("byte") else None,
        text=text,
    )


def parse_list(text: str) -> tuple[Fault, ...]:
    """Faults joined by commas. Raises UsageError as `parse` does."""
    return tuple(map(parse, text.split(",")))


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

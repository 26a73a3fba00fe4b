"""How an emulated board is set up, and the device strings that say so."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from emulator import faults as injected
from emulator import injection, poke
from emulator.faults import Fault
from emulator.model import CHOICES, DEFAULT, Model
from emulator.pcie.function import PcieFunction
from emulator.pcie.ports import USUAL, Slot
from emulator.poke import Poke
from emulator.usb.wire import Speed
from firmware.asm2464pd.registers import ASM2464PD
from sdk.errors import UsageError
from usbgpu.amd.facts import disputes as of_card

SERIAL = bytes.fromhex("00c0ffee")
"""Serial number in the OTP page of an emulated board."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a board is set up.

    Attributes:
        port: the fastest that the USB port does; None for no cable.
        strict: an unmodelled or guessed access stops the run.
        strap: the boot loader's strap pin is held at power-on.
        fallback: the boot loader runs if the flash holds no valid image (inferred).
        guards: names of `emulator.mcs51.core.GUARDS`.
        faults: to inject.
        pokes: bytes that are changed.
        behaviour: a file of functions that stand in for registers.
        flash: a file that keeps the flash chip's contents between runs.
        serial: serial number in the OTP page of a flash chip that is new.
        function: what is on PCIe bus 4; what `gpu` says if None.
        gpu: name of the emulated AMD card on PCIe bus 4, such as `gfx1100`; a plain test endpoint if empty.
        vram: bytes of its memory; as much as the real one has if None.
        slot: what the card in the slot can do on its link.
        sensor: a sensor of the supply is on the I2C bus.
        supply: watts of the supply of bridge and card; None for one that is always enough.
        model: which of contradicting facts are followed.
    """

    port: Speed | None = Speed.SUPER_PLUS
    strict: bool = False
    strap: bool = False
    fallback: bool = True
    guards: frozenset[str] = frozenset()
    faults: tuple[Fault, ...] = ()
    pokes: tuple[Poke, ...] = ()
    behaviour: Path | None = None
    flash: Path | None = None
    serial: bytes = SERIAL
    function: PcieFunction | None = field(default=None, compare=False)
    gpu: str = ""
    vram: int | None = None
    slot: Slot = USUAL
    sensor: bool = True
    supply: float | None = None
    model: Model = DEFAULT


def described(spec: str) -> tuple[str, Options]:
    """The board that a device string describes: its image, "" if it names none, and how it is set up.

    Args:
        spec: `emulated`, or `emulated:IMAGE` for another image. Behind a question mark, joined by `&`:
            `speed=high`, `speed=super` or `speed=super-plus` for the fastest that the port does, `strap` for
            the boot loader's strap, `serial=0000000a` for its serial number, `gpu=gfx1100` (or another of
            `CHIPS`) for an AMD card on PCIe bus 4, `vram=512M` or such for the size of its memory, `lanes=2`
            and `gen=3` for the lanes and the generation that the card has on PCIe, `supply=100W` or such for
            the power that card and bridge may draw (see `emulator.board.OVERLOAD`), `no-sensor` for a dock
            without a sensor of its supply, `strict`, `poke=xdata:c6b3=30@100ms` (several times, if need be),
            `behaviour=FILE.py` and `inject=FAULT,...` as `towline emulate` has them, and `super-plus-code=2`
            and such for a choice between contradicting facts.

    Raises:
        UsageError: an unknown option.
    """
    place, _, query = spec.partition("?")
    _, _, name = place.partition(":")
    options = Options()
    choices = []
    for option in filter(None, query.split("&")):
        match option.split("=", 1):
            case "speed", ("high" | "super" | "super-plus") as speed:
                options = replace(options, port=Speed[speed.upper().replace("-", "_")])
            case ["strap"]:
                options = replace(options, strap=True)
            case "serial", number:
                options = replace(options, serial=_serial(number))
            case "gpu", gpu if gpu:
                options = replace(options, gpu=gpu)
            case "vram", size:
                options = replace(options, vram=memory_size(size))
            case "lanes", ("1" | "2" | "4" | "8" | "16") as lanes:
                options = replace(options, slot=replace(options.slot, lanes=int(lanes)))
            case "gen", ("1" | "2" | "3" | "4") as generation:
                options = replace(options, slot=replace(options.slot, generation=int(generation)))
            case ["no-sensor"]:
                options = replace(options, sensor=False)
            case "supply", watts:
                options = replace(options, supply=supply_watts(watts))
            case ["strict"]:
                options = replace(options, strict=True)
            case "poke", change:
                options = replace(options, pokes=(*options.pokes, poke.parse(change, ASM2464PD)))
            case "behaviour", file if file:
                options = replace(options, behaviour=Path(file))
            case "inject", faults:
                options = replace(options, faults=(*options.faults, *injected.parse_list(faults)))
            case choice, _ if choice in CHOICES:
                choices.append(option)
            case _:
                raise UsageError(
                    f"no emulated board has the option {option!r}",
                    hint="options: speed=high, speed=super, speed=super-plus, strap, serial=DIGITS, "
                    "gpu=NAME, vram=SIZE, lanes=1 to 16, gen=1 to 4, supply=100W, no-sensor, strict, "
                    "poke=CHANGE, behaviour=FILE.py, inject=FAULT, "
                    + ", ".join(f"{choice}=" for choice in CHOICES),
                )
    if options.vram is not None and not options.gpu:
        raise UsageError("vram= needs a GPU", hint="add gpu=gfx1100")
    if options.supply is not None and not options.gpu:
        raise UsageError("supply= needs a GPU", hint="add gpu=gfx1100")
    for fault in options.faults:
        injection.check(fault, gpu=bool(options.gpu))
    options = replace(options, model=Model.of(choices))
    check_model(options)
    return name, options


def check_model(options: Options) -> None:
    """Refuse choices about a card that is not there. Raises UsageError."""
    for dispute in of_card.DISPUTES:
        if dispute.name in options.model.chosen and not options.gpu:
            raise UsageError(f"{dispute.name}= is about the GPU", hint="add one, such as gfx1100")


def _serial(text: str) -> bytes:
    """Of up to eight hexadecimal digits."""
    if not re.fullmatch(r"[0-9a-fA-F]{1,8}", text):
        raise UsageError(
            f"{text!r} is not a serial number", hint="one to eight hexadecimal digits: serial=a1"
        )
    return int(text, 16).to_bytes(4, "big")


def supply_watts(text: str) -> float:
    """Watts of a supply, as `100W`. Raises UsageError: it is not a power."""
    match = re.fullmatch(r"([1-9][0-9]{0,3})W", text)
    if match is None:
        raise UsageError(f"{text!r} is not the power of a supply", hint="for example 100W")
    return float(match[1])


def memory_size(text: str) -> int:
    """Bytes of a size with the unit M or G, as `512M`.

    Raises:
        UsageError: it is not one.
    """
    number, unit = text[:-1], text[-1:]
    if unit not in ("M", "G") or not (number.isascii() and number.isdecimal()) or len(number) > 6:
        raise UsageError(f"{text!r} is not a size of memory", hint="for example 512M or 16G")
    return int(number) << (20 if unit == "M" else 30)

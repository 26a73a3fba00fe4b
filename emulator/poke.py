"""Bytes of the chip that a user changes, to try an idea: `towline emulate --poke WHAT`.

    xdata:c6b3=30              from power-on on the byte reads 30, until something changes it
    xdata:c6b3=30@100ms        it becomes 30 at 100 ms
    xdata:c6b3=30:always       the CPU reads 30, whatever is written
    phy:2805=01@2ms:always     the same from 2 ms on, of the PHY plane
    PCIE_LTSSM=78@50ms         a register by its name

Addresses and values are hexadecimal. A value of several bytes goes to successive addresses, that of a
register by name to its bytes in their order. A poke changes storage as a block does; what a write by the CPU
would start does not happen. Times are those of `emulator.faults`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from emulator.core.bus import Bus, Override
from emulator.faults import TIME, duration
from firmware.asm2464pd.describe import SPACE_SIZE, Map, Space
from sdk.errors import UsageError
from sdk.suggestions import did_you_mean

SPACES = {"xdata": Space.XDATA, "phy": Space.PHY}
"""The spaces that the CPU reaches by MOVX."""
EXAMPLES = "xdata:c6b3=30@100ms, xdata:c6b3=30:always, PCIE_LTSSM=78"
_FORM = re.compile(
    rf"(?P<place>[a-z0-9_:]+)=(?:0x)?(?P<value>[0-9a-f]{{1,16}})(?:@(?P<at>{TIME}))?(?P<always>:always)?",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?P<space>\w+):(?:0x)?(?P<address>[0-9a-f]{1,4})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Poke:
    """A change of some bytes.

    Attributes:
        space: where.
        address: of the first byte.
        data: what the bytes become.
        at: clock at which.
        always: from then on the CPU reads them so, whatever is written.
    """

    space: Space
    address: int
    data: bytes
    at: int = 0
    always: bool = False

    def begin(self, bus: Bus) -> None:
        """Have it happen at its clock."""
        bus.clock.at(self.at, functools.partial(self._apply, bus))

    def _apply(self, bus: Bus) -> None:
        bus.poke(self.space, self.address, self.data)
        if self.always:
            for address, value in enumerate(self.data, self.address):
                bus.override(self.space, address, Override(functools.partial(_fixed, value), _written))


def parse(text: str, facts: Map) -> Poke:
    """The poke that a user wrote.

    Raises:
        UsageError: it is not in the form of one, or names nothing of the chip.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not how a poke is written", hint=f"examples: {EXAMPLES}")
    digits, at = match["value"], match["at"]
    space, address, size = place(match["place"], facts)
    if size is None:
        data = bytes.fromhex(digits.zfill(len(digits) + 1 & ~1))
        if address + len(data) > SPACE_SIZE[space]:
            raise UsageError(f"{text!r} goes beyond the end of {space.value}")
    else:
        number = int(digits, 16)
        if number >> 8 * size:
            raise UsageError(f"{text!r}: {number:#x} does not fit the register, which has {size} bytes")
        register = facts[match["place"].upper()]
        data = number.to_bytes(size, "little" if register.little else "big")
    return Poke(space, address, data, duration(at) if at else 0, bool(match["always"]))


def place(text: str, facts: Map) -> tuple[Space, int, int | None]:
    """The bytes that a user named: space, first address, and the size of the register, None for an address.

    Raises:
        UsageError: there is no such register or space.
    """
    if match := _ADDRESS.fullmatch(text):
        space = SPACES.get(match["space"].lower())
        if space is None:
            raise UsageError(
                f"{text!r}: there is no space {match['space']!r}", hint=f"spaces: {', '.join(SPACES)}"
            )
        return space, int(match["address"], 16), None
    names = {register.name: register for register in facts if register.space in SPACES.values()}
    register = names.get(text.upper())
    if register is None:
        raise UsageError(
            f"the chip has no register {text!r}",
            hint=did_you_mean(text.upper(), names)
            or "name one of docs/asm2464pd.md, or an address: xdata:c6b3",
        )
    return register.space, register.address, register.size


def _fixed(value: int, model: int) -> int:
    return value


def _written(value: int) -> int:
    return value

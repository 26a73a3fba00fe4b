"""A check: a line of the suite, and what it needs of a device.

A check is a name, the section of the suite it belongs to, what the specification or the contract says, what
it needs, and a function that raises `Failed` if the device breaks that rule. A device error that the function
does not handle is a failure too. A device without what a check needs has it skipped, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from usbgpu.conform import pcie
from usbgpu.conform.bench import Bench
from usbgpu.transport import Running
from usbgpu.transport.identity import MASS_STORAGE, OPEN_FIRMWARE

VENDOR_CLASS = 0xFF


class Need(Enum):
    """What a check may need; the value completes "needs ..."."""

    SUPER = "a SuperSpeed link"
    HIGH = "a High Speed link"
    VENDOR = "firmware that answers the vendor requests on EP0"
    LISTS = "firmware that runs command lists"
    SUPPLY = "firmware of API level 1.1 or later"
    STORAGE = "mass-storage firmware"
    SANDBOX = "an emulated device: it would disturb the system, or the card in the slot"
    ENDPOINT = "the emulator's PCIe test endpoint on bus 4"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the suite.

    Attributes:
        section: the heading that it is listed under.
        name: unique within the suite.
        says: the rule, with its source.
        function: runs it; raises Failed.
        needs: what the device must have.
    """

    section: str
    name: str
    says: str
    function: Callable[[Bench], None]
    needs: frozenset[Need] = frozenset()


@dataclass(slots=True)
class Section:
    """A part of the suite, filled by its decorator: `@section("name", "what the rule says", Need.SUPER)`.

    Attributes:
        name: the heading.
        needs: of every check in it.
        checks: in order of declaration.
    """

    name: str
    needs: frozenset[Need] = frozenset()
    checks: list[Check] = field(default_factory=list)

    def __call__(
        self, name: str, says: str, *needs: Need
    ) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
        """Declare the function below to be a check."""

        def declare(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
            self.checks.append(Check(self.name, name, says, function, self.needs | frozenset(needs)))
            return function

        return declare


def lacking(bench: Bench, needs: frozenset[Need]) -> Need | None:
    """The first need that the device on a bench does not fulfil."""
    return next((need for need in Need if need in needs and not _has(bench, need)), None)


def _has(bench: Bench, need: Need) -> bool:
    device, identity = bench.device, bench.identity
    match need:
        case Need.SUPER:
            return device.speed.is_super
        case Need.HIGH:
            return bench.high
        case Need.VENDOR:
            ids = (identity.vendor, identity.product_id)
            return ids in OPEN_FIRMWARE and identity.interface_class == VENDOR_CLASS
        case Need.LISTS:
            return identity.running is Running.OURS and identity.api_level is not None
        case Need.SUPPLY:
            return identity.running is Running.OURS and (identity.api_level or 0) >= 0x0101
        case Need.STORAGE:
            return identity.interface_class == MASS_STORAGE
        case Need.SANDBOX:
            return device.is_emulated
        case Need.ENDPOINT:
            return device.is_emulated and _has(bench, Need.VENDOR) and pcie.has_endpoint(bench)
    raise AssertionError(need)

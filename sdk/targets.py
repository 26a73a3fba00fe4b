"""The targets that are installed, and the devices that they open.

A target package registers an object under the entry point group `towline.targets`: name -> zero-argument
callable giving a `sdk.target.Target`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sdk import settings
from sdk.entries import entries
from sdk.errors import UsageError
from sdk.suggestions import did_you_mean
from sdk.target import CapsPower, Device, OpenOptions, Target, VerifiesTransfers

GROUP = "towline.targets"
EMULATED = "emulated"
"""The device string that every target knows, and what a session opens by default."""


def target_names() -> list[str]:
    """The names of all installed targets, sorted."""
    return sorted({entry.name for entry in entries(GROUP)})


def get_target(name: str) -> Target:
    """Look a target up by its registry name.

    Raises:
        UsageError: no installed package registers it.
    """
    for entry in entries(GROUP):
        if entry.name == name:
            target: Target = entry.load()()
            return target
    names = target_names()
    for other in map(get_target, names):
        if name in other.later_parts:
            raise UsageError(
                f"no target named {name!r}: these parts run the code of {other.name}",
                hint=f"use --target {other.name}",
            )
    known = f"known targets: {', '.join(names) or 'none installed'}"
    raise UsageError(
        f"no target named {name!r}", hint="; ".join(filter(None, [did_you_mean(name, names), known]))
    )


def open_device(name: str, device: str | None, options: OpenOptions = OpenOptions()) -> Device:
    """Open a device of a target; as `Target.open`, but the error names the targets that have such a device.

    Raises:
        UsageError: no installed package registers the target, or it has no such device.
        DeviceMissing, ToolMissing: as `Target.open`.
    """
    target = get_target(name)
    if options.power_cap is not None and not isinstance(target, CapsPower):
        raise UsageError(f"the devices of {name} take no power cap", hint="leave it out; amd-* takes one")
    if options.verify_transfers and not isinstance(target, VerifiesTransfers):
        raise UsageError(
            f"no cable is between {name} and this machine: there are no transfers to verify",
            hint="leave --verify-transfers out; it is for amd-*",
        )
    require_device(name, device)
    return target.open(device, options)


def require_device(name: str, device: str | None) -> None:
    """Refuse a kind of device that a target has not, without opening it.

    Raises:
        UsageError: no installed package registers the target, or it has no such device.
    """
    kinds, kind = get_target(name).device_kinds, _kind(device)
    if kind in kinds or kind == EMULATED:
        return
    others = [other for other in target_names() if kind in get_target(other).device_kinds]
    message = f"{device!r} is not a device of {name}, which the network is compiled for"
    if others:
        message += f": {kind} belongs to {', '.join(others)}"
    raise UsageError(
        message, hint=f"devices of {name}: {', '.join(kinds)}; `towline devices` lists those available"
    )


def is_emulated(name: str, device: str | None) -> bool:
    """Whether a device is emulated, so that its time is the emulator's; of a target as `get_target`."""
    return _kind(device) == EMULATED and EMULATED in get_target(name).device_kinds


def chosen_device(name: str, device: str | None) -> str:
    """The device string in use: as given, else the environment's, else the target's first kind."""
    kinds, found = get_target(name).device_kinds, device or settings.DEVICE.value() or EMULATED
    return kinds[0] if found == EMULATED and EMULATED not in kinds else found


def is_shareable(device: str | None) -> bool:
    """Whether several processes may open a device side by side: an emulated one, or the host itself."""
    return _kind(device) in (EMULATED, "host")


def _kind(device: str | None) -> str:
    """What a device string begins with: "usb" of "usb:SERIAL", "emulated" of "emulated?gpu=gfx1100"."""
    return (device or EMULATED).partition("?")[0].partition(":")[0]


def devices(target: str | None = None) -> dict[str, Sequence[tuple[str, str]]]:
    """The devices that can be opened here and now: (device string, description) by target.

    Args:
        target: a name of `target_names()`; all of them by default.

    Raises:
        UsageError: no installed package registers it.
    """
    return {name: get_target(name).devices() for name in ([target] if target else target_names())}

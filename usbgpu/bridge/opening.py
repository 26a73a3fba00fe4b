"""From a device string to a bridge: what runs there, how it is driven, and what to do if it cannot be.

Opening takes four transfers: the device descriptor, the product string, a bus reset, and list mode. The reset
is for what an earlier program may have left: it disarms the slot DMA, which would swallow the first list, and
restarts the endpoints' packet sequences on both sides. PCIe does not notice it.
"""

from __future__ import annotations

import logging
import struct
from dataclasses import dataclass

from firmware.protocol.commands import API_LEVEL
from sdk.errors import DeviceFailed
from usbgpu import transport as transports
from usbgpu.bridge.compatible import CompatibleBridge
from usbgpu.bridge.lists import ListBridge
from usbgpu.bridge.seam import Bridge
from usbgpu.transport import Disconnected, Identity, Running, Transport
from usbgpu.transport.identity import MASS_STORAGE, OPEN_FIRMWARE, OUR_MANUFACTURER, OUR_PRODUCT, classify

log = logging.getLogger(__name__)

RETRY_INTERVAL = 0.1
"""Seconds after which a bridge that does not answer is tried again."""
FLASH = "`towline firmware build -o bridge.bin`, then `towline firmware flash bridge.bin --device usb`"
"""What puts our firmware onto a bridge."""
DRIVEN = (Running.OURS, Running.COMPATIBLE)

_REFUSALS = {
    Running.MAKERS: "it runs the maker's firmware, which shows a disk and no PCIe bus",
    Running.LOADER: "the mask ROM's boot loader runs: no firmware in its flash boots, or a strap is held",
    Running.UNKNOWN: "what runs on it is neither our firmware nor a compatible one",
}


class FirmwareUnsuitable(DeviceFailed):
    """The firmware on the bridge gives no access to PCIe, or not by a known protocol."""

    code = "firmware-unsuitable"


@dataclass(frozen=True, slots=True)
class BridgeReport:
    """What is plugged in, for a user.

    Attributes:
        identity: of the device.
        has_lists: command lists work: it runs our firmware, at an API level that we know.
        link_up: the PCIe link is up; None if the firmware cannot report it.
        problem: why no card can be driven through it; "" if one can.
        advice: what to do next; "" for nothing.
    """

    identity: Identity
    has_lists: bool
    link_up: bool | None
    problem: str
    advice: str


def open(device: str | None = None, *, lists: bool = True) -> Bridge:
    """Open a bridge.

    Args:
        device: a device string; None for TOWLINE_DEVICE, or `emulated`.
        lists: as in `attach`.

    Raises:
        FirmwareUnsuitable: no card can be driven through what runs there.
        UsageError, DeviceMissing, EnvironmentMissing, DeviceFailed: as `usbgpu.transport.open`.
    """
    transport = transports.open(device)
    try:
        return attach(transport, lists=lists)
    except BaseException:
        transport.close()
        raise


def attach(transport: Transport, *, lists: bool = True) -> Bridge:
    """The bridge at the other end of a transport, which closes with it.

    Args:
        transport: just opened.
        lists: use command lists if the firmware has them; otherwise only the requests that all have.

    Raises:
        FirmwareUnsuitable: no card can be driven through what runs there.
        DeviceFailed: it does not answer as a USB device must.
    """
    return ListBridge(transport) if _ready(transport, lists) else CompatibleBridge(transport)


def renew(bridge: Bridge, seconds: float) -> bool:
    """Go on with a bridge after any failure, as `again`, until its PCIe link is up.

    What runs behind it is left alone where the link is up.

    Args:
        bridge: one of `attach`.
        seconds: to wait at most for a device that is away, and then for the link: `BaseBridge.bring_up`.

    Returns:
        Whether no other program can have used the device meanwhile.

    Raises:
        FirmwareUnsuitable: another firmware runs there now.
        DeviceFailed, DeviceMissing: it does not come back, does not answer, or the link stays down.
    """
    driven, end = _driven(bridge), bridge.clock.now() + seconds
    stayed = again(driven, seconds)
    driven.bring_up(max(0.0, end - bridge.clock.now()))
    return stayed


def again(bridge: Bridge, seconds: float) -> bool:
    """Go on with a bridge after any failure, also if it is away and comes back; whatever its PCIe link does.

    Args:
        bridge: one of `attach`.
        seconds: to wait at most for a device that is away.

    Returns:
        Whether no other program can have used the device meanwhile.

    Raises:
        FirmwareUnsuitable: another firmware runs there now.
        DeviceFailed, DeviceMissing: it does not come back, or does not answer.
    """
    driven, end = _driven(bridge), bridge.clock.now() + seconds
    transport = driven.transport
    place = transport.place
    while True:
        try:
            if _ready(transport, driven.has_lists) is not driven.has_lists:
                raise FirmwareUnsuitable("another firmware runs there now", where=bridge.name, hint=FLASH)
            driven.resume()
            return transport.place == place
        except FirmwareUnsuitable:
            raise
        except DeviceFailed as problem:
            left = end - bridge.clock.now()
            if left <= 0:
                raise
            if isinstance(problem, Disconnected):
                transport.reopen(left)
            else:
                log.info("once more: %s", problem)
                bridge.clock.sleep(RETRY_INTERVAL)


def _driven(bridge: Bridge) -> ListBridge | CompatibleBridge:
    if not isinstance(bridge, ListBridge | CompatibleBridge):
        raise DeviceFailed("this bridge cannot be opened again", where=bridge.name)
    return bridge


def _ready(transport: Transport, lists: bool) -> bool:
    """Recognise what runs there, and reset it. Returns whether it has lists; raises as `attach`."""
    running, level = _recognised(transport)
    uses_lists = lists and running is Running.OURS
    if problem := _problem(running, level if uses_lists else None):
        raise FirmwareUnsuitable(problem, where=transport.name, hint=FLASH)
    try:
        transport.reset()
    except Disconnected:  # it came back at another speed, and is another device to the system
        transport.reopen()
    return uses_lists


def describe(transport: Transport) -> BridgeReport:
    """Ask a device what it is, and change nothing.

    Raises:
        DeviceFailed: it does not answer as a USB device must.
    """
    found = transport.identify()
    problem = _problem(found.running, found.release if found.running is Running.OURS else None)
    link_up = None
    if found.running in DRIVEN:
        link_up = CompatibleBridge(transport).link_up
    advice = ""
    if problem or found.running is Running.COMPATIBLE:
        advice = FLASH
    elif not found.speed.is_super:
        advice = "plug it into a USB 3 port, with a USB 3 cable: it is ten times as fast there"
    return BridgeReport(found, found.running is Running.OURS and not problem, link_up, problem, advice)


def _recognised(transport: Transport) -> tuple[Running, int]:
    """What runs on a device, and its bcdDevice; as `identity.identify`, with fewer requests."""
    raw = transport.descriptor(1, 0, 18)
    if len(raw) == 18 and raw[1] == 1 and transport.interface_class != MASS_STORAGE:
        vendor, product_id, release, _, product_index, _ = struct.unpack_from("<HHHBBB", raw, 8)
        if (vendor, product_id) in OPEN_FIRMWARE:
            product = transport.string(product_index) or ""
            manufacturer = OUR_MANUFACTURER if product == OUR_PRODUCT else ""  # unique to ours
            return classify(vendor, product_id, manufacturer, product, "", transport.interface_class), release
    found = transport.identify()
    return found.running, found.release


def _problem(running: Running, level: int | None) -> str:
    """Why the firmware on a bridge cannot be used; `level` is the API's, None if that does not matter."""
    if running not in DRIVEN:
        return _REFUSALS[running]
    if level is None or level >> 8 == API_LEVEL >> 8:
        return ""
    return (
        f"its firmware has API level {level >> 8}.{level & 0xFF}; "
        f"this program speaks {API_LEVEL >> 8}.{API_LEVEL & 0xFF}"
    )

"""`towline firmware info`: which board is connected, what runs on it, its flash chip; nothing is changed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sdk import settings
from sdk.errors import DeviceFailed, Unsupported
from sdk.report import Console, Result, table

if TYPE_CHECKING:
    from usbgpu.transport import Identity, Transport

SUMMARY = "show a board: ids, serial number, what runs on it, its PCIe link and its flash chip"
EXAMPLE = """towline firmware info
towline firmware info --device usb:port=2-1.4 --json
towline firmware info --device 'emulated?strap'"""


def add_board(parser: argparse.ArgumentParser) -> None:
    """Declare --device, of a board."""
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="usb, usb:SERIAL, usb:port=2-1.4, emulated, emulated?strap (default: "
        f"{settings.DEVICE.name}, else emulated)",
    )


def configure(parser: argparse.ArgumentParser) -> None:
    add_board(parser)


def run(args: argparse.Namespace, console: Console) -> Result:
    from usbgpu import transport as transports
    from usbgpu.transport import Running

    with transports.open(args.device) as device:
        found = device.identify()
        document = {"device": device.name, "place": device.place, **identity_document(found)}
        document |= {"health": None, "flash": None, "flash_problem": None}
        try:
            if found.running in (Running.OURS, Running.COMPATIBLE):
                document |= _through_registers(device, found)
            elif found.running in (Running.MAKERS, Running.LOADER):
                document["flash"] = _through_commands(device)
        except (DeviceFailed, Unsupported) as problem:
            document["flash_problem"] = str(problem)
    return Result(document, _text(document))


def identity_document(found: Identity) -> dict[str, Any]:
    """What is known of a board, as plain values."""
    level = found.api_level
    return {
        "running": found.running.value,
        "usb": f"{found.vendor:04x}:{found.product_id:04x}",
        "release": found.release,
        "manufacturer": found.manufacturer,
        "product": found.product,
        "serial": found.serial,
        "api_level": None if level is None else f"{level >> 8}.{level & 0xFF}",
        "build": None if found.build is None else f"{found.build:08x}",
        "speed": found.speed.value,
    }


def in_short(found: Identity) -> str:
    """What runs, its serial number and build."""
    parts = [found.running.value]
    if found.serial:
        parts.append(f"serial {found.serial}")
    if found.build is not None:
        parts.append(f"build {found.build:08x}")
    return ", ".join(parts)


def _through_registers(device: Transport, found: Identity) -> dict[str, Any]:
    """Of a firmware that answers E4 and E5: its state, and the flash chip's identification and status."""
    from firmware.asm2464pd.spi import SpiStatus
    from usbgpu.bridge import health
    from usbgpu.flash.spi import SpiFlash

    now = health.ask(device, found.running)
    known: dict[str, Any] = {
        "health": {
            "pcie_link_up": now.link_up,
            "pcie_link": now.link,
            "ltssm": now.ltssm,
            "uptime_s": now.uptime,
            "links_lost": now.links_lost,
            "last_list": now.sequence,
            "last_failure": now.failure,
        }
    }
    try:
        chip = SpiFlash(device, reads=False)
        status = chip.status
    except DeviceFailed as problem:
        return known | {"flash_problem": str(problem)}
    flash = {
        "id": chip.identification.hex(),
        "bytes": 1 << chip.identification[2] if chip.identification[2] < 32 else None,
        "status": status,
        "protected": bool(status & SpiStatus.BP),
    }
    return known | {"flash": flash}


def _through_commands(device: Transport) -> dict[str, Any]:
    """Of mass-storage mode: what it reports as its product, and the configuration blocks."""
    from firmware.asm2464pd import bot
    from usbgpu.flash import job
    from usbgpu.flash.mass_storage import MassStorage

    commands = MassStorage(device)
    product = commands.inquiry()[8:32].decode("ascii", "replace")
    first, second = (commands.read(bot.CONFIG_READ, bot.CONFIG_SIZE, index=index) for index in (0, 1))
    return {"inquiry": " ".join(product.split()), "config": job.describe((first, second))}


def _text(document: dict[str, Any]) -> str:
    runs = [document["running"]]
    if document["api_level"]:
        runs.append(f"API {document['api_level']}")
    if document["build"]:
        runs.append(f"build {document['build']}")
    named = " ".join(filter(None, (document["manufacturer"], document["product"])))
    rows = [
        ("place", document["place"]),
        ("USB", f"{document['usb']}, release {document['release']:#06x}, {document['speed']}"),
        ("product", named or "-"),
        ("serial", document["serial"] or "-"),
        ("runs", ", ".join(runs)),
    ]
    rows += _state(document["health"]) if document["health"] is not None else []
    flash = document["flash"]
    if document["flash_problem"]:
        rows.append(("flash", f"unknown: {document['flash_problem']}"))
    elif flash is None:
        rows.append(("flash", "unknown: no request that reads it is known"))
    elif "id" in flash:
        size = f", {flash['bytes'] >> 10:,} KiB" if flash["bytes"] else ""
        protected = "protected in part" if flash["protected"] else "not protected"
        rows.append(("flash", f"id {flash['id']}{size}, status {flash['status']:#04x}, {protected}"))
    else:
        rows += [("device", flash["inquiry"]), ("configuration", f"blocks: {', '.join(flash['config'])}")]
    return table(("board", document["device"]), rows)


def _state(health: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("PCIe link", health["pcie_link"])]
    if health["uptime_s"] is not None:
        rows.append(
            ("up for", f"{health['uptime_s']:,.2f} s, the PCIe link was lost {health['links_lost']} times")
        )
        rows.append(
            ("lists", f"last number {health['last_list']}, failed: {health['last_failure'] or 'none'}")
        )
    return rows

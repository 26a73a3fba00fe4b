"""`towline gpu info`: what is plugged in, whether it works, and what to do next.

The bridge is recognised first, and is reported even if no card can be opened through it. Then the card is
opened, and booted if necessary: the cost is part of the answer. It is closed again as it was found, or
better: up, with its clocks low.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdk.errors import TowlineError
from sdk.report import Console, Result, size, table
from towline.cli.runtime import add_gpu_device, firmware_directory

if TYPE_CHECKING:
    from usbgpu import pcie
    from usbgpu.bridge import BridgeReport
    from usbgpu.transport import Transport

SUMMARY = "show the bridge, the card behind it, its state, and what opening it costs"
EXAMPLE = """towline gpu info
towline gpu info --device usb --verbose
towline gpu info --device 'emulated?gpu=gfx1201' --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_gpu_device(parser)


def run(args: argparse.Namespace, console: Console) -> Result:
    from usbgpu import emulation
    from usbgpu import transport as transports

    device = emulation.with_card(args.device)
    with transports.open(device) as transport:
        return _look(transport, firmware_directory(args), console)


def _look(transport: Transport, firmware: Path | None, console: Console) -> Result:
    from usbgpu import bridge as bridges

    report = bridges.describe(transport)
    document: dict[str, Any] = {
        "device": transport.name,
        "bridge": bridge_document(report),
        "card": None,
        "link": None,
        "supply": None,
        "open": None,
        "metrics": None,
    }
    try:
        if report.problem:
            raise bridges.FirmwareUnsuitable(report.problem, where=transport.name, hint=report.advice)
        _open(transport, firmware, document, console)
    except TowlineError as problem:
        return Result(document, text(document), problem)
    return Result(document, text(document))


def _open(transport: Transport, firmware: Path | None, document: dict[str, Any], console: Console) -> None:
    """Open the card; `document` gets what is found on the way, to be reported even if something fails."""
    from usbgpu import bridge as bridges
    from usbgpu import emulation, pcie
    from usbgpu.amd import information, monitor, start

    calls: list[float] = []
    transport.observers.append(lambda call, outcome: calls.append(outcome.ended))
    wall, began = time.perf_counter(), transport.clock.now()
    bridge = bridges.attach(transport)
    function = pcie.find(bridge)
    document["card"] = {
        "pci": f"{function.vendor:04x}:{function.device:04x}",
        "bdf": function.bdf,
        "bars": {str(index): bar.size for index, bar in sorted(function.bars.items())},
    }
    if firmware is None:
        firmware = emulation.firmware_directory(bridge)
    steps: list[str] = []

    def report(line: str) -> None:
        steps.append(line.strip())
        console.detail(line)

    started = start.start(bridge, function, directory=firmware, report=report)
    document["open"] = {
        "cold": started.cold,
        "transfers": len(calls),
        "device_seconds": transport.clock.now() - began,
        "wall_seconds": time.perf_counter() - wall,
        "steps": [asdict(step) for step in started.steps],
    }
    supply = bridge.supply()
    document["supply"] = None if supply is None else asdict(supply)
    try:
        card = information.describe(started.card, function)
        document["card"] |= {
            "chip": card.chip,
            "untested": card.untested,
            "vram": card.vram,
            "vram_reached": card.vram_reached,
            "compute_units": card.compute_units,
        }
        document["metrics"] = dict(monitor.measure(started.card).document())
        links = card.links
        document["link"] = {
            "pcie": _link(links.narrowest) | {"bridge": _link(links.bridge), "card": _link(links.card)}
        }
    finally:
        document["open"]["left_clean"] = start.close(started.card, started.record)


def bridge_document(report: BridgeReport) -> dict[str, Any]:
    """What is known of a bridge, as plain values."""
    found = report.identity
    level = found.api_level
    return {
        "running": found.running.value,
        "usb": f"{found.vendor:04x}:{found.product_id:04x}",
        "product": found.product,
        "serial": found.serial,
        "api_level": None if level is None else f"{level >> 8}.{level & 0xFF}",
        "speed": found.speed.value,
        "command_lists": report.has_lists,
        "pcie_link_up": report.link_up,
        "advice": report.advice or None,
    }


def _link(link: pcie.Link) -> dict[str, Any]:
    return {"rate_gt": link.rate, "lanes": link.lanes}


# -- text ---------------------------------------------------------------------------------------------------


def text(document: Mapping[str, Any]) -> str:
    """The document as text."""
    bridge = document["bridge"]
    rows = [
        ("bridge", _bridge(bridge)),
        ("USB", f"{bridge['usb']}, {_SPEEDS.get(bridge['speed'], bridge['speed'])}"),
    ]
    card = document["card"]
    if card is not None:
        rows += _card_rows(card)
    elif bridge["pcie_link_up"] is not None:
        rows.append(("PCIe", "the link is up" if bridge["pcie_link_up"] else "no link"))
    if document["link"] is not None:
        rows.append(("PCIe link", _pcie(document["link"]["pcie"])))
    if document["open"] is not None:
        rows += _open_rows(document["open"])
        rows.append(("supply", _supply(document["supply"])))
    if document["metrics"] is not None:
        rows += _metrics_rows(document["metrics"])
    lines = [table(("device", document["device"]), rows)]
    if bridge["advice"] and document["card"] is not None:
        lines.append(f"{_ADVICE.get(bridge['running'], 'to have it faster')}: {bridge['advice']}")
    return "\n\n".join(lines)


_SPEEDS = {
    "high-speed": "USB 2 (480 Mb/s): works, slower",
    "super-speed": "USB 3 (5 Gb/s)",
    "super-speed-plus": "USB 3 (10 Gb/s)",
}
_ADVICE = {"compatible firmware": "works; command lists, with our firmware, make it faster"}


def _pcie(link: Mapping[str, Any]) -> str:
    """The link as it is; and what it could be, if both ends can do more."""
    text = f"{link['rate_gt']:g} GT/s, {_lanes(link['lanes'])}"
    rate, lanes = (min(link[end][each] for end in ("bridge", "card")) for each in ("rate_gt", "lanes"))
    if rate > link["rate_gt"] or lanes > link["lanes"]:
        text += f"; bridge and card could do {rate:g} GT/s, {_lanes(lanes)}"
    return text


def _lanes(count: int) -> str:
    return f"{count} lane" + "s" * (count != 1)


def _bridge(bridge: Mapping[str, Any]) -> str:
    parts = [bridge["running"]]
    if bridge["api_level"] is not None:
        parts.append(f"API level {bridge['api_level']}")
    if bridge["command_lists"]:
        parts.append("command lists")
    if bridge["serial"]:
        parts.append(f"serial {bridge['serial']}")
    return ", ".join(parts)


def _supply(supply: Mapping[str, Any] | None) -> str:
    if supply is None:
        return "not known: no sensor answers"
    volts, amperes = supply["volts"], supply["amperes"]
    fault = ", and it reports a fault" if supply["fault"] else ""
    return f"{volts:.2f} V, {amperes:.2f} A, {volts * amperes:.1f} W{fault}"


def _card_rows(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("PCIe function", f"{card['bdf']}, {card['pci']}")]
    if "chip" in card:
        untested = " (untested: facts are inferred from its siblings)" if card["untested"] else ""
        rows.insert(0, ("card", f"{card['chip']}, {card['compute_units']} compute units{untested}"))
        reached = "all of it" if card["vram_reached"] >= card["vram"] else size(card["vram_reached"])
        rows.append(("VRAM", f"{card['vram'] >> 20:,} MiB, {reached} within reach of BAR 0"))
    bars = ", ".join(
        f"{index}: {amount >> 20:,} MiB" if amount >> 20 else f"{index}: {amount >> 10:,} KiB"
        for index, amount in card["bars"].items()
    )
    rows.append(("BARs", bars))
    return rows


def _open_rows(opened: Mapping[str, Any]) -> list[tuple[str, str]]:
    how = "cold: it was booted" if opened["cold"] else "warm: it was up"
    took = f"{opened['transfers']} USB transfers, {1e3 * opened['device_seconds']:.1f} ms"
    rows = [("opened", f"{how}; {took}")]
    if not opened.get("left_clean", True):
        rows.append(("closed", "not in order: the next open will reset the card"))
    return rows


def _metrics_rows(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    sensors = {name: value for name, value in metrics["temperatures_celsius"].items() if name in _SENSORS}
    clocks = {name: value for name, value in metrics["clocks_mhz"].items() if name in CLOCKS}
    warm = ", ".join(f"{_SENSORS[name]} {value} °C" for name, value in sensors.items())
    rates = ", ".join(f"{CLOCKS[name]} {value:,} MHz" for name, value in clocks.items())
    busy = f"{metrics['power_watts']} W, {metrics['activity_percent']} % busy, fan {metrics['fan_rpm']:,} rpm"
    return [
        ("power", busy + (", throttled" if metrics["throttled"] else "")),
        ("temperature", warm),
        ("clocks", rates),
    ]


_SENSORS = {"EDGE": "edge", "HOTSPOT": "hot spot", "MEM": "memory"}
CLOCKS = {"GFXCLK": "shaders", "UCLK": "memory", "FCLK": "fabric", "SOCCLK": "SoC"}

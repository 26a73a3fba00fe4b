"""`towline devices`: where a compiled network can run here and now, and the bridges that are plugged in."""

from __future__ import annotations

import argparse
from typing import Any

from sdk.report import Console, Result, table
from sdk.targets import devices

EXAMPLE = """towline devices
towline devices --target hexagon-v65"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="NAME", help="devices of this target only")


def run(args: argparse.Namespace, console: Console) -> Result:
    rows = [(name, *device) for name, found in devices(args.target).items() for device in found]
    bridges = _bridges() if args.target is None else []
    document = {
        "devices": [
            {"target": target, "device": device, "description": description}
            for target, device, description in rows
        ],
        "bridges": bridges,
    }
    if not rows:
        return Result(document, "no device is available; `towline doctor` shows what is missing")
    text = table(("target", "device", "description"), rows)
    if bridges:
        text += "\n\n" + table(
            ("bridge", "serial", "runs", "Mb/s", "in use by"),
            [
                (
                    each["device"],
                    each["serial"] or "-",
                    each["running"],
                    each["speed"] or "-",
                    _users(each) if each["usable"] else "no permission to open it",
                )
                for each in bridges
            ],
        )
    return Result(document, text)


def _bridges() -> list[dict[str, Any]]:
    """The bridges that Linux sees; none of them is opened."""
    from usbgpu.transport import lock, sysfs

    found = []
    for each in sysfs.bridges():
        holder = lock.holder(f"usb-{each.name}")
        users = dict(sysfs.users(each.node))
        if holder is not None:
            users.setdefault(holder, "")
        found.append(
            {
                "device": f"usb:port={each.name}",
                "port": each.name,
                "serial": each.serial,
                "usb": f"{each.vendor:04x}:{each.product:04x}",
                "running": each.running.value,
                "release": each.release,
                "speed": each.speed,
                "usable": each.usable,
                "locked_by": holder,
                "in_use_by": [{"process": number, "name": name} for number, name in users.items()],
            }
        )
    return found


def _users(bridge: dict[str, Any]) -> str:
    names = [f"{user['process']} {user['name']}".strip() for user in bridge["in_use_by"]]
    return ", ".join(names) or "-"

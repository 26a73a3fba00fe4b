"""`towline devices`: where a compiled network can run here and now."""

from __future__ import annotations

import argparse

from sdk.report import Console, Result, table
from sdk.target import get_target, target_names

SUMMARY = "list the devices that networks can run on"
EXAMPLE = "towline devices --target hexagon-v65"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="NAME", help="devices of this target only")


def run(args: argparse.Namespace, console: Console) -> Result:
    names = [args.target] if args.target else target_names()
    rows = [
        (name, device, description) for name in names for device, description in get_target(name).devices()
    ]
    document = {
        "devices": [
            {"target": target, "device": device, "description": description}
            for target, device, description in rows
        ]
    }
    if not rows:
        return Result(document, "no device is available; `towline doctor` shows what is missing")
    return Result(document, table(("target", "device", "description"), rows))

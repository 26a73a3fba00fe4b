"""`towline devices`: where a compiled network can run here and now."""

from __future__ import annotations

import argparse

from sdk.report import Console, Result, table
from sdk.target import devices

EXAMPLE = "towline devices --target hexagon-v65"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="NAME", help="devices of this target only")


def run(args: argparse.Namespace, console: Console) -> Result:
    rows = [(name, *device) for name, found in devices(args.target).items() for device in found]
    document = {
        "devices": [
            {"target": target, "device": device, "description": description}
            for target, device, description in rows
        ]
    }
    if not rows:
        return Result(document, "no device is available; `towline doctor` shows what is missing")
    return Result(document, table(("target", "device", "description"), rows))

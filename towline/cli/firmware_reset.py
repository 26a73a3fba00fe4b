"""`towline firmware reset`: start a board's firmware again, or reset its port, and wait until it is back."""

from __future__ import annotations

import argparse
import math

from sdk.errors import Unsupported, UsageError
from sdk.report import Console, Result, table
from towline.cli.firmware_info import add_board, identity_document, in_short

SUMMARY = "start a board's firmware again and wait until it answers; --port resets the USB port alone"
EXAMPLE = """towline firmware reset --device usb
towline firmware reset --port --device usb:serial=00c0ffee
towline firmware reset --device 'emulated?strap'"""
SECONDS = 15.0


def configure(parser: argparse.ArgumentParser) -> None:
    add_board(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--port", action="store_true", help="reset the USB port; the firmware and a card go on")
    what.add_argument(
        "--rom", action="store_true", help="start the mask ROM's boot loader, where that can be done"
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        default=SECONDS,
        help=f"for its return, at most (default: {SECONDS:g})",
    )


def run(args: argparse.Namespace, console: Console) -> Result:
    from usbgpu import transport as transports
    from usbgpu.flash.restart import Restarted, restart
    from usbgpu.transport import Disconnected, Running

    if not 0 < args.wait < math.inf:
        raise UsageError("--wait must be a number of seconds above 0")
    with transports.open(args.device) as device:
        if args.rom or args.port:
            before, began = device.identify(), device.clock.now()
            if args.rom and before.running is not Running.LOADER:
                raise Unsupported(
                    f"no request to start the boot loader is known for {before.running.value}",
                    where=device.name,
                    hint="switch all power of the board off, set the boot loader's strap, and switch it on",
                )
            if args.port:
                try:
                    device.reset()
                except Disconnected:  # it came back at another speed
                    device.reopen(args.wait)
            done = Restarted(before, device.identify(), device.clock.now() - began)
        else:
            done = restart(device, args.wait)
        name = device.name
        document = {
            "device": name,
            "place": device.place,
            "what": "port" if args.port else "nothing" if args.rom else "firmware",
            "before": identity_document(done.before),
            "after": identity_document(done.after),
            "seconds": done.seconds,
        }
    rows = [
        ("before", in_short(done.before)),
        ("now", in_short(done.after)),
        ("back after", f"{done.seconds:.3f} s"),
    ]
    if args.rom:
        rows = [("now", f"{in_short(done.after)}; there is nothing to do")]
    return Result(document, table(("board", name), rows))

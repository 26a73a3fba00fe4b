"""`towline emulate --usbredir` and `--usbip`: a real kernel as the host of the emulated bridge."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from sdk.errors import UsageError
from sdk.extras import require
from sdk.report import Console

QEMU = """on the other side, an xHCI controller and the device in it:
  qemu-system-x86_64 ... -device qemu-xhci,id=xhci -chardev socket,id=bridge,host={host},port={port} \\
    -device usb-redir,chardev=bridge,bus=xhci.0"""
USBIP = """on the other side, as root:
  modprobe vhci-hcd && usbip --tcp-port {port} attach --remote {host} --busid {busid}"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    group = parser.add_argument_group("a real kernel as the host, until Ctrl-C (docs/emulator.md)")
    group.add_argument(
        "--usbredir", metavar="PORT", help="serve the device to QEMU on this port of 127.0.0.1 (0: any)"
    )
    group.add_argument(
        "--usbip", metavar="PORT", help="serve it to Linux's USB/IP on this port of 127.0.0.1 (3240; 0: any)"
    )
    group.add_argument(
        "--qmp",
        metavar="SOCKET",
        help="stop QEMU's clock by its QMP socket (a path, or HOST:PORT) while the emulation is slower",
    )


def wanted(args: argparse.Namespace) -> bool:
    """Whether the device is to be served."""
    return args.usbredir is not None or args.usbip is not None


def check(args: argparse.Namespace) -> None:
    """Refuse options that cannot be combined.

    Raises:
        UsageError: two of them were given.
    """
    if args.qmp is not None and not wanted(args):
        raise UsageError("--qmp stops a guest's clock: give --usbredir or --usbip too")
    if not wanted(args):
        return
    if args.usbredir is not None and args.usbip is not None:
        raise UsageError("--usbredir and --usbip are two hosts, and the device has one port: choose one")
    for option in ("host", "control", "replay", "no_host"):
        if getattr(args, option):
            name = option.replace("_", "-")
            raise UsageError(
                f"--{name} cannot be combined with a real host: leave out --usbredir and --usbip"
            )
    if args.length is not None:
        raise UsageError("a real host stays until Ctrl-C: leave out --for")
    if args.qmp is not None:
        _address(args.qmp)
    _port(args)


def serve(args: argparse.Namespace, board: Any, console: Console) -> None:
    """Serve the board's device until Ctrl-C.

    Raises:
        EnvironmentMissing: the port is taken.
        TowlineError: what ended the emulation.
    """
    from emulator.usb.server import LOOPBACK, Server
    from emulator.usb.usbip import BUSID, UsbIp
    from emulator.usb.usbredir import UsbRedir

    redirected = args.usbredir is not None
    server = Server(board.usb, _port(args), UsbRedir if redirected else UsbIp, console.note)
    with contextlib.ExitStack() as stack:
        stack.callback(server.close)
        if args.qmp is not None:
            require("qemu.qmp", extra="emulator")
            from emulator.usb.freeze import Freezer

            stack.callback(Freezer(server, _address(args.qmp), console.note).close)
        text = QEMU if redirected else USBIP
        front = "usbredir" if redirected else "USB/IP"
        console.note(
            f"{front} on {LOOPBACK}:{server.port} until Ctrl-C; "
            + text.format(host=LOOPBACK, port=server.port, busid=BUSID)
        )
        if board.firmware_directory is not None:
            console.note(f"the card takes the made-up firmware in {board.firmware_directory}")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve()


def _port(args: argparse.Namespace) -> int:
    option = "usbredir" if args.usbredir is not None else "usbip"
    return _number(getattr(args, option), f"for example --{option} 4000, or 0 for any free port")


def _address(text: str) -> str | tuple[str, int]:
    """A path, or host and port."""
    host, _, port = text.rpartition(":")
    if host and "/" not in text:
        return host, _number(port, "--qmp takes the path of a socket, or HOST:PORT")
    if not text:
        raise UsageError("--qmp needs a name that is not empty")
    return text


def _number(text: str, hint: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 5 or int(text) > 0xFFFF:
        raise UsageError(f"{text!r} is not a TCP port", hint=hint)
    return int(text)

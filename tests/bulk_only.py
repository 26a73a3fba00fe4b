"""A host's half of Bulk-Only Transport 1.0, on an emulated board."""

from __future__ import annotations

import struct
from typing import NamedTuple

from emulator.board import Board
from emulator.usb.wire import Outcome, Setup, Transfer

EP_OUT, EP_IN = 0x02, 0x81
CLEAR_FEATURE, CLASS_RESET = 1, 0xFF
CSW_SIZE = 13


class Answer(NamedTuple):
    """How a command ended: the data that came, the status, the residue."""

    data: bytes
    status: int
    residue: int


def wrapper(cdb: bytes, length: int = 0, *, to_host: bool = False, tag: int = 0x1234) -> bytes:
    """A command block wrapper."""
    return struct.pack("<4sIIBBB16s", b"USBC", tag, length, 0x80 if to_host else 0, 0, len(cdb), cdb)


def transfer(device: Board, endpoint: int, what: bytes | int) -> Transfer:
    """A bulk transfer that ends within a second or two."""
    made = device.usb.submit(endpoint, what)
    device.usb.wait(made, timeout=2)
    return made


def bulk(device: Board, endpoint: int, what: bytes | int) -> bytes:
    """A bulk transfer that succeeds; what came."""
    made = transfer(device, endpoint, what)
    assert made.outcome is Outcome.DONE
    return bytes(made.data)


def clear_halt(device: Board, endpoint: int) -> None:
    device.usb.control(Setup(0x02, CLEAR_FEATURE, 0, endpoint, 0))


def command(device: Board, cdb: bytes, *, expect: int = 0, data: bytes = b"", tag: int = 0x1234) -> Answer:
    """A command with its data and status. As a driver does, it clears a STALL of the data stage."""
    bulk(device, EP_OUT, wrapper(cdb, expect or len(data), to_host=bool(expect and not data), tag=tag))
    came = b""
    if data or expect:
        endpoint = EP_OUT if data else EP_IN
        made = transfer(device, endpoint, data or expect)
        came = b"" if data else bytes(made.data)
        if made.outcome is Outcome.STALL:
            clear_halt(device, endpoint)
        else:
            assert made.outcome is Outcome.DONE
    return Answer(came, *status(device, tag))


def status(device: Board, tag: int = 0x1234) -> tuple[int, int]:
    """The status wrapper: status and residue."""
    signature, echoed, residue, found = struct.unpack("<4sIIB", bulk(device, EP_IN, CSW_SIZE))
    assert (signature, echoed) == (b"USBS", tag)
    return found, residue


def recover(device: Board) -> None:
    """Reset recovery (5.3.4)."""
    device.usb.control(Setup(0x21, CLASS_RESET, 0, 0, 0))
    clear_halt(device, EP_IN)
    clear_halt(device, EP_OUT)


def xdata(operation: int, first: int, address: int, bank: int = 0) -> bytes:
    """The maker's E4 (of `first` bytes) or E5 (of the byte `first`)."""
    return struct.pack(">BBBHB", operation, first, 0x50 | bank, address, 0)

"""Checks of mass-storage firmware, the maker's or another's: the bulk-only transport, not the commands."""

from __future__ import annotations

from firmware.asm2464pd.wire import CBW, CSW
from sdk.errors import DeviceFailed
from usbgpu.conform.bench import Bench, equal, fail, require
from usbgpu.conform.check import Need, Section
from usbgpu.transport import Stalled

BULK_ONLY = Section("bulk-only transport", frozenset({Need.STORAGE}))

GET_MAX_LUN, BULK_ONLY_RESET = 0xFE, 0xFF
TO_HOST = 0x80
TEST_UNIT_READY, INQUIRY, NO_COMMAND = 0x00, 0x12, 0xC7
INQUIRY_BYTES = 36
PASSED, FAILED = 0, 1


def command(bench: Bench, cdb: bytes, length: int = 0, tag: int = 1) -> tuple[int, bytes, int]:
    """A command without data, or with data for the host: status, data, residue."""
    flags = TO_HOST if length else 0
    wrapper = CBW.pack(
        signature=CBW.member("signature").fixed or 0,
        tag=tag,
        data_transfer_length=length,
        flags=flags,
        cb_length=len(cdb),
        cdb=cdb.ljust(16, b"\0"),
    )
    device = bench.device
    device.bulk_out(wrapper)
    data = b""
    if length:
        try:
            data = device.bulk_in(length)
        except Stalled:
            device.clear_halt(device.in_endpoint)
    try:
        raw = device.bulk_in(CSW.size)
    except Stalled:
        device.clear_halt(device.in_endpoint)
        raw = device.bulk_in(CSW.size)
    status = CSW.unpack(raw)
    equal("the tag", status["tag"], tag)
    return status["status"], data, status["data_residue"]


@BULK_ONLY("GET MAX LUN", "BOT 1.0, 3.2: one byte of at most 15, or a request error")
def _max_lun(bench: Bench) -> None:
    try:
        answer = bench.device.control_in(0xA1, GET_MAX_LUN, length=1)
    except Stalled:
        bench.alive()
        return
    require(len(answer) == 1 and answer[0] <= 15, f"it answers {answer.hex(' ')}")


@BULK_ONLY("INQUIRY", "BOT 1.0, 6.7: data, then a status with the command's tag and the right residue")
def _inquiry(bench: Bench) -> None:
    for tag in (0x1234_5678, 0xFFFF_FFFF):
        cdb = bytes((INQUIRY, 0, 0, 0, INQUIRY_BYTES, 0))
        status, data, residue = command(bench, cdb, INQUIRY_BYTES, tag)
        equal("the status", status, PASSED)
        equal("data and residue together", len(data) + residue, INQUIRY_BYTES)


@BULK_ONLY("unknown command", "BOT 1.0, 5.3: status 1, and the device keeps working")
def _unknown(bench: Bench) -> None:
    equal("the status", command(bench, bytes((NO_COMMAND, 0, 0, 0, 0, 0)))[0], FAILED)
    command(bench, bytes((TEST_UNIT_READY, 0, 0, 0, 0, 0)))


@BULK_ONLY("reset recovery", "BOT 1.0, 5.3.4: after reset and two clear halts the next command is taken")
def _recovery(bench: Bench) -> None:
    device = bench.device
    for _ in range(2):
        device.control_out(0x21, BULK_ONLY_RESET)
        device.clear_halt(device.in_endpoint)
        device.clear_halt(device.out_endpoint)
        _inquiry(bench)


@BULK_ONLY("no command wrapper", "BOT 1.0, 6.6.1: an invalid one is refused until the reset recovery")
def _no_wrapper(bench: Bench) -> None:
    device = bench.device
    try:
        device.bulk_out(bytes(31), timeout=1.0)
        device.bulk_in(CSW.size, timeout=0.2)
        fail("it is answered")
    except DeviceFailed:
        pass
    _recovery(bench)


SECTIONS = (BULK_ONLY,)

"""Bulk-only transport, the host's side: commands of the boot loader and of the maker's firmware.

USB mass storage bulk-only transport 1.0: a command block wrapper, data, a command status wrapper, and the
ways back into step after a stall (6.6, 6.7). Data stages here are all or nothing: a residue is a failure.
"""

from __future__ import annotations

from firmware.asm2464pd.bot import CDB_SIZE, Command
from firmware.asm2464pd.wire import CBW, CSW
from sdk.errors import DeviceFailed
from sdk.facts.structures import Malformed
from usbgpu.transport import Disconnected, Stalled, Transport

COMMAND_SECONDS = 5.0
PACKET_BYTES = 0x4000
"""Of a data stage in one transfer; the device may erase and program before it takes more."""
REQUEST_TYPE_CLASS_OUT = 0x21
BULK_ONLY_RESET = 0xFF
PASSED, PHASE_ERROR = 0, 2
REQUEST_SENSE = bytes((0x03, 0, 0, 0, 18, 0))
INQUIRY = bytes((0x12, 0, 0, 0, 36, 0))
SENSE_KEY, SENSE_CODE = 2, 12
"""Offsets in sense data of the fixed format (SPC-4, 4.5.3)."""


class CommandRefused(DeviceFailed):
    """The device took the command, and reports that it failed."""

    code = "command-refused"


class MassStorage:
    """The commands of a device in mass-storage mode.

    Args:
        device: the device. Its port is reset first, and it is configured again: a program that was killed, or
            the kernel's driver, may have left it in the middle of a data stage, which would swallow the first
            command, and the boot loader takes nothing in bulk before (trace: the dock's own updater).

    Raises:
        DeviceFailed: it does not take the reset.
    """

    def __init__(self, device: Transport) -> None:
        self._device = device
        self._tag = 0
        try:
            device.reset()
        except Disconnected:  # it came back with other descriptors, or on another address
            device.reopen()
        self._recover()

    def inquiry(self) -> bytes:
        """Standard INQUIRY data, 36 bytes at most: vendor at 8, product at 16."""
        return self._exchange(INQUIRY, "INQUIRY", b"", 36, COMMAND_SECONDS, whole=False)

    def read(self, command: Command, size: int, *, seconds: float = COMMAND_SECONDS, **members: int) -> bytes:
        """A command that gives `size` bytes; `members` are those of its CDB. Raises as `write`."""
        return self._exchange(command.cdb.pack(**members), command.cdb.name, b"", size, seconds)

    def write(
        self, command: Command, data: bytes = b"", *, seconds: float = COMMAND_SECONDS, **members: int
    ) -> None:
        """A command that takes `data`.

        Raises:
            CommandRefused: it failed; the message has the sense data.
            DeviceFailed: the device left the protocol, or does not answer within `seconds` a transfer.
        """
        self._exchange(command.cdb.pack(**members), command.cdb.name, data, 0, seconds)

    # -- inside -----------------------------------------------------------------------------------------

    def _exchange(
        self, cdb: bytes, name: str, data: bytes, wanted: int, seconds: float, *, whole: bool = True
    ) -> bytes:
        answer, status, residue = self._transfer(cdb, name, data, wanted, seconds)
        if status == PHASE_ERROR:
            self._recover()
            raise DeviceFailed("the device reports a phase error", where=name)
        if status != PASSED:
            raise CommandRefused(f"the device refuses the command{self._sense()}", where=name)
        if whole and (residue or len(answer) != wanted):
            size = len(data) or wanted
            raise DeviceFailed(f"the device moved {size - residue} bytes of {size}", where=name)
        return answer

    def _transfer(
        self, cdb: bytes, name: str, data: bytes, wanted: int, seconds: float
    ) -> tuple[bytes, int, int]:
        """One command: data received, status, and residue."""
        device = self._device
        self._tag = self._tag % 0xFFFF_FFFF + 1
        towards_host = CBW.member("flags").field("IN").mask if wanted else 0
        block = CBW.pack(
            tag=self._tag,
            data_transfer_length=len(data) or wanted,
            flags=towards_host,
            cb_length=len(cdb),
            cdb=cdb.ljust(CDB_SIZE, b"\0"),
        )
        try:
            device.bulk_out(block, timeout=seconds)
        except Stalled:  # left over from an earlier program's command
            self._recover()
            device.bulk_out(block, timeout=seconds)
        answer = b""
        try:
            for start in range(0, len(data), PACKET_BYTES):
                device.bulk_out(data[start : start + PACKET_BYTES], timeout=seconds)
            if wanted:
                answer = device.bulk_in(wanted, timeout=seconds)
        except Stalled:  # the device ends the data stage early: the status says why
            device.clear_halt(device.in_endpoint if wanted else device.out_endpoint)
        return answer, *self._status(name, seconds)

    def _status(self, name: str, seconds: float) -> tuple[int, int]:
        """The command status wrapper: status and residue."""
        device = self._device
        try:
            raw = device.bulk_in(CSW.size, timeout=seconds)
        except Stalled:
            device.clear_halt(device.in_endpoint)
            raw = device.bulk_in(CSW.size, timeout=seconds)
        try:
            fields = CSW.unpack(raw)
        except Malformed as problem:
            self._recover()
            raise DeviceFailed(f"no command status wrapper: {problem}", where=name) from None
        if fields["tag"] != self._tag:
            self._recover()
            raise DeviceFailed(f"the status of command {fields['tag']}, not of {self._tag}", where=name)
        return fields["status"], fields["data_residue"]

    def _sense(self) -> str:
        """Why the last command failed, for a message."""
        try:
            data, status, _ = self._transfer(REQUEST_SENSE, "REQUEST SENSE", b"", 18, COMMAND_SECONDS)
        except DeviceFailed:
            return ""
        if status != PASSED or len(data) < SENSE_CODE + 2:
            return ""
        code = int.from_bytes(data[SENSE_CODE : SENSE_CODE + 2], "big")
        return f": sense key {data[SENSE_KEY] & 0x0F}, code {code:#06x}"

    def _recover(self) -> None:
        """Reset recovery (5.3.4): the device waits for a command again."""
        device = self._device
        device.control_out(REQUEST_TYPE_CLASS_OUT, BULK_ONLY_RESET)
        device.clear_halt(device.in_endpoint)
        device.clear_halt(device.out_endpoint)

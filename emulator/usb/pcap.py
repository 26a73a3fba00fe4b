"""A capture of a port's USB traffic that Wireshark and tshark read.

The format is what Linux's usbmon gives a capture program: a pcap file of link type USB_LINUX_MMAPPED, two
records per transfer, "S" when it is submitted and "C" when it completes. Facts: the pcap file format and link
type 220 of tcpdump.org, the kernel's Documentation/usb/usbmon.rst. Time stamps are virtual: power-on is 1970.

Records go to the file as they come, so that a file cut short is readable up to its last whole record.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import struct
from pathlib import Path
from types import TracebackType

from emulator.core.clock import HZ
from emulator.usb.wire import Outcome, Transfer
from sdk.errors import OutputFailed

log = logging.getLogger(__name__)

MAGIC = 0xA1B23C4D
"""pcap with time stamps in nanoseconds."""
LINK_TYPE = 220
"""LINKTYPE_USB_LINUX_MMAPPED."""
LONGEST = 0x40000
"""The longest record that Wireshark takes for this link type; longer data is cut."""
BUS = 1

FILE_HEADER = struct.Struct("<IHHiIII")
RECORD_HEADER = struct.Struct("<IIII")
URB_HEADER = struct.Struct("<QBBBBHBBqiiII8siiII")
"""The usbmon header: id, type, transfer type, endpoint, device, bus, flag_setup, flag_data, seconds,
microseconds, status, length, captured length, setup, interval, start_frame, transfer flags, descriptors."""

CONTROL, BULK = 2, 3
DIRECTION_IN = 0x80
URB_IN = 0x200
"""The transfer flag of an IN transfer."""
IN_PROGRESS = -errno.EINPROGRESS
STATUS = {
    Outcome.DONE: 0,
    Outcome.STALL: -errno.EPIPE,
    Outcome.CANCELLED: -errno.ENOENT,
    Outcome.GONE: -errno.ESHUTDOWN,
    Outcome.OVERFLOW: -errno.EOVERFLOW,
    Outcome.ERROR: -errno.EPROTO,
}
"""URB status by outcome, as Linux reports it."""


class Capture:
    """Writes the traffic of a `host.Host`; one of its observers. Close it to be sure that all is written.

    Args:
        path: the file, overwritten.

    Raises:
        OutputFailed: the file cannot be created.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._ids = itertools.count(1)
        self._pending: dict[Transfer, int] = {}
        self._failure: OSError | None = None
        try:
            self._file = self._path.open("wb")
        except OSError as error:
            raise self._failed(error) from None
        self._put(FILE_HEADER.pack(MAGIC, 2, 4, 0, 0, LONGEST, LINK_TYPE))

    def submitted(self, transfer: Transfer, address: int) -> None:
        """A transfer begins."""
        number = self._pending[transfer] = next(self._ids)
        self._record(transfer, address, number, IN_PROGRESS)

    def ended(self, transfer: Transfer, address: int) -> None:
        """A transfer has ended; one that began before the capture did is left out."""
        number = self._pending.pop(transfer, None)
        if number is not None and transfer.outcome is not None:
            self._record(transfer, address, number, STATUS[transfer.outcome])

    def close(self) -> None:
        """Write what is still to be written, and close the file.

        Raises:
            OutputFailed: something could not be written (disk full); the file ends before it.
        """
        try:
            self._file.close()
        except OSError as error:
            self._failure = self._failure or error
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise self._failed(failure)

    def __enter__(self) -> Capture:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _record(self, transfer: Transfer, address: int, number: int, status: int) -> None:
        setup = transfer.setup
        is_in = setup.is_in if setup is not None else bool(transfer.endpoint & DIRECTION_IN)
        begins = status == IN_PROGRESS
        # Data travels with the record of the side that has it: OUT when submitted, IN when complete.
        carries = begins is not is_in
        data = bytes(memoryview(transfer.data)[: LONGEST - URB_HEADER.size]) if carries else b""
        clock = transfer.submitted if begins else transfer.completed
        second, nanosecond = divmod(int(clock * 10**9 / HZ), 10**9)
        header = URB_HEADER.pack(
            number,
            ord("S" if begins else "C"),
            CONTROL if setup is not None else BULK,
            transfer.endpoint | (DIRECTION_IN if is_in else 0),
            address,
            BUS,
            0 if begins and setup is not None else ord("-"),
            0 if data else ord("<" if is_in else ">"),
            second,
            nanosecond // 1000,
            status,
            transfer.length if begins else transfer.actual,
            len(data),
            setup.pack() if begins and setup is not None else bytes(8),
            0,
            0,
            URB_IN if is_in else 0,
            0,
        )
        whole = len(header) + (transfer.length if begins else transfer.actual) * carries
        captured = len(header) + len(data)
        self._put(RECORD_HEADER.pack(second, nanosecond, captured, whole) + header + data)

    def _put(self, record: bytes) -> None:
        """Write; a failure is reported once and raised by `close`, for a capture stops no emulation."""
        if self._failure is not None:
            return
        try:
            self._file.write(record)
        except OSError as error:
            self._failure = error
            log.error("%s: the capture ends here: %s", self._path, error.strerror)

    def _failed(self, error: OSError) -> OutputFailed:
        return OutputFailed(
            f"the capture cannot be written: {error.strerror}",
            where=str(self._path),
            hint="what is in the file can be read; name another file, or make room",
        )

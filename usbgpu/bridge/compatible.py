"""The bridge with the published firmware, or another that answers its requests E4 to F3 as ours does.

Operations of a list are done one by one, each with its own requests (`firmware.protocol.requests`):

* a dword is a single TLP, and what is not posted asks for its completion;
* blocks, fills, and writes to successive dwords are streams, which go over the bulk endpoints;
* slots of the SRAM are armed by a request, and the sectors follow; fences are read through the SRAM's window.

Failures have the same causes, with one exception: the outcome of a posted write is not reported, so that one
to a link that is down goes unnoticed until something is read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

from firmware.asm2464pd.registers.memory import SRAM_WINDOW
from firmware.asm2464pd.registers.tlp import FMT_TYPES
from firmware.protocol import requests
from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import ALL_BYTES, DWORD, SECTOR, Data, Failure, ListError, Operation, Parts
from sdk.errors import DeviceFailed
from usbgpu.bridge.base import CAUSE, MARGIN, PIECE, SLOW_RATE, BaseBridge
from usbgpu.bridge.seam import Reply
from usbgpu.transport import Transport

SINGLE, STREAM_WRITE, STREAM_READ = range(3)
"""Modes of the request TLP_START."""
TO_HOST = 0x8000
SIGN = 1 << 31
WORTH_A_STREAM = 3
"""Dwords from which on a stream (a request, a bulk transfer) takes fewer transfers than single requests."""
REQUEST_PATIENCE = 2.0
"""Seconds that a request may take; a firmware waits for a completion for a fraction of that."""
FIRST_PAUSE, LONGEST_PAUSE = 50e-6, 5e-3
"""Seconds between two polls of a condition; each pause is twice the one before."""

_KINDS = {name: code for code, name in FMT_TYPES.items()}
_STATUS = {
    1: CAUSE["unsupported request"],
    2: CAUSE["configuration retry"],
    4: CAUSE["completer abort"],
}
"""Causes, by the completion status."""
_COMPLETED, _ERROR = 0x00, 0x01
"""How a launch ended: the status in TLP_RESULT."""
_GATHERED = ("WRITE", "BLOCK_WRITE", "FILL")
"""Operations whose dwords may wait for those that follow."""


class _Failed(Exception):
    """An operation has failed."""

    def __init__(self, cause: str | int, address: int | None = None) -> None:
        self.cause = CAUSE[cause] if isinstance(cause, str) else cause
        self.address = address


class _Timeout(_Failed):
    """A condition did not come true in time."""


class CompatibleBridge(BaseBridge):
    """A `seam.Bridge` over single requests.

    Args:
        transport: to a device that answers them, and has just been reset.
    """

    has_lists = False

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._in_step = True
        self._values: list[int | bytes] = []
        self._sectors = bytearray()
        self._unread = 0  # bytes that an armed slot transfer has for the host
        self._dwords = bytearray()  # still to be written, to successive addresses
        self._place = 0  # the first one's address
        self._dos: dict[str, Callable[[Operation], None]] = {
            "WRITE": self._write,
            "READ": self._read,
            "MODIFY": self._modify,
            "POLL": self._poll,
            "CONFIG_WRITE": self._config_write,
            "CONFIG_READ": self._config_read,
            "BLOCK_WRITE": self._block_write,
            "FIFO_WRITE": self._fifo_write,
            "BLOCK_READ": self._block_read,
            "FIFO_READ": self._fifo_read,
            "FILL": self._fill,
            "DELAY": self._delay,
            "XDATA_WRITE": self._xdata_write,
            "XDATA_READ": self._xdata_read,
            "SLOT_OUT": self._slot_out,
            "SLOT_IN": self._slot_in,
            "FENCE": self._fence,
            "SYNC": self._sync,
        }

    def resume(self) -> None:
        """See `BaseBridge`."""
        super().resume()
        self._in_step = True

    def stream(self, commands: CommandList) -> Generator[bytes, None, Reply]:
        """See `seam.Bridge`; here it yields all of the list's sectors at the end."""
        reply = self.run(commands)
        yield reply.data
        return reply

    def run(self, commands: CommandList) -> Reply:
        """See `seam.Bridge`."""
        _check(commands)
        if not self._in_step:
            self.restart()
        self._values, self._sectors, self._unread = [], bytearray(), 0
        self._dwords.clear()
        self._in_step = False  # until it is over, also if an unexpected exception ends it
        places = {id(operation): place for place, operation in enumerate(commands.operations)}
        for operation, number, rounds in commands.steps():
            try:
                if operation.opcode.name not in _GATHERED:
                    self._flush()
                self._dos[operation.opcode.name](_in_round(operation, number, rounds))
            except _Failed as problem:
                address = operation.address if problem.address is None else problem.address
                failure = Failure(problem.cause, places[id(operation)], operation.opcode.code, address)
                self._in_step = not self._armed
                raise self.failed(failure, tuple(self._values)) from None
        self._flush()
        self._in_step = True
        return Reply(tuple(self._values), bytes(self._sectors))

    # -- single TLPs ------------------------------------------------------------------------------------

    def _start(
        self, kind: str, address: int, value: int, mode: int = SINGLE, enables: int = ALL_BYTES
    ) -> None:
        """Send a TLP, or begin a stream; `value` is the dword, or the number of dwords."""
        request = requests.TLP_START
        self.transport.control_out(
            request.request_type,
            request.code,
            value=enables << 8 | _KINDS[kind],
            index=mode,
            data=requests.TLP_REQUEST.pack(
                address_low=address & 0xFFFF_FFFF, address_high=address >> 32, value=value
            ),
            timeout=REQUEST_PATIENCE,
        )

    def _finish(self) -> int:
        """The data in the completion of the last TLP."""
        request = requests.TLP_STATUS
        result = requests.TLP_RESULT.unpack(
            self.transport.control_in(
                request.request_type, request.code, length=requests.TLP_RESULT.size, timeout=REQUEST_PATIENCE
            )
        )
        if result["status"] == _ERROR:
            raise _Failed("completion timeout" if self.link_up else "link down")
        if result["status"] != _COMPLETED:
            raise _Failed("no completion")
        if status := result["completion"] >> 13:
            raise _Failed(_STATUS.get(status, CAUSE["completer abort"]))
        return result["data"]

    def _read_dword(self, address: int, enables: int = ALL_BYTES) -> int:
        self._start(_sized("MRD", address), address, 0, enables=enables)
        return self._finish()

    def _write_dword(self, address: int, value: int, enables: int = ALL_BYTES) -> None:
        self._start(_sized("MWR", address), address, value, enables=enables)

    def _read(self, operation: Operation) -> None:
        self._values.append(self._read_dword(operation.address, operation.enables))

    def _modify(self, operation: Operation) -> None:
        old = self._read_dword(operation.address, operation.enables)
        new = old & ~operation.mask | operation.value & operation.mask
        self._write_dword(operation.address, new, operation.enables)

    def _poll(self, operation: Operation) -> None:
        value = 0
        try:
            for _ in self._looks(operation.timeout):
                value = self._read_dword(operation.address)
                if not (value ^ operation.value) & operation.mask:
                    break
        except _Timeout:
            self._values.append(value)
            raise
        self._values.append(value)

    def _config_write(self, operation: Operation) -> None:
        self._start(
            _routed("CFGWR", operation), operation.address, operation.value, enables=operation.enables
        )
        self._finish()

    def _config_read(self, operation: Operation) -> None:
        self._start(_routed("CFGRD", operation), operation.address, 0, enables=operation.enables)
        self._values.append(self._finish())

    # -- streams ----------------------------------------------------------------------------------------

    def _gather(self, address: int, data: bytes) -> None:
        """Write dwords, now or with those that follow."""
        end = self._place + len(self._dwords)
        if self._dwords and (address != end or end == 1 << 32):  # a stream has addresses of one size
            self._flush()
        if not self._dwords:
            self._place = address
        self._dwords += data

    def _flush(self) -> None:
        """Write what has been gathered."""
        data, self._dwords = self._dwords, bytearray()
        count = len(data) // DWORD
        if count < WORTH_A_STREAM:
            for at in range(0, len(data), DWORD):
                self._write_dword(self._place + at, int.from_bytes(data[at : at + DWORD], "little"))
            return
        self._start(_sized("MWR", self._place), self._place, count, STREAM_WRITE)
        self._send([data])

    def _write(self, operation: Operation) -> None:
        if operation.enables == ALL_BYTES:
            self._gather(operation.address, _bytes(operation.value))
            return
        self._flush()
        self._write_dword(operation.address, operation.value, operation.enables)

    def _block_write(self, operation: Operation) -> None:
        self._gather(operation.address, b"".join(operation.round(0, 1)))

    def _fill(self, operation: Operation) -> None:
        self._gather(operation.address, _bytes(operation.value) * operation.count)

    def _fifo_write(self, operation: Operation) -> None:
        data = b"".join(operation.round(0, 1))
        for at in range(0, len(data), DWORD):
            self._write_dword(operation.address, int.from_bytes(data[at : at + DWORD], "little"))

    def _block_read(self, operation: Operation) -> None:
        address, wanted = operation.address, operation.count * DWORD
        if operation.count <= 1:
            data = b"".join(_bytes(self._read_dword(address)) for _ in range(operation.count))
        else:
            self._start(_sized("MRD", address), address, operation.count, STREAM_READ)
            data = self._receive(wanted)
        if len(data) < wanted:
            self._explain(address + len(data))
        self._values.append(data)

    def _explain(self, address: int) -> None:
        """Raise why a stream ended at an address: a read there fails the same way."""
        try:
            self._read_dword(address)
        except _Failed as problem:
            raise _Failed(problem.cause, address) from None
        raise _Failed("no completion", address)

    def _fifo_read(self, operation: Operation) -> None:
        self._values.append(
            b"".join(_bytes(self._read_dword(operation.address)) for _ in range(operation.count))
        )

    # -- the bridge -------------------------------------------------------------------------------------

    def _looks(self, microseconds: int) -> Iterator[None]:
        """Times to poll a condition, the last when the time is up. Raises _Timeout after that."""
        end = self.clock.now() + microseconds / 1e6
        pause = FIRST_PAUSE
        while True:
            last = self.clock.now() >= end
            yield
            if last:
                raise _Timeout("condition timeout")
            self.clock.sleep(min(pause, max(end - self.clock.now(), 0.0)))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _delay(self, operation: Operation) -> None:
        self.clock.sleep(operation.value / 1e6)

    def _xdata_write(self, operation: Operation) -> None:
        request = requests.XDATA_WRITE
        plane, address = divmod(operation.address, 1 << 16)
        self.transport.control_out(
            request.request_type, request.code, value=address, index=plane << 8 | operation.value
        )

    def _xdata_read(self, operation: Operation) -> None:
        most = 512 if self.transport.speed.is_super else 64
        plane, address = divmod(operation.address, 1 << 16)
        self._values.append(
            b"".join(
                self.xdata(address + at, min(most, operation.count - at), phy=bool(plane))
                for at in range(0, operation.count, most)
            )
        )

    def _arm(self, operation: Operation, direction: int) -> None:
        request = requests.SRAM_DMA
        self._armed = True
        self.transport.control_out(
            request.request_type,
            request.code,
            value=operation.value | direction,
            index=operation.count << 8 | operation.address,
        )

    def _slot_out(self, operation: Operation) -> None:
        self._arm(operation, 0)
        self._send(operation.round(0, 1))
        self._armed = False

    def _slot_in(self, operation: Operation) -> None:
        self._sync(operation)  # those of the one before
        self._arm(operation, TO_HOST)
        self._unread = operation.value * SECTOR

    def _sync(self, operation: Operation) -> None:
        del operation
        if not self._unread:
            return
        part = self._receive(self._unread)
        if len(part) < self._unread:
            raise DeviceFailed(f"{len(part)} bytes of {self._unread} came from the SRAM", where=self.name)
        self._sectors += part
        self._unread = 0
        self._armed = False

    def _fence(self, operation: Operation) -> None:
        """Read byte by byte, while a device may write: a value beyond the expected one must be read twice.

        A mixture of two values can pass for the expected one only if the counter lags far behind.
        """

        def ahead() -> int:
            value = self.xdata(SRAM_WINDOW.address + operation.address, DWORD)
            return int.from_bytes(value, "little") - operation.value & 0xFFFF_FFFF

        for _ in self._looks(operation.timeout):
            found = ahead()
            if not found or (found < SIGN and ahead() < SIGN):
                return

    # -- bulk -------------------------------------------------------------------------------------------

    def _send(self, pieces: Sequence[Data]) -> None:
        self.send(pieces, MARGIN + sum(map(len, pieces)) / SLOW_RATE)

    def _receive(self, size: int) -> bytes:
        """Receive `size` bytes, or fewer if a short packet ends the transfer."""
        data = bytearray()
        while len(data) < size:
            wanted = min(PIECE, size - len(data))
            part = self.transport.bulk_in(wanted, timeout=MARGIN + wanted / SLOW_RATE)
            data += part
            if len(part) < wanted:
                break
        return bytes(data)


def _sized(kind: str, address: int) -> str:
    """A request of memory in the format for an address of that size."""
    return f"{kind}{64 if address >> 32 else 32}"


def _routed(kind: str, operation: Operation) -> str:
    """A configuration request: of type 0 for bus 0, the bridge's own root port, else of type 1."""
    return f"{kind}{1 if operation.address >> 24 else 0}"


def _in_round(operation: Operation, number: int, rounds: int) -> Operation:
    """An operation as it is in a round of a loop: with its payload; the value of a fence rises."""
    if rounds == 1:
        return operation
    value = operation.value
    if operation.opcode.name == "FENCE":
        value = value + number * operation.mask & 0xFFFF_FFFF
    return replace(operation, value=value, payload=Parts([operation.round(number, rounds)]))


def _bytes(dword: int) -> bytes:
    return dword.to_bytes(DWORD, "little")


def _check(commands: CommandList) -> None:
    """Raises ListError for a list that could not be sent to our firmware either."""
    names = [operation.opcode.name for operation in commands.operations]
    if names.count("LOOP") != names.count("END"):
        raise ListError("a LOOP has no END")
    slots = [name for name in names if name in ("SLOT_IN", "SYNC")]
    if slots and slots[-1] == "SLOT_IN":
        raise ListError("a SLOT_IN must be followed by a SYNC")

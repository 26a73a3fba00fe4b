"""What both bridge drivers have in common: power, closing, how long a list may take, how it fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from firmware.asm2464pd.registers.link import PCIE_LTSSM
from firmware.protocol import requests
from firmware.protocol.command_list import CommandList
from firmware.protocol.commands import RESULT_TRAILER
from firmware.protocol.operations import DWORD, SECTOR, Data, Failure
from sdk.errors import DeviceFailed
from sdk.telemetry.metrics import Supply, Traffic
from sdk.weights import release
from usbgpu.bridge.seam import ListFailed
from usbgpu.bridge.supply import SensorMissing, SupplyReader
from usbgpu.transport import Disconnected, Emulation, Pending, Transport

CAUSE = {words: code for code, words in RESULT_TRAILER.member("cause").values.items()}
"""Why a list ended: codes by their text."""
LINK_UP = 0x78
"""PCIE_LTSSM in L0."""
POWER_PATIENCE = 10.0
"""Seconds that a power request may take; the firmware watches the link for 2."""
POWER_OFF = 0.1
"""Seconds without power (PCI Express: at least 100 ms from power to the end of PERST)."""

PIECE = 1 << 20
"""Largest bulk transfer, in bytes. A multiple of every packet size, so that only the last one of several
may end with a short packet."""

MARGIN = 2.0
"""Seconds that a list may take beyond the waits that it declares."""
OPERATION_TIME = 1e-4
"""Seconds that an operation may take on average. A card may take 50 ms for one, but not for each."""
SLOW_RATE = 1e6
"""Lowest rate of data in bytes per second: half the measured rate of reads by the bridge's CPU."""

DAMAGED = "data was damaged in transit: try another cable or port"
HINTS = {
    "link down": "check that the card is in its slot and has power; `towline gpu info` shows what answers",
    "unsupported request": "nothing answers at this address: another program may have reset the card",
    "completion timeout": "the card stopped answering: switch its power off and on, then open it again",
    "no completion": "the card stopped answering: switch its power off and on, then open it again",
    **dict.fromkeys(("bad header", "bad checksum", "bad payload"), DAMAGED),
}
"""Hints, by the text of a cause."""


class BaseBridge:
    """A bridge behind a transport, which `close` closes.

    Attributes:
        name: of the device, for messages.
        clock: its time.
        transport: to it.
        repeated: how many lists were damaged in transit, and sent again.
    """

    _armed: bool
    """The slot DMA may be armed, and would take what is not meant for it."""

    def __init__(self, transport: Transport) -> None:
        self.name = transport.name
        self.clock = transport.clock
        self.transport = transport
        self.repeated = 0
        self._armed = False
        self._supply = SupplyReader(transport)

    @property
    def emulation(self) -> Emulation | None:
        """See `seam.Bridge`."""
        return self.transport.emulation

    @property
    def traffic(self) -> Traffic:
        """See `seam.Bridge`."""
        return self.transport.traffic

    def plugged(self) -> tuple[str, str]:
        """See `seam.Bridge`."""
        return self.transport.place, self.transport.identify().serial

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See `seam.Bridge`."""
        self.transport.close()

    def resume(self) -> None:
        """The device has just been reset: nothing is known to be going on."""
        self._armed = False

    def power(self, on: bool) -> None:
        """See `seam.Bridge`."""
        power = requests.PCIE_POWER
        self.transport.control_out(power.request_type, power.code, value=int(on), timeout=POWER_PATIENCE)
        if on and (state := self.xdata(PCIE_LTSSM.address, 1)[0]) != LINK_UP:
            raise DeviceFailed(
                f"the PCIe link does not come up: it is in LTSSM state {state:#04x}",
                where=self.name,
                hint="is a card in the slot, and is its own power connected?",
            )

    @property
    def link_up(self) -> bool:
        """Whether the PCIe link is in L0."""
        return self.xdata(PCIE_LTSSM.address, 1)[0] == LINK_UP

    def bring_up(self, seconds: float) -> None:
        """Wait for the PCIe link; the slot's power is switched on, or off and on, if that takes it.

        Args:
            seconds: to wait at most, to within one power request.

        Raises:
            DeviceFailed: the link does not come up; the transport's errors.
        """
        end = self.clock.now() + seconds
        while not self.link_up:
            try:
                self.power(True)
            except Disconnected:
                raise
            except DeviceFailed:
                if self.clock.now() >= end:
                    raise
                self.power(False)
                self.clock.sleep(POWER_OFF)

    def supply(self) -> Supply | None:
        """See `seam.Bridge`."""
        try:
            return self.measured_supply()
        except SensorMissing:
            return None

    def measured_supply(self) -> Supply:
        """As `supply`, for those to whom it matters why there is none. Raises SensorMissing."""
        return self._supply.read()

    def xdata(self, address: int, length: int, *, phy: bool = False) -> bytes:
        """Read the bridge's XDATA, or its PHY plane; at most 64 bytes at High Speed, 512 above."""
        read = requests.XDATA_READ
        return self.transport.control_in(
            read.request_type, read.code, value=address, index=phy << 8, length=length
        )

    def send(self, pieces: Iterable[Data], timeout: float) -> None:
        """Send on the bulk endpoint, in transfers of at most PIECE bytes, several of them in flight.

        Args:
            pieces: of data, one behind the other; they must not change meanwhile.
            timeout: of each transfer, in seconds.
        """
        sent: deque[Pending] = deque()
        try:
            self.begin(pieces, timeout, sent)
            for transfer in sent:
                transfer.result()
        finally:
            for transfer in reversed(sent):
                transfer.cancel()

    def begin(self, pieces: Iterable[Data], timeout: float, sent: deque[Pending]) -> None:
        """Begin to send as `send` does; those transfers that are not over yet are added to `sent`."""
        for part in _transfers(pieces):
            while sent and sent[0].done:  # what has been sent is not kept
                sent.popleft().result()
            sent.append(self.transport.submit(self.transport.out_call(part, timeout=timeout)))

    def restart(self) -> None:
        """Bring both bulk endpoints into a known state from any other.

        A firmware that abandons an operation empties the endpoints that it had armed, which may restart their
        packet sequence on its side (not observed on silicon). Clearing a halt restarts it on
        both sides. The slot DMA is only disarmed by a bus reset, which does the rest too.
        """
        if self._armed:
            self.transport.reset()
            self._armed = False
        else:
            self.transport.clear_halt(self.transport.out_endpoint)
            self.transport.clear_halt(self.transport.in_endpoint)

    def failed(self, failure: Failure, values: tuple[int | bytes, ...]) -> ListFailed:
        """The error for a failure."""
        words = RESULT_TRAILER.member("cause").values.get(failure.cause, "")
        return ListFailed(failure, values, where=self.name, hint=HINTS.get(words))


def _transfers(pieces: Iterable[Data]) -> Iterator[Data]:
    """Pieces cut and put together into transfers of PIECE bytes; what is long enough is not copied.

    Of a mapped file, only what is on its way is resident.
    """
    gathered = bytearray()
    for piece in pieces:
        rest = memoryview(piece)
        while len(gathered) + len(rest) >= PIECE:
            room = PIECE - len(gathered)
            if gathered:
                gathered += rest[:room]
                yield gathered
                gathered = bytearray()
            else:
                yield rest[:room]
            rest = rest[room:]
        gathered += rest
        release(memoryview(piece))
    if gathered:
        yield gathered


def patience(commands: CommandList) -> float:
    """Seconds after which a list must be over: all it may wait for, its data at a slow rate, and a margin."""
    seconds = MARGIN
    size = 0
    rounds = 1
    for operation in commands.operations:
        match operation.opcode.name:
            case "LOOP":
                rounds = operation.count
            case "END":
                rounds = 1
            case "DELAY":
                seconds += rounds * operation.value / 1e6
            case "FILL":
                size += rounds * operation.count * DWORD
            case "SLOT_IN":
                size += rounds * operation.value * SECTOR
        seconds += rounds * (OPERATION_TIME + operation.timeout / 1e6)
        size += len(operation.payload) + rounds * operation.result_size
    return seconds + size / SLOW_RATE

"""The SPI flash through a firmware that answers E4 and E5: registers of the flash controller, one by one.

A transaction is a dozen register writes, a start, and a wait. Its data lie in the buffer at 0x7000, which
the host fills with a bulk OUT packet, or slowly with E5, and reads with E4. Three properties of that buffer
are published but not measured: that only its first 128 bytes are reliable, that short reads may leave it
unfilled, and that it needs a DMA channel to be idle. So nothing is assumed: data are read back from the
buffer before they are programmed, `SpiFlash` tests at the start which length of read fills the buffer, and
what is in the buffer before a read that matters is known not to be the answer.

Sources: registers and sequences of `firmware.asm2464pd.registers.flash`, each with its own.
"""

from __future__ import annotations

from collections.abc import Callable

from firmware.asm2464pd.describe import ByteRegister
from firmware.asm2464pd.registers import dma
from firmware.asm2464pd.registers import flash as regs
from firmware.asm2464pd.registers.memory import BULK_OUT_BUFFER
from firmware.asm2464pd.registers.system import SYS_CPU_STATUS
from firmware.asm2464pd.registers.usb import BULK_COMMAND
from firmware.asm2464pd.spi import (
    ADDRESS_BYTES,
    ERASE_SECONDS,
    ID_BYTES,
    OTP_BYTES,
    PROGRAM_SECONDS,
    STATUS_SECONDS,
    SpiCommand,
    SpiStatus,
)
from firmware.protocol import requests
from sdk.errors import DeviceFailed
from usbgpu.flash.plan import CHUNK, Program
from usbgpu.transport import Transport

DIVIDER = 4
"""SPI clock divider that the open firmware sets."""
CONTROLLER_SECONDS = 1.0
"""Longest time of a transaction: 4 KiB take a few milliseconds."""
ERASE_NAP_SECONDS = 0.05
WINDOW_NAP_SECONDS = 0.002
"""Seconds between polls of an erase, and of the transfer of a long window."""
WINDOWS = (BULK_OUT_BUFFER.size, CHUNK)
"""Lengths of a read, the fastest first."""
SAMPLES = 8
"""Places at which a long read is compared with short ones."""
PROTECTION = 0xFF & ~(SpiStatus.WIP | SpiStatus.WEL)
"""Bits of the status register that are kept without power."""


class Xdata:
    """XDATA of a running firmware, by E4 and E5.

    Args:
        device: a bridge with our firmware or a compatible one.
    """

    def __init__(self, device: Transport) -> None:
        self._device = device
        self._longest = 512 if device.speed.is_super else 64

    def read(self, address: int, size: int) -> bytes:
        """Bytes from `address` on.

        Raises:
            DeviceFailed: the request failed, or the answer was too short.
        """
        request = requests.XDATA_READ
        data = b""
        while len(data) < size:
            want = min(size - len(data), self._longest)
            part = self._device.control_in(
                request.request_type, request.code, address + len(data), length=want
            )
            if len(part) != want:
                raise DeviceFailed(
                    f"{len(part)} bytes instead of {want}", where=f"XDATA {address + len(data):#06x}"
                )
            data += part
        return data

    def write(self, address: int, value: int) -> None:
        """One byte."""
        request = requests.XDATA_WRITE
        self._device.control_out(request.request_type, request.code, address, value)

    def set(self, register: ByteRegister, value: int) -> None:
        """A register, byte by byte in order of address."""
        for address in register.addresses:
            self.write(address, value >> register.shift(address) & 0xFF)

    def get(self, register: ByteRegister) -> int:
        """A register of one byte."""
        return self.read(register.address, 1)[0]


class SpiFlash:
    """The flash chip.

    Args:
        device: a bridge with our firmware or a compatible one, in exclusive use.
        reads: memory is going to be read or written. Without, only identification and status are; nothing is
            sent on the bulk endpoint.

    Attributes:
        identification: as it reports it: manufacturer, type, capacity.

    Raises:
        DeviceFailed: no flash chip answers, or it cannot be read reliably.
    """

    def __init__(self, device: Transport, *, reads: bool = True) -> None:
        self._device = device
        self._xdata = Xdata(device)
        self._window = WINDOWS[-1]
        xdata = self._xdata
        if reads:
            xdata.set(BULK_COMMAND, BULK_COMMAND["CLEAR_OUT"])
        xdata.set(SYS_CPU_STATUS, SYS_CPU_STATUS["INTERRUPT"])
        xdata.set(regs.FLASH_GATE, xdata.get(regs.FLASH_GATE) | regs.FLASH_GATE["FLASH"])
        xdata.set(regs.FLASH_BUFFER, regs.FLASH_BUFFER.field("PLACE").put(1))
        xdata.set(regs.FLASH_DIVIDER, DIVIDER)
        self._until(self._idle, CONTROLLER_SECONDS, "the flash controller is busy")
        self._until(self._ready, ERASE_SECONDS, "the flash chip is busy, or missing", nap=ERASE_NAP_SECONDS)
        self._transact(SpiCommand.EXSO)  # a run that was killed may have left it in its OTP page
        self.identification = self._ask(SpiCommand.RDID, ID_BYTES)
        if self.identification in (b"\0" * ID_BYTES, b"\xff" * ID_BYTES):
            raise DeviceFailed(
                f"no flash chip answers: its identification reads {self.identification.hex(' ')}",
                where=device.name,
                hint="power the board with the boot loader's strap set, and run this again",
            )
        if reads:
            self._choose_window()

    # -- reading ----------------------------------------------------------------------------------------

    def read(self, address: int, size: int, done: Callable[[int], None] = lambda count: None) -> bytes:
        """Memory from `address` on; `done` is called with the number of bytes so far.

        Raises:
            DeviceFailed: the controller does not finish.
        """
        data = b""
        while len(data) < size:
            window = min(self._window, size - len(data))
            data += self._read_window(address + len(data), self._window)[:window]
            done(len(data))
        return data

    def otp(self) -> bytes:
        """The one-time programmable page.

        Raises:
            DeviceFailed: the chip cannot leave it again.
        """
        self._transact(SpiCommand.ENSO)
        try:
            page = self._read_window(0, WINDOWS[-1])[:OTP_BYTES]
        finally:
            self._transact(SpiCommand.EXSO)
        self.refuse_otp(page)
        return page

    def refuse_otp(self, page: bytes) -> None:
        """Check that reads and programs access the memory, and not the OTP page `page`.

        Raises:
            DeviceFailed: they do not.
        """
        seen = self._read_window(0, WINDOWS[-1])
        if page.count(0xFF) < len(page) and seen == page * (len(seen) // len(page)):
            raise DeviceFailed(
                "the flash chip does not leave its one-time programmable page: nothing can be written safely",
                where=self._device.name,
                hint="switch all power of the board off and on, and run this again",
            )

    @property
    def status(self) -> int:
        """The bits of the status register that are kept without power."""
        return self._ask(SpiCommand.RDSR, 1)[0] & PROTECTION

    # -- changing ---------------------------------------------------------------------------------------

    def protect(self, status: int) -> None:
        """Write the status register, if it holds something else.

        Raises:
            DeviceFailed: it keeps its value.
        """
        if self.status == status:
            return
        self._load(bytes((status,)))
        self._enable()
        self._transact(SpiCommand.WRSR, length=1, write=True)
        self._until(self._ready, STATUS_SECONDS, "the flash chip is busy")
        if self.status != status:
            raise DeviceFailed(
                f"the flash chip keeps its protection: status {self.status:#04x}, not {status:#04x}",
                where=self._device.name,
                hint="check the board for a write-protect jumper",
            )

    def unprotect(self) -> None:
        """Allow the whole memory to be changed. Raises as `protect`."""
        self.protect(self.status & ~SpiStatus.BP)

    def erase(self, address: int) -> None:
        """Erase the sector of 4 KiB that starts at `address`.

        Raises:
            DeviceFailed: the chip does not begin, or does not finish.
        """
        self._enable()
        self._transact(SpiCommand.SE, address)
        self._until(self._ready, ERASE_SECONDS, "an erase does not finish", nap=ERASE_NAP_SECONDS)

    def program(self, step: Program) -> None:
        """Program part of a page, and wait until that is over.

        Raises:
            DeviceFailed: the data do not reach the buffer, or the chip does not finish.
        """
        self._load(step.data)
        self._enable()
        self._transact(SpiCommand.PP, step.address, length=len(step.data), write=True)
        self._until(self._ready, PROGRAM_SECONDS, "a page program does not finish")

    def spoil(self, expected: bytes) -> None:
        """Fill the buffer with anything but `expected`, so that a read that does nothing is detected."""
        self._load(bytes(value ^ 0xFF for value in expected[:CHUNK]))

    # -- inside -----------------------------------------------------------------------------------------

    def _choose_window(self) -> None:
        """Find out which length of read fills the buffer with what is in the flash.

        A read of the shortest length must not depend on what was in the buffer. A longer one must give the
        same as short reads at some places in it, its end among them.
        """
        short = WINDOWS[-1]
        answers = []
        for filler in (0x55, 0xAA):
            self._load(bytes([filler]) * short)
            answers.append(self._read_window(0, short))
        if answers[0] != answers[1]:
            raise DeviceFailed(
                "reads of the flash do not reach the buffer: two of the same place differ",
                where=self._device.name,
                hint="power the board with the boot loader's strap set, and run this again",
            )
        for window in WINDOWS[:-1]:
            whole = self._read_window(0, window)
            places = range(window - short, -1, -window // SAMPLES)
            if all(self._read_window(place, short) == whole[place : place + short] for place in places):
                self._window = window
                return

    def _read_window(self, address: int, size: int) -> bytes:
        fill = (dma.DMA_FILL_CHANNEL, dma.DMA_FILL_TRIGGER, dma.DMA_FILL_BANK_CQ, dma.DMA_FILL_BANK_SQ)
        for register in fill:
            self._xdata.set(register, 0)
        self._transact(SpiCommand.READ, address, length=size)
        self._until(self._filled, CONTROLLER_SECONDS, "the buffer is not filled")
        return self._xdata.read(BULK_OUT_BUFFER.address, size)

    def _filled(self) -> bool:
        active = self._xdata.get(dma.DMA_FILL_CHANNEL) & dma.DMA_FILL_CHANNEL["ACTIVE"]
        return not active and not self._xdata.get(dma.DMA_FILL_TRIGGER) & dma.DMA_FILL_TRIGGER["START"]

    def _ask(self, command: SpiCommand, size: int) -> bytes:
        self._transact(command, length=size)
        return self._xdata.read(BULK_OUT_BUFFER.address, size)

    def _load(self, data: bytes) -> None:
        """Put data into the buffer: one bulk OUT packet, which the firmware ignores.

        Where that does not bring all of it (at USB 2, 64 bytes: hardware, pull request 83 of
        tinygrad/asm2464pd-firmware), the rest is written byte by byte, as the dock's updater does with all.
        """
        self._xdata.set(BULK_COMMAND, BULK_COMMAND["ARM_OUT"])
        self._device.bulk_out(data)
        for attempt in range(2):
            arrived = self._xdata.read(BULK_OUT_BUFFER.address, len(data))
            if arrived == data or attempt:
                break
            for place, value in enumerate(data):
                if arrived[place] != value:
                    self._xdata.write(BULK_OUT_BUFFER.address + place, value)
        if arrived != data:
            place = next(index for index, value in enumerate(data) if arrived[index] != value)
            raise DeviceFailed(
                f"data for the flash arrived as {arrived[place]:#04x} instead of {data[place]:#04x}",
                where=f"XDATA {BULK_OUT_BUFFER.address + place:#06x}",
                hint="no wrong data was written; run this again, or with the boot loader's strap set",
            )

    def _enable(self) -> None:
        self._transact(SpiCommand.WREN)

    def _transact(
        self, command: SpiCommand, address: int | None = None, *, length: int = 0, write: bool = False
    ) -> None:
        """One selection of the chip; data come from, or go to, the buffer."""
        xdata = self._xdata
        layout = regs.FLASH_ADDRESS_LENGTH
        size = 0 if address is None else ADDRESS_BYTES
        xdata.set(regs.FLASH_CONTROL, 0)
        xdata.set(regs.FLASH_MODE, regs.FLASH_MODE["WRITE"] if write else 0)
        xdata.set(regs.FLASH_BUFFER_OFFSET, 0)
        xdata.set(regs.FLASH_COMMAND, command)
        xdata.set(regs.FLASH_ADDRESS_LENGTH, layout.field("MODE").put(1) | layout.field("BYTES").put(size))
        if address is not None:
            xdata.set(regs.FLASH_ADDRESS_LOW, address & 0xFF)
            xdata.set(regs.FLASH_ADDRESS_MIDDLE, address >> 8 & 0xFF)
            xdata.set(regs.FLASH_ADDRESS_HIGH, address >> 16 & 0xFF)
        xdata.set(regs.FLASH_LENGTH, length)
        xdata.set(regs.FLASH_CSR, regs.FLASH_CSR["BUSY"])
        hangs = f"the flash controller hangs in command {command:#04x}"
        self._until(self._idle, CONTROLLER_SECONDS, hangs, nap=WINDOW_NAP_SECONDS * (length > CHUNK))
        if write:
            xdata.set(regs.FLASH_MODE, 0)

    def _idle(self) -> bool:
        return not self._xdata.get(regs.FLASH_CSR) & regs.FLASH_CSR["BUSY"]

    def _ready(self) -> bool:
        return not self._ask(SpiCommand.RDSR, 1)[0] & SpiStatus.WIP

    def _until(self, over: Callable[[], bool], seconds: float, what: str, nap: float = 0.0) -> None:
        """Wait until `over` is true; it is checked once more after the time is up."""
        clock = self._device.clock
        end = clock.now() + seconds
        while True:
            last = clock.now() >= end
            if over():
                return
            if last:
                raise DeviceFailed(f"{what}: gave up after {seconds:g} s", where=self._device.name)
            if nap:
                clock.sleep(nap)

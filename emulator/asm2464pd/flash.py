"""The SPI flash controller: sends commands to the flash chip, and moves data through the buffer at 0x7000.

What a transaction sends, and which register holds what, is the open firmware's use of it. That the data
reaches the buffer at the end of the transaction is inferred. A start without the gate bit of FLASH_GATE is
ignored and reported: the open firmware's flash script observed that, while later revisions of that firmware
read the flash without ever setting it. The buffer is the bulk OUT buffer as well, without arbitration: a
packet that lands while a transaction runs is reported.
"""

from __future__ import annotations

from emulator.asm2464pd.flash_chip import ADDRESS_BYTES, FlashChip
from emulator.asm2464pd.undefined import Reporter
from emulator.core.bus import Bus
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import flash as regs
from firmware.asm2464pd.registers.memory import BULK_OUT_BUFFER

_STORAGE = (
    regs.FLASH_CONTROL,
    regs.FLASH_ADDRESS_LOW,
    regs.FLASH_ADDRESS_MIDDLE,
    regs.FLASH_ADDRESS_HIGH,
    regs.FLASH_LENGTH,
    regs.FLASH_DIVIDER,
    regs.FLASH_COMMAND,
    regs.FLASH_ADDRESS_LENGTH,
    regs.FLASH_MODE,
    regs.FLASH_BUFFER_OFFSET,
    regs.FLASH_GATE,
    regs.FLASH_DMA_CHANNEL,
    regs.FLASH_DMA_TRIGGER,
    regs.FLASH_DMA_STATUS,
    regs.FLASH_DMA_STATUS2,
)


class FlashController:
    """The flash controller.

    Args:
        bus: registers and the buffer.
        chip: the flash chip on its pins.
    """

    def __init__(self, bus: Bus, chip: FlashChip) -> None:
        self._bus = bus
        self._chip = chip
        self._undefined = Reporter(bus)
        for register in _STORAGE:
            bus.map(register, "flash")
        bus.map(regs.FLASH_CSR, "flash", write=self._csr_written)

    def _csr_written(self, value: int) -> None:
        bus = self._bus
        busy = regs.FLASH_CSR["BUSY"]
        if not value & busy or bus.value(regs.FLASH_CSR) & busy:
            return
        if not bus.value(regs.FLASH_GATE) & regs.FLASH_GATE["FLASH"]:
            self._undefined.report(
                "a flash transaction was started without FLASH_GATE.FLASH",
                hint="sources disagree whether it runs; in the model nothing is sent",
            )
            return
        self._start()

    def _start(self) -> None:
        bus = self._bus
        address = (
            bus.value(regs.FLASH_ADDRESS_HIGH),
            bus.value(regs.FLASH_ADDRESS_MIDDLE),
            bus.value(regs.FLASH_ADDRESS_LOW),
        )
        count = regs.FLASH_ADDRESS_LENGTH.field("BYTES").get(bus.value(regs.FLASH_ADDRESS_LENGTH))
        out = bytes((bus.value(regs.FLASH_COMMAND), *address[ADDRESS_BYTES - count :]))
        length = bus.value(regs.FLASH_LENGTH)
        place = BULK_OUT_BUFFER.address + bus.value(regs.FLASH_BUFFER_OFFSET) % BULK_OUT_BUFFER.size
        # Longer transfers than the buffer take their time; what happens to the surplus is not known.
        size = min(length, BULK_OUT_BUFFER.address + BULK_OUT_BUFFER.size - place)
        before = bus.load(Space.XDATA, place, size)
        writes = bool(bus.value(regs.FLASH_MODE) & regs.FLASH_MODE["WRITE"])

        def finish() -> None:
            if bus.load(Space.XDATA, place, size) != before:
                self._undefined.report(
                    "the buffer at 0x7000 changed under a flash transaction: a bulk OUT packet landed in it",
                    hint="arm EP 0x02 when FLASH_CSR.BUSY is clear; the model takes the bytes from before",
                )
            if writes:
                self._chip.transfer(out + before)
            else:
                bus.store(Space.XDATA, place, self._chip.transfer(out, size))
            bus.clear_bits(regs.FLASH_CSR, regs.FLASH_CSR["BUSY"])

        bus.raise_bits(regs.FLASH_CSR, regs.FLASH_CSR["BUSY"])
        bits = 8 * (len(out) + length)
        bus.clock.after(bits * (bus.value(regs.FLASH_DIVIDER) + 1), finish)

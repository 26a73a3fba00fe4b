"""The SPI flash controller: sends commands to the flash chip, and moves data through one of the bulk buffers.

What a transaction sends, and which register holds what, is the open firmware's use of it. That the data
reaches the buffer at the end of the transaction is inferred. FLASH_BUFFER chooses the buffer. It is shared
with the endpoint, without arbitration, and the CPU may write it too: a change while a transaction runs is
reported. Whether a transaction needs the gate bit of FLASH_GATE is disputed.
"""

from __future__ import annotations

from emulator.asm2464pd.flash_chip import ADDRESS_BYTES, FlashChip
from emulator.asm2464pd.undefined import Reporter
from emulator.core.bus import Bus
from emulator.model import DEFAULT, Model
from firmware.asm2464pd import disputes
from firmware.asm2464pd.describe import Memory, Space
from firmware.asm2464pd.registers import flash as regs
from firmware.asm2464pd.registers.memory import BULK_IN_BUFFER, BULK_OUT_BUFFER

_STORAGE = (
    regs.FLASH_BUFFER,
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
)
_PLACE = regs.FLASH_BUFFER.field("PLACE")


class FlashController:
    """The flash controller.

    Args:
        bus: registers and the buffer.
        chip: the flash chip on its pins.
        model: whether the gate counts.
    """

    def __init__(self, bus: Bus, chip: FlashChip, model: Model = DEFAULT) -> None:
        self._bus = bus
        self._chip = chip
        self._gated = model.follows(disputes.FLASH_GATE, "needed")
        self._undefined = Reporter(bus)
        for register in _STORAGE:
            bus.map(register, "flash")
        bus.map(regs.FLASH_CSR, "flash", write=self._csr_written)

    def _csr_written(self, value: int) -> None:
        bus = self._bus
        busy = regs.FLASH_CSR["BUSY"]
        if not value & busy or bus.value(regs.FLASH_CSR) & busy:
            return
        if self._gated and not bus.value(regs.FLASH_GATE) & regs.FLASH_GATE["FLASH"]:
            self._undefined.report(
                "a flash transaction was started without FLASH_GATE.FLASH",
                hint="with flash-gate=needed nothing is sent; set the bit",
            )
            return
        self._start()

    def _buffer(self) -> Memory:
        """The buffer that holds the data."""
        place = _PLACE.get(self._bus.value(regs.FLASH_BUFFER))
        if place not in _PLACE.values:
            self._undefined.report(
                "a flash transaction was started with another buffer than the two known ones",
                detail=f"FLASH_BUFFER.PLACE is {place}",
                hint="0 is 0x8000, 1 is 0x7000; the model takes 0x7000",
            )
        return BULK_IN_BUFFER if place == 0 else BULK_OUT_BUFFER

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
        buffer = self._buffer()
        place = buffer.address + bus.value(regs.FLASH_BUFFER_OFFSET) % buffer.size
        # Longer transfers than the buffer take their time; what happens to the surplus is not known.
        size = min(length, buffer.address + buffer.size - place)
        before = bus.load(Space.XDATA, place, size)
        writes = bool(bus.value(regs.FLASH_MODE) & regs.FLASH_MODE["WRITE"])

        def finish() -> None:
            if bus.load(Space.XDATA, place, size) != before:
                self._undefined.report(
                    f"the buffer at {buffer.address:#06x} changed under a flash transaction: a bulk OUT "
                    "packet landed in it, or the CPU wrote it",
                    hint="arm EP 0x02, and write it, when FLASH_CSR.BUSY is clear; the model takes the bytes "
                    "from before",
                )
            if writes:
                self._chip.transfer(out + before)
            else:
                bus.store(Space.XDATA, place, self._chip.transfer(out, size))
            bus.clear_bits(regs.FLASH_CSR, regs.FLASH_CSR["BUSY"])

        bus.raise_bits(regs.FLASH_CSR, regs.FLASH_CSR["BUSY"])
        bits = 8 * (len(out) + length)
        bus.clock.after(bits * (bus.value(regs.FLASH_DIVIDER) + 1), finish)

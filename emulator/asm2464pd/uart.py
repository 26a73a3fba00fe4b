"""The UART: bytes out to a listener, bytes in from a terminal, at the line's rate.

Its registers are those of the UART in ASMedia's USB host controllers. The open firmware writes without ever
asking for room, so the transmit FIFO takes everything; the status registers show what a FIFO of 16 bytes
would, and when the line is idle again. A listener gets each byte when it is written, not when its stop bit
has left, so that nothing is missing when a run ends.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from emulator.core.bus import Bus
from emulator.core.clock import HZ
from firmware.asm2464pd.registers import system as regs

BAUD = 921_600
"""Fixed; cyrozap's notes say that writing a divisor has no effect."""
FIFO_DEPTH = regs.UART_TX_FREE.reset


class Uart:
    """The UART.

    Args:
        bus: registers.
        transmit: takes what firmware sends.
    """

    def __init__(self, bus: Bus, transmit: Callable[[bytes], None]) -> None:
        self._bus = bus
        self._transmit = transmit
        self._sending = 0
        self._line: deque[int] = deque()
        self._received: deque[int] = deque()
        bus.map(regs.UART_THR, "uart", write=self._thr_written)
        bus.map(regs.UART_RBR, "uart", read=self._rbr_read)
        for register in (
            regs.UART_IER,
            regs.UART_FCR,
            regs.UART_RX_COUNT,
            regs.UART_TX_FREE,
            regs.UART_LCR,
            regs.UART_MCR,
            regs.UART_LSR,
        ):
            bus.map(register, "uart")

    def receive(self, data: bytes) -> None:
        """Bytes arrive on the line, one character time after another."""
        idle = not self._line
        self._line.extend(data)
        if idle and data:
            self._bus.clock.after(self.character_clocks, self._arrived)

    @property
    def character_clocks(self) -> int:
        """Clocks that one character takes on the line: start, data, parity and stop bits."""
        lcr = self._bus.value(regs.UART_LCR)
        data = 5 + regs.UART_LCR.field("DATA_BITS").get(lcr)
        parity = regs.UART_LCR.field("PARITY").get(lcr) & 1
        stop = 2 if lcr & regs.UART_LCR["STOP_BITS"] else 1
        return math.ceil((1 + data + parity + stop) * HZ / BAUD)

    def _thr_written(self, value: int) -> None:
        self._transmit(bytes((value,)))
        self._sending += 1
        self._show_transmitter()
        if self._sending == 1:
            self._bus.clock.after(self.character_clocks, self._sent)

    def _sent(self) -> None:
        self._sending -= 1
        self._show_transmitter()
        if self._sending:
            self._bus.clock.after(self.character_clocks, self._sent)

    def _show_transmitter(self) -> None:
        self._bus.set(regs.UART_TX_FREE, max(0, FIFO_DEPTH - self._sending))
        self._bus.set(regs.UART_LSR, 0 if self._sending else regs.UART_LSR["TX_EMPTY"])

    def _arrived(self) -> None:
        self._received.append(self._line.popleft())
        self._show_receiver()
        if self._line:
            self._bus.clock.after(self.character_clocks, self._arrived)

    def _rbr_read(self) -> int:
        value = self._received.popleft() if self._received else 0
        self._show_receiver()
        return value

    def _show_receiver(self) -> None:
        self._bus.set(regs.UART_RX_COUNT, min(0xFF, len(self._received)))

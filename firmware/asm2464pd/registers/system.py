"""Registers of the UART, the timers and the system controls.

The UART is that of ASMedia's USB host controllers, whose register list is published. The use of the timers is
known from the open firmware, which sleeps with timers 0 and 1.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Access, Evidence, Field

_OPEN = "open firmware, main.c"
_HEADER = "open firmware's repository, registers.h"
_SIBLING = "cyrozap/asmedia-xhc-re, regs-asm1142.yaml"
_UART_SOURCE = f"{_HEADER}; {_SIBLING}"

UART_RBR = ByteRegister(
    "UART_RBR",
    Space.XDATA,
    0xC000,
    Evidence.INFERRED,
    "Receive buffer: a read takes the oldest byte received.",
    access=Access.FIFO,
    source=_UART_SOURCE,
)
UART_THR = ByteRegister(
    "UART_THR",
    Space.XDATA,
    0xC001,
    Evidence.TRACE,
    "Transmit holding register: a write queues a byte. The open firmware does not check for space.",
    access=Access.WO,
    source=_OPEN,
)
UART_IER = ByteRegister(
    "UART_IER", Space.XDATA, 0xC002, Evidence.INFERRED, "Interrupt enable.", source=_UART_SOURCE
)
UART_FCR = ByteRegister(
    "UART_FCR", Space.XDATA, 0xC004, Evidence.INFERRED, "FIFO control.", source=_UART_SOURCE
)
UART_RX_COUNT = ByteRegister(
    "UART_RX_COUNT",
    Space.XDATA,
    0xC005,
    Evidence.INFERRED,
    "Bytes received and not read yet.",
    access=Access.RO,
    source=_UART_SOURCE,
)
UART_TX_FREE = ByteRegister(
    "UART_TX_FREE",
    Space.XDATA,
    0xC006,
    Evidence.INFERRED,
    "Free bytes in the transmit FIFO. Its depth is not known; the model reports 16 and never drops a byte.",
    access=Access.RO,
    reset=16,
    source=_UART_SOURCE,
)
UART_LCR = ByteRegister(
    "UART_LCR",
    Space.XDATA,
    0xC007,
    Evidence.TRACE,
    "Line control; the reset value is 8 data bits, odd parity, 1 stop bit.",
    reset=0x0B,
    fields=(
        Field("DATA_BITS", 0, 2, "number of data bits - 5", evidence=Evidence.INFERRED),
        Field("STOP_BITS", 2, doc="two stop bits", evidence=Evidence.INFERRED),
        Field("PARITY", 3, 3, "the lowest bit enables it", values={0: "NONE", 1: "ODD", 3: "EVEN"}),
    ),
    source=f"{_OPEN}; {_SIBLING}",
)
UART_MCR = ByteRegister(
    "UART_MCR", Space.XDATA, 0xC008, Evidence.INFERRED, "Modem control.", source=_UART_SOURCE
)
UART_LSR = ByteRegister(
    "UART_LSR",
    Space.XDATA,
    0xC009,
    Evidence.TRACE,
    "Line status.",
    access=Access.RO,
    reset=0x20,
    fields=(Field("TX_EMPTY", 5, doc="everything has been sent"),),
    source="open firmware, proxy.c",
)


def _mode(timer: int, address: int, evidence: Evidence) -> ByteRegister:
    return ByteRegister(
        f"TIMER{timer}_MODE",
        Space.XDATA,
        address,
        evidence,
        f"Timer {timer}: length of a tick.",
        fields=(
            Field(
                "PRESCALER",
                0,
                3,
                "4 is 0.5 ms; that each of 2 to 6 doubles the tick is inferred, other values are a guess",
                values={4: "HALF_MILLISECOND"},
            ),
            Field("UPPER", 3, 5, "kept by the firmware"),
        ),
        source=_OPEN,
    )


def _csr(timer: int, address: int, evidence: Evidence) -> ByteRegister:
    return ByteRegister(
        f"TIMER{timer}_CSR",
        Space.XDATA,
        address,
        evidence,
        f"Timer {timer}: control and status. A start writes CLEAR, EXPIRED and ENABLE, one after another.",
        access=Access.SELF_CLEARING,
        fields=(
            Field("ENABLE", 0, doc="write 1 to count; reads 1 until the threshold is reached"),
            Field("EXPIRED", 1, doc="the threshold has been reached; write 1 to clear"),
            Field("CLEAR", 2, doc="write 1 to stop, and to count from 0 again"),
        ),
        source=_OPEN,
    )


def _threshold(timer: int, address: int, evidence: Evidence) -> ByteRegister:
    return ByteRegister(
        f"TIMER{timer}_THRESHOLD",
        Space.XDATA,
        address,
        evidence,
        f"Timer {timer}: ticks until it expires.",
        size=2,
        source=_OPEN,
    )


TIMER0_MODE = _mode(0, 0xCC10, Evidence.TRACE)
TIMER0_CSR = _csr(0, 0xCC11, Evidence.TRACE)
TIMER0_THRESHOLD = _threshold(0, 0xCC12, Evidence.TRACE)
TIMER1_MODE = _mode(1, 0xCC16, Evidence.TRACE)
TIMER1_CSR = _csr(1, 0xCC17, Evidence.TRACE)
TIMER1_THRESHOLD = _threshold(1, 0xCC18, Evidence.TRACE)
TIMER2_MODE = _mode(2, 0xCC1C, Evidence.INFERRED)
TIMER2_CSR = _csr(2, 0xCC1D, Evidence.INFERRED)
TIMER2_THRESHOLD = _threshold(2, 0xCC1E, Evidence.INFERRED)
TIMER3_MODE = _mode(3, 0xCC22, Evidence.INFERRED)
TIMER3_CSR = _csr(3, 0xCC23, Evidence.INFERRED)
TIMER3_THRESHOLD = _threshold(3, 0xCC24, Evidence.INFERRED)
TIMER4_MODE = _mode(4, 0xCC5C, Evidence.INFERRED)
TIMER4_CSR = _csr(4, 0xCC5D, Evidence.INFERRED)
TIMER4_THRESHOLD = _threshold(4, 0xCC5E, Evidence.INFERRED)

SYS_USB_POWER = ByteRegister(
    "SYS_USB_POWER",
    Space.XDATA,
    0xCC28,
    Evidence.INFERRED,
    "Takes the USB link down and up again; the CPU runs on.",
    access=Access.SELF_CLEARING,
    fields=(Field("CYCLE", 0, doc="write 1"),),
    source=_HEADER,
)
SYS_CPU_RESTART = ByteRegister(
    "SYS_CPU_RESTART",
    Space.XDATA,
    0xCC31,
    Evidence.TRACE,
    "Restarts the CPU at address 0 and enumerates again. RAM and code stay as they are.",
    access=Access.SELF_CLEARING,
    fields=(Field("RESTART", 0, doc="write 1"),),
    source="open firmware, util.h",
)
SYS_CPU_STATUS = ByteRegister(
    "SYS_CPU_STATUS",
    Space.XDATA,
    0xCC33,
    Evidence.TRACE,
    "A cause of INT1; the open firmware writes 4 when it sets the flash controller up.",
    fields=(Field("INTERRUPT", 2, doc="write 1 to clear; never set here", evidence=Evidence.INFERRED),),
    source="open firmware, flash.h; the chip maker's firmware, disassembled",
)

"""The 8051's special function registers: the classic ones, and the two that bank memory.

The ASM2464PD's core is an MCS-51 with timer 2's registers where an 8052 has them. What open firmware for the
chip uses is graded "trace"; the rest is standard MCS-51, and no source contradicts that this core has it.
"""

from __future__ import annotations

from firmware.asm2464pd.describe import ByteRegister, Space
from sdk.facts.registers import Access, Evidence, Field

_MANUAL = "MCS-51 manual, special function registers"
_FIRMWARE = "open firmware, compiler's start-up and interrupt code"

CPU_P0 = ByteRegister(
    "CPU_P0", Space.SFR, 0x80, Evidence.INFERRED, "Port 0; storage here: no pin is known to be on it.",
    reset=0xFF, source=_MANUAL,
)  # fmt: skip
CPU_SP = ByteRegister(
    "CPU_SP", Space.SFR, 0x81, Evidence.TRACE, "Stack pointer: IRAM address of the last byte pushed.",
    reset=0x07, source=_FIRMWARE,
)  # fmt: skip
CPU_DPL = ByteRegister(
    "CPU_DPL", Space.SFR, 0x82, Evidence.TRACE, "Data pointer, bits 7:0.", source=_FIRMWARE
)
CPU_DPH = ByteRegister(
    "CPU_DPH", Space.SFR, 0x83, Evidence.TRACE, "Data pointer, bits 15:8.", source=_FIRMWARE
)
CPU_PCON = ByteRegister(
    "CPU_PCON", Space.SFR, 0x87, Evidence.INFERRED, "Power control; the idle mode is not modelled.",
    fields=(
        Field("IDL", 0, doc="Idle until an interrupt."),
        Field("PD", 1, doc="Stop the clock."),
        Field("GF0", 2),
        Field("GF1", 3),
        Field("SMOD", 7, doc="Double the serial port's rate."),
    ),
    source=_MANUAL,
)  # fmt: skip
CPU_TCON = ByteRegister(
    "CPU_TCON", Space.SFR, 0x88, Evidence.TRACE, "Timers 0 and 1, external interrupts.",
    fields=(
        Field("IT0", 0, doc="INT0 by falling edge; else by level."),
        Field("IE0", 1, doc="INT0 pending; follows the line when by level."),
        Field("IT1", 2, doc="INT1 by falling edge; else by level."),
        Field("IE1", 3, doc="INT1 pending; follows the line when by level."),
        Field("TR0", 4, doc="Timer 0 runs."),
        Field("TF0", 5, doc="Timer 0 overflowed; its interrupt clears it."),
        Field("TR1", 6, doc="Timer 1 runs."),
        Field("TF1", 7, doc="Timer 1 overflowed; its interrupt clears it."),
    ),
    source=_FIRMWARE,
)  # fmt: skip
_MODES = {0: "13 bits", 1: "16 bits", 2: "8 bits, reloaded", 3: "split (timer 0), stopped (timer 1)"}
CPU_TMOD = ByteRegister(
    "CPU_TMOD", Space.SFR, 0x89, Evidence.INFERRED, "Modes of timers 0 and 1; one count is 12 clocks.",
    fields=(
        Field("M0", 0, 2, "Mode of timer 0.", values=_MODES),
        Field("CT0", 2, doc="Count the T0 pin instead of clocks; no pin is modelled."),
        Field("GATE0", 3, doc="Count only while INT0 is not asserted."),
        Field("M1", 4, 2, "Mode of timer 1.", values=_MODES),
        Field("CT1", 6, doc="Count the T1 pin instead of clocks; no pin is modelled."),
        Field("GATE1", 7, doc="Count only while INT1 is not asserted."),
    ),
    source=_MANUAL,
)  # fmt: skip
CPU_TL0 = ByteRegister("CPU_TL0", Space.SFR, 0x8A, Evidence.INFERRED, "Timer 0, bits 7:0.", source=_MANUAL)
CPU_TL1 = ByteRegister("CPU_TL1", Space.SFR, 0x8B, Evidence.INFERRED, "Timer 1, bits 7:0.", source=_MANUAL)
CPU_TH0 = ByteRegister("CPU_TH0", Space.SFR, 0x8C, Evidence.INFERRED, "Timer 0, bits 15:8.", source=_MANUAL)
CPU_TH1 = ByteRegister("CPU_TH1", Space.SFR, 0x8D, Evidence.INFERRED, "Timer 1, bits 15:8.", source=_MANUAL)
CPU_P1 = ByteRegister(
    "CPU_P1", Space.SFR, 0x90, Evidence.INFERRED, "Port 1; storage here.", reset=0xFF, source=_MANUAL
)
CPU_DPX = ByteRegister(
    "CPU_DPX", Space.SFR, 0x93, Evidence.TRACE, "Which 64 KiB space MOVX reaches.",
    fields=(Field("PLANE", 0, values={0: "XDATA", 1: "PHY and PCIe switch registers"}),),
    source="open firmware, PHY access",
)  # fmt: skip
CPU_CODE_BANK = ByteRegister(
    "CPU_CODE_BANK", Space.SFR, 0x96, Evidence.TRACE, "Which code is at 0x8000 to 0xFFFF.",
    fields=(Field("BANK", 0),),
    source="open firmware, start-up code and image splitter; the vendor firmware's bank trampolines",
)  # fmt: skip
CPU_SCON = ByteRegister(
    "CPU_SCON", Space.SFR, 0x98, Evidence.INFERRED, "Serial port control.",
    fields=(
        Field("RI", 0, doc="A byte has arrived."),
        Field("TI", 1, doc="The byte written has left."),
        Field("RB8", 2),
        Field("TB8", 3),
        Field("REN", 4, doc="Receive."),
        Field("SM2", 5),
        Field("MODE", 6, 2),
    ),
    source=_MANUAL,
)  # fmt: skip
CPU_SBUF = ByteRegister(
    "CPU_SBUF", Space.SFR, 0x99, Evidence.INFERRED,
    "Serial data: a read returns the byte received, a write sends one.",
    access=Access.FIFO, source=_MANUAL,
)  # fmt: skip
CPU_P2 = ByteRegister(
    "CPU_P2", Space.SFR, 0xA0, Evidence.GUESS,
    "Port 2. Whether it is bits 15:8 of the address of MOVX by R0 or R1, as on any MCS-51, is not known.",
    reset=0xFF, source=_MANUAL,
)  # fmt: skip
CPU_IE = ByteRegister(
    "CPU_IE", Space.SFR, 0xA8, Evidence.TRACE, "Interrupt enables.",
    fields=(
        Field("EX0", 0, doc="INT0: the chip's first interrupt summary."),
        Field("ET0", 1),
        Field("EX1", 2, doc="INT1: the chip's system and PCIe interrupts."),
        Field("ET1", 3),
        Field("ES", 4),
        Field("ET2", 5),
        Field("EA", 7, doc="Enables interrupts; 0 disables all of them."),
    ),
    source=_FIRMWARE,
)  # fmt: skip
CPU_P3 = ByteRegister(
    "CPU_P3", Space.SFR, 0xB0, Evidence.INFERRED, "Port 3; storage here.", reset=0xFF, source=_MANUAL
)
CPU_IP = ByteRegister(
    "CPU_IP", Space.SFR, 0xB8, Evidence.INFERRED, "Interrupt priorities: 1 is high.",
    fields=(
        Field("PX0", 0),
        Field("PT0", 1),
        Field("PX1", 2),
        Field("PT1", 3),
        Field("PS", 4),
        Field("PT2", 5),
    ),
    source=_MANUAL,
)  # fmt: skip
CPU_T2CON = ByteRegister(
    "CPU_T2CON", Space.SFR, 0xC8, Evidence.INFERRED, "Timer 2 control.",
    fields=(
        Field("CP_RL2", 0, doc="Capture instead of reload."),
        Field("C_T2", 1, doc="Count the T2 pin instead of clocks; no pin is modelled."),
        Field("TR2", 2, doc="Timer 2 runs."),
        Field("EXEN2", 3, doc="React to the T2EX pin; no pin is modelled."),
        Field("TCLK", 4),
        Field("RCLK", 5),
        Field("EXF2", 6, doc="T2EX fell; software clears it."),
        Field("TF2", 7, doc="Timer 2 overflowed; software clears it."),
    ),
    source=_MANUAL,
)  # fmt: skip
CPU_RCAP2L = ByteRegister(
    "CPU_RCAP2L", Space.SFR, 0xCA, Evidence.INFERRED, "Timer 2's reload value, bits 7:0.", source=_MANUAL
)
CPU_RCAP2H = ByteRegister(
    "CPU_RCAP2H", Space.SFR, 0xCB, Evidence.INFERRED, "Timer 2's reload value, bits 15:8.", source=_MANUAL
)
CPU_TL2 = ByteRegister("CPU_TL2", Space.SFR, 0xCC, Evidence.INFERRED, "Timer 2, bits 7:0.", source=_MANUAL)
CPU_TH2 = ByteRegister("CPU_TH2", Space.SFR, 0xCD, Evidence.INFERRED, "Timer 2, bits 15:8.", source=_MANUAL)
CPU_PSW = ByteRegister(
    "CPU_PSW", Space.SFR, 0xD0, Evidence.TRACE, "Program status.",
    fields=(
        Field("P", 0, doc="Odd number of ones in ACC; a write has no effect.", access=Access.RO),
        Field("F1", 1),
        Field("OV", 2, doc="Overflow."),
        Field("RS", 3, 2, "Bank of R0 to R7."),
        Field("F0", 5),
        Field("AC", 6, doc="Carry out of bit 3."),
        Field("CY", 7, doc="Carry."),
    ),
    source=_FIRMWARE,
)  # fmt: skip
CPU_ACC = ByteRegister("CPU_ACC", Space.SFR, 0xE0, Evidence.TRACE, "Accumulator.", source=_FIRMWARE)
CPU_B = ByteRegister("CPU_B", Space.SFR, 0xF0, Evidence.TRACE, "B register of MUL and DIV.", source=_FIRMWARE)

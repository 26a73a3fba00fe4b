"""Every constant of the chip's virtual-time model, each with its grade; printed by the tools. Those of the
USB link and of the host are in `emulator.usb.timing`.

Two published rates of the open firmware on silicon (3.6 MB/s stream write, 1.8 MB/s stream read) are what the
CPU clock, the MOVX time, the PCIe round trip and the packet turn-around were fitted to; `tests/` repeats the
fit.
"""

from __future__ import annotations

from emulator.core.clock import Timing, clocks
from sdk.facts.registers import Evidence

PCIE_READ = Timing(clocks(1.35e-6), Evidence.INFERRED, "round trip of a non-posted TLP: 1.35 us")
PCIE_TIMEOUT = Timing(clocks(50e-3), Evidence.GUESS, "completion time-out of the hardware: 50 ms")
PACKET_TURNAROUND = Timing(770, Evidence.INFERRED, "a CPU-armed bulk packet of up to 1 KiB: 770 clocks")
LINK_DETECT = Timing(clocks(12e-3), Evidence.INFERRED, "the receiver looks for a partner: every 12 ms")
LINK_TRAINING = Timing(clocks(10e-3), Evidence.GUESS, "from the lanes' set-up to the first link event: 10 ms")
PHY_START = Timing(clocks(1e-3), Evidence.GUESS, "from the PHY's start pulse to its completion bit: 1 ms")
FILL_BYTE = Timing(1, Evidence.GUESS, "the fill engine, a byte: 1 clock")
PCIE_UNSTABLE = Timing(clocks(20e-3), Evidence.GUESS, "a link that does not hold its rate: 20 ms in L0")
PCIE_TRAINING = Timing(clocks(100e-3), Evidence.GUESS, "from PERST# released to L0: 100 ms")
FLASH_PAGE_PROGRAM = Timing(clocks(1.4e-3), Evidence.GUESS, "SPI flash, programming a page: 1.4 ms typical")
FLASH_SECTOR_ERASE = Timing(clocks(60e-3), Evidence.GUESS, "SPI flash, erasing 4 KiB: 60 ms typical")
FLASH_BLOCK_ERASE = Timing(clocks(0.7), Evidence.GUESS, "SPI flash, erasing 64 KiB: 0.7 s typical")
FLASH_STATUS_WRITE = Timing(clocks(40e-3), Evidence.GUESS, "SPI flash, writing the status register: 40 ms")
I2C_BIT = Timing(clocks(2.5e-6), Evidence.GUESS, "a bit on the I2C bus: 2.5 us (400 kHz)")
ROM_RESTART = Timing(
    clocks(1e-3), Evidence.GUESS, "from the last status of the mask ROM to its restart: 1 ms"
)

SLOT_DMA_BYTES_PER_SECOND = 700_000_000
"""Slot DMA between SRAM and the USB link [hardware: 381, later 700 MB/s published]."""
PCIE_LANE_BYTES_PER_SECOND = {1: 250e6, 2: 500e6, 3: 8e9 * 128 / 130 / 8, 4: 16e9 * 128 / 130 / 8}
"""What a lane carries, by generation [PCI Express base specification]."""
PCIE_DATA_SHARE = 128 / 148
"""A bus master's data in that: packets of 128 bytes with 20 bytes around them, as the bridge's memory has
addresses of 32 bits [assumption]."""


def pcie_bytes_per_second(generation: int, lanes: int) -> int:
    """A bus master's data on a link."""
    return round(lanes * PCIE_LANE_BYTES_PER_SECOND[generation] * PCIE_DATA_SHARE)

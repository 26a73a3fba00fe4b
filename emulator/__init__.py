"""An ASM2464PD that runs real firmware: its 8051, its peripherals, what hangs on its PCIe and USB.

It models the chip and never a firmware. `emulator.board` puts the parts together.
"""

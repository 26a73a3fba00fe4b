"""An ASM2464PD that runs real firmware: its 8051, its peripherals, what hangs on its PCIe and USB.

It models the chip and never a firmware. `emulator.board` puts the parts together: `mcs51` and `asm2464pd` are
the chip, `usb` and `pcie` its buses, `amdgpu` a card. `debug`, `coverage`, `timeline` and `waves` look
inside.
"""

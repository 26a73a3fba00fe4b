"""What is known of the ASM2464PD, declared once as data: registers, memory map, mask ROM, flash layout.

The emulator, the host's driver, the trace decoder and the generated C header and reference all read it
from here. Every entry says how well it is known (`sdk.facts.registers.Evidence`).
"""

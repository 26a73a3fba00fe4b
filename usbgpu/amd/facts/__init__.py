"""Facts of AMD RDNA3 and RDNA4 cards, as data: registers, packets, structures in memory, firmware files.

A driver and the emulated card share these and nothing else. Registers are extracted from the headers of the
Linux kernel by `extract`; the rest is typed from the same headers, and names them. What to do in which
order is not a fact: each side implements its own.
"""

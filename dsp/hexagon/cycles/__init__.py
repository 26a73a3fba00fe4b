"""Modelled time of one inference on a Hexagon DSP: packets, interlocks, and what goes over an L2 to memory.

qemu says which blocks were executed and with which registers (`execution`); LLVM's itineraries, which packets
wait for the one before (`interlocks`); the registers, which addresses were read and written (`accesses`);
a model of the L2 (`cache`), what of that came from memory. `model` puts them together, layer by layer.
"""

"""FastRPC: a network on the DSP of a Snapdragon under a mainline Linux kernel. Not yet run on hardware.

The kernel's driver starts a process on the DSP, maps buffers into it and carries calls. `uapi` has its
structures; `system` is the seam to it, which the tests replace; `marshal` and `channel` lay calls out and
make them; `domain` starts the process; `listener` answers the calls that come back, for files above all;
`session` runs networks.

Grades of evidence, in the docstrings: published (the kernel's sources and header; Qualcomm's open user
library and hexagonrpc, which run on hardware), inferred (follows from those), guess.
"""

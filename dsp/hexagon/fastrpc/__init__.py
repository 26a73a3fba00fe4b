"""FastRPC: a network on the DSP of a Snapdragon under Linux or Android. Not yet run on hardware.

The kernel's driver starts a process on the DSP, maps buffers into it and carries calls. There are two
drivers, `mainline` and `android` (vendor kernels), behind one seam, `node`; `uapi` and `uapi_android` have
their structures. `system` is the seam to the kernel, which the tests replace; `memory` is what both sides
see; `marshal` and `channel` lay calls out and make them; `domain` starts the process; `listener` answers the
calls that come back, for files above all; `session` runs networks.

Grades of evidence, in the docstrings: trace (an open runtime that ran on a Snapdragon 845), published (the
kernels' sources and headers; Qualcomm's open user library and hexagonrpc, which run on hardware), inferred
(follows from those), guess.
"""

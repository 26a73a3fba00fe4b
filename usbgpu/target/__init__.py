"""The targets amd-gfx1100 and amd-gfx1201: lowering, kernels in OpenCL C, and the session on a card."""

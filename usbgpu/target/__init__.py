"""The targets of AMD GPUs: lowering, kernels in OpenCL C, and the session on a card."""

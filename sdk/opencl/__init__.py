"""Plain tensors on machines that run OpenCL C: places, kernels written for a network, and launches."""

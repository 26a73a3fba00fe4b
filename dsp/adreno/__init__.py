"""The Adreno target: a network as one OpenCL C program, for the GPU of a phone or any other OpenCL device."""

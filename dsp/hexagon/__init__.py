"""Hexagon with HVX: lowering, kernels in C intrinsics, and the emulated runtime on qemu-hexagon."""

"""The chip's peripherals, one file a block. A block knows the bus and other blocks, never the CPU."""

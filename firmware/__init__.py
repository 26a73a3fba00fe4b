"""The bridge's firmware: the chip's facts as data, its sources in C, the tools that build and check it."""

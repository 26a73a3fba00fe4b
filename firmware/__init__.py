"""The bridge's firmware: the chip's facts as data, and the tools that build and flash it."""

"""Debuggers for firmware on the emulated chip: a GDB stub, and a source-level monitor."""

"""The 8051 core: an interpreter in C, its table of instructions, and a disassembler."""

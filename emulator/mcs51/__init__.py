"""The 8051 core: an interpreter in C and its table of instructions.

Beside it what reads code: a disassembler, the flow of control, the calls of a run, a bound of the stack.
"""

"""The vocabulary of facts: what a register, a field and a structure of bytes are, and how well each is known.

The facts of a chip or a card are declarations in these words, in a package of their own.
"""

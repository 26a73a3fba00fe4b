"""The shader engines: RDNA machine code, executed as host code.

`decode` and `flow` read it, `translate` makes LLVM IR of it with the semantics that `scalar`, `memory`,
`control`, `vector` and `matrix` register in `emit`, `jit` makes host code of that, and `executor` runs waves.
"""

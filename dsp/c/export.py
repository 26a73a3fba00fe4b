"""A network as a folder of C that needs neither Python nor Towline, for a microcontroller or anything else.

============== ==========================================================================================
NAME.h         the interface: one function; sizes, scales and zero-points as macros
NAME.c         the network: kernels, the sequence of their calls, the arena
NAME_weights.c its constants, as 64-bit words that have the same bytes on every machine
NAME_main.c    a program around it for a machine with files; only this file has float tensors and libm
Makefile, README.md
============== ==========================================================================================

The folder depends only on the network, its program and the name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dsp.c.context import amalgamate
from dsp.c.plan import SOURCE, CPlan
from sdk.errors import InternalError, UsageError
from sdk.graph import Dequantize, Graph, Quantize, Reshape, Softmax, Tensor, macs
from sdk.segments import Split, split
from sdk.target import Program

DRIVER = Path(__file__).parent / "driver"

STACK_BYTES = 2048
"""The most stack that one inference takes: a tile of sums in the largest kernel, and saved registers.

By -fstack-usage, gcc 12 and clang 19, from -O0 to -O3 on x86-64, ARM, AArch64, RISC-V and PowerPC: at most
1,712 bytes (gcc -O3 on AArch64, which unrolls); at -O2 704.
"""

HEADERS = {"float", "math", "stddef", "stdint", "stdio", "stdlib", "string"}
"""Headers of C that the sources include: with -I on the folder, a NAME.h of that name would hide it."""

C_TYPES: Mapping[str, str] = {"uint8": "uint8_t", "int8": "int8_t", "float32": "float"}


def identifier(text: str) -> str:
    """`text` as the beginning of C identifiers and file names: letters, digits and underscores."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    return name if name[:1].isalpha() and name.lower() not in HEADERS else f"net_{name}".rstrip("_")


def export(
    graph: Graph, program: Program, name: str, preprocessing: Mapping[str, Any] | None = None
) -> dict[str, bytes]:
    """The files of the folder, by their names.

    Args:
        graph: the whole network: head, body and tail.
        program: its body, compiled for the target `c`.
        preprocessing: how a picture becomes the input, as in the artefact; for the README.
        name: begins every file, function and macro; as `identifier` gives it.

    Raises:
        UsageError: the program is for another target.
        InvalidArtifact: it is incomplete, or its plan damaged.
    """
    if program.target != "c":
        raise UsageError(
            f"it is compiled for {program.target}; only programs for the target c can be exported",
            where=graph.name,
            hint="compile the model with --target c",
        )
    plan = CPlan.of(program)
    parts = split(graph)
    texts = {
        f"{name}.h": _header(name, program.graph, plan),
        f"{name}.c": _network(name, program, plan),
        f"{name}_weights.c": _weights(name, bytes(program.weights)),
        f"{name}_main.c": _main(name, graph, parts, program.graph),
        "Makefile": _makefile(name),
        "README.md": _readme(name, graph, program.graph, plan, preprocessing),
    }
    return {file: text.encode() for file, text in texts.items()}


def _ends(graph: Graph) -> list[tuple[str, Tensor]]:
    """The body's inputs and outputs, and their names in C."""

    def named(stem: str, names: Sequence[str]) -> list[tuple[str, Tensor]]:
        one = len(names) == 1
        return [(stem if one else f"{stem}{i}", graph.tensor(name)) for i, name in enumerate(names)]

    return named("input", graph.inputs) + named("output", graph.outputs)


def _signature(name: str, body: Graph) -> str:
    consts = ["const "] * len(body.inputs) + [""] * len(body.outputs)
    parameters = [
        f"{const}{C_TYPES[tensor.dtype]} *{c_name}"
        for const, (c_name, tensor) in zip(consts, _ends(body), strict=True)
    ]
    return f"void {name}_run({', '.join(parameters)})"


def _header(name: str, body: Graph, plan: CPlan) -> str:
    prefix = name.upper()
    lines = [
        f"/* {name}: a quantised network as portable C11, written by `towline export`.",
        " *",
        " * One function, nothing to initialise, no heap. One static arena: one inference at a time.",
        " * The real value of an element q is SCALE * (q - ZERO_POINT); elements lie in C order. */",
        f"#ifndef {prefix}_H",
        f"#define {prefix}_H",
        "",
        "#include <stdint.h>",
        "",
        f"#define {prefix}_ARENA_BYTES {plan.memory['arena']} /* static, within {name}.c */",
        f"#define {prefix}_WEIGHTS_BYTES {plan.memory['weights']} /* constant, in {name}_weights.c */",
        f"#define {prefix}_STACK_BYTES {STACK_BYTES} /* at most, by gcc and clang from -O0 to -O3 */",
        "",
    ]
    for c_name, tensor in _ends(body):
        macro = f"#define {prefix}_{c_name.upper()}"
        lines += [
            f"{macro}_SIZE {tensor.size} /* {' x '.join(map(str, tensor.shape)) or 'one element'} */",
            f"{macro}_SCALE {_float(tensor)}",
            f"{macro}_ZERO_POINT ({tensor.zero_point})",
            "",
        ]
    cplusplus = ["#ifdef __cplusplus", 'extern "C"', "#endif"]
    return "\n".join([*lines, *cplusplus, f"{_signature(name, body)};", "", "#endif", ""])


def _float(tensor: Tensor) -> str:
    """A scale as a C constant: the shortest that is exact."""
    return f"{np.format_float_scientific(np.float32(tensor.scale), trim='0')}f"


def _network(name: str, program: Program, plan: CPlan) -> str:
    prefix, body = name.upper(), program.graph
    ends = _ends(body)
    lines = [
        f"static uint8_t arena[{prefix}_ARENA_BYTES];",
        f"extern const uint64_t {name}_weights[];",
        "",
    ]
    if any(tensor.dtype == "int8" for _, tensor in ends):
        lines += [
            "/* Within the arena activations are unsigned: signed ones are raised by 128. */",
            "static void flip(void *to, const void *from, size_t bytes) {",
            "  const uint8_t *source = from;",
            "  for (uint8_t *q = to; bytes--;) *q++ = *source++ ^ 0x80;",
            "}",
            "",
        ]
    lines.append(f"{_signature(name, body)} {{")
    calls = [(c_name, f"arena + {plan.places[tensor.name]}", tensor) for c_name, tensor in ends]
    for index, (c_name, place, tensor) in enumerate(calls):
        if index == len(body.inputs):
            steps = len(body.nodes)
            lines.append(
                f"  for (int32_t k = 0; k < {steps}; k++) step(k, arena, (const uint8_t *){name}_weights);"
            )
        ends_at = (place, c_name) if index < len(body.inputs) else (c_name, place)
        function = "flip" if tensor.dtype == "int8" else "memcpy"
        lines.append(f"  {function}({', '.join(ends_at)}, {prefix}_{c_name.upper()}_SIZE);")
    source = program.code[SOURCE].decode("ascii", "replace")
    return "\n".join([f'#include "{name}.h"', "", source, *lines, "}", ""])


def _weights(name: str, weights: bytes) -> str:
    words = np.frombuffer(weights.ljust(8, b"\0") + bytes(-max(len(weights), 8) % 8), "<u8")
    rows = [words[at : at + 5] for at in range(0, len(words), 5)]
    body = "\n".join("  " + " ".join(f"W(0x{word:x})," for word in row.tolist()) for row in rows)
    return f"""\
/* The constants of {name}: bytes, in words that compile fast. */
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define B(x, i) (UINT64_C(x) >> 8 * i & 255) << (56 - 8 * i)
#define W(x) B(x, 0) | B(x, 1) | B(x, 2) | B(x, 3) | B(x, 4) | B(x, 5) | B(x, 6) | B(x, 7)
#else
#define W(x) UINT64_C(x)
#endif

extern const uint64_t {name}_weights[];
const uint64_t {name}_weights[] = {{
{body}
}};
"""


# -- the program ----------------------------------------------------------------------------------------


def _main(name: str, graph: Graph, parts: Split, body: Graph) -> str:
    c_names: dict[str, str] = {}
    arrays: list[str] = []

    def array(tensor: str) -> str:
        if tensor not in c_names:
            c_names[tensor] = f"t{len(c_names)}"
            shape = graph.tensor(tensor)
            arrays.append(f"static {C_TYPES[shape.dtype]} {c_names[tensor]}[{shape.size}];")
        return c_names[tensor]

    def reads(tensors: Sequence[str]) -> list[str]:
        ends = ["if (!%s) break;", *["%s;"] * (len(tensors) - 1)]
        calls = (f"take(input, {a}, sizeof {a}, {int(i == 0)})" for i, a in enumerate(map(array, tensors)))
        return [end % call for end, call in zip(ends, calls, strict=True)]

    def writes(tensors: Sequence[str]) -> list[str]:
        named = ((array(tensor), graph.tensor(tensor)) for tensor in tensors)
        return [f"give(output, {a}, {tensor.size}, {kinds[tensor.dtype]});" for a, tensor in named]

    kinds = {"uint8": "UNSIGNED", "int8": "SIGNED", "float32": "FLOAT"}
    raw_in, raw_out = reads(body.inputs), writes(body.outputs)
    real_in = reads(graph.inputs)
    helpers = {"files.c"}
    head = [_quantize(graph, node, array) for node in parts.head if isinstance(node, Quantize)]
    tail = []
    for node in parts.tail:
        x, y = graph.tensor(node.inputs[0]), graph.tensor(node.output)
        match node:
            case Reshape():
                c_names[y.name] = array(x.name)
                continue
            case Quantize():
                tail.append(_quantize(graph, node, array))
            case Dequantize():
                signed = int(x.dtype == "int8")
                numbers = f"{y.size}, {_float(x)}, {x.zero_point}, {signed}"
                tail.append(f"dequantize({array(y.name)}, {array(x.name)}, {numbers});")
            case Softmax(axis=axis):
                extents = (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))
                tail.append(f"softmax({array(y.name)}, {array(x.name)}, {', '.join(map(str, extents))});")
            case _:
                raise InternalError(f"{node.op} in the tail", where=f"node {node.name}")
    real_out = writes(graph.outputs)
    helpers |= {f"{call.partition('(')[0]}.c" for call in (*head, *tail)}
    ends = ", ".join(array(tensor) for tensor in (*body.inputs, *body.outputs))

    def indented(lines: Sequence[str], by: int) -> str:
        return "".join(" " * by + line + "\n" for line in lines)

    return f"""\
/* A program around {name}: `{name}_main [-q] INPUT [OUTPUT]`; see README.md. */
#include "{name}.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program = "{name}_main";

{chr(10).join(arrays)}

{amalgamate(sorted(helpers), DRIVER)}
{amalgamate(["give.c"], DRIVER)}
int main(int argc, char **argv) {{
  int quantized = argc > 1 && !strcmp(argv[1], "-q");
  char **files = argv + 1 + quantized;
  int count = argc - 1 - quantized;
  if (count < 1 || count > 2) {{
    fprintf(stderr, "usage: %s [-q] INPUT [OUTPUT]\\n", program);
    return 2;
  }}
  FILE *input = fopen(files[0], "rb"), *output = count > 1 ? fopen(files[1], "wb") : NULL;
  if (!input) fail("the input cannot be opened");
  if (count > 1 && !output) fail("the output cannot be opened");
  for (;;) {{
    if (quantized) {{
{indented(raw_in, 6)}    }} else {{
{indented(real_in + head, 6)}    }}
    {name}_run({ends});
    if (quantized) {{
{indented(raw_out, 6)}    }} else {{
{indented(tail + real_out, 6)}    }}
  }}
  fclose(input);
  if (fclose(output ? output : stdout)) fail("the output cannot be written");
  return 0;
}}
"""


def _quantize(graph: Graph, node: Quantize, array: Callable[[str], str]) -> str:
    y = graph.tensor(node.output)
    low, high = (0, 255) if y.dtype == "uint8" else (-128, 127)
    numbers = f"{y.size}, {_float(y)}, {y.zero_point}, {low}, {high}"
    return f"quantize({array(y.name)}, {array(node.inputs[0])}, {numbers});"


def _makefile(name: str) -> str:
    objects = f"{name}.o {name}_weights.o"
    return f"""\
CFLAGS ?= -O2
STRICT = -std=c11 -ffp-contract=off -Wall -Wextra -pedantic

{name}_main: {name}_main.o {objects}
\t$(CC) $(LDFLAGS) -o $@ $^ -lm

%.o: %.c
\t$(CC) $(STRICT) $(CFLAGS) -c -o $@ $<

{name}.o {name}_main.o: {name}.h

clean:
\trm -f {name}_main {name}_main.o {objects}

.PHONY: clean
"""


def _readme(
    name: str, graph: Graph, body: Graph, plan: CPlan, preprocessing: Mapping[str, Any] | None
) -> str:
    def table(names: Sequence[str], tensors: Graph) -> str:
        rows = []
        for tensor in map(tensors.tensor, names):
            shape = " x ".join(map(str, tensor.shape))
            meaning = "" if tensor.dtype == "float32" else f"{tensor.scale:.9g} * (q - {tensor.zero_point})"
            rows.append(f"| {tensor.dtype} | {shape} | {meaning} |")
        return "\n".join(["| dtype | shape | real value |", "|---|---|---|", *rows])

    multiplies = sum(macs(body, node) for node in body.nodes)
    recipe = ""
    if preprocessing is not None:
        document = json.dumps(preprocessing, indent=2, sort_keys=True)
        recipe = f"\nHow a picture becomes the input:\n\n```json\n{document}\n```\n"
    return f"""\
# {name}

A quantised network as portable C11: {len(body.nodes)} operators, {multiplies:,} multiply-accumulates. It
needs the headers `stdint.h`, `stddef.h`, `string.h` and `float.h`, a `float` that is IEEE 754 binary32,
`memcpy` and `memset`; no heap, no file, no libm.

| memory | bytes |
|---|---|
| constants ({name}_weights.c, read-only) | {plan.memory["weights"]:,} |
| arena ({name}.c, static) | {plan.memory["arena"]:,} |
| stack | at most {STACK_BYTES:,} |

## In your program

Compile `{name}.c` and `{name}_weights.c`, include `{name}.h`, call

```c
{_signature(name, body)};
```

Elements lie in C order, pictures as [N, C, H, W]. Inputs:

{table(body.inputs, body)}

Outputs:

{table(body.outputs, body)}
{recipe}
## As a program

`make`, then `./{
        name
    }_main INPUT [OUTPUT]`. INPUT is a file of raw samples, one after the other, in this machine's
byte order; each is

{table(graph.inputs, graph)}

Results go to OUTPUT in the same way, or as text to standard output; each is

{table(graph.outputs, graph)}

With `-q` before INPUT, samples and results are those of the function above.

The results are the same bits on every machine{
        ", but for Softmax, which is the C library's `expf`"
        * any(isinstance(node, Softmax) for node in graph.nodes)
    }. Do not compile with `-ffast-math`.
"""

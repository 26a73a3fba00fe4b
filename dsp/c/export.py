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

from dsp.c.boards import Profile, board_files
from dsp.c.context import amalgamate
from dsp.c.elements import ELEMENTS, float_literal
from dsp.c.lowering import is_plain, may_fail
from dsp.c.plan import SOURCE, CPlan
from sdk import dtypes
from sdk.errors import InternalError, UsageError
from sdk.graph import Dequantize, Graph, Quantize, Reshape, Softmax, Tensor, macs
from sdk.segments import Split, split
from sdk.target import Program

DRIVER = Path(__file__).parent / "driver"

STACK_BYTES = 4096
"""The most stack that one inference takes, without what libm takes: tiles of sums, and saved registers.

By -fstack-usage, gcc 12 and clang 19, from -O0 to -O3, on x86-64, ARM, AArch64, RISC-V and PowerPC: all
functions of a quantised network together at most 2,752 bytes, with AVX-512 at -O0 4,176, but not all of them
call each other; the largest kernels of plain tensors 1,770, what they call and what calls them below 1,400.
"""

HEADERS = {
    *(
        "float",
        "math",
        "pthread",
        "stdatomic",
        "stddef",
        "stdint",
        "stdio",
        "stdlib",
        "string",
        "threads",
        "time",
    ),
    *("arm_acle", "arm_mve", "arm_neon", "immintrin"),
}
"""Headers of C that the sources include: with -I on the folder, a NAME.h of that name would hide it."""

C_TYPES: Mapping[str, str] = {
    "bool": "uint8_t",
    **{name: f"{name}_t" for name in ("int8", "uint8", "int16", "uint16", "int32", "int64")},
    "float32": "float",
    **dict.fromkeys(("float16", "bfloat16"), "uint16_t"),
    **dict.fromkeys(("float8e4m3fn", "float8e5m2"), "uint8_t"),
}

GIVEN: Mapping[str, str] = {"uint8": "UNSIGNED", "int8": "SIGNED", "float32": "FLOAT"}
"""Kinds of driver/give.c; driver/give_any.c has one for every dtype."""


def identifier(text: str) -> str:
    """`text` as the beginning of C identifiers and file names: letters, digits and underscores."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    return name if name[:1].isalpha() and name.lower() not in HEADERS else f"net_{name}".rstrip("_")


def export(
    graph: Graph,
    program: Program,
    name: str,
    preprocessing: Mapping[str, Any] | None = None,
    profile: Profile | None = None,
    recorded: tuple[bytes, bytes] | None = None,
) -> dict[str, bytes]:
    """The files of the folder, by their names.

    Args:
        graph: the whole network: head, body and tail.
        program: its body, compiled for the target `c`.
        preprocessing: how a picture becomes the input, as in the artefact; for the README.
        name: begins every file, function and macro; as `identifier` gives it.
        profile: the microcontroller whose bare board gets a start, a memory layout and a Makefile.
        recorded: samples and the reference's results, for `make check`.

    Raises:
        UsageError: the program is for another target.
        InvalidArtifact: it is incomplete, or its plan damaged.
        Unsupported: it does not fit the profile's memory.
    """
    if program.target != "c":
        raise UsageError(
            f"it is compiled for {program.target}; only programs for the target c can be exported",
            where=graph.name,
            hint="compile the model with --target c",
        )
    plan = CPlan.of(program)
    parts = _parts(graph, program.graph)
    texts = {
        f"{name}.h": _header(name, program.graph, plan),
        f"{name}.c": _network(name, program, plan),
        f"{name}_weights.c": _weights(name, bytes(program.weights)),
        f"{name}_main.c": _main(name, graph, parts, program.graph),
        "Makefile": _makefile(name),
        "README.md": _readme(name, graph, program.graph, plan, preprocessing),
    }
    if profile is not None:
        texts |= board_files(name, profile, plan, STACK_BYTES)
    files = {file: text.encode() for file, text in texts.items()}
    if recorded is not None:
        files |= {
            f"{name}_check.{what}": data for what, data in zip(("input", "output"), recorded, strict=True)
        }
    return files


def _parts(graph: Graph, body: Graph) -> Split:
    """What is around the body; nothing where the body is the whole network."""
    if body.inputs == graph.inputs and body.outputs == graph.outputs:
        return Split((), body, ())
    return split(graph)


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
    return f"{'int' if may_fail(body) else 'void'} {name}_run({', '.join(parameters)})"


def _header(name: str, body: Graph, plan: CPlan) -> str:
    prefix = name.upper()
    plain = is_plain(body)
    lines = [
        f"/* {name}: a {'' if plain else 'quantised '}network as portable C11, written by `towline export`.",
        " *",
        " * One function, nothing to initialise, no heap. One static arena: one inference at a time.",
        *_meanings(body),
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
        lines.append(
            f"{macro}_SIZE {tensor.size} /* {' x '.join(map(str, tensor.shape)) or 'one element'} */"
        )
        if tensor.quantization is not None:
            lines += [f"{macro}_SCALE {_float(tensor)}", f"{macro}_ZERO_POINT ({tensor.zero_point})"]
        lines.append("")
    kernels = [
        "",
        "/* Which form of the products the compiler's macros chose. */",
        f"extern const char *const {name}_kernels;",
        "",
    ]
    cplusplus = ["#ifdef __cplusplus", 'extern "C"', "#endif"]
    return "\n".join([*lines, *cplusplus, f"{_signature(name, body)};", *kernels, "#endif", ""])


def _meanings(body: Graph) -> list[str]:
    """What elements are, as the end of the header's first comment."""
    ends = [tensor for _, tensor in _ends(body)]
    quantised = " * The real value of an element q is SCALE * (q - ZERO_POINT); elements lie in C order. */"
    if not is_plain(body):
        return [quantised]
    lines = [" * Elements lie in C order."]
    if any(tensor.quantization is not None for tensor in ends):
        lines.append(" * Where there is a SCALE, the real value of an element q is SCALE * (q - ZERO_POINT).")
    narrow = sorted({tensor.dtype for tensor in ends if C_TYPES[tensor.dtype] != "float"} & set(ELEMENTS))
    if narrow:
        lines.append(f" * Elements of {', '.join(narrow)} are given as their bits.")
    if may_fail(body):
        lines.append(" * The function returns 0, or 1 if an index that it computed was out of range.")
    return [*lines[:-1], f"{lines[-1]} */"]


def _float(tensor: Tensor) -> str:
    """A scale as a C constant."""
    return float_literal(tensor.scale)


def _network(name: str, program: Program, plan: CPlan) -> str:
    prefix, body = name.upper(), program.graph
    ends = _ends(body)
    fails = may_fail(body)
    arena = [
        "static union {",
        f"  uint8_t bytes[{prefix}_ARENA_BYTES];",
        "  float floats[1]; /* kernels keep numbers in it */",
        "} memory;",
    ]
    lines = [*arena, f"extern const uint64_t {name}_weights[];", ""]
    if any(_is_raised(tensor) for _, tensor in ends):
        lines += [
            "/* Within the arena activations are unsigned: signed ones are raised by 128. */",
            "static void flip(void *to, const void *from, size_t bytes) {",
            "  const uint8_t *source = from;",
            "  for (uint8_t *q = to; bytes--;) *q++ = *source++ ^ 0x80;",
            "}",
            "",
        ]
    lines.append(f"{_signature(name, body)} {{")
    lines.append("  uint8_t *arena = memory.bytes;")
    if fails:
        lines.append("  failure.limit = 0;")
    calls = [(c_name, f"arena + {plan.places[tensor.name]}", tensor) for c_name, tensor in ends]
    for index, (c_name, place, tensor) in enumerate(calls):
        if index == len(body.inputs):
            until = f"k < {len(body.nodes)}{' && !failure.limit' if fails else ''}"
            lines.append(
                f"  for (int32_t k = 0; {until}; k++) step(k, arena, (const uint8_t *){name}_weights);"
            )
            if fails:
                lines.append("  if (failure.limit) return 1;")
        ends_at = (place, c_name) if index < len(body.inputs) else (c_name, place)
        function = "flip" if _is_raised(tensor) else "memcpy"
        size = f"{prefix}_{c_name.upper()}_SIZE"
        if tensor.nbytes != tensor.size:
            size += f" * sizeof *{c_name}"
        lines.append(f"  {function}({', '.join(ends_at)}, {size});")
    if fails:
        lines.append("  return 0;")
    source = program.code[SOURCE].decode("ascii", "replace")
    chosen = ["#ifndef KERNELS", '#define KERNELS "plain C"', "#endif"]
    chosen += [
        "#ifdef __FAST_MATH__",
        '#define FLAGS ", with -ffast-math"',
        "#else",
        '#define FLAGS ""',
        "#endif",
    ]
    chosen += [f"const char *const {name}_kernels = KERNELS FLAGS;", ""]
    return "\n".join([f'#include "{name}.h"', "", source, *chosen, *lines, "}", ""])


def _is_raised(tensor: Tensor) -> bool:
    """Whether its elements are raised by 128 within the arena."""
    return tensor.dtype == "int8" and tensor.quantization is not None


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


TIME = 'printf("%.3f\\n", milliseconds() - start);'

FLOAT_PART, HALF_PART = 1e-4, 2e-2
"""By what part of a tensor's largest element a float may differ from what was recorded: functions of libm
differ in their last place, and where tensors are narrow each of them rounds that to a place of its own."""

FAST = (
    "compiled with -ffast-math, which changes the order of sums and drops what makes each rounding "
    "happen once: the results need not be those that were recorded; leave it out"
)


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
        return [f"give(output, {a}, {tensor.size}, {kind(tensor, a)});" for a, tensor in named]

    def kind(tensor: Tensor, a: str) -> str:
        return f"sizeof *{a}, {tensor.dtype.upper()}_KIND" if is_any else GIVEN[tensor.dtype]

    is_any = any(graph.tensor(name).dtype not in GIVEN for name in (*body.outputs, *graph.outputs))
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
    part = (
        FLOAT_PART if all(body.tensor(each).dtype not in ELEMENTS[1:] for each in body.tensors) else HALF_PART
    )
    checks = []
    for tensor in map(graph.tensor, graph.outputs):
        a, element = array(tensor.name), tensor.dtype.upper() + "_KIND" if is_any else GIVEN[tensor.dtype]
        allowed = part if dtypes.is_float(tensor.dtype) else 0
        checks += [
            f"if (!take(input, {a}, sizeof {a}, 1) || !take(output, recorded, sizeof {a}, 1)) fail(what);",
            f"wrong += differing({a}, recorded, {tensor.size}, {element}, {allowed:g});",
        ]
    most = max(graph.tensor(each).nbytes for each in graph.outputs)
    arrays.append(f"static union {{\n  uint8_t bytes[{most}];\n  double aligned;\n}} memory;")
    helpers |= {f"{call.partition('(')[0]}.c" for call in (*head, *tail)}
    ends = ", ".join(array(tensor) for tensor in (*body.inputs, *body.outputs))
    run = f"{name}_run({ends});"
    if may_fail(body):
        run = f'if ({name}_run({ends})) fail("an index is out of range");'
    raw = bool(parts.head or parts.tail or not is_plain(body))
    kernels = f"{amalgamate(['base.h', 'plain/elements.h'])}\n" if is_any else ""

    def indented(lines: Sequence[str], by: int) -> str:
        return "".join(" " * by + line + "\n" for line in lines)

    def either(quantized: Sequence[str], real: Sequence[str]) -> str:
        return f"    if (quantized) {{\n{indented(quantized, 6)}    }} else {{\n{indented(real, 6)}    }}\n"

    inputs = indented(real_in + head, 4)
    outputs = indented(tail + real_out, 4)
    if raw:
        inputs = either(raw_in, real_in + head)
        outputs = either(raw_out, tail + real_out)
    helpers.add("time.c")
    compared = [
        *([f'if (strstr({name}_kernels, "-ffast-math")) fail("{FAST}");'] if is_plain(body) else []),
        "size_t wrong = 0;",
        "void *recorded = memory.bytes;",
        'const char *what = "a file ends early";',
        'FILE *input = fopen(argv[2], "rb"), *output = fopen(argv[3], "rb");',
        'if (!input || !output) fail("the results cannot be opened");',
        *checks,
        'printf("%lu elements differ from what was recorded; kernels: %s\\n", (unsigned long)wrong, '
        f"{name}_kernels);",
        "return wrong != 0;",
    ]
    options = [
        '  if (argc > 1 && !strcmp(argv[1], "-k")) return puts(' + name + "_kernels) < 0;",
        '  int runs = argc > 2 && !strcmp(argv[1], "-t") ? atoi(argv[2]) : 0;',
        "  if (runs > 0) argc -= 2, argv += 2;",
    ]
    if raw:
        options.append('  int quantized = argc > 1 && !strcmp(argv[1], "-q");')
    skipped = " + quantized" if raw else ""
    timed = indented(["double start = milliseconds();", *head, run, *tail, TIME], 6)
    return f"""\
/* A program around {name}: `{name}_main [-t RUNS] {"[-q] " if raw else ""}INPUT [OUTPUT]`, `-k` or `-c FOUND
 * RECORDED`; see README.md. */
#include "{name}.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *program = "{name}_main";

{chr(10).join(arrays)}

{kernels}{amalgamate(sorted(helpers), DRIVER)}
{amalgamate(["give_any.c" if is_any else "give.c", "compare.c"], DRIVER)}
int main(int argc, char **argv) {{
  if (argc == 4 && !strcmp(argv[1], "-c")) {{
{indented(compared, 4)}  }}
{indented(options, 0)}  char **files = argv + 1{skipped};
  int count = argc - 1{skipped.replace("+", "-")};
  if (count < 1 || count > 2) {{
    fprintf(stderr, "usage: %s [-t RUNS] {"[-q] " if raw else ""}INPUT [OUTPUT]\\n", program);
    return 2;
  }}
  FILE *input = fopen(files[0], "rb"), *output = count > 1 ? fopen(files[1], "wb") : NULL;
  if (!input) fail("the input cannot be opened");
  if (count > 1 && !output) fail("the output cannot be opened");
  if (runs > 0) {{
{indented(real_in, 4).replace(") break;", ') fail("the input is empty");')}    while (runs--) {{
{timed}    }}
    return 0;
  }}
  for (;;) {{
{inputs}    {run}
{outputs}  }}
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
# make CFLAGS="-O3 -march=native" THREADS=4
# make check compares with what was recorded; RUN=qemu-aarch64 runs a foreign processor's program
CFLAGS ?= -O2
THREADS ?= 1
STRICT = -std=c11 -Wall -Wextra -pedantic
ifneq ($(THREADS),1)
STRICT += -DTHREADS=$(THREADS) -pthread
endif

{name}_main: {name}_main.o {objects}
\t$(CC) $(STRICT) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lm
\t@echo "kernels: `$(RUN) ./$@ -k 2>/dev/null`"

%.o: %.c {name}.flags
\t$(CC) $(STRICT) $(CFLAGS) -ffp-contract=off -c -o $@ $<

{name}.o {name}_main.o: {name}.h

# what the objects were compiled with: others are compiled again
{name}.flags: force
\t@echo '$(CC) $(STRICT) $(CFLAGS)' | cmp -s - $@ || echo '$(CC) $(STRICT) $(CFLAGS)' > $@

check: {name}_main
\t$(RUN) ./{name}_main {name}_check.input {name}_check.found
\t$(RUN) ./{name}_main -c {name}_check.found {name}_check.output

clean:
\trm -f {name}_main {name}_main.o {objects} {name}.flags {name}_check.found

.PHONY: check clean force
"""


def _readme(
    name: str, graph: Graph, body: Graph, plan: CPlan, preprocessing: Mapping[str, Any] | None
) -> str:
    def table(names: Sequence[str], tensors: Graph) -> str:
        rows = []
        for tensor in map(tensors.tensor, names):
            shape = " x ".join(map(str, tensor.shape))
            meaning = f"{tensor.scale:.9g} * (q - {tensor.zero_point})" if tensor.quantization else ""
            rows.append(f"| {tensor.dtype} | {shape} | {meaning} |")
        return "\n".join(["| dtype | shape | real value |", "|---|---|---|", *rows])

    multiplies = sum(macs(body, node) for node in body.nodes)
    recipe = ""
    if preprocessing is not None:
        document = json.dumps(preprocessing, indent=2, sort_keys=True)
        recipe = f"\nHow a picture becomes the input:\n\n```json\n{document}\n```\n"
    raw = ""
    if graph.inputs != body.inputs or graph.outputs != body.outputs or not is_plain(body):
        raw = "\nWith `-q` before INPUT, samples and results are those of the function above.\n"
    return f"""\
# {name}

{_needs(body, multiplies)}

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
{raw}
{_sameness(graph, body)}
"""


def _needs(body: Graph, multiplies: int) -> str:
    work = f"network as portable C11: {len(body.nodes)} operators, {multiplies:,} multiply-accumulates. It"
    if not is_plain(body):
        return f"""\
A quantised {work}
needs the headers `stdint.h`, `stddef.h`, `string.h` and `float.h`, a `float` that is IEEE 754 binary32,
`memcpy` and `memset`; no heap, no file, no libm."""
    text = f"""\
A {work}
needs the headers `stdint.h`, `stddef.h`, `string.h`, `float.h` and `math.h`, a `float` that is IEEE 754
binary32, a little-endian machine, `memcpy`, `memset` and libm (`-lm`); no heap, no file."""
    if any(body.tensor(name).dtype in ("float16", "bfloat16") for name in (*body.inputs, *body.outputs)):
        text += """
Elements of float16 (IEEE 754 binary16) and bfloat16 are given as `uint16_t`, which holds their bits."""
    if may_fail(body):
        text += """
The function returns 0, or 1 and no output if an index that the network computed was out of range."""
    return text


def _sameness(graph: Graph, body: Graph) -> str:
    if is_plain(body):
        return """\
The results are the same bits on every machine with the same libm, if the compiler keeps multiplications and
additions apart: compile with `-ffp-contract=off`, as the Makefile does, and without `-ffast-math`."""
    softmax = any(isinstance(node, Softmax) for node in graph.nodes)
    exception = ", but for Softmax, which is the C library's `expf`" if softmax else ""
    return f"The results are the same bits on every machine{exception}. Do not compile with `-ffast-math`."

"""From lowered layers to code: network.c is generated, kernels come from a cache of objects.

Objects are keyed by what determines them: compiler and version, flags, the source and every header beside
it. A network links the kernels it uses, its own table of calls, and a runtime: into an executable for
qemu-hexagon, and, the same objects, into a shared object for a DSP's loader. Nothing in the images depends
on where or when they were built.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dsp.hexagon.calls import At, Call, Fields, Layer, Lowered
from dsp.hexagon.layout import GROUP_CELLS, MAX_STRIDE
from sdk import cache, toolchain
from sdk.arena import align
from sdk.errors import InternalError
from sdk.files import scratch_directory, write

KERNELS = Path(__file__).parent / "kernels"

Unit = tuple[str, tuple[str, ...], str, str]
"""What becomes one object: a source in `KERNELS`, its defines, its schedule; or a generated source's text."""

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

FLAGS = (
    "--target=hexagon",
    "-O3",
    "-ffreestanding",
    "-fno-builtin",
    "-mhvx-length=128b",
    "-ffunction-sections",
    "-fdata-sections",
    f"-DMAX_STRIDE={MAX_STRIDE}",
    f"-DGROUP_CELLS={GROUP_CELLS}",
    "-Wall",
    "-Wextra",
    "-Werror",
)

TUNING = {19: ("-misched-bottomup", "-hexagon-vector-combine=false")}
"""Back-end options by LLVM release. They are internal to LLVM and change their names, so a release gets only
those tried with it; with these, release 19 packs MobileNetV2 1.0 224 into 2 % fewer packets."""

SCHEDULES = {
    19: {
        "no-lsr": (*TUNING[19], "-disable-lsr"),
        "no-lsr-no-misched": ("-enable-misched=false", TUNING[19][1], "-disable-lsr"),
        "no-lsr-topdown": ("-misched-topdown", TUNING[19][1], "-disable-lsr"),
    }
}
"""Other back-end options by LLVM release and name, each of which suits some kernel better: `towline tune`
tries them all."""

LINK_FLAGS = ("-m", "hexagonelf", "-static", "--gc-sections", "--build-id=none", "-s", "-e", "_start")

SHARED_FLAGS = (
    *("-m", "hexagonelf", "-shared", "--gc-sections", "--build-id=none", "-s", "-z", "text", "-z", "norelro"),
    *("-z", "max-page-size=4096", "--hash-style=sysv", "-soname", "libtowline_skel.so"),
)
"""`-z text` refuses an object that is not position-independent: kernels have no data of their own, so they
are, even without -fPIC."""

SHARED_LAYOUT = """
SECTIONS {
  . = 0;
  .text : { *(.text .text.*) }
  .plt : ALIGN(4096) { *(.plt) }
  .rodata : ALIGN(4096) { *(.rodata .rodata.*) }
  .hash : ALIGN(4096) { *(.hash) }
  .dynsym : ALIGN(4096) { *(.dynsym) }
  .dynstr : ALIGN(4096) { *(.dynstr) }
  .rela.dyn : ALIGN(4096) { *(.rela.dyn) }
  .rela.plt : ALIGN(4096) { *(.rela.plt) }
  .data : ALIGN(4096) { *(.data .data.*) }
  .dynamic : ALIGN(4096) { *(.dynamic) }
  .got : ALIGN(4096) { *(.got) }
  .got.plt : ALIGN(4096) { *(.got.plt) }
  .bss : ALIGN(4096) { *(.bss .bss.*) }
  /DISCARD/ : { *(.note .note.* .comment) }
}
VERSION { { global: towline_skel_handle_invoke; local: *; }; }
"""
"""Every section on a page of its own: the loader of an SD845's DSP is known to accept this (evidence:
published, an open runtime that ran on it). Only the entry is visible, so that nothing binds by name."""

ENTRIES: tuple[Unit, Unit] = (("skel.c", (), "", ""), ("runtime.c", (), "", ""))
"""What the shared object and the executable begin with, in this order. Their headers are in kernels/entry, so
that the kernels do not depend on them."""

FROM_TEXT = ("-x", "c", "-", f"-I{KERNELS}")

CACHE = "hexagon"
"""The cache's directory of kernels."""


def build(lowered: Lowered, version: str) -> tuple[dict[str, bytes], dict[str, float]]:
    """The network's code by file name (network.elf for qemu, network.so for FastRPC), wall seconds by stage.

    Raises:
        ToolMissing: clang or lld is missing.
        BuildFailed: one of them refused its input.
        OutputFailed: the cache cannot be written.
    """
    cpu = cpu_flags(version)
    kernels = {call.kernel for layer in lowered.layers for call in layer.calls}
    used = {(kernel.source, kernel.defines, kernel.schedule, kernel.text) for kernel in kernels}
    units = [*sorted(used), *ENTRIES]
    started = time.perf_counter()
    objects = _objects(units, cpu)
    compiled = time.perf_counter()
    with scratch_directory() as directory:
        network = directory / "network.o"
        source = network_source(lowered)
        write(network, _compile([*FROM_TEXT, "-fPIC"], cpu, source))
        code = _link(network, objects)
    return code, {"kernels": compiled - started, "network": time.perf_counter() - compiled}


def _link(network: Path, objects: Sequence[Path]) -> dict[str, bytes]:
    """Both images; the last two objects are the skel and the runtime."""
    *kernels, skel, runtime = objects
    script = network.with_name("shared.ld")
    write(script, SHARED_LAYOUT.encode())
    commands: dict[str, list[str | Path]] = {
        "network.elf": [*LINK_FLAGS, network, *kernels, runtime],
        "network.so": [*SHARED_FLAGS, "-T", script, network, *kernels, skel],
    }
    return {
        name: toolchain.run("lld", [*command, "-o", "-"], timeout=120).stdout
        for name, command in commands.items()
    }


def _objects(units: Sequence[Unit], cpu: tuple[str, ...]) -> list[Path]:
    """The units' objects in the cache; those that are missing are compiled in parallel."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(lambda unit: _object(unit, cpu), units))


def _object(unit: Unit, cpu: tuple[str, ...]) -> Path:
    """Path of a kernel's object in the cache, compiled if it is not there."""
    source, defines, schedule, text = unit
    own = ["-fPIC"] if source == "skel.c" else []
    facts = [*_facts(source, cpu, text), *flags(schedule), *own, *defines]
    cached = cache.directory(CACHE) / f"{Path(source).stem}-{cache.digest(facts)}.o"
    if cache.load_path(cached) is None:
        given = FROM_TEXT if text else (KERNELS / source,)
        what = [*given, *own, *(f"-D{define}" for define in defines)]
        cache.keep(cached, _compile(what, cpu, text, schedule))
    return cached


def cpu_flags(version: str) -> tuple[str, ...]:
    return "-mcpu=hexagon" + version, "-mhvx=" + version


def _facts(source: str, cpu: Sequence[str], text: str = "") -> list[str]:
    """What a kernel's code depends on, except defines and schedule; a generated one's has its text."""
    patterns = ("*.h", "entry/*.h") if source in {entry for entry, *_ in ENTRIES} else ("*.h",)
    headers = [path.read_text() for pattern in patterns for path in sorted(KERNELS.glob(pattern))]
    texts = [text or (KERNELS / source).read_text(), *headers]
    return [toolchain.version("clang"), *cpu, *(COMMENT.sub(" ", one) for one in texts)]


def kernel_hash(source: str, version: str) -> str:
    """A digest of what all variants of a kernel's source depend on: text, headers, compiler and options."""
    options = [*flags(), *(word for name in schedules() for word in flags(name))]
    return cache.digest([*_facts(source, cpu_flags(version)), *options])


def schedules() -> list[str]:
    """The names of the installed compiler's schedules, except the default."""
    return list(SCHEDULES.get(_release(), {}))


def flags(schedule: str = "") -> list[str]:
    """Compiler flags of every object with this schedule."""
    options = SCHEDULES[_release()][schedule] if schedule else TUNING.get(_release(), ())
    return [*FLAGS, *(word for option in options for word in ("-mllvm", option))]


def _release() -> int:
    return int(toolchain.version("clang").partition(".")[0])


def _compile(what: Sequence[str | Path], cpu: Sequence[str], source: str = "", schedule: str = "") -> bytes:
    """The object of one C file, given by path or as text on standard input ("-")."""
    args = [*flags(schedule), *cpu, "-c", "-o", "-", *what]
    return toolchain.run("clang", args, input=source.encode(), timeout=300).stdout


# -- network.c ------------------------------------------------------------------------------------------


def network_source(lowered: Lowered) -> str:
    """The generated C: a descriptor per call, the table of calls, the arena and the weights' place."""
    symbols = sorted({call.kernel.symbol for layer in lowered.layers for call in layer.calls})
    lines = [
        "/* Generated by Towline: one network as a table of kernel calls. */",
        '#include "kernels.h"',
        "",
    ]
    lines += [f"void {symbol}(const void *, const struct context *);" for symbol in symbols]
    calls: list[str] = []
    fetches: list[str] = []
    layers: list[str] = []
    for layer in lowered.layers:
        # No text of the model goes into the source: a node's name could hold anything, C included.
        lines += ["", f"/* layer {len(layers)}: {layer.op} */"]
        first = len(calls)
        for call in layer.calls:
            lines.append(_descriptor(call, len(calls)))
            calls.append(f"{{{call.kernel.symbol}, &descriptor{len(calls)}}}")
            fetches.append("{" + ", ".join(f"{word}u" for word in call.fetch) + "}")
        offset, nbytes = trace_span(layer)
        layers.append(f"{{{first}, {len(layer.calls)}, {offset}u, {nbytes}u}}")
    margin, arena = lowered.margin, align(lowered.arena)
    spans = {
        "inputs": [(resolve(at), tensor.nbytes) for tensor, at in lowered.inputs],
        "outputs": [(resolve(at), tensor.nbytes) for tensor, at in lowered.outputs],
    }
    lines += [
        "",
        f"static u8 arena[{arena + 2 * margin}u] __attribute__((aligned(128)));",
        f"static u8 weights[{len(lowered.weights) or 1}u] __attribute__((aligned(128)));",
        f"u8 schedule[{len(calls) or 1}];",
        f"const u32 schedule_bytes = {len(calls)};",
        f"const struct span fetches[] = {{{', '.join(fetches)}}};",
        *(
            f"static const struct span {name}[] = {{{', '.join(f'{{{a}u, {n}u}}' for a, n in pairs)}}};"
            for name, pairs in spans.items()
        ),
        f"static const struct call calls[] = {{{', '.join(calls)}}};",
        f"static const struct layer layers[] = {{{', '.join(layers)}}};",
        "",
        "const struct network network = {",
        f"    .arena = arena + {margin}u, .arena_bytes = {arena}u, .margin = {margin}u,",
        f"    .weights = weights, .weights_bytes = {len(lowered.weights)}u,",
        f"    .inputs = {len(lowered.inputs)}, .outputs = {len(lowered.outputs)}, .layers = {len(layers)},",
        "    .input = inputs, .output = outputs, .layer = layers, .call = calls,",
        "};",
        "",
    ]
    return "\n".join(lines)


def trace_span(layer: Layer) -> tuple[int, int]:
    """(offset, bytes) of the arena that hold a layer's output."""
    if layer.start is None:
        raise InternalError("a layer without an output", where=layer.name)
    start = resolve(layer.start)
    if layer.planes is not None:
        return start, layer.planes.nbytes
    return start, layer.start.buffer.nbytes - layer.start.delta


def resolve(at: At) -> int:
    if at.buffer.offset < 0:
        raise InternalError(f"buffer {at.buffer.name} was never placed")
    return at.buffer.offset + at.delta


def _descriptor(call: Call, number: int) -> str:
    return f"static const struct {call.struct} descriptor{number} = {_fields(call.fields)};"


def _fields(fields: Fields) -> str:
    return "{" + ", ".join(f".{name} = {_value(value)}" for name, value in fields.items()) + "}"


def _value(value: Any) -> str:
    match value:
        case At():
            return f"{resolve(value)}u"
        case int():
            return f"{value}u" if value >= 0 else str(value)
        case dict():
            return _fields(value)
        case list():
            return "{" + ", ".join(_value(item) for item in value) + "}"
    raise InternalError(f"cannot write {type(value).__name__} into a descriptor")

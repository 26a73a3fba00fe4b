"""From lowered layers to one ELF: network.c is generated, kernels come from a cache of objects.

Objects are keyed by what determines them: compiler and version, flags, the source and every header beside
it. A network links the kernels it uses, its own table of calls, and the runtime. Nothing in the image
depends on where or when it was built.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dsp.hexagon.calls import At, Call, Fields, Kernel, Layer, Lowered
from dsp.hexagon.layout import MAX_STRIDE
from dsp.hexagon.memory import align
from sdk import toolchain
from sdk.errors import BuildFailed, InternalError, OutputFailed
from sdk.extras import require
from sdk.files import scratch_directory, write

KERNELS = Path(__file__).parent / "kernels"

FLAGS = (
    "--target=hexagon",
    "-O3",
    "-ffreestanding",
    "-fno-builtin",
    "-mhvx-length=128b",
    "-ffunction-sections",
    "-fdata-sections",
    f"-DMAX_STRIDE={MAX_STRIDE}",
    "-Wall",
    "-Wextra",
    "-Werror",
)

TUNING = {19: ("-misched-bottomup", "-hexagon-vector-combine=false")}
"""Back-end options by LLVM release. They are LLVM's own business and change their names, so that a release
gets only those tried with it; with these, release 19 packs MobileNetV2 1.0 224 into 2 % fewer packets."""

LINK_FLAGS = ("-m", "hexagonelf", "-static", "--gc-sections", "--build-id=none", "-s", "-e", "_start")

RUNTIME = Kernel("runtime.c", "runtime")


def cache_directory() -> Path:
    """TOWLINE_CACHE, or the user's cache directory."""
    override = os.environ.get("TOWLINE_CACHE")
    root = Path(override) if override else Path(require("platformdirs").user_cache_path("towline"))
    return root / "hexagon"


def build(lowered: Lowered, version: str) -> tuple[bytes, dict[str, float]]:
    """The network's ELF, and wall seconds by stage.

    Raises:
        ToolMissing: clang or lld is not there.
        BuildFailed: one of them refused its input.
        OutputFailed: the cache cannot be written.
    """
    cpu = ("-mcpu=hexagon" + version, "-mhvx=" + version)
    kernels = {call.kernel for layer in lowered.layers for call in layer.calls} | {RUNTIME}
    started = time.perf_counter()
    objects = _objects(kernels, cpu)
    compiled = time.perf_counter()
    with scratch_directory() as directory:
        network = directory / "network.o"
        write(network, _compile(["-x", "c", "-", f"-I{KERNELS}"], cpu, network_source(lowered)))
        try:
            elf = _link([network, *objects])
        except BuildFailed:  # a damaged cache entry, perhaps: without the cache it must work
            for path in objects:
                path.unlink(missing_ok=True)
            elf = _link([network, *_objects(kernels, cpu)])
    return elf, {"kernels": compiled - started, "network": time.perf_counter() - compiled}


def _link(objects: Sequence[Path]) -> bytes:
    return toolchain.run("lld", [*LINK_FLAGS, "-o", "-", *objects], timeout=120).stdout


def _objects(kernels: Iterable[Kernel], cpu: tuple[str, ...]) -> list[Path]:
    """The kernels' objects in the cache, those that are missing compiled side by side."""
    units = sorted({(kernel.source, kernel.defines) for kernel in kernels})
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(lambda unit: _object(unit[0], unit[1], cpu), units))


def _object(source: str, defines: tuple[str, ...], cpu: tuple[str, ...]) -> Path:
    """Path of a kernel's object in the cache, compiled if it is not there."""
    path = KERNELS / source
    digest = hashlib.sha256()
    facts = [toolchain.version("clang"), *_flags(), *cpu, *defines, path.read_text()]
    facts += [header.read_text() for header in sorted(KERNELS.glob("*.h"))]
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    cached = cache_directory() / f"{Path(source).stem}-{digest.hexdigest()[:24]}.o"
    if not cached.exists():
        try:
            cached.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise OutputFailed(
                f"cannot be created: {problem.strerror}",
                where=str(cached.parent),
                hint="set TOWLINE_CACHE to a directory that can be written",
            ) from problem
        write(cached, _compile([path, *(f"-D{define}" for define in defines)], cpu))
    return cached


def _flags() -> list[str]:
    release = int(toolchain.version("clang").partition(".")[0])
    return [*FLAGS, *(word for option in TUNING.get(release, ()) for word in ("-mllvm", option))]


def _compile(what: Sequence[str | Path], cpu: Sequence[str], source: str = "") -> bytes:
    """The object of one C file, given by path or as text on standard input ("-")."""
    args = [*_flags(), *cpu, "-c", "-o", "-", *what]
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
    layers: list[str] = []
    for layer in lowered.layers:
        # Only what is ours goes into the source: a node's name could hold anything, C included.
        lines += ["", f"/* layer {len(layers)}: {layer.op} */"]
        first = len(calls)
        for call in layer.calls:
            lines.append(_descriptor(call, len(calls)))
            calls.append(f"{{{call.kernel.symbol}, &descriptor{len(calls)}}}")
        offset, size = trace_span(layer)
        layers.append(f"{{{first}, {len(layer.calls)}, {offset}u, {size}u}}")
    margin, arena = lowered.margin, align(lowered.arena)
    spans = {
        "inputs": [(resolve(at), tensor.size) for tensor, at in lowered.inputs],
        "outputs": [(resolve(at), tensor.size) for tensor, at in lowered.outputs],
    }
    lines += [
        "",
        f"static u8 arena[{arena + 2 * margin}u] __attribute__((aligned(128)));",
        f"static u8 weights[{len(lowered.weights) or 1}u] __attribute__((aligned(128)));",
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
        return start, layer.planes.planes * layer.planes.plane
    return start, layer.start.buffer.size - layer.start.delta


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

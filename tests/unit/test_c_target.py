"""The C target beyond the contract of all targets: rounding, compilers, batches, refusals, its device."""

import copy
import dataclasses
import itertools
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from dsp.c import session as sessions
from dsp.c.context import KERNELS, amalgamate
from dsp.c.target import CTarget
from sdk import compiler, reference, toolchain
from sdk.errors import BuildFailed, DeviceFailed, InvalidArtifact, OutputFailed, ToolMissing
from sdk.graph import Concat, Conv, Graph, Lookup, Mul, Pad, Quantization, Resize, Tensor, Transpose
from sdk.shapes import output_shape
from sdk.target import Options, require_supported
from sdk.verification import verify
from tests.amount import amount
from tests.graph_builder import GraphBuilder
from tests.reference_target import small_network
from tests.unit.test_imports import run_with_numpy_alone

TARGET = CTarget()

SATURATED = """
#include "requantize.h"
#include <stdio.h>
int main(void) {
  float value;
  while (fread(&value, sizeof value, 1, stdin)) {
    int32_t saturated = saturate(value, (struct output){7, -7, 248});
    int32_t low = saturate(value, (struct output){255, -255, 0});
    fwrite(&saturated, sizeof saturated, 1, stdout);
    fwrite(&low, sizeof low, 1, stdout);
  }
}
"""


def identical(graph: Graph) -> None:
    verify(graph)
    require_supported(TARGET, graph)
    random = np.random.default_rng(5)
    x = {name: random.integers(0, 256, graph.tensor(name).shape, np.uint8) for name in graph.inputs}
    x = {name: value.view(graph.tensor(name).dtype) for name, value in x.items()}
    expected = reference.run(graph, x, "f32")
    with TARGET.open("host").load(TARGET.compile(graph, Options())) as session:
        traced = session.trace(x)
        assert list(traced) == [node.output for node in graph.nodes]
        for name, value in traced.items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
        for name, value in session.run(x).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


def available(tool: str) -> str:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    return tool


def small() -> Graph:
    b = GraphBuilder((1, 4, 5, 5))
    b.conv("x", 4)
    return b.graph()


@pytest.mark.slow
def test_rounding_is_numpy_s(tmp_path):
    random = np.random.default_rng(1)
    halves = np.arange(-1100, 1100.5, 0.5).astype(np.float32)
    around = [np.nextafter(halves, np.float32(sign * np.inf)) for sign in (1, -1)]
    bits = random.integers(0, 2**32, 100_000, np.uint32).view(np.float32)
    values = np.concatenate([halves, *around, random.normal(0, 200, 100_000).astype(np.float32), bits])
    values = np.append(values[~np.isnan(values)], np.float32([0.0, -0.0, np.inf, -np.inf]))
    (tmp_path / "main.c").write_text(SATURATED)
    program = tmp_path / "main"
    clang = toolchain.find("cc")
    subprocess.run([clang, *sessions.FLAGS, f"-I{KERNELS}", tmp_path / "main.c", "-o", program], check=True)
    done = subprocess.run([program], input=values.tobytes(), capture_output=True, check=True)
    saturated, low = np.frombuffer(done.stdout, np.int32).reshape(-1, 2).T
    np.testing.assert_array_equal(low, np.clip(np.rint(values), -255, 0) + 255)
    np.testing.assert_array_equal(saturated, np.clip(np.rint(values), -7, 248) + 7)


def every_operator(batch: int, dtype: str) -> Graph:
    b = GraphBuilder((batch, 6, 9, 8), dtype=dtype, seed=batch)
    x = b.conv("x", 8, 3, strides=2, pads=(1, 1, 0, 1), group=2, relu=True)
    y = b.depthwise(b.add(x, b.conv(x, 8)), dilations=(1, 2), pads=(1, 2, 1, 2))
    y = b.max_pool(b.average_pool(y, 3, pads=1), 2, dilations=(1, 2))
    gate = b.requantize(b.global_average_pool(y))
    for kind, fields in (
        (Mul, {"inputs": (y, gate), "clamp": b.nodes[0].clamp}),
        (Pad, {"pads": (1, 2, 0, 1)}),
        (Resize, {"rows": (1, 1, 2, 0), "columns": (3, 2)}),
        (Transpose, {"perm": (2, 0, 3, 1)}),
        (Concat, {"inputs": None, "axis": 2}),
    ):
        name, source = kind.op, b.tensors[b.nodes[-1].output]
        inputs = {"inputs": (source.name,)} | fields
        inputs["inputs"] = inputs["inputs"] or (source.name, source.name)
        node = kind(name=name, output=name, **inputs)
        like = b.tensors[node.inputs[0]]
        shape = output_shape(node, b.tensors)
        b._append(node, Tensor(name, shape, like.dtype, like.quantization))
    table = np.random.default_rng(3).integers(0, 256, 256, np.uint8).view(dtype)
    b.tensors["table"] = Tensor("table", (256,), dtype, Quantization.per_tensor(0.1, 3), table)
    shape = b.tensors["Concat"].shape
    b._append(
        Lookup("Lookup", ("Concat", "table"), "Lookup"),
        dataclasses.replace(b.tensors["table"], name="Lookup", shape=shape, data=None),
    )
    flat = b.reshape("Lookup", (shape[0], int(np.prod(shape[1:]))))
    b.gemm(flat, 5)
    return b.graph()


@pytest.mark.parametrize(("batch", "dtype"), [pytest.param(1, "uint8", marks=pytest.mark.slow), (3, "int8")])
def test_every_operator_in_a_batch(batch, dtype):
    identical(every_operator(batch, dtype))


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ("-std=c11", "-O0"),
        pytest.param(("-std=gnu11", "-O3", "-march=native", "-ffp-contract=fast"), id="contracted"),
    ],
)
def test_no_flag_of_the_compiler_changes_a_bit(flags, monkeypatch):
    monkeypatch.setattr(sessions, "FLAGS", flags)
    identical(every_operator(1, "uint8"))


def products() -> Graph:
    """Convolutions with odd numbers of terms, outputs and positions; weights with zero-points; long rows."""
    b = GraphBuilder((1, 5, 11, 37), seed=3)
    x = b.conv("x", 7, 3, strides=(2, 1), pads=(1, 2, 0, 1), dilations=(1, 2))
    x = b.conv(x, 9, group=1, weight_zero_point=90)
    x = b.conv(x, 6, (3, 5), pads=(1, 2, 1, 2), group=3)
    x = b.depthwise(b.depthwise(x, strides=2, pads=1), (2, 5), strides=(1, 3), pads=(1, 4, 0, 4))
    b.conv(b.depthwise(x, pads=1, weight_zero_point=3), 33)
    return b.graph()


FORMS = {
    "portable": ("-U__SSE2__", ()),
    "sse2": ("-mno-avx", ()),
    "avx2": ("-mavx2 -mno-avx512f", ("avx2",)),
    "avx512": ("-mavx512f -mavx512bw", ("avx512bw",)),
    "vnni": ("-mavx512f -mavx512bw -mavx512vnni", ("avx512bw", "avx512_vnni")),
    "avx-vnni": ("-mavx2 -mavxvnni", ("avx_vnni",)),
}
"""Of the products: flags that choose one, and what the processor must have."""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="forms for x86-64")
@pytest.mark.parametrize(
    "form", ["portable", *(pytest.param(form, marks=pytest.mark.slow) for form in FORMS)]
)
@pytest.mark.parametrize("compiler", ["clang-19", pytest.param("gcc", marks=pytest.mark.slow)])
def test_every_form_of_the_products(compiler, form, monkeypatch):
    flags, needed = FORMS[form]
    if not set(needed) <= set(Path("/proc/cpuinfo").read_text().split()):
        pytest.skip(f"this processor lacks {' or '.join(needed)}")
    monkeypatch.setenv("TOWLINE_CC", available(compiler))
    monkeypatch.setattr(sessions, "FLAGS", ("-std=c11", "-O2", *flags.split()))
    identical(products())


LEVELS = ("-O1", "-Os", "-O3", "-O1 -fsanitize=undefined,address", "-O2 -funsigned-char")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcc", "clang-19"])
@pytest.mark.parametrize(
    ("level", "contract"),
    amount(
        [*zip(LEVELS, itertools.cycle(("fast", "off")), strict=False)],
        [*itertools.product(LEVELS, ("fast", "off"))],
    ),
)
def test_no_compiler_changes_a_bit(name, contract, level, monkeypatch):
    monkeypatch.setenv("TOWLINE_CC", available(name))
    if "sanitize" in level:
        level += " -fno-sanitize-recover=all"
    monkeypatch.setattr(
        sessions, "FLAGS", ("-std=gnu11", "-march=native", f"-ffp-contract={contract}", *level.split())
    )
    identical(every_operator(2, "int8"))


@pytest.mark.parametrize(("method", "refused"), [(16, False), (2, True)])
def test_wider_floats_are_refused(method, refused, tmp_path):
    """16 is gcc's value in its gnu modes for an x86 that has _Float16, and does not concern float."""
    text = (KERNELS / "base.h").read_text()
    line = f"#undef FLT_EVAL_METHOD\n#define FLT_EVAL_METHOD {method}\n#if FLT_RADIX"
    assert text.count("#if FLT_RADIX") == 1
    source = text.replace("#if FLT_RADIX", line)
    done = toolchain.run("cc", ["-fsyntax-only", "-x", "c", "-"], input=source.encode(), check=False)
    assert (b"float must be evaluated as float" in done.stderr) == refused
    assert (done.returncode != 0) == refused


@pytest.mark.parametrize(
    "change", [{"strides": (1 << 15, 1)}, {"pads": (0, 1 << 15, 0, 0)}], ids=lambda change: next(iter(change))
)
def test_windows_beyond_32_bits_are_refused(change):
    graph = small()
    node = dataclasses.replace(graph.nodes[0], **change)
    verdict = TARGET.supports(graph, node)
    assert not verdict.supported
    assert "window" in verdict.reason
    assert "32768" in verdict.reason


def test_nine_axes_are_refused_and_eight_are_not():
    for rank in (8, 9):
        b = GraphBuilder((2,) * rank)
        node = Transpose("t", ("x",), "t", tuple(reversed(range(rank))))
        b._append(node, dataclasses.replace(b.tensors["x"], name="t"))
        verdict = TARGET.supports(b.graph(), node)
        assert verdict.supported == (rank == 8)
        if rank == 8:
            identical(b.graph())
        else:
            assert "9 axes" in verdict.reason


def test_the_counters_are_the_plan_s():
    graph = small()
    program = TARGET.compile(graph, Options())
    with TARGET.open(None).load(program) as session:
        profile = session.profile()
    (layer,) = profile.layers
    assert layer.macs == 4 * 4 * 25
    assert layer.counters == {"bytes": 100 + 100 + 16 + 16}  # two pictures, weights, biases
    assert profile.total == {"bytes": 232}
    assert profile.memory == {"weights": 64, "arena": 208 + 256, "live_peak": 200}  # a panel


# -- the device -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["no-such-compiler", "false"])
def test_a_program_that_is_not_a_compiler_is_refused(name, monkeypatch):
    monkeypatch.setenv("TOWLINE_CC", name)
    assert not TARGET.devices()
    with pytest.raises(ToolMissing, match=name):
        TARGET.open(None).load(TARGET.compile(small(), Options()))


@pytest.mark.slow
def test_running_one_needs_only_numpy(tmp_path, monkeypatch):
    monkeypatch.delenv("TOWLINE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler.compile(small_network(), "c", tmp_path / "net.tow")
    done = run_with_numpy_alone(
        f"""
        import numpy, towline
        with towline.Session({str(tmp_path / "net.tow")!r}) as session:
            print(session.run({{"picture": numpy.ones((1, 1, 4, 4), numpy.float32)}})["probabilities"].shape)
        """
    )
    assert done.stdout == "(1, 3)\n", done.stderr
    assert len(list((tmp_path / "towline" / "c").iterdir())) == 1


@pytest.mark.slow
def test_a_cache_holds_programs_and_nothing_else(monkeypatch, tmp_path):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    identical(small())
    (image,) = (tmp_path / "c").rglob("network")
    before = image.stat()
    identical(small())
    assert image.stat().st_mtime_ns == before.st_mtime_ns
    assert len(list((tmp_path / "c").iterdir())) == 1


def test_a_compiler_that_writes_nothing_has_failed(monkeypatch, tmp_path):
    silent = tmp_path / "cc"
    silent.write_text("#!/bin/sh\necho cc 9.9\n")
    silent.chmod(0o755)
    monkeypatch.setenv("TOWLINE_CC", str(silent))
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    with pytest.raises(BuildFailed, match="wrote nothing"):
        TARGET.open(None).load(TARGET.compile(small(), Options()))
    assert not list((tmp_path / "c").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["-O2", "-O2 -DTHREADS=2", "-O2 -march=native"])
@pytest.mark.parametrize("compiler", ["gcc", "clang-19"])
def test_a_network_may_have_all_kernels(compiler, flags):
    """No name of one is another's: quantised and float ones meet in a network that is quantised in part."""
    names = sorted(path.relative_to(KERNELS).as_posix() for path in KERNELS.rglob("*.c"))
    text = "#define SCRATCH_BYTES 1\n" + amalgamate(["base.h", *(name for name in names if name != "host.c")])
    strict = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wno-unused-function", "-Werror"]
    command = [available(compiler), *strict, *flags.split(), "-fsyntax-only", "-x", "c", "-"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.slow
def test_gcc_suffices(monkeypatch, tmp_path):
    """A machine that only runs networks need not have the clang that compiles the DSP's kernels."""
    for tool in ("gcc", "as", "ld"):
        (tmp_path / tool).symlink_to(shutil.which(available(tool)))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "gcc" in TARGET.devices()[0][1]
    identical(small())


def test_a_cache_that_cannot_be_written_is_reported(monkeypatch, tmp_path):
    (tmp_path / "c").symlink_to("/proc/self")  # where even root cannot write
    program = TARGET.compile(small(), Options())
    for cached in (tmp_path, Path("/proc/none")):
        monkeypatch.setenv("TOWLINE_CACHE", str(cached))
        with pytest.raises(OutputFailed, match="cache cannot be written") as caught:
            TARGET.open(None).load(program)
        assert "TOWLINE_CACHE" in caught.value.hint


DAMAGE = {
    "no memory": ("plan", lambda plan: plan.pop("memory")),
    "negative": ("plan.memory.arena", lambda plan: plan["memory"].update(arena=-1)),
    "text": ("plan.memory.arena", lambda plan: plan["memory"].update(arena="1")),
    "too small": ("plan.buffers[0]", lambda plan: plan["memory"].update(arena=99)),
    "lost": ("plan.places", lambda plan: plan["places"].pop("x")),
    "outside": ("plan.places.x", lambda plan: plan["places"].update(x=1 << 20)),
    "weights": ("plan.memory", lambda plan: plan["memory"].update(weights=63)),
    "a buffer outside": ("plan.buffers[1]", lambda plan: plan["buffers"][1].update(offset=1 << 20)),
    "a buffer that ends before it begins": (
        "plan.buffers[0].last",
        lambda plan: plan["buffers"][0].update(first=9),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_plan_is_refused(damage):
    program = TARGET.compile(small(), Options())
    plan = copy.deepcopy(program.plan)
    where, change = DAMAGE[damage]
    change(plan)
    with pytest.raises(InvalidArtifact) as caught:
        TARGET.open(None).load(dataclasses.replace(program, plan=plan))
    assert caught.value.where == where
    assert "compile" in caught.value.hint


def test_code_that_does_not_compile_is_reported():
    program = dataclasses.replace(TARGET.compile(small(), Options()), code={"network.c": b"#error no\n"})
    with pytest.raises(BuildFailed, match="no"):
        TARGET.open(None).load(program)


def test_a_stopped_process_is_an_error():
    with TARGET.open(None).load(TARGET.compile(small(), Options())) as session:
        session._child.process.kill()
        with pytest.raises(DeviceFailed, match="stopped"):
            session.run({"x": np.zeros((1, 4, 5, 5), np.uint8)})


def test_an_output_lives_to_the_end():
    """Its place in the arena is not reused after its last reader."""
    b = GraphBuilder((1, 4, 5, 5))
    first = last = b.conv("x", 4)
    for _ in range(3):
        last = b.conv(last, 4)
    identical(b.graph(first, last))


def test_conv_of_a_group_reads_its_own_weights_zero_points():
    """Unsigned weights, a zero-point for each channel."""
    b = GraphBuilder((2, 4, 6, 5), seed=4)
    b.conv("x", 6, 3, pads=1, group=2)
    graph = b.graph()
    weight = graph.tensor("conv0.w")
    random = np.random.default_rng(0)
    data = random.integers(0, 256, weight.shape, np.uint8)
    quantization = dataclasses.replace(
        weight.quantization, zero_point=random.integers(0, 256, 6).astype(np.int32)
    )
    graph.tensors["conv0.w"] = dataclasses.replace(
        weight, dtype="uint8", quantization=quantization, data=data
    )
    assert isinstance(graph.nodes[0], Conv)
    identical(graph)

"""Exported plain networks: they build under strict flags, and give the session's bits."""

import re
import subprocess

import numpy as np
import pytest

from dsp.c.export import STACK_BYTES, export
from dsp.c.target import CTarget
from sdk import graph as ops
from sdk import toolchain
from sdk.expression.trace import apply, sigmoid
from sdk.graph import NO_CLAMP
from sdk.target import Options
from tests.plain_graphs import PlainBuilder
from tests.unit.test_c_plain import conv

TARGET = CTarget()
STRICT = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]


def small_cnn(dtype="float32"):
    b = PlainBuilder(1)
    x = b.input((1, 3, 12, 13), dtype)
    y = conv(b, x, (8, 3, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1), bias="float32")
    y = b.map(lambda v: v * sigmoid(v), y)
    z = conv(b, y, (8, 1, 3, 3), pads=(1, 1, 1, 1), group=8)
    y = b.map(lambda v, w: apply("max", v + w, 0), y, conv(b, z, (8, 8, 1, 1)))
    y = b.node(ops.GlobalAveragePool, (y,), clamp=NO_CLAMP)
    y = b.node(ops.MatMul, (b.reshape(y, (1, 8)), b.constant((8, 5), dtype)), transposed=False)
    return b, b.graph(b.node(ops.Softmax, (y,), axis=1))


def built(folder, graph, compiler="cc", flags=STRICT, link=("-o", "net_main", "-lm")):
    """The folder's files, compiled; the path of its program."""
    program = TARGET.compile(graph, Options())
    for name, data in export(program.graph, program, "net").items():
        (folder / name).write_bytes(data)
    command = [
        toolchain.find("cc") if compiler == "cc" else compiler,
        *flags,
        "net.c",
        "net_weights.c",
        "net_main.c",
    ]
    subprocess.run([*command, *link], cwd=folder, check=True)
    return folder / "net_main"


def run_on_c(graph, samples):
    with TARGET.open(None).load(TARGET.compile(graph, Options())) as session:
        return [session.run(sample) for sample in samples]


def file_of(samples):
    return b"".join(array.tobytes() for sample in samples for array in sample.values())


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
def test_a_small_cnn(tmp_path, dtype):
    b, graph = small_cnn(dtype)
    main = built(tmp_path, graph)
    samples = [b.inputs, {name: b.draw(array.shape, dtype) for name, array in b.inputs.items()}]
    (tmp_path / "in").write_bytes(file_of(samples))
    subprocess.run([main, "in", "out"], cwd=tmp_path, check=True)
    expected = run_on_c(graph, samples)
    assert (tmp_path / "out").read_bytes() == file_of(expected)
    text = subprocess.run([main, "in"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    numbers = [[float(number) for number in line.split()] for line in text.splitlines()]
    np.testing.assert_allclose(numbers, [next(iter(out.values()))[0] for out in expected], rtol=1e-6)
    header = (tmp_path / "net.h").read_text()
    pointer = {"float32": "float", "float16": "uint16_t"}[dtype]
    assert f"void net_run(const {pointer} *input, {pointer} *output);" in header
    assert "SCALE" not in header


@pytest.mark.slow
def test_every_dtype_in_and_out(tmp_path):
    b = PlainBuilder(2)
    dtypes = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64")
    floats = ("float32", "float16", "bfloat16", "float8e4m3fn", "float8e5m2")
    outputs = []
    for dtype in dtypes + floats:
        x = b.input((2, 3), dtype)
        outputs.append(b.node(ops.Transpose, (x,), perm=(1, 0)))
    graph = b.graph(*outputs)
    main = built(tmp_path, graph, "gcc")
    (tmp_path / "in").write_bytes(file_of([b.inputs]))
    subprocess.run([main, "in", "out"], cwd=tmp_path, check=True)
    assert (tmp_path / "out").read_bytes() == file_of(run_on_c(graph, [b.inputs]))
    lines = subprocess.run([main, "in"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert len(lines.splitlines()) == len(outputs)


@pytest.mark.slow
def test_an_index_out_of_range_is_returned(tmp_path):
    b = PlainBuilder(3)
    x = b.input((3, 4))
    indices = b.input((2,), "int64", np.array([0, 2]))
    graph = b.graph(b.node(ops.Gather, (x, indices), axis=0))
    main = built(tmp_path, graph)
    (tmp_path / "in").write_bytes(file_of([b.inputs]))
    (tmp_path / "wrong").write_bytes(file_of([{**b.inputs, indices: np.array([0, 3])}]))
    assert subprocess.run([main, "in", "out"], cwd=tmp_path, check=False).returncode == 0
    done = subprocess.run([main, "wrong", "out"], cwd=tmp_path, check=False, capture_output=True)
    assert (done.returncode, b"out of range" in done.stderr) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang-19"])
@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
def test_the_stack_is_as_the_header_says(tmp_path, compiler, level):
    """By the longest path of calls. No function of this network calls itself."""
    _, graph = small_cnn("float16")
    built(tmp_path, graph, compiler, ["-std=c11", level, "-fstack-usage", "-c"], ())
    frames = {}
    for line in (tmp_path / "net.su").read_text().splitlines():
        where, size, kind = line.split("\t")
        assert kind in ("static", "dynamic,bounded"), line
        frames[where.rpartition(":")[2].partition(".")[0]] = int(size)
    text = (tmp_path / "net.c").read_text()
    bodies = dict(re.findall(r"^[A-Za-z][^\n;{]*?(\w+)\([^;{}]*\) \{\n(.*?)^}", text, re.M | re.S))

    def deepest(name):
        called = set(re.findall(r"\b(\w+)\(", bodies.get(name, ""))) & (bodies.keys() | frames.keys())
        return frames.get(name, 0) + max(map(deepest, called), default=0)

    assert 500 < deepest("net_run") <= STACK_BYTES
    (stated,) = re.findall(r"STACK_BYTES (\d+)", (tmp_path / "net.h").read_text())
    assert int(stated) == STACK_BYTES

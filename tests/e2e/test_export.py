"""`towline export`: what it writes builds without Python, under strict flags, to the same bits anywhere."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dsp.c.export import STACK_BYTES, export, identifier
from sdk import artifact, compiler, files, toolchain
from sdk.errors import OutputFailed
from sdk.graph import macs
from sdk.quantizer import quantize
from sdk.session import Session
from sdk.zoo import digits
from tests.amount import amount
from tests.graph_builder import GraphBuilder
from tests.reference_target import small_network
from tests.unit.test_c_plain_export import small_cnn
from towline.cli import main

STRICT = "-O2 -Werror -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wcast-qual"


def available(tool):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    return tool


def make(folder, *variables):
    done = subprocess.run(
        [available("make"), "-s", "-C", folder, *variables], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def program(folder, samples, *options, by=()):
    (main_program,) = folder.glob("*_main")
    (folder / "in.bin").write_bytes(samples)
    command = [*by, main_program, *options, folder / "in.bin", folder / "out.bin"]
    subprocess.run(command, check=True, timeout=600)
    return (folder / "out.bin").read_bytes()


def exported(tmp_path, graph, name="net"):
    network = compiler.compile(graph, "c", tmp_path / f"{name}.tow")
    assert main(["export", str(tmp_path / f"{name}.tow"), "-o", str(tmp_path / name)]) == 0
    return network, tmp_path / name


def body(dtype="int8"):
    """Two inputs would need an importer; two outputs of different shapes do not."""
    b = GraphBuilder((2, 3, 7, 6), dtype=dtype, seed=12)
    x = b.conv("x", 5, 3, pads=1, relu=True)
    y = b.add(x, b.depthwise(x, 3, pads=1))
    y = b.mul(y, b.global_average_pool(y))
    return b.graph(x, b.gemm(b.reshape(b.average_pool(y, 3, pads=1), (2, 210)), 4))


@pytest.mark.slow
@pytest.mark.parametrize("compiler_name", ["gcc", pytest.param("clang-19", marks=pytest.mark.slow)])
def test_a_network_with_head_and_tail(tmp_path, compiler_name):
    network, folder = exported(tmp_path, small_network())
    make(folder, f"CC={available(compiler_name)}", f"CFLAGS={STRICT}")
    random = np.random.default_rng(0)
    pictures = random.normal(0, 1, (5, 1, 1, 4, 4)).astype(np.float32)
    pictures[1, 0, 0, 0] = [np.inf, -np.inf, 1e30, 0.0078 * 2.5]
    with Session(network) as session:
        expected = [session.run({"picture": picture}) for picture in pictures]
        given = [session.quantize({"picture": picture})["picture_q"] for picture in pictures]
        logits = [session.trace({"picture": picture})["logits_q"] for picture in pictures]
    found = np.frombuffer(program(folder, pictures.tobytes()), np.float32).reshape(5, 1, 3)
    np.testing.assert_allclose(found, [value["probabilities"] for value in expected], rtol=1e-6)
    assert program(folder, b"".join(x.tobytes() for x in given), "-q") == b"".join(
        x.tobytes() for x in logits
    )


@pytest.mark.slow
def test_the_program_prints_and_refuses(tmp_path):
    _, folder = exported(tmp_path, small_network())
    make(folder, f"CC={toolchain.find('cc')}", "CFLAGS=-O1")
    (folder / "one").write_bytes(np.zeros(16, np.float32).tobytes())
    (folder / "nan").write_bytes(np.full(16, np.nan, np.float32).tobytes())
    (folder / "short").write_bytes(bytes(65))

    def run(*args):
        command = [folder / "net_main", *args]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)

    assert sum(map(float, run("one").stdout.split())) == pytest.approx(1)
    with open("/dev/full", "w") as full:
        command = [folder / "net_main", folder / "one"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, b"cannot be written" in done.stderr) == (1, True)
    assert re.fullmatch(r"\d+ \d+ \d+\n" * 4, run("-q", "one").stdout)  # 64 bytes are four samples of 16
    for args, status, message in (
        (("nan",), 1, "holds NaN"),
        (("short",), 1, "ends within a sample"),
        (("missing",), 1, "cannot be opened"),
        (("one", "missing/out"), 1, "output cannot be opened"),
        (("one", "/dev/full"), 1, "cannot be written"),
        ((), 2, "usage"),
        (("a", "b", "c"), 2, "usage"),
    ):
        done = run(*args)
        assert (done.returncode, message in done.stderr) == (status, True), args


def assert_stack(folder):
    """The kernels call only helpers: the sum of their frames and the largest kernel's bounds every path."""
    frames = {}
    for line in (folder / "net.su").read_text().splitlines():
        where, size, kind = line.split("\t")
        assert kind == "static", line
        frames[where.rpartition(":")[2].partition(".")[0]] = int(size)
    divided = ("conv", "depthwise", "gemm")  # either function takes in the other
    names = (*divided, *(f"{name}_part" for name in divided), "add", "mul", "average_pool")
    assert max(frames.values()) > 256  # of the convolutions, or of what has taken them in
    kernels = {name: frames.pop(name, 0) for name in names}
    assert sum(frames.values()) + max(kernels.values()) <= STACK_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_an_integer_network_with_two_outputs(tmp_path, dtype):
    graph = body(dtype)
    network, folder = exported(tmp_path, graph)
    make(folder, f"CC={available('gcc')}", f"CFLAGS={STRICT} -fstack-usage")
    assert_stack(folder)
    x = np.random.default_rng(1).integers(0, 256, (3, 2, 3, 7, 6), np.uint8).view(dtype)
    with Session(network) as session:
        expected = b"".join(v.tobytes() for one in x for v in session.run({"x": one}).values())
    assert program(folder, x.tobytes()) == expected
    assert program(folder, x.tobytes(), "-q") == expected
    header = (folder / "net.h").read_text()
    if shutil.which("g++") is not None:
        call = b'#include "net.h"\nvoid use() { net_run(nullptr, nullptr, nullptr); }\n'
        command = ["g++", f"-I{folder}", "-S", "-x", "c++", "-", "-o", "-"]
        assembly = subprocess.run(command, input=call, capture_output=True, check=True).stdout
        assert re.search(rb"\bnet_run\b", assembly)
    assert f"void net_run(const {dtype}_t *input, {dtype}_t *output0, {dtype}_t *output1);" in header
    assert "#define NET_OUTPUT1_SIZE 8 " in header
    text = (folder / "net.c").read_text()
    assert not re.search(r"\b(malloc|calloc|realloc|free|alloca)\b", text)
    assert set(re.findall(r"^#include <(.*)>", text, re.M)) == {
        *("float.h", "stddef.h", "stdint.h", "string.h"),
        *("immintrin.h", "arm_neon.h", "arm_mve.h", "arm_acle.h"),  # of compilers for x86 and ARM
        *("pthread.h", "threads.h", "stdatomic.h"),  # where THREADS asks for them
    }


def sources(graph):
    return export(graph, compiler.compile(graph, "c").program, "net")


def test_no_node_or_tensor_puts_anything_into_the_sources():
    graph = small_network()
    plain = sources(graph)
    hostile = '*/ #error "\n#error ??/'
    renamed = {name: f"{name}{hostile}" for name in graph.tensors}
    tensors = {renamed[n]: dataclasses.replace(t, name=renamed[n]) for n, t in graph.tensors.items()}
    nodes = tuple(
        dataclasses.replace(
            n, name=n.name + hostile, inputs=tuple(map(renamed.get, n.inputs)), output=renamed[n.output]
        )
        for n in graph.nodes
    )
    other = dataclasses.replace(
        graph,
        name=hostile,
        inputs=tuple(map(renamed.get, graph.inputs)),
        outputs=tuple(map(renamed.get, graph.outputs)),
        tensors=tensors,
        nodes=nodes,
    )
    assert sources(other) == plain


# -- the command ----------------------------------------------------------------------------------------


@pytest.fixture
def tow(tmp_path):
    compiler.compile(small_network(), "c", tmp_path / "my net-1.tow")
    return tmp_path / "my net-1.tow"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_network_gives_the_same_bytes(tow, tmp_path, capsys):
    assert main(["export", str(tow), "-o", str(tmp_path / "a"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["result"]
    (tmp_path / "b").mkdir()
    before = (tmp_path / "b").stat()
    assert main(["export", str(tow), "-o", str(tmp_path / "b")]) == 0  # an empty directory is accepted
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert document["name"] == "my_net_1"
    assert (tmp_path / "b").stat().st_ino == before.st_ino  # and stays: someone may be in it
    assert document["files"] == {name: len(data) for name, data in contents(tmp_path / "a").items()}
    assert (tmp_path / "a").stat().st_mode & 0o777 == (tmp_path / "b").stat().st_mode & 0o777


def test_another_name(tow, tmp_path):
    assert main(["export", str(tow), "-o", str(tmp_path / "a"), "--name", "Other"]) == 0
    assert "void Other_run(" in (tmp_path / "a" / "Other.h").read_text()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("net", "net"),
        ("my net.v2", "my_net_v2"),
        ("2x", "net_2x"),
        ("..", "net"),
        ("_é_", "net"),
        ("String", "net_String"),
    ],
)
def test_any_name_becomes_an_identifier(text, name):
    assert identifier(text) == name


def test_existing_files_stay_unless_forced(tow, tmp_path, capsys):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    assert main(["export", str(tow), "-o", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err
    assert list(contents(folder)) == ["mine.txt"]
    assert main(["export", str(tow), "-o", str(folder), "--force"]) == 0
    assert contents(folder)["mine.txt"] == b"mine"
    assert "my_net_1.h" in contents(folder)


@pytest.mark.parametrize("options", [["--name", "a-b"], ["--name", ""], ["-o", "FILE"]])
def test_invalid_options_are_refused(tow, tmp_path, options, capsys):
    (tmp_path / "file").write_text("")
    options = [str(tmp_path / "file") if option == "FILE" else option for option in options]
    assert main(["export", str(tow), "-o", str(tmp_path / "a"), *options]) == 2
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("there", [False, True])
def test_half_a_folder_is_never_left(tow, tmp_path, monkeypatch, there):
    if there:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "mine").write_text("")
    write, written = files.write, []

    def full(path, data):
        written.append(path)
        if len(written) == 4:
            raise OutputFailed("no space left")
        write(path, data)

    monkeypatch.setattr(files, "write", full)
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", str(tow), "-o", str(tmp_path / "a"), "--force"]) == 1
    assert len(written) == 4
    assert sorted(tmp_path.rglob("*")) == before


def test_a_directory_in_the_place_of_a_file_is_refused_before_anything_is_written(tow, tmp_path, capsys):
    (tmp_path / "a" / "README.md").mkdir(parents=True)
    assert main(["export", str(tow), "-o", str(tmp_path / "a"), "--force"]) == 2
    assert "README.md: is a directory" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["README.md"]


def test_only_c_is_exported(tow, tmp_path, capsys):
    network = artifact.load(tow)
    network.program.target = "hexagon-v65"
    artifact.save(network, tmp_path / "dsp.tow")
    assert main(["export", str(tmp_path / "dsp.tow"), "-o", str(tmp_path / "a")]) == 2
    assert "--target c" in capsys.readouterr().err


# -- the pages ------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
TARGETS_PAGE, EXPORT_PAGE = (ROOT / "docs" / name for name in ("adding-a-target.md", "export.md"))


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def test_the_fragments_on_targets_run():
    namespace = {}
    fragments = blocks(TARGETS_PAGE, "python")
    assert len(fragments) == 4
    for fragment in fragments:
        exec(compile(fragment, str(TARGETS_PAGE), "exec"), namespace)


def test_the_quotations_on_targets_are_the_sources():
    (entry,), (kernel,) = blocks(TARGETS_PAGE, "toml"), blocks(TARGETS_PAGE, "c")
    assert entry in (ROOT / "pyproject.toml").read_text()
    assert kernel in (ROOT / "dsp/c/kernels/requantize.h").read_text()


@pytest.mark.slow
def test_the_contract_tests_of_the_page_are_there():
    (command,) = blocks(TARGETS_PAGE, "sh checkout")
    done = subprocess.run(
        ["bash", "-c", f"{command.strip()} --collect-only -q -m 'not slow' -p no:cacheprovider"],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "[c]" in done.stdout


@pytest.mark.slow
def test_the_program_of_the_page_compiles(digits_folder, tmp_path):
    folder, *_ = digits_folder
    assert main(["export", str(folder / "digits.tow"), "-o", str(tmp_path / "net"), "--name", "net"]) == 0
    (program_of_page,) = blocks(EXPORT_PAGE, "c")
    (tmp_path / "best.c").write_text(program_of_page)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Inet"]
    subprocess.run([available("gcc"), *flags, "-c", "best.c"], check=True, cwd=tmp_path)


# -- slow -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits_folder(tmp_path_factory):
    """The digits model exported, its test inputs, and what `Session` makes of them."""
    folder, model = tmp_path_factory.mktemp("digits"), digits()
    quantize(model.model, model.calibration(), folder / "digits.onnx", preprocessing=model.preprocessing)
    network = compiler.compile(folder / "digits.onnx", "c", folder / "digits.tow")
    images, labels = model.test()
    inputs = model.inputs(images)
    with Session(network) as session:
        outputs = np.concatenate([session.run({"input": x[None]})["logits"] for x in inputs])
    return folder, inputs, outputs, labels


@pytest.mark.slow
@pytest.mark.parametrize("compiler_name", ["gcc", "clang-19"])
def test_digits_have_the_same_accuracy_and_the_same_bits(digits_folder, tmp_path, compiler_name):
    folder, inputs, outputs, labels = digits_folder
    assert main(["export", str(folder / "digits.tow"), "-o", str(tmp_path / "net")]) == 0
    make(tmp_path / "net", f"CC={available(compiler_name)}", f"CFLAGS={STRICT}")
    found = np.frombuffer(program(tmp_path / "net", inputs.tobytes()), np.float32).reshape(-1, 10)
    np.testing.assert_array_equal(found, outputs)
    assert (found.argmax(axis=1) == labels).sum() >= 447


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prefix", "emulator", "order"),
    [
        ("arm-linux-gnueabihf", "qemu-arm", "<"),
        ("aarch64-linux-gnu", "qemu-aarch64", "<"),
        ("riscv64-linux-gnu", "qemu-riscv64", "<"),
        ("powerpc-linux-gnu", "qemu-ppc", ">"),  # big-endian
    ],
)
def test_other_processors_give_the_same_bits(digits_folder, tmp_path, prefix, emulator, order):
    folder, inputs, outputs, _ = digits_folder
    assert main(["export", str(folder / "digits.tow"), "-o", str(tmp_path / "net")]) == 0
    variables = (f"CC={available(f'{prefix}-gcc')}", f"CFLAGS={STRICT} -O3 -fstack-usage", "LDFLAGS=-static")
    available(emulator)
    make(tmp_path / "net", *variables)
    count = 30
    samples = inputs[:count].astype(f"{order}f4").tobytes()
    found = np.frombuffer(program(tmp_path / "net", samples, by=[emulator]), f"{order}f4").reshape(-1, 10)
    np.testing.assert_array_equal(found, outputs[:count])
    frames = [int(line.split("\t")[1]) for line in (tmp_path / "net" / "digits.su").read_text().splitlines()]
    assert sum(frames) <= STACK_BYTES


# -- forms of the products, threads, and microcontrollers -------------------------------------------------


def windows():
    """Convolutions with odd numbers of terms, outputs and positions, and weights with zero-points."""
    b = GraphBuilder((1, 5, 11, 37), seed=3)
    x = b.conv("x", 7, 3, strides=(2, 1), pads=(1, 2, 0, 1), dilations=(1, 2))
    x = b.conv(x, 9, weight_zero_point=90)
    x = b.conv(x, 6, (3, 5), pads=(1, 2, 1, 2), group=3)
    x = b.depthwise(b.depthwise(x, strides=2, pads=1), (2, 5), strides=(1, 3), pads=(1, 4, 0, 4))
    x = b.conv(b.depthwise(x, pads=1, weight_zero_point=3), 33)
    return b.graph(b.gemm(b.reshape(b.global_average_pool(x)), 7))


FOREIGN = {
    "NEON of 32 bits": ("arm-linux-gnueabihf-gcc", "-march=armv7-a -mfpu=neon", "qemu-arm", "NEON"),
    "NEON": ("aarch64-linux-gnu-gcc", "-march=armv8-a", "qemu-aarch64", "NEON"),
    "dot products": (
        *("aarch64-linux-gnu-gcc", "-march=armv8.2-a+dotprod"),
        *("qemu-aarch64 -cpu max", "NEON dot product"),
    ),
    "SIMD32": ("arm-linux-gnueabihf-gcc", "-march=armv7-a+fp -mfpu=vfpv3-d16 -marm", "qemu-arm", "SIMD32"),
}
"""Compiler, flags, emulator, and the form that the compiler's macros choose."""


@pytest.mark.slow
@pytest.mark.parametrize("form", FOREIGN)
def test_forms_of_other_processors_give_the_same_bits(tmp_path, form):
    compiler_name, flags, emulator, kernels = FOREIGN[form]
    available(compiler_name)
    available(emulator.split()[0])
    _, folder = exported(tmp_path, windows())
    make(folder, f"CC={compiler_name}", f"CFLAGS={STRICT} {flags}", "LDFLAGS=-static", f"RUN={emulator}")
    command = ["make", "-s", "-C", folder, f"CC={compiler_name}", f"CFLAGS={STRICT} {flags}"]
    command += ["LDFLAGS=-static", f"RUN={emulator}", "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"0 elements differ from what was recorded; kernels: {kernels}\n" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("count", amount([3], [2, 3, 8]))
@pytest.mark.parametrize(
    ("compiler_name", "flags"),
    [("gcc", "-fsanitize=thread -g"), ("gcc", "-DC11_THREADS"), ("clang-19", "-march=native")],
)
@pytest.mark.parametrize("network", ["integers", "floats"])
def test_threads_give_the_same_bits(tmp_path, network, compiler_name, flags, count):
    _, folder = exported(tmp_path, windows() if network == "integers" else small_cnn()[1])
    variables = [f"CC={available(compiler_name)}", f"CFLAGS={STRICT} {flags}", f"THREADS={count}"]
    make(folder, *variables, *(["LDFLAGS=-fsanitize=thread"] if "sanitize" in flags else []))
    sample = (folder / "net_check.input").read_bytes()
    recorded = (folder / "net_check.output").read_bytes()
    found = program(folder, sample * 5)
    assert len(found) == 5 * len(recorded)
    assert found == found[: len(recorded)] * 5
    if network == "integers":
        assert found == recorded * 5
    done = subprocess.run(["make", "-s", "-C", folder, *variables, "check"], check=False)
    assert done.returncode == 0


@pytest.mark.slow
def test_a_check_says_what_differs_and_why(tmp_path):
    _, folder = exported(tmp_path, small_cnn()[1])

    def check(*variables):
        command = [available("make"), "-s", "-C", folder, "check", *variables]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = check()
    assert (done.returncode, "0 elements differ" in done.stdout) == (0, True), done.stderr
    done = check("CFLAGS=-O2 -ffast-math")
    assert (done.returncode != 0, "-ffast-math" in done.stderr) == (True, True)
    recorded = np.fromfile(folder / "net_check.output", np.float32)
    recorded[[0, -1]] += 0.1 * np.abs(recorded).max()
    recorded.tofile(folder / "net_check.output")
    done = check()
    assert (done.returncode != 0, "2 elements differ" in done.stdout) == (True, True)
    (folder / "net_check.output").write_bytes(b"short")
    assert check().returncode != 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "kernels", "pictures"),
    [
        ("cortex-m4", "SIMD32", amount(20, 450)),
        *amount([], [("cortex-m7", "SIMD32", 20)]),
        ("cortex-m55", "Helium", amount(10, 20)),
    ],
)
def test_the_digits_on_a_bare_board(digits_folder, tmp_path, profile, kernels, pictures):
    """On qemu-system-arm, from the exported sources, without an operating system."""
    folder, inputs, outputs, labels = digits_folder
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        available(tool)
    export_to = ["export", str(folder / "digits.tow"), "-o", str(tmp_path / "net"), "--profile", profile]
    assert main(export_to) == 0
    command = ["make", "-s", "-C", tmp_path / "net"]
    done = subprocess.run([*command, "check"], capture_output=True, text=True, check=True)
    assert f"0 elements differ from what was recorded; kernels: {kernels}" in done.stdout
    (tmp_path / "net" / "digits_check.input").write_bytes(inputs[:pictures].tobytes())
    subprocess.run([*command, "check"], capture_output=True, check=False)  # the first one's results differ
    found = np.fromfile(tmp_path / "net" / "digits_check.found", np.float32).reshape(-1, 10)
    np.testing.assert_array_equal(found, outputs[:pictures])
    assert (found.argmax(axis=1) == labels[:pictures]).mean() > 0.98
    counted = [
        subprocess.run([*command, "count"], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert counted[0] == counted[1]
    assert 5 < float(counted[0]) < 30


def published_cnn():
    """The network for CIFAR-10 whose time is published for CMSIS-NN (arXiv 1801.06601): 12.3 million MACs."""
    b = GraphBuilder((1, 3, 32, 32), seed=1)
    x = b.max_pool(b.conv("x", 32, 5, pads=2, relu=True), 3, strides=2, pads=(0, 0, 1, 1))
    for outputs in (32, 64):
        x = b.average_pool(b.conv(x, outputs, 5, pads=2, relu=True), 3, strides=2, pads=(0, 0, 1, 1))
    return b.graph(b.gemm(b.reshape(x), 10))


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "most"), [("cortex-m4", 2.1), ("cortex-m7", 2.1), ("cortex-m55", 0.92)])
def test_instructions_of_a_published_network(tmp_path, profile, most):
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        available(tool)
    graph = published_cnn()
    compiler.compile(graph, "c", tmp_path / "net.tow")
    folder = tmp_path / "net"
    assert main(["export", str(tmp_path / "net.tow"), "-o", str(folder), "--profile", profile]) == 0
    done = subprocess.run(["make", "-s", "-C", folder, "check", "count"], capture_output=True, text=True)
    assert "0 elements differ" in done.stdout, done.stderr
    counted = float(done.stdout.splitlines()[-1])
    work = sum(macs(graph, node) for node in graph.nodes)
    print(f"{profile}: {counted} million instructions, {1e6 * counted / work:.2f} for each of {work:,} MACs")
    assert 1e6 * counted / work <= most


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["--profile", "cortex-m9"], 2),
        (["--ram", "64K"], 2),
        (["--profile", "cortex-m4", "--ram", "many"], 2),
        (["--profile", "cortex-m4", "--ram", "4K"], 1),
        (["--profile", "cortex-m7", "--flash", "8K"], 1),
    ],
)
def test_boards_that_do_not_fit_are_refused(tow, tmp_path, options, status, capsys):
    assert main(["export", str(tow), "-o", str(tmp_path / "net"), *options]) == status
    assert capsys.readouterr().err
    assert not (tmp_path / "net").exists()

"""Program binaries, cached and found again; those that are damaged, of another driver or refused."""

import dataclasses

import pytest

from dsp.adreno import binaries, opencl
from sdk import cache
from sdk.errors import BuildFailed
from tests.opencl_substitute import Substitute, require_opencl

POCL = require_opencl()
KEPT = dataclasses.replace(POCL, platform="not PoCL, which keeps its own")
SOURCE = b"__kernel void one(__global int *x) { x[0] = 1; }"
OPTIONS = ("-cl-std=CL1.2",)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    return tmp_path / "opencl"


@pytest.fixture
def made(monkeypatch):
    """What programs are made from: "source" or "binary", in order."""
    cl, made = opencl._pyopencl(), []

    def from_source(context, source):
        made.append("source")
        return cl._Program(context, source)

    def program(*args):
        if len(args) == 3:
            made.append("binary")
        return cl.Program(*args)

    module = Substitute(cl, _Program=from_source, Program=program)
    monkeypatch.setattr(opencl, "_pyopencl", lambda: module)
    return made


def build(found=KEPT, source=SOURCE, options=OPTIONS, kernels=("one",)):
    context = opencl._pyopencl().Context([found.handle])
    return binaries.build(found, context, source, options, kernels)


@pytest.mark.slow
def test_a_program_is_compiled_once(made, folder):
    first, second = build(), build(kernels=("one", "one"))
    assert made == ["source", "binary"]
    assert len(first) == 1
    assert len(second) == 2
    assert second[0] != second[1]
    assert [kernel.function_name for kernel in (*first, *second)] == ["one"] * 3
    assert [file.name for file in folder.iterdir()] == [binaries.file(KEPT, SOURCE, OPTIONS).name]


@pytest.mark.slow
def test_pocl_keeps_its_own(made, folder):
    build(POCL)
    build(POCL)
    assert made == ["source", "source"]
    assert not folder.exists()


@pytest.mark.slow
def test_another_driver_device_source_or_option_is_another_binary(made):
    build()
    for name in ("name", "vendor", "platform", "version", "driver"):
        build(dataclasses.replace(KEPT, **{name: "another"}))
    build(source=SOURCE + b" ")
    build(options=(*OPTIONS, "-D", "A"))
    assert made == ["source"] * 8
    build()
    assert made[8:] == ["binary"]


@pytest.mark.parametrize(
    "damage",
    [
        "flipped",
        "a directory",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("cut", "empty", "foreign")),
    ],
)
def test_a_damaged_binary_is_built_again_silently(made, folder, damage, caplog):
    build()
    path = binaries.file(KEPT, SOURCE, OPTIONS)
    whole = path.read_bytes()
    if damage == "a directory":
        path.unlink()
        path.mkdir()
    else:
        flipped = whole[:-1] + bytes([whole[-1] ^ 1])
        path.write_bytes({"cut": whole[:5000], "empty": b"", "flipped": flipped, "foreign": SOURCE}[damage])
    build()
    assert made == ["source", "source"]
    if damage == "a directory":
        assert "not kept" in caplog.text  # it costs time on each run
        return
    assert not caplog.records
    assert len(path.read_bytes()) == len(whole)
    build()
    assert made[2:] == ["binary"]


def test_a_binary_that_the_driver_refuses_is_built_again(made):
    """Garbage under the right digest represents a binary of another driver with the same identity."""
    build()
    garbage = b"no program" * 100
    path = binaries.file(KEPT, SOURCE, OPTIONS)
    cache.keep(path, garbage)
    build()
    assert made == ["source", "binary", "source"]
    assert garbage not in path.read_bytes()


@pytest.mark.slow
def test_a_binary_without_the_kernel_is_built_again(made):
    other = SOURCE.replace(b"one", b"two")
    build(source=other, kernels=("two",))
    path = binaries.file(KEPT, SOURCE, OPTIONS)
    cache.keep(path, cache.load(binaries.file(KEPT, other, OPTIONS)))
    assert build()[0].function_name == "one"
    assert made == ["source", "binary", "source"]


def test_a_driver_without_binaries(made, folder, monkeypatch):
    monkeypatch.setattr(binaries, "_keep", lambda path, binary, keep=binaries._keep: keep(path, b""))
    build()
    build()
    assert made == ["source", "source"]
    assert not folder.exists()


def test_a_cache_that_cannot_be_written_only_costs_time(made, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "file"))
    build()
    assert "the compiled program is not kept: " in caplog.text


@pytest.mark.slow
def test_a_refused_program_shows_the_log_once_and_trimmed(folder, capfd):
    bad = "\n".join(f"__kernel void k{n}(__global int *x) {{ x[0] = missing{n}; }}" for n in range(40))
    with pytest.raises(BuildFailed) as caught:
        build(source=bad.encode())
    message = caught.value.message
    assert message.count("undeclared identifier 'missing0'") == 1
    assert "network.cl:1:" in message
    assert "tempfile" not in message
    assert len(message.splitlines()) == binaries.LOG_LINES + 1
    assert "more lines" in message.splitlines()[-1]
    assert "network.cl in the .tow" in caught.value.hint
    assert not folder.exists()


@pytest.mark.slow
def test_the_compiler_refuses_source_that_is_not_ascii():
    with pytest.raises(BuildFailed, match=r"network\.cl:1:"):
        build(source=SOURCE + "\u00e9".encode())


def test_a_program_without_the_kernel():
    with pytest.raises(BuildFailed, match="clCreateKernel failed: INVALID_KERNEL_NAME"):
        build(kernels=("another",))


@pytest.mark.slow
def test_the_compiler_s_output_is_not_shown_if_it_succeeds(recwarn):
    build(source=b"#warning look\n" + SOURCE)
    assert not recwarn.list

"""Code objects, launch metadata, the kernels and their references, on the shader executor alone."""

import struct

import msgpack
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emulator.amdgpu.code_object import CodeObject, parse, unpacked
from emulator.amdgpu.diagnosis import Diagnosis
from emulator.amdgpu.isa.executor import Executor
from emulator.amdgpu.kernels.build import build, code_object, compile_file
from emulator.amdgpu.kernels.cases import CASES, Case, Expected, case
from emulator.amdgpu.kernels.launch import BASE, Flat, place
from emulator.amdgpu.vram import Vram
from sdk.errors import BuildFailed, InternalError, InvalidInput, UsageError
from tests.chips import EVERY
from usbgpu.amd.facts.chips import CHIPS

QUICK = ("add", "scan", "histogram")


@pytest.fixture(scope="module")
def vram() -> Vram:
    return Vram(16 << 20)


@pytest.fixture(scope="module", params=EVERY)
def executor(request, vram) -> tuple[str, Executor]:
    return request.param, Executor(CHIPS[request.param], vram, Diagnosis(lambda: 0))


def check(launch: Case, chip: str, executor: Executor, vram: Vram) -> None:
    placed = place(launch, build(launch.source, chip), vram)
    outcome = placed.run(executor)
    assert outcome.fault is None
    assert outcome.waves == launch.waves
    worst = {name: want.ulps(placed.results()[name]).max() for name, want in launch.expected.items()}
    assert launch.mismatches(placed.results()) == 0, f"{worst} ULP"


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)
def test_kernel_against_its_reference(name, executor, vram):
    check(case(name), *executor, vram)


SIZES = [
    ("gemm_dot4", {"m": 128, "n": 64, "k": 32, "seed": 21}),
    ("gemm_wmma", {"m": 16, "n": 16, "k": 16, "seed": 22}),
    ("pointwise", {"pixels": 1, "channels_in": 4, "channels_out": 4, "seed": 23}),
    ("pointwise", {"pixels": 65, "channels_in": 64, "channels_out": 4, "seed": 24}),
    ("depthwise", {"height": 1, "width": 1, "channels": 4, "seed": 25}),
    ("depthwise", {"height": 2, "width": 33, "channels": 8, "seed": 26}),
    ("average_pool", {"pixels": 1, "channels": 1, "seed": 27}),
    ("add", {"elements": 4, "seed": 28}),
    ("softmax", {"rows": 1, "columns": 1, "seed": 29}),
    ("softmax", {"rows": 3, "columns": 1000, "seed": 30}),
    ("matmul_f32", {"m": 16, "n": 16, "k": 256, "seed": 31}),
    ("matmul_f16", {"m": 16, "n": 16, "k": 16, "seed": 32}),
    ("matmul_f16_wmma", {"m": 16, "n": 32, "k": 256, "seed": 33}),
    ("scan", {"blocks": 1, "seed": 34}),
    ("histogram", {"size": 4, "seed": 35}),
    ("sort", {"groups": 5, "seed": 37}),
    ("alu", {"items": 64, "rounds": 0, "seed": 36}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sizes"), SIZES)
def test_kernel_at_other_sizes(name, sizes, executor, vram):
    check(case(name, **sizes), *executor, vram)


@pytest.mark.parametrize("name", QUICK)
def test_a_case_notices_one_wrong_bit(name):
    launch = case(name)
    results = {key: launch.expected[key].values.copy() if key in launch.expected else array.copy()
               for key, array in launch.buffers.items()}  # fmt: skip
    assert launch.mismatches(results) == 0
    for array in results.values():
        raw = array.view(np.uint8).reshape(-1)
        raw[-1] ^= 1
        assert launch.mismatches(results) == 1
        raw[-1] ^= 1


def test_ulps_are_of_the_scale():
    ulp = np.spacing(np.float32(4))
    expected = Expected(np.array([1.0, 1.0, 1.0]), bound=2, scale=np.array([4.0, 4.0, 4.0]))
    actual = np.array([1 + 2 * ulp, 1 + 2.25 * ulp, np.nan], np.float32)
    assert list(expected.ulps(actual)) == [2, 2.25, np.inf]
    assert expected.mismatches(actual) == 2


def test_bounds_are_tight_enough_to_notice_a_wrong_k():
    """A product that lacks one of its k terms is outside the bound almost everywhere."""
    for name in ("matmul_f32", "matmul_f16", "matmul_f16_wmma"):
        launch = case(name)
        a, b = (launch.buffers[key].astype(np.float64) for key in "ab")
        b = b if name == "matmul_f32" else b.T
        wrong = (a[:, :-1] @ b[:-1]).astype(launch.buffers["c"].dtype)
        assert launch.expected["c"].mismatches(wrong) > wrong.size * 0.5


def test_unknown_kernel_is_refused():
    with pytest.raises(UsageError, match="gemm_dot5"):
        case("gemm_dot5")


def test_writing_beside_a_buffer_is_noticed(vram):
    placed = place(case("add"), build("layers", "gfx1100"), vram)
    placed.memory.write(placed.places["output"] + placed.case.buffers["output"].nbytes, b"\0")
    with pytest.raises(InternalError, match="outside of output"):
        placed.results()


# -- code objects -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=EVERY)
def gemm(request) -> tuple[str, CodeObject]:
    return request.param, build("gemm", request.param)


def test_launch_registers_and_arguments(gemm):
    chip, code = gemm
    assert code.chip == chip
    assert set(code.kernels) == {"gemm_dot4", "gemm_wmma"}
    kernel = code.kernels["gemm_dot4"]
    assert kernel.lds == 2 * 8 * 64 * 4
    assert kernel.rsrc2 >> 15 & 0x1FF == kernel.lds // 512  # not in the file: 0 there
    assert kernel.rsrc2 >> 7 & 3 == 3  # workgroup ids in x and y, not in z
    assert kernel.wave32
    assert kernel.threads == (256, 1, 1)
    assert [(one.name, one.offset, one.size) for one in kernel.arguments[:5]] == [
        ("a", 0, 8), ("b", 8, 8), ("c", 16, 8), ("n", 24, 4), ("k", 28, 4),
    ]  # fmt: skip
    assert kernel.pack([1 << 40, 2, 3, 4, 5])[:32] == struct.pack("<QQQII", 1 << 40, 2, 3, 4, 5)
    assert kernel.user_data(0x1234_5678_9ABC) == (0x5678_9ABC, 0x1234)


def test_arguments_that_do_not_fit(gemm):
    kernel = gemm[1].kernels["gemm_dot4"]
    for values in ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 1 << 32], [-(1 << 63) - 1, 2, 3, 4, 5]):
        with pytest.raises(InvalidInput):
            kernel.pack(values)


def test_object_files_and_others_are_refused(tmp_path):
    for data in (b"", b"\x7fELF", b"MZ" + bytes(100)):
        with pytest.raises(InvalidInput):
            parse(data)
    with open("/proc/self/exe", "rb") as host, pytest.raises(InvalidInput, match="AMD"):
        parse(host.read())
    bad = tmp_path / "bad.cl"
    bad.write_text("kernel void broken(")
    with pytest.raises(BuildFailed):
        compile_file(bad, "gfx1100")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_code_objects_are_parsed_or_refused(data):
    whole = bytearray(code_object("misuse", "gfx1100"))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, 0xA00))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(whole), 0x900, 0x40, 0x1000]))
    try:
        code = parse(bytes(whole[:cut]))
    except InvalidInput:
        return
    assert all(kernel.entry < len(code.image) for kernel in code.kernels.values())


@given(st.dictionaries(st.text(max_size=5), st.lists(st.integers(-9, 9)) | st.floats(allow_nan=False)))
def test_metadata_that_ends_too_early(value):
    data = msgpack.packb(value)
    assert unpacked(data) == value
    if len(data) > 1:
        with pytest.raises(InvalidInput, match="damaged"):
            unpacked(data[:-1])


@given(st.binary(max_size=60))
@example(b"\x91" * 2000 + b"\x00")
@example(b"\x81\x90\x00")
@example(b"\x81\xd6\xff\xff\xff\xff\xff\x00")
def test_metadata_of_anything(data):
    try:
        unpacked(data)
    except InvalidInput:
        return


# -- kernels that go wrong ----------------------------------------------------------------------------------


def launch(kernel: str, *arguments: int) -> Case:
    return Case(kernel, "misuse", (1, 1, 1), (32, 1, 1), dict(zip("ab", arguments, strict=False)), {})


def test_page_fault_names_address_and_instruction(executor, vram):
    chip, shaders = executor
    placed = place(launch("store", 0x1000, 7), build("misuse", chip), vram)
    outcome = shaders.run(placed.dispatch, placed.memory)
    assert outcome.fault is not None
    assert (outcome.fault.kind, outcome.fault.address, outcome.fault.write) == ("page fault", 0x1000, True)
    assert "global_store" in outcome.fault.text
    assert not outcome.writes


def test_unknown_instruction_is_refused_by_name_before_the_wave_runs(executor, vram):
    chip, shaders = executor
    place_of_result = BASE + (8 << 20)
    placed = place(launch("unknown_instruction", place_of_result), build("misuse", chip), vram)
    outcome = shaders.run(placed.dispatch, placed.memory)
    assert outcome.fault is not None
    assert outcome.fault.kind == "instruction"
    assert "v_interp_p10_f32" in outcome.fault.text
    assert outcome.total == 0
    assert Flat(vram).read(place_of_result, 4) == bytes(4)


def test_endless_loop_ends_in_the_watchdog(vram):
    shaders = Executor(CHIPS["gfx1100"], vram, Diagnosis(lambda: 0), budget=20_000)
    placed = place(launch("spin", BASE + (8 << 20)), build("misuse", "gfx1100"), vram)
    outcome = shaders.run(placed.dispatch, placed.memory)
    assert outcome.fault is not None
    assert outcome.fault.kind == "watchdog"

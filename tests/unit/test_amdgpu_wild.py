"""What no kernel may do to the process that runs it, and what ends a dispatch."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from emulator.amdgpu.isa import decode, flow, jit
from emulator.amdgpu.seams import Extent
from sdk import disassembler, toolchain
from tests.amount import amount
from tests.unit.amdgpu_shader_bench import BASE, CODE, SIZE, Bench, build
from tests.unit.amdgpu_shader_kernels import KERNELS
from tests.unit.test_amdgpu_decode import words
from tests.unit.test_amdgpu_shaders import assembled, both, run

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


@both
@pytest.mark.slow
def test_random_kernels_end_in_faults_and_refusals_only(chip):
    args = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "tests.unit.amdgpu_wild",
        chip,
        "0",
        str(amount(20, 100)),
    ]
    ran = subprocess.run(args, capture_output=True, text=True, timeout=1800)
    assert ran.returncode == 0, ran.stderr[-2000:]
    ends = dict(part.split(": ") for part in ran.stdout.strip().split(", "))
    every = {"end", "instruction", "page fault", "trap", "watchdog"}
    assert amount({"end", "page fault"}, every) <= set(ends) <= every


# Code


def test_code_can_be_read_in_two_ways():
    # 0: s_cbranch_scc1 to 8; 4: s_mov_b32 s0, the literal at 8 is s_nop 0; 12: s_endpgm
    code = words(0xBFA20001, 0xBE8000FF, 0xBF800000, 0xBFB00000)
    program = flow.read(decode.decoder("gfx1100"), lambda address, size: code[address : address + size])
    assert {start: ([each.size for each in block.instructions], block.successors)
            for start, block in program.blocks.items()} == {
        0: ([4], (8, 4)), 4: ([8], (12,)), 8: ([4], (12,)), 12: ([4], ()),
    }  # fmt: skip


def test_calls_are_followed_to_a_limit():
    # s_getpc_b64 s[0:1]; s_add_u32 s0, s0, 8; s_setpc_b64 s[0:1]; and so on
    code = words(*(0xBE804700, 0x80008800, 0xBE804800) * 300, 0xBFB00000).ljust(8192, b"\0")
    with pytest.raises(flow.Refused, match="calls within calls"):
        flow.read(decode.decoder("gfx1100"), lambda address, size: code[address : address + size])


@both
def test_registers_that_encodings_do_not_allow_are_refused(chip):
    with pytest.raises(decode.Undecodable):  # v_readfirstlane_b32 s7, s55
        decode.decoder(chip).decode(bytes.fromhex("37040e7e").ljust(20, b"\0"), 0)


@pytest.mark.slow
@both
def test_every_page_of_code_must_be_executable(chip):
    bench = Bench(chip)
    whole, end = bench.space.translate, BASE + CODE + 8192

    def translate(address, *, write=False):
        extent = whole(address, write=write)
        page = address & ~4095
        return Extent(page, page + 4096, extent.target + page - extent.start, False, True, page < end)

    bench.space.translate = translate
    assert assembled(bench, "s_nop 0").fault is None
    fault = assembled(bench, "s_nop 0\n" * 2048).fault
    assert fault.kind == "page fault"
    assert "not executable" in fault.text
    assert fault.address == end


def test_clang_is_found_without_asking_a_compiler(monkeypatch):
    monkeypatch.setattr(disassembler.ctypes.util, "find_library", lambda name: pytest.fail("slow"))
    disassembler._library.__wrapped__("AMDGPU")


# Memory


@both
def test_a_store_ends_where_its_extent_ends(chip):
    bench = Bench(chip)
    at = bench.put(np.zeros(2048, np.int32))
    low = at - BASE + 64
    bench.space.read_only = (low, low + 4096)
    outcome = run(bench, "store", 1, 32, [at, np.int32(1)])
    assert (outcome.fault.kind, outcome.fault.address) == ("page fault", at + 64)
    assert outcome.writes == [(at, np.arange(1, 17, dtype=np.int32).tobytes())]


@both
@pytest.mark.parametrize("name", ["load", "store"])
def test_an_extent_beyond_the_end_of_vram(chip, name):
    bench = Bench(chip)
    bench.space.translate = lambda address, *, write=False: Extent(
        BASE, BASE + 2 * SIZE, 0, False, True, True
    )
    here = bench.put(np.zeros(64, np.int32))
    args = [BASE + SIZE - 64, here, np.int32(1)] if name == "load" else [BASE + SIZE - 64, np.int32(1)]
    fault = run(bench, name, 1, 32, args).fault
    assert (fault.kind, fault.address) == ("page fault", BASE + SIZE)
    assert "VRAM ends" in fault.text


@both
def test_memory_that_fails_to_answer_is_reported_and_left_unchanged(chip, capfd):
    bench = Bench(chip)
    at = bench.put(np.zeros(64, np.int32))
    code = build(chip, KERNELS["store"])
    dispatch = bench.dispatch(code, "store", (1, 1, 1), (32, 1, 1), [at, np.int32(1 << 12)])
    whole, asked = bench.space.translate, []

    def translate(address, *, write=False):
        asked.append(address)
        if write and len(asked) > 3:
            raise ZeroDivisionError
        return whole(address, write=write)

    bench.space.piece = 4096
    bench.space.translate = translate
    before = bytes(bench.vram.memory[: 4 << 20])
    with pytest.raises(ZeroDivisionError):
        bench.executor.run(dispatch, bench.space)
    assert bytes(bench.vram.memory[: 4 << 20]) == before
    bench.space.translate = whole
    assert len(bench.executor.run(dispatch, bench.space).writes) == 32
    assert capfd.readouterr() == ("", "")


# Ends


@pytest.mark.parametrize("groups", [1, 1 << 26])
def test_ctrl_c(groups):
    bench = Bench("gfx1100", budget=1 << 40)
    at = bench.put(np.zeros(64, np.int32))
    name, args = ("spin", [at]) if groups == 1 else ("store", [at, np.int32(1)])
    timer = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))

    def pressed():
        timer.start()  # here: on a busy machine the time may be over at once
        run(bench, name, groups, 32, args)

    with pytest.raises(KeyboardInterrupt):
        pressed()
    timer.join()
    assert not bench.get(at, np.zeros(64, np.int32)).any()
    assert run(bench, "store", 1, 32, [at, np.int32(1)]).fault is None
    assert bench.get(at, np.zeros(64, np.int32)).sum() == 528


HANDLER = """
#include <signal.h>
static struct sigaction before;
static int there;
static void take_out(int number)
{
    sigset_t all;
    sigfillset(&all);
    if (there) sigaction(SIGINT, &before, 0);
    there = 0;
    sigprocmask(SIG_UNBLOCK, &all, 0);
    raise(number);
}
void put_in(void)
{
    struct sigaction ours = {.sa_handler = take_out, .sa_flags = SA_NODEFER | SA_RESETHAND | SA_ONSTACK};
    sigaction(SIGINT, 0, &before);
    sigaction(SIGINT, &ours, 0);
    there = 1;
}
"""


@pytest.mark.slow
def test_ctrl_c_with_a_handler_that_removes_itself(tmp_path):
    """As LLVM's does, which an OpenCL driver brings into the process."""
    source, library = tmp_path / "handler.c", tmp_path / "handler.so"
    source.write_text(HANDLER)
    toolchain.run("clang", ["-shared", "-fPIC", "-o", str(library), str(source)])
    test_ctrl_c(1)  # the shader is translated: the signal will come while it runs
    ctypes.CDLL(str(library)).put_in()
    for _ in range(2):
        test_ctrl_c(1)


def test_ctrl_c_that_is_deferred():
    held, done = [], threading.Event()

    def press():  # again and again: the first may come before the shader runs
        while not done.wait(0.05):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    thread = threading.Thread(target=press)
    try:
        bench = Bench("gfx1100", budget=1 << 40)
        thread.start()
        outcome = run(bench, "spin", 1, 32, [bench.put(np.zeros(64, np.int32))])
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert held
    assert (outcome.fault.kind, outcome.fault.text, outcome.total) == ("watchdog", "interrupted", 0)


def test_a_dispatch_that_would_not_end():
    bench = Bench("gfx1100")
    code = build("gfx1100", KERNELS["store"])
    dims = (0xFFFF_FFFF,) * 3
    fault = bench.run(code, "store", dims, (1024, 1, 1), [BASE, np.int32(1)]).fault
    assert fault.kind == "watchdog"
    assert "waves" in fault.text


@both
def test_a_trap_that_is_not_taken(chip):
    bench = Bench(chip)
    at = bench.put(np.array([3, 0], np.int32))
    assert run(bench, "trap", 1, 32, [at]).fault is None
    assert bench.get(at, np.zeros(2, np.int32))[1] == 2
    bench.space.write(at, b"\4")
    assert run(bench, "trap", 1, 32, [at]).fault.kind == "trap"


@LINUX
def test_stacks_are_guarded():
    native = Bench("gfx1100").executor._native
    first = int(native._ffi.cast("uintptr_t", native.run_struct.stacks))
    size, count = native._library.WAVES_STACK, native._library.WAVES_GROUP
    maps = [line.split()[:2] for line in Path("/proc/self/maps").read_text().splitlines()]
    closed = {int(where.split("-")[0], 16) for where, rights in maps if rights.startswith("---")}
    assert {first + size * number for number in range(count)} <= closed


# Other hosts


@pytest.mark.parametrize("processor", ["x86-64", "x86-64-v2", "x86-64-v3"])
def test_hosts_without_fma_and_f16(processor, monkeypatch):
    llvm = jit._binding()
    if "x86_64" not in llvm.get_process_triple():
        pytest.skip("another processor")
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: processor)
    monkeypatch.setattr(jit, "_features", lambda: "")
    bench = Bench("gfx1100")
    a = np.linspace(-3, 3, 32, dtype=np.float32) / 7
    at = bench.put(a)
    assert run(bench, "halves", 1, 32, [at]).fault is None
    expected = a.astype(np.float64) * a.astype(np.float16) + 1
    assert np.array_equal(bench.get(at, a), expected.astype(np.float32))


def test_calls_of_missing_functions_are_found_before_they_run():
    text = "declare float @no_such_function(float)\ndefine float @f(float %x) {\n"
    code = jit.compiled(text + "  %y = call float @no_such_function(float %x)\n  ret float %y\n}\n")
    assert jit.unresolved(code, ()) == ["no_such_function"]
    assert jit.unresolved(code, ["no_such_function"]) == []

"""Kernels compiled by clang, run by the executor: flow, LDS, barriers, memory, faults, counters, cache."""

import os
import subprocess
import sys

import numpy as np
import pytest

from emulator.amdgpu.isa import jit
from tests.unit.amdgpu_shader_bench import BASE, SIZE, Bench, build
from tests.unit.amdgpu_shader_kernels import KERNELS

CHIPS = ("gfx1100", "gfx1201")
both = pytest.mark.parametrize("chip", CHIPS)


def run(bench, name, groups, threads, args, **options):
    code = build(bench.chip.name, KERNELS[name])
    return bench.run(code, name, (groups, 1, 1), (threads, 1, 1), args, **options)


@both
def test_divergent_loops_and_partial_waves(chip):
    bench = Bench(chip)
    values = np.arange(1, 97, dtype=np.int32) * 7
    at = bench.put(values)
    outcome = run(bench, "collatz", 2, 48, [at])

    def steps(v):
        n = 0
        while v != 1 and n < 1000:
            v, n = (3 * v + 1 if v & 1 else v >> 1), n + 1
        return n

    assert outcome.fault is None
    assert outcome.waves == 4
    assert bench.get(at, values).tolist() == [steps(int(v)) for v in values]


@both
def test_nested_control_flow(chip):
    bench = Bench(chip)
    out = np.zeros(32, np.int32)
    at = bench.put(out)
    assert run(bench, "nested", 1, 32, [at, np.int32(23)]).fault is None

    def item(x):
        v = 0
        for i in range(23):
            if (x ^ i) & 1:
                v += sum(k * i for k in range(x & 3))
            elif x & 4:
                v -= i
            else:
                v ^= x
                if v > 100:
                    break
        return v

    assert bench.get(at, out).tolist() == [item(x) for x in range(32)]


@both
def test_calls_and_scratch(chip):
    bench = Bench(chip)
    out = np.zeros(64, np.int32)
    at = bench.put(out)
    assert run(bench, "calls", 1, 64, [at]).fault is None

    def item(x):
        r = x
        for i in range(x & 7):
            slots = {i & 3: i}
            helper = slots.get(i & 3, 0) * (i & 3)
            r = r * 7 - 3 if i & 1 else r + helper
        return r

    assert bench.get(at, out).tolist() == [item(x) for x in range(64)]


@both
def test_barriers_across_waves(chip):
    bench = Bench(chip)
    values = np.arange(256, dtype=np.int32)
    at = bench.put(values)
    outcome = run(bench, "reverse", 2, 128, [at, np.int32(5)])
    expected = values.reshape(2, 128)
    for i in range(5):
        expected = expected[:, ::-1] + i
    assert outcome.fault is None
    assert np.array_equal(bench.get(at, values).reshape(2, 128), expected)


@both
def test_widths(chip):
    bench = Bench(chip)
    draw = np.random.default_rng(3)
    b = draw.integers(0, 256, 96).astype(np.uint8)
    s = draw.integers(-32768, 32768, 160).astype(np.int16)
    d = np.zeros(96, np.int32)
    q = draw.integers(-(1 << 62), 1 << 62, 32)
    v = draw.random((32, 4)).astype(np.float32)
    at = [bench.put(each) for each in (b, s, d, q, v)]
    outcome = run(bench, "widths", 1, 32, at)
    assert outcome.fault is None
    nb, ns, nd = b.copy(), s.copy(), d.copy()
    nb[::3] += 1
    ns[::5] -= 1
    nd[::3] = b[::3].astype(np.int8).astype(np.int32) * 256 + s[::5]
    with np.errstate(over="ignore"):
        nq = q * 3 + np.int64(at[4])
    for address, expected in zip(at, (nb, ns, nd, nq, v[:, ::-1]), strict=True):
        assert np.array_equal(bench.get(address, expected), expected)
    assert outcome.read >= 32 * (1 + 2 + 8 + 16)
    assert outcome.written == 32 * (1 + 2 + 4 + 8 + 16)


@both
def test_atomics(chip):
    bench = Bench(chip)
    a, order = np.zeros(16, np.int32), np.zeros(128, np.int32)
    at, where = bench.put(a), bench.put(order)
    assert run(bench, "atomics", 2, 64, [at, where]).fault is None
    found = bench.get(at, a)
    assert found[:4].tolist() == [2 * sum(range(first, 64, 4)) for first in range(4)]
    assert found[8:10].tolist() == [128, 62]
    assert found[10] in (1, 33)  # the first lane of the wave that came first
    assert sorted(bench.get(where, order).tolist()) == list(range(128))


@both
def test_generic_pointers(chip):
    bench = Bench(chip)
    a = np.zeros(128, np.int32)
    a[64:66] = (1_000_000, 2_000_000)
    at = bench.put(a)
    assert run(bench, "pointers", 1, 32, [at]).fault is None
    expected = [sum(3 * ((x & 15) + i) for i in range(4)) + (4 * x + 6) * 1000 + 3_000_000 for x in range(32)]
    assert bench.get(at, a)[:32].tolist() == expected


@both
def test_permutations(chip):
    bench = Bench(chip)
    a = np.arange(160, dtype=np.int32) + 100
    at = bench.put(a)
    assert run(bench, "swizzles", 1, 32, [at]).fault is None
    found, lanes = bench.get(at, a), np.arange(32)
    assert np.array_equal(found[32:64], a[lanes ^ 16])
    assert np.array_equal(found[64:96], a[lanes * 3 % 32])
    scattered = np.zeros(32, np.int32)
    for lane in lanes:
        scattered[lane * 5 % 32] = a[lane]
    assert np.array_equal(found[96:128], scattered)
    assert np.array_equal(found[128:160], a[lanes & ~3 | np.array([1, 0, 3, 2] * 8)])


@both
def test_ids_in_three_dimensions(chip):
    bench = Bench(chip)
    out = np.zeros(2 * 3 * 2 * 30, np.uint32)
    at = bench.put(out)
    outcome = bench.run(build(chip, KERNELS["ids"]), "ids", (2, 3, 2), (5, 3, 2), [at])
    assert outcome.fault is None
    expected = [
        x | y << 8 | z << 16 | g << 24
        for g in range(12)
        for z in range(2)
        for y in range(3)
        for x in range(5)
    ]
    assert bench.get(at, out).tolist() == expected


@both
def test_lds_that_is_too_small_reads_as_0(chip):
    bench = Bench(chip)
    values = np.arange(128, dtype=np.int32)
    at = bench.put(values)
    assert run(bench, "reverse", 1, 128, [at, np.int32(1)], lds=0).fault is None
    assert not bench.get(at, values).any()
    assert bench.diagnosis.steps == {"dispatch-lds-size"}
    assert any("beyond the 0 bytes of LDS" in finding.symptom for finding in bench.diagnosis.findings)


# Memory


@both
def test_memory_changes_at_the_end_only(chip):
    bench = Bench(chip)
    values = np.arange(64, dtype=np.int32)
    at = bench.put(values)
    dispatch = bench.dispatch(build(chip, KERNELS["twice"]), "twice", (2, 1, 1), (32, 1, 1), [at])
    before = bytes(bench.vram.memory[: 2 << 20])
    outcome = bench.executor.run(dispatch, bench.space)
    assert bytes(bench.vram.memory[: 2 << 20]) == before
    assert outcome.writes == [(at, ((values + 1) * 10).tobytes())]
    again = bench.executor.run(dispatch, bench.space)
    assert again.writes == outcome.writes


@both
def test_only_written_bytes_are_handed_out(chip):
    bench = Bench(chip)
    out = np.full(32 * 3, -1, np.int32)
    at = bench.put(out)
    outcome = run(bench, "store", 1, 32, [at, np.int32(3)])
    assert outcome.writes == [(at + 12 * x, (x + 1).to_bytes(4, "little")) for x in range(32)]


@both
def test_small_pages_join(chip):
    bench = Bench(chip)
    bench.space.piece = 4096
    values = np.arange(32 * 1024, dtype=np.int32)
    a, b = bench.put(values), bench.put(np.zeros(32, np.int32))
    assert run(bench, "load", 1, 32, [a, b, np.int32(1024)]).fault is None
    assert np.array_equal(bench.get(b, np.zeros(32, np.int32)), values[::1024])


@both
def test_load_fault(chip):
    bench = Bench(chip)
    values = np.zeros(4096, np.int32)
    a, b = bench.put(values), bench.put(np.zeros(32, np.int32))
    hole = a - BASE + 4096
    bench.space.holes.append((hole, hole + 4096))
    outcome = run(bench, "load", 1, 32, [a, b, np.int32(128)])
    fault = outcome.fault
    assert (fault.kind, fault.address, fault.write) == ("page fault", BASE + hole, False)
    assert "global_load_b32" in fault.text
    assert outcome.writes == []


@both
def test_store_fault_keeps_what_was_written_before(chip):
    bench = Bench(chip)
    a = bench.put(np.zeros(4096, np.int32))
    low = a - BASE + 4096
    bench.space.read_only = (low, low + 4096)
    outcome = run(bench, "store", 1, 32, [a, np.int32(128)])
    assert (outcome.fault.kind, outcome.fault.address, outcome.fault.write) == ("page fault", a + 4096, True)
    assert "read-only" in outcome.fault.text
    assert outcome.writes == [(a + 512 * x, (x + 1).to_bytes(4, "little")) for x in range(8)]
    total = sum(outcome.instructions.values())
    bench.space.read_only = (0, 0)
    whole = run(bench, "store", 1, 32, [a, np.int32(128)])
    assert total < sum(whole.instructions.values())
    assert outcome.instructions["vmem"] == whole.instructions["vmem"] == 1


@both
def test_pcie_memory(chip):
    bench = Bench(chip)
    start = 0x7000_0000_0000
    bench.space.system[start] = bytearray(np.arange(2048, dtype=np.int32).tobytes())
    outcome = run(bench, "load", 1, 32, [start, start + 4096, np.int32(7)])
    assert outcome.fault is None
    found = np.frombuffer(bytes(bench.space.system[start]), np.int32)
    assert np.array_equal(found[1024:1056], np.arange(32) * 7)
    assert outcome.writes[0][0] == start + 4096


@both
def test_code_that_is_not_there(chip):
    bench = Bench(chip)
    dispatch = bench.dispatch(build(chip, KERNELS["store"]), "store", (1, 1, 1), (32, 1, 1), [0, np.int32(0)])
    code = dispatch.code - BASE
    bench.space.holes.append((code - code % 4096, code - code % 4096 + 4096))
    outcome = bench.executor.run(dispatch, bench.space)
    assert (outcome.fault.kind, outcome.fault.pc) == ("page fault", dispatch.code)
    assert outcome.waves == 0


@pytest.mark.slow
@both
def test_changed_code_is_noticed(chip):
    bench = Bench(chip)
    out = np.zeros(128, np.int32)
    at = bench.put(out)
    run(bench, "store", 1, 32, [at, np.int32(1)])
    first = bench.get(at, out)
    code = build(chip, KERNELS["store"].replace("LOCAL + 1", "LOCAL + 9"))
    bench.run(code, "store", (1, 1, 1), (32, 1, 1), [at, np.int32(1)])
    assert np.array_equal(bench.get(at, out)[:32], first[:32] + 8)


# Ends


@both
def test_watchdog(chip):
    bench = Bench(chip, budget=1000)
    at = bench.put(np.zeros(4, np.int32))
    outcome = run(bench, "spin", 1, 32, [at])
    assert outcome.fault.kind == "watchdog"
    assert "1000" in outcome.fault.text
    assert outcome.instructions["vmem"] == 1000
    bench.space.write(at, b"\1")
    assert run(bench, "spin", 1, 32, [at]).fault is None


ASSEMBLY = """
.text
.globl k
.p2align 8
.type k,@function
k:
{body}
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 32
  .amdhsa_wavefront_size32 1
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_count 2
.end_amdhsa_kernel
"""


def assembled(bench, body, threads=32):
    code = build(bench.chip.name, ASSEMBLY.format(body=body), "s")
    return bench.run(code, "k", (1, 1, 1), (threads, 1, 1), [])


@pytest.mark.slow
@both
def test_trap(chip):
    fault = assembled(Bench(chip), "s_nop 0\ns_trap 2").fault
    assert fault.kind == "trap"
    assert "trap 2" in fault.text
    assert fault.pc % 256 == 4


@both
def test_an_unknown_instruction_is_refused_by_name_before_anything_runs(chip):
    bench = Bench(chip)
    outcome = assembled(bench, "v_mov_b32 v0, 1\ns_movrels_b32 s4, s5")
    assert outcome.fault.kind == "instruction"
    assert "s_movrels_b32" in outcome.fault.text
    assert (outcome.waves, outcome.total) == (0, 0)


def test_a_barrier_that_is_never_signalled():
    fault = assembled(Bench("gfx1201"), "s_barrier_wait -1", 64).fault
    assert fault.kind == "watchdog"
    assert "barrier" in fault.text


@both
def test_too_few_vgprs(chip):
    bench = Bench(chip)
    dispatch = bench.dispatch(
        build(chip, ASSEMBLY.format(body="v_mov_b32 v9, 0"), "s"), "k", (1, 1, 1), (32, 1, 1), []
    )
    fault = bench.executor.run(dispatch, bench.space).fault
    assert "uses 10 VGPRs" in fault.text


@both
def test_counters_are_exact(chip):
    wait = "s_barrier_signal -1\ns_barrier_wait -1" if chip == "gfx1201" else "s_barrier"
    outcome = assembled(
        Bench(chip),
        f"""
        s_mov_b32 s4, 3
        v_mov_b32 v1, 0
      again:
        v_add_nc_u32 v1, v1, v1
        s_sub_i32 s4, s4, 1
        s_cmp_lg_u32 s4, 0
        s_cbranch_scc1 again
        {wait}
        """,
        64,
    )
    assert outcome.fault is None
    expected = {"valu": 4, "salu": 7, "branch": 4, "other": 2 if chip == "gfx1201" else 1}
    assert {kind: count for kind, count in outcome.instructions.items() if count} == {
        kind: 2 * count for kind, count in expected.items()
    }


# The cache


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    script = (
        "import numpy as np\n"
        "from emulator.amdgpu.isa import jit\n"
        "from tests.unit.amdgpu_shader_bench import Bench, build\n"
        "from tests.unit.amdgpu_shader_kernels import KERNELS\n"
        "made, compiled = [], jit.compiled\n"
        "jit.compiled = lambda text: made.append(1) or compiled(text)\n"
        "bench = Bench('gfx1100')\n"
        "at = bench.put(np.zeros(32, np.int32))\n"
        "code = build('gfx1100', KERNELS['store'])\n"
        "assert bench.run(code, 'store', (1, 1, 1), (32, 1, 1), [at, np.int32(1)]).fault is None\n"
        "print(len(made), bench.get(at, np.zeros(32, np.int32)).sum())\n"
    )
    kept = jit.cache.directory("emulator")
    environment = {**os.environ, "TOWLINE_CACHE": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    (tmp_path / "emulator").symlink_to(kept)  # the native library need not be built again
    ran = [
        subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    assert [each.stdout.split() for each in ran] == [["1", "528"], ["0", "528"]]


def test_a_damaged_object_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    jit.keep("x", b"code")
    assert jit.kept("x") == b"code"
    path = tmp_path / "shaders" / "x.o"
    path.write_bytes(b"c0de" + path.read_bytes()[4:])
    assert jit.kept("x") is None


def test_only_mapped_memory_exists():
    bench = Bench("gfx1100")
    a = BASE + SIZE - 4096
    outcome = run(bench, "load", 1, 32, [a, bench.put(np.zeros(32, np.int32)), np.int32(64)])
    assert outcome.fault.address == BASE + SIZE


# Destinations


@both
def test_a_carry_that_goes_to_exec_is_in_force_in_the_next_block(chip):
    bench = Bench(chip)
    body = """
        v_cmp_gt_u32 vcc_lo, 16, v0
        v_cndmask_b32 v1, 0, -1, vcc_lo
        v_lshlrev_b32 v2, 2, v0
        v_add_co_u32 v3, exec_lo, v1, v1
        s_branch next
      next:
        global_store_b32 v2, v1, s[0:1]
    """
    assert [len(data) for _, data in assembled(bench, body).writes] == [64]


@both
def test_scalar_loads_to_null(chip):
    body = "s_load_b64 null, s[0:1], 0x0\nv_mov_b32 v1, 0\nglobal_store_b32 v1, v1, s[0:1]"
    outcome = assembled(Bench(chip), body)
    assert outcome.fault is None
    assert len(outcome.writes) == 1


@pytest.mark.slow
@both
def test_scalar_buffers_end(chip):
    """Beyond the records is 0; a negative offset is beyond them, too."""
    body = """
        s_mov_b64 s[4:5], s[0:1]
        s_mov_b32 s6, 8
        s_mov_b32 s7, 0
        s_mov_b32 s8, {offset}
        s_buffer_load_b32 s9, s[4:7], s8
        v_mov_b32 v1, 0
        v_mov_b32 v2, s9
        global_store_b32 v1, v2, s[0:1]
    """
    found = []
    for offset in (0, 4, 5, 8, -4, -8):
        bench = Bench(chip)
        code = build(chip, ASSEMBLY.format(body=body.format(offset=offset)), "s")
        args = [np.uint32(7), np.uint32(9), np.uint32(11)]
        outcome = bench.run(code, "k", (1, 1, 1), (1, 1, 1), args)
        assert outcome.fault is None
        found.append(int.from_bytes(outcome.writes[0][1], "little"))
    assert found == [7, 9, 9, 0, 0, 0]

"""Modelled cycles of the DSP: which packets wait, which addresses are touched, what an L2 keeps."""

import numpy as np
import pytest

from dsp.hexagon.cycles.accesses import LINE, Memory, Traffic, traffic
from dsp.hexagon.cycles.cache import through
from dsp.hexagon.cycles.execution import LINK, REGISTERS, Execution
from dsp.hexagon.cycles.interlocks import Interlocks
from dsp.hexagon.cycles.model import EMPTY, costs
from dsp.hexagon.disassembly import Packet
from sdk.errors import DeviceFailed, UsageError
from sdk.estimate import Cache


def packet(*lines, address=0):
    return Packet(address, 4, lines, ())


@pytest.fixture(scope="module")
def v65():
    return Interlocks("v65")


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        ("v3 = valign(v1,v2,#4)", "v8.w += vrmpy(v3.ub,r5.b)", True),  # permute, then a multiplier's operand
        ("v3 = valign(v1,v2,#4)", "v3.w += vrmpy(v9.ub,r5.b)", False),  # its accumulator
        ("v3 = valign(v1,v2,#4)", "v8.w += vrmpy(v4.ub,r5.b)", False),  # another register
        ("v3 = valign(v1,v2,#4)", "v8.w = vadd(v3.w,v1.w)", False),  # the ALU is forwarded to
        ("v3 = valign(v1,v2,#4)", "v8.b = vshuffe(v3.b,v1.b)", False),
        ("v8.w += vrmpy(v1.ub,r5.b)", "v9.w = vmpye(v8.w,v2.uh)", True),
        ("v8.w += vrmpy(v1.ub,r5.b)", "v8.w += vrmpy(v2.ub,r5.b)", False),
        ("v7:6.b = vshuffoe(v1.b,v2.b)", "v8.w += vrmpy(v6.ub,r5.b)", True),  # half of a pair
        ("v8.w = vadd(v1.w,v2.w)", "v9.h = vpacke(v8.w,v8.w)", True),
        ("r1 = memw(r2+#0)", "r3 = memw(r1+#4)", True),  # a pointer
        ("r1 = add(r2,#4)", "r3 = memw(r1+#4)", False),
        ("r1 = memw(r2+#0)", "v8.w += vrmpy(v2.ub,r1.b)", False),
    ],
)
def test_a_packet_waits_for_the_one_before(v65, before, after, waits):
    found = v65.waits(packet(before), packet(after))
    assert (found is not None) == waits


def test_a_value_of_the_same_packet_is_not_waited_for(v65):
    before = packet("v8.w += vrmpy(v1.ub,r5.b)")
    assert v65.waits(before, packet("v8.ub = vsat(v1.h,v2.h)", "vmem(r1+#0) = v8.new")) is None
    assert (
        v65.waits(packet("v3 = valign(v1,v2,#4)"), packet("v3.cur = vmem(r1+#0)", "v8.w = vrmpy(v3.ub,r5.b)"))
        is None
    )
    assert not v65.unknown


def test_versions_differ_where_llvm_says_so():
    assert Interlocks("v68").waits(packet("r1 = memw(r2+#0)"), packet("memw(r3+#0) = r1")) is None
    assert not Interlocks("v66").unknown


# -- executions by hand ---------------------------------------------------------------------------------


class Code:
    """Blocks by address."""

    end = 1 << 20

    def __init__(self, blocks):
        self._packets = {}
        self.ends = {}
        for start, lines in blocks.items():
            for number, one in enumerate(lines):
                address = start + 4 * number
                self._packets[address] = packet(*one, address=address)
            self.ends[start] = start + 4 * len(lines)

    def packet(self, address):
        return self._packets[address]


def execution(blocks, steps):
    """Of blocks {address: [packet's lines, ...]} and steps [(address, {register: value}), ...]."""
    code = Code(blocks)
    starts = np.array(sorted(blocks))
    order = np.searchsorted(starts, [address for address, _ in steps])
    registers = np.zeros((len(steps), len(REGISTERS)), np.uint32)
    for row, (_, values) in enumerate(steps):
        for name, value in values.items():
            registers[row, REGISTERS.index(name)] = value
    return Execution(starts, order, registers, code.ends, code)


CALLER, KERNEL = 0x100, 0x200


def one_call(lines, before, after=None):
    """A kernel of one block, from `before` to the registers `after`."""
    steps = [(CALLER, {}), (KERNEL, {"r31": CALLER, **before}), (CALLER, after or {})]
    return execution({CALLER: [("nop",)], KERNEL: lines}, steps)


def touched(lines, before, after=None, memory=EMPTY):
    found = traffic(one_call(lines, before, after), [range(1, 2)], Code.end, memory)
    return list(zip(found.lines.tolist(), found.writes.tolist(), strict=True)), found.unknown


def test_addresses_follow_the_registers_through_a_block():
    found, unknown = touched(
        [
            ("v1 = vmem(r1++#1)", "r2 = add(r3,#256)"),
            ("v2 = vmem(r1+#2)", "vmem(r2++m0) = v1"),
            ("v3 = vmemu(r2+#0)", "r4 = addasl(r1,r3,#1)"),
            ("memw(r4+#0) += r5",),
            ("r6 = memw(r1+r3<<#2)",),
        ],
        {"r1": 128 * 10, "r3": 128 * 20, "m0": 130},
    )
    assert unknown == 0
    assert found == [
        (10, False),
        (13, False),
        (22, True),
        (23, False), (24, False),  # 128 bytes from 22 * 128 + 130
        (11 + 40, True),
        (11 + 80, False),
    ]  # fmt: skip


def test_a_loaded_pointer_is_known_by_what_it_is_at_the_end():
    lines = [("r1 = memw(r0+#0)",), ("v1 = vmem(r1++#1)",), ("v2 = vmem(r1+#0)",)]
    found, unknown = touched(lines, {"r0": 128}, {"r1": 128 * 8})
    assert (found, unknown) == ([(1, False), (7, False), (8, False)], 0)
    _, unknown = touched([*lines, ("r1 = memw(r0+#4)",)], {"r0": 128}, {"r1": 5})
    assert unknown == 2


def test_constants_and_the_context_of_a_call_are_read():
    data = np.array([128 * 7, 128 * 9], "<u4").tobytes()
    memory = Memory([(0x1000, data)], (128 * 50, 128 * 60, 0, 1))
    lines = [
        ("r2 = memw(r0+#4)", "r3 = memw(r1+#4)"),
        ("r4 = add(r2,r3)", "r5 = mpyi(r6,r2)"),
        ("v1 = vmem(r4+#0)", "r4 = #0"),
        ("v1 = vmem(r5+#0)", "r5 = #0", "r2 = #0"),
    ]
    found, unknown = touched(lines, {"r0": 0x1000, "r1": Code.end, "r6": 3}, memory=memory)
    assert unknown == 0
    assert found == [(0x1000 // LINE, False), (69, False), (27, False)]
    _, unknown = touched(lines, {"r0": 0x1004, "r1": Code.end, "r6": 3}, memory=memory)
    assert unknown == 2  # behind the constants


def test_the_stack_is_left_out():
    assert touched([("memw(r29+#0) = r1",)], {"r29": Code.end + 128}) == ([], 0)


def test_costs_of_layers_are_those_of_their_calls():
    inner = [("v3 = valign(v1,v2,#4)",), ("v8.w += vrmpy(v3.ub,r5.b)", "v1 = vmem(r1++#1)")]
    other = 0x300
    blocks = {CALLER: [("nop",)], KERNEL: inner, other: [("v1.w = vmpye(v8.w,v2.uh)",)]}
    loop = [(KERNEL, {"r31": CALLER, "r1": 128 * n}) for n in range(4)]
    steps = [(CALLER, {}), *loop, (other, {"r1": 512}), (CALLER, {}), (other, {"r31": CALLER}), (CALLER, {})]
    first, second = costs(execution(blocks, steps), [[KERNEL], [other]], Interlocks("v65"), Cache()).layers
    assert (first.packets, first.stalls, first.fetched) == (9, 8, 4)  # four within, three around, one on
    assert first.pairs.most_common(1)[0][1] == 4
    assert (second.packets, second.stalls, second.ddr_bytes) == (1, 0, 0)


def test_an_execution_without_a_call_is_refused():
    ran = one_call([("nop",)], {})
    assert ran.registers[1, LINK] == CALLER
    with pytest.raises(DeviceFailed):
        ran.calls([KERNEL, KERNEL])


# -- the L2 ---------------------------------------------------------------------------------------------


def accesses(lines, writes=(), scalars=()):
    count = len(lines)
    where = np.arange(count)
    flags = np.isin(where, list(writes)), ~np.isin(where, list(scalars))
    return Traffic(np.array(lines, np.int64), *flags, where, np.zeros(count, np.bool_), 0)


TINY = Cache(nbytes=2 * LINE * 2, ways=2)  # two sets


def test_the_line_used_longest_ago_is_replaced_and_written_back():
    found = through(TINY, accesses([0, 2, 0, 4, 0, 2], writes=[1]))
    assert found.read.tolist() == [True, False, False, True, False, True]  # a stored vector is not read
    assert found.written.tolist() == [False, False, False, True, False, False]


def test_a_scalar_store_reads_its_line():
    assert through(TINY, accesses([0, 0], writes=[0, 1], scalars=[0, 1])).read.tolist() == [True, False]


def test_a_second_inference_finds_what_the_first_left():
    lines = [0, 1, 2, 3]
    warm = Cache(TINY.nbytes, TINY.ways, warm=True)
    assert through(TINY, accesses(lines)).read.all()
    assert not through(warm, accesses(lines)).read.any()
    assert through(warm, accesses([0, 2, 4])).read.all()


@pytest.mark.parametrize("nbytes", [0, 100, 3 * LINE * 8])
def test_an_l2_has_a_power_of_two_of_sets(nbytes):
    with pytest.raises(UsageError):
        through(Cache(nbytes), accesses([0]))


def test_against_the_rule_written_plainly():
    random = np.random.default_rng(1)
    lines = random.integers(0, 24, 400)
    given = accesses(lines, writes=np.flatnonzero(random.random(400) < 0.4))
    held, reads, writes = [[], []], [], []
    for line, store in zip(lines.tolist(), given.writes.tolist(), strict=True):
        ways = held[line % 2]
        before = next((one for one in ways if one[0] == line), None)
        reads.append(before is None and not store)
        victim = ways.pop(0) if before is None and len(ways) == 2 else None
        writes.append(victim is not None and victim[1])
        if before is not None:
            ways.remove(before)
        ways.append((line, store or (before is not None and before[1])))
    found = through(TINY, given)
    assert (found.read.tolist(), found.written.tolist()) == (reads, writes)

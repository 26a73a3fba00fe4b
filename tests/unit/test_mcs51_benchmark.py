"""The speed that the core is held to, and that the program measured does what it says."""

import pytest

from emulator.mcs51.core import Stop
from firmware.asm2464pd.describe import Space
from sdk import toolchain
from sdk.errors import ToolMissing
from tests.unit.mcs51_bench import Bench
from towline.cli.benchmarks import mcs51 as benchmark


def crc16(data):
    """CRC-16/CCITT-FALSE, by its definition."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


@pytest.mark.parametrize("rounds", [1, 3, 257])
def test_the_program_computes_a_crc_and_copies(rounds):
    bench = Bench(benchmark._program(rounds).hex())
    assert bench.cpu.run(1 << 40) is Stop.ILLEGAL
    data = bytes(0x35 * index & 0xFF for index in range(256))
    assert bench.xdata.storage[:0x200] == data + data
    assert bench.cpu.iram[2] << 8 | bench.cpu.iram[3] == crc16(data)
    once = Bench(benchmark._program(1).hex())
    once.cpu.run(1 << 40)
    assert bench.cpu.instructions > 0.9 * rounds * once.cpu.instructions


def test_the_stream_loop_writes_memory_through_the_engine():
    cpu, board = benchmark._chip(benchmark.STREAM_WRITE)
    before = board.chip.tlp.served
    board.machine.bus.store(Space.XDATA, 0x7000, b"load")
    first = cpu.instructions
    assert cpu.run(cpu.clock + 200_000) is Stop.UNTIL
    served = board.chip.tlp.served - before
    assert served > 1000
    assert board.endpoint.memory[:0x104] == b"load" * 64 + bytes(4), "the low address byte wraps"
    assert (cpu.instructions - first) // served == 35


@pytest.mark.slow
def test_the_core_is_as_fast_as_it_has_to_be(capsys):
    try:
        toolchain.find("s51")
    except ToolMissing as problem:
        pytest.skip(str(problem))
    result = benchmark.measure()
    with capsys.disabled():
        print(result)
    assert result["ratio"] >= 40
    assert result["mips_mmio"] >= 60

"""Modelled cycles against a trace of every packet and access, which a plugin of qemu writes."""

import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dsp.hexagon.cycles import model
from dsp.hexagon.cycles.accesses import LINE, Traffic
from dsp.hexagon.cycles.cache import through
from dsp.hexagon.cycles.execution import execute
from dsp.hexagon.cycles.interlocks import Interlocks
from dsp.hexagon.cycles.prefetch import with_requests
from dsp.hexagon.disassembly import Program
from dsp.hexagon.plan import HexagonPlan
from dsp.hexagon.session import constant, requested
from dsp.hexagon.tensors import encode_inputs
from sdk import compiler, toolchain
from sdk.estimate import Cache
from sdk.inputs import zero_point_inputs
from sdk.zoo.benchmark import benchmark

PLUGIN = Path(__file__).parents[1] / "packets_plugin.c"
MEMORY, STORE, NUMBER = 0x80000000, 0x40000000, 0x3FFFFFFF


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    model_file = benchmark("mobilenet_v2_0.35_96", tmp_path_factory.mktemp("zoo"))
    return compiler.compile(model_file, "hexagon-v65").program


def traced(elf, data, directory):
    """The plugin's words for one run."""
    library, image, trace = directory / "packets.so", directory / "network.elf", directory / "trace"
    toolchain.run("cc", ["-shared", "-fPIC", "-O2", "-o", library, PLUGIN])
    image.write_bytes(elf)
    image.chmod(0o700)
    command = [toolchain.find("qemu-hexagon"), "-plugin", f"{library},out={trace}", image]
    ran = subprocess.run(command, input=data, capture_output=True, timeout=300)
    if ran.returncode or not trace.exists():
        pytest.skip(f"this qemu-hexagon takes no plugins of version 1: {ran.stderr.decode()[-200:]}")
    return np.fromfile(trace, np.uint32)


def spans(words, entries, code):
    """Where each of these functions ran, that were called one after another."""
    packets = np.flatnonzero(words < MEMORY)
    at = 0
    for entry in entries:
        at += int(np.flatnonzero(words[packets[at:]] == entry)[0])
        back = code.packet(int(words[packets[at - 1]])).following
        end = at + int(np.flatnonzero(words[packets[at:]] == back)[0])
        yield int(packets[at]), int(packets[end])
        at = end


@pytest.mark.slow
def test_both_ways_agree(program, tmp_path):
    elf, cache = program.code["network.elf"], Cache(64 << 10)
    weights = program.weights.nbytes.to_bytes(4, "little") + program.weights.buffer()
    inputs = encode_inputs(program.graph, zero_point_inputs(program.graph))
    data = weights + ord("R").to_bytes(4, "little") + inputs
    code, interlocks = Program(elf, "v65"), Interlocks("v65")
    layers = code.kernels(HexagonPlan.of(program).memory)
    memory = constant(code, HexagonPlan.of(program).memory, program)
    requests = requested(code, HexagonPlan.of(program))
    modelled = model.costs(execute(elf, data, code, ()), layers, interlocks, cache, memory, requests).layers

    words = traced(elf, data, tmp_path)
    parts = [words[slice(*span)] for span in spans(words, [kernel for one in layers for kernel in one], code)]
    executed = [part[part < MEMORY].tolist() for part in parts]
    pairs = sum((Counter(pairwise(part)) for part in executed), Counter())
    stalls = sum(
        count
        for (before, after), count in pairs.items()
        if interlocks.waits(code.packet(before), code.packet(after))
    )
    memories = [part[part >= MEMORY] for part in parts]
    touched = np.concatenate(memories)
    calls = np.repeat(np.arange(len(memories)), [len(part) for part in memories])
    lines = (touched & NUMBER).astype(np.int64)
    inside = lines < -(-code.end // LINE)
    lines, stored = lines[inside], (touched[inside] & STORE) > 0
    vectors, ahead = np.ones(len(lines), np.bool_), np.zeros(len(lines), np.bool_)
    accessed = Traffic(lines, stored, vectors, calls[inside], ahead, 0)
    each = [range(number, number + 1) for number in range(len(parts))]
    fetched = through(cache, with_requests(accessed, each, requests))
    ddr_bytes = LINE * int(fetched.read.sum() + fetched.written.sum())

    assert sum(cost.packets for cost in modelled) == sum(map(len, executed))
    assert sum(cost.stalls for cost in modelled) == stalls > 0
    assert sum(cost.ddr_bytes for cost in modelled) == pytest.approx(ddr_bytes, rel=0.01)
    assert sum(cost.ahead for cost in modelled) > sum(cost.fetched for cost in modelled)
    # nothing waits for an instruction without an itinerary: few, and none of the vectors
    assert not [one for one in interlocks.unknown if "v" in one.partition("(")[0]]

"""What a target's programs and sessions must satisfy: equal bytes twice, no leaks, refusals, a clean end."""

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from sdk.compiler import compile
from sdk.errors import DeviceFailed, InvalidInput, Unsupported, UsageError
from sdk.graph import Quantization
from sdk.target import Options, require_supported
from sdk.targets import get_target
from tests.amount import amount
from tests.contract.targets import TARGETS, VARIANTS, assert_identical, random_input
from tests.footprint import leaves_nothing
from tests.graph_builder import GraphBuilder

FINGERPRINT = """
import sys
from sdk.targets import get_target
from tests.contract.test_target_sessions import fingerprint
print(fingerprint(get_target(sys.argv[1])))
"""


def fingerprint(target) -> str:
    """A hash of all that a target makes of a network, in its order."""
    b = GraphBuilder((1, 3, 9, 9), seed=3)
    x = b.conv("x", 20, 3, pads=1, relu=True)
    x = b.add(b.conv(b.depthwise(x, pads=1), 20), x)
    b.gemm(b.reshape(b.global_average_pool(x)), 10)
    program = target.compile(b.graph(), Options())
    plan = json.dumps(program.plan).encode()
    parts = [
        plan,
        bytes(program.weights),
        *(part for file in program.code.items() for part in map(repr, file)),
    ]
    return hashlib.sha256(
        b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    ).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TARGETS if name not in amount(VARIANTS, ())])
def test_the_same_input_compiles_to_the_same_bytes(name, tmp_path):
    """In another process, whose sets have another order, with an empty cache, in another directory."""
    again = subprocess.run(
        [sys.executable, "-c", FINGERPRINT, name],
        env=os.environ
        | {"PYTHONHASHSEED": "7", "TOWLINE_CACHE": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert again.stdout.strip() == fingerprint(get_target(name))


@pytest.mark.slow
def test_sessions_leave_nothing_behind(with_process):
    """Many cycles of load, run, close: descriptors, children, objects and memory end where they began.

    tests/e2e/test_gpu_faults_network.py has the same of the cards.
    """
    b = GraphBuilder((1, 4, 5, 5))
    b.conv("x", 4)
    graph = b.graph()
    program = with_process.compile(graph, Options())
    inputs = random_input(graph)

    def cycle():
        with with_process.open(None).load(program) as session:
            session.run(inputs)

    leaves_nothing(cycle)


@pytest.mark.slow
def test_a_session_refuses_what_does_not_fit(target):
    b = GraphBuilder((1, 4, 5, 5))
    b.conv("x", 4)
    graph = b.graph()
    program = target.compile(graph, Options())
    x = random_input(graph)["x"]
    with target.open(None).load(program) as session:
        for wrong in (
            {},
            {"y": x},
            {"x": x, "y": x},
            {"x": x[0]},
            {"x": x.tolist()},
            {"x": "x"},
            {"x": x.astype(np.int8)},
            {"x": x.astype(np.float32)},
        ):
            with pytest.raises(InvalidInput):
                session.run(wrong)
            with pytest.raises(InvalidInput):
                session.trace(wrong)
        session.run({"x": x})  # it still works
        session.run({"x": np.asfortranarray(x)})
    with pytest.raises(DeviceFailed):
        session.run({"x": x})
    session.close()


@pytest.mark.parametrize("name", TARGETS)
def test_an_unknown_device_is_a_usage_error(name):
    with pytest.raises(UsageError, match="nonsense"):
        get_target(name).open("nonsense")


@pytest.mark.slow
def test_a_batch_is_run_or_refused_by_name(target):
    b = GraphBuilder((2, 4, 5, 5))
    b.conv("x", 4)
    verdict = target.supports(b.graph(), b.nodes[0])
    if verdict.supported:
        assert_identical(target, b.graph())
    else:
        assert "batch" in verdict.reason


def test_a_killed_device_is_an_error_not_a_hang(with_process):
    b = GraphBuilder((1, 4, 5, 5))
    b.conv("x", 4)
    graph = b.graph()
    with with_process.open(None).load(with_process.compile(graph, Options())) as session:
        session._child.process.kill()
        with pytest.raises(DeviceFailed, match="stopped"):
            session.run(random_input(graph))


ORPHAN = """
import sys, time
from sdk.target import Options
from sdk.targets import get_target
from tests import shader_gpu
from tests.graph_builder import GraphBuilder
b = GraphBuilder((1, 4, 5, 5)); b.conv("x", 4)
target = get_target(sys.argv[1])
session = target.open(None).load(target.compile(b.graph(), Options()))
print(session._child.process.pid, flush=True)
time.sleep(60)
"""


BUSY_ORPHAN = """
import sys
import numpy as np
from sdk.target import Options
from sdk.targets import get_target
from tests import shader_gpu
from tests.graph_builder import mobilenet_v2
target = get_target(sys.argv[1])
graph = mobilenet_v2(96, 0.35, 10)
session = target.open(None).load(target.compile(graph, Options()))
x = np.zeros(graph.tensor("x").shape, np.uint8)
print(session._child.process.pid, flush=True)
while True:
    session.run({"x": x})
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", [ORPHAN, BUSY_ORPHAN], ids=["idle", "busy"])
def test_no_device_process_outlives_a_killed_parent(with_process, script):
    parent = subprocess.Popen(
        [sys.executable, "-c", script, with_process.name], stdout=subprocess.PIPE, text=True
    )
    try:
        child = int(parent.stdout.readline())
        assert alive(child)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_an_interrupted_exchange_closes_the_session(with_process, monkeypatch):
    """Data left in the pipe must never be read as the next answer."""
    b = GraphBuilder((1, 4, 5, 5))
    b.conv(b.conv("x", 4), 4)
    graph = b.graph()
    inputs = random_input(graph)
    with with_process.open(None).load(with_process.compile(graph, Options())) as session:

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(session._child, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.trace(inputs)
        monkeypatch.undo()
        with pytest.raises(DeviceFailed, match="closed"):
            session.run(inputs)


@pytest.mark.slow
def test_a_session_outlives_the_thread_that_opened_it(target):
    b = GraphBuilder((1, 4, 5, 5))
    b.conv("x", 4)
    graph = b.graph()
    program = target.compile(graph, Options())
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(lambda: target.open(None).load(program)).result()
    with session:
        assert session.run(random_input(graph))


@pytest.mark.slow
def test_a_node_may_have_any_name(target):
    b = GraphBuilder((1, 4, 5, 5))
    b.conv("x", 4)
    graph = b.graph()
    plain = target.compile(graph, Options())
    for name in ("/*", "*\\\rextern int injected(void);/*", "??/", "features/*/conv", "\0\n#error"):
        renamed = dataclasses.replace(graph, nodes=(dataclasses.replace(graph.nodes[0], name=name),))
        assert target.compile(renamed, Options()).code == plain.code


@pytest.mark.parametrize("op", ["add", "requantize", "average", "global", "conv"])
def test_scales_without_constants_are_refused_by_name(target, op):
    b = GraphBuilder((1, 4, 6, 6))
    y = {
        "add": lambda: b.add("x", "x"),
        "requantize": lambda: b.requantize("x"),
        "average": lambda: b.average_pool("x", 2, count_include_pad=True),
        "global": lambda: b.average_pool("x", 6),
        "conv": lambda: b.conv("x", 4),
    }[op]()
    graph = b.graph()
    out = graph.tensor(y)
    for scale in (1e-8, 1e-38):
        graph.tensors[y] = type(out)(y, out.shape, out.dtype, Quantization.per_tensor(scale, 3))
        with pytest.raises(Unsupported, match=r"out of range|does not fit") as caught:
            require_supported(target, graph)
        assert caught.value.where == f"node {y}"


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("op", ["conv", "add", "lookup", "window"])
def test_a_node_that_another_takes_in_is_refused_by_its_own_name(name, op):
    """`compile` of a target refuses what `supports` does, and `sdk.compiler` says which node that is."""
    b = GraphBuilder((1, 8, 6, 6))
    other, strides = (b.global_average_pool("x"), 1 << 15) if op == "window" else ("x", 1)
    y = b.conv("x", 8, strides=strides)
    z = b.lookup(y, np.tanh) if op == "lookup" else b.add(y, other)
    refused = z if op == "add" else y
    graph = b.graph()
    if op != "window":
        out = graph.tensor(refused)
        graph.tensors[refused] = dataclasses.replace(out, quantization=Quantization.per_tensor(1e-8, 3))
    with pytest.raises(Unsupported):
        get_target(name).compile(graph, Options())
    with pytest.raises(Unsupported) as caught:
        compile(graph, name, host="none")
    assert caught.value.where == f"node {refused}"


def test_refused_nodes_say_why():
    target = get_target("hexagon-v65")
    b = GraphBuilder((1, 4, 40, 40))
    b.conv("x", 4, 3, strides=17)
    verdict = target.supports(b.graph(), b.nodes[0])
    assert not verdict.supported
    assert "stride" in verdict.reason

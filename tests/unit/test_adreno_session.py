"""Sessions on an OpenCL device: forms of memory, borders, errors, and what they leave behind."""

import copy
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from dsp.adreno import opencl
from dsp.adreno import session as sessions
from dsp.adreno.limits import fits_images, fitting
from dsp.adreno.plan import TEXEL, AdrenoPlan
from dsp.adreno.session import OpenClSession
from sdk import reference
from sdk.errors import BuildFailed, DeviceFailed, InvalidArtifact, InvalidInput, Unsupported
from sdk.inputs import zero_point_inputs
from sdk.target import Options
from sdk.targets import get_target
from sdk.weights import Weights
from tests.amount import amount, thorough_only
from tests.footprint import leaves_nothing
from tests.graph_builder import GraphBuilder, mobilenet_v2
from tests.opencl_substitute import Altered, Substitute, error, require_opencl

FOUND = require_opencl()
DEVICE = sessions.OpenClDevice(FOUND)


def network():
    """int8 in, several launches, a residual connection, two outputs."""
    b = GraphBuilder((1, 3, 9, 11), dtype="int8", seed=4)
    x = b.conv("x", 12, 3, strides=2, pads=1, relu=True)
    return b.graph(b.add(b.conv(x, 12), x), x)


GRAPH = network()
PROGRAM = get_target("adreno-a6xx").compile(GRAPH, Options())
INPUTS = {"x": np.random.default_rng(5).integers(-128, 128, (1, 3, 9, 11), np.int8)}
EXPECTED = reference.run(PROGRAM.graph, INPUTS, "f32")


def assert_right(values, names=GRAPH.outputs):
    assert set(names) <= set(values)
    for name, value in values.items():
        np.testing.assert_array_equal(value, EXPECTED[name], err_msg=name)


# A form costs 1.5 s of compiling.
@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["images", "buffers"])
def images(request):
    return request.param


@pytest.mark.slow
def test_both_forms_give_the_reference_s_bits_and_leave_borders(images):
    plan = AdrenoPlan.of(PROGRAM)
    with OpenClSession(PROGRAM, FOUND, images) as session:
        for poison in (0x00, 0xA5):
            session.poison(poison)
            assert_right(session.trace(INPUTS), [*plan.tensors])
            before, arena, behind = session.dump()
            assert len(arena) == plan.memory["arena"]
            assert (set(before) | set(behind)) == {poison}
            untouched = np.ones(len(arena), bool)
            for tensor in plan.tensors.values():
                storage, layout = plan.storages[tensor.storage], tensor.layout
                picture = untouched[storage.offset :][: TEXEL * storage.width * storage.height]
                if images:
                    rows = picture.reshape(storage.height, storage.width, TEXEL)
                    rows[: layout.rows, : layout.columns] = False
                else:
                    picture[: layout.nbytes] = False
            for name, place in {**plan.inputs, **plan.outputs}.items():
                start = plan.memories[place.memory].offset + place.offset
                untouched[start : start + PROGRAM.graph.tensor(name).nbytes] = False
            assert (np.frombuffer(arena, np.uint8)[untouched] == poison).all()
            session.poison(poison ^ 0xFF)
            assert_right(session.run(INPUTS))


@pytest.mark.slow
def test_a_device_without_images_computes_in_buffers_and_says_so(caplog):
    poor = dataclasses.replace(FOUND, images=False, image_limits=(0, 0))
    with sessions.OpenClDevice(poor).load(PROGRAM) as session:
        assert_right(session.run(INPUTS))
    assert "no images of RGBA integers: activations lie in buffers" in caplog.text


def test_images_that_are_too_small_are_not_used(caplog):
    plan = AdrenoPlan.of(PROGRAM)
    width, height = plan.largest_image
    for limits, small in (((width, height), False), ((width - 1, height), True), ((width, height - 1), True)):
        caplog.clear()
        assert fits_images(plan, dataclasses.replace(FOUND, image_limits=limits)) != small
        assert ("activations lie in buffers" in caplog.text) == small


def test_work_groups_fit_the_device():
    assert fitting((16, 4, 2), 1024, (1024, 1024, 64)) == (16, 4, 2)
    assert fitting((16, 4, 2), 64, (1024, 1024, 64)) == (8, 4, 2)
    assert fitting((16, 4, 2), 1024, (4, 4, 1)) == (4, 4, 1)
    assert fitting((7, 3, 1), 1, (8, 8, 8)) == (1, 1, 1)
    assert fitting((128, 1, 1), 0, (8, 8, 8)) == (1, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("group", amount((1, 24), (1, 3, 24)))
def test_other_work_groups_compute_the_same(group):
    small = dataclasses.replace(FOUND, group=group)
    with OpenClSession(PROGRAM, small) as session:
        assert_right(session.trace(INPUTS))


def test_a_cpu_s_profile_claims_no_time():
    with DEVICE.load(PROGRAM) as session:
        profile = session.profile()
    plan = AdrenoPlan.of(PROGRAM)
    assert [layer.name for layer in profile.layers] == [step.name for step in plan.steps]
    assert profile.total["launches"] == len(plan.steps)
    assert profile.total["work_items"] == sum(layer.counters["work_items"] for layer in profile.layers)
    assert sum(layer.macs for layer in profile.layers) == sum(step.macs for step in plan.steps)
    reported = json.dumps([profile.total, *(layer.counters for layer in profile.layers)])
    assert "_us" not in reported
    assert "second" not in reported


def test_a_gpu_s_profile_has_its_events_times():
    with DEVICE.load(PROGRAM) as session:
        session._found = dataclasses.replace(FOUND, emulated=False)
        profile = session.profile()
    times = [layer.counters["device_us"] for layer in profile.layers]
    assert all(time > 0 for time in times)
    assert profile.total["device_us"] == pytest.approx(sum(times))


@pytest.mark.parametrize("problem", [sessions.EnvironmentMissing, sessions.BuildFailed])
def test_profiling_where_tinymesa_fails_has_no_static_figures(monkeypatch, problem):
    def missing(plan):
        raise problem("no tinymesa")

    monkeypatch.setattr(sessions.ir3, "static", missing)
    with DEVICE.load(PROGRAM) as session:
        profile = session.profile()
    assert set(profile.total) == {"launches", "work_items"}


def test_wrong_inputs_leave_the_session_as_it_was():
    with DEVICE.load(PROGRAM) as session:
        with pytest.raises(InvalidInput):
            session.run({"x": INPUTS["x"].astype(np.uint8)})
        assert_right(session.run({"x": np.asfortranarray(INPUTS["x"])}))


def test_two_sessions_at_once():
    other = zero_point_inputs(GRAPH)
    expected = reference.run(PROGRAM.graph, other, "f32")
    problems = []

    def work(session, inputs, wanted):
        try:
            for _ in range(20):
                for name, value in session.run(inputs).items():
                    np.testing.assert_array_equal(value, wanted[name])
        except BaseException as problem:
            problems.append(problem)

    with DEVICE.load(PROGRAM) as one, DEVICE.load(PROGRAM) as two:
        threads = [
            threading.Thread(target=work, args=(one, INPUTS, EXPECTED)),
            threading.Thread(target=work, args=(two, other, expected)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        one.close()
        assert set(two.run(other)) == set(GRAPH.outputs)
    assert not problems


# -- bad cases ------------------------------------------------------------------------------------------


def test_damaged_source_is_a_build_failure():
    source = PROGRAM.code["network.cl"]
    with pytest.raises(BuildFailed, match=r"network\.cl:1:\d+: ") as caught:
        DEVICE.load(dataclasses.replace(PROGRAM, code={"network.cl": b"not " + source}))
    assert len(caught.value.message.splitlines()) < 25


def test_a_damaged_plan_is_refused_before_anything_is_opened(monkeypatch):
    monkeypatch.setattr(sessions.opencl, "_pyopencl", None)
    with pytest.raises(InvalidArtifact):
        DEVICE.load(dataclasses.replace(PROGRAM, weights=Weights.of(PROGRAM.weights.buffer()[:-1])))


@pytest.mark.parametrize(
    "argument", [["tables", 1], ["output", "x"], ["int", 1], ["float", 0.5]], ids=lambda one: one[0]
)
def test_an_argument_of_the_wrong_kind_is_refused(argument):
    plan = copy.deepcopy(PROGRAM.plan)
    plan["steps"][1]["arguments"][0] = argument
    refusal = InvalidArtifact if isinstance(argument[1], str) or argument[0] == "tables" else DeviceFailed
    with pytest.raises(refusal):
        DEVICE.load(dataclasses.replace(PROGRAM, plan=plan))


KHR, QCOM = "-cl-std=CL3.0 -D DOT_PRODUCT_KHR", "-cl-std=CL2.0 -D DOT_PRODUCT_QCOM"


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"cl_qcom_dot_product8", "cl_khr_fp16"}, [QCOM]),
        ({"cl_qcom_dot_product8", "cl_khr_integer_dot_product"}, [KHR, QCOM]),
        ({"cl_khr_fp16"}, []),
    ],
)
def test_dot_products_that_do_not_build_are_not_used(monkeypatch, caplog, reported, expected):
    tried = []

    def build(found, context, source, options, names, real=sessions.binaries.build):
        tried.append(" ".join(options))
        if options[-1].startswith("DOT_PRODUCT"):
            raise BuildFailed("no such function")
        return real(found, context, source, options, names)

    monkeypatch.setattr(sessions.binaries, "build", build)
    with OpenClSession(PROGRAM, dataclasses.replace(FOUND, extensions=frozenset(reported))) as session:
        assert_right(session.run(INPUTS))
    assert tried == [*expected, "-cl-std=CL1.2"]
    assert caplog.text.count("but does not build with it") == len(expected)


def test_dot_products_need_images_of_words(caplog):
    reported = {"extensions": frozenset({"cl_khr_integer_dot_product"}), "word_images": False}
    with OpenClSession(PROGRAM, dataclasses.replace(FOUND, **reported)) as session:
        assert_right(session.run(INPUTS))
    assert "no images of words" in caplog.text


@pytest.mark.parametrize("limit", ["allocation", "memory"])
def test_what_does_not_fit_is_refused_with_the_sizes(limit):
    with OpenClSession(PROGRAM, FOUND) as session:
        sizes = session._sizes
    needed = max(sizes) if limit == "allocation" else sum(sizes)
    with OpenClSession(PROGRAM, dataclasses.replace(FOUND, **{limit: needed})):
        pass
    with pytest.raises(Unsupported, match=r"takes .* of the device's memory") as caught:
        OpenClSession(PROGRAM, dataclasses.replace(FOUND, **{limit: needed - 1}))
    assert caught.value.where == FOUND.name


LARGE = """
import copy, dataclasses
from dsp.adreno.session import OpenClSession
from sdk.errors import Unsupported
from tests.unit.test_adreno_session import FOUND, PROGRAM
plan = copy.deepcopy(PROGRAM.plan)
last = plan["memories"][-1]
last["nbytes"] = 1 << 29
plan["memory"]["arena"] = last["offset"] + last["nbytes"]
program = dataclasses.replace(PROGRAM, plan=plan)
print(FOUND.memory, FOUND.allocation)
for found in (FOUND, dataclasses.replace(FOUND, allocation=2**40, memory=2**40)):
    try:
        OpenClSession(program, found, images=False)
    except Unsupported as problem:
        print(problem.message)
"""


@pytest.mark.slow
def test_a_device_with_little_memory():
    """PoCL has 1 GiB, a quarter of it in one piece; without our check it reports the failure itself."""
    environment = os.environ | {"POCL_MEMORY_LIMIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LARGE]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    limits, checked, tried = said.splitlines()
    if limits != f"{2**30} {2**28}":
        pytest.skip("this PoCL does not support POCL_MEMORY_LIMIT")
    assert checked.endswith("(1.1 GB, at most 268.4 MB in one piece): it does not fit")
    assert tried.endswith("INVALID_BUFFER_SIZE")


def test_memory_that_runs_out_meanwhile(monkeypatch):
    """A driver's error when others have taken the memory: at creation, and at its first use."""
    cl = opencl._pyopencl()

    def full(*args, **options):
        raise error(cl, -4, kind="MemoryError")

    for call in ("create_image", "enqueue_nd_range_kernel"):
        monkeypatch.setattr(opencl, "_pyopencl", lambda call=call: Substitute(cl, **{call: full}))
        with pytest.raises(Unsupported, match="MEM_OBJECT_ALLOCATION_FAILURE"):
            DEVICE.load(PROGRAM).run(INPUTS)
        monkeypatch.undo()


def test_a_failed_launch_closes_the_session(monkeypatch):
    cl = opencl._pyopencl()

    def lost(*args, **options):
        raise error(cl, -36, "clEnqueueNDRangeKernel", "LogicError")

    with DEVICE.load(PROGRAM) as session:
        monkeypatch.setattr(session, "_cl", Substitute(cl, enqueue_nd_range_kernel=lost))
        with pytest.raises(
            DeviceFailed, match=r"a kernel cannot be launched: clEnqueue.*INVALID_COMMAND_QUEUE"
        ):
            session.run(INPUTS)
        with pytest.raises(DeviceFailed, match="closed"):
            session.run(INPUTS)


HANG = """
import sys, time
from dsp.adreno import opencl
from dsp.adreno import session as sessions
from sdk.errors import DeviceFailed
from tests.unit.test_adreno_session import DEVICE, INPUTS, PROGRAM, assert_right
opencl.EMULATED_DEADLINE = 0.3
session = DEVICE.load(PROGRAM)
cl = opencl._pyopencl()
never = cl.UserEvent(session._context)
cl._enqueue_barrier_with_wait_list(session._queue, [never])
started = time.monotonic()
try:
    session.run(INPUTS)
    print("ran")
except DeviceFailed as problem:
    print(type(problem).__name__, time.monotonic() - started < 5, problem.message)
session.close()
opencl.EMULATED_DEADLINE = 60
with DEVICE.load(PROGRAM) as another:
    assert_right(another.run(INPUTS))
print("another ran", flush=True)
"""


@pytest.mark.slow
def test_a_queue_that_hangs_ends_with_its_deadline():
    """A real queue: it waits for an event that is never set. The process ends nevertheless."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", HANG],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "Hung True it did not finish within 0.3 s",
        "another ran",
    ], done.stderr
    assert done.returncode == 0
    assert time.monotonic() - started < 50


def test_ctrl_c_closes_the_session_and_leaves_nothing(monkeypatch):
    with DEVICE.load(PROGRAM) as session:
        waits, leaked = [], []

        def interrupted(*args):
            waits.append(args)
            if len(waits) == 1:
                raise KeyboardInterrupt
            return opencl.wait(*args)

        monkeypatch.setattr(sessions, "wait", interrupted)
        monkeypatch.setattr(sessions, "_leak", leaked.append)
        with pytest.raises(KeyboardInterrupt):
            session.run(INPUTS)
        assert len(waits) == 2
        assert waits[1][2] == sessions.GRACE
        assert not session._memory
        assert not leaked
        with pytest.raises(DeviceFailed, match="closed"):
            session.trace(INPUTS)


def test_ctrl_c_twice_does_not_wait_for_the_device(monkeypatch):
    with DEVICE.load(PROGRAM) as session:
        leaked = []

        def interrupted(*args):
            raise KeyboardInterrupt

        monkeypatch.setattr(sessions, "wait", interrupted)
        monkeypatch.setattr(sessions, "_leak", leaked.append)
        with pytest.raises(KeyboardInterrupt):
            session.run(INPUTS)
        assert len(leaked) == 1


def test_an_interrupted_queue_is_flushed_so_that_it_finishes(monkeypatch):
    cl, flushed = opencl._pyopencl(), []
    with DEVICE.load(PROGRAM) as session:
        queue = session._queue

        def interrupted(*_):
            session._queue = Altered(queue, flush=lambda: flushed.append(queue.flush()))
            raise KeyboardInterrupt

        monkeypatch.setattr(session, "_cl", Substitute(cl, enqueue_nd_range_kernel=interrupted))
        with pytest.raises(KeyboardInterrupt):
            session.run(INPUTS)
    assert flushed == [None]


def test_a_failure_while_loading_releases_what_was_allocated(monkeypatch):
    cl, released = opencl._pyopencl(), []

    def full(*args, **options):
        raise error(cl, -4, kind="MemoryError")

    class Counted(Altered):
        def release(self):
            released.append(self)
            self._real.release()

    made = []

    def buffer(*args, **options):
        made.append(Counted(cl.Buffer(*args, **options)))
        return made[-1]

    monkeypatch.setattr(opencl, "_pyopencl", lambda: Substitute(cl, Buffer=buffer, create_image=full))
    with pytest.raises(Unsupported):
        DEVICE.load(PROGRAM)
    assert made
    assert released == made


# -- what is left behind --------------------------------------------------------------------------------


@pytest.mark.slow
def test_sessions_leave_nothing_behind():
    """Many cycles of load, run, close: descriptors, threads, objects and memory end where they began."""

    def cycle():
        with DEVICE.load(PROGRAM) as session:
            session.run(INPUTS)

    leaves_nothing(cycle)


@pytest.mark.slow
@thorough_only("whole networks, layer by layer: tests/e2e/test_networks.py, tests/e2e/test_adreno.py")
@pytest.mark.parametrize("images", [True, False])
def test_mobilenet_v2_whole(images):
    graph = mobilenet_v2(96, 0.35, 10)
    program = get_target("adreno-a6xx").compile(graph, Options())
    inputs = {"x": np.random.default_rng(6).integers(0, 256, graph.tensor("x").shape, np.uint8)}
    expected = reference.run(program.graph, inputs, "f32")
    with OpenClSession(program, FOUND, images) as session:
        for name, value in session.trace(inputs).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)

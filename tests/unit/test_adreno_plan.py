"""The Adreno target's layouts and plans: as documented, and checked when they are read back."""

import copy
import dataclasses
import json

import numpy as np
import pytest

from dsp.adreno.context import layout
from dsp.adreno.lowering import lower
from dsp.adreno.plan import AdrenoPlan, Layout
from dsp.adreno.target import adreno_a6xx
from sdk.errors import InvalidArtifact, Unsupported
from sdk.graph import Quantization, Tensor
from sdk.target import Options
from sdk.weights import Weights
from tests.graph_builder import GraphBuilder


def small():
    b = GraphBuilder((1, 3, 6, 9))
    x = b.conv("x", 8, 3, pads=1)
    b.gemm(b.reshape(b.global_average_pool(b.add(b.conv(b.depthwise(x), 8), b.depthwise(x)))), 5)
    return b.graph()


def tensor(*shape):
    return Tensor("t", shape, "uint8", Quantization.per_tensor(0.1, 3))


# -- layouts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "fold", "texels"),
    [
        ((1, 40, 6, 5), 1, (5, 60)),  # below each other
        ((1, 40, 7, 5), 2, (10, 35)),
        ((1, 40, 30, 5), 8, (40, 60)),  # five of ten would suffice
        ((1, 260), 2, (2, 33)),  # not a picture: a pixel
        ((3, 4, 5, 6), 2, (2, 45)),
    ],
)
def test_blocks_lie_below_each_other_as_far_as_images_go(shape, fold, texels):
    made = layout(tensor(*shape), limit=64)
    assert (made.fold, (made.columns, made.rows)) == (fold, texels)


@pytest.mark.parametrize("shape", [(1, 1, 2, 65), (1, 1, 65, 2), (1, 64, 33, 33)])
def test_a_tensor_that_does_not_fit_an_image_is_refused(shape):
    with pytest.raises(Unsupported, match="64 x 64"):
        layout(tensor(*shape), limit=64)


@pytest.mark.parametrize("made", [Layout(10, 3, 5, 3), Layout(10, 3, 5, 2), Layout(9, 2, 1, 1)])
def test_a_texel_is_where_the_plan_says(made):
    values = np.random.default_rng(0).integers(0, 256, (made.channels, made.height, made.width), np.uint8)
    texels = np.full((made.rows, made.columns, 4), 77, np.uint8)
    for (c, h, w), value in np.ndenumerate(values):
        block = c // 4
        texels[h + made.height * (block // made.fold), w + made.width * (block % made.fold), c % 4] = value
    assert (made.unpack(texels) == values).all()


# -- storages ---------------------------------------------------------------------------------------------


def test_tensors_that_live_together_share_no_storage():
    b = GraphBuilder((1, 4, 6, 6))
    x = "x"
    for _ in range(6):
        x = b.add(b.conv(b.conv(x, 24), 4), x)
    plan = lower(b.graph()).plan
    spans = {}
    for one in plan.buffers:
        for first, last in spans.setdefault(one.offset, []):
            assert one.last < first or last < one.first
        spans[one.offset].append((one.first, one.last))
    in_texels = [one for one in plan.buffers if one.rows > 1]
    assert (len(plan.storages), len(in_texels)) == (3, 13)
    assert plan.memory["arena"] >= plan.memory["live_peak"]


def test_a_step_never_reads_what_it_writes():
    plan = lower(small()).plan
    for step in plan.steps:
        used = [value for kind, value in step.arguments if kind == "storage"]
        assert len(used) == len(set(used)), step.name


def test_a_guard_leaves_texels_on_two_sides():
    plan = lower(small(), guard=64).plan
    in_texels = [one for one in plan.buffers if one.offset < plan.memories[0].offset]
    assert len(plan.storages) == len(in_texels)
    assert len(plan.memories) == len(plan.buffers) - len(in_texels)
    for one in plan.buffers[len(in_texels) :]:
        memory = next(memory for memory in plan.memories if memory.offset == one.offset)
        assert memory.nbytes >= one.size + 64
    for one in in_texels:
        storage = next(storage for storage in plan.storages if storage.offset == one.offset)
        assert 4 * storage.width - one.size >= 64
        assert storage.height > one.rows


# -- reading back -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program():
    return adreno_a6xx().compile(small(), Options())


def test_a_plan_is_json_and_reads_back(program):
    assert json.loads(json.dumps(program.plan)) == program.plan
    assert AdrenoPlan.of(program).to_json() == program.plan


DAMAGE = {
    "no memory": ("plan.memory", lambda plan: plan["memory"].pop("arena")),
    "a negative size": ("plan.storages[0].width", lambda plan: plan["storages"][0].update(width=-4)),
    "an image beyond the limit": (
        "plan.storages[0].width",
        lambda plan: plan["storages"][0].update(width=16385),
    ),
    "a hole in the arena": ("plan.storages[1].offset", lambda plan: plan["storages"][1].update(offset=8)),
    "a smaller arena": ("plan.memories", lambda plan: plan["memory"].update(arena=4)),
    "a hole between memories": (
        "plan.memories[1].offset",
        lambda plan: plan["memories"][1].update(offset=plan["memories"][1]["offset"] + 4),
    ),
    "an input beyond its memory": (
        "plan.inputs.x",
        lambda plan: plan["inputs"]["x"].update(offset=1 << 20),
    ),
    "no output": ("plan.outputs", lambda plan: plan["outputs"].clear()),
    "a state of another network": ("plan.states", lambda plan: plan["states"].append(["a", "b"])),
    "no status": ("plan.status", lambda plan: plan.update(status=77)),
    "a word of 33 bits": (
        "plan.steps[1].arguments[8][1][0]",
        lambda plan: plan["steps"][1]["arguments"].append(["words", [1 << 32]]),
    ),
    "no such memory": (
        "plan.steps[0].arguments[0]",
        lambda plan: plan["steps"][0]["arguments"][0].__setitem__(1, 99),
    ),
    "weights beyond the end": ("plan.weights[4]", lambda plan: plan["weights"][-1].update(height=9999)),
    "weights of floats": ("plan.weights[0].dtype", lambda plan: plan["weights"][0].update(dtype="float32")),
    "tables beyond the end": ("plan.tables", lambda plan: plan.update(tables=1 << 20)),
    "a tensor without storage": (
        "plan.tensors.x.storage",
        lambda plan: plan["tensors"]["x"].update(storage=99),
    ),
    "a storage too small": (
        "plan.tensors.x",
        lambda plan: plan["tensors"]["x"].update(storage=-1 + len(plan["storages"])),
    ),
    "no such weights": (
        "plan.steps[1].arguments[1]",
        lambda plan: plan["steps"][1]["arguments"][1].__setitem__(1, 99),
    ),
    "a larger tensor": (
        "plan.tensors.x.layout",
        lambda plan: plan["tensors"]["x"]["layout"].update(width=10),
    ),
    "no blocks side by side": (
        "plan.tensors.x.layout.fold",
        lambda plan: plan["tensors"]["x"]["layout"].update(fold=0),
    ),
    "a buffer beyond the arena": ("plan.buffers[0]", lambda plan: plan["buffers"][0].update(pitch=1 << 20)),
    "no such kernel": ("plan.steps[0].kernel", lambda plan: plan["steps"][0].update(kernel=99)),
    "no work": ("plan.steps[0].items[0]", lambda plan: plan["steps"][0].update(items=[0, 1, 1])),
    "far too much work": (
        "plan.steps[0].items",
        lambda plan: plan["steps"][0].update(items=[1 << 20, 1 << 20, 1]),
    ),
    "no such storage": (
        "plan.steps[1].arguments[0]",
        lambda plan: plan["steps"][1]["arguments"][0].__setitem__(1, 99),
    ),
    "no such argument": (
        "plan.steps[1].arguments[0]",
        lambda plan: plan["steps"][1]["arguments"][0].__setitem__(0, "x"),
    ),
    "an infinite float": (
        "plan.steps[1].arguments[8][1]",
        lambda plan: plan["steps"][1]["arguments"].append(["float", 1e999]),
    ),
    "an int beyond 32 bits": (
        "plan.steps[1].arguments[8][1]",
        lambda plan: plan["steps"][1]["arguments"].append(["int", 1 << 40]),
    ),
    "a bool": ("plan.tables", lambda plan: plan.update(tables=True)),
    "no input": ("plan.inputs", lambda plan: plan["inputs"].clear()),
    "an unknown name": ("plan.inputs", lambda plan: plan["inputs"].update(z=plan["inputs"]["x"])),
    "nowhere to compute": ("plan.memories[0].offset", lambda plan: plan.update(storages=[])),
    "no list": ("plan.steps", lambda plan: plan.update(steps=3)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_plan_is_refused(program, damage):
    where, change = DAMAGE[damage]
    plan = copy.deepcopy(program.plan)
    change(plan)
    with pytest.raises(InvalidArtifact) as caught:
        AdrenoPlan.of(dataclasses.replace(program, plan=plan))
    assert caught.value.where == where


def test_a_program_without_code_or_weights_is_refused(program):
    for change in ({"code": {}}, {"weights": Weights.of(program.weights.buffer()[:-1])}):
        with pytest.raises(InvalidArtifact):
            AdrenoPlan.of(dataclasses.replace(program, **change))

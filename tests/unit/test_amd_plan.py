"""The AMD targets' plans: in order, and read back with every value checked."""

import copy
import dataclasses
import json

import pytest

from sdk.errors import InvalidArtifact
from sdk.graph import Conv, MatMul
from sdk.target import Options
from sdk.weights import Weights
from tests.graph_builder import mobilenet_v2
from tests.plain_graphs import PlainBuilder
from tests.shader_gpu import target
from tests.unit.test_amd_target import amd, small
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.target.lowering import lower
from usbgpu.target.plan import CardPlan

__all__ = ["amd"]


def test_a_plan_is_json_and_reads_back(amd):
    program = amd.compile(small(), Options())
    assert json.loads(json.dumps(program.plan)) == program.plan
    plan = CardPlan.of(program)
    assert plan.to_json() == program.plan
    assert {kernel.scratch for kernel in plan.kernels} == {0}
    for before, after in zip(plan.launches, plan.launches[1:], strict=False):
        assert before.weights <= after.weights or not after.weights
    assert plan.launches[-1].weights == plan.memory["weights"] == program.weights.nbytes


@pytest.mark.slow
def test_weights_come_in_the_order_of_launches():
    graph = mobilenet_v2(32, 0.25, 10)
    plan = target("gfx1100").compile(graph, Options()).plan
    ends = [launch["weights"] for launch in plan["launches"] if launch["weights"]]
    assert ends == sorted(ends)
    assert ends[0] < plan["memory"]["weights"] / 20  # the first layer does not wait for the last weight


def test_the_weights_of_plain_products_are_there_once():
    b = PlainBuilder(1)
    x = b.input((1, 32, 8, 8), "float16")
    y = b.node(
        Conv,
        (x, b.constant((64, 32, 3, 3), "float16")),
        strides=(1, 1),
        pads=(1, 1, 1, 1),
        dilations=(1, 1),
        group=1,
        clamp=None,
    )
    y = b.node(MatMul, (b.reshape(y, (64, 64)), b.constant((64, 128), "float16")), transposed=False)
    graph = b.graph(y)
    constants = sum(tensor.nbytes for tensor in graph.tensors.values() if tensor.data is not None)
    assert lower(graph, CHIPS["gfx1100"]).weights.nbytes < 1.1 * constants


DAMAGE = {
    "a kernel outside of the image": (
        "plan.kernels[0].entry",
        lambda plan: plan["kernels"][0].update(entry=1 << 20),
    ),
    "a crooked entry": ("plan.kernels[0].entry", lambda plan: plan["kernels"][0].update(entry=4)),
    "a kernel that does not exist": (
        "plan.launches[0].kernel",
        lambda plan: plan["launches"][0].update(kernel=99),
    ),
    "an address in no memory": (
        "plan.launches[0].relocations[0][1]",
        lambda plan: plan["launches"][0]["relocations"][0].__setitem__(1, "host"),
    ),
    "an address beyond the arena": (
        "plan.launches[0].relocations[0]",
        lambda plan: plan["launches"][0]["relocations"][0].__setitem__(2, 1 << 30),
    ),
    "an address outside of the arguments": (
        "plan.launches[0].relocations[0]",
        lambda plan: plan["launches"][0]["relocations"][0].__setitem__(0, 8192),
    ),
    "weights that are not there": (
        "plan.launches[0].weights",
        lambda plan: plan["launches"][0].update(weights=1 << 30),
    ),
    "no workgroups": ("plan.launches[0].groups", lambda plan: plan["launches"][0].update(groups=[0, 1, 1])),
    "negative": ("plan.launches[0].groups[0]", lambda plan: plan["launches"][0].update(groups=[-1, 1, 1])),
    "a code file that is missing": ("plan.image[0]", lambda plan: plan["image"][0].update(file="other.co")),
    "a code file that is too short": (
        "plan.image[5]",
        lambda plan: plan["image"][-1].update(size=1 << 20),
    ),
    "an output elsewhere": ("plan.outputs.gemm5", lambda plan: plan["outputs"].update({"gemm5": 1 << 30})),
    "sums for other weights": ("plan.sums", lambda plan: plan["sums"].append(0)),
    "no kernel to sum": ("plan.checksum", lambda plan: plan.update(checksum=99)),
    "another kernel to sum": ("plan.checksum", lambda plan: plan.update(checksum=0)),
    "no output": ("plan.outputs", lambda plan: plan.update(outputs={})),
    "a tensor that does not exist": (
        "plan.tensors",
        lambda plan: plan["tensors"].update({"conv0.w": plan["tensors"]["conv0"]}),
    ),
    "a tensor of another size": (
        "plan.tensors.conv0",
        lambda plan: plan["tensors"]["conv0"].update(channels=21),
    ),
    "a tensor outside of the arena": (
        "plan.tensors.conv0",
        lambda plan: plan["tensors"]["conv0"].update(offset=1 << 30),
    ),
    "invalid hexadecimal": (
        "plan.launches[0].kernarg",
        lambda plan: plan["launches"][0].update(kernarg="zz"),
    ),
    "no launches": ("plan", lambda plan: plan.pop("launches")),
    "text for a number": ("plan.memory.arena", lambda plan: plan["memory"].update(arena="1")),
    "nothing": ("plan", lambda plan: plan.clear()),
    "more workgroups than bytes": (
        "plan.launches[0].groups",
        lambda plan: plan["launches"][0].update(groups=[1 << 10] * 3),
    ),
    "another margin": ("plan.memory.margin", lambda plan: plan["memory"].update(margin=1 << 30)),
    "an image of nothing": ("plan.memory.code", lambda plan: plan["memory"].update(code=1 << 30)),
    "code over code": ("plan.image[1].at", lambda plan: plan["image"][1].update(at=0)),
    "an entry behind the code": (
        "plan.kernels[0].entry",
        lambda plan: plan["kernels"][0].update(entry=plan["memory"]["code"] - 512),
    ),
    "LDS that RSRC2 does not ask for": (
        "plan.kernels[0].lds",
        lambda plan: plan["kernels"][0].update(lds=512),
    ),
    "more LDS than available": (
        "plan.kernels[0].lds",
        lambda plan: plan["kernels"][0].update(lds=1 << 17, rsrc2=plan["kernels"][0]["rsrc2"] | 256 << 15),
    ),
    "a gigabyte of scratch memory": (
        "plan.kernels[0].scratch",
        lambda plan: plan["kernels"][0].update(scratch=1 << 30),
    ),
    "a thousand and more work-items": (
        "plan.kernels[0].threads",
        lambda plan: plan["kernels"][0].update(threads=1025),
    ),
    "a step beyond the arena": (
        "plan.tensors.conv0",
        lambda plan: plan["tensors"]["conv0"]["steps"].__setitem__(2, 1 << 30),
    ),
    "an axis too few": (
        "plan.tensors.conv0.steps",
        lambda plan: plan["tensors"]["conv0"]["steps"].pop(),
    ),
    "a status beyond the arena": (
        "plan.status",
        lambda plan: plan.update(status=plan["memory"]["arena"] - 4),
    ),
    "an address right behind the arena": (
        "plan.launches[0].relocations[0]",
        lambda plan: plan["launches"][0]["relocations"][0].__setitem__(2, plan["memory"]["arena"]),
    ),
    "arguments for another kernel": (
        "plan.launches[0].kernarg",
        lambda plan: plan["launches"][0].update(kernarg="00" * 512),
    ),
    "a launch for no tensor": (
        "plan.launches[0].tensor",
        lambda plan: plan["launches"][0].update(tensor="nothing"),
    ),
}


@pytest.fixture(scope="module")
def compiled():
    return target("gfx1100").compile(small(), Options())


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_plan_is_refused(damage, compiled):
    amd = target("gfx1100")
    program = dataclasses.replace(compiled, plan=copy.deepcopy(compiled.plan))
    where, change = DAMAGE[damage]
    change(program.plan)
    with pytest.raises(InvalidArtifact) as caught:
        amd.open(None).load(program)
    assert caught.value.where == where


def test_a_program_for_another_chip_or_without_its_weights_is_refused():
    program = target("gfx1100").compile(small(), Options())
    with pytest.raises(InvalidArtifact, match="gfx1201"):
        target("gfx1201").open(None).load(program)
    program.weights = Weights.of(program.weights.buffer()[:-1])
    with pytest.raises(InvalidArtifact, match="incomplete"):
        target("gfx1100").open(None).load(program)

"""The figures of the Adreno target, with tinymesa where it is installed."""

import dataclasses
import importlib.metadata
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dsp.adreno import ir3
from dsp.adreno.ir3 import child as module
from dsp.adreno.ir3 import listing
from dsp.adreno.ir3.child import KernelInstance, figures
from dsp.adreno.ir3.kernels import compiled
from dsp.adreno.plan import KernelPlan, StepPlan
from sdk import toolchain
from sdk.errors import BuildFailed, EnvironmentMissing, InternalError

LISTING = """
shps #l1
(nop3) shl.b r0.w, c9.x, 4
(sy)(ss)shpe
l1:
mov.u32u32 r0.x, 0
l2:
(rpt5)nop
isaml (u32)(x)r1.y, r0.y, r0.x, s#0, t#0
l3:
(sy)(rpt1)mad.s24 r0.y, c0.x, (r)r0.y, (r)r1.y
(ss)(nop3) cmps.s.ge p0.x, r0.y, 40
br p0.x, #l3
br p0.x, #l10
jump #l2
l10:
stib.b.typed.2d.u32.4.imm r0.y, r1.z, 0
end
nop
"""

POINTWISE = {"pixels": 4, "fused": 0}
POINTWISE |= {"weights.blocks": 2, "weights.height": 4, "weights.width": 6, "weights.fold": 1}
POINTWISE |= {"from.blocks": 6, "from.height": 8, "from.width": 8, "from.fold": 1}
POINTWISE |= {"to.blocks": 2, "to.height": 8, "to.width": 8, "to.fold": 1}


@pytest.fixture
def tinymesa(tmp_path, monkeypatch):
    """An empty cache, for a test that needs tinymesa."""
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    try:
        toolchain.tinymesa()
    except EnvironmentMissing as missing:
        pytest.skip(missing.message)
    return tmp_path


def kernel(**changes):
    return KernelInstance("pointwise", {**POINTWISE, **changes}, (16, 8, 1))


def depthwise(pixels, stride, columns=3):
    names = ("rows", "columns", "stride_y", "stride_x", "step_y", "step_x", "top", "left")
    window = zip(names, (3, columns, 1, stride, 1, 1, 1, 1), strict=True)
    constants = POINTWISE | {f"window.{name}": value for name, value in window}
    constants |= {"outside": 1, "zero_point": 7, "from.width": 8 * stride, "pixels": pixels}
    return KernelInstance("depthwise", constants, (8, 8, 1))


def test_slots_are_counted_by_the_depth_of_loops():
    outside, outer, inner = listing.by_loop(listing.read(LISTING))
    assert (outside.instructions, outside.slots, outside.nops) == (3, 3, 0)
    assert (outer.instructions, outer.slots, outer.nops) == (4, 9, 6)
    assert (inner.instructions, inner.slots, inner.nops) == (3, 7, 3)
    assert inner.by_name == {"br": 1, "cmps": 1, "mad": 1}


def test_loops_after_each_other_are_counted_each():
    text = "l0:\nadd.s r0.x, r0.x, 1\nbr p0.x, #l0\nl1:\nbr p0.x, #l1\nend"
    assert [one.instructions for one in listing.by_loop(listing.read(text))] == [1, 2, 1]


def test_loops_that_overlap_are_refused():
    text = "l0:\nadd.s r0.x, r0.x, 1\nl1:\nbr p0.x, #l0\nbr p0.x, #l1\nend"
    with pytest.raises(InternalError, match="two loops"):
        listing.by_loop(listing.read(text))


@pytest.mark.parametrize("text", ["", "mov.u32u32 r0.x, 0\n", "?\nend"])
def test_an_invalid_listing_is_refused(text):
    with pytest.raises(InternalError):
        listing.read(text)


def test_another_release_of_tinymesa_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "26.0.1.0")
    with pytest.raises(EnvironmentMissing, match=r"tinymesa 25\.2 is needed, but 26\.0\.1\.0 is") as caught:
        figures([kernel()])
    assert "pip install 'tinymesa==25.2.*'" in caught.value.hint


@pytest.mark.slow
def test_figures_of_a_pointwise_kernel(tinymesa):
    made, with_add, with_lookup = figures([kernel(), kernel(fused=1), kernel(fused=2)])
    assert made.operations[-1] == {"texture 0": 4, "texture 1": 4, "products": 64}
    inner = made.loops[-1]
    assert inner.by_name["isaml"] == 8
    assert 64 <= inner.slots <= 1.6 * 64
    assert made.spills == with_add.spills == with_lookup.spills == 0
    assert made.total("slots", [1, 6]) == made.loops[0].slots + 6 * inner.slots
    assert with_add.loops[0].slots > made.loops[0].slots
    assert with_lookup.loops[0].by_name["ldg"] > made.loops[0].by_name["ldg"]
    with pytest.raises(InternalError, match="2 loops have become 1"):
        made.total("slots", [1, 2, 6])


@pytest.mark.slow
def test_figures_are_kept(tinymesa, monkeypatch):
    first = figures([kernel()])
    (path,) = (tinymesa / "ir3").iterdir()
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("a child was started"))
    assert figures([kernel(), kernel()]) == first * 2
    monkeypatch.undo()
    path.write_bytes(b"{}")
    monkeypatch.setenv("TOWLINE_CACHE", str(tinymesa))
    assert figures([kernel()]) == first


@pytest.mark.slow
def test_modules_in_the_working_directory_are_not_run(tinymesa, monkeypatch):
    (tinymesa / "json.py").write_text("raise SystemExit('not that one')")
    monkeypatch.chdir(tinymesa)
    assert figures([kernel()])[0].spills == 0


@pytest.mark.slow
def test_spills_are_counted(tinymesa):
    """More sums than there are registers; among the moves are `swz`, which ir3 counts as two slots."""
    (made,) = figures([kernel(pixels=24)])
    assert made.spills > 0
    assert made.registers == 48


@pytest.mark.slow
def test_a_wrong_kernel_is_named(tinymesa):
    wrong = dataclasses.replace(kernel(), constants={"pixels": 4})
    with pytest.raises(BuildFailed, match="has no 'from") as caught:
        figures([kernel(), wrong])
    assert wrong.text in caught.value.where


@pytest.mark.parametrize(
    "one",
    [
        kernel(pixels=0),
        kernel(pixels=1 << 30),
        depthwise(pixels=8, stride=80),
        depthwise(pixels=2, stride=9, columns=0),
        depthwise(pixels=2, stride=-999, columns=1000),
    ],
    ids=lambda one: one.function,
)
def test_counts_beyond_the_limit_of_unrolling_are_refused(one):
    with pytest.raises(BuildFailed, match="unrolled"):
        compiled(None, one.function, one.constants, one.local)


@pytest.mark.slow
def test_depthwise_kernels_of_long_strides_have_figures(tinymesa):
    for made in figures([depthwise(pixels=8, stride=15), depthwise(pixels=1, stride=80)]):
        assert made.operations[-1]["texture 1"] == 3


@pytest.mark.parametrize(
    ("script", "problem"), [("kill -ABRT $$", "SIGABRT"), ("sleep 60", "within 0.2 s"), ("true", "nothing")]
)
def test_a_child_that_fails_is_an_error(tinymesa, monkeypatch, script, problem):
    child = tinymesa / "child"
    child.write_text(f"#!/bin/sh\n{script}\n")
    child.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(child))
    monkeypatch.setattr(module, "SECONDS", 0.2)
    with pytest.raises(BuildFailed, match=problem) as caught:
        figures([kernel()])
    assert "tinymesa" in caught.value.where


@pytest.mark.slow
def test_a_library_of_another_layout_is_refused(tinymesa):
    """In a process of its own: a shader built at wrong offsets may abort it."""
    script = (
        "from dsp.adreno.ir3 import mesa, shader\nmesa.TEX_TEXTURE += 4\nshader.check_layout(mesa.Mesa())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "EnvironmentMissing: tinymesa 25.2" in done.stderr


@pytest.mark.slow
def test_figures_of_a_program(tinymesa):
    """Two launches that share a kernel, one of a kernel without NIR; half of the blocks are idle."""
    constants = {name: value for name, value in POINTWISE.items() if name != "fused"}
    kernels = [KernelPlan("a", "pointwise", constants | {"to.width": 7}), KernelPlan("b", "max_pool", {})]
    common = {
        "items": (2, 8, 2),
        "local": (2, 8, 4),
        "reason": "",
        "fixed": False,
        "arguments": [],
        "tensors": [],
    }
    steps = [
        StepPlan("one", "Conv", ["one"], 7 * 8 * 8 * 24, 0, trips=6, **common),
        StepPlan("two", "MaxPool", ["two"], 0, 1, trips=0, **common),
        StepPlan("three", "Conv+Add", ["three", "add"], 7 * 8 * 8 * 24, 0, trips=6, **common),
    ]
    one, two, three = (static := ir3.static(SimpleNamespace(kernels=kernels, steps=steps))).layers
    (alone,) = figures([dataclasses.replace(kernel(**{"to.width": 7}), local=(2, 8, 4))])
    assert two == {}
    assert one["issue_slots"] == 64 * (alone.loops[0].slots + 6 * alone.loops[1].slots)
    assert one["inner"] == round(alone.loops[1].slots / 64, 3)
    assert three["issue_slots"] > one["issue_slots"]
    assert static.total["nops"] == one["nops"] + three["nops"]
    assert static.total["issue_slots_per_mac"] == static.total["issue_slots"] / (2 * 7 * 8 * 8 * 24)

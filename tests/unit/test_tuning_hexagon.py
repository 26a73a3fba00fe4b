"""The Hexagon kernels' variants: how calls are distinguished, which is chosen, what a candidate holds."""

import dataclasses
import re
import shutil

import pytest

from dsp.hexagon import build, tuning
from dsp.hexagon.build import KERNELS, kernel_hash, network_source
from dsp.hexagon.calls import At, Call, KernelSource
from dsp.hexagon.lowering import lower
from sdk.arena import Buffer
from sdk.errors import InvalidInput, ToolMissing
from sdk.target import Tunable
from sdk.targets import get_target
from sdk.toolchain import find
from sdk.tuning import Entry, Tuning
from tests.graph_builder import GraphBuilder

NAME = "hexagon-v65"

try:
    find("clang")
except ToolMissing:
    pytest.skip("clang is not installed: variants are the compiler's", allow_module_level=True)


def network(seed=0, channels=8):
    b = GraphBuilder((1, 3, 10, 10), seed=seed)
    x = b.conv("x", channels, 3, strides=2, pads=1, relu=True)
    x = b.add(b.conv(x, channels), x)
    x = b.add(b.conv(x, channels), x)
    x = b.depthwise(x, 3, strides=2, pads=1)
    return b.graph(b.gemm(b.reshape(b.global_average_pool(x)), 5))


@pytest.mark.slow
def test_weights_scales_and_zero_points_are_not_in_a_signature():
    """Other values, other places in the blob: the same signatures, in the same order."""

    def signatures(graph):
        return [candidate.signature for candidate in tuning.candidates(lower(graph), "v65")]

    assert signatures(network(0)) == signatures(network(1))
    assert signatures(network(0)) != signatures(network(0, channels=16))


def test_a_signature_has_every_extent_and_no_place():
    buffer = Buffer("b", 128, 0, 0, 0)
    fields = {"x": At(buffer, 4), "planes": 3, "weights": 77, "low": 1, "row": [{"begin": 1, "end": 5}]}
    call = Call(KernelSource("layout.c", "gather"), "gather", fields)
    assert tuning.signature(call) == "gather planes=3 row=1:5"


def test_loops_written_by_hand_have_no_variants():
    assert tuning.choices(
        KernelSource("conv.c", "conv_8_pipelined", ("NAME=conv_8_pipelined", "PIPELINED"))
    ) == [""]
    assert len(tuning.choices(KernelSource("gemm.c", "gemm", ("NAME=gemm",)))) > 4


def test_kernels_that_depend_on_places_and_tables_have_no_variants():
    """No signature determines their cost; other kernels of the same source have variants."""
    choices = {
        name: len(tuning.choices(KernelSource("moving.c", name))) for name in ("copy", "resize", "join")
    }
    assert choices.pop("join") > 1
    assert set(choices.values()) == {1}


@pytest.mark.parametrize(
    "source", sorted({path.name for path in KERNELS.glob("*.c")} - {"skel.c", "runtime.c"})
)
def test_variants_share_no_name_with_each_other(source):
    """Everything that a source defines is renamed, or the linker would find it twice."""
    defined = re.findall(r"^void (\w+)\(", (KERNELS / source).read_text(), re.MULTILINE)
    assert defined
    own = "NAME" in defined
    symbol = "variant" if own else defined[0]
    kernel = KernelSource(source, symbol, (f"NAME={symbol}", "STEPS=9") if own else ())
    variants = [tuning.vary(kernel, choice) for choice in tuning.choices(kernel)]
    assert variants[0] == kernel
    assert len({variant.symbol for variant in variants}) == len(variants)
    for variant in variants[1:]:
        renamed = dict(define.partition("=")[::2] for define in variant.defines)
        names = [renamed["NAME"] if name == "NAME" else renamed[name] for name in defined]
        assert variant.symbol in names
        assert len(renamed) == len(variant.defines), "a macro is defined twice"


def forced(lowered, choose, kernels=None):
    """A tuning that has `choose(choices)` for every candidate."""
    groups = {}
    for candidate in tuning.candidates(lowered, "v65"):
        groups.setdefault(candidate.signature, []).append(candidate)
    entries = {
        name: Entry(kernels or group[0].kernels, choose([c.choice for c in group]), 1, 2)
        for name, group in groups.items()
    }
    return Tuning(NAME, "packets", entries)


@pytest.fixture
def nothing_shipped(monkeypatch):
    monkeypatch.setattr(tuning, "shipped", lambda target: Tuning(target, "packets"))


def test_what_was_measured_is_taken(nothing_shipped):
    graph = network()
    plain, lowered = lower(graph), lower(graph)
    tuned = tuning.apply(lowered, "v65", forced(plain, lambda choices: choices[-1]))
    assert tuned.heuristic == 0
    assert {one.by for one in tuned.chosen} == {"user"}
    changed = 0
    for before, after in zip(plain.layers, lowered.layers, strict=True):
        for old, new in zip(before.calls, after.calls, strict=True):
            choices = tuning.choices(old.kernel)
            assert new.kernel == (tuning.vary(old.kernel, choices[-1]) if len(choices) > 1 else old.kernel)
            changed += old.kernel != new.kernel
    assert changed == len(tuned.chosen) > 4


def test_measurements_of_other_kernels_are_ignored(nothing_shipped):
    lowered = lower(network())
    tuned = tuning.apply(lowered, "v65", forced(lower(network()), lambda choices: choices[-1], "other"))
    assert tuned.chosen == []
    assert tuned.heuristic > 4
    assert network_source(lowered) == network_source(lower(network()))


def test_the_user_comes_before_the_package(monkeypatch):
    plain = lower(network())
    monkeypatch.setattr(tuning, "shipped", lambda target: forced(plain, lambda choices: choices[1]))
    users = forced(plain, lambda choices: choices[-1])
    gemms = {name: entry for name, entry in users.entries.items() if name.startswith("gemm")}
    tuned = tuning.apply(lower(network()), "v65", dataclasses.replace(users, entries=gemms))
    by = {one.kernel: one.by for one in tuned.chosen}
    assert by.pop("gemm") == "user"
    assert set(by.values()) == {"package"}


def test_a_variant_that_does_not_exist_is_refused(nothing_shipped):
    wrong = forced(lower(network()), lambda choices: "NAME=main")
    with pytest.raises(InvalidInput, match="NAME=main"):
        tuning.apply(lower(network()), "v65", wrong)


@pytest.mark.parametrize("change", ["source", "header", "schedule", "version"])
def test_the_kernels_hash_covers_all_that_a_count_depends_on(monkeypatch, tmp_path, change):
    kernels = tmp_path / "kernels"
    shutil.copytree(KERNELS, kernels)
    monkeypatch.setattr(build, "KERNELS", kernels)
    monkeypatch.setattr(build, "SCHEDULES", {build._release(): {"one": ("-one",)}})
    before = kernel_hash("gemm.c", "v65")
    assert kernel_hash("gemm.c", "v65") == before
    if change in ("source", "header"):
        path = kernels / {"source": "gemm.c", "header": "hvx.h"}[change]
        path.write_text(path.read_text() + "\n")
    elif change == "schedule":
        monkeypatch.setattr(build, "SCHEDULES", {build._release(): {"one": ("-two",)}})
    assert kernel_hash("gemm.c", "v66" if change == "version" else "v65") != before


def test_the_words_of_a_comment_cost_nothing(monkeypatch, tmp_path):
    kernels = tmp_path / "kernels"
    shutil.copytree(KERNELS, kernels)
    monkeypatch.setattr(build, "KERNELS", kernels)
    before = kernel_hash("gemm.c", "v65")
    for name in ("gemm.c", "hvx.h"):
        text = (kernels / name).read_text()
        (kernels / name).write_text(text.replace("/* ", "/* As said:\n * ", 1))
        assert (kernels / name).read_text() != text
    assert kernel_hash("gemm.c", "v65") == before


def test_a_candidate_is_a_network_of_one_call():
    target = get_target(NAME)
    assert isinstance(target, Tunable)
    candidates = target.candidates(network())
    calls = [call for layer in lower(network()).layers for call in layer.calls]
    assert sum(c.uses for c in candidates if not c.choice) == sum(
        len(tuning.choices(call.kernel)) > 1 for call in calls
    )
    assert candidates[0].choice == ""
    gemm = next(c for c in candidates if c.signature.startswith("gemm") and c.choice)
    assert target.kernels(gemm) == gemm.kernels == kernel_hash("gemm.c", "v65")
    lowered, graph = tuning.alone(gemm)
    (call,) = lowered.layers[0].calls
    assert call.kernel == tuning.vary(KernelSource("gemm.c", "gemm", ("NAME=gemm",)), gemm.choice)
    assert set(lowered.weights) == {0}
    assert call.kernel.symbol in network_source(lowered)
    assert graph.inputs == graph.outputs == ("x",)


@pytest.mark.slow
def test_candidates_are_counted():
    """Each kind of call: its places are numbers by then."""
    target = get_target(NAME)
    assert isinstance(target, Tunable)
    first = {
        candidate.signature.split()[0]: candidate for candidate in reversed(target.candidates(network()))
    }
    assert len(first) >= 4
    for candidate in first.values():
        assert target.measure(candidate) > 0


def test_the_shipped_file_is_for_kernels_that_exist():
    shipped = tuning.shipped(NAME)
    assert shipped.counter == "packets"
    assert tuning.shipped("hexagon-v68").entries == {}
    for entry in shipped.entries.values():
        assert 0 < entry.count < entry.untuned

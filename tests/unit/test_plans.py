"""Every target's plan: it reads back as it was written, and no value of it is trusted."""

import copy
import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsp.adreno.plan import AdrenoPlan
from dsp.c.plan import CPlan
from dsp.hexagon.plan import HexagonPlan
from sdk.artifact import Artifact
from sdk.errors import InvalidArtifact
from sdk.session import Session
from sdk.target import Options
from sdk.targets import get_target
from tests.graph_builder import GraphBuilder
from tests.shader_gpu import target
from usbgpu.target.plan import CardPlan

SIGNED = ("int", "float")
"""Kinds of an Adreno kernel's arguments that may be -1; so may its constants."""

PLANS = {"adreno-a6xx": AdrenoPlan, "amd-gfx1100": CardPlan, "c": CPlan, "hexagon-v65": HexagonPlan}


@functools.cache
def compiled(name):
    b = GraphBuilder((1, 3, 2, 3))
    b.conv("x", 4, relu=True)
    return (target("gfx1100") if name == "amd-gfx1100" else get_target(name)).compile(b.graph(), Options())


def damaged(name):
    """A program whose plan may be changed."""
    program = copy.copy(compiled(name))
    program.plan = copy.deepcopy(program.plan)
    return program


def places(value):
    """(container, key) of every value in a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from places(inner)


def _listed(part):
    return part.values() if isinstance(part, dict) else part or ()


def text(document):
    """Distinguishes what == does not: 1, 1.0 and true."""
    return json.dumps(document, sort_keys=True)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_json_and_reads_back(name):
    program = compiled(name)
    assert text(PLANS[name].of(program).to_json()) == text(program.plan)
    assert json.loads(text(program.plan)) == program.plan


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_no_value_of_a_plan_is_trusted(name):
    """Each is replaced by values that no plan has in its place."""
    program = damaged(name)
    constants = {id(kernel.get("constants")) for kernel in program.plan.get("kernels", ())}
    ends = [place for part in ("places", "inputs", "outputs") for place in _listed(program.plan.get(part))]
    steps = {id(place["steps"]) for place in ends if isinstance(place, dict)}
    for container, key in list(places(program.plan)):
        good = container[key]
        if isinstance(good, dict | list):
            continue
        signed = id(container) in constants or (isinstance(container, list) and container[0] in SIGNED)
        for bad in (-1, 1 << 64, 1.5, True, [], {}, None, 5 if isinstance(good, str) else "5"):
            if bad is good or (bad is None and key == "tensor") or (signed and bad in (-1, 1.5)):
                continue
            if (bad == -1 and id(container) in steps) or (bad is True and key == "fixed"):
                continue  # which may be
            container[key] = bad
            with pytest.raises(InvalidArtifact) as caught:
                PLANS[name].of(program)
            assert caught.value.where.startswith("plan")
        container[key] = good
    assert PLANS[name].of(program).to_json() == compiled(name).plan


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_changed_plan_is_refused_or_read_as_it_is(name, data):
    program = damaged(name)
    spots = list(places(program.plan))
    container, key = data.draw(st.sampled_from(spots))
    other, another = data.draw(st.sampled_from(spots))
    match data.draw(st.sampled_from(["replace", "copy", "add", "delete"])):
        case "replace":
            container[key] = data.draw(JSON)
        case "copy":
            container[key] = copy.deepcopy(other[another])
        case "add" if isinstance(container, dict):
            container[data.draw(st.text(max_size=3))] = data.draw(JSON)
        case "add":
            container.insert(key, data.draw(JSON))
        case "delete":
            del container[key]
    try:
        plan = PLANS[name].of(program)
    except InvalidArtifact:
        return
    assert text(plan.to_json()) == text(program.plan)


@pytest.mark.parametrize("name", PLANS)
def test_a_damaged_plan_is_refused_before_a_device_is_opened(name, monkeypatch):
    program = damaged(name)
    program.plan["memory"]["arena"] = -1

    def opened(*_):
        pytest.fail("the device was opened")

    monkeypatch.setattr(type(get_target(name)), "open", opened)
    with pytest.raises(InvalidArtifact) as caught:
        Session(Artifact((program,), program.graph, get_target(name).arithmetic))
    assert "memory" in str(caught.value)

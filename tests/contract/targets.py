"""The targets under contract: which are quick, and what every network must satisfy on each.

The tests are in test_target_operators.py and test_target_sessions.py. They run over every registered target
on its emulated device, whose session offers `poison` and `dump` for them, and `trace_halves` and `order`
where two contexts share the work. Those of the AMD targets run on the shader executor alone, without a card
to boot; on the whole emulated card they are slow tests, and tests/e2e/test_gpu_*.py has more.
"""

import numpy as np
import pytest
from hypothesis import strategies as st

from sdk import reference
from sdk.errors import EnvironmentMissing
from sdk.graph import Graph
from sdk.target import L2, Options, require_supported
from sdk.targets import get_target, target_names
from sdk.verification import verify
from tests import shader_gpu
from tests.amount import amount
from tests.graph_builder import RANGES
from usbgpu.amd.facts.chips import CHIPS

TARGETS = target_names()
SIBLINGS = amount(("amd-gfx1102", "amd-gfx1200", "hexagon-v66"), ())
"""Targets that share all but flags with another one: `test_every_operator_once` alone."""
PROCESSES = ("c", "hexagon-v65", "hexagon-v68")
"""Targets whose emulated device is a process; but hexagon-v66, which is the same one as v65."""
VARIANTS = ("amd-gfx1102", "amd-gfx1200", "amd-gfx1201", "hexagon-v66", "hexagon-v68")
"""Targets that share all but flags, or all but the kernels of matrices, with another one."""
COMPILED = ("adreno-a6xx",)
"""Targets whose emulated device compiles every kernel; tests/unit/test_adreno_lowering.py has quick ones."""
QUICK = [
    pytest.param(name, marks=pytest.mark.slow) if name in VARIANTS + COMPILED else name for name in TARGETS
]
LONG = [
    name if name == "hexagon-v65" else pytest.param(name, marks=pytest.mark.slow)
    for name in TARGETS
    if name not in COMPILED + SIBLINGS
]
"""For the tests of many networks; the targets' own unit tests have ones like them."""
CARDS = {f"amd-{chip}": chip for chip in CHIPS if f"amd-{chip}" in TARGETS}


def quick(name):
    """A target with an emulated device that is open at once; without OpenCL there is none for Adreno."""
    if name in CARDS:
        return shader_gpu.target(CARDS[name])
    target = get_target(name)
    if name.startswith("adreno"):
        try:
            target.open(None)
        except EnvironmentMissing as problem:
            pytest.skip(str(problem))
    return target


def random_input(graph: Graph, seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        name: random.integers(
            *RANGES[graph.tensor(name).dtype],
            graph.tensor(name).shape,
            graph.tensor(name).dtype,
            endpoint=True,
        )
        for name in graph.inputs
    }


def assert_identical(target, graph: Graph, guard: int = 0, l2: int = L2) -> None:
    """Every layer equals the reference, under two poisons; margins and guards stay as they were."""
    verify(graph)
    require_supported(target, graph)
    program = target.compile(graph, Options(guard=guard, l2=l2))
    inputs = random_input(graph)
    expected = reference.run(program.graph, inputs, target.arithmetic)
    with target.open(None).load(program) as session:
        for poison in (0x00, 0xA5):
            session.poison(poison)
            for name, value in session.trace(inputs).items():
                np.testing.assert_array_equal(value, expected[name], err_msg=f"{name} (poison {poison:#x})")
            assert_borders(program, session, poison)
            session.poison(poison ^ 0xFF)
            if hasattr(session, "trace_halves"):
                for name, value in session.trace_halves(inputs).items():
                    np.testing.assert_array_equal(value, expected[name], err_msg=f"{name} in halves")
            for order in (1, 2, 0) if hasattr(session, "order") else (0,):
                if hasattr(session, "order"):  # of two contexts the first always first, the second, none
                    session.order(order)
                    session.poison(poison ^ 0xFF)
                for name, value in session.run(inputs).items():
                    np.testing.assert_array_equal(value, expected[name], err_msg=f"{name} in order {order}")


def assert_borders(program, session, poison: int) -> None:
    before, arena, behind = session.dump()
    assert set(before) <= {poison}  # an image has none
    assert set(behind) <= {poison}
    inside = np.zeros(len(arena), bool)
    for buffer in program.plan["buffers"]:
        for row in range(buffer.get("rows", 1)):  # of an image
            start = buffer["offset"] + row * buffer.get("pitch", 0)
            inside[start : start + buffer["size"]] = True
    outside = np.frombuffer(arena, np.uint8)[~inside]
    assert (outside == poison).all()


GEOMETRY = st.fixed_dictionaries(
    {
        "height": st.integers(1, 20),
        "width": st.integers(1, 40),
        "channels": st.integers(1, 13),
        "outputs": st.integers(1, 21),
        "kernel": st.tuples(st.integers(1, 5), st.integers(1, 5)),
        "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "pads": st.tuples(*[st.integers(0, 3)] * 4),
        "dilations": st.tuples(st.integers(1, 2), st.integers(1, 2)),
        "seed": st.integers(0, 99),
    }
)


def fits(g, kernel, dilations=(1, 1)) -> bool:
    size = (g["height"], g["width"])
    return all(
        size[i] + g["pads"][i] + g["pads"][i + 2] >= (kernel[i] - 1) * dilations[i] + 1 for i in range(2)
    )

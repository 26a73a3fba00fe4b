"""Random networks of floats on the targets that take them."""

import pytest

from sdk.graph import OPERATORS
from tests.amount import amount
from tests.contract.random_plain_networks import check, network
from tests.contract.targets import quick
from tests.opencl_substitute import require_opencl

SEEDS = (3, 8)
FIRST = 100
PLAIN_TARGETS = ("amd-gfx1100", "amd-gfx1201", "c")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_network(seed):
    check(quick("amd-gfx1100"), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + amount(3, 8)))
def test_a_network_on_opencl(seed):
    """Fewer: PoCL compiles each kernel."""
    require_opencl()
    check(quick("adreno-a6xx"), seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN_TARGETS)
def test_dozens_of_networks(name):
    """`python -m tests.contract.random_plain_networks` tries thousands."""
    target = quick(name)
    for seed in range(FIRST, FIRST + amount(4, 40)):
        check(target, seed)


def test_a_network_depends_on_its_seed_alone():
    first, again = (network(5)[0] for _ in range(2))
    assert first.nodes == again.nodes


@pytest.mark.slow
def test_families_of_floats_are_in_them():
    found = {type(node).__name__ for seed in range(FIRST, FIRST + 200) for node in network(seed)[0].nodes}
    absent = {
        *("Quantize", "Dequantize", "Gemm", "Add", "Mul", "Requantize", "Lookup", "Pad", "Resize"),
        *("GlobalAveragePool", "Interpolate", "GatherND", "GridSample", "Recurrent", "Region"),
    }
    assert found == set(OPERATORS) - absent

"""Random networks on every target: the cases that no hand-written test covers."""

import pytest

from sdk.graph import OPERATORS, Dequantize, Quantize, Region, Slice, Take
from sdk.verification import PLAIN
from tests.amount import amount
from tests.contract.random_networks import check, network
from tests.contract.targets import COMPILED, SIBLINGS, TARGETS, VARIANTS, quick

SEEDS = (7, 9, 16)
"""Found to be the strictest: in them, results that a target fuses are read elsewhere, are outputs, are added
to themselves, and windows with strides are over what others read."""
FIRST = 100


@pytest.mark.parametrize(
    ("target", "seed"),
    [
        pytest.param(
            *(name, seed),
            marks=pytest.mark.slow if seed != SEEDS[0] or name in VARIANTS + COMPILED else (),
        )
        for name in TARGETS
        for seed in (SEEDS[:1] if name in amount(VARIANTS + COMPILED, ()) else SEEDS)
        if name not in SIBLINGS
    ],
    indirect=["target"],
)
def test_a_network(target, seed):
    check(target, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TARGETS if name not in COMPILED + SIBLINGS])
def test_dozens_of_networks(name):
    """`python -m tests.contract.random_networks` tries thousands, and on what compiles each kernel, too."""
    target = quick(name)
    count = amount(1, 12) if name in VARIANTS else amount(3, 36)
    for seed in range(FIRST, FIRST + count):
        check(target, seed)


@pytest.mark.slow
def test_every_operator_of_integers_is_in_them():
    found = {type(node) for seed in range(FIRST, FIRST + 36) for node in network(seed).nodes}
    of_some_targets = {Slice, Take, Region}
    assert found == set(OPERATORS.values()) - {Quantize, Dequantize, *of_some_targets, *PLAIN}

"""The targets that a test of the contract is run on."""

import pytest

from sdk.targets import get_target
from tests.amount import amount
from tests.contract.targets import CARDS, COMPILED, LONG, PROCESSES, QUICK, TARGETS, VARIANTS, quick


@pytest.fixture(params=QUICK)
def target(request):
    return quick(request.param)


@pytest.fixture(
    params=[
        name if name == "c" else pytest.param(name, marks=pytest.mark.slow)
        for name in TARGETS
        if name not in amount(VARIANTS + COMPILED, ())
    ]
)
def each(request):
    """As `target`, for single operators, which `test_every_operator_once` has too: one is quick.

    Variants of a target have these operators in networks: that one, random ones, and convolutions, pools and
    movements of any shape; Adreno in that one and in tests/unit/test_adreno_lowering.py.
    """
    return quick(request.param)


@pytest.fixture(params=[case for case in LONG if case == "hexagon-v65" or case.values[0] in PROCESSES])
def with_process(request):
    return get_target(request.param)


@pytest.fixture(params=[case for case in LONG if case == "hexagon-v65" or case.values[0] in CARDS])
def whole(request):
    return get_target(request.param)

"""Mistakes planted in the kernels that the Adreno lowering writes: the check must find each of them.

Those of products are in test_adreno_products.py.
"""

import pytest

from dsp.adreno.context import Context
from dsp.adreno.target import adreno_a6xx
from tests.opencl_substitute import require_opencl
from tests.plain_mutations import MUTATIONS, outside

require_opencl()
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found():
    return outside(adreno_a6xx(), Context, "float32")


@pytest.mark.parametrize("mistake", MUTATIONS)
def test_a_mistake_is_outside(found, mistake):
    assert found[False][mistake] == 0
    assert found[True][mistake] > 0

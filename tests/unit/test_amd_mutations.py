"""Mistakes planted in the kernels that the AMD lowering writes: the check must find each of them.

Those of products are in test_amd_products.py.
"""

import pytest

from tests import shader_gpu
from tests.plain_mutations import MUTATIONS, outside
from usbgpu.target.context import Context


@pytest.fixture(scope="module")
def found():
    return outside(shader_gpu.target("gfx1100"), Context)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MUTATIONS)
def test_a_mistake_is_outside(found, mistake):
    assert found[False][mistake] == 0
    assert found[True][mistake] > 0

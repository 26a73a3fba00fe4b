"""A float network of 300 MB: memory from the model to its answers. `tests.large_network` takes any size."""

import pytest

from tests import large_network


@pytest.mark.slow
def test_a_large_network_takes_its_size_of_memory_once(tmp_path):
    large_network.make_model(tmp_path, 3e8)
    found = large_network.measure(tmp_path)
    assert found["error"] < 1e-5
    assert found["file"] < 1.001 * found["model"]
    assert found["network"] < 1.05 * found["model"]  # it touches all of the weights, once
    assert found["grown"] < 1.3

"""The zoo's networks of pictures: all but Quantize and Dequantize at their ends on hexagon-v65."""

import numpy as np
import pytest

from sdk.check import check
from sdk.compiler import compile
from sdk.graph import Dequantize, Quantize
from sdk.session import Session
from sdk.zoo.benchmark import write_quantized
from sdk.zoo.catalogue import find


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "input_name"),
    [
        ("segmentation_0.5_64_int8", "input"),
        ("detector_one_stage_0.5_64_int8", "images"),
        ("depth_0.5_64_int8", "image"),
    ],
)
def test_a_network_is_whole_on_the_dsp(name, input_name, tmp_path):
    write_quantized(find(name), tmp_path / "q.onnx")
    network = compile(tmp_path / "q.onnx", "hexagon-v65")
    assert [segment.place for segment in network.segments] == ["host", "device", "host"]
    hosted = {node.name: node for node in network.graph.nodes if node.name in network.hosted}
    assert all(isinstance(node, Quantize | Dequantize) for node in hosted.values())
    picture = np.random.default_rng(0).random((1, 3, 64, 64), np.float32)
    with Session(network) as session:
        found = check(network, session, {input_name: picture})
    assert found.mismatches == 0
    assert found.elements > 100_000

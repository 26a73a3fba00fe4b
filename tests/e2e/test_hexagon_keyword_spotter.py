"""The zoo's keyword spotter, its recurrence unrolled: all but its ends on hexagon-v65."""

import numpy as np
import pytest

from sdk.check import check
from sdk.compiler import compile
from sdk.session import Session
from sdk.zoo.benchmark import write_quantized
from sdk.zoo.catalogue import find


@pytest.mark.slow
def test_a_keyword_spotter_is_whole_on_the_dsp(tmp_path):
    name = find("keyword_spotter_0.5_2000_int8")
    write_quantized(name, tmp_path / "q.onnx")
    network = compile(tmp_path / "q.onnx", "hexagon-v65")
    assert [segment.place for segment in network.segments] == ["host", "device", "host"]
    end = {"audio_QuantizeLinear", "classifier_DequantizeLinear"}
    assert {node for node in network.hosted if not node.startswith("log_probabilities")} == end
    sound = np.random.default_rng(0).normal(0, 1, (1, 1, 2000)).astype(np.float32)
    with Session(network) as session:
        found = check(network, session, {"audio": sound})
    assert found.mismatches == 0
    assert found.elements > 10_000

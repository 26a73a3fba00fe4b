"""Networks that onnxruntime quantises, in its formats and widths: as near to the float network as there.

The signal-to-noise ratio against the float network is compared with that of onnxruntime on the same file.
"""

import contextlib
import io
import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from sdk import dtypes, reference
from sdk.check import check
from sdk.compiler import compile
from sdk.importers import load_onnx
from sdk.session import Session
from sdk.zoo import detector, mobilenet_v3_small
from tests.amount import amount
from tests.onnx_models import oracle

NETWORKS = {
    "detector": lambda: detector(width=0.25, size=48),
    "mobilenet": lambda: mobilenet_v3_small(width=0.5, size=48),
}
U8, S8, U16, S16, S4 = (
    getattr(QuantType, f"Q{name}") for name in ("UInt8", "Int8", "UInt16", "Int16", "Int4")
)
QDQ, OPERATOR = QuantFormat.QDQ, QuantFormat.QOperator
CONTRIB = {"UseQDQContribOps": True}
SETTINGS = {
    "U8S8 per channel": (QDQ, U8, S8, {"per_channel": True}),
    "U8S8 reduced range": (QDQ, U8, S8, {"per_channel": True, "reduce_range": True}),
    "S8S8": (QDQ, S8, S8, {"per_channel": True}),
    "S8S8 symmetric": (QDQ, S8, S8, {"extra_options": {"ActivationSymmetric": True}}),
    "U8U8": (QDQ, U8, U8, {}),
    "weights quantised in the graph": (QDQ, U8, S8, {"extra_options": {"AddQDQPairToWeight": True}}),
    "float biases": (QDQ, U8, S8, {"extra_options": {"QuantizeBias": False}}),
    "a pair for each reader": (QDQ, U8, S8, {"extra_options": {"DedicatedQDQPair": True}}),
    "convolutions alone": (QDQ, U8, S8, {"op_types_to_quantize": ["Conv"]}),
    "U16S8": (QDQ, U16, S8, {"extra_options": CONTRIB}),
    "S16S16": (QDQ, S16, S16, {"extra_options": CONTRIB}),
    "U8S4": (QDQ, U8, S4, {"extra_options": CONTRIB}),
    "QOperator U8S8": (OPERATOR, U8, S8, {"per_channel": True}),
    "QOperator U8U8": (OPERATOR, U8, U8, {}),
    "QOperator S8S8": (OPERATOR, S8, S8, {"per_channel": True}),
}
QUICK = (("detector", "U16S8"), ("detector", "QOperator U8S8"))
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow, id="-".join(case))
    for case in itertools.product(NETWORKS, SETTINGS)
    if case in QUICK or amount(case in zip(itertools.cycle(NETWORKS), SETTINGS, strict=False), True)
]


class Samples(CalibrationDataReader):
    def __init__(self, samples):
        self._samples = iter(samples)

    def get_next(self):
        return next(self._samples, None)


def noise(found, wanted):
    """Signal to noise in dB."""
    error = np.asarray(found, np.float64) - wanted
    return 10 * np.log10(np.square(wanted, dtype=np.float64).mean() / np.square(error).mean())


@pytest.mark.parametrize(("network", "setting"), CASES)
def test_a_network_is_as_near_to_the_float_one_as_in_onnxruntime(network, setting, tmp_path):
    form, activation, weight, options = SETTINGS[setting]
    real, path = tmp_path / "float.onnx", tmp_path / "quantised.onnx"
    onnx.save(NETWORKS[network](), real)
    random = np.random.default_rng(0)
    samples = [{"input": random.normal(0, 1, (1, 3, 48, 48)).astype(np.float32)} for _ in range(4)]
    with contextlib.redirect_stdout(io.StringIO()):
        quantize_static(
            real,
            path,
            Samples(samples[1:]),
            quant_format=form,
            activation_type=activation,
            weight_type=weight,
            **options,
        )
    session = onnxruntime.InferenceSession(real, providers=["CPUExecutionProvider"])
    exact = dict(zip([v.name for v in session.get_outputs()], session.run(None, samples[0]), strict=True))
    theirs = oracle(onnx.load(path), samples[0], signed=activation in (S8, S16))
    graph = load_onnx(path)
    ours = reference.run(graph, samples[0])
    for name, wanted in exact.items():
        found = dtypes.decode(ours[name], graph.tensor(name).dtype)
        assert noise(found, wanted) >= noise(theirs[name], wanted) - 0.5, name
    if (network, setting) in QUICK:
        return
    artifact = compile(path, target="c")
    with Session(artifact) as running:
        assert check(artifact, running, samples[0]).passed

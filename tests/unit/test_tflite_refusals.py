"""TFLite that is refused: by operator and index, with what to do; and files that are damaged."""

import struct

import numpy as np
import pytest

from sdk.errors import InvalidModel, TowlineError, Unsupported, UsageError
from sdk.importers import load_model
from sdk.importers.tflite import import_tflite
from sdk.importers.tflite.file import parse_tflite
from tests.amount import amount
from tests.tflite_writer import Writer

SCALED = {"scale": 0.05, "zero_point": 3}
CONV = {"StrideH": 1, "StrideW": 1}


class Small:
    """x -> RELU (so that there is something to run) -> one more operator -> y."""

    def __init__(self, shape=(1, 6, 6, 4)):
        self.w = Writer()
        self.x = self.w.tensor("x", shape, "int8", **SCALED)
        self.r = self.w.tensor("r", shape, "int8", **SCALED)
        self.w.operator("RELU", [self.x], self.r)

    def finish(self, op, inputs=(), shape=(1, 6, 6, 4), table="", *, dtype="int8", scaled=SCALED, **options):
        y = self.w.tensor("y", shape, dtype, **(scaled if dtype != "float32" else {}))
        self.w.operator(op, [self.r, *inputs], y, table, **options)
        return self.w.content([self.x], [y])

    def conv(self, *, weight=None, bias=(), weight_scale=0.01, **options):
        weight = np.ones((2, 3, 3, 4), np.int8) if weight is None else weight
        number = self.w.constant("w", weight, scale=weight_scale)
        return self.finish("CONV_2D", [number, *bias], (1, 6, 6, 2), "Conv2DOptions", **(CONV | options))


def load(content):
    return import_tflite(parse_tflite(content, "test.tflite"))


def constant(small, array, **quantization):
    return small.w.constant(f"c{len(small.w.tensors)}", np.asarray(array), **quantization)


def test_what_is_refused_here_passes_when_it_is_whole():
    assert [node.op for node in load(Small().conv()).nodes] == [
        "Requantize",
        "Transpose",
        "Conv",
        "Transpose",
    ]


UNSUPPORTED = {
    "operator": (lambda s: s.finish("REVERSE_SEQUENCE"), "REVERSE_SEQUENCE"),
    "custom operator": (lambda s: s.finish("TFLite_Detection"), "TFLite_Detection"),
    "newer operator": (lambda s: s.finish("DILATE"), "DILATE"),
    "loop": (lambda s: s.finish("WHILE"), "WHILE"),
    "activation": (lambda s: s.conv(FusedActivationFunction=5), "CONV_2D"),
    "shuffled weights": (
        lambda s: s.finish(
            "FULLY_CONNECTED", [constant(s, np.ones((5, 4), np.int8), **SCALED)], (36, 5),
            "FullyConnectedOptions", WeightsFormat=1,
        ), "FULLY_CONNECTED"
    ),
    "size of no constant": (lambda s: s.finish("RESIZE_BILINEAR", [s.x]), "RESIZE_BILINEAR"),
    "batch_dims": (
        lambda s: s.finish("GATHER", [constant(s, np.zeros(1, np.int32))], (1, 6, 6, 4), "GatherOptions",
                           BatchDims=1),
        "GATHER",
    ),
    "handle of nothing": (lambda s: s.finish("READ_VARIABLE"), "READ_VARIABLE"),
    "nothing before it": (
        lambda s: s.finish("ADD", [s.w.tensor("z", (1, 1, 1, 4), "int8", **SCALED)], table="AddOptions"),
        "ADD",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported(case):
    make, op = UNSUPPORTED[case]
    with pytest.raises(TowlineError) as raised:
        load(make(Small()))
    assert raised.value.where == f"operator 1 ({op})"
    assert raised.value.code in ("unsupported", "invalid-model")


def test_all_refusals_at_once():
    small = Small()
    for i, op in enumerate(("REVERSE_SEQUENCE", "RELU", "Custom")):
        small.w.operator(op, [small.r], small.w.tensor(f"t{i}", (1, 6, 6, 4), "int8", **SCALED))
    small.w.operator("RELU", [small.r + 1], small.w.tensor("lost", (1, 6, 6, 4), "int8", **SCALED))
    with pytest.raises(Unsupported) as raised:
        load(small.finish("DILATE"))
    assert [refusal.op for refusal in raised.value.refusals] == ["REVERSE_SEQUENCE", "Custom", "DILATE"]


INVALID = {
    "output shape": lambda s: s.finish("RELU", shape=(1, 6, 4, 6)),
    "no options": lambda s: s.finish("CONV_2D", [constant(s, np.ones((2, 3, 3, 4), np.int8), scale=0.1)]),
    "stride 0": lambda s: s.conv(StrideH=0),
    "huge dilation": lambda s: s.conv(DilationHFactor=2**31 - 1),
    "padding": lambda s: s.conv(Padding=2),
    "weight of rank 3": lambda s: s.conv(weight=np.ones((2, 3, 4), np.int8)),
    "weight of other channels": lambda s: s.conv(weight=np.ones((2, 3, 3, 3), np.int8)),
    "weight scale": lambda s: s.conv(weight_scale=-0.1),
    "weight scales": lambda s: s.conv(weight_scale=[0.1, 0.1, 0.1]),
    "weight scale NaN": lambda s: s.conv(weight_scale=np.nan),
    "bias of other length": lambda s: s.conv(bias=[constant(s, np.zeros(3, np.int32))]),
    "bias of other scales": lambda s: s.conv(bias=[constant(s, np.zeros(2, np.int32), scale=[0.1] * 3)]),
    "bias of another scale": lambda s: s.conv(bias=[constant(s, np.zeros(2, np.int32), scale=1.0)]),
    "zero-point": lambda s: s.finish("RELU", scaled={"scale": 0.05, "zero_point": 128}),
    "huge zero-point": lambda s: s.finish("RELU", scaled={"scale": 0.05, "zero_point": 2**40}),
    "scale 0": lambda s: s.finish("RELU", scaled={"scale": 0.0}),
    "infinite scale": lambda s: s.finish("TANH", scaled={"scale": np.inf}),
    "no scale": lambda s: s.finish("TANH", scaled={}),
    "two scales": lambda s: s.finish("TANH", scaled={"scale": [0.1, 0.2]}),
    "reshape": lambda s: s.finish("RESHAPE", [constant(s, np.array([7, -1], np.int32))], (7, 20)),
    "reshape to nothing": lambda s: s.finish("RESHAPE", [constant(s, np.array([0, -1], np.int32))], (0,)),
    "perm": lambda s: s.finish("TRANSPOSE", [constant(s, np.array([0, 1, 2, 2], np.int32))]),
    "axes of floats": lambda s: s.finish("MEAN", [constant(s, np.array([1.0, 2.0], np.float32))]),
    "a pool that rescales": lambda s: s.finish(
        "MAX_POOL_2D", (), table="Pool2DOptions", scaled={"scale": 0.1, "zero_point": 3}, FilterHeight=1,
        FilterWidth=1, **CONV
    ),
    "concatenation axis": lambda s: s.finish("CONCATENATION", [s.r], table="ConcatenationOptions", Axis=4),
    "negative pads": lambda s: s.finish("PAD", [constant(s, np.full((4, 2), -1, np.int32))]),
    "its own input": lambda s: s.finish("ADD", [len(s.w.tensors)], table="AddOptions"),
    "tensor out of range": lambda s: s.finish("ADD", [99], table="AddOptions"),
    "no input": lambda s: s.finish("ADD", [-1], table="AddOptions"),
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID)
def test_invalid(case):
    with pytest.raises(InvalidModel):
        load(INVALID[case](Small()))


@pytest.mark.parametrize("rewritten", ["x", "c"])
def test_an_output_that_is_defined_already(rewritten):
    small = Small()
    target = small.x if rewritten == "x" else constant(small, np.zeros((1, 6, 6, 4), np.int8), **SCALED)
    small.w.operator("TANH", [small.r], target)
    with pytest.raises(InvalidModel, match=r"operator 1 \(TANH\).*already defined"):
        load(small.w.content([small.x], [small.r]))


def test_graph_outputs_that_nothing_computes():
    small = Small()
    lost = small.w.tensor("lost", (1, 4), "int8", **SCALED)
    fixed = constant(small, np.zeros(4, np.int8), **SCALED)
    for output, message in ((lost, "no operator"), (fixed, "constant"), (small.x, "graph input")):
        with pytest.raises(TowlineError, match=message):
            load(small.w.content([small.x], [output]))


def test_files_that_are_not_models(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        load_model(tmp_path / "missing.tflite")
    (tmp_path / "directory.tflite").mkdir()
    with pytest.raises(UsageError, match="is a directory"):
        load_model(tmp_path / "directory.tflite")
    for name, content in {"empty": b"", "text": b"no flatbuffer", "short": b"\0\0\0\0TFL3"}.items():
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(content)
        with pytest.raises(InvalidModel):
            load_model(path)


# --- damage -------------------------------------------------------------------------------------------------


def network():
    """A file with all kinds of parts: options, vectors of each type, several buffers."""
    small = Small()
    middle = small.w.tensor("middle", (1, 6, 6, 2), "int8", **SCALED)
    weight = small.w.constant("w", np.ones((2, 3, 3, 4), np.int8), scale=[0.01, 0.02])
    bias = small.w.constant("b", np.ones(2, np.int32), scale=[0.0005, 0.001])
    small.w.operator("CONV_2D", [small.r, weight, bias], middle, "Conv2DOptions", **CONV)
    y = small.w.tensor("y", (1, 72), "int8", signature=(-1, 72), **SCALED)
    shape = small.w.constant("shape", np.array([-1, 72], np.int32))
    small.w.operator("RESHAPE", [middle, shape], y, "ReshapeOptions", NewShape=[-1, 72])
    return small.w.content([small.x], [y])


def survive(content):
    """Import it, or refuse it with an error of ours; returns whether it was imported."""
    try:
        load(content)
    except (InvalidModel, Unsupported):
        return False
    return True


def test_every_truncation():
    content = network()
    assert survive(content)
    for length in range(len(content)):
        with pytest.raises(InvalidModel):
            load(content[:length])


def flips(content, count, seed):
    """Damaged copies: a random word, byte or bit, at a random place; sometimes several."""
    random = np.random.default_rng(seed)
    words = (0, 1, 4, 0x7F, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(content))
    for _ in range(count):
        damaged = bytearray(content)
        for _ in range(random.integers(1, 4)):
            at = int(random.integers(0, len(content) - 4))
            match random.integers(4):
                case 0:
                    damaged[at] ^= 1 << random.integers(8)
                case 1:
                    damaged[at] = random.integers(256)
                case 2:
                    struct.pack_into("<I", damaged, at & ~3, int(random.choice(words)))
                case _:
                    length = int(random.integers(1, 64))
                    source = int(random.integers(0, len(content)))
                    piece = content[source : source + min(length, len(content) - at)]
                    damaged[at : at + len(piece)] = piece
        yield bytes(damaged)


@pytest.mark.slow
def test_random_damage():
    outcomes = [survive(damaged) for damaged in flips(network(), 250, seed=0)]
    assert {True, False} == set(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_much_random_damage(seed):
    outcomes = [survive(damaged) for damaged in flips(network(), amount(2_500, 10_000), seed)]
    assert {True, False} == set(outcomes)


@pytest.mark.slow
def test_every_word_of_the_file():
    """Each aligned word as an offset, length or number that is out of range."""
    content = network()
    for at in range(0, len(content) - 3, 4):
        damaged = bytearray(content)
        struct.pack_into("<I", damaged, at, (0x7FFFFFFF, 0xFFFFFFFF, len(content))[at // 4 % 3])
        survive(bytes(damaged))


def test_a_vector_that_all_tensors_share():
    """Quadratic in the file's size for a reader that copies each: refused by the budget, at once."""
    writer = Writer()
    x = writer.tensor("x", (1, 4), "int8", scale=np.ones(20_000), zero_point=0)
    for i in range(200):
        writer.tensor(f"t{i}", (1, 4), "int8", scale=[0.5])
    y = writer.tensor("y", (1, 4), "int8", scale=[0.5])
    writer.operator("RELU", [x], y)
    content = bytearray(writer.content([x], [y]))
    long = content.index(struct.pack("<I", 20_000) + np.ones(20_000, np.float32).tobytes())
    short, at = struct.pack("<If", 1, 0.5), 0
    redirected = 0
    for place in range(0, len(content) - 4, 4):  # offsets to a short scale now lead to the long one
        (offset,) = struct.unpack_from("<I", content, place)
        at = place + offset
        if offset and at < long and content[at : at + 8] == short:
            struct.pack_into("<I", content, place, long - place)
            redirected += 1
    assert redirected > 200
    with pytest.raises(InvalidModel, match="scale vector"):
        load(bytes(content))


@pytest.mark.parametrize("shape", [(1, 2**31 - 1, 1, 1), (1, 2**16, 2**16, 4), (2**30,)])
def test_tensors_that_are_too_large(shape):
    with pytest.raises((InvalidModel, Unsupported)):
        load(Small(shape).finish("TANH", shape=shape))


def test_a_small_file_that_needs_much_memory():
    small = Small()
    size = constant(small, np.array([2**31 - 1, 2**31 - 1], np.int32))
    content = small.finish("RESIZE_NEAREST_NEIGHBOR", [size])
    with pytest.raises(Unsupported, match="a size of"):
        load(content)
    small = Small()
    pads = constant(small, np.array([[0, 0], [2**31 - 1] * 2, [2**31 - 1] * 2, [0, 0]], np.int32))
    with pytest.raises(Unsupported, match="exceeds"):
        load(small.finish("PAD", [pads]))

"""What a `.tow` keeps of its programs and constants: each once, mapped, and found where it is damaged."""

import contextlib
import dataclasses
import io
import json
import math
import zipfile
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.artifact import Artifact, load, save
from sdk.errors import InvalidArtifact, InvalidModel, TowlineError
from sdk.expression import trace
from sdk.expression.trace import apply
from sdk.graph import Fill, Graph, Map, MatMul, Recurrent, Region, Tensor
from sdk.graph_json import Members, graph_from_json
from sdk.segments import cut
from sdk.target import Options
from sdk.verification import verify
from sdk.weights import Weights
from tests.artifacts import from_bytes, make, members, to_bytes
from tests.reference_target import ReferenceTarget, small_network
from towline.cli import main


def documents(data):
    return json.loads(members(data)["graph.json"])


def places(graph):
    return {tensor["name"]: tensor["data"] for tensor in graph["tensors"] if tensor["data"]}


def test_each_constant_is_stored_once():
    data = to_bytes(make())
    network, body = places(documents(data)["network"]), places(documents(data)["programs"][0])
    assert network == body
    assert {member for member, _ in network.values()} == {"programs/0/weights.bin"}
    tensors = make().graph.tensors.values()
    scales = [t.quantization.scale.nbytes for t in tensors if t.data is not None]
    assert len(members(data)["constants.bin"]) <= sum(2 * scale + 64 for scale in scales)


def test_a_constant_that_the_target_packs_is_stored_beside_the_weights():
    made = make()
    packed = bytes(made.program.weights)[::-1]
    made.program.weights = Weights.of(packed)
    data = to_bytes(made)
    read = from_bytes(data)
    assert bytes(read.program.weights) == packed
    network, body = places(documents(data)["network"]), places(documents(data)["programs"][0])
    assert network == body
    assert {member for member, _ in network.values()} == {"constants.bin"}
    for name, tensor in made.graph.tensors.items():
        assert tensor.data is None or np.array_equal(read.graph.tensor(name).data, tensor.data)
    assert to_bytes(read) == data


def test_equal_data_in_other_memory_is_found():
    made = make()
    tensors = made.graph.tensors.values()
    copies = [dataclasses.replace(t, data=None if t.data is None else t.data.copy()) for t in tensors]
    made.graph = dataclasses.replace(made.graph, tensors={tensor.name: tensor for tensor in copies})
    assert to_bytes(made) == to_bytes(make())


def test_sizes_of_64_bits(monkeypatch):
    monkeypatch.setattr("sdk.archive.ZIP64", 0)
    data = to_bytes(make())
    assert bytes(from_bytes(data).program.weights) == bytes(make().program.weights)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
    assert from_bytes(data).program.weights.file[1] % 4096 == 0


# -- several programs -----------------------------------------------------------------------------------

HOSTED = ("quantize", "flatten", "dequantize", "softmax")


def in_parts(**changes):
    graph = small_network()
    parts = [part.graph for part in cut(graph, HOSTED) if part.place == "device"]
    programs = tuple(ReferenceTarget().compile(part, Options()) for part in parts)
    return dataclasses.replace(Artifact(programs, graph, "q31", hosted=HOSTED), **changes)


def test_several_programs():
    made = in_parts()
    data = to_bytes(made)
    read = from_bytes(data)
    assert read.hosted == HOSTED
    assert [[node.name for node in program.graph.nodes] for program in read.programs] == [["conv"], ["gemm"]]
    for program, original in zip(read.programs, made.programs, strict=True):
        assert bytes(program.weights) == bytes(original.weights)
        assert program.plan == original.plan
    assert to_bytes(read) == data
    used = {member for member, _ in places(documents(data)["network"]).values()}
    assert used == {"programs/0/weights.bin", "programs/1/weights.bin"}


def test_inspect_shows_all_programs(tmp_path, capsys):
    path = tmp_path / "net.tow"
    save(in_parts(), path)
    assert main(["inspect", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["result"]
    assert {name: document["bytes"][name] for name in ("0/weights", "1/weights")} == {
        f"{n}/weights": program.weights.nbytes for n, program in enumerate(in_parts().programs)
    }


def test_inspect_shows_nodes_within_nodes(tmp_path, capsys):
    graph = plain_network()
    save(
        Artifact((ReferenceTarget().compile(graph, Options()),), graph, "f32", hosted=()), tmp_path / "n.tow"
    )
    assert main(["inspect", str(tmp_path / "n.tow"), "--json"]) == 0
    region, fill, loop = json.loads(capsys.readouterr().out)["result"]["nodes"]
    assert [node["op"] for node in (*region["nodes"], *loop["body"])] == ["Map", "Map", "MatMul", "Map"]
    assert fill["value"] == "-inf"


@pytest.mark.parametrize(
    "changes",
    [
        {"programs": in_parts().programs[::-1]},
        {"programs": in_parts().programs[:1]},
        {"hosted": ("quantize", "dequantize", "softmax")},
        {"hosted": (*HOSTED, "absent")},
        {"hosted": tuple(node.name for node in small_network().nodes)},
        {"states": (("probabilities", "picture"),)},
        {"states": (("absent", "picture"),)},
    ],
    ids=count(),
)
def test_programs_places_and_states_that_do_not_fit_the_network_are_refused(changes):
    with pytest.raises(InvalidArtifact) as caught:
        from_bytes(to_bytes(in_parts(**changes)))
    assert caught.value.where.endswith("net.tow")


# -- plain networks -------------------------------------------------------------------------------------


def plain(name, *shape, data=None):
    return Tensor(name, shape, "float32", None, data)


def named(*tensors):
    return {tensor.name: tensor for tensor in tensors}


def plain_network():
    """Constants that are not finite, a region, and a recurrence with a body of its own."""
    weight = np.arange(9, dtype=np.float32).reshape(3, 3)
    masked = trace(lambda x: apply("max", x, -math.inf) + apply("min", x, math.nan), "real")
    body = Graph(
        "body",
        ("x", "h"),
        ("y",),
        named(
            *(plain("x", 1, 3), plain("h", 1, 3), plain("xw", 1, 3), plain("y", 1, 3)),
            plain("weight", 3, 3, data=weight),
        ),
        (
            MatMul("multiply", ("x", "weight"), "xw", transposed=False),
            Map("add", ("xw", "h"), "y", expression=trace(lambda x, h: x + h, "real", "real")),
        ),
    )
    region = (
        Map("mask", ("state",), "masked", expression=masked),
        Map("double", ("masked",), "next_state", expression=trace(lambda x: x + x, "real")),
    )
    nodes = (
        Region("region", ("state",), "next_state", nodes=region),
        Fill("fill", ("state",), "filled", befores=(0, 1), afters=(0, 0), value=-math.inf),
        Recurrent("steps", ("sequence", "h"), "hs", body=body, steps=4, sequences=1, backward=True),
    )
    tensors = named(
        *(plain("state", 2, 3), plain("masked", 2, 3), plain("next_state", 2, 3), plain("filled", 2, 4)),
        *(plain("sequence", 4, 1, 3), plain("h", 1, 3), plain("hs", 4, 1, 1, 3)),
    )
    return Graph("plain", ("state", "sequence", "h"), ("next_state", "filled", "hs"), tensors, nodes)


def test_states_regions_and_recurrences_come_back():
    graph = plain_network()
    program = ReferenceTarget().compile(graph, Options())
    made = Artifact((program,), graph, "f32", hosted=(), states=(("next_state", "state"),))
    data = to_bytes(made)
    read = from_bytes(data)
    assert read.states == made.states
    assert repr(read.graph.nodes[:2]) == repr(graph.nodes[:2])  # NaN differs from NaN
    loop, original = read.graph.nodes[2], graph.nodes[2]
    assert dataclasses.replace(loop, body=None) == dataclasses.replace(original, body=None)
    assert loop.body.nodes == original.body.nodes
    assert np.array_equal(loop.body.tensors["weight"].data, original.body.tensors["weight"].data)
    assert to_bytes(read) == data


def leaves(value, path=()):
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from leaves(value[key], (*path, key))


PLAIN = to_bytes(Artifact((ReferenceTarget().compile(plain_network(), Options()),), plain_network(), "f32"))
PLAIN_LEAVES = [path for path in leaves(documents(PLAIN)["network"]) if path]
PLAIN_VALUES = [
    *(None, True, 0, 1, -1, 5, 2**31, 2**70, 1.5, [], {}, [1], [0, 0], [[1]], ["programs/0/weights.bin", 0]),
    *("x", "y", "state", "Map", "Region", "inf", "nan", "max", "float16", "real", "int"),
]


def forged(path, value):
    """The plain network with another value at a path of its JSON, verified; or it is refused."""
    network = documents(PLAIN)["network"]
    place = network
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    views = Members({name: memoryview(each) for name, each in members(PLAIN).items()})
    with contextlib.suppress(TowlineError):
        verify(graph_from_json(network, views))


def test_an_expression_of_another_number_of_inputs_is_refused():
    forged(("nodes", 2, "body", "nodes", 1, "inputs"), ["x"])
    forged(("nodes", 2, "body", "nodes", 1, "expression", "inputs"), ["real"])


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(PLAIN_LEAVES), st.sampled_from(PLAIN_VALUES))
def test_forged_plain_graphs_are_refused_or_sound(path, value):
    forged(path, value)


def test_regions_nested_without_end_are_refused():
    data = to_bytes(make())
    graph = documents(data)["network"]
    for _ in range(400):
        inner = {"op": "Region", "name": "r", "inputs": ["picture"], "output": "x", "nodes": graph["nodes"]}
        graph["nodes"] = [inner]
    with pytest.raises(InvalidModel):
        graph_from_json(graph, Members({name: memoryview(each) for name, each in members(data).items()}))


# -- mapped files ---------------------------------------------------------------------------------------


def large():
    """Three matrices of 3 MB each, in three chunks."""
    data = [np.random.default_rng(n).standard_normal((600, 1250), np.float32) for n in range(3)]
    tensors = named(
        *(plain("x", 1, 1250), plain("y", 1, 600), plain("z", 1, 1250), plain("w", 1, 600)),
        *(plain(f"weight{n}", 600, 1250, data=each) for n, each in enumerate(data)),
    )
    nodes = (
        MatMul("first", ("x", "weight0"), "y", transposed=True),
        MatMul("second", ("y", "weight1"), "z", transposed=False),
        MatMul("third", ("z", "weight2"), "w", transposed=True),
    )
    graph = Graph("large", ("x",), ("w",), tensors, nodes)
    return Artifact((ReferenceTarget().compile(graph, Options()),), graph, "f32", hosted=())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.tow"
    save(large(), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("at", "named"), [(0, [0, 1]), (5_000_000, [1, 2]), (8_999_000, [2])])
def test_a_damaged_chunk_names_its_tensors(file, at, named):
    start = load(file).program.weights.file[1]
    with file.open("r+b") as stream:
        stream.seek(start + at)
        byte = stream.read(1)
        stream.seek(start + at)
        stream.write(bytes([byte[0] ^ 1]))
    with pytest.raises(InvalidArtifact) as caught:
        load(file)
    assert [n for n in range(3) if f"'weight{n}'" in caught.value.message] == named


@pytest.mark.slow
def test_constants_and_weights_are_views_of_the_file(file):
    read = load(file)
    save(make(), file)  # another file takes its name
    whole = np.frombuffer(read.program.weights.file[0].view, np.uint8)
    for graph in (read.graph, read.program.graph):
        for n in range(3):
            data = graph.tensor(f"weight{n}").data
            assert np.shares_memory(data, whole)
            assert not data.flags.writeable
            assert np.array_equal(data, large().graph.tensor(f"weight{n}").data)

import io
import json
import resource
import stat
import struct
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.archive import digests
from sdk.artifact import load, save
from sdk.errors import InvalidArtifact, InvalidModel, OutputFailed, UsageError
from sdk.graph_json import Members, graph_from_json
from sdk.preprocess import InputStatistics, Preprocessing
from sdk.weights import Weights
from tests import artifacts
from tests.artifacts import from_bytes, make, to_bytes

DATA = to_bytes(make())


def members():
    return artifacts.members(DATA)


def fingerprint(data):
    return {"size": len(data), "sha256": digests(Weights.of(data))}


def pack(contents, *, seal=False, **options):
    """A zip of `contents`, name (or ZipInfo) -> bytes; with `seal` the manifest's hashes are made to fit."""
    contents = dict(contents)
    if seal:
        manifest = json.loads(contents["manifest.json"])
        manifest["files"] = {n: fingerprint(d) for n, d in contents.items() if n != "manifest.json"}
        contents["manifest.json"] = json.dumps(manifest).encode()
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of duplicate names
        with zipfile.ZipFile(stream, "w", **options) as archive:
            for name, data in contents.items():
                archive.writestr(name, data)
    return stream.getvalue()


def manifest_with(**changes):
    return json.dumps(json.loads(members()["manifest.json"]) | changes).encode()


def refused(data, match):
    with pytest.raises(InvalidArtifact, match=match) as caught:
        from_bytes(data)
    assert caught.value.hint or "member" in caught.value.message


def test_round_trip(tmp_path):
    made = make()
    save(made, tmp_path / "net.tow")
    read = load(tmp_path / "net.tow")
    assert (read.arithmetic, read.labels, read.source) == (made.arithmetic, made.labels, made.source)
    assert read.preprocessing == made.preprocessing
    assert InputStatistics.from_json(read.input_statistics) == InputStatistics.from_json(
        made.input_statistics
    )
    assert (read.program.plan, read.program.code) == (made.program.plan, made.program.code)
    assert bytes(read.program.weights) == bytes(made.program.weights)
    for one, other in ((read.graph, made.graph), (read.program.graph, made.program.graph)):
        assert (one.name, one.inputs, one.outputs, one.nodes, one.metadata) == (
            *(other.name, other.inputs, other.outputs, other.nodes, other.metadata),
        )
        assert list(one.tensors) == list(other.tensors)
        for tensor, twin in zip(one.tensors.values(), other.tensors.values(), strict=True):
            assert (tensor.name, tensor.shape, tensor.dtype) == (twin.name, twin.shape, twin.dtype)
            assert (tensor.quantization is None) == (twin.quantization is None)
            assert tensor.quantization is None or tensor.quantization.equals(twin.quantization)
            assert (tensor.data is None) == (twin.data is None)
            assert tensor.data is None or np.array_equal(tensor.data, twin.data)


def test_absent_parts_stay_absent():
    read = from_bytes(to_bytes(make(preprocessing=None, input_statistics=None, labels=None, source=None)))
    assert (read.preprocessing, read.input_statistics, read.labels, read.source) == (None, None, None, None)


def test_bytes_are_deterministic():
    assert to_bytes(make()) == DATA == to_bytes(from_bytes(DATA))


def test_weights_are_stored_aligned():
    with zipfile.ZipFile(io.BytesIO(DATA)) as archive:
        info = archive.getinfo("programs/0/weights.bin")
    name, extra = struct.unpack_from("<HH", DATA, info.header_offset + 26)
    start = info.header_offset + 30 + name + extra
    assert start % 4096 == 0
    assert DATA[start : start + info.file_size] == bytes(make().program.weights)


def test_no_such_file_and_directory(tmp_path):
    for path in (tmp_path / "none.tow", tmp_path, "a\0b.tow", "/dev/null"):
        with pytest.raises(UsageError, match="cannot be read"):
            load(path)


def test_error_names_the_file(tmp_path):
    path = tmp_path / "net.tow"
    path.write_bytes(b"hello")
    with pytest.raises(InvalidArtifact, match=r"net\.tow: is not a whole zip"):
        load(path)


@pytest.mark.parametrize("part", [0, 1, 10, 100, 1000, len(DATA) // 2, len(DATA) - 1, len(DATA) - 30])
def test_cut_short(part):
    refused(DATA[:part], "not a whole zip|damaged")


def test_newer_schema():
    refused(
        pack(members() | {"manifest.json": manifest_with(schema=9, towline="9.1")}),
        r"newer Towline \(9\.1\): its schema is 9",
    )


def test_older_schema():
    changes = {"schema": 1, "target": "hexagon-v65", "source": {"name": "my net.onnx", "sha256": ""}}
    with pytest.raises(InvalidArtifact) as caught:
        from_bytes(pack(members() | {"manifest.json": manifest_with(**changes)}))
    assert "towline compile 'my net.onnx' --target hexagon-v65" in caught.value.hint
    with pytest.raises(InvalidArtifact) as caught:
        from_bytes(pack({"manifest.json": b'{"schema": 1}', "weights.bin": b""}))
    assert "towline compile MODEL --target T" in caught.value.hint


@pytest.mark.parametrize("name", [n for n in members() if n != "manifest.json"])
def test_altered_member(name):
    data = members()[name]
    refused(pack(members() | {name: data[:-1] + bytes([data[-1] ^ 1])}), f"'{name}' does not match its hash")
    refused(pack(members() | {name: data + b" "}), f"'{name}' does not match its hash")
    refused(pack({n: d for n, d in members().items() if n != name}), f"has no '{name}'")


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("../x", "points outside"),
        ("code/../../x", "points outside"),
        ("/etc/passwd", "points outside"),
        ("code\\x", "points outside"),
        ("C:x", "points outside"),
        ("surplus.bin", "does not list"),
        ("code/", "not a plain file"),
    ],
)
def test_surplus_members(name, match):
    refused(pack(members() | {name: b"x"}), match)


@pytest.mark.parametrize(
    "name", ["x", "code/a", "programs/0/code/a/b", "programs/0/code/.hidden", "programs/00/plan.json"]
)
def test_listed_member_without_a_place(name):
    refused(pack(members() | {name: b""}, seal=True), "does not belong")


def test_duplicate_member():
    info = zipfile.ZipInfo("programs/0/plan.json")
    stream = io.BytesIO(DATA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(stream, "a") as archive:
            archive.writestr(info, b"{}")
    refused(stream.getvalue(), "'programs/0/plan.json' twice")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR])
def test_member_that_is_not_a_file(kind):
    info = zipfile.ZipInfo("programs/0/code/network.txt")
    info.external_attr = (kind | 0o777) << 16
    contents = members()
    contents[info] = contents.pop("programs/0/code/network.txt")
    refused(pack(contents), "not a plain file")


@pytest.mark.slow
def test_bomb():
    bomb = members() | {"programs/0/plan.json": b'{"zeros": "' + b"0" * 50_000_000 + b'"}'}
    data = pack(bomb, seal=True, compression=zipfile.ZIP_DEFLATED)
    assert len(data) < 1_000_000
    refused(data, "is compressed")


def test_misstated_size():
    # the central directory says that weights.bin is larger than the file
    at = DATA.rindex(b"programs/0/weights.bin") - 46
    forged = bytearray(DATA)
    struct.pack_into("<II", forged, at + 20, 2**31, 2**31)
    refused(bytes(forged), "larger than the file")


def test_too_many_members():
    refused(pack(members() | {f"code/{i}": b"" for i in range(2000)}), "2005|holds 20")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b"[" * 100_000,
        b'"' + b"0" * 10_000,
        b"9" * 9999,
    ],
)
@pytest.mark.parametrize("name", ["manifest.json", "graph.json", "programs/0/plan.json"])
def test_json_that_is_not_as_expected(name, text):
    refused(pack(members() | {name: text}, seal=name != "manifest.json"), "JSON|graph is invalid")


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": ["a", "b"]},
        {"labels": list("abcdefgh")},
        {"preprocessing": Preprocessing((8, 8), None, "GRAY", 1 / 255, (0.5,), (0.5,)).to_json()},
        {"preprocessing": {"scale": 10**400}},
        {"input_statistics": {"mean": 5}},
        {
            "input_statistics": InputStatistics.of(
                [np.linspace(-1, 1, 48, dtype=np.float32).reshape(1, 3, 4, 4)], "NCHW"
            ).to_json()
        },
        {"schema": "1"},
        {"schema": True},
        {"schema": None},
        {"files": []},
        {"files": {}},
        {"target": 5},
        {"arithmetic": "f64"},
        {"arithmetic": []},
        {"labels": [1]},
        {"labels": "abc"},
        {"source": {"name": "x"}},
        {"preprocessing": {}},
        {"preprocessing": [1]},
        {"input_statistics": {"count": 1}},
        {"towline": None},
    ],
)
def test_invalid_manifests(changes):
    refused(
        pack(members() | {"manifest.json": manifest_with(**changes)}),
        "manifest|schema|arithmetic|has no|list",
    )


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_flipped_bits_are_refused_or_harmless(data):
    """Harmless: in a date or a flag of the zip that is never read."""
    flipped = bytearray(DATA)
    for _ in range(data.draw(st.integers(1, 4))):
        flipped[data.draw(st.integers(0, len(DATA) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = from_bytes(bytes(flipped))
    except InvalidArtifact:
        return
    assert to_bytes(read) == DATA


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(DATA) - 1), st.integers(0, 2000), st.binary(max_size=50))
def test_spliced_bytes_are_refused_or_harmless(at, length, insert):
    try:
        read = from_bytes(DATA[:at] + insert + DATA[at + length :])
    except InvalidArtifact:
        return
    assert to_bytes(read) == DATA


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data):
    with pytest.raises(InvalidArtifact):
        from_bytes(data)


GRAPHS = json.loads(members()["graph.json"])
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["uint8", "int32", "float32", "picture", "features", "Gemm", [], {}, [1], -1, 0, 2**70]),
)


def leaves(value, path=()):
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from leaves(value[key], (*path, key))


LEAVES = list(leaves(GRAPHS))


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.sampled_from(LEAVES), VALUES, st.booleans())
def test_forged_graphs_are_refused_or_sound(path, value, delete):
    """Sealed with right hashes, so that only the checks of the content can refuse them."""
    document = {"root": json.loads(json.dumps(GRAPHS))}
    place = document
    *way, last = ("root", *path)
    for key in way:
        place = place[key]
    if delete:
        del place[last]
    else:
        place[last] = value
    contents = members() | {"graph.json": json.dumps(document.get("root")).encode()}
    try:
        read = from_bytes(pack(contents, seal=True))
    except InvalidArtifact:
        return
    assert from_bytes(to_bytes(read)).graph.nodes == read.graph.nodes


def test_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "net.tow"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OutputFailed, match=r"net\.tow: cannot be written"):
            save(make(), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["net.tow"]


def test_unwritable_places(tmp_path):
    for path in (tmp_path / "no" / "net.tow", tmp_path, "/dev/null"):
        with pytest.raises(OutputFailed):
            save(make(), path)
    assert list(tmp_path.iterdir()) == []


def test_the_longest_name_a_directory_holds(tmp_path):
    path = tmp_path / f"{'n' * 251}.tow"
    save(make(), path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_written_file_follows_umask_and_links(tmp_path):
    (tmp_path / "link.tow").symlink_to("net.tow")
    save(make(), tmp_path / "link.tow")
    assert (tmp_path / "link.tow").is_symlink()
    reference = tmp_path / "reference"
    reference.touch()
    assert (tmp_path / "net.tow").stat().st_mode == reference.stat().st_mode


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda graph: graph["nodes"][0].update(op=[]), "graph.nodes[0]"),
        (lambda graph: graph["nodes"][0].update(op="Gone"), "graph.nodes[0]"),
        (lambda graph: graph["nodes"].insert(0, 5), "graph.nodes[0]"),
        (lambda graph: graph["nodes"].insert(0, "Gemm"), "graph.nodes[0]"),
        (lambda graph: graph["nodes"][0].update(inputs="x"), "graph.nodes[0].inputs"),
        (lambda graph: graph["nodes"][2].update(clamp=[0, 1 << 17]), "graph.nodes[2].clamp"),
        (lambda graph: graph["tensors"][1].update(data=["constants.bin", 1 << 40]), "graph.tensors[1].data"),
        (lambda graph: graph["tensors"][0].update(shape=[1 << 20] * 2), "graph.tensors[0].shape"),
        (lambda graph: graph["tensors"][0].update(shape=[0]), "graph.tensors[0].shape[0]"),
        (lambda graph: graph["tensors"][0].update(dtype="float9"), "graph.tensors[0].dtype"),
        (lambda graph: graph["tensors"].append(graph["tensors"][0]), "graph.tensors"),
        (lambda graph: graph["metadata"].update(a=5), "graph.metadata.a"),
        (lambda graph: graph.update(more=5), "graph"),
    ],
)
def test_a_damaged_graph_says_where(change, where):
    document = json.loads(json.dumps(GRAPHS["programs"][0]))
    change(document)
    views = Members({n: memoryview(d) for n, d in members().items()})
    with pytest.raises(InvalidModel) as caught:
        graph_from_json(document, views)
    assert caught.value.where == where

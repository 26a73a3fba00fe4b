"""The cache: what is damaged in it is never used, and neither is a directory to which others may write."""

import itertools
import os

import numpy as np
import pytest

from emulator import images, native
from emulator.amdgpu import synthetic
from emulator.amdgpu.isa import jit
from emulator.amdgpu.kernels import build as shaders
from firmware import build as firmware
from sdk import cache
from sdk.errors import EnvironmentMissing, OutputFailed
from sdk.target import Options
from sdk.targets import get_target
from tests.amount import amount
from tests.graph_builder import GraphBuilder
from usbgpu.amd.facts.chips import CHIPS


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


DAMAGES = {
    "a bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]) if data else data,
    "the first byte": lambda data: bytes([data[0] ^ 0x40]) + data[1:] if data else data,
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0",
    "a script": lambda data: b"#!/bin/sh\necho wrong\n",
}


def damage(home, how):
    """Damage every file of the cache; how many there are."""
    files = [path for path in home.rglob("*") if path.is_file()]
    for path in files:
        path.write_bytes(how(path.read_bytes()))
    return len(files)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_is_as_good_as_none(home, how):
    path = cache.directory("kind") / "name"
    cache.keep(path, b"some data")
    assert (cache.load(path), cache.load_path(path)) == (b"some data", path)
    damage(home, DAMAGES[how])
    assert (cache.load(path), cache.load_path(path)) == (None, None)


def test_one_entry_in_the_place_of_another(home):
    one, other = (cache.directory("kind") / name for name in ("one", "other"))
    cache.keep(one, b"1")
    os.replace(one, other)
    assert cache.load(other) is None


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_of_a_folder(home, how, tmp_path):
    folder = cache.directory("kind") / "name"
    for name in "ab":
        (tmp_path / name).write_text(name)
    cache.keep_files(folder, {name: tmp_path / name for name in "ab"})
    assert cache.has_files(folder, "ab")
    assert not cache.has_files(folder, "abc")
    (folder / "b").write_bytes(DAMAGES[how](b"b"))
    assert cache.has_files(folder, "a")
    assert not cache.has_files(folder, "ab")


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
@pytest.mark.parametrize("which", ["", "kind"])
def test_a_directory_that_others_may_write_to_is_refused(home, mode, which):
    path = cache.directory("kind") / "name"
    cache.keep(path, b"x")
    (home / which).chmod(mode)
    for use in (lambda: cache.load(path), lambda: cache.keep(path, b"y")):
        with pytest.raises(EnvironmentMissing) as caught:
            use()
        assert caught.value.where == str(home / which).rstrip("/")
        assert "chmod" in caught.value.hint
    (home / which).chmod(0o755)
    assert cache.load(path) == b"x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(home):
    path = cache.directory("kind") / "name"
    cache.keep(path, b"x")
    os.chown(home, 12345, -1)
    with pytest.raises(EnvironmentMissing):
        cache.load(path)


def test_directories_are_made_for_their_owner_alone(home):
    before = os.umask(0o002)
    try:
        cache.keep(cache.directory("kind") / "a" / "name", b"x")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (home, home / "kind", home / "kind" / "a")} == {0o700}


def test_a_full_disk_is_worded_alike_for_all(home):
    with pytest.raises(OutputFailed) as caught, cache.writing(cache.directory("kind")):
        raise OSError(28, "No space left on device")
    assert "No space left" in caught.value.message
    assert "TOWLINE_CACHE" in caught.value.hint


# -- every user of the cache ------------------------------------------------------------------------------


def _network(target):
    b = GraphBuilder((1, 4, 6, 6), seed=3)
    graph = b.graph(b.conv("x", 8, 3, pads=1))
    program = get_target(target).compile(graph, Options())
    x = {"x": np.random.default_rng(0).integers(0, 256, (1, 4, 6, 6)).astype(np.uint8)}
    with get_target(target).open("emulated").load(program) as session:
        (y,) = session.run(x).values()
    return y.tobytes(), *(program.code[name] for name in sorted(program.code))


def _amd():
    b = GraphBuilder((1, 4, 6, 6), seed=3)
    return sorted(
        get_target("amd-gfx1100").compile(b.graph(b.conv("x", 8, 3, pads=1)), Options()).code.items()
    )


def _texts(built):
    return [path.read_bytes() for path in built.paths]


def _shader():
    name = jit.key("a module")
    code = jit.kept(name)
    if code is None:
        code = jit.compiled("define i32 @f() {\n  ret i32 7\n}\n")
        jit.keep(name, code)
    return code


def _synthetic():
    home = synthetic.folder(CHIPS["gfx1100"])
    return {path.name: path.read_bytes() for path in sorted(home.glob("*.bin"))}


USERS = {
    "c": lambda: _network("c"),
    "hexagon": lambda: _network("hexagon-v65"),
    "amd": _amd,
    "the emulated card's kernels": lambda: shaders.code_object("integer", "gfx1100"),
    "shaders": _shader,
    "the card's firmware": _synthetic,
    "firmware": lambda: _texts(firmware.build()),
    "firmware of tests": lambda: _texts(images.build("storage")),
    "the emulator's library": lambda: native._built().read_bytes(),
}


DONE = ("a bit", "empty", "a script")
"""Of DAMAGES, which are all noticed at one place: one to each user in turn."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("user", "how"),
    amount([*zip(USERS, itertools.cycle(DONE), strict=False)], [*itertools.product(USERS, DONE)]),
)
def test_what_is_damaged_is_built_again(home, user, how):
    whole = USERS[user]()
    assert damage(home, DAMAGES[how]) > 0
    assert USERS[user]() == whole
    assert USERS[user]() == whole

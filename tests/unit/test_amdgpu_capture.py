"""Captures: pages are noted as they were, files come back as they went, and damage is refused."""

import io
import json
import zipfile
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.amdgpu import capture
from emulator.amdgpu.capture import PAGE, Capture, Capturing
from emulator.amdgpu.seams import Dispatch, Extent, Outcome, PageFault, WaveFault
from sdk.errors import InvalidInput, UsageError

DISPATCH = Dispatch(0x1_0000, (2, 1, 1), (64, 1, 1), (0x2_0000, 0), 1, 2, 3, shared_aperture=1)
FAULT = WaveFault("instruction", 0x1_0004, "v_nonsense_b32 is not implemented")


class Memory:
    """One extent of a MiB from 0 on."""

    def __init__(self):
        self.data = bytearray(range(256)) * 4096

    def translate(self, address, *, write=False):
        if address >= len(self.data):
            raise PageFault(address, write=write, reason="there is no memory")
        return Extent(0, len(self.data), 0, False, True, True)

    def read(self, address, size):
        return bytes(self.data[address : address + size])

    def write(self, address, data):
        self.data[address : address + len(data)] = data


class Shaders:
    """Reach some pages, and write into one of them."""

    def run(self, dispatch, memory):
        assert memory.translate(0x3_0010).end == 0x3_1000
        assert memory.translate(0x3_1FFF, write=True).target == 0x3_1000
        assert memory.read(dispatch.code + 0xFFE, 4) == b"\xfe\xff\x00\x01"
        return Outcome(2, {"valu": 5}, 8, 4, [(0x3_0000, b"abcd")])


def recorded():
    kept = []
    Capturing(Shaders(), "gfx1100", kept.append, lambda code: "kernel").run(DISPATCH, Memory())
    return kept[0]


def test_the_pages_that_are_reached_are_kept_in_runs():
    found = recorded()
    assert [(address, len(data)) for address, data in found.memory] == [
        (0x1_0000, 2 * PAGE),
        (0x3_0000, 2 * PAGE),
    ]
    assert found.memory[1][1] == Memory().data[: 2 * PAGE]
    assert (found.kernel, found.chip, found.dispatch) == ("kernel", "gfx1100", DISPATCH)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.binary(min_size=1, max_size=PAGE)),
        max_size=4,
        unique_by=lambda p: p[0],
    ),
    st.sampled_from([None, FAULT]),
)
def test_a_file_comes_back_as_it_went(parts, fault):
    memory = [(place * PAGE, data) for place, data in sorted(parts)]
    before = Capture("gfx1201", "k", DISPATCH, memory, Outcome(1, {"valu": 3}, 4, 5, memory, fault))
    data = capture.pack(before)
    assert capture.unpack(data) == before
    assert capture.pack(before) == data


def rewritten(change, **members):
    """A good capture with its document changed, or members replaced."""
    source = zipfile.ZipFile(io.BytesIO(capture.pack(recorded())))
    document = json.loads(source.read("capture.json"))
    change(document)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("capture.json", json.dumps(document))
        for name in ("memory", "writes"):
            archive.writestr(name, members.get(name, source.read(name)))
    return file.getvalue()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda document: document.update(format="x"), "is not a capture"),
        (lambda document: document.update(version=2), "version 2, not 1"),
        (lambda document: document.pop("chip"), "damaged"),
        (lambda document: document["dispatch"].update(code=-1), "-1 is not"),
        (lambda document: document["dispatch"].update(groups=[1]), "three numbers"),
        (lambda document: document["dispatch"].update(user_data=7), "user_data"),
        (lambda document: document["dispatch"].update(user_data=[1 << 32]), "user_data"),
        (lambda document: document["dispatch"].update(rsrc2=[0]), "rsrc2"),
        (lambda document: document["dispatch"].update(colour=1), "damaged"),
        (lambda document: document["memory"][0].update(size=1 << 40), "cut short"),
        (lambda document: document["memory"][0].update(address=1 << 64), "not an address"),
        (lambda document: document["memory"][1].update(address=0x1_0000), "overlaps"),
        (lambda document: document.update(outcome=[]), "damaged"),
    ],
)
def test_damage_is_refused(change, why):
    with pytest.raises(InvalidInput, match=why):
        capture.unpack(rewritten(change))


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data):
    with pytest.raises(InvalidInput):
        capture.unpack(data)


def test_files_that_are_cut_or_not_a_zip_are_refused(tmp_path):
    path = tmp_path / "x"
    with pytest.raises(UsageError, match="no such file"):
        capture.load(path)
    path.write_bytes(capture.pack(recorded())[:-30])
    with pytest.raises(InvalidInput, match="damaged"):
        capture.load(path)
    with pytest.raises(UsageError, match="cannot be read"):
        capture.load(tmp_path)


def test_an_unknown_chip_is_refused():
    with pytest.raises(InvalidInput, match="gfx9999"):
        capture.replay(replace(recorded(), chip="gfx9999"))


def test_a_changed_byte_anywhere_is_read_or_refused():
    """Also in the middle of what is deflated, where zlib raises an error of its own."""
    whole = capture.pack(recorded())
    for at in range(len(whole)):
        try:
            capture.unpack(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        except InvalidInput:
            continue

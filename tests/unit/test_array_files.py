"""Files of arrays: read in parts, never more than a network takes, and refused where they are damaged."""

import io
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk import artifact
from sdk.array_files import open_arrays
from sdk.errors import InvalidArtifact, InvalidInput
from sdk.graph import Tensor
from sdk.quantizer import calibration
from sdk.samples import arrays

INPUTS = {"x": Tensor("x", (2, 3, 4), "float32")}


def header(shape, dtype="<f4", fortran=False):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": fortran, "shape": shape})
    return out.getvalue()


def bomb(path, shape, megabytes):
    """An .npz of zeros: a thousandth of what it unpacks to."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as member,
    ):
        member.write(header(shape))
        for _ in range(megabytes):
            member.write(bytes(1 << 20))


def peak(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_what_was_saved_is_read(tmp_path, suffix, fortran):
    array = np.arange(120, dtype=np.float32).reshape(10, 3, 4)
    path = tmp_path / f"x.{suffix}"
    stored = np.asfortranarray(array) if fortran else array
    if suffix == "npy":
        np.save(path, stored)
    else:
        np.savez_compressed(path, x=stored)
    (found,) = open_arrays(path).values()
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(found.whole(), array)
    np.testing.assert_array_equal(found.take([1, 2]), array[[1, 2]])
    np.testing.assert_array_equal(found.take([0, 2], 1), array[[0, 2], :1])
    np.testing.assert_array_equal(np.concatenate(list(found.parts(3))), array)
    assert [len(part) for part in found.parts(3)] == [3, 3, 3, 1]
    samples = list(arrays(str(path), INPUTS))
    np.testing.assert_array_equal(np.concatenate([one.feeds["x"] for one in samples]), array)


def test_a_large_array_of_another_shape_is_refused_unread(tmp_path):
    path = tmp_path / "x.npz"
    bomb(path, (64, 1 << 20), 256)

    def use():
        with pytest.raises(InvalidInput):
            list(arrays(str(path), INPUTS))
        with pytest.raises(InvalidInput):
            calibration.load(path, {"x": ((2, 3, 4), "float32")}, None, None, lambda *_: None)

    assert peak(use) < 4 << 20


def test_a_header_of_gigabytes_is_not_read(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + bytes(8 << 20))

    def use():
        with pytest.raises(InvalidInput):
            list(arrays(str(path), INPUTS))

    assert peak(use) < 4 << 20


def test_calibration_reads_the_samples_that_it_takes(tmp_path):
    path = tmp_path / "x.npz"
    bomb(path, (128, 1 << 18), 128)
    inputs = {"x": calibration.Input((1, 1 << 18), "float32")}
    loaded = []
    # zipfile skips in steps of 16 MiB.
    assert peak(lambda: loaded.append(calibration.load(path, inputs, None, 4, lambda *_: None))) < 48 << 20
    assert loaded[0].available == 128
    assert sorted(loaded[0].names) == [f"sample {row}" for row in (0, 32, 64, 96)]


def test_calibration_reads_the_steps_that_it_takes(tmp_path):
    path, inputs = (
        tmp_path / "x.npz",
        {
            "x": calibration.Input((1, 3), "float32"),
            "h": calibration.Input((1, 2), "float32"),
        },
    )
    steps = np.arange(5 * 7 * 3, dtype=np.float32).reshape(5, 7, 3)
    for saved in (steps, np.asfortranarray(steps), steps[:, :, None]):
        np.savez(path, x=saved)
        for limit in (None, 14, 4):
            of_file = calibration.load(path, inputs, None, limit, lambda *_: None, ["h"])
            of_arrays = calibration.load({"x": steps}, inputs, None, limit, lambda *_: None, ["h"])
            assert (of_file.names, of_file.units) == (of_arrays.names, of_arrays.units)
            for one, other in zip(of_file.samples, of_arrays.samples, strict=True):
                np.testing.assert_array_equal(one["x"], other["x"])
                assert one["x"].shape == (1, 3)


@pytest.mark.slow
def test_an_archive_of_very_many_arrays_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(5000):
            archive.writestr(f"{number}.npy", header((1,)) + bytes(4))
    with pytest.raises(InvalidInput):
        open_arrays(path)


def test_a_directory_of_megabytes_is_refused_unread(tmp_path):
    path = tmp_path / "x.npz"
    entry = b"PK\1\2" + bytes(42)
    size = len(entry) * 200_000
    end = b"PK\5\6" + struct.pack("<4xHHIIH", 0xFFFF, 0xFFFF, size, 0, 0)
    path.write_bytes(entry * 200_000 + end)

    def use():
        with pytest.raises(InvalidInput, match="directory"):
            open_arrays(path)
        with pytest.raises(InvalidArtifact, match="directory"):
            artifact.load(path)

    assert peak(use) < 4 << 20


def test_samples_are_read_one_by_one(tmp_path):
    path = tmp_path / "x.npz"
    inputs = {"x": Tensor("x", (1, 1 << 18), "float32")}
    bomb(path, (64, 1 << 18), 64)
    assert peak(lambda: [one.feeds["x"].sum() for one in arrays(str(path), inputs)]) < 8 << 20


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        header((2, 3, 4)),
        header((2, 3, 4)) + bytes(95),
        header((-2, 3, 4)) + bytes(96),
        header((1 << 60, 3, 4)),
        header((2, 3, 4), "|O") + bytes(96),
        header((2, 3, 4), "<U8") + bytes(960),
        b"PK\x03\x04" + bytes(60),
        b"\x93NUMPY\x01\x00\x05\x00(((((" + bytes(96),  # what numpy's tokenizer says of it is no ValueError
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(96),
    ],
)
def test_damaged_files(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        list(arrays(str(path), INPUTS))
    assert caught.value.where == str(path)


@pytest.mark.slow
@given(st.data())
def test_any_change_of_a_file_is_read_or_refused(tmp_path_factory, data):
    out = io.BytesIO()
    kept = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    data.draw(st.sampled_from([np.savez, np.savez_compressed]))(out, x=kept)
    content = bytearray(out.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "changed.npz"
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        list(arrays(str(path), INPUTS))
    except InvalidInput:
        return

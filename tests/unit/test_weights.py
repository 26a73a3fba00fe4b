"""Bytes in pieces: the arrays themselves, in order, and never lost for having been read."""

import numpy as np
import pytest

from sdk import weights
from sdk.arena import Blob
from sdk.files import Mapped
from sdk.weights import Weights


def test_a_blob_keeps_arrays_rather_than_copies():
    blob = Blob(16)
    arrays = [np.arange(5, dtype=np.int32), np.arange(3, dtype=np.uint8), np.float16(1.5)]
    offsets = [blob.add(array) for array in arrays]
    assert [blob.add(array.copy()) for array in arrays] == offsets == [0, 32, 48]
    made = blob.weights()
    assert np.shares_memory(np.frombuffer(made.pieces[0][1], np.int32), arrays[0])
    whole = b"".join(array.tobytes().ljust(-(-array.nbytes // 16) * 16, b"\0") for array in arrays)
    assert bytes(made) == b"".join(made) == whole
    assert made.nbytes == blob.nbytes == len(whole)


def test_arrays_in_another_order_of_memory_or_bytes():
    array = np.arange(6, dtype=">u2").reshape(2, 3).T
    assert bytes(weights.raw(array)) == np.ascontiguousarray(array).astype("<u2").tobytes()


def test_bytes_in_one_piece_are_not_copied():
    data = bytearray(b"abc")
    assert Weights.of(data).buffer().obj is data
    assert bytes(Weights(5, ((1, memoryview(data)),))) == b"\0abc\0"


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_reading_keeps_what_is_mapped(tmp_path, mode, monkeypatch):
    monkeypatch.setattr(weights, "PART", 5000)
    path = tmp_path / "data"
    data = np.random.default_rng(0).integers(0, 256, 30_000, np.uint8)
    data.tofile(path)
    mapped = np.memmap(path, np.uint8, mode)
    if mode != "r":
        mapped[:20_000] = data[:20_000] = 7
    view = np.asarray(mapped)[100:29_000]
    blob = Blob(1)
    blob.add(view)
    for _ in range(2):
        assert b"".join(blob.weights()) == data[100:29_000].tobytes() == view.tobytes()


def test_a_part_of_a_file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(range(200)))
    mapped = Mapped(path)
    path.unlink()
    assert bytes(Weights.part(mapped, 50, 20)) == bytes(range(50, 70))
    buffer = bytearray(20)
    assert mapped.read_into(memoryview(buffer), 190) == 10
    assert buffer == bytes(range(190, 200)) + bytes(10)

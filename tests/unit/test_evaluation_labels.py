"""Labels of `towline eval`: what a line may call a picture and a class, and contradictions."""

import numpy as np
import pytest

from sdk.errors import InvalidInput, UsageError
from sdk.evaluation import data
from sdk.graph import Tensor

PICTURES = ["a/cat.jpg", "a/dog.jpg", "b/dog.jpg", "fish.png"]
NAMES = ["tench", "tabby cat", "dog"]


def items(names=PICTURES):
    return [data.Item(name, f"/pictures/{name}", {}) for name in names]


def read(tmp_path, text, chosen=PICTURES, names=NAMES):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    return data.read_labels(str(path), items(chosen), PICTURES, 3, names)


def test_lines_name_pictures_by_path_or_by_name_and_classes_by_number_or_name(tmp_path):
    text = 'file,class\na/cat.jpg,tabby cat\n"./a/dog.jpg", 2\n\nb/dog.jpg\t2\nfish.png 0\n'
    assert read(tmp_path, text) == {"a/cat.jpg": 1, "a/dog.jpg": 2, "b/dog.jpg": 2, "fish.png": 0}
    assert read(tmp_path, "cat.jpg,1\nfish.png,0\n", ["a/cat.jpg"]) == {"a/cat.jpg": 1}  # beyond a limit


@pytest.mark.parametrize(
    ("text", "where", "part"),
    [
        ("a/cat.jpg,1\nnot/there.jpg,1\n", "labels.csv", "not/there.jpg"),
        ("dog.jpg,1\n", "labels.csv", "dog.jpg"),  # of two pictures
        ("a/cat.jpg,3\n", "line 1", "no class 3"),
        ("a/cat.jpg,-1\n", "line 1", "-1"),
        ("a/cat.jpg," + "9" * 5000 + "\n", "line 1", "no class"),
        ("a/cat.jpg,cat\n", "line 1", "'cat' is not a class"),
        ("a/cat.jpg,1\ncat.jpg,2\n", "line 2", "earlier line"),
        ("a/cat.jpg\n", "line 1", "not a picture and its class"),
        ("a/cat.jpg,1\n", "labels.csv", "no label for a/dog.jpg"),
        ("\n", "labels.csv", "no label"),
    ],
)
def test_contradictions_are_refused(tmp_path, text, where, part):
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path, text)
    assert where in refused.value.where
    assert part in refused.value.message
    assert refused.value.hint


def test_folders_are_classes_by_number_or_name(tmp_path):
    found = data.read_labels("folders", items(["0/a.png", "deep/dog/b.png"]), [], 3, NAMES)
    assert found == {"0/a.png": 0, "deep/dog/b.png": 2}
    with pytest.raises(InvalidInput, match="in no folder"):
        data.read_labels("folders", items(["fish.png"]), [], 3, NAMES)
    with pytest.raises(InvalidInput, match="'b' is not a class"):
        data.read_labels("folders", items(["b/dog.jpg"]), [], 3, None)


def test_files_that_are_no_text(tmp_path):
    with pytest.raises(UsageError):
        data.read_labels(str(tmp_path / "missing.csv"), items(), PICTURES, 3, None)
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="UTF-8"):
        data.read_labels(str(tmp_path / "x.csv"), items(), PICTURES, 3, None)


def test_items_are_pictures_in_order_or_samples_of_arrays(tmp_path):
    for name in ("b.png", "a/c.jpg", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    inputs = {"x": Tensor("x", (2, 3), "float32")}
    assert [item.name for item in data.items(tmp_path, inputs)] == ["a/c.jpg", "b.png"]
    assert [item.name for item in data.items(tmp_path / "b.png", inputs)] == ["b.png"]
    np.save(tmp_path / "x.npy", np.zeros((6, 3), np.float32))
    found = data.items(tmp_path / "x.npy", inputs)
    assert [item.name for item in found] == ["0", "1", "2"]
    assert found[0].feeds["x"].shape == (2, 3)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="no picture"):
        data.items(tmp_path / "empty", inputs)
    for wrong in ("missing", "notes.txt"):
        with pytest.raises(UsageError):
            data.items(tmp_path / wrong, inputs)

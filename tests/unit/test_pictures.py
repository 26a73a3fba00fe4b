"""The pictures that tests of accuracy use: the same on every machine, and kept apart."""

import numpy as np

from tests import pictures


def test_crops_depend_on_the_seed_and_their_place_alone():
    first, again = pictures.calibration(3), pictures.calibration(10)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=False))
    assert not np.array_equal(pictures.calibration(1, seed=1)[0], first[0])
    assert not np.array_equal(again[0], again[8])  # of one picture


def test_no_picture_is_calibrated_on_and_judged_by():
    assert not set(pictures.CALIBRATION) & set(pictures.EVALUATION)


def test_pictures_are_saved_in_the_size_asked_for(tmp_path):
    folder = pictures.save(pictures.evaluation(2, size=64), tmp_path / "pictures")
    assert [file.name for file in sorted(folder.iterdir())] == ["000.png", "001.png"]
    assert pictures.evaluation(1, size=64)[0].size == (64, 64)

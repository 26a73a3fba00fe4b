"""A trained MobileNetV2 for handwritten digits, with its pictures.

The pictures are those that scikit-learn ships as `load_digits`: 1,797 digits of 8 x 8 pixels in 17 grey
levels, the test set of E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI
Machine Learning Repository (1998), https://doi.org/10.24432/C50P49, licensed CC BY 4.0. Grey levels 0..16
are stored as 0..255. A quarter of them, drawn per digit with a fixed seed, is held out: neither training
nor the choice of the model has seen it. (The split is by picture; the same people wrote both parts.)

The network is MobileNetV2 0.35 with one input channel, on the picture enlarged to 32 x 32, with strides
for a small picture. In float it classifies 449 of the 450 held-out pictures correctly.
`sdk.zoo.train_digits` trained it and wrote the files in `data`; using it needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdk.extras import require
from sdk.files import replacing
from sdk.preprocess import Preprocessing, default_for
from sdk.zoo.mobilenet import Architecture, architecture

DATA = Path(__file__).parent / "data"
CLASSES = 10
SIZE = 32
ARCHITECTURE: Architecture = architecture(0.35, SIZE, CLASSES, 1, strides=(1, 2, 2, 1, 1, 1, 1))
PREPROCESSING: Preprocessing = default_for((1, 1, SIZE, SIZE))


@dataclass(frozen=True)
class Digits:
    """The model, how a picture becomes its input, and its pictures.

    Attributes:
        model: the float ONNX file; `input` float32 [1, 1, 32, 32] -> `logits` [1, 10].
        preprocessing: stretch to 32 x 32, grey, pixels / 255.
    """

    model: Path
    preprocessing: Preprocessing

    def calibration(self) -> NDArray[np.float32]:
        """Training pictures as inputs, for the quantiser: float32 [N, 1, 32, 32]."""
        return self.inputs(_load("digits_calibration.npz")["images"])

    def test(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The held-out pictures, uint8 [N, 8, 8] with light ink on black, and their digits, int64 [N]."""
        data = _load("digits_test.npz")
        return data["images"], data["labels"]

    def inputs(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Pictures [N, 8, 8] as inputs: float32 [N, 1, 32, 32].

        Raises:
            EnvironmentMissing: Pillow is not installed.
        """
        from_array = require("PIL.Image").fromarray
        return np.concatenate([self.preprocessing.apply(from_array(image)) for image in images])

    def write_pictures(self, directory: Path, count: int | None = None) -> list[Path]:
        """Write held-out pictures as `NNN_label_D.png`, the first `count` or all, in the test's order.

        Raises:
            OutputFailed: a picture could not be written.
        """
        from_array = require("PIL.Image").fromarray
        paths = []
        for index, (image, label) in enumerate(zip(*self.test(), strict=True)):
            if index == count:
                break
            path = Path(directory) / f"{index:03}_label_{label}.png"
            with replacing(path) as file:
                from_array(image).save(file, format="PNG")
            paths.append(path)
        return paths


def digits() -> Digits:
    """The digits model as it ships with the package."""
    return Digits(DATA / "digits.onnx", PREPROCESSING)


def _load(name: str) -> dict[str, NDArray[Any]]:
    with np.load(DATA / name, allow_pickle=False) as data:
        return {key: data[key] for key in data.files}

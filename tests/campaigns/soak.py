"""A network is loaded, run and closed again and again in one process: the same answers, and nothing grows."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np

import towline
from tests.amount import amount
from tests.campaigns.campaign import Case, Surface
from tests.campaigns.hostile import Flat

TARGETS = {
    "c": ("c", None),
    "hexagon": ("hexagon-v65", None),
    "adreno": ("adreno-a6xx", None),
    "gfx1100": ("amd-gfx1100", "emulated?gpu=gfx1100"),
    "gfx1201": ("amd-gfx1201", "emulated?gpu=gfx1201"),
}
"""Target and device by a short name."""


@contextlib.contextmanager
def opened(name: str, scratch: Path) -> Iterator[Case]:
    """The digits' network; a case is one cycle."""
    target, device = TARGETS[name]
    model, quantized, compiled = towline.digits(), scratch / "q.onnx", scratch / "net.tow"
    towline.quantize(
        model.model,
        model.calibration()[:8],
        quantized,
        preprocessing=model.preprocessing,
        method="minmax",
    )
    towline.compile(quantized, target=target, output=compiled)
    noise = np.random.default_rng(0)
    picture = noise.random((1, 1, 32, 32), dtype=np.float32)

    def cycle() -> np.ndarray:
        with towline.Session(compiled, device=device) as session:
            (found,) = session.run({session.artifact.graph.inputs[0]: picture}).values()
        return found

    expected = cycle()
    flat = Flat(checked=3, settled=3)

    def case(rng: Random) -> str | None:
        if not np.array_equal(cycle(), expected):
            return "another result"
        return flat.grown()

    yield case


SURFACES = tuple(
    Surface(
        f"soak-{name}",
        f"cycles of loading, running and closing a network on {name}",
        functools.partial(opened, name),
        300.0,
        amount(0, 6) if name == "gfx1201" else 6,  # of the other generation there is one
    )
    for name, (_, device) in TARGETS.items()
)

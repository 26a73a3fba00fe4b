"""The chips that tests of AMD cards run over."""

from __future__ import annotations

import pytest

from tests.amount import amount
from usbgpu.amd.facts.chips import CHIPS

GENERATIONS = ("gfx1100", "gfx1201")
"""One of each generation: what the default tests boot."""
OTHERS = tuple(name for name in CHIPS if name not in GENERATIONS)
EVERY = [name if name in GENERATIONS else pytest.param(name, marks=pytest.mark.slow) for name in CHIPS]
"""All; the others only with the slow tests."""
SAMPLE = amount(GENERATIONS, tuple(CHIPS))
"""Of slow tests: one of each generation; with `--thorough` all."""
ANY = amount(GENERATIONS[:1], tuple(CHIPS))
"""Of slow tests in which the chip makes no difference: one; with `--thorough` all."""

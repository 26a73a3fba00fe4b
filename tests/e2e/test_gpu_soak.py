"""Many inferences of the digits network, with faults at random places: each result is right, nothing is lost.

python -m tests.e2e.test_gpu_soak 1000
"""

from __future__ import annotations

import logging
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from sdk.errors import DeviceFailed
from sdk.graph import Graph
from sdk.importers import load_model
from sdk.passes import optimize
from sdk.quantizer import quantize
from sdk.segments import split
from sdk.target import DeviceSession
from sdk.zoo.digits import digits
from tests.amount import amount, thorough_only
from tests.footprint import footprint
from tests.gpu_faults import Desk, Killed, Network

FAULTS = ("unplug", "interrupt", "kill", "lose_power", "lose_link", "reset_card", "break_off")
SHARE = 0.3
"""Of inferences, or openings, during which a fault happens."""
WARM_UP = 10
"""Inferences after which memory must not grow any more."""
GROWTH = 16 << 10
"""KiB that it may grow nevertheless: the allocator keeps its peak. A leak shows in objects."""


def network_body(directory: Path) -> Graph:
    """The digits network, quantised."""
    model = digits()
    path = directory / "digits.onnx"
    quantize(model.model, model.calibration()[:32], path)
    return split(optimize(load_model(path))).body


class Soak:
    """Programs that run one network, one after the other, each until a fault.

    Attributes:
        counts: inferences, faults by kind, programs.
    """

    def __init__(self, chip: str, graph: Graph, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._desk = Desk(chip)
        self._network = Network(self._desk, graph, samples=8)
        self._session: DeviceSession | None = None
        self._struck = ""

    def run(self, inferences: int) -> None:
        """That many more with correct results."""
        end = self.counts["inferences"] + inferences
        while self.counts["inferences"] < end:
            self._round()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
            assert self._network.is_empty

    def _round(self) -> None:
        self._desk.card.scoreboard.clear()  # which keeps a record of each dispatch
        what = ""
        if self._random.random() < SHARE:  # the rarest so far
            what = min(FAULTS, key=lambda name: (self.counts[name], self._random.random()))
        opening = self._session is None
        try:
            if opening:
                self.counts["programs"] += 1
                self._session = self._network.load(lambda: self._arm(what, 40))
            self._desk.calm()
            self._arm(what, 8 if opening else 2)  # the first inference streams
            self._network.run(self._session, self._random.randrange(8))
            self.counts["inferences"] += 1
            self._desk.calm()
        except (DeviceFailed, KeyboardInterrupt, Killed):
            assert self._struck, "no fault had happened"
            self.counts[self._struck] += 1
            self._recover(self._struck)
            self._struck = ""

    def _arm(self, what: str, most: int) -> None:
        """Plan a fault before one of the next transfers, or during it."""
        number = self._random.randint(1, most)

        def strike() -> None:
            self._struck = what  # if not now, it is noticed later
            if what == "break_off":
                self._desk.break_off(0)
            else:
                getattr(self._desk, what)()

        if what:
            self._desk.at(number, strike)

    def _recover(self, what: str) -> None:
        session, self._session = self._session, None
        if what == "kill":
            if session is not None:
                self._network.gpu.card.bridge.close()
        else:
            self._desk.calm()
            if session is not None:
                session.close()
                assert self._network.is_empty
        if what == "unplug":
            self._desk.plug(power=self._random.random() < 0.5)


def soak(chip: str, inferences: int, seed: int = 1) -> Counter[str]:
    """Run that many, and check that nothing is left behind. Returns the counts."""
    with tempfile.TemporaryDirectory() as directory:
        graph = network_body(Path(directory))
    it = Soak(chip, graph, seed)
    it.run(WARM_UP)
    before = footprint()
    it.run(inferences - WARM_UP)
    it.close()
    after = footprint()
    assert after["descriptors"] <= before["descriptors"]
    assert after["threads"] == before["threads"]
    assert after["objects"] - before["objects"] < 1000
    assert after["kilobytes"] - before["kilobytes"] < GROWTH
    return it.counts


@pytest.mark.slow
@thorough_only("the campaign soak-gfx1100 in tests/e2e/test_campaigns.py, and a stream's frames")
@pytest.mark.usefixtures("quiet_card")
@pytest.mark.parametrize(
    ("chip", "inferences"), amount([("gfx1100", 50)], [("gfx1100", 100), ("gfx1201", 30)])
)
def test_a_hundred_inferences(chip, inferences):
    counts = soak(chip, inferences)
    assert set(FAULTS) <= set(counts), "each of them at least once"


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    for name in sys.argv[2:] or ["gfx1100"]:
        print(name, dict(soak(name, int(sys.argv[1]) if len(sys.argv) > 1 else 100)))

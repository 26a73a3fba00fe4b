"""A network on an emulated card whose cable is bad: pulled, late, cutting transfers off, inverting bits.

A fault strikes somewhere in a boot, a load with its first inference, later inferences, or frames in flight.
What comes out is right or refused, and after a recovery it is right again. Inputs and outputs are verified.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sdk.errors import DeviceFailed, TowlineError
from sdk.target import OpenOptions, Options, Program
from sdk.targets import get_target, open_device
from tests.campaigns.campaign import Case, Surface
from tests.contract.targets import random_input
from tests.graph_builder import GraphBuilder
from usbgpu.target.device import EmulatedCardDevice
from usbgpu.target.session import CardSession

CHIP = "gfx1100"
DEVICE = f"emulated?gpu={CHIP}"
OPTIONS = OpenOptions(verify_transfers=True)
BOOT = 0.3
"""Virtual seconds that a boot takes, and `WORK` what a case's work takes."""
WORK = 0.003
PATIENCE = 10.0
"""Virtual seconds for a recovery."""
FRAMES = 6


def fault(rng: random.Random, seconds: float, transfers: int) -> str:
    """One that strikes within this time, or these transfers."""
    at = f"@{rng.randrange(int(seconds * 1e6))}us"
    number = f"@{rng.randint(1, transfers)}"
    match rng.randrange(8):
        case 0:
            return f"unplug{at}+{rng.choice((1, 50, 500))}ms"
        case 1:
            return f"link-drop{at}+{rng.choice((1, 20))}ms"
        case 2:
            return f"nak-storm{at}+{rng.choice((1, 20, 900))}ms"
        case 3:
            return f"bulk-{rng.choice(('error', 'stall', 'timeout'))}{number}"
        case _:
            return f"bit-flip{number}={int(2 ** (rng.random() * 13)) - 1:x}.{rng.randrange(8)}"


class Desk:
    """A card that is up, and a program with the right outputs for its inputs."""

    def __init__(self) -> None:
        b = GraphBuilder((1, 3, 12, 12), seed=4)
        x = b.conv("x", 16, 3, strides=2, pads=1, relu=True)
        x = b.conv(b.depthwise(b.conv(x, 48, relu=True), pads=1, relu=True), 16)
        b.gemm(b.reshape(b.global_average_pool(x)), 10)
        graph = b.graph()
        self.program: Program = get_target(f"amd-{CHIP}").compile(graph, Options())
        self.feeds = [random_input(graph, seed) for seed in range(FRAMES)]
        self.device = self.fresh()
        with self.device.load(self.program) as session:
            self.expected = [session.run(feeds) for feeds in self.feeds]

    def fresh(self) -> EmulatedCardDevice:
        """A card that stays open until `close`."""
        device = self.opened()
        self.open = device.load(self.program)
        return device

    def close(self) -> None:
        self.open.close()

    def opened(self, faults: str = "") -> EmulatedCardDevice:
        device = open_device(f"amd-{CHIP}", f"{DEVICE}&inject={faults}" if faults else DEVICE, OPTIONS)
        assert isinstance(device, EmulatedCardDevice)
        return device

    def wrong(self, number: int, outputs: dict[str, np.ndarray]) -> bool:
        expected = self.expected[number]
        return any((outputs[name] != expected[name]).any() for name in expected)

    def boot(self, faults: str) -> str | None:
        device = self.opened(faults)
        try:
            with device.load(self.program) as session:
                wrong = [self.wrong(number, session.run(self.feeds[number])) for number in range(2)]
        finally:
            device._abandon()  # if `load` failed
        return f"{faults} in a boot: wrong outputs" if any(wrong) else None

    def work(self, rng: random.Random) -> str | None:
        """A load and inferences with a fault; then a recovery, and the same once more."""
        loaded, flying = rng.random() < 0.5, rng.random() < 0.4
        bad = fault(rng, WORK, 24 if flying else 8)
        problem: TowlineError | None = None
        struck = False
        with self.device.load(self.program) as session:
            if loaded:
                session.run(self.feeds[0])
            self.device.inject(bad)
            try:
                if self._inferences(session, flying):
                    return f"{bad}, {loaded=}, {flying=}: wrong outputs"
            except DeviceFailed as error:
                problem = error
            for _ in range(4):  # until it has struck
                try:
                    if problem is not None:
                        self.device.recover(PATIENCE)
                    if self._inferences(session, flying=False):
                        return f"{bad}, {loaded=}, {flying=}: wrong outputs behind it"
                except DeviceFailed as error:
                    problem = error
                    continue
                if struck := self.device.faults()[-1][1] is not None:
                    break
            else:
                if struck or problem is not None:
                    return f"{bad}, {loaded=}, {flying=}: the card did not recover: {problem}"
        if not struck:  # no transfer has such a byte: it must not strike the next case
            self.close()
            self.device = self.fresh()
        if problem is not None:
            raise problem
        return None

    def _inferences(self, session: CardSession, flying: bool) -> bool:
        """Whether any outputs are wrong."""
        if flying:
            waiting = [session.submit(feeds) for feeds in self.feeds]
            found = [one() for one in waiting]
        else:
            found = [session.run(feeds) for feeds in self.feeds[:2]]
        return any(self.wrong(number, outputs) for number, outputs in enumerate(found))


@contextmanager
def opened(scratch: Path) -> Iterator[Case]:
    """A case is a boot in one of 20."""
    desk = Desk()

    def case(rng: random.Random) -> str | None:
        if rng.random() < 0.05:
            return desk.boot(fault(rng, BOOT, 400))
        return desk.work(rng)

    try:
        yield case
    finally:
        desk.close()


CABLE = Surface(
    "cable",
    "a bad cable: faults in boots, loads, inferences and frames in flight",
    opened,
    seconds=300,
    slice=8,
)

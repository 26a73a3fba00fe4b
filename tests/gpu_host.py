"""The emulated card without a bridge, for tests of its driver's boot: see `tests.direct_bridge`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from emulator.amdgpu.card import AmdCard
from emulator.amdgpu.kernels.build import code_object
from emulator.amdgpu.synthetic import directory
from emulator.core.clock import clocks
from emulator.pcie.function import Reset
from firmware.protocol.command_list import CommandList
from tests.direct_bridge import BARS, DirectBridge, direct
from usbgpu.amd.batch import Batch
from usbgpu.amd.card import Card
from usbgpu.amd.doctor import Doctor
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.amd.gpu import Gpu
from usbgpu.amd.queues import ComputeQueue, SdmaQueue
from usbgpu.amd.start import Started, close, start
from usbgpu.bridge.seam import Reply
from usbgpu.pcie import Bar

VRAM = 256 << 20
_KEPT: list[TemporaryDirectory[str]] = []


@cache
def firmware(chip: str, *, full_size: bool = False) -> Path:
    """A directory with a chip's synthetic firmware."""
    folder = TemporaryDirectory(prefix="towline-firmware-")
    _KEPT.append(folder)
    for name, data in directory(CHIPS[chip], full_size=full_size).items():
        (Path(folder.name) / name).write_bytes(data)
    return Path(folder.name)


class Died(Exception):
    """The process that used the card is gone."""


class Bench(DirectBridge):
    """A card of its own, on which programs may be killed.

    Attributes:
        lives: how many lists are run before the program is killed; None for all.
        operations: how many operations of the last one are run.
        cycles: how often its power was switched off.
        watch: called with each list before it is run.
    """

    vendor, class_code = 0x1002, 0x03_0000

    def __init__(self, chip: str, vram: int = VRAM, **model: bool) -> None:
        plugged = direct(chip, vram, **model)
        self.host, self.clock, self.runs = plugged.host, plugged.clock, 0
        self.chip, self.device = chip, CHIPS[chip].device
        self.lives: int | None = None
        self.operations = 0
        self.cycles = 0
        self.watch: Callable[[CommandList], None] = lambda commands: None

    @property
    def card(self) -> AmdCard:
        return self.host.card  # type: ignore[return-value]

    @property
    def findings(self) -> list[str]:
        return [finding.symptom for finding in self.card.diagnosis.findings]

    @property
    def bars(self) -> dict[int, Bar]:
        return {bar: Bar(address, self.card.config.sizes[bar], True) for bar, address in BARS.items()}

    def config(self, register: int) -> int:
        return register

    def run(self, commands: CommandList) -> Reply:
        self.watch(commands)
        if self.lives is not None:
            if not self.lives:
                part = CommandList()
                part.operations = commands.operations[: self.operations]
                super().run(part)
                raise Died
            self.lives -= 1
        return super().run(commands)

    def again(self) -> Bench:
        """Switch the power off and on; BARs and the command register are as `direct` leaves them."""
        self.cycles += 1
        kept = {place: self.host.config_read(place) for place in (0x10, 0x14, 0x18, 0x1C, 0x24, 0x208)}
        self.card.reset(Reset.PERST)
        self.host.sleep(clocks(0.2))
        for place in (0x208, 0x10, 0x14, 0x18, 0x1C, 0x24):
            self.host.config_write(place, kept[place])
        self.host.config_write(4, 7)
        return self

    def start(self, **options: object) -> Started:
        """As `usbgpu.amd.start.start`."""
        options = {"directory": firmware(self.chip), "again": self.again, **options}
        return start(self, self, **options)  # type: ignore[arg-type]


class User:
    """A program that works with a card: queues, and a kernel whose result is known."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.lines: list[str] = []
        self.started: Started = bench.start(finish=self.queues, report=self.lines.append)

    def queues(self, card: Card, batch: Batch) -> None:
        self.compute, self.sdma = ComputeQueue(card), SdmaQueue(card)
        self.renew(card, batch)

    def renew(self, card: Card, batch: Batch) -> None:
        self.compute.init(batch)
        self.sdma.init(batch)

    @property
    def card(self) -> Card:
        return self.started.card

    @cached_property
    def gpu(self) -> Gpu:
        doctor = Doctor(self.card, self.started.record, self.compute, self.sdma)
        return Gpu(self.card, self.compute, self.sdma, doctor)

    def work(self) -> None:
        """Run a kernel."""
        gpu = self.gpu
        module = gpu.load(code_object("integer", self.bench.chip))
        numbers = np.arange(512, dtype=np.uint32)
        source, result = gpu.allocate(2048), gpu.allocate(2048)
        gpu.upload(source, numbers.tobytes())
        gpu.launch(module["scan"], 2, source, result)
        found = np.frombuffer(gpu.download(result, 2048), np.uint32).reshape(2, 256)
        assert (found == np.cumsum(numbers.reshape(2, 256), axis=1, dtype=np.uint32)).all()

    def misuse(self, name: str, *arguments: int | bytes) -> None:
        """Submit a kernel that fails, and do not wait."""
        gpu = self.gpu
        module = gpu.load(code_object("misuse", self.bench.chip))
        gpu.launch(module[name], 1, *arguments, wait=False)

    def close(self) -> bool:
        return close(self.card, self.started.record)

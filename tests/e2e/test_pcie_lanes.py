"""The slot's link with fewer lanes, lower rates and faults: what is trained, reported, and moved over it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from emulator.amdgpu.kernels.build import code_object
from emulator.board import Board
from emulator.options import described
from firmware.asm2464pd.registers.link import PCIE_LINK_RATE
from firmware.protocol import commands, requests
from tests.gpu_host import firmware
from usbgpu import bridge, pcie, transport
from usbgpu.amd import gpu as gpus
from usbgpu.amd.gpu import Gpu, on_bridge
from usbgpu.seam import Read, Write

SIZE = 1_500_000


class Dock:
    """A board with a device string's options, and the bridge on it."""

    def __init__(self, options: str, lists: bool = True) -> None:
        board, given = described(f"emulated?{options}")
        self.board = Board.of(board or "firmware", given)
        self.usb = transport.attach(self.board.backend())
        self.bridge = bridge.attach(self.usb, lists=lists)

    def opened(self) -> Gpu:
        return on_bridge(self.bridge, pcie.enumerate(self.bridge), firmware("gfx1100"))

    def link(self) -> pcie.Link:
        """The slot's, by the link status registers."""
        return pcie.link(self.bridge, pcie.find(self.bridge))

    def reported(self) -> str:
        """The same, which is what the firmware reports too."""
        link = self.link()
        raw = self.usb.control_in(requests.VENDOR_IN, requests.INFO.code, length=commands.INFO.size)
        rate = commands.INFO.unpack(raw)["link_rate"]
        assert pcie.RATES[PCIE_LINK_RATE.field("GENERATION").get(rate)] == link.rate
        assert PCIE_LINK_RATE.field("LANES").get(rate) == link.lanes
        return str(link)


@pytest.mark.parametrize(("options", "expected"), [
    ("lanes=1&gen=1", "2.5 GT/s x1"),
    pytest.param("lanes=2&gen=3", "8 GT/s x2", marks=pytest.mark.slow),
    pytest.param("lanes=8&gen=2", "5 GT/s x4", marks=pytest.mark.slow),
    pytest.param("gen=4", "8 GT/s x4", marks=pytest.mark.slow),
    ("inject=pcie-lanes=2", "8 GT/s x2"),
    pytest.param("inject=pcie-lanes=1", "8 GT/s x1", marks=pytest.mark.slow),
    ("inject=pcie-rate=2", "2.5 GT/s x1"),
])  # fmt: skip
def test_what_was_trained_is_reported(options: str, expected: str) -> None:
    dock = Dock("gpu=gfx1100&vram=256M&" + options)
    assert dock.reported() == expected
    assert dock.usb.clock.now() < 4, "within bounds"


@pytest.mark.slow
@pytest.mark.parametrize("lists", [True, False], ids=["lists", "compatible"])
@pytest.mark.parametrize(("lanes", "gen"), [(1, 1), (1, 4), (2, 2), (4, 3)])
def test_bytes_are_right_at_any_width(lanes: int, gen: int, lists: bool) -> None:
    dock = Dock(f"gpu=gfx1100&vram=256M&lanes={lanes}&gen={gen}", lists)
    gpu, data = dock.opened(), random.Random(lanes + gen).randbytes(SIZE)
    buffer = gpu.allocate(SIZE)
    for _ in range(2):
        gpu.upload(buffer, data)
        began = dock.usb.clock.now()
        assert gpu.download(buffer, SIZE) == data
    rate = SIZE / (dock.usb.clock.now() - began)
    assert rate < 250e6 if (lanes, gen) == (1, 1) else rate > 250e6
    gpu.close()


@pytest.mark.slow
@pytest.mark.parametrize("lists", [True, False], ids=["lists", "compatible"])
def test_a_link_that_flaps_between_widths(lists: bool) -> None:
    dock = Dock("gpu=gfx1100&vram=256M&inject=link-width@400ms+20ms=1", lists)
    gpu, data = dock.opened(), random.Random(7).randbytes(600_000)
    buffer, seen = gpu.allocate(len(data)), set()
    while dock.usb.clock.now() < 0.44:
        seen.add(str(dock.link()))
        dock.usb.clock.sleep(0.005)
        gpu.upload(buffer, data)
        assert gpu.download(buffer, len(data)) == data
    assert dock.reported() == "8 GT/s x4"
    assert seen == {"8 GT/s x4", "8 GT/s x1"} or not lists, "without lists, an upload outlasts it"
    gpu.close()


@pytest.mark.slow
def test_launches_that_wait_for_an_upload_that_is_sent_again() -> None:
    """On one lane the card copies a part too slowly: what was launched before is launched once more."""
    gpu = Dock("gpu=gfx1100&vram=256M&lanes=1&gen=2", lists=False).opened()
    parsed = gpus.kernels.parse(code_object("integer", gpu.chip))
    image = gpu.allocate(len(parsed.image), 4096)
    rng = np.random.default_rng(3)
    inputs = [rng.integers(0, 1 << 32, (600, 256), np.uint32) for _ in range(6)]
    sources, targets = ([gpu.allocate(one.nbytes) for one in inputs] for _ in range(2))
    load, launches, there = [Write(image, 0, parsed.image)], [], len(parsed.image)
    for given, source, target in zip(inputs, sources, targets, strict=True):
        load.append(Write(source, 0, given.tobytes()))
        there += given.nbytes
        scan = parsed.kernels["scan"].launch(image.address, (len(given),), None, [source, target])
        launches.append((scan, there))
    got = gpu.stream(load, launches, [Read(one, 0, one.size) for one in targets])
    assert gpu.streams._paced, "the upload was not sent again"
    for given, data in zip(inputs, got, strict=True):
        wanted = np.add.accumulate(given, axis=1, dtype=np.uint32)
        assert (np.frombuffer(data, np.uint32).reshape(-1, 256) == wanted).all()
    gpu.close()

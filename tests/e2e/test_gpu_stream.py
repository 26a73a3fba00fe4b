"""Streams between the host and VRAM over the whole emulated path: USB, the bridge's firmware, PCIe, SDMA."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from emulator.amdgpu.card import AmdCard
from emulator.board import Board
from emulator.core.clock import clocks
from emulator.options import Options
from emulator.pcie.ports import USUAL, Slot
from emulator.usb.wire import Speed
from tests.amount import amount
from tests.gpu_host import firmware
from tests.list_host import noise
from usbgpu import bridge, pcie, transport
from usbgpu.amd.gpu import Gpu, on_bridge
from usbgpu.amd.stream_parts import Piece
from usbgpu.transport import Disconnected, Transport

VRAM = 256 << 20
LINK = 700e6
"""Bytes a second of the bridge's slot DMA."""
MIB = 1 << 20


@dataclass
class Way:
    """A GPU at the end of the whole path.

    Attributes:
        calls: transfers since they were last cleared.
    """

    board: Board
    transport: Transport
    gpu: Gpu
    calls: list[object]

    @property
    def card(self) -> AmdCard:
        assert isinstance(self.board.endpoint, AmdCard)
        return self.board.endpoint

    def measure(self, what: str, action, size: int, least: float = 0.0, most: int = 1 << 30):
        """Run it; transfers and share of the link must reach these figures."""
        self.calls.clear()
        before = self.transport.clock.now()
        result = action()
        share = size / (self.transport.clock.now() - before) / LINK
        print(f"{what} of {size} bytes: {len(self.calls)} transfers, {share:.1%} of the link")
        assert len(self.calls) <= most
        assert share >= least
        return result


def opened(chip: str, lists: bool = True, speed: Speed = Speed.SUPER_PLUS, slot: Slot = USUAL) -> Way:
    board = Board.of("firmware", Options(port=speed, strict=True, gpu=chip, vram=VRAM, slot=slot))
    usb = transport.attach(board.backend())
    calls: list[object] = []
    usb.observers.append(lambda call, outcome: calls.append(call))
    card = bridge.attach(usb, lists=lists)
    return Way(board, usb, on_bridge(card, pcie.enumerate(card), firmware(chip)), calls)


WAYS = [
    pytest.param("gfx1100", True, Speed.SUPER_PLUS, id="gfx1100"),
    pytest.param("gfx1201", False, Speed.SUPER_PLUS, id="gfx1201-compatible", marks=pytest.mark.slow),
    *(
        pytest.param(chip, lists, speed, id=f"{chip}-{lists}-{speed.name}", marks=pytest.mark.slow)
        for chip, lists, speed in (
            ("gfx1201", True, Speed.SUPER_PLUS),
            ("gfx1100", False, Speed.SUPER_PLUS),
            ("gfx1100", True, Speed.HIGH),
            ("gfx1201", False, Speed.HIGH),
        )
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "lists", "speed"), WAYS)
def test_random_pieces_arrive_and_come_back(chip: str, lists: bool, speed: Speed) -> None:
    way = opened(chip, lists, speed)
    chance = random.Random(chip)
    room = 1_200_000
    buffer, fence = way.gpu.allocate(room), way.gpu.allocate(256)
    model = bytearray(room)
    way.gpu.streams.upload([Piece(buffer.address, bytes(room)), Piece(fence.address, bytes(256))])
    for number in range(1, 4):
        pieces, at = [], chance.randrange(64)
        while at < room and len(pieces) < 9:
            size = min(chance.choice((1, 3, 4, 100, 4096, 70_001, 550_000)), room - at)
            data = chance.randbytes(size)
            pieces.append(Piece(buffer.address + at, data, 100 * number + len(pieces)))
            model[at : at + size] = data
            at += size + chance.randrange(1000)
        way.gpu.streams.upload(pieces, fence.address)
        assert way.card.vram.read(buffer.offset, room) == model
        assert way.gpu.streams.download(fence.address, 4) == pieces[-1].value.to_bytes(4, "little")
        at, size = chance.randrange(room), chance.choice((1, 511, 16_384, 262_145, 1_000_000))
        size = min(size, room - at)
        assert way.gpu.streams.download(buffer.address + at, size) == model[at : at + size]
    assert way.card.diagnosis.findings == []
    way.gpu.close()


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "lists"), [("gfx1100", True), ("gfx1201", False)])
def test_64_mib_use_the_link(chip: str, lists: bool) -> None:
    way = opened(chip, lists)
    size = amount(16, 64) * MIB
    data = noise(size)
    buffer = way.gpu.allocate(size)
    pieces = [Piece(buffer.address, data)]
    for _ in range(2):  # also when the ring is no longer at its start
        way.measure(
            f"{chip}, {'lists' if lists else 'compatible'}: upload",
            lambda: way.gpu.streams.upload(pieces),
            size,
            least=0.93 if lists else 0.84,
            most=6 + size // MIB if lists else 4 + size // (MIB // 4),
        )
        assert way.card.vram.read(buffer.offset, size) == data
        got = way.measure(
            f"{chip}, {'lists' if lists else 'compatible'}: download",
            lambda: way.gpu.streams.download(buffer.address, size),
            size,
            least=amount(0.89, 0.9) if lists else 0.71,
            most=2 + 8 * size // MIB if lists else 6 + 6 * size // MIB,
        )
        assert got == data
    assert way.card.diagnosis.findings == []
    way.gpu.close()


@pytest.mark.slow
def test_a_part_that_is_overwritten_too_early_is_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    """A slot so slow that SDMA does not finish a part before the next one comes."""
    way = opened("gfx1100", lists=False, slot=Slot(lanes=1, generation=2))
    size = 3 * MIB
    data = noise(size)
    buffer = way.gpu.allocate(size)
    for _ in range(2):
        way.gpu.streams.upload([Piece(buffer.address, data)])
        assert way.card.vram.read(buffer.offset, size) == data
    assert caplog.text.count("slower from now on") == 1
    way.gpu.close()


@pytest.mark.slow
@pytest.mark.parametrize("upload", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize(
    "lists", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["lists", "compatible"]
)
def test_a_cable_that_is_pulled(upload: bool, lists: bool) -> None:
    way = opened("gfx1100", lists)
    size = 4 * MIB
    buffer = way.gpu.allocate(size)
    data = noise(size)
    clock = way.board.machine.clock
    clock.after(clocks(3e-3), way.board.usb.unplug)
    before = way.transport.clock.now()
    streams = way.gpu.streams
    with pytest.raises(Disconnected):
        streams.upload([Piece(buffer.address, data)]) if upload else streams.download(buffer.address, size)
    assert way.transport.clock.now() - before < 1.0


@pytest.mark.slow
def test_a_storm_of_nak_only_takes_time() -> None:
    way = opened("gfx1100")
    size = 4 * MIB
    data = noise(size)
    buffer = way.gpu.allocate(size)
    chip, clock = way.board.chip, way.board.machine.clock
    for action in (
        lambda: way.gpu.streams.upload([Piece(buffer.address, data)]),
        lambda: way.gpu.streams.download(buffer.address, size),
    ):
        clock.after(clocks(2e-3), lambda: chip.usb.nak_until(clock.now + clocks(0.3)))
        before = way.transport.clock.now()
        result = action()
        assert way.transport.clock.now() - before > 0.3
        if result is not None:
            assert result == data
    assert way.card.vram.read(buffer.offset, size) == data
    way.gpu.close()

"""What is damaged on its way to a card or back: noticed by sums, sent once more, and then reported."""

import numpy as np
import pytest

from sdk.errors import InvalidArtifact, UsageError
from sdk.target import OpenOptions, Options
from sdk.targets import open_device
from tests import shader_gpu
from tests.contract.targets import random_input
from tests.graph_builder import GraphBuilder
from tests.shader_gpu import ShaderGpu, target
from usbgpu.seam import TransferDamaged
from usbgpu.target import checksum
from usbgpu.target.plan import SUMMED, CardPlan

CHIP = "gfx1100"


class Spoiling(ShaderGpu):
    """Inverts a bit of certain transfers.

    Attributes:
        spoils: transfers, counted from 0, that are damaged.
        transfers: "in" for those to the card, and "out", so far.
    """

    def __init__(self, chip):
        super().__init__(chip)
        self.spoils, self.transfers, self.inside = (), [], False

    def passed(self, way, data):
        if self.inside or not len(data):
            return data
        self.transfers.append(way)
        if len(self.transfers) - 1 not in self.spoils:
            return data
        spoilt = bytearray(data)
        spoilt[-1] ^= 0x10  # of code, a byte that no instruction has
        return bytes(spoilt)

    def upload(self, buffer, data, offset=0):
        super().upload(buffer, self.passed("in", data), offset)

    def download(self, buffer, size, offset=0):
        return self.passed("out", super().download(buffer, size, offset))

    def allocate(self, size, alignment=256):
        return self.alone(super().allocate, size, alignment)

    def launch(self, launch):
        return self.alone(super().launch, launch)

    def alone(self, work, *arguments):
        """No transfers of the network's."""
        self.inside = True
        try:
            return work(*arguments)
        finally:
            self.inside = False


def small():
    b = GraphBuilder((1, 3, 12, 12), seed=4)
    x = b.conv("x", 16, 3, strides=2, pads=1, relu=True)
    x = b.conv(b.depthwise(b.conv(x, 48, relu=True), pads=1, relu=True), 16)
    b.gemm(b.reshape(b.global_average_pool(x)), 10)
    return b.graph()


@pytest.fixture(scope="module")
def program():
    return target(CHIP).compile(small(), Options())


class Card:
    """A program on a card that spoils transfers."""

    def __init__(self, program, *, verify):
        self.gpu = Spoiling(CHIP)
        device = target(CHIP, lambda chip: self.gpu).open(None, OpenOptions(verify_transfers=verify))
        self.session = device.load(program)

    def run(self, feeds, spoils=()):
        """The outputs, with these transfers of this inference damaged."""
        begins = len(self.gpu.transfers)
        self.gpu.spoils = {begins + number for number in spoils}
        return self.session.run(feeds)


@pytest.mark.parametrize("size", [1, 4, 7, SUMMED - 1, SUMMED, SUMMED + 2, 3 * SUMMED + 4096])
def test_card_and_host_have_the_same_sums(program, size):
    plan, gpu = CardPlan.of(program), ShaderGpu(CHIP)
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    code, memory = gpu.allocate(plan.memory["code"], 4096), gpu.allocate(size + 4)
    sums = gpu.allocate(4 * checksum.blocks(size))
    for piece in plan.image:
        gpu.upload(code, program.code[piece.file][piece.offset : piece.offset + piece.size], piece.at)
    gpu.upload(memory, data + b"\x5a\x5a\x5a\x5a")
    kernel = plan.kernels[plan.checksum]
    gpu.launch(checksum.launch("sums", kernel, code.address, memory.address, size, sums.address))
    found = np.frombuffer(gpu.download(sums, sums.size), np.uint32)
    parts = [data[:3], data[3 : size // 2], data[size // 2 :]] if size > 8 else [data]
    assert found.tolist() == checksum.sums(parts).tolist()


@pytest.mark.parametrize("bit", [0, 31])
def test_two_bits_that_change_do_not_cancel(bit):
    data = np.random.default_rng(bit).integers(0, 1 << 32, 512, np.uint32)
    (whole,) = checksum.sums([data.tobytes()])
    for place in range(1, 512):
        other = data.copy()
        other[[0, place]] ^= np.uint32(1 << bit)
        assert checksum.sums([other.tobytes()])[0] != whole
        other = data.copy()
        other[[0, place]] = other[[place, 0]]
        assert checksum.sums([other.tobytes()])[0] != whole or data[0] == data[place]


def loads(program):
    """How many transfers bring code, inputs and weights."""
    card = Card(program, verify=False)
    card.run(random_input(program.graph))
    return card.gpu.transfers.index("out")


@pytest.mark.slow
@pytest.mark.parametrize(("spoilt", "what"), [(0, "code"), (-1, "weights")])
def test_code_and_weights_that_arrive_damaged_are_sent_again(program, caplog, spoilt, what):
    feeds, count = random_input(program.graph), loads(program)
    card = Card(program, verify=False)
    np.testing.assert_equal(card.run(feeds, [spoilt % count]), shader_run(program, feeds))
    assert card.gpu.transfers.count("in") == 2 * count
    assert what in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("inference", range(2))
def test_with_verification_no_damaged_transfer_is_missed(program, inference):
    feeds, other = random_input(program.graph), random_input(program.graph, seed=2)
    expected = shader_run(program, feeds)
    spoilt = 0
    while True:
        card = Card(program, verify=True)
        for _ in range(inference):
            card.run(other)
        begins = len(card.gpu.transfers)
        np.testing.assert_equal(card.run(feeds, [spoilt]), expected)
        if begins + spoilt >= len(card.gpu.transfers):
            break
        spoilt += 1
    assert spoilt >= 3  # inputs, outputs, sums


@pytest.mark.slow
def test_what_is_damaged_twice_is_reported(program):
    card = Card(program, verify=True)
    with pytest.raises(TransferDamaged):
        card.run(random_input(program.graph), range(100))


@pytest.mark.slow
def test_traces_are_verified(program):
    feeds = random_input(program.graph)
    healthy = Card(program, verify=True)
    expected, transfers = healthy.session.trace(feeds), len(healthy.gpu.transfers)
    for spoilt in range(0, transfers, 3):
        card = Card(program, verify=True)
        card.gpu.spoils = {spoilt}
        np.testing.assert_equal(card.session.trace(feeds), expected)


def test_the_cost_is_measured(program):
    found = Card(program, verify=True).session.verification()
    assert found.inputs == 3 * 12 * 12
    assert found.outputs == 10
    assert 0 < found.seconds < found.of
    assert Card(program, verify=False).session.verification() is None


@pytest.mark.slow
def test_programs_without_the_kernel_run_and_cannot_be_verified(program):
    old = target(CHIP).compile(small(), Options())
    old.plan |= {"checksum": None, "sums": []}
    feeds = random_input(program.graph)
    np.testing.assert_equal(Card(old, verify=False).run(feeds), Card(program, verify=False).run(feeds))
    with pytest.raises(InvalidArtifact, match="earlier release"):
        Card(old, verify=True)


def test_other_targets_have_no_transfers():
    with pytest.raises(UsageError):
        open_device("c", None, OpenOptions(verify_transfers=True))


@pytest.mark.slow
def test_frames_that_are_verified_do_not_overlap(program):
    card = Card(program, verify=True)
    feeds = [random_input(program.graph, seed) for seed in range(4)]
    waiting = [card.session.submit(one) for one in feeds]
    expected = [shader_run(program, one) for one in feeds]
    for one, outputs in zip(waiting, expected, strict=True):
        np.testing.assert_equal(one(), outputs)


def shader_run(program, feeds):
    with shader_gpu.target(CHIP).open(None).load(program) as session:
        return session.run(feeds)

"""Networks on a GPU with faults, and GPUs that cannot be opened: clear errors, nothing left behind."""

from __future__ import annotations

import dataclasses
import itertools
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.amdgpu import discovery as tables
from emulator.board import Board
from emulator.options import Options
from sdk.errors import DeviceFailed, DeviceMissing, Unsupported
from sdk.graph import Graph
from tests.amount import amount
from tests.footprint import leaves_nothing
from tests.gpu_faults import MIB, Desk, Killed, Network, ended_with, misuse_code
from tests.graph_builder import GraphBuilder
from tests.unit.test_gpu_discovery import sealed
from usbgpu import bridge as bridges
from usbgpu import transport
from usbgpu.amd import gpu as gpus
from usbgpu.amd.compute import KernelFailed
from usbgpu.amd.facts import discovery as facts
from usbgpu.amd.facts.chips import CHIPS, HARDWARE_IDS
from usbgpu.amd.firmware import FirmwareMissing, InvalidFirmware
from usbgpu.amd.recover import CardLost
from usbgpu.transport import Disconnected

SLOW = pytest.mark.slow
NOWHERE = 0x1234_5678_9000
EXPECTED: dict[str, type[BaseException]] = {
    "unplug": Disconnected,
    "interrupt": KeyboardInterrupt,
    "kill": Killed,
    "lose_power": DeviceFailed,
    "reset_card": CardLost,
}
"""The errors that a program with a fault ends with."""
BROKEN = tuple(EXPECTED.values())


pytestmark = pytest.mark.usefixtures("quiet_card")


def graph() -> Graph:
    """A small network."""
    b = GraphBuilder((1, 3, 12, 12), seed=4)
    x = b.conv("x", 16, 3, strides=2, pads=1, relu=True)
    x = b.conv(b.depthwise(b.conv(x, 48, relu=True), pads=1, relu=True), 16)
    b.gemm(b.reshape(b.global_average_pool(x)), 10)
    return b.graph()


@pytest.fixture(scope="module")
def network() -> Network:
    return Network(Desk(), graph())


# -- faults of inferences ---------------------------------------------------------------------------------


@SLOW
@pytest.mark.parametrize(
    ("what", "inference"),
    amount(
        [(what, place % 3) for place, what in enumerate(EXPECTED)], [*itertools.product(EXPECTED, range(3))]
    ),
)
def test_inferences_that_are_interrupted(network, what, inference):
    """The first one, which streams; the second, which prepares; and one after that. At each transfer."""
    desk = network.desk
    for number in range(1, 100):
        session = network.load()
        for _ in range(inference):
            network.run(session)
        desk.calm()
        desk.at(number, getattr(desk, what))
        problem = ended_with(lambda session=session: network.run(session), *BROKEN, fine=number > 1)
        if what == "kill":
            network.gpu.card.bridge.close()
        else:
            desk.calm()
            if problem is not None:
                with pytest.raises(DeviceFailed):
                    session.run(network.inputs[0])
            session.close()
            assert network.is_empty
        if problem is None:
            break
        assert isinstance(problem, EXPECTED[what])
        if what == "unplug":
            desk.plug(power=bool(number % 2))
        network.works()
    network.works()
    assert number > 1


@pytest.mark.slow
def test_a_page_fault_in_a_layer(network):
    """The layer is named, and the network can be loaded again."""
    session = network.load()
    third = session._launches[False][2]
    addresses = bytearray(third.kernarg)
    struct.pack_into("<Q", addresses, 0, NOWHERE)
    session._launches[False][2] = dataclasses.replace(third, kernarg=bytes(addresses))
    with pytest.raises(KernelFailed, match=r"page fault: \w+ of the page at 0x12345678") as caught:
        session.run(network.inputs[0])
    assert caught.value.kernel == third.name
    session.close()
    assert network.is_empty
    network.works()
    assert not network.desk.cold, "its queues have been recovered before it was closed"


@SLOW
@pytest.mark.parametrize("inference", [0, 1])
def test_launches_in_the_wrong_order_are_seen(network, inference):
    """In the stream of the first inference, and in the prepared buffer of the others."""
    session = network.load()
    for _ in range(inference):
        network.run(session)
    launches = session._launches[False]
    launches[2], launches[3] = launches[3], launches[2]
    with pytest.raises(AssertionError, match="Mismatched elements"):
        network.run(session)
    session.close()
    network.works()


@SLOW
@pytest.mark.parametrize("inference", [0, 1])
def test_a_layer_that_never_ends(network, inference):
    session = network.load()
    for _ in range(inference):
        network.run(session)
    spin = network.gpu.load(misuse_code(network.desk.chip))
    flag = network.gpu.allocate(4096)
    network.gpu.upload(flag, bytes(4096))
    launch = dataclasses.replace(spin["spin"].launch(1, flag), name=session._launches[False][1].name)
    session._launches[False][1] = launch
    before = network.gpu.card.bridge.clock.now()
    with pytest.raises(KernelFailed, match=f"{launch.name} .* 10 s"):
        session.run(network.inputs[0])
    assert network.gpu.card.bridge.clock.now() - before < 12
    session.close()
    network.works()
    assert not network.desk.cold


# -- memory ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("parts", [(), ("code",), ("code", "weights")], ids=["none", "one", "two"])
def test_a_network_that_has_no_room(network, parts):
    """It is refused with the sizes before anything is uploaded, and what it had taken is freed."""
    memory = network.program.plan["memory"]
    network.hog = 4096 + sum(memory[part] for part in parts)
    desk = network.desk
    try:
        device = network.target.open(None)
        desk.calm()
        with pytest.raises(Unsupported, match=r"VRAM.*, .* free") as caught:
            device.load(network.program)
        assert caught.value.hint
        assert desk.transfers <= 2, "it was closed"
        assert network.is_empty
    finally:
        network.hog = None


@pytest.mark.slow
def test_launches_without_room(network):
    """There is room for the network, but not for the packets of its launches."""
    session = network.load()
    rest = network.gpu.allocate(network.gpu.memory.largest)
    with pytest.raises(Unsupported, match="of VRAM"):
        session.run(network.inputs[0])
    rest.free()
    session.close()
    assert network.is_empty
    network.works()


# -- cycles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cycles", [pytest.param(amount(25, 200), marks=SLOW)])
def test_cycles_leave_nothing_behind(network, cycles):
    """Of opening, loading, running and closing: descriptors, threads, memory here and on the card."""

    def cycle() -> None:
        network.desk.card.scoreboard.clear()  # which keeps a record of each dispatch
        with network.load() as session:
            network.run(session)
        assert network.is_empty

    leaves_nothing(cycle, cycles, objects=500 + 5 * cycles, kilobytes=4096)


# -- firmware files ----------------------------------------------------------------------------------------


def spoiled(directory: Path, target: Path, how: str) -> None:
    """Copy firmware, and damage one file."""
    other = {"gfx1100": "gfx1201", "gfx1201": "gfx1100"}
    names = sorted(path.name for path in directory.iterdir())
    for name in names:
        (target / name).write_bytes((directory / name).read_bytes())
    victim = next(target / name for name in names if "imu" in name)
    data = victim.read_bytes()
    match how:
        case "missing":
            victim.unlink()
        case "truncated":
            victim.write_bytes(data[: len(data) // 2])
        case "empty":
            victim.write_bytes(b"")
        case "unreadable":
            victim.unlink()
            victim.mkdir()
        case "of another chip":
            foreign = Desk(other["gfx1100"]).board.firmware_directory
            assert foreign is not None
            (found,) = (path for path in foreign.iterdir() if "imu" in path.name)
            victim.write_bytes(found.read_bytes()[:-256])


@pytest.mark.parametrize(
    ("how", "lists"),
    [
        *(
            pytest.param(how, lists, marks=SLOW)
            for place, how in enumerate(("truncated", "missing", "empty", "unreadable", "of another chip"))
            for lists in amount((bool(place % 2),), (False, True))
        ),
    ],
)
def test_firmware_is_refused_before_the_card_is_touched(how, lists, tmp_path):
    desk = Desk(lists=lists)
    spoiled(desk.board.firmware_directory, tmp_path, how)
    written: list[str] = []
    desk.card.register_observers.append(
        lambda access, block, register, value: written.append(register.name) if access == "write" else None
    )
    with pytest.raises((FirmwareMissing, InvalidFirmware), match="imu"):
        desk.open(firmware=tmp_path)
    assert not written
    desk.open().close()


# -- other cards, other bridges ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("lists", [True, pytest.param(False, marks=SLOW)], ids=["lists", "compatible"])
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("harvested", "GC of this gfx1100"),
        pytest.param("unknown", r"unknown GPU: .*GC 11\.9\.9", marks=SLOW),
    ],
)
def test_cards_that_cannot_be_used(what, words, lists):
    """The bridge is released, the card is unchanged."""
    desk = Desk(lists=lists)
    chip = CHIPS["gfx1100"]
    if what == "unknown":
        chip = dataclasses.replace(chip, versions={**chip.versions, "GC": (11, 9, 9)})
    binary = bytearray(tables.binary(chip))
    if what == "harvested":
        place = binary.index(struct.pack("<I", facts.HARVEST_SIGNATURE)) + 8
        binary[place : place + 4] = struct.pack("<HBB", HARDWARE_IDS["GC"], 0, 0)
    desk.card.vram.write(desk.card.vram.size - facts.OFFSET_FROM_END, sealed(bytes(binary)))
    for _ in range(2):
        with pytest.raises(Unsupported, match=words) as caught:
            desk.open()
        assert "emulated" in str(caught.value)


@pytest.mark.parametrize("level", [0x0200, pytest.param(0x00FF, marks=SLOW)])
def test_a_bridge_of_another_api_level(level, monkeypatch):
    """Refused with what to do; without lists it can be driven."""
    desk = Desk()
    monkeypatch.setattr(bridges.opening, "API_LEVEL", level)
    with pytest.raises(bridges.FirmwareUnsuitable, match=f"{level >> 8}.{level & 0xFF}$") as caught:
        desk.open()
    assert "towline firmware flash" in caught.value.hint
    desk.lists = False
    desk.bridge().close()


@pytest.mark.parametrize(
    ("device", "error"),
    [
        ("emulated:firmware", DeviceMissing),
        ("emulated:storage", bridges.FirmwareUnsuitable),
        ("emulated:firmware?strap", bridges.FirmwareUnsuitable),
    ],
)
def test_bridges_with_other_firmware_or_no_gpu(device, error):
    with pytest.raises(error) as caught:
        gpus.open(device)
    assert caught.value.hint


# -- two at once -------------------------------------------------------------------------------------------

HOLDER = """
import sys
from usbgpu.transport.lock import DeviceLock
lock = DeviceLock("usb-1-1")
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_has_the_gpu(monkeypatch, tmp_path):
    """The lock is that of real devices, by their port."""
    monkeypatch.setenv("TOWLINE_LOCKS", str(tmp_path))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    board = Board.of("firmware", Options(gpu="gfx1100", vram=256 * MIB))
    (found,) = transport.bus.devices(backend := board.backend())
    calls: list[object] = []
    monkeypatch.setattr(backend, "ctrl_transfer", lambda *call: calls.append(call))
    monkeypatch.setattr(transport.opening.bus, "the_one", lambda named: found)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(transport.DeviceBusy, match=f"process {holder.pid} "):
            gpus.open("usb")
        assert not calls
    finally:
        holder.kill()
        holder.communicate()

"""The dock's supply: request C0 against a host that is written from the published description alone.

That description: a vendor request towards the host, bRequest C0, 5 bytes: voltage in mV (u16), current in mA
(s16), fault (u8), least significant byte first; hosts wait 100 ms.
"""

from __future__ import annotations

import struct

import pytest
import usb.core

from emulator.board import Board
from emulator.core.clock import seconds
from emulator.ina231 import Ina231
from emulator.options import described
from emulator.supply import BRIDGE_WATTS
from emulator.usb.pyusb_backend import Backend
from emulator.usb.wire import Outcome, Setup, Speed, Stall
from firmware import build
from firmware.asm2464pd import supply as facts
from firmware.asm2464pd.describe import ByteRegister, Space
from firmware.asm2464pd.registers.i2c import I2C_CSR
from firmware.asm2464pd.registers.usb import EP0_COMMAND
from firmware.protocol.command_list import CommandList
from tests.bridge_rig import powered, rig_of
from tests.reference_host import Host, power_up
from tests.unit.open_firmware import OpenFirmware
from usbgpu import transport
from usbgpu.bridge import SensorMissing, Supply
from usbgpu.bridge.supply import SupplyReader

VOLTS, CURRENT = 11996, 208
"""What the bridge alone draws."""
NOTHING = bytes((0, 0, 0, 0, 0x80))


def published(board: Board) -> tuple[int, int, bool]:
    """What the dock's published tools read, in the way that they do."""
    device = usb.core.find(backend=board.backend())
    return struct.unpack("<Hh?", bytes(device.ctrl_transfer(0xC0, 0xC0, 0, 0, 5, timeout=100)))


def host_of(device: str) -> Host:
    board = Board.of("firmware", described(device)[1])
    assert board.usb.wait_attached(3.0)
    board.usb.enumerate()
    return Host(board)


def at(host: Host, moment: float) -> tuple[int, int, int]:
    """What C0 answers at a time since power-on."""
    host.sleep(moment - seconds(host.board.machine.clock.now))
    return struct.unpack("<HhB", host.control_in(0xC0, 0, 0, 5, timeout=0.1))


# -- the request --------------------------------------------------------------------------------------------


def test_c0_as_the_published_tools_ask() -> None:
    board = powered()
    assert published(board) == (VOLTS, CURRENT, False)
    assert pytest.approx(1e3 * BRIDGE_WATTS / 12, abs=2) == CURRENT


@pytest.mark.slow
@pytest.mark.parametrize("speed", [Speed.SUPER_PLUS, Speed.HIGH])
def test_c0_has_five_bytes_or_as_many_as_the_host_wants(speed: Speed) -> None:
    host = power_up(speed)
    for length in (1, 2, 4, 5, 64, 512):
        found = host.control_in(0xC0, 0xFFFF, 0xFFFF, length)
        assert found == struct.pack("<HhB", VOLTS, CURRENT, 0)[:length]


def test_every_current_is_that_of_the_published_firmware() -> None:
    host = power_up()
    sensor = host.board._sensor
    sensor.volts = lambda: 36.0
    for shunt in (0, 1, 2, 879, 5000, 28794, 0x7FFF, -1, -2, -879, -0x8000):
        sensor.shunt_volts = lambda shunt=shunt: shunt * 2.5e-6
        host.sleep(5e-3)
        found = struct.unpack("<Hh", host.control_in(0xC0, 0, 0, 4))
        assert found == (36000, facts.milliamperes(shunt & 0xFFFF))


def test_the_card_is_in_it_and_gone_with_the_slots_power() -> None:
    host = host_of("emulated?gpu=gfx1100&vram=512M")
    assert host.board.card is not None
    drawn = BRIDGE_WATTS + host.board.card.watts()
    volts, current, _ = struct.unpack("<HhB", host.control_in(0xC0, 0, 0, 5))
    assert volts * current / 1e6 == pytest.approx(drawn, rel=2e-3)
    host.power(False)
    host.sleep(5e-3)  # two conversions of the sensor
    assert host.control_in(0xC0, 0, 0, 5) == struct.pack("<HhB", VOLTS, CURRENT, 0)


@pytest.mark.slow
def test_faults_of_the_supply() -> None:
    host = host_of("emulated?inject=supply-fault@900ms+100ms,supply-sag@2s+1s=10.5V")
    assert at(host, 0.95) == (VOLTS, CURRENT, 1)
    assert at(host, 1.05) == (VOLTS, CURRENT, 0)
    assert at(host, 2.5)[::2] == (10495, 0)
    assert at(host, 3.1) == (VOLTS, CURRENT, 0)


@pytest.mark.slow
def test_a_sag_below_what_the_dock_needs_takes_the_power() -> None:
    host = host_of("emulated?inject=supply-sag@900ms+300ms=8V")
    host.sleep(1.0 - seconds(host.board.machine.clock.now))
    assert not host.board.machine.running
    host.sleep(1.0)
    assert host.board.usb.wait_attached(3.0)
    host.board.usb.enumerate()
    assert at(host, 3.0) == (VOLTS, CURRENT, 0)


@pytest.mark.parametrize("device", ["emulated?no-sensor&strict", "emulated?inject=no-sensor"])
def test_no_sensor_is_reported_at_once(device: str) -> None:
    host = host_of(device)
    before = host.now
    assert host.control_in(0xC0, 0, 0, 5, timeout=0.1) == NOTHING
    assert host.now - before < 1e-3


def test_a_bus_that_hangs_is_no_sensor_within_the_hosts_time() -> None:
    host = host_of("emulated")
    host.poke(0xC87A, 0x08)
    before = host.now
    assert host.control_in(0xC0, 0, 0, 5, timeout=0.1) == NOTHING
    assert 0.01 <= host.now - before < 0.03


def test_wrong_shapes_are_refused() -> None:
    usb_ = power_up().board.usb
    for kind, length in ((0x40, 0), (0x40, 5), (0xC1, 5), (0xC0, 0)):
        with pytest.raises(Stall):
            usb_.control(Setup(kind, 0xC0, 0, 0, length), bytes(0 if kind & 0x80 else length), timeout=1)


def test_a_newer_request_ends_it() -> None:
    host = power_up()
    host.board.usb.submit_control(Setup(0xC0, 0xC0, 0, 0, 5))
    host.sleep(50e-6)
    assert host.peek(0xB450) == b"\x78"
    assert host.control_in(0xF9, 0, 0, 32)[6] == 0x78
    host.sleep(1e-3)
    assert host.control_in(0xC0, 0, 0, 5) == struct.pack("<HhB", VOLTS, CURRENT, 0)


class Written:
    """Registers that the firmware writes, in order."""

    def __init__(self, board: Board, *registers: ByteRegister) -> None:
        self.seen: list[ByteRegister] = []
        self._registers = {(register.space, register.address): register for register in registers}
        for place in self._registers:
            board.machine.bus.watch(*place)
        board.machine.bus.observers.append(self)

    def accessed(self, kind: str, space: Space, address: int, value: int) -> None:
        if kind == "W" and (space, address) in self._registers:
            self.seen.append(self._registers[space, address])

    def changed(self, space: Space, address: int, data: bytes) -> None:
        pass

    def line(self, number: int, level: bool) -> None:
        pass


def test_a_bus_reset_ends_it() -> None:
    """The sensor is read to the end, and nothing is sent: on silicon the next request might get it."""
    host = power_up()
    usb_ = host.board.usb
    pending = usb_.submit_control(Setup(0xC0, 0xC0, 0, 0, 5))
    host.sleep(50e-6)
    written = Written(host.board, I2C_CSR, EP0_COMMAND)
    usb_.reset()
    host.sleep(5e-3)
    assert pending.outcome is Outcome.GONE
    assert I2C_CSR in written.seen
    assert EP0_COMMAND not in written.seen
    usb_.enumerate()
    assert host.control_in(0xC0, 0, 0, 5) == struct.pack("<HhB", VOLTS, CURRENT, 0)


def test_it_is_answered_in_the_middle_of_a_list_and_holds_nothing_up() -> None:
    rig = rig_of(powered())
    device, commands = rig.transport, CommandList()
    commands.delay(40_000)
    commands.config_read(0)
    took = []
    for ask in (False, True):
        device.control_out(0x40, 0xF8, value=1, index=7)
        began = device.clock.now()
        device.bulk_out(commands.head(7, device.packet_size))
        if ask:
            assert rig.bridge.supply() == Supply(VOLTS / 1e3, CURRENT / 1e3, False)
            assert device.clock.now() - began < 1e-3
        assert commands.parse(device.bulk_in(4096), 7).values == (0x2463_1B21,)
        took.append(device.clock.now() - began)
    assert took[1] == pytest.approx(took[0], abs=1e-3)


@pytest.mark.parametrize("on", [True, False])
def test_it_is_answered_while_the_slot_is_switched(on: bool) -> None:
    host = power_up()
    host.power(not on)
    pending = host.board.usb.submit_control(Setup(0x40, 0xF3, int(on), 0, 0))
    host.board.usb.wait(pending, timeout=5)
    assert host.control_in(0xC0, 0, 0, 5, timeout=0.1)[4:] == b"\0"


# -- without the request ------------------------------------------------------------------------------------


def test_through_the_registers_of_firmware_that_leaves_the_request_unanswered() -> None:
    running: list[OpenFirmware] = []
    sensor = Ina231(lambda: running[0].clock.now if running else 0, lambda: 11.5, lambda: -0.0103)
    running.append(OpenFirmware(i2c={facts.ADDRESS: sensor}))
    with transport.attach(Backend([running[0].host])) as device:
        reader = SupplyReader(device)
        device.clock.sleep(0.01)
        for patience in (0.2, 0.05):  # the second time it does not ask in vain
            began = device.clock.now()
            assert reader.read() == Supply(11.5, facts.milliamperes(-4120 & 0xFFFF) / 1e3, False)
            assert device.clock.now() - began < patience


def test_through_the_registers_of_firmware_that_refuses_it(tmp_path) -> None:
    code = build.build().bin.read_bytes()
    entry = bytes((0xC0, 0xC0, 0xFF))  # of the table of requests
    assert code.count(entry) == 1
    older = tmp_path / "older.bin"
    older.write_bytes(code.replace(entry, bytes((0xC0, 0xBF, 0xFF))))
    for options, answers in (("", True), ("&no-sensor", False)):
        with transport.open(f"emulated:{older}?strict{options}") as device:
            reader = SupplyReader(device)
            if answers:
                assert reader.read() == Supply(VOLTS / 1e3, CURRENT / 1e3, False)
            else:
                with pytest.raises(SensorMissing):
                    reader.read()
            assert device.control_in(0xC0, 0xE4, value=0xC805, length=1)[0] & 0x10 == 0


@pytest.mark.parametrize("lists", [True, False])
def test_a_bridge_without_sensor_has_no_supply(lists: bool) -> None:
    rig = rig_of(powered(sensor=False), lists=lists, enumerated=False)
    assert rig.bridge.supply() is None
    with pytest.raises(SensorMissing) as found:
        rig.bridge.measured_supply()
    assert found.value.where == rig.transport.name

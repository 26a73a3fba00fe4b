"""The link: what it takes to come up, at which speed, and what happens when it goes."""

from __future__ import annotations

import pytest

from emulator.asm2464pd.usb_link import Link
from emulator.model import Model
from emulator.usb.wire import Handshake, Speed
from firmware.asm2464pd import phy
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import interrupts, usb, usb_phy
from tests.unit.usb_bench import SPEEDS, Bench, attached


@pytest.mark.parametrize(("best", "code"), [(Speed.SUPER_PLUS, 3), (Speed.SUPER, 2)])
def test_super_speed(best, code):
    bench = Bench(best)
    bench.set_up_lanes()
    bench.set_up_controller()
    bench.usb.connect(bench.port)
    assert bench.read(usb.USB_LINK_SPEED) == 0
    bench.pass_time(0.015)
    assert bench.read(usb.USB_LINK_EVENTS) == usb.USB_LINK_EVENTS["TRAINING"]
    assert bench.events == interrupts.USB_EVENTS["LINK_TRAINING"]
    assert bench.line
    assert bench.port.events == []
    bench.pass_time(0.015)
    assert bench.read(usb.USB_LINK_STATUS) == usb.USB_LINK_STATUS["SS_OK"]
    assert bench.port.events == [best]
    assert bench.read(usb.USB_LINK_SPEED) == code
    assert bench.read(usb.USB_PHY_CONTROL) == usb.USB_PHY_CONTROL["SS_UP"]
    bench.acknowledge(usb.USB_LINK_EVENTS, usb.USB_LINK_STATUS)
    assert not bench.line


def test_high_speed_after_super_speed_has_failed():
    bench = Bench(Speed.HIGH)
    bench.set_up_lanes()
    bench.set_up_controller()
    bench.usb.connect(bench.port)
    bench.pass_time(1)
    assert bench.read(usb.USB_LINK_STATUS) == usb.USB_LINK_STATUS["SS_FAIL"]
    assert bench.port.events == [], "nothing attaches before firmware switches over"
    bench.write(usb.USB_MODE, 0)
    bench.pass_time(1)
    assert bench.port.events == []
    bench.write(usb.USB_PHY_CONTROL, 0x10)
    bench.write(usb.USB_LINK_STATUS, 0x04)
    bench.pass_time(1)
    assert bench.port.events == [Speed.HIGH]
    assert bench.read(usb.USB_LINK_SPEED) == 1
    assert bench.read(usb.USB_PHY_CONTROL) == 0x10, "SS_UP stays clear"
    assert bench.read(usb.USB_LINK_STATUS) == 0


def test_firmware_that_wants_high_speed_from_the_start():
    bench = Bench(Speed.SUPER_PLUS)
    bench.go_high_speed()
    bench.set_up_lanes()
    bench.set_up_controller()
    bench.usb.connect(bench.port)
    bench.pass_time(0.1)
    assert bench.port.events == [Speed.HIGH]
    assert bench.read(usb.USB_LINK_STATUS) == 0


def test_firmware_that_gives_up_super_speed_while_it_trains():
    """As when the set-up of the lanes is done just before USB_MODE is written."""
    bench = Bench(Speed.SUPER_PLUS)
    bench.set_up_lanes()
    bench.set_up_controller()
    bench.usb.connect(bench.port)
    bench.pass_time(0.015)
    assert bench.read(usb.USB_LINK_EVENTS) == 0x01, "it trains"
    bench.go_high_speed()
    bench.pass_time(0.05)
    assert bench.port.events == [Speed.HIGH]
    assert bench.read(usb.USB_LINK_STATUS) == 0


def test_lanes_that_are_not_set_up_are_named_once(caplog):
    bench = Bench()
    bench.set_up_lanes(phy.USB_LANES[:1])
    bench.usb.connect(bench.port)
    bench.pass_time(0.1)
    assert not caplog.messages, "the power is off, firmware may not have begun"
    bench.set_up_controller()
    bench.pass_time(0.1)
    assert len(caplog.messages) == 1
    assert "0xc302" in caplog.messages[0]


def test_high_speed_needs_the_set_up_too():
    bench = Bench(Speed.HIGH)
    bench.usb.connect(bench.port)
    bench.go_high_speed()
    bench.pass_time(0.1)
    assert bench.port.events == []


def test_cable_pulled_while_the_link_trains():
    bench = Bench()
    bench.set_up_lanes()
    bench.set_up_controller()
    bench.usb.connect(bench.port)
    bench.pass_time(0.015)
    bench.usb.connect(None)
    bench.pass_time(0.1)
    assert bench.usb.speed is None
    assert bench.read(usb.USB_LINK_STATUS) == 0


@pytest.mark.parametrize("best", SPEEDS)
def test_writes_to_mode_and_phy_leave_an_attached_link_alone(best):
    bench = attached(best)
    for value in (0x02, 0x10, 0x01, 0x00):
        bench.write(usb.USB_PHY_CONTROL, value)
        assert bench.read(usb.USB_PHY_CONTROL) == value, "the maker's firmware sets and clears SS_UP itself"
    for mode in (1, 0):
        bench.write(usb.USB_MODE, mode)
        bench.pass_time(0.1)
    assert bench.port.events == [best]


def test_firmware_goes_back_to_super_speed():
    bench = Bench()
    bench.write(usb.USB_MODE, 0)
    bench.set_up_lanes()
    bench.set_up_controller()
    bench.usb.connect(bench.port)
    bench.pass_time(0.1)
    assert bench.port.events == []
    bench.write(usb.USB_MODE, 1)
    bench.pass_time(0.1)
    assert bench.port.events == [Speed.SUPER_PLUS]


def test_no_event_before_the_set_up_is_complete():
    bench = Bench()
    bench.usb.connect(bench.port)
    bench.pass_time(0.1)
    bench.set_up_controller()
    bench.pass_time(0.1)
    bench.set_up_lanes(phy.USB_LANES[:1])
    bench.pass_time(0.1)
    assert bench.events == 0
    assert bench.port.events == []
    bench.set_up_lanes(phy.USB_LANES[1:])
    bench.pass_time(0.1)
    assert bench.port.events == [Speed.SUPER_PLUS]


def test_every_update_of_the_lanes_counts():
    """All bits that an update determines, of every offset and both lanes; no others."""
    bench = Bench()
    link = Link(bench.bus, bench.interrupts, changed=lambda speed: None)
    bench.set_up_lanes()
    bench.set_up_controller()
    for lane in phy.USB_LANES:
        for update in phy.USB_LANE_SETUP:
            address = lane + update.offset
            value = bench.bus.cpu_read(Space.XDATA, address)
            for bit in range(8):
                determined = (~update.keep | update.put) >> bit & 1
                bench.bus.cpu_write(Space.XDATA, address, value ^ 1 << bit)
                assert link.untuned == (address if determined else None)
            bench.bus.cpu_write(Space.XDATA, address, value)
    assert link.untuned is None


def test_power_of_the_usb_path_has_to_be_on():
    bench = Bench()
    bench.set_up_lanes()
    assert bench.read(usb.USB_POWER_ENABLE) & 0x80, "set from reset on"
    bench.usb.connect(bench.port)
    bench.pass_time(0.1)
    assert bench.port.events == []
    bench.update(usb.USB_POWER_STATUS, clear=0x40)
    bench.pass_time(0.1)
    assert bench.port.events == [Speed.SUPER_PLUS]


def test_set_up_registers_read_as_on_silicon():
    bench = Bench()
    bench.set_up_controller()
    assert bench.read(usb.USB_CONFIG) == 0x20
    assert bench.read(usb.USB_LINK_STATUS_MASK) == 0x33
    assert bench.read(usb.USB_MODE) == 1


@pytest.mark.parametrize("best", SPEEDS)
def test_cable_pulled_and_plugged_in(best):
    bench = attached(best)
    bench.usb.connect(None)
    assert bench.port.events == [best, None]
    assert bench.read(usb.USB_LINK_SPEED) == 0
    assert not bench.read(usb.USB_PHY_CONTROL) & usb.USB_PHY_CONTROL["SS_UP"]
    assert bool(bench.read(usb.USB_LINK_EVENTS) & 1) is best.is_super
    bench.pass_time(1)
    assert bench.port.events == [best, None]
    bench.usb.connect(bench.port)
    bench.pass_time(0.1)
    assert bench.port.events == [best, None, best]


def test_dropped_link():
    bench = attached()
    bench.usb.setup(bytes((0x80, 6, 0, 1, 0, 0, 18, 0)))
    bench.write(usb.BULK_COMMAND, 0x10)
    bench.usb.drop_link(retrain_after=5000)
    assert bench.port.events == [Speed.SUPER_PLUS, None]
    assert bench.read(usb.EP0_PHASE) == 0, "the transfer is gone"
    assert bench.usb.bulk_out(0x02, b"x") is Handshake.NAK
    assert bench.usb.speed is None
    bench.pass_time(0.1)
    assert bench.port.events[2:] == [Speed.SUPER_PLUS]
    assert bench.usb.bulk_out(0x02, b"x") is Handshake.NAK, "not armed any more"
    bench.usb.drop_link(retrain_after=None)
    bench.pass_time(10)
    assert bench.port.events[3:] == [None]
    bench.usb.connect(bench.port)
    bench.pass_time(0.1)
    assert bench.port.events[4:] == [Speed.SUPER_PLUS]


def test_link_dropped_at_high_speed_comes_back_so():
    bench = attached(Speed.HIGH)
    bench.usb.drop_link(retrain_after=5000)
    bench.pass_time(0.1)
    assert bench.port.events == [Speed.HIGH, None, Speed.HIGH]


def test_link_dropped_without_a_cable():
    bench = attached()
    bench.usb.connect(None)
    bench.usb.drop_link(retrain_after=5000)
    bench.pass_time(0.1)
    assert bench.read(usb.USB_LINK_STATUS) == 0


@pytest.mark.parametrize("best", SPEEDS)
def test_power_cycle_of_the_controller(best):
    bench = attached(best)
    bench.write(usb.USB_ADDRESS, 0x83)
    bench.usb.setup(bytes(8))
    bench.usb.reconnect()
    assert bench.port.events == [best, None]
    assert bench.events == 0, "events are forgotten"
    assert bench.read(usb.USB_ADDRESS) == 0
    assert bench.read(usb.USB_MODE) == 1
    bench.pass_time(0.1)
    if best is Speed.HIGH:
        assert bench.read(usb.USB_LINK_STATUS) == usb.USB_LINK_STATUS["SS_FAIL"]
        bench.go_high_speed()
        bench.pass_time(0.1)
    assert bench.port.events == [best, None, best]
    bench.usb.connect(None)
    bench.usb.reconnect()
    bench.pass_time(0.1)
    assert len(bench.port.events) == 4, "there is no port to connect to"


def pulse(bench):
    """What the maker's firmware does at the end of its set-up."""
    bench.write(interrupts.INT_CONTROL, 0x01)
    bench.update(usb.USB_PHY_CONTROL, put=usb.USB_PHY_CONTROL["START"])
    bench.update(usb.USB_PHY_CONTROL, clear=usb.USB_PHY_CONTROL["START"])


def test_the_phy_is_ready_from_the_start():
    bench = Bench()
    assert bench.read(usb_phy.USB_PHY_READY) & 0x30
    bench.write(usb_phy.USB_PHY_READY, 0)
    assert bench.read(usb_phy.USB_PHY_READY) & 0x30


@pytest.mark.parametrize("best", [Speed.SUPER_PLUS, Speed.SUPER])
def test_started_by_the_pulse_alone(best):
    """The lanes are not set up as the open firmware does, and the power of the USB path stays off."""
    bench = Bench(best)
    bench.usb.connect(bench.port)
    bench.update(usb.USB_PHY_CONTROL, put=usb.USB_PHY_CONTROL["START"])
    bench.pass_time(0.1)
    assert bench.events == 0, "it is the falling edge that starts"
    pulse(bench)
    assert bench.read(usb_phy.USB_PHY_DONE) == 0
    bench.pass_time(0.015)
    assert bench.read(usb_phy.USB_PHY_DONE) == usb_phy.USB_PHY_DONE["DONE"]
    assert bench.read(usb.USB_LINK_EVENTS) == usb.USB_LINK_EVENTS["TRAINING"]
    assert bench.read(usb_phy.USB_LINK_STATE) == 0x01, "what the handler waits for"
    bench.update(usb.USB_PHY_CONTROL, put=usb.USB_PHY_CONTROL["SS_UP"])
    bench.acknowledge(usb.USB_LINK_EVENTS)
    bench.pass_time(0.015)
    assert bench.port.events == [best]
    bench.usb.drop_link(1000)
    assert bench.read(usb_phy.USB_LINK_STATE) == 0x02
    bench.pass_time(0.1)
    assert bench.port.events == [best, None, best]
    assert bench.read(usb_phy.USB_LINK_STATE) == 0x01


def test_high_speed_after_the_pulse():
    """At SS_FAIL the maker's firmware writes USB_MODE, and not USB_PHY_CONTROL.HIGH_SPEED."""
    bench = Bench(Speed.HIGH)
    bench.usb.connect(bench.port)
    pulse(bench)
    bench.pass_time(0.1)
    assert bench.read(usb_phy.USB_LINK_STATE) == 0x01, "else its handler of TRAINING would not return"
    assert bench.read(usb.USB_LINK_STATUS) == usb.USB_LINK_STATUS["SS_FAIL"]
    bench.write(usb.USB_MODE, 0)
    bench.pass_time(0.1)
    assert bench.port.events == [Speed.HIGH]


def test_a_power_cycle_needs_another_pulse():
    bench = Bench()
    bench.usb.connect(bench.port)
    pulse(bench)
    bench.pass_time(0.002)
    assert bench.read(usb_phy.USB_PHY_DONE)
    pulse(bench)
    bench.usb.reconnect()
    bench.pass_time(0.1)
    assert bench.port.events == []
    assert bench.read(usb_phy.USB_PHY_DONE) == 0
    pulse(bench)
    bench.pass_time(0.1)
    assert bench.port.events == [Speed.SUPER_PLUS]
    pulse(bench)
    bench.pass_time(0.1)
    assert bench.port.events == [Speed.SUPER_PLUS], "an attached link is left alone"


def test_a_model_whose_super_speed_plus_reads_as_super_speed():
    bench = attached(model=Model.of(["super-plus-code=2"]))
    assert bench.usb.speed is Speed.SUPER_PLUS
    assert bench.read(usb.USB_LINK_SPEED) == 2


def test_a_model_in_which_firmware_alone_writes_ss_up():
    bench = attached(model=Model.of(["ss-up=firmware"]))
    assert bench.read(usb.USB_PHY_CONTROL) == 0
    bench.write(usb.USB_PHY_CONTROL, 0x02)
    bench.usb.connect(None)
    assert bench.read(usb.USB_PHY_CONTROL) == 0x02

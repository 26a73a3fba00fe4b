"""The mass-storage engine, against the contract that its module states."""

from __future__ import annotations

import struct

import pytest

from emulator.asm2464pd.undefined import Undefined
from emulator.model import Model
from emulator.usb.wire import Handshake
from firmware.asm2464pd.registers import interrupts, memory, usb
from tests.unit.usb_bench import SPEEDS, Bench, attached

ACK, NAK, STALL = Handshake.ACK, Handshake.NAK, Handshake.STALL
OUT, IN = 0x02, 0x81


def cbw(tag, length=0, flags=0, block=b"\xe4\x04\x50\x12\x34"):
    return struct.pack("<4sIIBBB16s", b"USBC", tag, length, flags, 1, len(block), block)


def csw(tag, residue=0, status=0):
    return struct.pack("<4sIIB", b"USBS", tag, residue, status)


@pytest.fixture(params=SPEEDS, ids=lambda speed: speed.value)
def bench(request):
    bench = attached(request.param)
    start(bench)
    return bench


def start(bench):
    bench.write(usb.MSC_CONFIG, 1)
    bench.write(usb.MSC_CONTROL, 1)


def answer(bench, wrapper):
    bench.poke(memory.XRAM_D800, wrapper)
    bench.write(usb.MSC_LENGTH, 13)
    bench.write(usb.MSC_CONTROL, 1)
    bench.update(usb.MSC_STATUS, clear=1)


def test_command_without_data(bench):
    for tag in (0x11223344, 0xFFFFFFFF):
        assert bench.usb.bulk_out(OUT, cbw(tag, 0x12345, 0x80)) is ACK
        assert bench.events == interrupts.USB_EVENTS["COMMAND"]
        assert bench.line
        assert bench.read(usb.MSC_EVENT) == 1
        bench.write(usb.MSC_EVENT, 1)
        assert not bench.line
        assert bench.read(usb.MSC_CBW_SIGNATURE).to_bytes(4, "little") == b"USBC"
        assert bench.read(usb.MSC_CBW_TAG) == tag
        assert bench.read(usb.MSC_CBW_LENGTH) == 0x12345
        assert bench.read(usb.MSC_CBW_FLAGS) == 0x80
        assert bench.read(usb.MSC_CBW_LUN) == 1
        assert bench.read(usb.MSC_CBW_CB_LENGTH) == 5
        assert bench.read(usb.MSC_CBW_CB).to_bytes(16, "big").rstrip(b"\0") == b"\xe4\x04\x50\x12\x34"
        assert bench.usb.bulk_out(OUT, cbw(2)) is NAK, "one command at a time"
        assert bench.usb.bulk_in(IN) is NAK
        bench.port.woken.clear()
        answer(bench, csw(tag))
        assert bench.port.woken == [IN]
        bench.poke(memory.XRAM_D800, bytes(13))
        assert bench.usb.bulk_in(IN) == csw(tag)
        assert OUT in bench.port.woken
        assert bench.read(usb.EP_COMPLETE) == 1
        assert bench.events == interrupts.USB_EVENTS["EP_COMPLETE"]
        bench.write(usb.EP_COMPLETE, 1)
        assert not bench.line
        assert bench.usb.bulk_in(IN) is NAK


def test_data_takes_the_cpu_path(bench):
    bench.usb.bulk_out(OUT, cbw(1, 600))
    bench.write(usb.MSC_EVENT, 1)
    bench.write(usb.BULK_COMMAND, 0x10)
    data = bytes(bench.usb.packet_size)
    assert bench.usb.bulk_out(OUT, data) is ACK
    assert bench.read(usb.BULK_EVENTS) == 0x02
    bench.write(usb.BULK_EVENTS, 0x02)
    bench.poke(memory.BULK_IN_BUFFER, b"data")
    bench.write(usb.BULK_IN_LENGTH, 4)
    bench.write(usb.BULK_COMMAND, 0x02)
    answer(bench, csw(1))
    assert bench.usb.bulk_in(IN) == b"data", "what is armed goes before the status"
    assert bench.usb.bulk_in(IN) == csw(1)


def test_command_waits_for_the_acknowledgement_of_the_last(bench):
    bench.usb.bulk_out(OUT, cbw(1))
    answer(bench, csw(1))
    assert bench.usb.bulk_in(IN) == csw(1)
    assert bench.usb.bulk_out(OUT, cbw(2)) is NAK
    assert bench.read(usb.MSC_CBW_TAG) == 1
    bench.port.woken.clear()
    bench.write(usb.MSC_EVENT, 1)
    assert bench.port.woken == [OUT]
    assert bench.usb.bulk_out(OUT, cbw(2)) is ACK


BY_CONFIG = Model.of(["msc-arming=config"])


@pytest.mark.parametrize("model", [Model(), BY_CONFIG], ids=["control", "config"])
@pytest.mark.parametrize("best", SPEEDS)
def test_engine_out_of_the_way(best, model):
    bench = attached(best, model)
    start(bench)
    bench.write(usb.MSC_CONFIG, 0)
    if model is BY_CONFIG:
        bench.write(usb.MSC_CONTROL, 1)
    assert bench.usb.bulk_out(OUT, cbw(1)) is NAK
    bench.write(usb.BULK_COMMAND, 0x10)
    assert bench.usb.bulk_out(OUT, cbw(1)) is ACK
    assert bench.read(usb.MSC_EVENT) == 0
    assert bench.peek(memory.BULK_OUT_BUFFER, 31) == cbw(1)


def test_control_alone_waits(bench):
    bench.write(usb.MSC_CONTROL, 1)
    bench.write(usb.MSC_CONTROL, 0)
    assert bench.usb.bulk_in(IN) is NAK
    assert bench.usb.bulk_out(OUT, cbw(1)) is ACK


def test_only_the_start_bit_sends_the_status(bench):
    bench.usb.bulk_out(OUT, cbw(1))
    bench.write(usb.MSC_CONTROL, 0xFE)
    assert bench.usb.bulk_in(IN) is NAK
    answer(bench, csw(1))
    assert bench.usb.bulk_in(IN) == csw(1)


def test_switching_off_lets_the_cpu_path_have_what_waits(bench):
    bench.usb.bulk_out(OUT, cbw(1))
    answer(bench, csw(1))
    bench.usb.bulk_in(IN)
    bench.write(usb.BULK_COMMAND, 0x10)
    assert bench.usb.bulk_out(OUT, b"data") is NAK, "the engine waits, and has an event left"
    bench.port.woken.clear()
    bench.write(usb.MSC_CONFIG, 0)
    assert bench.port.woken == [OUT]
    assert bench.usb.bulk_out(OUT, b"data") is ACK


@pytest.mark.parametrize("ending", ["class reset", "bus reset", "bus reset, and armed by MSC_CONFIG"])
@pytest.mark.parametrize("best", SPEEDS)
def test_reset_drops_the_command(best, ending):
    """A bus reset leaves an engine armed: the maker's firmware arms it before, when the link trains."""
    bench = attached(best, BY_CONFIG if "MSC_CONFIG" in ending else Model())
    start(bench)
    bench.usb.bulk_out(OUT, cbw(1))
    answer(bench, csw(1))
    if ending == "class reset":
        bench.write(usb.MSC_CONFIG, 0)
        assert bench.events == 0, "the event goes with the command"
        start(bench)
    else:
        bench.usb.bus_reset()
        assert bench.read(usb.MSC_EVENT) == 0
        if "MSC_CONFIG" in ending:
            assert bench.usb.bulk_out(OUT, cbw(2)) is NAK
            start(bench)
    assert bench.usb.bulk_in(IN) is NAK
    assert bench.usb.bulk_out(OUT, cbw(2)) is ACK


@pytest.mark.parametrize("bad", [b"", cbw(1)[:30], cbw(1) + b"\0", b"USBS" + cbw(1)[4:]])
def test_bad_wrapper_halts_until_reset_recovery(bench, bad):
    assert bench.usb.bulk_in(IN) is NAK
    bench.port.woken.clear()
    assert bench.usb.bulk_out(OUT, bad) is STALL
    assert bench.port.woken == [IN], "the host is notified of the halt there too"
    assert bench.events == 0
    for command in (0x01, 0x08):
        bench.write(usb.BULK_COMMAND, command)
        assert bench.usb.bulk_out(OUT, cbw(1)) is bench.usb.bulk_in(IN) is STALL
    bench.write(usb.BULK_HALT, 0)
    assert bench.read(usb.BULK_HALT) == 0x81
    assert bench.usb.bulk_out(OUT, cbw(1)) is bench.usb.bulk_in(IN) is STALL
    bench.write(usb.MSC_CONTROL, 1)
    assert bench.usb.bulk_out(OUT, cbw(1)) is STALL
    bench.write(usb.MSC_CONFIG, 0)
    start(bench)
    assert bench.usb.bulk_out(OUT, cbw(1)) is STALL, "CLEAR_FEATURE is still to come"
    bench.write(usb.BULK_COMMAND, 0x01)
    assert bench.usb.bulk_in(IN) is NAK
    bench.port.woken.clear()
    bench.write(usb.BULK_COMMAND, 0x08)
    assert bench.port.woken == [OUT]
    assert bench.usb.bulk_out(OUT, cbw(1)) is ACK


def test_armed_with_everything_else_off(bench):
    """MSC_CONFIG is 0 in the maker's firmware; a write of 0 after arming disconnects the engine."""
    bench.write(usb.MSC_CONFIG, 0)
    bench.write(usb.MSC_CONTROL, 1)
    assert bench.usb.bulk_out(OUT, cbw(1)) is ACK
    bench.write(usb.MSC_EVENT, 1)
    answer(bench, csw(1))
    assert bench.usb.bulk_in(IN) == csw(1)
    assert bench.usb.bulk_out(OUT, cbw(2)) is ACK
    bench.write(usb.MSC_CONFIG, 0)
    bench.usb.bus_reset()
    assert bench.usb.bulk_out(OUT, cbw(3)) is NAK


@pytest.mark.parametrize("best", SPEEDS)
def test_armed_before_the_link_is_up(best):
    bench = Bench(best)
    bench.write(usb.MSC_CONTROL, 1)
    bench.attach()
    assert bench.usb.bulk_out(OUT, cbw(1)) is ACK


def test_a_power_cycle_of_the_controller_disarms(bench):
    best = bench.port.best
    bench.usb.bulk_out(OUT, cbw(1))
    bench.usb.reconnect()
    assert bench.bus.value(usb.MSC_RECEIVED) == 0x03
    bench.pass_time(0.1)
    if not best.is_super:
        bench.go_high_speed()
        bench.pass_time(0.1)
    assert bench.usb.speed is best
    assert bench.usb.bulk_out(OUT, cbw(2)) is NAK


def test_what_was_received(bench):
    """MSC_CBW_COUNT, and MSC_RECEIVED with the values seen on silicon."""
    assert (bench.read(usb.MSC_RECEIVED), bench.read(usb.MSC_ERROR)) == (0x03, 0x08)
    for tag in (1, 2):
        bench.usb.bulk_out(OUT, cbw(tag, 0x12345))
        bench.write(usb.MSC_EVENT, 1)
        assert bench.read(usb.MSC_CBW_COUNT) == 31
        bench.write(usb.MSC_STREAM, 0)
        assert bench.read(usb.MSC_RECEIVED) == 0x07, "ready, and a wrapper"
        bench.write(usb.BULK_COMMAND, 0x10)
        assert bench.usb.bulk_out(OUT, bytes(bench.usb.packet_size)) is ACK
        assert bench.read(usb.MSC_RECEIVED) == 0x05, "ready, and data"
        assert bench.read(usb.MSC_CBW_COUNT) == 31
        bench.write(usb.BULK_EVENTS, 0x02)
        answer(bench, csw(tag))
        assert bench.usb.bulk_in(IN) == csw(tag)


def test_the_other_way_to_send_the_status(bench):
    bench.usb.bulk_out(OUT, cbw(7))
    bench.write(usb.MSC_EVENT, 1)
    bench.poke(memory.XRAM_D800, csw(7, 8, 1))
    bench.port.woken.clear()
    bench.write(usb.MSC_STATUS_SEND, 0x02)
    assert bench.usb.bulk_in(IN) is NAK
    bench.write(usb.MSC_STATUS_SEND, 0x01)
    assert bench.port.woken == [IN]
    assert bench.usb.bulk_in(IN) == csw(7, 8, 1)
    assert bench.events == interrupts.USB_EVENTS["EP_COMPLETE"]
    bench.write(usb.MSC_EP_STATUS, 0x02)
    bench.write(usb.EP_COMPLETE, 0x01)
    assert not bench.line
    assert bench.usb.bulk_out(OUT, cbw(8)) is ACK, "without another MSC_CONTROL"
    bench.write(usb.MSC_EVENT, 1)
    answer(bench, csw(8))
    assert bench.usb.bulk_in(IN) == csw(8), "either way, after either way"
    with pytest.raises(Undefined, match="without a command"):
        bench.write(usb.MSC_STATUS_SEND, 0x01)


def test_a_halted_data_stage_and_its_status(bench):
    """The maker's firmware on a command with data that fails: STALL, CLEAR_FEATURE, status (BOT, 6.7.2)."""
    bench.usb.bulk_out(OUT, cbw(3, 8, 0x80))
    bench.write(usb.MSC_EVENT, 1)
    assert bench.usb.bulk_in(IN) is NAK
    bench.port.woken.clear()
    bench.update(usb.BULK_HALT, put=usb.BULK_HALT["IN"])
    assert bench.port.woken == [IN]
    bench.poke(memory.XRAM_D800, csw(3, 8, 1))
    bench.write(usb.MSC_STATUS_SEND, 0x01)
    assert bench.usb.bulk_in(IN) is STALL
    bench.port.woken.clear()
    bench.update(usb.BULK_HALT, clear=usb.BULK_HALT["IN"])
    bench.write(usb.BULK_COMMAND, usb.BULK_COMMAND["CLEAR_IN"])
    assert IN in bench.port.woken
    assert bench.usb.bulk_in(IN) == csw(3, 8, 1)

"""The mass-storage engine, against the contract that its module states."""

from __future__ import annotations

import struct

import pytest

from emulator.core.bus import Unmodelled
from emulator.usb.wire import Handshake
from firmware.asm2464pd.registers import interrupts, memory, usb
from tests.unit.usb_bench import SPEEDS, attached

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


def test_engine_out_of_the_way(bench):
    bench.write(usb.MSC_CONFIG, 0)
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


@pytest.mark.parametrize("ending", ["class reset", "bus reset"])
def test_reset_drops_the_command(bench, ending):
    bench.usb.bulk_out(OUT, cbw(1))
    answer(bench, csw(1))
    if ending == "bus reset":
        bench.usb.bus_reset()
        assert bench.read(usb.MSC_EVENT) == 0
        assert bench.usb.bulk_out(OUT, cbw(2)) is NAK
    else:
        bench.write(usb.MSC_CONFIG, 0)
        assert bench.events == 0, "the event goes with the command"
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


def test_the_guessed_register_is_refused_under_strict(bench):
    bench.usb.bulk_out(OUT, cbw(1, 0x12345))
    assert bench.bus.value(usb.MSC_CBW_SHORT_LENGTH) == 0x2345
    with pytest.raises(Unmodelled, match="MSC_CBW_SHORT_LENGTH"):
        bench.read(usb.MSC_CBW_SHORT_LENGTH)

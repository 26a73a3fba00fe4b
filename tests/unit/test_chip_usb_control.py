"""EP0, step by step as firmware that works on silicon does it, at both speeds."""

from __future__ import annotations

import pytest

from emulator.asm2464pd.undefined import Undefined
from emulator.usb.wire import Handshake, Setup, Speed
from firmware.asm2464pd.registers import interrupts, memory, usb
from tests.unit.usb_bench import SPEEDS, attached

ACK, NAK, STALL = Handshake.ACK, Handshake.NAK, Handshake.STALL
BUFFER = memory.EP0_BUFFER
GET_DESCRIPTOR = Setup(0x80, 6, 0x0100, 0, 18)
SET_ADDRESS = Setup(0x00, 5, 7, 0, 0)
WRITE = Setup(0x40, 0xF0, 0x0F40, 0x0102, 12)
READ = Setup(0xC0, 0xE4, 0x9000, 0, 512)


@pytest.fixture(params=SPEEDS, ids=lambda speed: speed.value)
def bench(request):
    return attached(request.param)


def is_super(bench):
    return bench.usb.speed is not Speed.HIGH


def phase(bench):
    return bench.read(usb.EP0_PHASE)


def send(bench, data):
    """What firmware does to send, in its order."""
    bench.poke(BUFFER, data)
    bench.write(usb.EP0_IN_LENGTH, len(data))
    bench.write(usb.EP0_COMMAND, 0x04)
    bench.write(usb.EP0_PHASE, 0x08)


def woken(bench):
    """Whether the host was asked to try EP0 again since the last call."""
    woken = 0 in bench.port.woken
    bench.port.woken.clear()
    return woken


def begin(bench, setup):
    """SETUP, and its acknowledgement."""
    bench.usb.setup(setup.pack())
    assert phase(bench) == 0x01
    bench.write(usb.EP0_PHASE, 0x01)
    assert phase(bench) == 0


def read_all(bench, length):
    """What a host does in the data stage of an IN transfer."""
    maximum = 512 if is_super(bench) else 64
    packets = []
    while sum(map(len, packets)) < length and not (packets and len(packets[-1]) < maximum):
        packet = bench.usb.control_in()
        assert isinstance(packet, bytes)
        packets.append(packet)
    return packets


def end_in(bench):
    """Status stage of an IN transfer."""
    assert bench.usb.status() is NAK
    assert phase(bench) == 0x02
    woken(bench)
    bench.write(usb.EP0_COMMAND, 0x02)
    assert woken(bench)
    bench.write(usb.EP0_PHASE, 0x02)
    assert bench.usb.status() is ACK
    assert phase(bench) == 0


def end_no_data(bench):
    """Status stage of a no-data transfer whose empty packet has been sent."""
    if is_super(bench):
        assert bench.usb.status() is NAK
        assert phase(bench) == 0x10
        woken(bench)
        bench.write(usb.EP0_COMMAND, 0x08)
        assert woken(bench)
        bench.write(usb.EP0_PHASE, 0x18)
        assert bench.usb.status() is ACK
    else:
        assert bench.usb.status() is ACK
        assert phase(bench) == 0x08
        bench.write(usb.EP0_PHASE, 0x18)
    assert phase(bench) == 0
    assert not bench.line


def test_setup_packet_in_its_registers(bench):
    bench.usb.setup(WRITE.pack())
    assert bench.line
    assert bench.events == interrupts.USB_EVENTS["CONTROL"]
    registers = (
        usb.EP0_REQUEST_TYPE,
        usb.EP0_REQUEST,
        usb.EP0_REQUEST_VALUE,
        usb.EP0_REQUEST_INDEX,
        usb.EP0_REQUEST_LENGTH,
    )
    assert [bench.read(register) for register in registers] == [0x40, 0xF0, 0x0F40, 0x0102, 12]
    for register in registers:
        bench.write(register, 0)
    assert bench.read(usb.EP0_REQUEST_VALUE) == 0x0F40, "they are read-only"


def test_in_transfer(bench):
    bench.usb.setup(GET_DESCRIPTOR.pack())
    assert bench.usb.control_in() is NAK
    bench.write(usb.EP0_PHASE, 0x01)
    assert bench.usb.control_in() is NAK
    woken(bench)
    send(bench, bytes(range(18)))
    assert woken(bench)
    assert bench.read(usb.EP0_COMMAND) == 0, "done at once"
    assert read_all(bench, 18) == [bytes(range(18))]
    assert bench.usb.control_in() is NAK
    assert not bench.line, "nothing to do before the status stage"
    end_in(bench)


def test_in_data_is_cut_into_packets(bench):
    begin(bench, READ)
    data = bytes(index % 251 for index in range(121))
    send(bench, data)
    packets = read_all(bench, 512)
    assert [len(packet) for packet in packets] == ([121] if is_super(bench) else [64, 57])
    assert b"".join(packets) == data
    end_in(bench)


def test_in_data_is_taken_when_it_is_sent(bench):
    begin(bench, READ)
    send(bench, b"first")
    bench.poke(BUFFER, b"other")
    assert read_all(bench, 512) == [b"first"]


def test_whole_packets_need_an_empty_one(bench):
    begin(bench, Setup(0x80, 6, 0x0301, 0x0409, 1024))
    size = 512 if is_super(bench) else 64
    send(bench, bytes(size))
    assert bench.usb.control_in() == bytes(size)
    assert bench.usb.control_in() is NAK
    send(bench, b"")
    assert bench.usb.control_in() == b""
    end_in(bench)


def test_more_than_the_buffer_is_undefined(bench, caplog):
    begin(bench, Setup(0xC0, 0xE4, 0, 0, 0xFFFF))
    bench.write(usb.EP0_IN_LENGTH, 0x1234)
    with pytest.raises(Undefined, match="4660 bytes"):
        bench.write(usb.EP0_COMMAND, 0x04)
    bench.bus.strict = False
    bench.write(usb.EP0_COMMAND, 0x04)
    assert "4660 bytes" in caplog.text
    count = 1 if is_super(bench) else 8
    assert sum(len(bench.usb.control_in()) for _ in range(count)) == 512
    assert bench.usb.control_in() is NAK


def test_no_data_transfer(bench):
    bench.usb.setup(SET_ADDRESS.pack())
    assert bench.usb.status() is NAK
    assert phase(bench) == 0x01, "the status stage is not announced before SETUP is acknowledged"
    bench.usb.setup(SET_ADDRESS.pack())
    bench.write(usb.EP0_PHASE, 0x01)
    bench.write(usb.USB_ADDRESS, 0x87)
    bench.write(usb.USB_ADDRESS_COMMIT, 0x02)
    send(bench, b"")
    end_no_data(bench)
    assert bench.usb.status() is NAK, "the transfer is over"


def test_host_asks_for_status_while_firmware_is_busy(bench):
    bench.usb.setup(SET_ADDRESS.pack())
    assert bench.usb.status() is NAK
    bench.write(usb.EP0_PHASE, 0x01)
    if is_super(bench):
        assert phase(bench) == 0x10
        send(bench, b"")
        assert phase(bench) == 0x10, "acknowledging bit 3 leaves bit 4"
        bench.write(usb.EP0_COMMAND, 0x08)
    else:
        assert phase(bench) == 0x08
        send(bench, b"")
        assert phase(bench) == 0
    assert bench.usb.status() is ACK
    bench.write(usb.EP0_PHASE, 0x18)
    assert phase(bench) == 0


def test_out_transfer(bench):
    bench.usb.setup(WRITE.pack())
    assert bench.usb.control_out(b"too early!!!") is NAK
    bench.write(usb.EP0_PHASE, 0x01)
    assert woken(bench)
    data = bytes(range(0x30, 0x3C))
    assert bench.usb.control_out(data) is ACK
    assert phase(bench) == 0x04
    assert bench.peek(BUFFER, 12) == data
    assert bench.usb.status() is NAK
    assert phase(bench) == 0x04, "the status stage is announced after the data is acknowledged"
    bench.write(usb.EP0_PHASE, 0x04)
    assert phase(bench) == (0x10 if is_super(bench) else 0x08)
    if is_super(bench):
        bench.write(usb.EP0_COMMAND, 0x08)
    assert bench.peek(BUFFER, 12) == data, "the data stays for the status stage"
    assert [bench.read(usb.EP0_REQUEST_VALUE), bench.read(usb.EP0_REQUEST_INDEX)] == [0x0F40, 0x0102]
    if not is_super(bench):
        assert bench.usb.status() is NAK
    send(bench, b"")
    bench.write(usb.EP0_PHASE, 0x18)
    assert bench.usb.status() is ACK
    assert phase(bench) == 0


def test_out_transfer_without_empty_packet_ends_at_super_speed_only(bench):
    begin(bench, Setup(0x40, 0xF1, 0, 0, 4))
    assert bench.usb.control_out(b"test") is ACK
    bench.write(usb.EP0_PHASE, 0x04)
    assert bench.usb.status() is NAK
    bench.write(usb.EP0_COMMAND, 0x08)
    bench.write(usb.EP0_PHASE, 0x18)
    assert bench.usb.status() is (ACK if is_super(bench) else NAK)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 300, 511, 512])
def test_out_data_of_several_packets_is_put_together(bench, length):
    size = 512 if is_super(bench) else 64
    begin(bench, Setup(0x40, 0x01, 0, 0, length))
    data = bytes(index % 253 for index in range(length))
    for start in range(0, length, size):
        assert phase(bench) == 0
        assert bench.usb.control_out(data[start : start + size]) is ACK
    assert phase(bench) == 0x04
    assert bench.peek(BUFFER, length) == data
    assert bench.usb.control_out(b"more") is NAK


def test_out_data_beyond_the_buffer_comes_in_chunks(bench):
    size = 512 if is_super(bench) else 64
    begin(bench, Setup(0x40, 0x01, 0, 0, 600))
    data = bytes(index % 253 for index in range(600))
    sent = 0
    for chunk in (512, 88):
        for start in range(sent, sent + chunk, size):
            packet = data[start : min(start + size, sent + chunk)]
            assert bench.usb.control_out(packet) is ACK
        assert phase(bench) == 0x04
        assert bench.usb.control_out(b"?") is NAK, "the buffer is firmware's"
        assert bench.peek(BUFFER, chunk) == data[sent : sent + chunk]
        bench.write(usb.EP0_PHASE, 0x04)
        sent += chunk


def test_short_packet_ends_the_out_data(bench):
    begin(bench, Setup(0x40, 0x01, 0, 0, 512))
    assert bench.usb.control_out(b"only this") is ACK
    assert phase(bench) == 0x04
    assert bench.usb.control_out(b"more") is NAK


def test_stall_lasts_until_the_next_setup(bench):
    for setup in (GET_DESCRIPTOR, SET_ADDRESS, WRITE):
        begin(bench, setup)
        woken(bench)
        bench.write(usb.EP0_COMMAND, 0x01)
        assert woken(bench)
        assert bench.usb.control_in() is STALL
        assert bench.usb.control_out(b"") is STALL
        assert bench.usb.status() is STALL
        assert not bench.line
    begin(bench, GET_DESCRIPTOR)
    send(bench, b"fine")
    assert bench.usb.control_in() == b"fine"


def test_unanswered_request_leaves_the_host_waiting(bench):
    begin(bench, Setup(0x80, 6, 0x0600, 0, 10))
    assert [bench.usb.control_in() for _ in range(3)] == [NAK] * 3
    assert phase(bench) == 0x08
    bench.write(usb.EP0_PHASE, 0x08)
    assert bench.usb.control_in() is NAK
    assert not bench.line, "firmware has been notified, and is not again"


def reach(bench, step):
    """Bring EP0 to a step of some transfer."""
    setup = {"in": GET_DESCRIPTOR, "out": WRITE, "no-data": SET_ADDRESS}[step.partition(" ")[0]]
    bench.usb.setup(setup.pack())
    if step.endswith("setup"):
        return
    bench.write(usb.EP0_PHASE, 0x01)
    if step.startswith("out "):
        assert bench.usb.control_out(bytes(12)) is ACK
        if step.endswith("data"):
            return
        bench.write(usb.EP0_PHASE, 0x04)
    else:
        if step.startswith("no-data"):
            bench.write(usb.USB_ADDRESS, 0x80 | SET_ADDRESS.value)
        send(bench, bytes(18) if step.startswith("in ") else b"")
        if step.endswith("data"):
            return
    bench.usb.status()


STEPS = ["in setup", "in data", "in status", "out setup", "out data", "out status", "no-data setup"]
STEPS += ["no-data data", "no-data status"]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("ending", ["setup", "reset", "late firmware"])
def test_setup_and_reset_end_what_was_going_on(bench, step, ending):
    reach(bench, step)
    if ending == "reset":
        bench.usb.bus_reset()
        assert phase(bench) == 0
        assert bench.read(usb.USB_LINK_EVENTS) == 0x04
        bench.write(usb.USB_LINK_EVENTS, 0x04)
        assert bench.usb.control_in() is bench.usb.control_out(b"") is bench.usb.status() is NAK
    bench.usb.setup(READ.pack())
    assert phase(bench) == 0x01
    if ending == "late firmware":  # it still does what it was about to do for the last transfer
        for command in (0x04, 0x02, 0x08, 0x01):
            bench.write(usb.EP0_COMMAND, command)
        bench.write(usb.EP0_PHASE, 0x1E)
    assert phase(bench) == 0x01
    bench.write(usb.EP0_PHASE, 0x01)
    assert bench.usb.control_in() is NAK
    send(bench, b"the new one")
    assert bench.usb.control_in() == b"the new one"
    end_in(bench)


def test_an_address_that_was_not_set_is_reported(bench):
    for held in (0x87, 0x80):
        begin(bench, SET_ADDRESS)
        bench.write(usb.USB_ADDRESS, held)
        send(bench, b"")
        end_no_data(bench)
        if held == 0x87:
            begin(bench, GET_DESCRIPTOR)
    with pytest.raises(Undefined, match="address that is not in USB_ADDRESS"):
        bench.usb.setup(GET_DESCRIPTOR.pack())
    bench.usb.bus_reset()
    begin(bench, GET_DESCRIPTOR)


def test_in_transfer_that_the_host_cuts_short(bench):
    begin(bench, READ)
    send(bench, bytes(500))
    assert len(bench.usb.control_in()) == (500 if is_super(bench) else 64)
    end_in(bench)


def test_a_babbling_host_is_stalled(bench):
    begin(bench, Setup(0x40, 1, 0, 0, 2048))
    assert bench.usb.control_out(bytes(513)) is STALL
    assert phase(bench) == 0


def test_in_data_is_wanted_once_for_each_sending(bench):
    """As firmware that fills the buffer at SETUP, and sends when the host asks, needs it at every speed."""
    bench.usb.setup(Setup(0xC0, 1, 0, 0, 600).pack())
    assert bench.usb.control_in() is NAK
    assert phase(bench) == 0x01, "not before SETUP is acknowledged"
    bench.write(usb.EP0_PHASE, 0x01)
    assert phase(bench) == 0x08
    for chunk in (512, 88):
        assert bench.line
        bench.poke(BUFFER, bytes([chunk & 0xFF]) * min(chunk, 512))
        bench.write(usb.EP0_IN_LENGTH, chunk)
        bench.write(usb.EP0_COMMAND, 0x04)
        bench.write(usb.EP0_PHASE, 0x08)
        assert b"".join(read_all(bench, chunk)) == bytes([chunk & 0xFF]) * chunk
        assert bench.usb.control_in() is NAK
        assert phase(bench) == (0x08 if chunk == 512 else 0), "the host has it all"
    end_in(bench)


def test_in_data_is_not_wanted_of_a_transfer_that_is_over(bench):
    begin(bench, READ)
    assert bench.usb.control_in() is NAK
    assert phase(bench) == 0x08
    bench.write(usb.EP0_COMMAND, 0x01)
    assert phase(bench) == 0, "STALL is the answer"
    bench.usb.setup(READ.pack())
    assert bench.usb.control_in() is NAK
    assert bench.usb.status() is NAK
    bench.write(usb.EP0_PHASE, 0x01)
    assert phase(bench) == 0x02, "the host has gone on to the status stage"


def test_the_flag_in_the_configuration_register_reads_back(bench):
    for written, read in ((0xE2, 0x22), (0xE0, 0x20), (0x02, 0x22), (0xFD, 0x20)):
        bench.write(usb.USB_CONFIG, written)
        assert bench.read(usb.USB_CONFIG) == read

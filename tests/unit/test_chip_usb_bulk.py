"""The bulk endpoints: arm, complete, NAK, the slot DMA in front of them, timing, faults."""

from __future__ import annotations

import pytest

from emulator.asm2464pd import timing
from emulator.asm2464pd.undefined import Undefined
from emulator.core.clock import at_rate
from emulator.usb.wire import Handshake, Setup
from firmware.asm2464pd.registers import interrupts, memory, usb
from tests.unit.usb_bench import SPEEDS, Bench, attached

ACK, NAK, STALL = Handshake.ACK, Handshake.NAK, Handshake.STALL
OUT, IN = 0x02, 0x81


@pytest.fixture(params=SPEEDS, ids=lambda speed: speed.value)
def bench(request):
    return attached(request.param)


def arm_in(bench, data):
    bench.poke(memory.BULK_IN_BUFFER, data)
    bench.write(usb.BULK_IN_LENGTH, len(data))
    bench.write(usb.BULK_COMMAND, 0x02)


def test_out(bench):
    size = bench.usb.packet_size
    assert size == (1024 if bench.usb.speed.is_super else 512)
    assert bench.usb.bulk_out(OUT, b"early") is NAK
    for length in (size, 1, 0, 37):
        data = bytes(index % 249 for index in range(length))
        before = bench.peek(memory.BULK_OUT_BUFFER, size)
        assert bench.usb.bulk_out(OUT, b"not armed") is NAK
        assert bench.peek(memory.BULK_OUT_BUFFER, size) == before, "nothing lands un-armed"
        bench.port.woken.clear()
        bench.write(usb.BULK_COMMAND, 0x10)
        assert bench.port.woken == [OUT]
        assert bench.read(usb.BULK_COMMAND) == 0
        assert bench.usb.bulk_out(OUT, data) is ACK
        assert bench.events == interrupts.USB_EVENTS["BULK"]
        assert bench.read(usb.BULK_EVENTS) == 0x02
        assert bench.read(usb.BULK_OUT_COUNT) == bench.read(usb.BULK_OUT_COUNT_MIRROR) == length
        assert bench.peek(memory.BULK_OUT_BUFFER, length) == data
        bench.write(usb.BULK_EVENTS, 0x02)
        assert not bench.line


def test_in(bench):
    assert bench.usb.bulk_in(IN) is NAK
    for length in (bench.usb.packet_size, 13, 0):
        data = bytes(index % 247 for index in range(length))
        bench.port.woken.clear()
        arm_in(bench, data)
        assert bench.port.woken == [IN]
        assert not bench.line
        assert bench.usb.bulk_in(IN) == data
        assert bench.read(usb.BULK_EVENTS) == 0x08
        assert bench.line
        assert bench.usb.bulk_in(IN) is NAK
        bench.write(usb.BULK_EVENTS, 0x08)
        assert not bench.line


def test_the_next_packet_waits_for_the_acknowledgement(bench):
    bench.write(usb.BULK_COMMAND, 0x10)
    bench.usb.bulk_out(OUT, b"one")
    bench.write(usb.BULK_COMMAND, 0x10)
    assert bench.usb.bulk_out(OUT, b"two") is NAK
    assert bench.peek(memory.BULK_OUT_BUFFER, 3) == b"one"
    arm_in(bench, b"three")
    assert bench.usb.bulk_in(IN) == b"three"
    arm_in(bench, b"four")
    assert bench.usb.bulk_in(IN) is NAK
    bench.port.woken.clear()
    bench.write(usb.BULK_EVENTS, 0x0A)
    assert bench.port.woken == [OUT, IN]
    assert bench.usb.bulk_out(OUT, b"two") is ACK
    assert bench.usb.bulk_in(IN) == b"four"
    assert bench.read(usb.BULK_EVENTS) == 0x0A


def test_the_directions_are_independent(bench):
    for _ in range(2):
        arm_in(bench, b"in")
        bench.write(usb.BULK_COMMAND, 0x10)
        bench.write(usb.BULK_COMMAND, 0x00)
        assert bench.usb.bulk_in(IN) == b"in"
        assert bench.usb.bulk_out(OUT, b"out") is ACK
        bench.write(usb.BULK_EVENTS, 0x0A)


def test_in_packet_is_taken_when_it_is_armed(bench):
    arm_in(bench, b"armed")
    bench.poke(memory.BULK_IN_BUFFER, b"later")
    bench.write(usb.BULK_IN_LENGTH, 2)
    assert bench.usb.bulk_in(IN) == b"armed"


def test_in_length_beyond_a_packet_is_undefined(bench, caplog):
    bench.write(usb.BULK_IN_LENGTH, 0xFFFF)
    with pytest.raises(Undefined, match="65535 bytes"):
        bench.write(usb.BULK_COMMAND, 0x02)
    bench.bus.strict = False
    bench.write(usb.BULK_COMMAND, 0x02)
    assert len(bench.usb.bulk_in(IN)) == bench.usb.packet_size
    assert "65535 bytes" in caplog.text


def test_clear_disarms(bench):
    arm_in(bench, b"stale")
    bench.write(usb.BULK_COMMAND, 0x10)
    bench.write(usb.BULK_COMMAND, 0x01)
    assert bench.usb.bulk_in(IN) is NAK
    assert bench.usb.bulk_out(OUT, b"still armed") is ACK
    bench.write(usb.BULK_EVENTS, 0x02)
    bench.write(usb.BULK_COMMAND, 0x10)
    bench.write(usb.BULK_COMMAND, 0x08)
    assert bench.usb.bulk_out(OUT, b"no more") is NAK
    bench.write(usb.BULK_COMMAND, 0x18)
    assert bench.usb.bulk_out(OUT, b"cleared, then armed") is ACK


def test_bus_reset_disarms_and_clears_events(bench):
    bench.write(usb.USB_ADDRESS, 0x85)
    bench.write(usb.BULK_COMMAND, 0x10)
    bench.usb.bulk_out(OUT, b"x")
    bench.write(usb.BULK_COMMAND, 0x10)
    arm_in(bench, b"y")
    bench.usb.bus_reset()
    assert bench.read(usb.BULK_EVENTS) == 0
    assert bench.events == interrupts.USB_EVENTS["LINK_TRAINING"]
    assert bench.read(usb.USB_LINK_EVENTS) == usb.USB_LINK_EVENTS["RESET"]
    assert bench.read(usb.USB_ADDRESS) == 0x80
    assert bench.usb.bulk_out(OUT, b"x") is NAK
    assert bench.usb.bulk_in(IN) is NAK


def test_endpoints_of_the_second_alternate_setting_always_nak(bench, caplog):
    for _ in range(3):
        assert bench.usb.bulk_in(0x83) is NAK
        assert bench.usb.bulk_out(0x04, b"x") is NAK
    assert len(caplog.records) == 2, "each is reported once"


def test_a_babbling_host_is_stalled(bench):
    bench.write(usb.BULK_COMMAND, 0x10)
    assert bench.usb.bulk_out(OUT, bytes(bench.usb.packet_size + 1)) is STALL
    assert not bench.line


class Engine:
    """A stand-in for the slot DMA."""

    def __init__(self):
        self.taken = []
        self.answer = ACK
        self.packet = b"dma"

    def bulk_out(self, data):
        if self.answer is ACK:
            self.taken.append(data)
        return self.answer

    def bulk_in(self):
        return self.packet

    def busy(self, endpoint):
        return endpoint == OUT


def test_dma_takes_packets_before_the_cpu_path(bench):
    bench.usb.engine = engine = Engine()
    bench.write(usb.BULK_COMMAND, 0x10)
    assert bench.usb.bulk_out(OUT, b"slot") is ACK
    assert engine.taken == [b"slot"]
    assert bench.usb.bulk_in(IN) == b"dma"
    assert bench.read(usb.BULK_EVENTS) == 0, "no event, no landing"
    engine.answer = engine.packet = NAK
    assert bench.usb.bulk_out(OUT, b"wait") is bench.usb.bulk_in(IN) is NAK
    engine.answer = engine.packet = None
    assert bench.usb.bulk_out(OUT, b"cpu") is ACK
    assert bench.read(usb.BULK_EVENTS) == 0x02
    bench.port.woken.clear()
    bench.usb.wake(IN)
    assert bench.port.woken == [IN]


def test_packet_clocks(bench):
    size = bench.usb.packet_size
    if bench.usb.speed.is_super:
        assert bench.usb.packet_clocks(OUT, size) == timing.PACKET_TURNAROUND.clocks
        bench.usb.engine = Engine()
        assert bench.usb.packet_clocks(OUT, 1024) == at_rate(1024, 700_000_000)
        assert bench.usb.packet_clocks(IN, 1024) == timing.PACKET_TURNAROUND.clocks
    else:
        assert bench.usb.packet_clocks(OUT, size) == at_rate(size, 40_000_000)
    assert bench.usb.packet_clocks(OUT, 0) > 0


def test_nak_storm(bench):
    bench.write(usb.BULK_COMMAND, 0x10)
    arm_in(bench, b"in")
    bench.usb.nak_until(bench.clock.now + 1000)
    bench.usb.setup(Setup(0x80, 6, 0x100, 0, 18).pack())
    assert bench.read(usb.EP0_PHASE) == 1, "SETUP is never refused"
    bench.write(usb.EP0_PHASE, 1)
    bench.write(usb.EP0_IN_LENGTH, 4)
    bench.write(usb.EP0_COMMAND, 0x04)
    answers = [bench.usb.bulk_out(OUT, b"o"), bench.usb.bulk_in(IN), bench.usb.control_in()]
    answers += [bench.usb.control_out(b""), bench.usb.status()]
    assert answers == [NAK] * 5
    bench.port.woken.clear()
    bench.pass_clocks(999)
    assert bench.port.woken == []
    bench.pass_clocks(1)
    assert sorted(bench.port.woken) == [0, OUT, IN]
    assert bench.usb.bulk_out(OUT, b"o") is ACK
    assert bench.usb.bulk_in(IN) == b"in"
    assert len(bench.usb.control_in()) == 4


def test_nothing_moves_without_a_link():
    bench = Bench()
    bench.usb.setup(bytes(8))
    bench.usb.bus_reset()
    bench.write(usb.BULK_COMMAND, 0x12)
    assert bench.usb.bulk_out(OUT, b"x") is bench.usb.bulk_in(IN) is NAK
    assert bench.events == 0
    assert bench.port.woken == []


@pytest.mark.parametrize("endpoint", [OUT, IN])
def test_firmware_halts_an_endpoint_and_ends_it(bench, endpoint):
    """BULK_HALT alone, and together with the commands of CLEAR_FEATURE, in either order."""
    bit, command = (0x80, 0x08) if endpoint == OUT else (0x01, 0x01)

    def answer():
        return bench.usb.bulk_out(OUT, b"data") if endpoint == OUT else bench.usb.bulk_in(IN)

    for clear in ((usb.BULK_HALT, 0x00), (usb.BULK_COMMAND, command)):
        assert answer() is NAK
        bench.port.woken.clear()
        bench.write(usb.BULK_HALT, bit)
        assert bench.port.woken == [endpoint], "the host tries again, and is stalled"
        assert answer() is STALL
        assert bench.read(usb.BULK_HALT) == bit, "for GET_STATUS"
        other = bench.usb.bulk_in(IN) if endpoint == OUT else bench.usb.bulk_out(OUT, b"")
        assert other is NAK
        bench.port.woken.clear()
        bench.write(*clear)
        assert bench.port.woken == [endpoint]
        assert bench.read(usb.BULK_HALT) == 0
        assert answer() is NAK


def test_what_is_armed_outlasts_a_halt(bench):
    arm_in(bench, b"armed")
    bench.write(usb.BULK_HALT, usb.BULK_HALT["IN"])
    assert bench.usb.bulk_in(IN) is STALL
    bench.write(usb.BULK_HALT, 0)
    assert bench.usb.bulk_in(IN) == b"armed"


def test_a_bus_reset_ends_a_halt(bench):
    halts = (usb.BULK_HALT, usb.BULK_HALT_STATUS, usb.BULK_HALT_COMMAND)
    for halt in halts:
        bench.write(halt, 0x81)
    bench.usb.bus_reset()
    assert [bench.read(halt) for halt in halts] == [0, 0, 0]


@pytest.mark.parametrize(("endpoint", "halt"), [(0x83, usb.BULK_HALT_STATUS), (0x04, usb.BULK_HALT_COMMAND)])
def test_halts_of_the_further_endpoints(bench, endpoint, halt):
    def answer():
        if endpoint & 0x80:
            return bench.usb.bulk_in(endpoint)
        return bench.usb.bulk_out(endpoint, b"command")

    assert answer() is NAK
    bench.port.woken.clear()
    bench.write(halt, 1)
    assert bench.port.woken == [endpoint]
    assert answer() is STALL
    bench.usb.nak_until(bench.clock.now + 100)
    assert answer() is NAK
    bench.port.woken.clear()
    bench.pass_clocks(100)
    assert endpoint in bench.port.woken
    bench.write(halt, 0)
    assert answer() is NAK
    bench.usb.connect(None)
    bench.write(halt, 1)
    assert answer() is NAK, "there is no link"

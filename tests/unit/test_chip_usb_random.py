"""Random firmware against a random host: nothing raises, no completion is lost, nothing hangs."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from emulator.usb.wire import Handshake, Setup, Speed
from firmware.asm2464pd.registers import BLOCKS, interrupts, memory, usb
from tests.unit.usb_bench import SPEEDS, Bench

ACK, NAK, STALL = Handshake.ACK, Handshake.NAK, Handshake.STALL
OUT, IN = 0x02, 0x81
REGISTERS = (*BLOCKS["usb"], *BLOCKS["interrupts"])
COMMANDS = (
    usb.EP0_COMMAND,
    usb.EP0_PHASE,
    usb.BULK_COMMAND,
    usb.BULK_EVENTS,
    usb.BULK_HALT,
    usb.MSC_CONTROL,
    usb.MSC_EVENT,
    usb.MSC_STATUS_SEND,
)
CAUSES = {
    "LINK_TRAINING": usb.USB_LINK_EVENTS,
    "CONTROL": usb.EP0_PHASE,
    "BULK": usb.BULK_EVENTS,
    "LINK_ALTERNATE": usb.USB_LINK_ALTERNATE,
    "LINK": usb.USB_LINK_STATUS,
    "EP_COMPLETE": usb.EP_COMPLETE,
    "COMMAND": usb.MSC_EVENT,
}
CBW = b"USBC" + bytes(27)
SETUPS = st.sampled_from(
    (
        Setup(0x80, 6, 0x100, 0, 18),
        Setup(0, 5, 3, 0, 0),
        Setup(0x40, 1, 0, 0, 130),
        Setup(0xC0, 2, 0, 0, 1024),
    )
)
BYTES = st.integers(0, 0xFF)


class Bus(RuleBasedStateMachine):
    """Registers are written and packets sent in any order."""

    @initialize(best=st.sampled_from(SPEEDS))
    def plug_in(self, best):
        self.bench = Bench(best, strict=False)
        self.bench.attach()
        self.refused: dict[object, int] = {}

    def value(self, register):
        return self.bench.bus.value(register)

    def transact(self, endpoint, name, *arguments):
        """A transaction; one that was refused is refused again until the device says it is ready."""
        port = self.bench.port
        transaction = (name, arguments)
        promised = port.woken.count(endpoint)
        answer = getattr(self.bench.usb, name)(*arguments)
        if self.refused.get((endpoint, transaction)) == promised:
            assert answer is NAK, "it would be taken, and the host was not notified"
        if answer is NAK:
            self.refused[endpoint, transaction] = promised
        else:
            self.refused = {key: count for key, count in self.refused.items() if key[0] != endpoint}
        return answer

    # -- firmware ---------------------------------------------------------------------------------------

    @rule(register=st.sampled_from(COMMANDS), value=st.sampled_from((0x01, 0x02, 0x04, 0x08, 0x10, 0x18)))
    def command(self, register, value):
        self.bench.write(register, value)

    @rule(register=st.sampled_from(REGISTERS), value=BYTES)
    def write(self, register, value):
        self.bench.write(register, value)

    @rule(register=st.sampled_from((usb.EP0_IN_LENGTH, usb.BULK_IN_LENGTH)), length=st.integers(0, 1100))
    def length(self, register, length):
        self.bench.write(register, length)

    @rule()
    def start_mass_storage(self):
        self.bench.write(usb.MSC_CONFIG, 1)
        self.bench.write(usb.MSC_CONTROL, 1)

    # -- the host ---------------------------------------------------------------------------------------

    @rule(setup=SETUPS)
    def setup(self, setup):
        self.bench.usb.setup(setup.pack())
        self.refused = {key: count for key, count in self.refused.items() if key[0] != 0}
        if self.bench.usb.speed is not None:
            assert self.value(usb.EP0_PHASE) == 1
            assert self.value(usb.EP0_REQUEST_LENGTH) == setup.length

    @rule(size=st.integers(0, 64))
    def control_out(self, size):
        before = self.value(usb.EP0_PHASE)
        if self.transact(0, "control_out", bytes(size)) is ACK:
            assert not before & 0x05
            assert size == 64 or self.value(usb.EP0_PHASE) & 0x04

    @rule()
    def control_in(self):
        answer = self.transact(0, "control_in")
        assert answer in (NAK, STALL) or len(answer) <= (64 if self.bench.usb.speed is Speed.HIGH else 512)

    @rule()
    def status(self):
        if self.transact(0, "status") is ACK:
            assert not self.value(usb.EP0_PHASE) & 0x05

    @rule(data=st.sampled_from((b"", b"x", bytes(512), CBW)))
    def bulk_out(self, data):
        commands, events = self.value(usb.MSC_EVENT), self.value(usb.BULK_EVENTS)
        if self.transact(OUT, "bulk_out", OUT, data) is not ACK:
            assert (self.value(usb.MSC_EVENT), self.value(usb.BULK_EVENTS)) == (commands, events)
        elif self.value(usb.MSC_EVENT) != commands:
            assert data == CBW
        else:
            assert not events & 0x02, "a completion is still there"
            assert self.value(usb.BULK_EVENTS) == events | 0x02
            assert self.value(usb.BULK_OUT_COUNT) == len(data)

    @rule()
    def bulk_in(self):
        events, completed = self.value(usb.BULK_EVENTS), self.value(usb.EP_COMPLETE)
        answer = self.transact(IN, "bulk_in", IN)
        if isinstance(answer, bytes) and self.value(usb.BULK_EVENTS) == events:
            assert self.value(usb.EP_COMPLETE) == completed | 1
        elif isinstance(answer, bytes):
            assert not events & 0x08
            assert self.value(usb.BULK_EVENTS) == events | 0x08

    @rule()
    def bus_reset(self):
        self.bench.usb.bus_reset()
        self.refused.clear()

    @rule(clocks=st.integers(1, 1000))
    def fault(self, clocks):
        self.bench.usb.nak_until(self.bench.clock.now + clocks)
        self.bench.pass_clocks(clocks)

    @rule(clocks=st.sampled_from((None, 10)))
    def drop(self, clocks):
        self.bench.usb.drop_link(clocks)
        self.refused.clear()

    @rule(seconds=st.sampled_from((0.0001, 0.02)))
    def pass_time(self, seconds):
        self.bench.pass_time(seconds)

    # -- what holds -------------------------------------------------------------------------------------

    @invariant()
    def summaries_are_true(self):
        if not hasattr(self, "bench"):
            return
        causes = sum(interrupts.USB_EVENTS[name] for name, source in CAUSES.items() if self.value(source))
        assert self.value(interrupts.USB_EVENTS) == causes
        assert self.value(interrupts.INT_USB) == bool(causes)
        assert self.bench.line == bool(causes and self.value(interrupts.INT_CONTROL) & 1)

    def teardown(self):
        """After any history and a power cycle, correct firmware and a correct host work."""
        if not hasattr(self, "bench"):
            return
        bench = self.bench
        bench.usb.connect(None)
        bench.usb.reconnect()
        bench.write(usb.MSC_CONFIG, 0)
        bench.attach()
        bench.usb.bus_reset()
        bench.acknowledge(*CAUSES.values())
        assert bench.events == 0
        bench.usb.setup(Setup(0x80, 6, 0x100, 0, 18).pack())
        bench.write(usb.EP0_PHASE, 1)
        bench.write(usb.EP0_IN_LENGTH, 18)
        bench.write(usb.EP0_COMMAND, 0x04)
        assert len(bench.usb.control_in()) == 18
        assert bench.usb.status() is NAK
        bench.write(usb.EP0_COMMAND, 0x02)
        assert bench.usb.status() is ACK
        bench.poke(memory.BULK_IN_BUFFER, b"over")
        bench.write(usb.BULK_IN_LENGTH, 4)
        bench.write(usb.BULK_COMMAND, 0x12)
        assert bench.usb.bulk_out(OUT, b"and out") is ACK
        assert bench.usb.bulk_in(IN) == b"over"


Bus.TestCase.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestRandom = Bus.TestCase

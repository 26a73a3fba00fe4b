"""Several transfers in flight on an emulated device: order, bounds, failures, time, and Ctrl-C."""

from __future__ import annotations

import _thread
import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import usb.core

from emulator.board import Board
from emulator.usb.wire import Speed as Port
from sdk.errors import DeviceFailed, UsageError
from tests.contract.loopback_function import BULK, ECHO, LOOPBACK, SINK, SOURCE
from tests.unit.test_transport import Rig
from usbgpu.transport import Abandoned, Call, CallKind, Disconnected, NotSent, Stalled, TimedOut
from usbgpu.transport.pipeline import MOST, WINDOW, Pipeline

VENDOR_OUT, VENDOR_IN = 0x40, 0xC0
MIB = 1 << 20


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def device(rig):
    with rig.attach() as device:
        yield device


def use(device, mode: int) -> None:
    device.control_out(VENDOR_OUT, BULK, mode)


def halt(device, endpoint: int) -> None:
    device.control_out(0x02, 3, 0, endpoint)


def outs(device, *sizes: int, **options) -> list:
    return [device.submit(device.out_call(bytes(size), **options)) for size in sizes]


# -- order and time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("best", [Port.SUPER_PLUS, Port.HIGH])
def test_one_thread_moves_data_both_ways(best):
    device = Rig(best=best).attach()
    use(device, LOOPBACK)
    parts = [np.random.default_rng(n).integers(0, 256, 16 << 10, np.uint8) for n in range(8)]
    rooms = [np.zeros(16 << 10, np.uint8) for _ in parts]
    back = [device.submit(device.in_call(room)) for room in rooms]
    sent = [device.submit(device.out_call(part)) for part in parts]
    assert not any(each.done for each in (*back, *sent)), "no time has passed"
    assert [each.result() for each in sent] == [b""] * 8
    assert [each.result() for each in back] == [b""] * 8
    assert all(each.received == 16 << 10 and each.done for each in back)
    assert np.array_equal(np.stack(rooms), np.stack(parts))


def test_a_queue_that_is_never_empty_loses_no_time(rig, device):
    """15 us between two transfers of one thread, 2 us between two that are queued (timing.BULK_*)."""
    use(device, SINK)

    def seconds(work) -> float:
        began = device.clock.now()
        work()
        return device.clock.now() - began

    def queued():
        for pending in outs(device, *[64 << 10] * 16):
            pending.result()

    def in_turn():
        for _ in range(16):
            device.bulk_out(bytes(64 << 10))

    whole = seconds(lambda: device.bulk_out(bytes(MIB)))
    assert seconds(in_turn) - whole == pytest.approx(15 * 15e-6, abs=1e-6)
    first = seconds(queued)
    assert first - whole == pytest.approx(15 * 2e-6, abs=1e-6)
    assert seconds(queued) == pytest.approx(first, abs=1e-7), "the same every time"
    assert rig.functions[0].taken == 4 * MIB


@pytest.mark.slow
def test_what_is_in_flight_is_bounded(rig, device):
    use(device, SINK)
    pending = outs(device, *[MIB] * (WINDOW // MIB))
    assert not pending[0].done
    last = outs(device, MIB)[0]
    assert pending[0].done, "there had to be room"
    assert not pending[1].done
    large = outs(device, 2 * WINDOW)[0]
    assert last.done, "it is sent alone"
    large.result()
    small = outs(device, *[0] * (MOST + 1))
    assert [each.done for each in small[:2]] == [True, False]
    small[-1].result()
    assert rig.functions[0].taken == 3 * WINDOW + MIB


def test_observers_are_called_in_the_order_of_the_ends(device):
    use(device, LOOPBACK)
    seen = []
    device.observers.append(lambda call, outcome: seen.append((str(call), outcome)))
    back = device.submit(device.in_call(bytearray(4)))
    device.bulk_out(b"here")
    device.control_in(VENDOR_IN, ECHO, length=4)
    assert [text for text, _ in seen] == ["EP 0x02, 4 bytes", "EP 0x81, 4 bytes", "control C0:A0:0:0:4"]
    outcomes = [outcome for _, outcome in seen]
    assert [each.number - outcomes[1].number for each in outcomes] == [1, 0, 2], "the IN came first"
    assert outcomes[1].data == b"here"
    assert outcomes[1].began <= outcomes[0].began < outcomes[0].ended < outcomes[1].ended < outcomes[2].ended
    assert back.done
    assert len(seen) == 3


def test_counting_from_several_threads(device):
    use(device, SINK)
    seen = []
    device.observers.append(lambda call, outcome: seen.append(outcome.number))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: [device.bulk_out(bytes(512)) for _ in range(25)], range(4)))
    assert len(seen) == len(set(seen)) == 100
    assert max(seen) - min(seen) == 99


# -- failures -------------------------------------------------------------------------------------------


def test_nothing_behind_a_failure_is_sent(rig, device):
    use(device, SINK)
    halt(device, 2)
    seen = []
    device.observers.append(lambda call, outcome: seen.append(outcome.code))
    first, *rest = outs(device, 1024, 2048, 3072)
    with pytest.raises(Abandoned, match="EP 0x02, 1024") as b:
        rest[0].result()
    assert isinstance(b.value.cause, Stalled)
    assert b.value.transferred == 0
    for _ in range(2):
        with pytest.raises(Stalled):
            first.result()
    assert seen == ["stalled", "abandoned", "abandoned"]
    device.clear_halt(2)
    device.bulk_out(bytes(10))
    assert rig.functions[0].taken == 10


def test_an_endpoint_waits_until_its_failure_has_been_reported(rig, device):
    use(device, SINK)
    halt(device, 2)
    (first,) = outs(device, 1024)
    assert device.control_in(VENDOR_IN, ECHO, length=0) == b"", "time passes, and the failure is not reported"
    device.clear_halt(2)
    (unaware,) = outs(device, 2048)
    with pytest.raises(Stalled):
        first.result()
    with pytest.raises(Abandoned):
        unaware.result()
    device.bulk_out(bytes(30))
    assert rig.functions[0].taken == 30


def test_the_other_endpoint_continues(device):
    use(device, SOURCE)
    halt(device, 2)
    reads = [device.submit(device.in_call(bytearray(4096))) for _ in range(4)]
    with pytest.raises(Stalled):
        device.bulk_out(b"x")
    for each in reads:
        each.result()
        assert each.received == 4096


def test_time_outs_count_from_the_head_of_the_queue(rig, device):
    use(device, LOOPBACK)  # it takes one packet
    began = device.clock.now()
    sent = outs(device, 1024, 2048, 512, timeout=0.5)
    sent[0].result()
    with pytest.raises(TimedOut, match=r"0\.5 s"):
        sent[1].result()
    assert device.clock.now() - began == pytest.approx(0.5, abs=0.01)
    with pytest.raises(Abandoned):
        sent[2].result()
    assert device.bulk_in(1024) == bytes(1024)
    with pytest.raises(TimedOut):
        device.bulk_in(1024, timeout=0.1)
    assert len(rig.functions[0]._packets) == 0, "the packet of the third never came"


def test_a_cable_that_is_pulled(rig, device):
    use(device, SINK)
    sent = outs(device, MIB, MIB, MIB)
    rig.hosts[0].unplug()
    for each, kind in zip(sent, (Disconnected, Abandoned, Abandoned), strict=True):
        with pytest.raises(kind):
            each.result()
    rig.hosts[0].plug()
    device.reopen()
    use(device, SINK)
    for each in outs(device, 1024, 1024):
        each.result()


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        (lambda device: device.close(), "closed"),
        (lambda device: device.reset(), "reset"),
    ],
)
def test_what_is_in_flight_is_cancelled(device, way, reason):
    reads = [device.submit(device.in_call(bytearray(1024))) for _ in range(3)]
    seen = []
    device.observers.append(lambda call, outcome: seen.append((call.kind, outcome.code)))
    way(device)
    for each in reads:
        with pytest.raises(Abandoned, match=reason):
            each.result()
    assert seen[:3] == [(CallKind.BULK_IN, "abandoned")] * 3


def test_cancelling_one_cancels_those_behind_it(device):
    use(device, LOOPBACK)
    reads = [device.submit(device.in_call(bytearray(4))) for _ in range(3)]
    reads[1].cancel()
    reads[1].cancel()
    device.bulk_out(b"one.")
    reads[0].result()
    for each in reads[1:]:
        with pytest.raises(Abandoned, match="cancelled"):
            each.result()
    device.bulk_out(b"two.")
    assert device.bulk_in(1024) == b"two.", "nothing consumed it"


class Busy:
    """A system with one transfer on the bus: when that has ended it begins the next at once."""

    class Transfer:
        def __init__(self) -> None:
            self.done, self.begun, self.actual, self.error, self.ended = False, False, 0, None, 0.0

    def __init__(self) -> None:
        self.transfers: list[Busy.Transfer] = []

    def bulk_submit(self, handle, endpoint, buffer):
        self.transfers.append(self.Transfer())
        self._go_on()
        return self.transfers[-1]

    def bulk_wait(self, transfer, seconds):
        assert transfer.done

    def bulk_cancel(self, transfer):
        transfer.done, transfer.error = True, usb.core.USBTimeoutError("cancelled", errno=errno.ETIMEDOUT)
        self._go_on()

    def _go_on(self):
        waiting = [each for each in self.transfers if not each.done]
        if waiting:
            waiting[0].begun = True


def expired(pending) -> None:
    with pytest.raises(TimedOut):
        pending.result()


@pytest.mark.parametrize(
    "end",
    [
        lambda pipeline, sent: sent[0].cancel(),
        lambda pipeline, sent: pipeline.abandon("a test"),
        lambda pipeline, sent: expired(sent[0]),
    ],
    ids=["cancelled", "abandoned", "late"],
)
def test_what_is_cancelled_never_reaches_the_bus(end):
    """The last is cancelled first: the system would begin those behind the one on the bus."""
    system, clock = Busy(), Rig().attach().clock
    pipeline = Pipeline(clock, lambda call, outcome: None)
    pipeline.use(system, lambda: None)
    call = Call(CallKind.BULK_OUT, endpoint=2, data=bytes(512), timeout=0.01)
    sent = [pipeline.submit(call, number) for number in range(4)]
    clock.sleep(0.02)
    end(pipeline, sent)
    assert [each.begun for each in system.transfers] == [True, False, False, False]
    assert all(each.done for each in system.transfers)


def test_ctrl_c_while_waiting(rig, device):
    use(device, LOOPBACK)

    def interrupt(*_):
        _thread.interrupt_main()

    pending = device.submit(device.in_call(bytearray(4), timeout=1000.0))
    rig.hosts[0].pump.scheduler.after(10**6, interrupt)
    with pytest.raises(KeyboardInterrupt):
        pending.result()
    device.bulk_out(b"late")
    assert pending.result() == b""
    assert pending.call.into == b"late"
    rig.hosts[0].pump.scheduler.after(10**6, interrupt)
    with pytest.raises(KeyboardInterrupt):
        device.bulk_in(4)
    device.bulk_out(b"more")
    assert device.bulk_in(4) == b"more", "the interrupted one consumed nothing"


def test_a_wait_that_an_outside_error_ends(rig, device, monkeypatch):
    """As by the watchdog, or an injected power cut: the transfer itself has not ended."""
    use(device, SINK)

    def fail(*args):
        raise DeviceFailed("the power was cut")

    with monkeypatch.context() as broken:
        broken.setattr(rig.functions[0], "bulk_out", fail)
        with pytest.raises(DeviceFailed, match="the power was cut"):
            device.bulk_out(bytes(10))
    device.bulk_out(bytes(20))
    assert rig.functions[0].taken == 20


def test_invalid_calls_are_refused(device):
    with pytest.raises(UsageError, match="only bulk"):
        device.submit(Call(CallKind.CONTROL, timeout=1.0))
    with pytest.raises(UsageError, match="time-out"):
        device.submit(device.out_call(b"x", timeout=0))
    with pytest.raises(UsageError, match="direction"):
        device.bulk_out(b"x", endpoint=0x81)
    with pytest.raises(UsageError, match=r"a read .* not 0"):
        device.bulk_in_into(bytearray())
    with pytest.raises(NotSent, match="bulk endpoint"):
        device.bulk_out(b"x", endpoint=0x05)
    device.close()
    for wrong in (lambda: device.bulk_out(b"x"), lambda: device.control_in(VENDOR_IN, ECHO, length=1)):
        with pytest.raises(UsageError, match="closed"):
            wrong()


def test_transfers_of_any_buffer(device):
    use(device, LOOPBACK)
    for data in (b"abcd", bytearray(b"abcd"), memoryview(b"abcd"), np.frombuffer(b"abcd", np.uint32)):
        device.bulk_out(data)
        assert device.bulk_in(1024) == b"abcd"
    room = np.zeros(2, np.uint32)
    device.bulk_out(b"abcd")
    assert device.bulk_in_into(room) == 4
    assert room.tobytes() == b"abcd\0\0\0\0"


def test_an_emulated_device_reports_what_it_is(rig, device):
    assert device.emulation is None
    board = Board(None)
    rig.backend.emulation = board
    assert device.emulation is board
    assert board.backend().emulation is board


def test_transfers_in_flight_need_no_threads(device):
    use(device, SINK)
    before = threading.active_count()
    sent = outs(device, 1024, 1024)
    assert threading.active_count() == before
    for each in sent:
        each.result()

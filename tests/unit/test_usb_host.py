"""The host's side of USB: transfers, timing to the clock, threads, and what happens when things go wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.core.clock import clocks
from emulator.usb import pump, standard, timing
from emulator.usb.host import Host
from emulator.usb.pump import Pump, Waiter
from emulator.usb.wire import Handshake, Outcome, Setup, Speed, Spoilt, Stall
from sdk.errors import DeviceFailed, InternalError, UsageError
from tests.contract.loopback_function import (
    BABBLE,
    BULK,
    COUNT,
    ECHO,
    LOOPBACK,
    REFUSED,
    SINK,
    SOURCE,
    LoopbackFunction,
)
from tests.contract.usb_fixture import QuietWorld

OUT, IN = 0x02, 0x81


class Rig:
    """A loopback device in the port of a host."""

    def __init__(self, best: Speed = Speed.SUPER, *, plugged: bool = True) -> None:
        self.world = QuietWorld()
        self.function = LoopbackFunction(self.world.clock)
        self.host = Host(self.function, self.world, best=best)
        if plugged:
            self.host.plug()
            assert self.host.wait_attached(1.0)

    @property
    def now(self) -> int:
        return self.world.clock.now

    def use_bulk(self, mode: int) -> None:
        self.host.control(Setup(0x40, BULK, mode, 0, 0))


@pytest.fixture
def rig() -> Rig:
    return Rig()


# -- control --------------------------------------------------------------------------------------------


@given(st.binary(min_size=1, max_size=1500), st.sampled_from((Speed.HIGH, Speed.SUPER_PLUS)))
def test_control_data_of_any_length(data, speed):
    rig = Rig(speed)
    assert rig.host.control(Setup(0x40, ECHO, 0, 0, len(data)), data) == b""
    assert rig.host.control(Setup(0xC0, ECHO, 0, 0, 2000)) == data
    assert rig.host.control(Setup(0xC0, ECHO, 0, 0, len(data))) == data


def test_a_control_transfer_takes_the_hosts_turn_around_and_what_the_device_takes(rig):
    start = rig.now
    rig.host.control(Setup(0xC0, COUNT, 0, 0, 4))
    # SETUP, then a data packet and the status stage, each refused first.
    assert rig.now - start == timing.CONTROL_TURNAROUND.clocks + 2 * rig.function.delay


def test_every_stage_takes_its_time_at_high_speed():
    rig = Rig(Speed.HIGH)
    start = rig.now
    rig.host.control(Setup(0xC0, COUNT, 0, 0, 4))
    assert rig.now - start == 3 * timing.HIGH_SPEED_STAGE.clocks  # the device is ready before the host asks


def test_control_transfers_queue(rig):
    order = []
    for value in range(5):
        setup = Setup(0x40, ECHO, value, 0, 1)
        rig.host.submit_control(setup, bytes([value]), on_done=lambda t: order.append(t.setup.value))
    rig.host.control(Setup(0x40, BULK, 0, 0, 0))
    assert order == list(range(5))
    assert [setup.value for setup in rig.function.seen if setup.request == ECHO] == order


def test_a_stall_concerns_one_request(rig):
    with pytest.raises(Stall):
        rig.host.control(Setup(0xC0, REFUSED, 0, 0, 4))
    with pytest.raises(Stall):
        rig.host.control(Setup(0x40, REFUSED, 0, 0, 4), b"1234")
    assert rig.host.control(Setup(0xC0, COUNT, 0, 0, 4)) == bytes(4)


def test_a_request_that_times_out_frees_ep0(rig):
    rig.function.silent.add(ECHO)
    start = rig.now
    with pytest.raises(TimeoutError):
        rig.host.control(Setup(0x40, ECHO, 0, 0, 4), b"1234", timeout=0.25)
    assert rig.now - start == clocks(0.25)
    assert rig.host.control(Setup(0xC0, COUNT, 0, 0, 4), timeout=0.25) == bytes(4)


def test_a_device_that_sends_too_much(rig):
    with pytest.raises(DeviceFailed, match="more than the 8 bytes"):
        rig.host.control(Setup(0xC0, BABBLE, 0, 0, 8))
    rig.use_bulk(SOURCE)
    transfer = rig.host.submit(IN, 1500)
    rig.host.wait(transfer)
    assert transfer.outcome is Outcome.OVERFLOW
    assert transfer.actual == len(transfer.data) == 1500
    transfer = rig.host.submit(IN, 1024)
    rig.host.wait(transfer)
    assert transfer.outcome is Outcome.DONE


def test_arguments_that_contradict_each_other(rig):
    for setup, data in ((Setup(0x40, ECHO, 0, 0, 4), b"123"), (Setup(0xC0, ECHO, 0, 0, 4), b"1234")):
        with pytest.raises(UsageError):
            rig.host.control(setup, data)
    for endpoint, what in ((IN, b"data"), (OUT, 64), (0x00, b"data"), (0x80, 64)):
        with pytest.raises(UsageError):
            rig.host.submit(endpoint, what)
    with pytest.raises(UsageError):
        rig.host.clock.sleep(-1)


# -- bulk -----------------------------------------------------------------------------------------------


def test_bulk_timing_idle_and_queued(rig):
    rig.use_bulk(SINK)
    start = rig.now
    first, second = rig.host.submit(OUT, bytes(1024)), rig.host.submit(OUT, bytes(1500))
    rig.host.wait(second)
    full, rest = rig.function.packet_clocks(OUT, 1024), rig.function.packet_clocks(OUT, 476)
    assert first.submitted == second.submitted == start
    assert first.completed == start + timing.BULK_IDLE.clocks + full
    assert second.completed == first.completed + timing.BULK_QUEUED.clocks + full + rest


def test_no_time_passes_without_a_wait(rig):
    rig.use_bulk(SINK)
    start = rig.now
    transfer = rig.host.submit(OUT, b"x")
    assert rig.now == start
    assert transfer.outcome is None
    rig.host.clock.sleep(1e-3)
    assert rig.now == start + clocks(1e-3)
    assert transfer.outcome is Outcome.DONE
    assert rig.host.clock.now() == pytest.approx(rig.now * 8.75e-9)


@pytest.mark.slow
@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=6))
def test_loopback_keeps_every_byte_and_boundary(messages):
    rig = Rig()
    rig.use_bulk(LOOPBACK)
    back = [rig.host.submit(IN, 3072) for _ in messages]
    for message in messages:
        rig.host.submit(OUT, message)
        if message and len(message) % 1024 == 0:
            rig.host.submit(OUT, b"")  # ends a message of whole packets
    rig.host.wait(back[-1])
    assert [bytes(transfer.data) for transfer in back] == messages


def test_cancelling_keeps_what_came(rig):
    rig.use_bulk(LOOPBACK)
    first, second, third = (rig.host.submit(IN, 4096) for _ in range(3))
    rig.host.wait(rig.host.submit(OUT, bytes(1024)))
    rig.host.clock.sleep(1e-4)
    rig.host.cancel(second)
    rig.host.cancel(first)
    rig.host.cancel(first)
    assert (first.outcome, first.actual) == (Outcome.CANCELLED, 1024)
    assert (second.outcome, second.actual) == (Outcome.CANCELLED, 0)
    rig.host.submit(OUT, b"next")
    rig.host.wait(third)
    assert bytes(third.data) == b"next"


def test_a_halt_ends_everything_until_it_is_cleared(rig):
    rig.use_bulk(LOOPBACK)
    pending = [rig.host.submit(IN, 64) for _ in range(2)]
    rig.host.control(Setup(0x02, standard.RequestCode.SET_FEATURE, 0, IN, 0))
    rig.host.wait(pending[1])
    assert [transfer.outcome for transfer in pending] == [Outcome.STALL] * 2
    start = rig.now
    assert rig.host.submit(IN, 64).outcome is Outcome.STALL  # by the host's own knowledge
    assert rig.now == start
    rig.host.control(standard.clear_halt(OUT))
    assert rig.host.submit(IN, 64).outcome is Outcome.STALL
    rig.host.control(standard.clear_halt(IN))
    transfer = rig.host.submit(IN, 64)
    rig.host.submit(OUT, b"on")
    rig.host.wait(transfer)
    assert transfer.outcome is Outcome.DONE


def test_a_stream_id_goes_along(rig):
    rig.use_bulk(SINK)
    transfer = rig.host.submit(OUT, b"x", stream=3)
    rig.host.wait(transfer)
    assert (transfer.stream, transfer.outcome) == (3, Outcome.DONE)


# -- the bus --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speed", [Speed.HIGH, Speed.SUPER_PLUS])
def test_enumeration_as_a_linux_host_does_it(speed):
    rig = Rig(speed)
    found = rig.host.enumerate(address=9)
    assert rig.host.address == 9
    assert rig.host.configuration == 1
    assert len(found.device) == 18
    assert found.bos == (None if speed is Speed.HIGH else found.bos[:22])
    parsed = standard.parse_configuration(found.configurations[0])
    assert [len(settings[0].endpoints) for settings in parsed.interfaces] == [2]
    requests = [setup.request for setup in rig.function.seen]
    assert requests[:2] == ([6, 5] if speed is Speed.HIGH else [5, 6])
    assert requests[-1] == standard.RequestCode.SET_CONFIGURATION


def test_a_device_that_does_not_answer_is_named_with_its_request():
    rig = Rig()
    rig.function.silent.add(standard.RequestCode.SET_ADDRESS)
    with pytest.raises(DeviceFailed, match=r"SET_ADDRESS\(2\): the device did not answer within 5 s"):
        rig.host.enumerate()
    with pytest.raises(DeviceFailed, match="no link came up"):
        Rig(plugged=False).host.enumerate()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes((9, 2, 9, 0)),
        bytes((9, 2, 18, 0, 1, 1, 0, 0x80, 0, 0)),
        bytes((9, 2, 18, 0, 1, 1, 0, 0x80, 0, 9, 4)),
        bytes((9, 2, 16, 0, 1, 1, 0, 0x80, 0, 7, 5, 0x81, 2, 0, 4, 0)),
    ],
)
def test_malformed_configurations_are_refused(data):
    with pytest.raises(DeviceFailed, match="descriptor at byte"):
        standard.parse_configuration(data)


@given(st.binary(max_size=80))
def test_no_descriptor_crashes_the_parser(data):
    with contextlib.suppress(DeviceFailed):
        standard.parse_configuration(b"\x09\x02\x09\x00\x01\x01\x00\x80\x00" + data)


def test_reset_and_unplugging_end_what_is_pending(rig):
    rig.use_bulk(LOOPBACK)
    for end in (rig.host.reset, rig.host.unplug):
        transfers = [rig.host.submit(IN, 64), rig.host.submit(OUT, bytes(4096))]
        end()
        assert [transfer.outcome for transfer in transfers] == [Outcome.GONE] * 2
    assert rig.host.speed is None
    assert rig.host.submit(IN, 64).outcome is Outcome.GONE
    with pytest.raises(ConnectionError):
        rig.host.control(Setup(0xC0, COUNT, 0, 0, 4))
    with pytest.raises(ConnectionError):
        rig.host.reset()
    assert not rig.host.wait_attached(0.1)
    rig.host.plug()
    assert rig.host.wait_attached(0.1)
    assert rig.host.attachments == 2


@pytest.mark.parametrize("endpoint", [OUT, IN])
@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.STALL, Outcome.CANCELLED])
def test_a_transfer_that_is_spoilt(rig, endpoint, outcome):
    """The second one; the others are as ever."""
    rig.use_bulk(SINK if endpoint == OUT else SOURCE)
    struck = []
    rig.host.spoil(2, Spoilt(outcome, lambda: struck.append(rig.now)))
    for number in range(4):
        transfer = rig.host.submit(endpoint, bytes(4096) if endpoint == OUT else 4096)
        with contextlib.suppress(TimeoutError):
            rig.host.wait(transfer, timeout=0.5)
        assert transfer.outcome is (outcome if number == 1 else Outcome.DONE)
        if number == 1:
            assert transfer.actual == (2048 if endpoint == OUT else 0)
            rig.host.control(Setup(0x02, 1, 0, endpoint, 0))
    assert len(struck) == 1


def test_what_would_befall_a_transfer_that_is_cancelled_before_befalls_the_next(rig):
    rig.use_bulk(SINK)
    struck = []
    rig.host.spoil(2, Spoilt(Outcome.ERROR, lambda: struck.append(1)))
    rig.host.spoil(3, Spoilt(Outcome.ERROR, lambda: struck.append(2)))
    first, second = (rig.host.submit(OUT, bytes(4096)) for _ in range(2))
    rig.host.cancel(second)
    rig.host.wait(first, timeout=0.5)
    for count in (1, 2):
        transfer = rig.host.submit(OUT, bytes(4096))
        rig.host.wait(transfer, timeout=0.5)
        assert transfer.outcome is Outcome.ERROR
        assert len(struck) == count


def test_a_program_that_stands_still(rig):
    """What it waits for has happened long ago when it goes on."""
    rig.use_bulk(SINK)
    transfer = rig.host.submit(OUT, bytes(4096))
    until = rig.now + clocks(0.25)
    rig.host.pump.post(lambda: rig.host.pump.stand_still(until))
    rig.host.wait(transfer, timeout=0.1)
    assert transfer.outcome is Outcome.DONE
    assert transfer.completed < until - clocks(0.2)
    assert rig.now >= until


def test_another_device_in_its_place(rig):
    rig.host.enumerate()
    transfer = rig.host.submit(IN, 64)
    other = LoopbackFunction(rig.world.clock)
    rig.host.exchange(other)
    assert transfer.outcome is Outcome.GONE
    assert rig.function.partner is None
    rig.host.enumerate()
    assert other.seen
    rig.host.unplug()
    rig.host.exchange(rig.function)
    assert not rig.host.wait_attached(0.1)


def test_a_device_that_leaves_in_the_middle_of_a_transaction(rig):
    rig.function.bulk_out = lambda endpoint, data: rig.host.detached() or Handshake.ACK
    transfer = rig.host.submit(OUT, b"x")
    rig.host.wait(transfer)
    assert (transfer.outcome, transfer.actual) == (Outcome.GONE, 0)


# -- threads and time -----------------------------------------------------------------------------------


def test_one_thread_is_reproducible_to_the_clock():
    def run() -> list[int]:
        rig = Rig()
        marks = []
        rig.host.enumerate()
        rig.use_bulk(LOOPBACK)
        for size in (1, 1024, 1025, 5000):
            back = rig.host.submit(IN, size)
            rig.host.wait(rig.host.submit(OUT, bytes(size)))
            rig.host.wait(back, timeout=1.0)
            marks.append(rig.now)
        return marks

    assert run() == run()


def test_threads_get_their_own_data(rig):
    lock = threading.Lock()
    rig.use_bulk(LOOPBACK)

    def talk(seed: int) -> bool:
        for i in range(10):
            data = bytes([seed, i]) * 300
            with lock:  # the pipe has one order
                back = rig.host.submit(IN, 1024)
                rig.host.submit(OUT, data)
            rig.host.control(Setup(0xC0, COUNT, 0, 0, 4))
            rig.host.wait(back, timeout=10.0)
            if bytes(back.data) != data:
                return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(talk, range(6)))


def test_a_driver_that_is_done_hands_over(rig):
    rig.use_bulk(LOOPBACK)
    back = rig.host.submit(IN, 64)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(rig.host.wait, back, timeout=100.0)
        rig.host.clock.sleep(0.01)
        start = rig.now
        while rig.now == start:  # the other thread is the driver now, and time goes on
            time.sleep(0.001)
        rig.host.submit(OUT, b"x")
        slow.result(timeout=10)
    assert bytes(back.data) == b"x"


def test_a_time_out_does_not_run_ahead_of_a_thread_that_computes(rig):
    rig.use_bulk(LOOPBACK)
    back = rig.host.submit(IN, 64)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(rig.host.wait, back, timeout=10.0)
        time.sleep(0.05)  # in which an unlimited driver gets through minutes
        rig.host.submit(OUT, b"x")
        read.result(timeout=10)
    assert bytes(back.data) == b"x"


def test_a_callback_may_submit_but_not_wait(rig):
    rig.use_bulk(LOOPBACK)
    seen = []

    def again(transfer):
        seen.append(bytes(transfer.data))
        rig.host.submit(OUT, b"two")
        with pytest.raises(InternalError):
            rig.host.clock.sleep(1.0)

    rig.host.submit(IN, 64, on_done=again)
    last = rig.host.submit(IN, 64)
    rig.host.submit(OUT, b"one")
    rig.host.wait(last, timeout=1.0)
    assert seen == [b"one"]
    assert bytes(last.data) == b"two"


class Broken(Exception):
    pass


def test_an_error_of_the_world_reaches_everyone_who_waits(rig):
    waiting = threading.Barrier(3)

    def fail() -> None:
        raise Broken

    def wait() -> str:
        waiting.wait()
        with pytest.raises(Broken):
            rig.host.clock.sleep(1000.0)
        return "raised"

    with ThreadPoolExecutor(2) as pool:
        threads = [pool.submit(wait) for _ in range(2)]
        waiting.wait()
        while len(rig.host.pump._waiting) < 2:
            time.sleep(0.001)
        with pytest.raises(Broken):
            rig.host.pump.run(lambda: rig.world.clock.after(10, fail), Waiter(bounded=True))
        assert [thread.result(timeout=10) for thread in threads] == ["raised"] * 2
    assert rig.host.control(Setup(0xC0, COUNT, 0, 0, 4)) == bytes(4)


def test_an_error_in_a_post_leaves_the_pump_usable(rig):
    def fail() -> None:
        raise Broken

    with pytest.raises(Broken):
        rig.host.pump.post(fail)
    rig.host.clock.sleep(0.001)


def test_ctrl_c_ends_the_wait_and_loses_nothing(rig):
    rig.use_bulk(LOOPBACK)
    transfer = rig.host.submit(IN, 64)
    rig.world.clock.after(clocks(0.01), lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        rig.host.wait(transfer)
    assert transfer.outcome is Outcome.CANCELLED
    back = rig.host.submit(IN, 64)
    rig.host.submit(OUT, b"on")
    rig.host.wait(back, timeout=1.0)
    assert bytes(back.data) == b"on"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_the_watchdog_ends_what_nothing_would_end():
    world = QuietWorld()
    waits = Pump(world, patience=0.02)
    with pytest.raises(DeviceFailed, match="no USB transfer has moved"):
        waits.run(lambda: None, Waiter(bounded=False))
    waits.sleep(100.0)  # bounded, and getting on
    world.step = lambda until: None
    with pytest.raises(DeviceFailed, match="time has stood still"):
        waits.sleep(1.0)


@pytest.mark.slow
def test_64_mib_in_seconds(rig):
    rig.use_bulk(SINK)
    start = time.process_time()
    rig.host.wait(rig.host.submit(OUT, bytes(64 << 20)))
    assert rig.function.taken == 64 << 20
    assert time.process_time() - start < 3.0


def naps(rig, monkeypatch) -> int:
    """How often a wait of a second without transfers naps to let others act."""
    count = 0

    def sleep(_: float) -> None:
        nonlocal count, now
        count += 1
        now += 0.01

    now = 0.0
    monkeypatch.setattr(pump, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    with pytest.raises(TimeoutError):
        rig.host.wait(rig.host.submit(IN, 64), timeout=1.0)
    return count


def test_only_threads_that_use_the_device_hold_time_back(rig, monkeypatch):
    rig.use_bulk(LOOPBACK)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert naps(rig, monkeypatch) == 0
        pool.submit(rig.host.control, Setup(0xC0, COUNT, 0, 0, 4)).result()
        assert naps(rig, monkeypatch) > 5
    assert naps(rig, monkeypatch) == 0  # it has ended


def test_ctrl_c_in_a_post_leaves_the_pump_usable(rig):
    class Interrupting:
        """A lock whose user is interrupted as soon as it is free again."""

        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.armed = True

        def __enter__(self) -> None:
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()
            if self.armed:
                self.armed = False
                os.kill(os.getpid(), signal.SIGINT)

    done = []
    rig.host.pump._mutex = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        rig.host.pump.post(lambda: done.append(True))
    assert done
    with ThreadPoolExecutor(1) as other:
        other.submit(rig.host.clock.sleep, 0.001).result(timeout=10)


def test_a_wait_for_the_link_that_ran_out_is_forgotten():
    rig = Rig(plugged=False)
    for _ in range(3):
        assert not rig.host.wait_attached(0.01)
    assert rig.host._attaching == []


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_an_invalid_time_is_refused_before_the_device_sees_it(rig, seconds):
    for wait in (
        rig.host.clock.sleep,
        lambda seconds: rig.host.control(Setup(0xC0, COUNT, 0, 0, 4), timeout=seconds),
        lambda seconds: rig.host.wait(rig.host.submit(IN, 64), timeout=seconds),
    ):
        with pytest.raises(UsageError, match=f"{seconds:g} s"):
            wait(seconds)
    assert rig.host.control(Setup(0xC0, COUNT, 0, 0, 4)) == bytes(4)

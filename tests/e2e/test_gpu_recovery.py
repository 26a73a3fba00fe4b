"""A network with states on an emulated card that fails in every way there is, at many places.

Whatever happens, an answer is that of its frame and of the states before it; no step counts twice; and the
device works again within a bounded time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from emulator.amdgpu.card import AmdCard
from emulator.faults import FORMS
from sdk import compiler
from sdk.errors import DeviceFailed, UsageError
from sdk.expression.trace import apply
from sdk.graph import Graph, MatMul
from sdk.session import Session
from sdk.target import Injects, OpenOptions, Recovers, Recovery, Submits, Timed
from sdk.targets import open_device
from tests.amount import amount
from tests.plain_graphs import PlainBuilder
from tests.unit.test_states import renamed
from usbgpu.amd.monitor import TooHot
from usbgpu.target.device import EmulatedCardDevice

SLOW = pytest.mark.slow
DEVICE = "emulated?gpu=gfx1100&vram=256M"
STEPS = 7
PATIENCE = 10.0
"""Virtual seconds that a recovery may wait; each of these faults needs less."""
KIND = {
    "link-drop": "warm",
    "unplug": "warm",
    "bulk-error": "warm",
    "bulk-stall": "warm",
    "bulk-timeout": "warm",
    "kernel-hang": "warm",
    "heat": "warm",
    "bridge-reset": "cold",
    "supply-sag": "cold",
    "pcie-drop": "cold",
    "card-reset": "cold",
}
"""How the card works again, by what happened. The others end no transfer."""
NAMES = ("x", "h", "count", "y", "next_h", "next_count")
BOUND = {"warm": 0.12, "cold": 0.6}
"""Virtual seconds of a recovery, without the time for which something is away."""


def network() -> Graph:
    """h' = tanh(W h + x), and a count of the steps."""
    b = PlainBuilder(9)
    x, h, count = (b.input(shape) for shape in ((1, 64), (1, 64), (1, 32)))
    w, v = b.constant((64, 64)), b.constant((64, 32))
    product = b.node(MatMul, (h, w), transposed=False)
    state = b.map(lambda p, q: apply("tanh", p * 0.5 + q), product, x)
    counted = b.map(lambda n: n + 1, count)
    y = b.map(lambda p, q: p + q, b.node(MatMul, (state, v), transposed=False), counted)
    names = dict(zip((x, h, count, y, state, counted), NAMES, strict=True))
    return renamed(b.graph(y, state, counted), names)


class Run:
    """Steps of the network, checked against those of a card on which nothing happened.

    Attributes:
        recoveries: of the last replay: its outcome, and the virtual seconds it took.
        repeated: steps that were made again because the states were lost.
    """

    def __init__(self) -> None:
        self.artifact = compiler.compile(network(), "amd-gfx1100")
        device = open_device(self.artifact.target, DEVICE, OpenOptions())
        assert isinstance(device, EmulatedCardDevice)
        self.device = device
        self.session = Session(self.artifact, opened=device)
        self.recoveries: list[tuple[Recovery, float]] = []
        self.repeated = 0
        self.expected = [self.session.step(frame(number)) for number in range(STEPS)]
        self.states = self.session.states()

    @property
    def now(self) -> float:
        return self.device.clock.now()

    @property
    def card(self) -> AmdCard:
        return self.device._emulation.card  # type: ignore[attr-defined]

    def replay(self, faults: str = "") -> None:
        """All steps from reset states, whatever happens meanwhile."""
        self.session.reset()
        self.recoveries, self.repeated = [], 0
        if faults:
            self.device.inject(faults)
        number = 0
        while number < STEPS:
            try:
                found = self.session.step(frame(number))
            except DeviceFailed:
                if not self.recover():
                    self.session.reset()
                    self.repeated += number
                    number = 0
                continue
            same(found, self.expected[number])
            number += 1
        try:
            states = self.session.states()
        except DeviceFailed:  # it struck there
            if not self.recover():
                return
            states = self.session.states()
        same(states, self.states)

    def replay_submitted(self, faults: str, depth: int = 4) -> None:
        """The same with several steps in flight."""
        session = self.session.on_device
        assert isinstance(session, Submits)
        self.session.reset()
        self.recoveries, self.repeated = [], 0
        if faults:
            self.device.inject(faults)
        waiting: deque[Callable[[], dict[str, np.ndarray]]] = deque()
        number = 0
        while number < STEPS:
            try:
                while len(waiting) < min(depth, STEPS - number):
                    waiting.append(session.submit(frame(number + len(waiting)), step=True))
                found = waiting.popleft()()
            except DeviceFailed:
                dropped = waiting.copy()
                waiting.clear()
                if not self.recover():
                    self.session.reset()
                    self.repeated += number
                    number = 0
                for result in dropped:
                    with pytest.raises(DeviceFailed):
                        result()
                continue
            same(found, self.expected[number])
            number += 1
        if self.recoveries or self.fired():
            self.device.recover(PATIENCE)
        same(self.session.states(), self.states)

    def recover(self) -> bool:
        """Whether the states are still there."""
        before = self.now
        with pytest.raises(DeviceFailed):
            self.session.step(frame(0))
        assert self.now == before, "nothing runs before"
        found = self.device.recover(PATIENCE)
        self.recoveries.append((found, self.now - before))
        assert len(self.recoveries) <= 4, "it does not last"
        return found.states

    def fired(self) -> float | None:
        """When the last fault that was planned did."""
        return self.device.faults()[-1][1]


def frame(number: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(number).standard_normal((1, 64)).astype(np.float32)
    return {"x": x}


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    made = Run()
    yield made
    made.session.close()


def away(fault: str) -> float:
    """Seconds for which something is away after a fault."""
    length = fault.partition("+")[2]
    return float(length.rstrip("ms")) / (1000 if length.endswith("ms") else 1) if length else 0.0


def assert_recovered(run: Run, fault: str) -> None:
    kind = fault.partition("@")[0]
    assert run.fired() is not None
    for found, seconds in run.recoveries:
        assert found.kind == KIND[kind]
        assert found.states or found.kind == "cold"
        assert seconds < away(fault) + BOUND[found.kind]


# -- what a device offers ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_bulk_error_and_a_sag_of_the_supply(run):
    """One of each kind of recovery; the rest is slow."""
    assert isinstance(run.device, Recovers)
    assert isinstance(run.device, Timed)
    assert isinstance(run.device, Injects)
    used = run.device._gpu.memory.used
    run.replay("bulk-error@5")
    assert_recovered(run, "bulk-error@5")
    assert len(run.recoveries) == 1
    assert not run.repeated
    run.replay("supply-sag@300us+200ms")
    assert_recovered(run, "supply-sag@300us+200ms")
    assert len(run.recoveries) == 1
    run.replay()
    assert not run.recoveries
    assert run.device._gpu.memory.used == used


@pytest.mark.slow
def test_a_recovery_without_a_failure_changes_nothing(run):
    run.session.reset()
    run.session.step(frame(0))
    assert run.device.recover(PATIENCE) == Recovery("warm", True)
    same(run.session.step(frame(1)), run.expected[1])


@pytest.mark.slow
def test_states_of_steps_whose_answers_have_not_been_asked_for(run):
    """The caller does not know of them."""
    session = run.session.on_device
    run.session.reset()
    run.session.step(frame(0))
    results = [session.submit(frame(number), step=True) for number in (1, 2)]
    run.session.states()
    same(results[0](), run.expected[1])
    assert run.device.recover(PATIENCE) == Recovery("warm", False)
    run.session.reset()
    run.session.step(frame(0))
    results = [session.submit(frame(number), step=True) for number in (1, 2)]
    for number, result in enumerate(results, 1):
        same(result(), run.expected[number])
    assert run.device.recover(PATIENCE) == Recovery("warm", True)
    same(run.session.step(frame(3)), run.expected[3])


@SLOW
def test_states_that_are_lost_are_not_used(run):
    run.session.reset()
    run.session.step(frame(0))
    run.device.inject("card-reset@1us")
    run.device.clock.sleep(0.001)
    with pytest.raises(DeviceFailed):
        run.session.step(frame(1))
    assert run.device.recover(PATIENCE) == Recovery("cold", False)
    for use in (run.session.states, lambda: run.session.step(frame(1))):
        with pytest.raises(DeviceFailed) as caught:
            use()
        assert "reset()" in caught.value.hint
    run.replay()


def test_torments_are_of_each_kind_that_passes(run):
    kinds = [torment.partition("@")[0] for torment in run.device.torments]
    assert set(kinds) == KIND.keys() | {"nak-storm", "host-stop", "link-width", "supply-fault"}
    with pytest.raises(UsageError) as caught:
        run.device.inject("earthquake@3s")
    assert all(kind in caught.value.hint for kind in FORMS)
    before = len(run.device.faults())
    with pytest.raises(UsageError):
        run.device.inject("link-drop@1ms,bulk-error@0")
    assert len(run.device.faults()) == before, "all of them, or none"


# -- every fault at many places ----------------------------------------------------------------------------

LENGTH = {
    "link-drop": "+20ms",
    "unplug": "+400ms",
    "bridge-reset": "",
    "supply-sag": "+300ms",
    "pcie-drop": "+20ms",
    "card-reset": "",
    "nak-storm": "+20ms",
    "host-stop": "+2s",
}


def moments() -> Sequence[int]:
    """Microseconds after which something happens to a replay: the steps take 3 ms."""
    return amount(range(20, 2600, 860), range(10, 3000, 45))


@SLOW
@pytest.mark.parametrize("kind", LENGTH)
def test_at_any_time(run, kind):
    for moment in moments():
        fault = f"{kind}@{moment}us{LENGTH[kind]}"
        run.replay(fault)
        if kind in KIND:
            assert_recovered(run, fault)
            assert run.recoveries or moment > 1000
        else:
            assert not run.recoveries
    run.replay()


@SLOW
@pytest.mark.parametrize("loading", [False, True], ids=["steps", "loading"])
@pytest.mark.parametrize("kind", ["bulk-error", "bulk-stall", "bulk-timeout"])
def test_at_any_transfer(run, kind, loading):
    for number in amount((2, 11), range(1, 26)):
        if loading:
            lose(run)
        run.replay(f"{kind}@{number}")
        assert_recovered(run, f"{kind}@{number}")
        assert run.recoveries
        assert not run.repeated


@SLOW
@pytest.mark.parametrize(
    "kind", ["link-drop", "card-reset", "supply-sag", "bulk-error", "bulk-timeout", "kernel-hang"]
)
def test_with_several_steps_in_flight(run, kind):
    """Those behind the one that is waited for may have been computed, and have left their states."""
    struck = torn = 0
    for place in amount((3, 5, 6, 9), range(1, 25)):
        fault = f"{kind}@{100 * place}us{LENGTH[kind]}" if kind in LENGTH else f"{kind}@{place}"
        run.replay_submitted(fault)
        struck += bool(run.recoveries)
        torn += any(found.kind == "warm" and not found.states for found, _ in run.recoveries)
    assert struck > 1
    assert torn or kind in ("card-reset", "supply-sag"), "of some, later states had taken the place"
    run.replay_submitted("")


@SLOW
@pytest.mark.parametrize("number", amount([2, 20], range(1, 21, 3)))
def test_any_dispatch_hangs(run, number):
    run.replay(f"kernel-hang@{number}")
    assert_recovered(run, "kernel-hang@1")
    assert len(run.recoveries) == 1


def lose(run: Run) -> None:
    """The card has to be loaded again with the next step."""
    run.device.inject("card-reset@1us")
    run.device.clock.sleep(0.01)
    assert run.device.recover(PATIENCE).kind == "cold"


@SLOW
def test_a_card_that_is_reset_while_it_is_loaded(run):
    for moment in amount(range(50, 3000, 1100), range(10, 4000, 100)):
        lose(run)
        run.replay(f"card-reset@{moment}us")
        assert_recovered(run, "card-reset@1")


@SLOW
def test_what_happens_during_a_recovery(run):
    """Also when the card has just been booted: what was on it before is not there."""
    for number in amount(range(10, 90, 23), range(3, 120, 2)):
        run.replay(f"supply-sag@300us+100ms,bulk-error@{number}")
        assert run.recoveries[0][0].kind == "cold"
        assert all(seconds < 1.5 for _, seconds in run.recoveries)
        while run.fired() is None:  # a transfer of that number comes later
            run.replay()


@SLOW
def test_an_attempt_that_fails_does_not_forget_what_is_lost(run):
    """The card is booted, and then too hot; the next attempt finds it as it was left."""
    run.session.reset()
    run.session.step(frame(0))
    run.device.inject("card-reset@1us,heat@1us+30s")
    run.device.clock.sleep(0.001)
    with pytest.raises(TooHot):
        run.device.recover(1.0)
    run.device.clock.sleep(40)
    assert run.device.recover(1.0) == Recovery("cold", False)
    run.replay()


# -- waiting -----------------------------------------------------------------------------------------------


@SLOW
def test_a_hot_card_is_waited_for(run):
    run.session.reset()
    run.device.inject("heat@1ms+3s")
    run.device.clock.sleep(1.5)  # temperatures are measured once a second
    with pytest.raises(TooHot):
        run.session.step(frame(0))
    before = run.now
    assert run.device.recover(PATIENCE) == Recovery("warm", True)
    assert 1 < run.now - before < 3
    run.replay()


@SLOW
@pytest.mark.parametrize(
    ("fault", "after"),
    [("unplug@1ms+10s", "unplug"), ("pcie-drop@1ms+5s", "pcie-drop"), ("supply-sag@1ms+8s", "supply-sag")],
)
def test_what_is_away_for_long_is_waited_for_as_long_as_allowed(run, fault, after):
    run.session.reset()
    run.session.step(frame(0))
    run.device.inject(fault)
    run.device.clock.sleep(0.01)
    with pytest.raises(DeviceFailed):
        run.session.step(frame(1))
    for _ in range(2):
        before = run.now
        with pytest.raises(DeviceFailed):
            run.device.recover(0.5)
        assert run.now - before < 3.5, "a power request takes up to 2 s"
        with pytest.raises(DeviceFailed):
            run.session.step(frame(1))
    found = run.device.recover(12.0)
    assert found.kind == KIND[after]
    assert run.now - before < away(fault) + 4
    if found.states:
        same(run.session.step(frame(1)), run.expected[1])
    run.replay()


@SLOW
def test_a_cable_that_stays_out(tmp_path):
    """The session can be closed."""
    artifact = compiler.compile(network(), "amd-gfx1100")
    device = open_device(artifact.target, f"{DEVICE}&inject=unplug@500ms", OpenOptions())
    session = Session(artifact, opened=device)
    assert isinstance(device, EmulatedCardDevice)
    session.step(frame(0))
    device.clock.sleep(1.0)
    with pytest.raises(DeviceFailed):
        session.step(frame(1))
    with pytest.raises(DeviceFailed):
        device.recover(2.0)
    session.close()
    with pytest.raises(DeviceFailed):
        device.recover(1.0)


@SLOW
def test_recoveries_leave_nothing_behind(run):
    run.replay("bulk-error@3")
    used, files = run.device._gpu.memory.used, len(os.listdir("/proc/self/fd"))
    for number in range(amount(9, 100)):
        run.replay(("bulk-error@4", "link-drop@500us+1ms", "card-reset@400us")[number % 10 % 3])
        assert run.device._gpu.memory.used == used
    assert len(os.listdir("/proc/self/fd")) == files

"""Faults of a GPU behind a bridge, at any transfer of a program: clear errors, and work continues.

By default one transfer of an operation is tested; slow, one in the middle and the last of each;
with `--thorough` all, of long ones eight.
"""

from __future__ import annotations

import itertools
import random
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import usbgpu.amd.gpu
from emulator.usb.wire import Speed
from sdk.errors import DeviceFailed
from tests.amount import amount
from tests.chips import GENERATIONS
from tests.gpu_faults import Desk, Job, Killed, ended_with, misuse_code, works
from usbgpu.amd.compute import KernelFailed
from usbgpu.amd.gpu import Gpu
from usbgpu.amd.recover import CardLost
from usbgpu.transport import Disconnected, WireFailed

OPERATIONS = ("upload", "launch", "download", "prepared", "stream")
"""The operations of a `Job`."""
NOWHERE = 0x1234_5678_9000
RUNTIME = str(Path(usbgpu.amd.gpu.__file__).parents[1])
BOOT = 30
"""Transfers of a boot, at least: until then, what ends the program has to end it."""

SLOW = pytest.mark.slow
EACH_WAY = pytest.mark.parametrize(
    ("chip", "lists"),
    amount([("gfx1100", True), ("gfx1201", False)], [*itertools.product(GENERATIONS, (True, False))]),
)
"""With command lists, and by compatible requests."""
MANY = 8
"""Transfers of an operation that are all tested."""
MOMENTS = range(1, 38, amount(9, 3))
"""Transfers of a boot, and some more."""


pytestmark = pytest.mark.usefixtures("quiet_card")


@pytest.fixture(scope="module")
def desk() -> Desk:
    """A desk whose card works after any test before."""
    return Desk()


@pytest.fixture(scope="module")
def costs(desk) -> dict[str, int]:
    """Transfers that each operation takes, and closing."""
    found = {}
    gpu = desk.open()
    job = Job(gpu)
    for name in OPERATIONS:
        desk.calm()
        job.operations[name]()
        found[name] = desk.transfers
    desk.calm()
    gpu.close()
    return {**found, "close": desk.transfers}


def during(quick: str | None = None, names: Sequence[str] = OPERATIONS) -> pytest.MarkDecorator:
    """The transfer in the middle of an operation, if any, and slow several transfers of all of them."""
    every = [pytest.param(name, True, id=f"{name}-every", marks=SLOW) for name in names]
    quickly = [pytest.param(quick, False, id=quick)] if quick else []
    return pytest.mark.parametrize(("name", "every"), [*quickly, *every])


def numbers(count: int, every: bool) -> Sequence[int]:
    """Of an operation of so many transfers: one in the middle; with the last; all, of long ones eight."""
    if not every:
        return [count // 2 + 1]
    return sorted(amount({(count + 1) // 2, count}, {*range(1, count + 1, 1 + count // MANY), count}))


def moments(count: int, every: bool) -> Sequence[tuple[int, bool]]:
    """Those transfers, and whether something happens before one or while it runs: in turn, or both."""
    if not every:
        return [(*numbers(count, every), True)]
    found = numbers(count, every)
    return amount(
        [*zip(found, itertools.cycle((False, True)), strict=False)],
        [*itertools.product(found, (False, True))],
    )


def job_on(desk: Desk) -> tuple[Gpu, Job]:
    """A program with its work prepared; transfers count from here on."""
    gpu = desk.open()
    job = Job(gpu)
    desk.calm()
    return gpu, job


def opened(desk: Desk, number: int, what: str, *, after: bool = False) -> Callable[[], None]:
    """A program that opens the GPU, and closes it if no fault happens before."""
    return lambda: desk.open(lambda: desk.at(number, getattr(desk, what), after=after)).close()


# -- the cable ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@during("download")
def test_the_cable_is_pulled(desk, costs, name, every):
    """Before a transfer, and while it is on the wire; the card keeps its power, or loses it."""
    for number, middle in moments(costs[name], every):
        gpu, job = job_on(desk)
        if middle:
            desk.in_the_middle(number, desk.unplug_now, 2e-6)
        else:
            desk.at(number, desk.unplug)
        with pytest.raises(Disconnected, match="gone") as caught:
            job.operations[name]()
        assert "check the cable" in caught.value.hint
        with pytest.raises(Disconnected):  # until it is opened again
            gpu.upload(job.source, bytes(4096))
        gpu.close()
        desk.plug(power=not middle)
        works(desk)


# -- the program is killed, or interrupted -----------------------------------------------------------------


@during(names=(*OPERATIONS, "close"))
def test_killed_during_work(desk, costs, name, every):
    for number, after in moments(costs[name], every):
        gpu, job = job_on(desk)
        desk.at(number, desk.kill, after=after)
        with pytest.raises(Killed):
            {**job.operations, "close": gpu.close}[name]()
        gpu.card.bridge.close()  # as the system does
        works(desk)


@during(names=(*OPERATIONS, "close"))
def test_ctrl_c(desk, costs, name, every):
    """The same GPU works afterwards, or in the next program."""
    for number, after in moments(costs[name], every):
        gpu, job = job_on(desk)
        used = gpu.memory.used
        desk.at(number, desk.interrupt, after=after)
        with pytest.raises(KeyboardInterrupt):
            {**job.operations, "close": gpu.close}[name]()
        desk.calm()
        if name != "close":
            assert gpu.memory.used == used
            job.upload()
            job.all()
        gpu.close()
    works(desk)


@SLOW
def test_ctrl_c_during_a_boot():
    for moment in MOMENTS:
        desk = Desk()
        after = bool(moment % 2)  # before a transfer and after one, in turn
        begun = after and moment < 5  # the first ones are requests, which end before anything else
        interrupted = opened(desk, moment, "interrupt", after=after)
        ended_with(interrupted, KeyboardInterrupt, fine=moment > BOOT or begun)
        works(desk)


@pytest.mark.parametrize("name", ["call", pytest.param("begin_upload", marks=SLOW)])
def test_ctrl_c_while_operations_are_collected(desk, monkeypatch, name):
    """The queue counts what has been added; the card never gets it."""
    gpu, job = job_on(desk)
    owner = gpu.compute if name == "call" else gpu.streams
    add = getattr(owner, name)

    def interrupted(*arguments, **named):
        add(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.run_prepared()
    before = gpu.card.bridge.clock.now()
    job.upload()
    job.all()
    assert gpu.card.bridge.clock.now() - before < 1, "no wait for what was never sent"
    gpu.close()


@SLOW
def test_ctrl_c_at_any_line(desk):
    """Of the runtime's code, while the same GPU stays in use."""
    gpu, job = job_on(desk)
    lines = {name: Lines().during(job.operations[name]) for name in OPERATIONS}
    used = gpu.memory.used
    chosen = random.Random(7)
    interrupted = 0
    rounds = amount(12, 40)
    for _ in range(rounds):
        name = chosen.choice(OPERATIONS)
        it = Lines(chosen.randrange(lines[name]))
        problem = ended_with(
            lambda it=it, name=name: it.during(job.operations[name]), KeyboardInterrupt, fine=True
        )
        interrupted += problem is not None
        job.upload()
        job.all()
        assert gpu.memory.used == used, it.where
    assert interrupted > rounds * 5 // 8
    gpu.close()


class Lines:
    """Counts the lines of the runtime that are executed, and sends Ctrl-C at one of them.

    Attributes:
        where: it was.
    """

    def __init__(self, number: int | None = None) -> None:
        self.where = ""
        self._number = number
        self._count = 0

    def during(self, action: Callable[[], object]) -> int:
        """The number of lines."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            action()
        finally:
            sys.settrace(before)
        return self._count

    def _trace(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(RUNTIME):
            return None
        if event == "line":
            self._count += 1
            if self._count == self._number:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self._trace


# -- the card is lost --------------------------------------------------------------------------------------


@during()
@pytest.mark.parametrize("how", ["lose_power", pytest.param("lose_link", marks=SLOW)])
def test_the_card_loses_its_power_or_its_link(desk, costs, name, every, how):
    for number in numbers(costs[name], every and amount(how == "lose_power", True)):
        gpu, job = job_on(desk)
        desk.at(number, getattr(desk, how))
        # What was done before the last transfer, which returns its result, stays done.
        problem = ended_with(job.operations[name], DeviceFailed, fine=number == costs[name])
        assert problem is None or ("link down" in str(problem) and "has power" in problem.hint)
        with pytest.raises(DeviceFailed, match="link down"):
            job.all()
        gpu.close()
        works(desk)


@during()
def test_the_card_resets_itself(desk, costs, name, every):
    """Nothing between notices. What is read then must not be taken for data."""
    for number in numbers(costs[name], every):
        gpu, job = job_on(desk)
        desk.at(number, desk.reset_card)
        problem = ended_with(job.operations[name], CardLost, fine=number == costs[name])
        assert problem is None or problem.hint == "what it held is lost; open it again"
        for use in (job.run_prepared, job.download, lambda gpu=gpu, job=job: gpu.download(job.source, 4)):
            with pytest.raises(CardLost):
                use()
        gpu.close()
        works(desk)


@pytest.mark.slow
@pytest.mark.parametrize("idle", [0.5, 0.0])
def test_a_card_that_was_reset_while_idle_gives_no_data(desk, idle):
    """Little is read through BAR 0, where a card that has been reset answers too."""
    gpu, job = job_on(desk)
    desk.reset_card()
    gpu.card.bridge.clock.sleep(idle)
    with pytest.raises(CardLost):
        gpu.download(job.source, 64)
    before = gpu.card.bridge.clock.now()
    gpu.close()
    assert gpu.card.bridge.clock.now() - before < 0.1, "no wait for what will not come"
    with desk.open() as gpu:
        assert desk.cold
        Job(gpu).download()


# -- kernels that fail -------------------------------------------------------------------------------------


@SLOW
@EACH_WAY
def test_kernels_that_fail(chip, lists):
    """A page fault is reported with address, access and kernel; a kernel that does not end is ended."""
    desk = Desk(chip, lists=lists)
    gpu, job = job_on(desk)
    misuse = gpu.load(misuse_code(chip))
    used = gpu.memory.used
    with pytest.raises(KernelFailed, match=r"store: page fault: write of the page at 0x123456789000"):
        gpu.launch(misuse["store"], 1, NOWHERE, 1)
    job.all()
    flag = gpu.allocate(4096)
    gpu.upload(flag, bytes(4096))
    with pytest.raises(KernelFailed, match=r"spin .* 0\.2 s") as caught:
        gpu.launch(misuse["spin"], 1, flag, timeout=0.2)
    assert caught.value.kernel == "spin"
    flag.free()
    job.all()
    assert gpu.memory.used == used
    gpu.close()
    desk.open().close()
    assert not desk.cold


# -- damage on the wire ------------------------------------------------------------------------------------


@during()
def test_a_transfer_that_a_wire_error_ends(desk, costs, name, every):
    """The result of packets that stay damaged in spite of retries."""
    gpu, job = job_on(desk)
    used = gpu.memory.used
    broken = 0
    places = numbers(costs[name], every)
    for number in places:
        desk.calm()
        desk.break_off(number, 1e-6)
        problem = ended_with(job.operations[name], WireFailed, fine=every)  # a read may be queued ahead
        assert problem is None or "try another cable" in problem.hint
        broken += problem is not None
        desk.calm()
        assert gpu.memory.used == used
        job.upload()
        job.all()
    assert broken >= len(places) // 2 or not every
    gpu.close()


@pytest.mark.slow
@pytest.mark.parametrize("places", [[1], pytest.param([9, 700, -1, -10], marks=SLOW, id="every")])
def test_a_flipped_bit_that_usb_did_not_detect(desk, costs, places):
    """USB checks every packet, so this is beyond the wire: memory of a hub or controller, say.

    Lists and their payload have checksums of their own. Results have a mark and a number at their end alone,
    what fills and leaves the SRAM has nothing: there a bit may change undetected. In any case it is an
    error of the device at most, and the next operations are right.
    """
    whole = len(places) > 1
    gpu, job = job_on(desk)
    hints = set()
    for place in places:
        for name in OPERATIONS if whole else ("launch",):
            for number in numbers(costs[name], not whole or amount(False, True)):
                desk.calm()
                desk.damage(number, place)
                problem = ended_with(job.operations[name], DeviceFailed, AssertionError, fine=True)
                if isinstance(problem, DeviceFailed):
                    hints.add(problem.hint)
                assert not (isinstance(problem, AssertionError) and name in ("upload", "launch"))
                desk.calm()
                job.upload()
                job.all()
    assert not whole or "data was damaged in transit: try another cable or port" in hints
    gpu.close()


# -- other links -------------------------------------------------------------------------------------------


@SLOW
@EACH_WAY
def test_high_speed(chip, lists):
    """USB 2 works, slower; the cable is pulled there too."""
    desk = Desk(chip, speed=Speed.HIGH, lists=lists)
    gpu, job = job_on(desk)
    job.all()
    desk.calm()
    desk.at(2, desk.unplug)
    with pytest.raises(Disconnected):
        job.download()
    gpu.close()
    desk.plug()
    works(desk)


@pytest.fixture(scope="module")
def compatible() -> Desk:
    return Desk(lists=False)


FAULTS = ("unplug", "interrupt", "kill", "lose_power", "reset_card")
WITHOUT_LISTS = ("upload", "launch", "download")


@SLOW
@pytest.mark.parametrize(
    ("what", "name", "places"),
    amount(
        [*zip(FAULTS, itertools.cycle(WITHOUT_LISTS), [(2,), (7,), (1,), (2,), (7,)], strict=False)],
        [(what, name, (1, 2, 7)) for what in FAULTS for name in WITHOUT_LISTS],
    ),
)
def test_without_lists(compatible, what, name, places):
    desk = compatible
    silent = what in ("lose_power", "reset_card")
    for number in places:
        gpu, job = job_on(desk)
        desk.at(number, getattr(desk, what))
        # The outcome of a posted write is not reported: the next operation may notice.
        ended_with(job.operations[name], DeviceFailed, Killed, KeyboardInterrupt, fine=silent)
        if silent:
            with pytest.raises(DeviceFailed):
                job.all()
        if what != "kill":
            desk.calm()
            gpu.close()
        gpu.card.bridge.close()
        if what == "unplug":
            desk.plug()
        works(desk)

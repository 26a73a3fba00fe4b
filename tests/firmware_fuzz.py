"""The firmware against random hosts, devices and faults, guided by the branches that they reach.

A case is a list of random actions (firmware_fuzz_actions.py, firmware_fuzz_cases.py). After every case EP0
must answer GET_DESCRIPTOR in its present state; then come a bus reset, and the property:

    within PATIENCE of virtual time and without a power cycle the device enumerates, answers GET_DESCRIPTOR,
    INFO and E4, reads its own root port (or says why it cannot), and runs two command lists.

Meanwhile the CPU trips no guard (the stack, code that was not loaded, registers that an interrupt changed),
accesses nothing unmodelled unless the host requested it, and does not change unused memory.

Cases that reach a new side of a branch are kept, and varied later. A board runs several cases, so that the
state left by one affects the next; a case that fails is minimised together with those before it. Everything
comes from seeds: a run with the same seeds is the same run. But the case of a seed depends on the cases kept
before it, so a failure is reproduced by running all seeds from the first on:

    python -m tests.firmware_fuzz 100001 101733

runs those, and prints the result, every failure as the actions that `play` takes, and the sides of branches
that were not reached.
"""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from emulator.board import Board
from emulator.coverage import PLACES, Program
from emulator.image_file import CodeImage, load
from emulator.images import build
from emulator.options import Options
from emulator.pcie.endpoint import TestEndpoint
from emulator.usb import standard
from emulator.usb.wire import Setup, Speed, Stall, Transfer
from firmware.asm2464pd.describe import Space
from firmware.protocol import commands, requests
from firmware.protocol.requests import VENDOR_IN, VENDOR_OUT
from sdk.errors import TowlineError
from tests.firmware_fuzz_actions import CODES, IN, OUT, Action, Commands, Operation, Player, SetUp
from tests.firmware_fuzz_cases import FAULTS, RAM_SIZE, fresh, varied

PATIENCE = 5.0
"""Virtual seconds, from the bus reset, within which the property must hold."""
CASES_PER_BOARD = 40
VARIED = 0.6
"""Share of the cases that are variations of one that was kept."""
GUARDS = frozenset(("stack", "erased", "interrupt"))
SPEEDS = (Speed.SUPER_PLUS, Speed.HIGH, Speed.SUPER_PLUS, Speed.SUPER, Speed.SUPER_PLUS)
"""Speeds of the boards, in turn. High Speed takes longest, because of its resets."""
NOBODYS = range(0x5000, 0x6000)
"""XRAM behind the list, which the firmware does not use."""
ASKED = frozenset(("read_memory", "write_memory", "xdata_read", "xdata_write"))
"""Functions of the firmware that access addresses given by the host."""
PLACE = 0x9F00
"""XDATA that nothing changes between a read by E4 and one by a list."""
ROOT_PORT = bytes.fromhex("211b6324")
"""The first dword of its configuration space."""
FAILED = (1, 4, 5, 7)
"""Causes that a configuration read of the root port may fail for: a case may have switched PCIe off."""
_PC = re.compile(r"accessed at PC (0x[0-9a-f]+)")

Case = tuple[Action, ...]
T = TypeVar("T")


class Violated(Exception):
    """The property does not hold."""


class Hang(Violated):
    """The device does not answer correctly, or not in time."""


@dataclass(frozen=True)
class Failure:
    """A case that violates the property.

    Attributes:
        seed: the seed that found it.
        speed: of the board's port.
        reason: what was violated.
        hang: whether the device stopped answering.
        actions: the smallest case found that still violates it.
    """

    seed: int
    speed: Speed
    reason: str
    hang: bool
    actions: Case

    def __str__(self) -> str:
        actions = "".join(f"    {action!r},\n" for action in self.actions)
        return f"seed {self.seed}, {self.speed.value}: {self.reason}\n[\n{actions}]"


@dataclass
class Report:
    """The result of a campaign; it can be added to others.

    Attributes:
        seeds: cases run, one for each seed.
        actions: number of actions in them.
        virtual: virtual seconds on the boards, in cases that did not fail.
        kept: cases that reached a new side of a branch.
        covered: by place, bits as of `Mcs51.coverage`.
        failures: cases that violate the property.
    """

    seeds: int = 0
    actions: int = 0
    virtual: float = 0.0
    kept: int = 0
    covered: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(PLACES, np.uint8))
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Add another campaign."""
        self.seeds += other.seeds
        self.actions += other.actions
        self.virtual += other.virtual
        self.kept += other.kept
        self.covered |= other.covered
        self.failures += other.failures

    @property
    def hangs(self) -> int:
        """Number of cases after which the device did not answer any more."""
        return sum(failure.hang for failure in self.failures)

    @property
    def reached(self) -> int:
        """Sides of branches, taken and not taken, that were reached."""
        return _program().reached(self.covered)

    @property
    def sides(self) -> int:
        """Number of sides of all branches of the code."""
        return 2 * len(_program().branches)

    def missed(self) -> list[str]:
        """Sides that were not reached, by C line."""
        return [str(side) for side in _program().missed(self.covered)]

    def __str__(self) -> str:
        return (
            f"firmware fuzz: {self.seeds} seeds, {self.actions} actions, {self.virtual:.0f} s virtual, "
            f"{self.kept} cases kept; branch sides {self.reached} of {self.sides}; "
            f"hangs {self.hangs}, other violations {len(self.failures) - self.hangs}"
        )


@cache
def _code() -> CodeImage:
    return load(build("firmware").ihx)


@cache
def _program() -> Program:
    return Program.of("firmware")


class Bench:
    """A board that runs one case after another.

    Args:
        speed: of its port.

    Attributes:
        covered: live, as of `Mcs51.coverage`.
    """

    def __init__(self, speed: Speed) -> None:
        endpoint = TestEndpoint(RAM_SIZE)
        self.board = Board(_code(), Options(port=speed, guards=GUARDS, faults=FAULTS, function=endpoint))
        self.covered = np.frombuffer(self.board.machine.cpu.coverage(), np.uint8)
        self.player = Player(self.board)
        self._unasked: list[str] = []
        xram = self.board.machine.bus.planes[Space.XDATA].storage
        self._nobodys = memoryview(xram)[NOBODYS.start : NOBODYS.stop]
        if not self.board.usb.wait_attached(3.0):
            raise Hang("it never attached")
        self.board.usb.enumerate()
        SetUp().run(self.player)

    def run(self, case: Sequence[Action]) -> None:
        """Run a case, and check whether the property holds.

        Raises:
            Violated: it does not.
        """
        with self._watched():
            try:
                for action in case:
                    action.run(self.player)
                self._recover()
            except TowlineError as error:
                raise Violated(f"{type(error).__name__}: {error}") from error
        if self._unasked:
            raise Violated(self._unasked[0])
        if any(self._nobodys):
            raise Violated("XRAM behind the list has been written")

    # -- the property -----------------------------------------------------------------------------------

    def _recover(self) -> None:
        player, usb = self.player, self.board.usb
        player.calm_down()
        player.give_up()
        if not usb.wait_attached(3.0):
            raise Hang("the link does not come up")
        self._ask(standard.get_descriptor(standard.DescriptorType.DEVICE, 0, 18), 18, "before")
        began = usb.clock.now()
        try:
            usb.reset()
        except ConnectionError as error:
            raise Hang("it left the bus") from error
        self._ask(standard.set_address(2), 0)
        self._ask(standard.get_descriptor(standard.DescriptorType.DEVICE, 0, 18), 18)
        self._ask(standard.get_descriptor(standard.DescriptorType.CONFIGURATION, 0, 9), 9)
        self._ask(standard.set_configuration(1), 0)
        info = commands.INFO.unpack(self._ask(Setup(VENDOR_IN, requests.INFO.code, 0, 0, 32), 32))
        if info["api_level"] != commands.API_LEVEL:
            raise Hang(f"INFO says {info}")
        memory = self._ask(Setup(VENDOR_IN, requests.XDATA_READ.code, PLACE, 0, 4), 4)
        root = Setup(VENDOR_OUT, requests.TLP_START.code, 0x0F04, 0, 12)
        self._ask(root, 0, data=bytes(12))
        result = self._ask(Setup(VENDOR_IN, requests.TLP_STATUS.code, 0, 0, 8), 8)
        if result[7] == 0 and result[4] & 0xE0 == 0 and result[:4] != ROOT_PORT:
            raise Violated(f"a configuration read after a reset gave {result.hex(' ')}")
        self._ask(Setup(VENDOR_OUT, requests.LIST.code, 1, 0xFFFF, 0), 0)
        player.sequence = 0xFFFF
        self._list(Operation(CODES["XDATA_READ"], PLACE, amount=4), memory, (0,))
        player.sequence = 0
        self._list(Operation(CODES["CONFIG_READ"]), ROOT_PORT, (0, *FAILED))
        if usb.clock.now() - began > PATIENCE:
            raise Hang(f"it took {usb.clock.now() - began:.1f} s to come back")
        player.now(lambda: setattr(self.board.chip.link, "perst_stuck", False))

    def _ask(self, setup: Setup, size: int, when: str = "after", data: bytes = b"") -> bytes:
        name = f"request {setup.request_type:02x}:{setup.request:02x} {when} a reset"
        try:
            answer = self.board.usb.control(setup, data, timeout=PATIENCE)
        except (Stall, TimeoutError, ConnectionError) as error:
            raise Hang(f"{name}: {type(error).__name__}") from error
        if len(answer) != size:
            raise Hang(f"{name}: {len(answer)} bytes instead of {size}")
        return answer

    def _list(self, operation: Operation, expected: bytes, causes: tuple[int, ...]) -> None:
        """Run a list of one operation: it must end with one of these causes, or succeed with this result."""
        usb = self.board.usb
        data = Commands((operation,)).pack(self.player)
        answer = usb.submit(IN, 1024)
        out = usb.submit(OUT, data)
        for transfer, name in ((out, "a list"), (answer, "its result")):
            self._wait(transfer, f"{name} after a reset")
        given, trailer = bytes(answer.data[:-16]), commands.RESULT_TRAILER.unpack(bytes(answer.data[-16:]))
        cause = trailer["cause"]
        if cause not in causes or trailer["sequence"] != self.player.sequence:
            raise Hang(f"a list after a reset came to {trailer}")
        if given != (b"" if cause else expected):
            raise Violated(f"a list after a reset gave {given.hex(' ')} instead of {expected.hex(' ')}")

    def _wait(self, transfer: Transfer, name: str) -> None:
        try:
            self.board.usb.wait(transfer, timeout=PATIENCE)
        except TimeoutError as error:
            raise Hang(f"{name}: no end") from error

    # -- reports of the emulator ------------------------------------------------------------------------

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Receive the emulator's log, and keep it from the terminal."""
        package, bus = logging.getLogger("emulator"), logging.getLogger("emulator.core.bus")
        handler = _Handler(self._accessed)
        propagate, package.propagate = package.propagate, False
        package.addHandler(null := logging.NullHandler())
        bus.addHandler(handler)
        try:
            yield
        finally:
            bus.removeHandler(handler)
            package.removeHandler(null)
            package.propagate = propagate

    def _accessed(self, message: str) -> None:
        """An unmodelled address was accessed."""
        found = _PC.search(message)
        function = self.board.symbols.function_at(0, int(found[1], 16)) if found else None
        if function is None or function.name not in ASKED:
            self._unasked.append(f"{message} (in {function.name if function else 'no function'})")


class _Handler(logging.Handler):
    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        self._take(record.getMessage())


class Recover:
    """A mark between two cases of a board: the property is checked here."""

    def run(self, player: Player) -> None:
        """Does nothing: `play` recognises the mark."""

    def __repr__(self) -> str:
        return "Recover()"


def play(speed: Speed, actions: Sequence[Action]) -> Violated | None:
    """Run cases, with Recover between them, on a new board. Returns the violation, or None."""
    case: list[Action] = []
    try:
        bench = Bench(speed)
        for action in (*actions, Recover()):
            if isinstance(action, Recover):
                bench.run(case)
                case = []
            else:
                case.append(action)
    except Violated as violation:
        return violation
    return None


def minimised(
    fails: Callable[[tuple[T, ...]], bool], whole: tuple[T, ...], tries: int = 100
) -> tuple[T, ...]:
    """A failing sequence without the parts that the failure does not need, within a number of attempts."""
    size = len(whole)
    while size and tries:
        start = 0
        while start < len(whole) and tries:
            tries -= 1
            shorter = whole[:start] + whole[start + size :]
            if fails(shorter):
                whole = shorter
            else:
                start += size
        size = min(size, len(whole) + 1) // 2
    return whole


def campaign(seeds: range, *, give_up_after: int = 5) -> Report:
    """Run a case for every seed; later ones vary those that reached a new side of a branch.

    Args:
        seeds: of the cases.
        give_up_after: failures after which the campaign ends.
    """
    report = Report()
    kept: list[Case] = []
    bench: Bench | None = None
    history: list[Action] = []
    speed, age, boards = SPEEDS[0], 0, 0
    for seed in seeds:
        random = Random(seed)
        if bench is None or age == CASES_PER_BOARD:
            speed, age, boards = SPEEDS[boards % len(SPEEDS)], 0, boards + 1
            bench, history = Bench(speed), []
        if kept and random.random() < VARIED:
            case = varied(random, random.choice(kept), random.choice(kept))
        else:
            case = fresh(random)
        report.seeds += 1
        report.actions += len(case)
        age += 1
        began = bench.board.usb.clock.now()
        try:
            bench.run(case)
        except Violated as violation:
            whole = (*history, *case)
            report.failures.append(_failure(seed, speed, whole, case, violation))
            bench = None
            if len(report.failures) == give_up_after:
                break
            continue
        report.virtual += bench.board.usb.clock.now() - began
        if np.any(bench.covered & ~report.covered):
            report.covered |= bench.covered
            report.kept += 1
            kept.append(case)
        history += (*case, Recover())
    return report


def _failure(seed: int, speed: Speed, whole: Case, case: Case, violation: Violated) -> Failure:
    """Minimise the case; together with those before it, if it does not fail on a new board."""

    def fails(actions: Case) -> bool:
        return type(play(speed, actions)) is type(violation)

    small = case if fails(case) else whole
    if small is case or fails(whole):
        small = minimised(fails, small)
        for place, action in enumerate(small):
            if isinstance(action, Commands):
                small = _fewer_operations(fails, small, place, action)
    return Failure(seed, speed, str(violation), isinstance(violation, Hang), small)


def _fewer_operations(fails: Callable[[Case], bool], case: Case, place: int, action: Commands) -> Case:
    """Make a list in a failing case shorter."""

    def changed(operations: tuple[Operation, ...]) -> Case:
        return (*case[:place], replace(action, operations=operations), *case[place + 1 :])

    return changed(minimised(lambda operations: fails(changed(operations)), action.operations, 30))


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m tests.firmware_fuzz", description="fuzz the firmware")
    parser.add_argument("first", type=int, help="seed")
    parser.add_argument("last", type=int, help="seed")
    args = parser.parse_args()
    report = campaign(range(args.first, args.last + 1))
    print(report, *report.failures, "not reached:", *report.missed(), sep="\n")
    raise SystemExit(bool(report.failures))


if __name__ == "__main__":
    main()

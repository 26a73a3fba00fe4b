"""A bridge with a card that outlives the programs which use it, and the faults that can happen to them.

    desk = Desk("gfx1100")
    with desk.open() as gpu:
        desk.at(3, desk.unplug)  # instead of the program's third transfer from here on
        ...

Faults happen at a program's transfers, which are counted where they go to the host controller: bulk
transfers when they are submitted, requests, cleared halts, resets.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from emulator.amdgpu.card import AmdCard
from emulator.amdgpu.kernels.build import code_object
from emulator.board import Board
from emulator.core.clock import Event, clocks
from emulator.options import Options
from emulator.pcie.function import Reset
from emulator.usb.pyusb_backend import Backend, BulkTransfer
from emulator.usb.wire import Speed
from sdk import reference
from sdk.graph import Graph, Tensor
from sdk.target import DeviceSession, OpenOptions
from sdk.target import Options as CompileOptions
from usbgpu import bridge as bridges
from usbgpu import transport
from usbgpu.amd import gpu as gpus
from usbgpu.amd.gpu import Gpu
from usbgpu.seam import Read, Write
from usbgpu.target.target import AmdTarget

MIB = 1 << 20
VRAM = 512 * MIB
Action = Callable[[], None]


class Killed(BaseException):
    """The program has been killed: nothing it does reaches the device."""


class _Program(Backend):
    """A program's view of the system: a pyusb backend that counts transfers, and may kill the program."""

    def __init__(self, desk: Desk) -> None:
        super().__init__([desk.board.usb])
        self.emulation = desk.board
        self._desk = desk
        self.alive = True

    def _tick(self) -> None:
        if not self.alive:
            raise Killed
        self._desk.tick()
        if not self.alive:
            raise Killed

    def bulk_submit(self, dev_handle, ep, buffer):
        self._tick()
        damaged = self._desk.damaged(ep, buffer)
        return _Spoiled(self._desk, dev_handle.host, ep, buffer if damaged is None else damaged)

    def bulk_wait(self, transfer, seconds):
        if not self.alive:
            raise Killed
        super().bulk_wait(transfer, seconds)

    def bulk_cancel(self, transfer):
        super().bulk_cancel(transfer)  # the system does it for a program that has died

    def ctrl_transfer(self, *arguments):
        self._tick()
        return super().ctrl_transfer(*arguments)

    def clear_halt(self, dev_handle, ep):
        self._tick()
        super().clear_halt(dev_handle, ep)

    def reset_device(self, dev_handle):
        self._tick()
        super().reset_device(dev_handle)


class _Spoiled(BulkTransfer):
    """A bulk transfer whose data may arrive damaged at the host."""

    def __init__(self, desk: Desk, host, endpoint, buffer) -> None:
        self._place = desk.spoils(endpoint)
        super().__init__(host, endpoint, buffer)
        desk.began(self)

    def break_off(self) -> None:
        """Packets do not get through."""
        self.host.break_off(self.transfer)

    def _over(self, transfer) -> None:
        super()._over(transfer)
        if self._place is not None and self.actual:
            self._buffer[self._place % self.actual] ^= 0x10


class Desk:
    """A board with a card, and the programs that use it one after the other.

    Attributes:
        board: its current one.
        transfers: of the current program, since they were last set to 0.
        lists: whether its programs use command lists.
    """

    def __init__(
        self, chip: str = "gfx1100", vram: int = VRAM, *, speed: Speed = Speed.SUPER_PLUS, lists: bool = True
    ) -> None:
        self.chip = chip
        self.board = Board.of("firmware", Options(gpu=chip, vram=vram, port=speed))
        self.lists = lists
        self.transfers = 0
        self.lines: list[str] = []
        self._due: dict[int, Action] = {}
        self._after: dict[int, Action] = {}
        self._damage: dict[int, int] = {}
        self._program: _Program | None = None
        self._latest: _Spoiled | None = None
        self._scheduled: list[Event] = []

    @property
    def card(self) -> AmdCard:
        return self.board.endpoint  # type: ignore[return-value]

    # -- programs ---------------------------------------------------------------------------------------

    def bridge(self, plan: Action = lambda: None) -> bridges.Bridge:
        """What a new program finds when it opens the device; `plan` sets up its faults."""
        self.calm()
        plan()
        self._program = _Program(self)
        opened = transport.attach(self._program)
        try:
            return bridges.attach(opened, lists=self.lists)
        except BaseException:
            opened.close()
            raise

    def open(self, plan: Action = lambda: None, firmware: Path | None = None) -> Gpu:
        """A new program opens the GPU. Its lines are in `lines`."""
        self.lines = []
        return gpus.attach(self.bridge(plan), firmware, self.lines.append)

    @property
    def cold(self) -> bool:
        """Whether the program has booted the card."""
        return any("firmware in" in line for line in self.lines)

    # -- faults -----------------------------------------------------------------------------------------

    def at(self, number: int, action: Action, *, after: bool = False) -> None:
        """Run an action before a transfer, counted from 1 from now on; or once it has begun."""
        (self._after if after else self._due)[self.transfers + number] = action

    def in_the_middle(self, number: int, action: Action, seconds: float = 10e-6) -> None:
        """Run an action on the board while a transfer is on the wire."""
        clock = self.board.machine.clock

        def begun() -> None:
            self._scheduled.append(clock.after(clocks(seconds), action))

        self.at(number, begun, after=True)

    def damage(self, number: int, place: int) -> None:
        """Invert a bit of a byte of a bulk transfer, counted as in `at`."""
        self._damage[self.transfers + number] = place

    def break_off(self, number: int, seconds: float = 5e-6) -> None:
        """A bulk transfer ends with an error of the wire, once it has begun."""

        def broken() -> None:
            assert self._latest is not None
            self._latest.break_off()

        self.in_the_middle(number, broken, seconds)

    def calm(self) -> None:
        """No more faults happen, and transfers are counted from 0 again."""
        self.transfers = 0
        for plan in (self._due, self._after, self._damage):
            plan.clear()
        while self._scheduled:
            self.board.machine.clock.cancel(self._scheduled.pop())

    def tick(self) -> None:
        """A transfer is about to begin."""
        self.transfers += 1
        self._due.pop(self.transfers, lambda: None)()

    def began(self, transfer: _Spoiled) -> None:
        """A bulk transfer has begun."""
        self._latest = transfer
        self._after.pop(self.transfers, lambda: None)()

    def damaged(self, endpoint: int, buffer: memoryview) -> memoryview | None:
        """The bytes to send instead; None for the same."""
        place = self._damage.get(self.transfers)
        if place is None or endpoint & 0x80:
            return None
        data = bytearray(buffer)
        data[place % len(data)] ^= 0x10
        return memoryview(data)

    def spoils(self, endpoint: int) -> int | None:
        """The index of the received byte to damage; None for none."""
        return self._damage.get(self.transfers) if endpoint & 0x80 else None

    # -- actions ----------------------------------------------------------------------------------------

    def unplug(self) -> None:
        """The cable is pulled."""
        self.board.usb.unplug()

    def unplug_now(self) -> None:
        """The same within the board's time: for `in_the_middle`."""
        self.board.usb.pull()

    def plug(self, *, power: bool = True) -> None:
        """It is plugged in again; without `power` the card had lost its own meanwhile."""
        if not power:
            self.lose_power()
        self.board.usb.plug()

    def lose_link(self) -> None:
        """The PCIe link goes down, and the card is reset by that."""
        self.board.chip.link.drop(None)

    def lose_power(self) -> None:
        """The card has been without power for a moment: it has lost its state, addresses included."""
        self.board.chip.link._down(Reset.PERST)

    def reset_card(self) -> None:
        """The card resets itself, link and addresses stay: no answer for 0.2 s, and its state is lost."""
        self.card.go_dark()

    def kill(self) -> None:
        """SIGKILL."""
        assert self._program is not None
        self._program.alive = False

    @staticmethod
    def interrupt() -> None:
        """Ctrl-C."""
        signal.raise_signal(signal.SIGINT)


@cache
def scan_code(chip: str) -> bytes:
    return code_object("integer", chip)


@cache
def misuse_code(chip: str) -> bytes:
    return code_object("misuse", chip)


def scanned(numbers: np.ndarray) -> bytes:
    """The result of the kernel `scan` for dwords."""
    return np.add.accumulate(numbers.reshape(-1, 256), axis=1, dtype=np.uint32).tobytes()


class Job:
    """Work whose results are known, on a GPU that has just been opened.

    Attributes:
        operations: by name; each checks its results.
    """

    SIZE = 640 << 10
    """Bytes of a transfer: more than the bridge's SRAM holds."""

    def __init__(self, gpu: Gpu, seed: int = 1) -> None:
        self.gpu = gpu
        self.random = random.Random(seed)
        self.module = gpu.load(scan_code(gpu.chip))
        self.source, self.target = gpu.allocate(self.SIZE), gpu.allocate(self.SIZE)
        self.data = self._noise()
        gpu.upload(self.source, self.data)
        self.prepared = gpu.prepare([self._launch(2048)])
        self.operations: dict[str, Action] = {
            "upload": self.upload,
            "launch": self.launch,
            "download": self.download,
            "prepared": self.run_prepared,
            "stream": self.stream,
        }

    def _noise(self) -> bytes:
        return self.random.randbytes(self.SIZE)

    def _numbers(self, size: int) -> np.ndarray:
        return np.frombuffer(self.data[:size], np.uint32)

    def _launch(self, size: int):
        return self.module["scan"].launch(size // 1024, self.source, self.target)

    def upload(self) -> None:
        data = self._noise()
        self.gpu.upload(self.source, data)
        self.data = data

    def launch(self) -> None:
        self.gpu.run([self._launch(4096)])

    def download(self) -> None:
        assert self.gpu.download(self.source, self.SIZE) == self.data

    def run_prepared(self) -> None:
        data = self.random.randbytes(2048)
        (found,) = self.prepared.run([Write(self.source, 0, data)], [Read(self.target, 0, 2048)])
        self.data = data + self.data[2048:]
        assert found == scanned(self._numbers(2048))

    def stream(self) -> None:
        data = self._noise()
        launches = [(self._launch(1024), 1024), (self._launch(4096), self.SIZE)]
        (found,) = self.gpu.stream([Write(self.source, 0, data)], launches, [Read(self.target, 0, 4096)])
        self.data = data
        assert found == scanned(self._numbers(4096))

    def all(self) -> None:
        """Run all operations, and check the results."""
        for operation in self.operations.values():
            operation()
        self.launch()
        assert self.gpu.download(self.target, 4096) == scanned(self._numbers(4096))


def ended_with(
    action: Callable[[], object], *errors: type[BaseException], fine: bool = False
) -> BaseException | None:
    """The one of these errors that an action ended with; None if it had none and that is `fine`."""
    try:
        action()
    except errors as problem:
        return problem
    assert fine, "no error was raised"
    return None


def works(desk: Desk) -> None:
    """A new program opens the card, computes correctly, and closes it so that the next one finds it up."""
    with desk.open() as gpu:
        Job(gpu).all()
    with desk.open() as gpu:
        assert not desk.cold
        job = Job(gpu, 2)
        job.launch()
        job.download()


class Network:
    """A compiled network, and the desk that it runs on.

    Args:
        desk: whose programs run it.
        graph: the network, quantised.
        samples: number of random inputs.

    Attributes:
        inputs: the random inputs.
        gpu: that it was loaded on last.
        used: bytes of its VRAM before.
        hog: bytes of free VRAM that remain for the network; None for all.
    """

    def __init__(self, desk: Desk, graph: Graph, samples: int = 1) -> None:
        self.desk = desk
        self.used = 0
        self.hog: int | None = None
        self.target = AmdTarget(desk.chip, self._open)
        self.program = self.target.compile(graph, CompileOptions())
        random = np.random.default_rng(2)
        self.inputs = [
            {name: _noise(graph.tensor(name), random) for name in graph.inputs} for _ in range(samples)
        ]
        self._expected = [reference.run(graph, one, self.target.arithmetic) for one in self.inputs]
        self._plan: Action = lambda: None

    def _open(self, chip: str, device: str | None, options: OpenOptions) -> Gpu:
        self.gpu = self.desk.open(self._plan)
        if self.hog is not None:
            self.gpu.allocate(self.gpu.memory.free - self.hog)
        self.used = self.gpu.memory.used
        return self.gpu

    def load(self, plan: Action = lambda: None) -> DeviceSession:
        """A new program opens the GPU, as `Desk.open`, and loads the network."""
        self._plan = plan
        return self.target.open(None).load(self.program)

    def run(self, session: DeviceSession, sample: int = 0) -> None:
        """An inference, whose result is checked."""
        found = session.run(self.inputs[sample])
        for name, value in found.items():
            np.testing.assert_array_equal(value, self._expected[sample][name])

    def works(self) -> None:
        """A new program runs it twice, and leaves the card in order."""
        with self.load() as session:
            for _ in range(2):
                self.run(session)
        assert self.is_empty

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is left on the GPU."""
        return self.gpu.memory.used == self.used


def _noise(tensor: Tensor, random: np.random.Generator) -> np.ndarray:
    limits = np.iinfo(tensor.dtype)
    return random.integers(limits.min, limits.max, tensor.shape, tensor.dtype, endpoint=True)

"""`towline run --trace-out`: a timeline of the run.

On an emulated card it is the emulator's, from power-on: USB transfers, the bridge's 8051, DMA and TLPs, the
card's queues and a slice a layer, in virtual time. Elsewhere it is a row of layers, as long as the device's
counters say: of one inference, since the others count the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sdk import chrome_trace
from sdk.artifact import Artifact
from sdk.errors import Unsupported
from sdk.session import Session
from sdk.target import OpenOptions, Profile

if TYPE_CHECKING:
    from emulator.amdgpu.scoreboard import Record
    from usbgpu.seam import Launch


CHECK = "check of what was loaded"
"""What is no layer: the kernel that sums it."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """What a counter means on the time axis: nanoseconds of one, and in words."""

    counter: str
    nanoseconds: float
    words: str


_AXES = (
    _Axis("packets", 1, "the axis counts packets, 1 ns each, not time"),
    _Axis("virtual_us", 1000, "time by the card's model"),
    _Axis("device_us", 1000, "time as the device measured it"),
)


@contextlib.contextmanager
def opened(
    path: str | None, network: Artifact, device: str | None, options: OpenOptions
) -> Iterator[Session]:
    """A session and, if a path is given, a timeline of what it does; whole even if that ends in an error.

    Raises:
        Unsupported: the device counts nothing that could be an axis.
        OutputFailed: the file cannot be written.
        TowlineError: as `Session`.
    """
    if path is not None and has_board(network, device):
        with _everything(path, network, device, options) as session:
            yield session
        return
    with contextlib.ExitStack() as stack:
        session = stack.enter_context(Session(network, device, options))
        if path is not None:
            stack.enter_context(_layers(path, session))
        yield session


def has_board(network: Artifact, device: str | None) -> bool:
    """Whether the network runs on an emulated card, behind an emulated bridge."""
    from usbgpu import emulation
    from usbgpu.transport import DeviceString

    is_card = network.target.startswith("amd-")
    return is_card and DeviceString.parse(device).kind == emulation.KIND


@contextlib.contextmanager
def _everything(path: str, network: Artifact, device: str | None, options: OpenOptions) -> Iterator[Session]:
    from emulator import board, timeline
    from usbgpu.target.session import CardSession

    layers = _Layers()
    ended: BaseException | None = None
    with contextlib.ExitStack() as stack:

        def watch(made: board.Board) -> None:
            stack.enter_context(timeline.recorded(made, path, layers))

        board.watchers.append(watch)
        stack.callback(board.watchers.remove, watch)
        try:
            with Session(network, device, options) as session:
                card = session.on_device
                layers.launches = card.launches if isinstance(card, CardSession) else ()
                yield session
        except BaseException as problem:
            ended = problem
    if ended is not None:
        raise ended


class _Layers:
    """Names dispatches by the layers that a session launches, again and again in the same order.

    Attributes:
        launches: what an inference launches; nothing until the session is open.
    """

    def __init__(self) -> None:
        self.launches: Sequence[Launch] = ()
        self._next = 0

    def __call__(self, record: Record) -> str:
        for ahead in range(len(self.launches)):
            number = (self._next + ahead) % len(self.launches)
            launch = self.launches[number]
            if (launch.code, launch.groups) == (record.dispatch.code, record.dispatch.groups):
                self._next = number + 1
                return launch.name
        return record.name or CHECK


@contextlib.contextmanager
def _layers(path: str, session: Session) -> Iterator[None]:
    profile = session.profile()
    axis = _axis(profile)
    if axis is None:
        raise Unsupported(
            f"{session.artifact.target} counts nothing that a timeline could show",
            hint="targets that count packets or time: hexagon-*, amd-*, adreno-a6xx",
        )
    yield
    with chrome_trace.writing(path, {"axis": axis.words}) as trace:
        process = f"{session.artifact.target}, one inference; {axis.words}"
        track = trace.track(process, "layers")
        start = 0.0
        for layer in profile.layers:
            end = start + axis.nanoseconds * layer.counters[axis.counter]
            args = {"operator": layer.op, "MACs": layer.macs, **layer.counters}
            if layer.note:
                args["where it goes"] = layer.note
            track.slice(round(start), round(end), layer.name, layer.op, args)
            start = end


def _axis(profile: Profile) -> _Axis | None:
    for axis in _AXES:
        if profile.layers and all(axis.counter in layer.counters for layer in profile.layers):
            return axis
    return None

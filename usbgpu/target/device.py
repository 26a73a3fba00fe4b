"""A GPU with the networks that are loaded on it: as a whole it fails, and works again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from sdk.clock import Clock
from sdk.errors import DeviceFailed, TowlineError
from sdk.target import Program, Recovery, Rest
from sdk.telemetry.metrics import Identity, Metrics, Traffic
from usbgpu.seam import Gpu
from usbgpu.target.session import CardSession

if TYPE_CHECKING:  # compiling takes no transport
    from usbgpu.transport.emulation import Emulation

log = logging.getLogger(__name__)


@runtime_checkable
class Renewable(Protocol):
    """What a `Gpu` offers beside if it is at the end of a cable: it can go on after a failure."""

    @property
    def clock(self) -> Clock: ...

    @property
    def emulation(self) -> Emulation | None:
        """What is emulated; None for a real device."""

    def recover(self, seconds: float) -> bool:
        """Make it work again, waiting for a device that is away so long at most; buffers keep their places.

        Returns:
            Whether memory is as it was; else all that was in it is lost, prepared launches included.

        Raises:
            DeviceFailed, DeviceMissing: that is not possible now; it may be tried again.
        """


@runtime_checkable
class Measured(Protocol):
    """What a `Gpu` offers beside if it can report how it is; see `sdk.target.Measures`."""

    @property
    def last_reading(self) -> Metrics | None: ...

    @property
    def traffic(self) -> Traffic: ...

    def reading(self) -> Metrics: ...

    def identity(self) -> Identity: ...


@runtime_checkable
class Restful(Protocol):
    """What a `Gpu` offers beside if its clocks can be lowered; see `sdk.target.Rests`."""

    @property
    def rests(self) -> Rest: ...

    def rest(self, *, off: bool) -> None: ...

    def wake(self) -> None: ...


class CardDevice:
    """A GPU that is up. It is closed with the last session that is loaded on it; or, as a context manager,
    behind the block.

    What fails on the card, or is interrupted, leaves it in an unknown state: nothing runs on it then until
    `recover`.

    Args:
        gpu: it.
        verify: the inputs and outputs of every inference are compared with what is on the card. Code and
            weights always are.
    """

    def __init__(self, gpu: Gpu, verify: bool = False) -> None:
        self._gpu = gpu
        self._verify = verify
        self._measured = gpu if isinstance(gpu, Measured) else None
        self._sessions: list[CardSession] = []
        self._users = 0
        self._closed = False
        self._failed = False

    def load(self, program: Program) -> CardSession:
        """Make room for a program on the card; what it consists of follows with the first inference.

        Raises:
            InvalidArtifact: the program is incomplete, its plan damaged, or it is for another GPU.
            Unsupported: it does not fit the card's memory; with the sizes.
            DeviceFailed: the GPU is closed, or something on it failed.
        """
        self.check()
        self._users += 1
        try:
            session = CardSession(program, self._gpu, self, self._verify)
        except BaseException:
            self._users -= 1
            if not self._users:
                self._abandon()
            raise
        self._sessions.append(session)
        return session

    # -- sdk.target.Recovers ----------------------------------------------------------------------------

    def recover(self, seconds: float) -> Recovery:
        """Make the GPU and the sessions on it work again, whatever has failed; see `sdk.target.Recovers`.

        The bridge is awaited and opened again, then the PCIe link. A card that has not been reset goes on
        with what it has (warm): code, weights and states are still there. Else it is booted (cold), and the
        next inference brings all of it again.

        Raises:
            DeviceFailed, DeviceMissing: that is not possible now; it may be tried again.
        """
        if self._closed:
            raise DeviceFailed("the GPU is closed", hint="open it again")
        if not isinstance(self._gpu, Renewable):
            raise DeviceFailed("this GPU cannot be opened again", hint="close it, and open it again")
        for session in self._sessions:
            session.drop()
        self._failed = True  # until the end
        intact = self._gpu.recover(seconds)
        states = [session.renew(intact=intact) for session in self._sessions]
        self._failed = False
        return Recovery("warm" if intact else "cold", all(states))

    # -- sdk.target.Measures ----------------------------------------------------------------------------

    @property
    def last_reading(self) -> Metrics | None:
        """The last one, of `reading` or before work was submitted; None before the first."""
        return None if self._measured is None else self._measured.last_reading

    @property
    def traffic(self) -> Traffic:
        """Over the cable since the GPU was opened."""
        return Traffic() if self._measured is None else self._measured.traffic

    def reading(self) -> Metrics:
        """Measure now; what was submitted before is computed first. See `sdk.target.Measures`."""
        self.check()
        for session in self._sessions:
            session.land()
        if self._measured is None or self.rests == "off":
            return Metrics()
        self.check()  # what was submitted may have failed
        try:
            return self._measured.reading()
        except BaseException:
            self.fail()
            raise

    def identity(self) -> Identity:
        """Which card it is, and where it is plugged in."""
        self.check()
        if self._measured is None:
            return Identity("", "", self._gpu.chip)
        return self._measured.identity()

    # -- sdk.target.Rests -------------------------------------------------------------------------------

    @property
    def rests(self) -> Rest:
        """See `sdk.target.Rests`."""
        return self._gpu.rests if isinstance(self._gpu, Restful) else "awake"

    def rest(self, *, off: bool = False) -> None:
        """Lower the card's clocks, or switch its slot off, for which states are brought to the host; see
        `sdk.target.Rests`.

        Raises:
            DeviceFailed, DeviceMissing: that failed; the device has to be recovered.
        """
        self.check()
        if not isinstance(self._gpu, Restful):
            raise DeviceFailed("this GPU cannot be put to rest")
        try:
            for session in self._sessions:
                session.settle(states=off)
            self._gpu.rest(off=off)
        except BaseException:
            self._failed = True
            raise

    def wake(self) -> None:
        """Raise the card's clocks; see `sdk.target.Rests`. Raises DeviceFailed, DeviceMissing."""
        self.check()
        if isinstance(self._gpu, Restful):
            self._gpu.wake()

    # -- for its sessions -------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises DeviceFailed: the GPU is closed, or has failed."""
        if self._closed:
            raise DeviceFailed("the GPU is closed", hint="open it again")
        if self._failed:
            raise DeviceFailed(
                "an inference on this GPU failed: what it holds is unknown",
                hint="recover it: recover(seconds); or close it, and load the network again",
            )

    def fail(self) -> None:
        """Something went wrong on the card, or was interrupted."""
        self._failed = True

    def leave(self, session: CardSession) -> None:
        """A session needs it no longer."""
        self._sessions.remove(session)
        self._left()

    # -- inside -----------------------------------------------------------------------------------------

    def _left(self) -> None:
        self._users -= 1
        if not self._users and not self._closed:
            if self._failed:
                self._abandon()
            else:
                self._closed = True
                self._gpu.close()

    def _abandon(self) -> None:
        """Close a GPU while another error is on its way, or after one; that is the one to report."""
        if self._closed:
            return
        self._closed = True
        try:
            self._gpu.close()
        except TowlineError as problem:
            log.warning("the GPU was not closed properly: %s", problem)

    def __enter__(self) -> CardDevice:
        self._users += 1
        return self

    def __exit__(self, *exception: object) -> None:
        self._left()


class EmulatedCardDevice(CardDevice):
    """A GPU behind an emulated bridge: it has virtual time, and faults can be rehearsed on it.

    Args:
        gpu: it.
        clock: its time.
        emulation: what is emulated.
        verify: as of `CardDevice`.

    Attributes:
        clock: its time.
    """

    def __init__(self, gpu: Gpu, clock: Clock, emulation: Emulation, verify: bool = False) -> None:
        super().__init__(gpu, verify)
        self.clock = clock
        self._emulation = emulation

    # -- sdk.target.Injects -----------------------------------------------------------------------------

    @property
    def torments(self) -> Sequence[str]:
        """A fault of each kind that passes, with times from now on."""
        return self._emulation.torments

    def inject(self, fault: str) -> None:
        """Plan a fault; its times and numbers count from now on. Raises UsageError."""
        self._emulation.inject(fault)

    def faults(self) -> Sequence[tuple[str, float | None]]:
        """The faults that were planned, with the time at which each fired, None if it has not."""
        return self._emulation.faults()


def device_of(gpu: Gpu, verify: bool = False) -> CardDevice:
    """The device for a GPU that is up; `verify` as of `CardDevice`."""
    if isinstance(gpu, Renewable) and gpu.emulation is not None:
        return EmulatedCardDevice(gpu, gpu.clock, gpu.emulation, verify)
    return CardDevice(gpu, verify)

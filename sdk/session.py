"""A compiled network, ready to run: the public `Session`."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from sdk import artifact
from sdk.artifact import Artifact
from sdk.classification import Prediction
from sdk.clock import Clock
from sdk.errors import DeviceFailed, InvalidInput, UsageError
from sdk.graph import Array, Tensor
from sdk.held_states import HeldStates
from sdk.host import Host, answered
from sdk.loaded import AWAY, Loaded
from sdk.pictures import Pictures
from sdk.preprocess import Channels
from sdk.target import (
    ComputesInHalf,
    Device,
    DeviceSession,
    HalfArithmetic,
    Injects,
    KeepsStates,
    Linked,
    OpenOptions,
    Profile,
    Recovery,
    Rest,
    Rests,
    Submits,
    TimesItself,
)
from sdk.targets import chosen_device, is_emulated
from sdk.telemetry.metrics import Frames, Identity, Metrics
from sdk.telemetry.publication import Publication

PATIENCE = 10.0
"""Seconds that a device may stay away while an inference is tried again."""

log = logging.getLogger("towline")


class Ticket:
    """An inference that was submitted and not yet collected."""


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _alone(method: Callable[Concatenate[Session, _P], _R]) -> Callable[Concatenate[Session, _P], _R]:
    """A method that uses the device: one thread at a time, the others wait."""

    @functools.wraps(method)
    def waiting(session: Session, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with session._using:
            return method(session, *args, **kwargs)

    return waiting


class Session:
    """An artefact loaded on a device. A context manager.

    Several threads may use it: what needs the device is done one after the other, a `step` from the states of
    whichever was before it. `on_device` is outside of that.

    Args:
        source: an artefact, or the path of a `.tow`. A `.tow` holds code: open only those you trust.
        device: a device string; by default the environment's TOWLINE_DEVICE, and without it "emulated".
        options: what else is chosen when the device is opened: an AMD card's firmware files.
        opened: that device, if it is open already.
        publish: let `towline gpu top` see this session: True, or a name for its socket. A `Stream` that
            publishes does so for its session.

    Attributes:
        artifact: what is loaded.
        device: the device string in use.
        frames: counts inferences as they return.

    Raises:
        InvalidArtifact: the file is damaged, or its parts do not fit each other.
        UsageError: the artefact's target is not installed, or has no such device.
        DeviceMissing, ToolMissing: the device, or a tool it needs, is missing.
        DeviceFailed: the device died while loading.
        NameTaken, OutputFailed: it cannot publish (`sdk.telemetry.publisher`).
    """

    def __init__(
        self,
        source: Artifact | str | os.PathLike[str],
        device: str | None = None,
        options: OpenOptions = OpenOptions(),
        *,
        opened: Device | None = None,
        publish: bool | str = False,
    ) -> None:
        self.artifact = source if isinstance(source, Artifact) else artifact.load(source)
        self.device = chosen_device(self.artifact.target, device)
        self._graph = self.artifact.graph
        self._segments = self.artifact.segments
        artifact.check_programs(self.artifact)
        self._host = Host(self.artifact)
        self._states = HeldStates(self.artifact, self._open)
        self._tickets: dict[Ticket, Callable[[], dict[str, Array]]] = {}
        self._pictures = Pictures(self.artifact)
        self._closed = False
        self._using = threading.RLock()
        self.frames = Frames()
        self._publication: Publication | None = None
        self._loaded = Loaded(self.artifact, self.device, options, opened)
        self._states.adopt(self._loaded.sessions[0])
        try:
            self.reset()
            if publish is not False:
                self._publication = Publication(self, None if publish is True else publish)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Session on {self.device}, {state}, of {self.artifact}>"

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The network's inputs by name, in order; `Tensor` has shape and dtype."""
        return {name: self._graph.tensor(name) for name in self._graph.inputs}

    @property
    def outputs(self) -> dict[str, Tensor]:
        """The network's outputs by name, in order."""
        return {name: self._graph.tensor(name) for name in self._graph.outputs}

    @property
    def emulated(self) -> bool:
        """Whether the device is emulated: its wall times are the emulator's, not the part's."""
        return is_emulated(self.artifact.target, self.device)

    @property
    def device_seconds(self) -> float | None:
        """Of the last `run`, measured by the device itself, without the host's part; None if it does not."""
        found = [one.device_seconds for one in self._loaded.sessions if isinstance(one, TimesItself)]
        told = [seconds for seconds in found if seconds is not None]
        return sum(told) if told else None

    @property
    def half_arithmetic(self) -> HalfArithmetic | None:
        """Whose half arithmetic adds products of float16; None if none does."""
        found = [one.half_arithmetic for one in self._loaded.sessions if isinstance(one, ComputesInHalf)]
        return next((one for one in found if one is not None), None)

    @property
    def quantized_inputs(self) -> dict[str, Tensor]:
        """What may be given in place of float `inputs`: what the host's first part makes of them."""
        return dict(self._host.quantized_inputs)

    @property
    def on_device(self) -> DeviceSession:
        """The target's own session, for what only that target offers.

        Raises:
            UsageError: the session is closed.
            Unsupported: the host computes something in mid-graph, so that there are several.
        """
        sessions = self._open()
        _ = self.artifact.program  # one
        return sessions[0]

    @property
    def clock(self) -> Clock:
        """The device's time, which never goes back: its own if it has that (`timed`), else the wall's."""
        return self._loaded.clock

    @property
    def timed(self) -> bool:
        """Whether `clock` is the device's own, which does not see what the host does meanwhile."""
        return self._loaded.timed

    @property
    def injects(self) -> Injects | None:
        """What rehearses faults on the device; None if that cannot be done on it."""
        return self._loaded.device if isinstance(self._loaded.device, Injects) else None

    # -- figures --------------------------------------------------------------------------------------------

    @_alone
    def metrics(self) -> Metrics:
        """Power, clocks, temperatures, link, traffic and supply, measured now, and the frames so far.

        What was submitted is computed first. A device without a card has the frames alone; what is unknown is
        None.

        Raises:
            DeviceFailed, DeviceMissing: the device does not answer; it has failed then.
            UsageError: the session is closed.
        """
        self._open()
        return self._counted(self._loaded.reading())

    @property
    def last_metrics(self) -> Metrics:
        """The same without measuring: what the device measured last, and the frames so far."""
        return self._counted(self._loaded.last_reading)

    @property
    def measures(self) -> bool:
        """Whether the device can measure anything."""
        return self._loaded.measures is not None

    @_alone
    def identify(self) -> Identity | None:
        """Which device it is; None if it does not say. Takes a few transfers.

        Raises:
            DeviceFailed, DeviceMissing: the device does not answer.
        """
        return None if self._loaded.measures is None else self._loaded.measures.identity()

    def _counted(self, found: Metrics) -> Metrics:
        rate = self.frames.rate(self.clock.now())
        return dataclasses.replace(found, frames=self.frames.count, frames_per_second=rate)

    def _ended(self) -> None:
        """An inference returned its results."""
        self.frames.ended(self.clock.now())
        if self._publication is not None:
            self._publication.look()

    # -- rest -----------------------------------------------------------------------------------------------

    @property
    def rests(self) -> Rest | None:
        """Whether the device is "awake", "idle" or "off"; None if it cannot rest."""
        device = self._loaded.device
        return device.rests if isinstance(device, Rests) else None

    @_alone
    def rest(self, *, off: bool = False) -> None:
        """Have the device use less power until the next inference, which wakes it. States are kept.

        Args:
            off: switch it off, so that waking it takes as long as a cold start; else its clocks are lowered.

        Raises:
            DeviceFailed, DeviceMissing: as `run`.
            UsageError: the device cannot rest, or the session is closed.
        """
        self._open()
        device = self._loaded.device
        if not isinstance(device, Rests):
            raise UsageError(f"the device of {self.artifact.target} cannot rest")
        device.rest(off=off)

    @_alone
    def wake(self, seconds: float = PATIENCE) -> float:
        """Make a device that rests ready for the next inference.

        Args:
            seconds: to wait at most for one that is off.

        Returns:
            Seconds of `clock` that it took.

        Raises:
            DeviceFailed, DeviceMissing: as `recover`.
            UsageError: the session is closed.
        """
        self._open()
        begun = self.clock.now()
        device = self._loaded.device
        if isinstance(device, Rests):
            if device.rests == "off":
                self.recover(seconds)
            else:
                device.wake()
        return self.clock.now() - begun

    @_alone
    def run(self, inputs: Mapping[str, Array], *, retries: int = 0) -> dict[str, Array]:
        """One inference; states are inputs and outputs like the others.

        Args:
            inputs: one array for each of `inputs`, of its shape. A float input takes any floating-point dtype
                (it is rounded to the input's, and must be in its range), an integer input its own alone.
                In place of a float input, the quantised tensors made from it (`quantized_inputs`) may be
                given.
            retries: how often to `recover` a device that fails, for up to PATIENCE, and try again.

        Returns:
            The outputs by name, of their tensors' shapes and dtypes.

        Raises:
            InvalidInput: a name missing or unknown, a wrong shape or dtype, or a value out of range.
            DeviceFailed: the device died or gave an invalid answer.
            UsageError: the session is closed.
        """
        values = self._tried(retries, lambda: self._values(inputs))
        return {name: values[name] for name in self._graph.outputs}

    @_alone
    def observe(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """As `run`, but returns every tensor that the host has, or the device materialises, by name.

        Raises:
            InvalidInput, DeviceFailed, UsageError: as `run`.
        """
        return self._values(inputs, trace=True)

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """As `run`, but returns every tensor that the device materialises, by name.

        Raises:
            InvalidInput, DeviceFailed, UsageError: as `run`.
        """
        values = self.observe(inputs)
        known = {name for program in self.artifact.programs for name in program.graph.tensors}
        host = {node.output for part in self._segments if part.place == "host" for node in part.graph.nodes}
        given = {*self._graph.inputs, *host}
        return {name: array for name, array in values.items() if name in known and name not in given}

    def quantize(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """What the device is given for `inputs`: the first program's inputs by name.

        Raises:
            InvalidInput: as `run`.
        """
        values = self._host.quantize(inputs)
        return {name: values[name] for name in self.artifact.programs[0].graph.inputs}

    # -- states ---------------------------------------------------------------------------------------------

    @_alone
    def step(self, inputs: Mapping[str, Array], *, retries: int = 0) -> dict[str, Array]:
        """One inference from the states that the last one left behind.

        A step that fails leaves the states as they were, so that one that is tried again advances them once.

        Args:
            inputs: as for `run`, without the states.
            retries: as for `run`.

        Returns:
            The outputs by name, without the next states.

        Raises:
            InvalidInput, DeviceFailed: as `run`; or the device came back without the states.
            UsageError: the session is closed.
        """
        outputs = self._step_outputs(inputs)
        values = self._tried(retries, lambda: self._stepped(inputs))
        return {name: values[name] for name in outputs}

    def _stepped(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self._states.require()
        values = self._values({**inputs, **self._states.given}, step=self._states.keeper)
        self._states.stepped(values)
        return values

    def _step_outputs(self, inputs: Mapping[str, Array]) -> list[str]:
        """What a step of these inputs, among which is no state, returns."""
        for name in inputs:
            if name in self._states.names:
                raise InvalidInput(
                    "is a state, which step feeds itself",
                    where=f"input {name}",
                    hint="leave it out, or give all inputs to run; reset() puts states in place",
                )
        next_states = {output for output, _ in self.artifact.states}
        return [name for name in self._graph.outputs if name not in next_states]

    @_alone
    def reset(self, states: Mapping[str, Array] | None = None) -> None:
        """Put states in place: those given, by the name of their input; the others become zero.

        Raises:
            InvalidInput: an unknown name, a wrong shape or dtype.
            DeviceFailed, UsageError: as `run`.
        """
        self._states.reset(states or {})

    @_alone
    def states(self) -> dict[str, Array]:
        """The states as they are now, by the name of their input.

        Raises:
            DeviceFailed, UsageError: as `run`, where the device keeps them.
        """
        return self._states.now()

    # -- several at once ------------------------------------------------------------------------------------

    @_alone
    def submit(self, inputs: Mapping[str, Array], *, step: bool = False) -> Ticket:
        """Begin an inference as `run` does, or with `step` as that does; `collect` gives its outputs.

        A target that runs one inference at a time has finished it when this returns.

        Raises:
            InvalidInput, DeviceFailed, UsageError: as `run`; what happens on the device, `collect` may raise.
        """
        session = self._awake()[0]
        ticket = Ticket()
        if step:
            self._states.require()
        if isinstance(session, Submits) and self.overlaps(step=step):
            self._tickets[ticket] = self._begin(session, inputs, step)
        else:
            outputs = self.step(inputs) if step else self.run(inputs)
            self._tickets[ticket] = lambda: outputs
        return ticket

    def overlaps(self, *, step: bool = False) -> bool:
        """Whether what is submitted waits in the device's queue, so that inferences may overlap; or `step`s.

        They do not if the target runs one at a time, or if the host has a part in mid-graph, or the states.
        """
        sessions = self._open()
        on_device = not step or self._states.keeper is not None or not self._states.names
        return isinstance(sessions[0], Submits) and len(sessions) == 1 and on_device

    def link_seconds(self, *, step: bool = False) -> float | None:
        """Seconds that an inference's inputs and outputs take on the device's link; None without one.

        No rate of frames exceeds its reciprocal.
        """
        found = [one.link_seconds(step=step) for one in self._open() if isinstance(one, Linked)]
        return sum(found) if found else None

    def _begin(
        self, session: Submits, inputs: Mapping[str, Array], step: bool
    ) -> Callable[[], dict[str, Array]]:
        """Everything up to the device's part; what it returns does the rest."""
        outputs = self._step_outputs(inputs) if step else list(self._graph.outputs)
        held = {name for pair in self.artifact.states for name in pair} if step else set()
        values = self._host.given(inputs, held)
        place = next(number for number, one in enumerate(self._segments) if one.place == "device")
        self._host.compute(self._segments[:place], values)
        part = self._segments[place].graph
        given = {name: values[name] for name in part.inputs if name not in held}
        results = session.submit(given, step=step)

        def finish() -> dict[str, Array]:
            found = results()
            if step:
                self._states.stepped(found)
            values.update(answered(part, found, [name for name in part.outputs if name not in held]))
            self._host.compute(self._segments[place + 1 :], values)
            self._ended()
            return {name: values[name] for name in outputs}

        return finish

    @_alone
    def collect(self, ticket: Ticket) -> dict[str, Array]:
        """The outputs of a submitted inference, once.

        Raises:
            UsageError: the ticket is of another session, or was collected.
            InvalidInput, DeviceFailed: as `run`.
        """
        if ticket not in self._tickets:
            raise UsageError("the ticket was collected, dropped by a recovery, or is of another session")
        return self._tickets.pop(ticket)()

    # -- failures -------------------------------------------------------------------------------------------

    @_alone
    def recover(self, seconds: float = PATIENCE) -> Recovery:
        """Make a device that failed usable again, and load the network if need be.

        What was submitted and not collected is dropped.

        Args:
            seconds: of `clock` to wait at most for a device that is away.

        Returns:
            "warm" or "cold", and whether the states are those of the last step whose results were returned.
            If they are not, `step` fails until `reset` has put others in place.

        Raises:
            DeviceFailed, DeviceMissing: that is not possible now; it may be tried again.
            UsageError: the session is closed.
        """
        if self._closed:
            raise UsageError("the session is closed")
        self._tickets.clear()
        return self._states.recovered(self._loaded.recover(seconds), self._loaded.sessions[0])

    def _tried(self, retries: int, infer: Callable[[], dict[str, Array]]) -> dict[str, Array]:
        """What `infer` returns; it is called again on a device that failed and was recovered."""
        for left in range(retries, 0, -1):
            try:
                return infer()
            except AWAY as problem:
                log.warning("%s; recovering, %d left to try", problem, left)
                self.recover()
        return infer()

    @_alone
    def profile(self) -> Profile:
        """The device's counters of one inference, layer by layer.

        Raises:
            DeviceFailed, UsageError: as `run`.
        """
        return self.on_device.profile()

    def prepare(self, picture: Any, *, channels: Channels = "rgb") -> dict[str, Array]:
        """A picture as the network's input, of its dtype, preprocessed as the calibration's were.

        Args:
            picture: the path of a picture file, a PIL.Image, or an array of pixels, uint8 [H, W, 3] or, grey,
                [H, W].
            channels: the order of an array's channels. OpenCV's frames are "bgr".

        Raises:
            InvalidInput: not a picture; or the artefact does not say how pictures become its input.
            UsageError: an unknown `channels`, or one given for something that has an order of its own.
            EnvironmentMissing: Pillow is not installed.
        """
        return self._pictures.prepare(picture, channels)

    def unlike_calibration(self, inputs: Mapping[str, Array]) -> str | None:
        """A warning if a float input is nothing like the calibration's inputs, else None."""
        return self._pictures.unlike_calibration(inputs)

    def classify(self, picture: Any, top: int = 5, *, channels: Channels = "rgb") -> list[Prediction]:
        """The likeliest classes of a picture, best first; a picture unlike the calibration's gets a warning
        in the log.

        Args:
            picture: as for `prepare`: a file, a PIL.Image, or an array of pixels.
            top: how many classes.
            channels: the order of an array's channels; an OpenCV frame has "bgr".

        Raises:
            InvalidInput: as `prepare` and `rank`.
            DeviceFailed: as `run`.
            UsageError: as `prepare`, `run` and `rank`.
        """
        inputs = self.prepare(picture, channels=channels)
        if (warning := self.unlike_calibration(inputs)) is not None:
            array = isinstance(picture, np.ndarray)
            log.warning("%s: %s", f"array {list(picture.shape)}" if array else picture, warning)
        return self.rank(self.run(inputs), top)

    def rank(self, outputs: Mapping[str, Array], top: int = 5) -> list[Prediction]:
        """The likeliest classes in what `run` returned, best first; of equals, the first.

        Raises:
            InvalidInput: `outputs` is not what `run` returns, or the network is not a classifier, which
                has one output with one axis longer than 1.
            UsageError: `top` is not a whole number of 1 or more.
        """
        return self._pictures.rank(outputs, top)

    def close(self) -> None:
        """Release the device. Closing twice does nothing.

        What another thread does on it is waited for, up to PATIENCE; then that fails.
        """
        waited = self._using.acquire(timeout=PATIENCE)
        try:
            if not self._closed:
                self._closed = True
                if self._publication is not None:
                    self._publication.close("the session was closed")
                self._loaded.close()
        finally:
            if waited:
                self._using.release()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _awake(self) -> list[DeviceSession]:
        """The sessions of a device that has power."""
        if self.rests == "off":
            self.wake()
        return self._open()

    def _open(self) -> list[DeviceSession]:
        if self._closed:
            raise UsageError("the session is closed")
        if not self._loaded.sessions:
            raise DeviceFailed("the device is away", hint="Session.recover opens it again")
        return self._loaded.sessions

    def _values(
        self, inputs: Mapping[str, Array], trace: bool = False, step: KeepsStates | None = None
    ) -> dict[str, Array]:
        """What is known after one inference; with `trace` also what is within the device's parts.

        Without the states, if it is a `step` of the session that has them.
        """
        held = {name for pair in (step.kept if step is not None else ()) for name in pair}
        values = self._host.given(inputs, held)
        sessions = iter(self._awake())
        for segment in self._segments:
            if segment.place == "host":
                self._host.compute([segment], values)
                continue
            part, session = segment.graph, next(sessions)
            run = session.trace if trace else session.run if step is None else step.step
            results = run({name: values[name] for name in part.inputs if name not in held})
            outputs = [name for name in part.outputs if name not in held]
            values |= answered(part, results, [*results, *outputs])
        if not trace:
            self._ended()
        return values

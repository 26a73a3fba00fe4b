"""`Stream`: frames in, results out, in order, at a rate; it goes on by itself when the device failed."""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, get_args

from sdk.errors import DeviceFailed, InternalError, InvalidInput, TowlineError, UsageError
from sdk.graph import Array
from sdk.loaded import AWAY
from sdk.session import Session
from sdk.stream.background import Background
from sdk.stream.care import PAUSE, Care
from sdk.stream.chain import Chain, Flight
from sdk.stream.failure import Failure
from sdk.stream.feed import Feed, Frame, as_towline_error
from sdk.stream.pace import CAR, Limits
from sdk.stream.records import (
    Event,
    Inference,
    Notice,
    Recovered,
    Result,
    State,
    Status,
    Times,
)
from sdk.stream.standby import Standby, require_same_interface, timed
from sdk.stream.summary import Summary, Tally
from sdk.stream.telemetry import INTERVAL, Telemetry
from sdk.target import Recovery
from sdk.telemetry.metrics import Metrics
from sdk.telemetry.publication import Publication

Outputs = Mapping[str, Array]
Late = Literal["deliver", "drop"]

DEPTH, DEPTH_AT_RATE = 16, 2
"""Frames in flight by default: without a rate as many as overlap well on a card, with one as many as bridge a
frame that takes longer."""
PATIENCE = 30.0
SLICE = 0.25
"""Seconds that one attempt to recover may wait for a device; in between, frames are looked after."""
SHORTEST = 0.05
"""The same at least, however soon the next frame is due."""

TICK = 1e-9
"""Seconds to sleep at least: less than that may round to no time at all."""
LATE = "the device has not answered in time"

log = logging.getLogger("towline")


class Stream:
    """Runs a network on every frame of a source, at a rate, and survives the device's failures.

        with towline.Session("net.tow", device="usb") as session:
            stream = towline.Stream(session, rate=20, deadline=0.045)
            for result in stream.run(camera):
                print(result.frame, result.status, result.outputs)

    Every frame ends as one of "ok", "late", "fallback" and "dropped", in order. A network with states is
    stepped: its states are reset at the start, and each result says from which frame its states descend. A
    context manager, which ends `run`. One thread takes the results; if another does at the same time, Python
    raises ValueError in it.

    Args:
        session: an open session; it stays the caller's to close.
        rate: frame n is due n / rate seconds behind the first; frames that the device is too slow for are
            dropped, the oldest first. None for as fast as the device answers.
        deadline: seconds from when a frame is due until its answer is late; None for no deadline.
        depth: frames in flight at most; None for 16, or 2 at a rate. One, where inferences do not overlap
            (`Session.overlaps`).
        fallback: an open session of a network with the same inputs and outputs. It answers while the device
            is away, and while it is late; a device without a clock of its own is waited for, and recovered,
            in a thread in the meantime. Its work takes no time on an emulated device's clock.
        late: whether a late answer is delivered, or its frame dropped.
        shadow: whether the fallback runs every frame, so that its states go on. Else it steps in from reset
            ones.
        checkpoint_states: the number of steps after which the states are downloaded: a device that has lost
            them goes on from these, else from reset ones.
        patience: seconds that the device may be away until the stream is "gone".
        wait: whether a stream that is "gone" goes on trying; else it ends, if it has no fallback.
        host_work: seconds by which the host's work on a frame advances an emulated device's clock, which
            stands still in the meantime otherwise.
        limits: of the device's temperatures, if it has sensors: close to them half of the frames are
            computed, at them none, until it has cooled down. The others are answered by the fallback, or
            dropped; without a rate, frames wait instead.
        idle: seconds without a frame after which the device rests, and the next frame wakes it; None for
            never.
        idle_off: whether it is switched off then: waking it is a cold start, which the fallback bridges.
        observe: gets every inference that returned; for checks.
        watch: gets every event as it happens.
        telemetry: seconds of the clock between two readings of the device (power, temperatures, supply), made
            while no frame waits; None for none.
        readings: gets every reading, and those that the device makes by itself before work is submitted.
        publish: let `towline gpu top` see the stream while it runs: True, a name for its socket, or a
            publication that is open already; it ends with `run`.

    Attributes:
        state: as `State`.
        events: the changes of it so far.
        recoveries: those that succeeded.
        reading: the last one; None before the first.

    Raises:
        UsageError: an argument that is out of range, or a fallback of another network.
    """

    def __init__(
        self,
        session: Session,
        rate: float | None = None,
        deadline: float | None = None,
        depth: int | None = None,
        fallback: Session | None = None,
        *,
        late: Late = "deliver",
        shadow: bool = False,
        checkpoint_states: int | None = None,
        patience: float = PATIENCE,
        wait: bool = False,
        host_work: float = 0.0,
        limits: Limits = CAR,
        idle: float | None = None,
        idle_off: bool = False,
        observe: Callable[[Inference], None] | None = None,
        watch: Callable[[Event], None] | None = None,
        telemetry: float | None = INTERVAL,
        readings: Callable[[Metrics], None] | None = None,
        publish: bool | str | Publication = False,
    ) -> None:
        _require_positive("rate", rate, "frames a second")
        _require_positive("deadline", deadline, "seconds")
        _require_positive("depth", depth, "frames")
        _require_positive("checkpoint_states", checkpoint_states, "steps")
        _require_positive("patience", patience, "seconds")
        _require_positive("idle", idle, "seconds")
        if late not in get_args(Late):
            raise UsageError(f"late cannot be {late!r}", hint=f"one of {', '.join(get_args(Late))}")
        if host_work < 0 or (host_work and not session.timed):
            raise UsageError(
                f"host_work is {host_work:g} seconds",
                hint="it is 0 or more, and for emulated devices with a clock of their own: on others the "
                "host's work takes its time",
            )
        if shadow and fallback is None:
            raise UsageError("shadow is for a fallback, and there is none", hint="give a fallback")
        self.state: State = "starting"
        self.events: list[Event] = []
        self.recoveries: list[Recovered] = []
        self._clock = session.clock
        self._chain = Chain("device", session, checkpoint_states, observe)
        self._care = Care(session, limits, idle, idle_off, self._notice)
        self._standby: Standby | None = None
        if fallback is not None:
            require_same_interface(session, fallback)
            self._standby = Standby(Chain("fallback", fallback, observe=observe), shadow)
        self._overlaps = session.overlaps(step=self._chain.has_states)
        usual = DEPTH if rate is None else DEPTH_AT_RATE
        self._depth = (depth or usual) if self._overlaps else 1
        self._rate = rate
        self._deadline = deadline
        self._drops_late = late == "drop"
        self._patience = patience
        self._wait = wait
        self._host_work = host_work
        self._watch = watch
        self._virtual = session.timed
        self._telemetry = Telemetry(session, telemetry, self._measured, self._supply_changed)
        self._readings = readings
        self._publish = publish

        self._running: Callable[[], Generator[Result] | None] = lambda: None
        self._started = False
        self._queue: deque[Frame] = deque()  # those that have not been delivered, in order
        self._failure: Failure | None = None
        # In a thread, while the fallback answers: recovering, and waiting for an answer.
        self._attempt: Background[Recovery] | None = None
        self._landing: Background[tuple[Flight, Outputs]] | None = None
        self._flying: dict[int, Frame] = {}  # what the device has, by number
        self._error: Exception | None = None  # what ends the stream behind the results of earlier frames
        self._healthy_since = float("-inf")
        self._tally = Tally()

    # -- the user's side ------------------------------------------------------------------------------------

    def run(self, frames: Iterable[Any]) -> Iterator[Result]:
        """Take frames when they are due, and yield the result of each, in order.

        Args:
            frames: for each frame its inputs by name, without the states; or one array, of a network with one
                input; or a `sdk.samples.Sample`, whose name errors then mention. An iterable with a true
                attribute `live`, such as a camera, waits for each frame by itself: the rate does not hold
                for it, and a frame is due when it is there.

        Raises:
            InvalidInput: a frame does not fit the network; behind the results of all earlier ones.
            DeviceFailed, DeviceMissing: the device stayed away for longer than the stream's patience, and
                there is no fallback.
            UsageError: the stream runs already, or its session is closed.
        """
        if self._running() is not None:
            raise UsageError("the stream runs already", hint="one source at a time; close() ends the first")
        running = self._run(frames)
        self._running = weakref.ref(running)
        return running

    @property
    def reading(self) -> Metrics | None:
        """The device's last figures; None before the first ones."""
        return self._telemetry.last

    def close(self) -> None:
        """End `run`; frames in flight are dropped."""
        running = self._running()
        if running is not None:
            running.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def summary(self) -> Summary:
        """What it did so far; callable at any time."""
        return Summary(
            **self._tally.figures(len(self._queue), self._rate),
            asked=self._rate,
            virtual=self._virtual,
            host_work=self._host_work,
            depth=self._depth,
            overlaps=self._overlaps,
            events=tuple(self.events),
            recoveries=tuple(self.recoveries),
            readings=self._telemetry.count,
            longest_reading=self._telemetry.longest,
        )

    # -- the machine ----------------------------------------------------------------------------------------

    def _run(self, frames: Iterable[Any]) -> Generator[Result]:
        session = self._chain.session
        held = {name for _, name in session.artifact.states}
        inputs = [name for name in session.inputs if name not in held]
        self._error = None
        self._feed = Feed(frames, inputs, self._tally.taken, self._rate)
        if self._started:
            self._feed.start(self._clock.now())
        elif self._standby is not None:
            self._standby.start()
        try:
            self._telemetry.publish(self._publish, self._about)
            while self._turn():
                self._telemetry.look()
                yield from self._delivered()
            yield from self._delivered()
            if self._error is not None:
                raise self._error
        except GeneratorExit:
            self._land()
            raise
        finally:
            for work in (self._attempt, self._landing):
                if work is not None:
                    work.join()
            self._attempt = self._landing = None
            self._end_all("the stream was ended")
            for _ in self._delivered():  # they are not taken, but they count
                pass
            self._telemetry.end("the stream has ended")
            self._running = lambda: None

    def _turn(self) -> bool:
        """Do the next thing; whether there is more to do."""
        try:
            if self._failure is not None and self._failure.recovery is None:
                return self._turn_away()
            if not self._started:
                self._start()
                return True
            self._admit()
            chain = self._chain
            waiting = next(
                (one for one in self._queue if one.result is None and one.number not in self._flying), None
            )
            overdue = self._telemetry.overdue
            if self._landing is not None:
                self._collect()
            elif overdue and not chain.flying:
                self._telemetry.read()
            elif waiting is not None and not self._drops and (until := self._care.holds()) is not None:
                self._cool(until)
            elif (
                waiting is not None
                and not overdue
                and len(chain.flying) < self._depth
                and not chain.wants_saving
            ):
                self._submit(waiting)
            elif chain.flying:
                self._collect()
            elif chain.wants_saving:
                chain.save()
            elif self._feed.ended:
                return False
            elif self._feed.rate is not None:
                self._wait_until(self._feed.due)
        except AWAY as problem:
            self._failed(problem)
        return True

    def _start(self) -> None:
        try:
            self._chain.start()
            self._telemetry.begin()
        except AWAY:
            if self._failure is None and self._standby is not None:
                self._feed.start(self._clock.now())  # the fallback begins
            raise
        if self._failure is None or self._standby is None:
            self._feed.start(self._clock.now())
        self._started = True
        self._care.worked()

    def _admit(self) -> None:
        """Take the frames that are due."""
        if self._feed.rate is None:
            open_ones = sum(one.result is None for one in self._queue)
            # A frame that its source gives when it is there is not waited for while another is in flight.
            most = 1 if self._feed.live or self._failure is not None else self._depth
            if open_ones < most:
                if self._feed.live and self._failure is None:
                    self._telemetry.use_gap(float("inf"))  # the next frame comes when it comes
                self._take()
            return
        while not self._feed.ended and self._feed.due <= self._clock.now():
            self._take()
            waiting = [one for one in self._queue if one.result is None and one.submitted is None]
            room = max(1, self._depth - len(self._chain.flying))
            self._overflow(waiting[:-room])

    def _overflow(self, frames: Sequence[Frame]) -> None:
        """There is no room for these to wait: the fallback answers them if the device does not."""
        away = self._failure is not None
        if frames and self._standby is not None and (away or self._landing is not None):
            cause = self._failure.cause if self._failure is not None else LATE
            self._stand_in(self._standby, cause, frames[-1].number)
        for one in frames:
            if one.result is None:
                cause = "the device was away" if away else "newer frames were due"
                self._end(one, one.dropped(self._clock.now(), cause))

    def _take(self) -> None:
        if self._feed.ended:
            return
        if self._feed.live and not self._virtual and self._failure is None and not self._chain.flying:
            frame = self._care.beside(lambda: self._feed.take(self._clock))
        else:
            frame = self._feed.take(self._clock)
        if frame is not None:
            self._tally.take(frame.due)
            frame.away = self._failure is not None
            self._queue.append(frame)
            if self._failure is None and self._drops and not self._care.pace.admits():
                self._spare(frame)
        elif self._feed.error is not None:
            self._error = as_towline_error(self._feed.error)

    def _submit(self, frame: Frame) -> None:
        now = self._clock.now()
        if self._drops_late and self._deadline is not None and now - frame.due > self._deadline:
            self._end(frame, frame.dropped(now, "its deadline had passed before it was submitted"))
            return
        if self._host_work:
            self._clock.sleep(self._host_work)
        self._care.wake()
        if not self._overlaps:
            self._shadow(frame)  # behind an inference that does not overlap it would be late, too
            if frame.result is not None:
                return
        frame.submitted = self._clock.now()
        try:
            self._chain.submit(frame.number, frame.inputs)
        except InvalidInput as problem:
            self._refuse(frame, problem)
            return
        self._flying[frame.number] = frame
        self._shadow(frame)

    def _shadow(self, frame: Frame) -> None:
        """Have the fallback's answer ready, if it is wanted."""
        standby = self._standby
        if standby is not None and frame.stand_in is None and (standby.always or self.state == "degraded"):
            frame.stand_in = self._answered(standby, frame, "")

    def _collect(self) -> None:
        frame = self._flying[self._chain.flying[0].frame]
        try:
            landed = self._landed()
        except InvalidInput as problem:
            self._refuse(frame, problem)
            return
        if landed is None:
            return
        flight, outputs = landed
        if flight.frame != frame.number:
            raise InternalError(f"frame {flight.frame} came back in place of frame {frame.number}")
        del self._flying[frame.number]
        now = self._clock.now()
        self._tally.answer(frame.submitted or now, now)
        self._care.worked(frame.submitted)
        self._recovered(frame, now)
        latency = now - frame.due
        missed = self._deadline is not None and latency > self._deadline
        limit = self._deadline or 0.0
        cause = f"it took {1000 * latency:.3f} ms, the deadline is {1000 * limit:g} ms" if missed else ""
        in_time = frame.stand_in is not None and frame.stand_in.times.done - frame.due <= limit
        if missed and in_time and frame.stand_in is not None:
            result = timed(frame.stand_in, frame.stand_in.times.done, cause)
        elif missed and self._drops_late:
            result = frame.dropped(now, cause)
        else:
            status: Status = "late" if missed else "ok"
            times = Times(frame.due, frame.submitted, now)
            result = Result(
                frame.number, frame.name, status, outputs, flight.epoch, flight.descends_from, times, cause
            )
        if frame.result is None:  # else the fallback has answered it
            self._end(frame, result)
        self._judge(frame, missed, cause)

    def _landed(self) -> tuple[Flight, Outputs] | None:
        """The next answer of the device; None if the fallback had to answer before it came."""
        if self._standby is None or self._virtual or self._deadline is None:
            return self._chain.collect()
        self._landing = self._landing or Background(self._chain.collect)
        found = None
        try:
            found = self._landing.wait(max(0.0, self._slice(self._clock.now())))
        finally:
            if self._landing.ended:
                self._landing = None
        if found is None:
            self._stand_in(self._standby, LATE)
        return found

    def _judge(self, frame: Frame, missed: bool, cause: str) -> None:
        """The state behind an answer of the device."""
        if missed and not frame.away and self._standby is not None and frame.due >= self._healthy_since:
            if self.state != "degraded":
                self._become("degraded", cause, frame.number)
        elif self.state != "running":
            how = "the first result" if self.state == "starting" else "the device answers in time"
            self._become("running", how, frame.number)
        if self.state == "running" and self._standby is not None:
            self._standby.rest()

    # -- heat and power -------------------------------------------------------------------------------------

    @property
    def _drops(self) -> bool:
        """Whether frames that heat does not allow are dropped, rather than waited with."""
        return self._feed.rate is not None or self._feed.live

    def _spare(self, frame: Frame) -> None:
        """Do not give a frame to a device that is hot."""
        frame.away = True
        cause = f"the device is hot: {self._care.pace.cause}"
        result = None if self._standby is None else self._answered(self._standby, frame, cause)
        if frame.result is None:
            self._end(frame, result or frame.dropped(self._clock.now(), cause))

    def _cool(self, until: float) -> None:
        """Wait until the device may have the next frame."""
        if self._chain.flying:
            self._collect()
        elif not self._wait and (error := self._care.too_long(self._patience, self._first_open())):
            self._error = error
            self._feed.ended = True
            self._end_all("the device was too hot")
        else:
            self._sleep_until(until)
            if not self._care.pace.share:
                self._telemetry.read()

    def _wait_until(self, moment: float) -> None:
        """Nothing is to be done for frames until then, and nothing is in flight."""
        rest = max(self._care.moment, self._clock.now())
        if rest + PAUSE <= moment and rest <= self._telemetry.due:
            self._sleep_until(rest)
            self._care.act()
        elif not self._telemetry.use_gap(moment):
            self._sleep_until(moment)

    def _measured(self, found: Metrics) -> None:
        self._care.take(found)
        self._telemetry.needed = self._care.pace.share < 1
        if self._readings is not None:
            self._readings(found)

    def _supply_changed(self, cause: str) -> None:
        self._notice("supply", cause)

    # -- failures -------------------------------------------------------------------------------------------

    def _failed(self, problem: TowlineError) -> None:
        """The device failed: what was in flight is to be submitted again."""
        now, cause = self._clock.now(), str(problem)
        self._chain.flying.clear()
        self._flying.clear()
        for one in self._queue:
            one.away = True
        frame = self._first_open()
        if self._failure is None:
            self._failure = Failure(now, frame, cause)
            self._become("recovering", cause, frame)
        else:
            self._failure.recovery = None
            if self.state not in ("gone", "degraded"):
                self._become("recovering", cause, frame)
            self._clock.sleep(SHORTEST)  # one that fails as soon as it is back is not tried without pause
            self._lose_patience(self._failure, problem)

    def _first_open(self) -> int:
        """The first frame that has not ended."""
        return next((one.number for one in self._queue if one.result is None), self._tally.taken)

    def _turn_away(self) -> bool:
        """As `_turn`, while the device is away."""
        failure = self._failure
        if failure is None:
            raise InternalError("the device is not away")
        if self._standby is not None or (self._started and self._feed.rate is not None):
            self._admit()
        gone = self.state == "gone"
        if self._standby is not None:
            self._stand_in(self._standby, failure.cause)
        elif gone and self._feed.rate is not None:
            self._end_all("the device was away")
        if self._feed.ended and all(one.result is not None for one in self._queue):
            return False
        if gone and not self._wait:
            if self._standby is None:
                return False
            if self._feed.rate is not None:
                self._sleep_until(self._feed.due)
            return True
        self._recover(failure)
        return True

    def _recover(self, failure: Failure) -> None:
        """Try to recover, or see whether that has ended."""
        now = self._clock.now()
        beside = self._standby is not None and not self._virtual
        seconds = max(0.0 if beside else SHORTEST, self._slice(now))
        try:
            if self._attempt is None:
                failure.attempts += 1
            if not beside:
                failure.recovered(self._chain.recover(seconds), self._clock.now())
                self._care.worked()
                return
            self._attempt = self._attempt or Background(lambda: self._chain.recover(SLICE))
            found = self._attempt.wait(seconds)
            if found is not None:
                self._attempt = None
                failure.recovered(found, self._clock.now())
                self._care.worked()
        except AWAY as problem:
            self._attempt = None
            self._sleep_until(now + max(seconds, SHORTEST))
            self._lose_patience(failure, problem)

    def _slice(self, now: float) -> float:
        """Seconds until something else is to be done."""
        moments = [now + SLICE]
        if self._standby is not None:
            if self._feed.rate is not None:
                moments.append(self._feed.due)
            moments += [self._moment(self._standby, one) for one in self._queue if one.result is None]
        return min(moments) - now

    def _moment(self, standby: Standby, frame: Frame) -> float:
        """When the fallback has to begin with a frame."""
        return frame.due + (0.0 if self._deadline is None else self._deadline - standby.seconds)

    def _stand_in(self, standby: Standby, cause: str, until: int = -1) -> None:
        """Let the fallback answer what cannot wait any longer, and all up to a frame, in order."""
        for frame in [one for one in self._queue if one.result is None]:
            waits = self.state != "gone" and self._clock.now() < self._moment(standby, frame)
            if waits and frame.number > until:
                return
            result = frame.stand_in or self._answered(standby, frame, cause)
            if frame.result is not None:  # it was refused
                return
            if result is None:
                self._end(frame, frame.dropped(self._clock.now(), "the fallback failed, too"))
                continue
            if self.state in ("running", "recovering"):
                self._become("degraded", f"the fallback answers: {cause}", frame.number)
            self._end(frame, timed(result, result.times.done, cause))

    def _answered(self, standby: Standby, frame: Frame, cause: str) -> Result | None:
        """The fallback's answer; None if it fails."""
        begun = self._clock.now()
        try:
            result = standby.answer(frame, begun)
        except InvalidInput as problem:
            self._refuse(frame, problem)
            return None
        except AWAY as problem:
            log.warning("the fallback failed: %s", problem)
            return None
        if self._host_work:
            self._clock.sleep(self._host_work)
        now = self._clock.now()
        standby.seconds = now - begun
        return timed(result, now, cause)

    def _lose_patience(self, failure: Failure, problem: TowlineError) -> None:
        """Give up a device that has been away for too long."""
        if self._clock.now() - failure.time < self._patience or self.state == "gone":
            return
        away = f"the device was away for {self._patience:g} s: {problem}"
        self._become("gone", away, self._first_open())
        if self._standby is None and not self._wait:
            self._error = DeviceFailed(
                f"{away} (at first: {failure.cause})",
                where=f"frame {failure.frame}",
                hint="check cable and supply; a fallback goes on meanwhile, and wait does not give up",
            )
            self._error.__cause__ = problem
            self._feed.ended = True
            self._end_all("the device was away")

    def _recovered(self, frame: Frame, now: float) -> None:
        """A result arrived: a failure before it is over."""
        failure, self._failure = self._failure, None
        if failure is None or failure.recovery is None:
            return
        found = failure.ended(failure.recovery, now)
        self.recoveries.append(found)
        self._healthy_since = now
        how = f"recovered, {found.kind}" + ("" if found.states else ", the states were lost")
        self._become("running", how, frame.number, found.first)

    # -- ends -----------------------------------------------------------------------------------------------

    def _refuse(self, frame: Frame, problem: InvalidInput) -> None:
        """A frame that does not fit ends the stream; those behind it are dropped."""
        self._error = frame.refused(problem)
        self._feed.ended = True
        now = self._clock.now()
        self._chain.flying = [one for one in self._chain.flying if one.frame < frame.number]
        self._flying = {number: one for number, one in self._flying.items() if number < frame.number}
        for one in self._queue:
            if one.number >= frame.number and one.result is None:
                self._end(one, one.dropped(now, str(problem) if one is frame else "the stream ended"))

    def _end(self, frame: Frame, result: Result) -> None:
        if frame.result is not None:
            raise InternalError(f"frame {frame.number} ended twice")
        frame.result = result
        frame.inputs = {}

    def _end_all(self, cause: str) -> None:
        """Drop what is left."""
        now = self._clock.now()
        for one in self._queue:
            if one.result is None:
                self._end(one, one.dropped(now, cause))
        self._chain.flying.clear()
        self._flying.clear()

    def _land(self) -> None:
        """Collect what is in flight, and discard it: the session can be used again afterwards."""
        if self._landing is not None:
            self._landing.join()
        while self._chain.flying:
            try:
                self._chain.collect()
            except (*AWAY, InvalidInput, UsageError):
                return

    def _delivered(self) -> Iterator[Result]:
        """The results whose turn it is."""
        while self._queue and self._queue[0].result is not None:
            frame = self._queue.popleft()
            result = frame.result
            if result is None:
                raise InternalError("a frame without a result was delivered")
            self._tally.end(result, frame.away or frame.due < self._healthy_since)
            yield result

    def _become(self, state: State, cause: str, frame: int, recovered: float | None = None) -> None:
        self.state = state
        self._report(Event(self._clock.now(), frame, state, cause, recovered))

    def _notice(self, kind: Notice, cause: str, took: float | None = None) -> None:
        self._report(Event(self._clock.now(), self._first_open(), kind, cause, took))

    def _report(self, event: Event) -> None:
        self.events.append(event)
        if self._watch is not None:
            self._watch(event)
        self._telemetry.changed()

    def _about(self) -> dict[str, Any]:
        """What is published beside the device's figures."""
        last = self.events[-1].to_json() if self.events else None
        return {
            "state": self.state,
            "rate": self._rate,
            "frames": self._tally.counts,
            "pending": len(self._queue),
            "event": last,
        }

    def _sleep_until(self, moment: float) -> None:
        left = moment - self._clock.now()
        if left > 0:
            self._clock.sleep(max(left, TICK))


def _require_positive(name: str, value: float | None, unit: str) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise UsageError(f"{name} is {value!r}: it has to be more than 0 {unit}")

"""A device for tests of streams: numpy behind a queue, with a clock of its own and failures on request."""

from __future__ import annotations

import dataclasses
import math

from sdk import reference
from sdk.arena import Blob
from sdk.errors import DeviceFailed, DeviceMissing, InvalidInput, UsageError
from sdk.inputs import check_inputs, zero_point_inputs
from sdk.target import SUPPORTED, LayerProfile, Profile, Program, Recovery


class ManualClock:
    """Time that passes where it is asked to."""

    def __init__(self, now=0.0):
        self.time = now

    def now(self):
        return self.time

    def sleep(self, seconds):
        assert seconds >= 0
        self.time += seconds


NAME = "test-stream"
SEEN = 1e-6
"""Seconds until a failure is seen."""


def register(monkeypatch, directory):
    """Make the target known here, for one test."""
    info = directory / "towline_stream_target-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: towline-stream-target\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[towline.targets]\n{NAME} = tests.stream_device:StreamTarget\n")
    monkeypatch.syspath_prepend(str(directory))


class StreamTarget:
    """Opens devices that do what `script` says."""

    name = NAME
    arithmetic = "f32"
    description = "numpy behind a queue"
    device_kinds = ("emulated", "fragile")
    later_parts = ()
    script = None
    opened = ()

    def supports(self, graph, node):
        return SUPPORTED

    def compile(self, graph, options):
        blob = Blob(64)
        for tensor in graph.tensors.values():
            if tensor.data is not None:
                blob.add(tensor.data)
        plan = {"kept": [list(pair) for pair in options.states]}
        return Program(NAME, graph, plan, blob.weights(), {"network.txt": b"run the reference"})

    def open(self, device, options=None):
        found = (FragileDevice if device == "fragile" else StreamDevice)(StreamTarget.script)
        StreamTarget.opened = (*StreamTarget.opened, found)
        return found

    def devices(self):
        return [("emulated", "numpy behind a queue"), ("fragile", "one that does not recover")]


@dataclasses.dataclass
class Script:
    """What a device does.

    Attributes:
        compute: seconds of an inference.
        warm: seconds of a recovery.
        keeps: whether states survive it.
        failures: number of an inference -> "submit", or "collect" where it fails.
        away: intervals of time in which nothing works, and recovering waits for their end.
        bugs: planted ones: "order", "double", "stale".
    """

    compute: float = 0.01
    warm: float = 0.04
    keeps: bool = True
    failures: dict = dataclasses.field(default_factory=dict)
    away: list = dataclasses.field(default_factory=list)
    bugs: tuple = ()


class FragileDevice:
    """`Timed` and `Injects`; its one session `Submits` and `KeepsStates`."""

    torments = ("glitch", "cold", "away+0.02", "away+0.5", "nothing")

    def __init__(self, script=None, clock=None):
        self.script = script or Script()
        self.clock = clock or ManualClock()
        self.planned = []
        self.recoveries = 0
        self.cold = False  # whether the next recovery loses the states
        self.glitch = None  # the fault that the next inference meets

    def load(self, program):
        self.session = StreamSession(self, program)
        return self.session

    def away(self):
        """The end of the interval that it is in."""
        now = self.clock.now()
        return next((end for start, end in self.script.away if start <= now < end), None)

    def inject(self, fault):
        if fault not in self.torments:
            raise UsageError(f"no fault {fault!r}")
        self.planned.append([fault, None])
        if fault.startswith("away+"):
            now = self.clock.now()
            self.script.away.append((now, now + float(fault.partition("+")[2])))
            self.planned[-1][1] = now
        elif fault != "nothing":
            self.cold = self.cold or fault == "cold"
            self.glitch = self.planned[-1]

    def faults(self):
        return [tuple(one) for one in self.planned]


class StreamDevice(FragileDevice):
    """It `Recovers`, too."""

    def recover(self, seconds):
        self.recoveries += 1
        end = self.clock.now() + seconds
        while (until := self.away()) is not None:
            if until > end:
                self.clock.sleep(end - self.clock.now())
                raise DeviceMissing("the cable is still unplugged")
            self.clock.sleep(until - self.clock.now())
        self.clock.sleep(self.script.warm)
        self.session.flying.clear()
        keeps = self.script.keeps and not self.cold
        self.cold = False
        zeros = zero_point_inputs(self.session.graph)
        lost = {name: zeros[name] + 77 for name in self.session.committed}
        if not keeps:
            self.session.committed = lost
        self.session.ahead = dict(self.session.committed)
        return Recovery("warm" if keeps else "cold", keeps)


class StreamSession:
    kept = ()

    def __init__(self, device, program):
        self.device = device
        self.graph = program.graph
        self.kept = tuple(map(tuple, program.plan["kept"]))
        zeros = zero_point_inputs(self.graph)
        self.committed = {given: zeros[given] for _, given in self.kept}
        self.ahead = dict(self.committed)  # those behind all that was submitted
        self.flying = []
        self.number = 0
        self.free = 0.0

    def _meet(self, where):
        if self.device.away() is not None:
            self.device.clock.sleep(SEEN)
            raise DeviceFailed("the cable was pulled")
        if where == "submit" and self.device.glitch is not None:
            self.device.glitch[1] = self.device.clock.now()
            self.device.clock.sleep(SEEN)
            self.device.glitch = None
            raise DeviceFailed("a transfer failed")

    def run(self, inputs):
        self._meet("run")
        found = reference.run(self.graph, check_inputs(self.graph, inputs))
        self.device.clock.sleep(self.device.script.compute)
        return {name: found[name] for name in self.graph.outputs}

    def submit(self, inputs, *, step=False):
        script, clock = self.device.script, self.device.clock
        held = {given for _, given in self.kept} if step else set()
        names = tuple(name for name in self.graph.inputs if name not in held)
        arrays = check_inputs(dataclasses.replace(self.graph, inputs=names), inputs)
        self._meet("submit")
        number, self.number = self.number, self.number + 1
        fails = script.failures.pop(number, None)
        if fails == "submit":
            raise DeviceFailed("the device did not take it")
        states = self.ahead if step else {}
        if step and "double" in script.bugs and self.device.recoveries == 1:
            self.device.recoveries = 2
            states = self._next(reference.run(self.graph, {**arrays, **states}))
        values = reference.run(self.graph, {**arrays, **states})
        self.free = max(self.free, clock.now()) + script.compute
        entry = {"values": values, "end": self.free}
        self.flying.append(entry)
        if step:
            self.ahead = self._next(values)

        def collect():
            clock.sleep(max(0.0, entry["end"] - clock.now()))
            self._meet("collect")
            if fails == "collect":
                raise DeviceFailed("the device did not answer")
            if fails == "index":
                raise InvalidInput("index 9 is out of range", where="node gather")
            self.flying.remove(entry)
            shown = entry
            if "order" in script.bugs and self.flying:
                shown = self.flying[0]
            if step:
                self.committed = self._next(entry["values"])
            gone = {output for output, _ in self.kept} if step else set()
            return {name: shown["values"][name] for name in self.graph.outputs if name not in gone}

        return collect

    def step(self, inputs):
        return self.submit(inputs, step=True)()

    def link_seconds(self, *, step=False):
        return 0.002 if step else 0.005

    def _next(self, values):
        return {given: values[output] for output, given in self.kept}

    def reset(self, states):
        self.committed = dict(states)
        self.ahead = dict(states)

    def states(self):
        self._meet("states")
        assert not self.flying
        return dict(self.committed)

    def trace(self, inputs):
        return reference.run(self.graph, inputs)

    def profile(self):
        layers = [
            LayerProfile(name, "Conv", 0, {"packets": packets}) for name, packets in (("a", 1), ("b", 3))
        ]
        return Profile(layers, {}, {})

    def close(self):
        assert math.isfinite(self.free)

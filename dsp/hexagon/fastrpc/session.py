"""Networks on a DSP by FastRPC: the session that `--device fastrpc` opens. Not yet run on hardware.

An inference is a function of its inputs: after a lost connection the session starts again, once, and repeats
it.

The network is the shared object in the `.tow`; its methods are described in kernels/skel.c. A `.tow` holds
code: here it runs on the device's DSP, in a process of its own there.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Mapping
from io import BytesIO

import numpy as np

from dsp.hexagon.fastrpc.channel import DspError
from dsp.hexagon.fastrpc.domain import Choice, ConnectionLost, Domain
from dsp.hexagon.fastrpc.mainline import MainlineNode
from dsp.hexagon.fastrpc.memory import DmaBuffer
from dsp.hexagon.fastrpc.system import LinuxCalls, SystemCalls
from dsp.hexagon.plan import HexagonPlan
from dsp.hexagon.tensors import decode_outputs, decode_trace, encode_inputs
from sdk.errors import DeviceFailed, InvalidArtifact
from sdk.graph import Array
from sdk.inputs import zero_point_inputs
from sdk.target import LayerProfile, Profile, Program

ENTRY = "towline_skel_handle_invoke"
LOAD, RUN, TRACE, PROFILE, CONTEXTS, CLOCK = 2, 3, 4, 5, 6, 7
"""Methods of kernels/skel.c."""
REPORT, UNKNOWN = 3, (1 << 64) - 1
"""Words of a report; microseconds that the DSP does not tell."""
TICKS_PER_MICROSECOND = 19.2
"""Of the timer that the DSP reads as C31:30 (evidence: inferred, Snapdragons count with 19.2 MHz)."""

UNTESTED = "not yet run on hardware"

ONE_CONTEXT = "the DSP gives a process one HVX context"
ALONE = f"{ONE_CONTEXT}: inferences take up to twice the time"
SHARED = "another process has an HVX context of the DSP: some inferences are computed by one"
NO_VOTE = "the DSP took no vote for its clock rate (%#x): it may run slowly"
"""Warnings; `towline push` has the same."""

log = logging.getLogger(__name__)


class FastrpcDevice:
    """A Snapdragon's DSP, under a mainline kernel or an Android vendor's.

    Args:
        device: "fastrpc", or with options as `Choice` reads them.
        system: the seam to the kernel; by default that of this machine.

    Raises:
        UsageError: an unknown option.
    """

    def __init__(self, device: str, system: SystemCalls | None = None) -> None:
        self._choice = Choice.parse(device)
        self._system = system

    def load(self, program: Program) -> FastrpcSession:
        """Start a process on the DSP, and load the program into it.

        Raises:
            InvalidArtifact: the program is incomplete, or its plan damaged.
            DeviceMissing: there is no such DSP, no shell for it, or no permission to use it.
            DeviceFailed: it refused the process or the program.
        """
        return FastrpcSession(program, self._choice, self._system or LinuxCalls())


def devices() -> list[tuple[str, str]]:
    """(device string, description) of the DSPs whose nodes exist."""
    found: dict[str, str] = {}
    for path, domain, _, node in Choice().places():
        # Mainline has nodes for each DSP, Android one for all.
        name = f"fastrpc?domain={domain}" if domain == "adsp" else "fastrpc"
        name = name if node is MainlineNode else f"fastrpc?node={node.kind}"
        if os.path.exists(path):
            found.setdefault(name, f"{path}, {UNTESTED}")
    return list(found.items())


class FastrpcSession:
    """A program in a process on the DSP; a context manager.

    Attributes:
        contexts: HVX contexts that computed the last inference.
        device_seconds: of the last `run`, by the DSP's clock, without the way there and back; None before it,
            or if the DSP does not tell (HAP_perf_get_time_us).
    """

    def __init__(self, program: Program, choice: Choice, system: SystemCalls) -> None:
        self._plan = HexagonPlan.of(program)
        self._graph = program.graph
        self._weights, self._choice, self._system = program.weights, choice, system
        code = program.code.get("network.so")
        if code is None:
            raise InvalidArtifact(
                "the program's code for a DSP is incomplete", hint="compile the model again"
            )
        self._schedule = self._plan.schedule(choice.contexts)
        self._reports = self._plan.reports
        self.contexts = 1
        self._shared = False  # contexts with another process, at some time
        self.device_seconds: float | None = None
        self._name, self._code = f"libtowline_{hashlib.sha256(code).hexdigest()[:12]}.so", code
        self._closed = False
        try:
            self._start()
        except ConnectionLost as lost:
            self._start_again(lost)

    def _start(self) -> None:
        with contextlib.ExitStack() as stack:
            files = {self._name: self._code}
            self._domain = stack.enter_context(Domain(self._system, self._choice, files))
            self._handle = self._domain.open(self._name, ENTRY)
            stack.callback(self._release)
            if self._weights.nbytes:
                with self._failing(), self._buffer(self._weights.nbytes) as weights:
                    weights.write(bytes(self._weights))
                    self._domain.channel.call(self._handle, LOAD, "the weights", (), [weights])
            if self._reports:
                self._set_up()
            self._inputs = stack.enter_context(self._buffer(self._bytes(self._graph.inputs)))
            self._outputs = stack.enter_context(self._buffer(self._bytes(self._graph.outputs)))
            self._stack = stack.pop_all()

    def _set_up(self) -> None:
        """Contexts and clock, until the object is closed."""
        call = self._domain.channel.call
        with self._failing():
            (self.contexts,), _ = call(
                self._handle, CONTEXTS, "the contexts", (), [self._schedule], answers=1
            )
            (problem,), _ = call(self._handle, CLOCK, "the clock rate", (1,), answers=1)
        if self._schedule and self.contexts == 1:
            self._alone()
        if problem:
            log.warning(NO_VOTE, problem)

    def _alone(self) -> None:
        """The DSP has no second thread or HVX context."""
        if self._choice.contexts == 2:
            raise DeviceFailed(ONE_CONTEXT, hint="use fastrpc without contexts=2")
        log.warning(ALONE)

    def _start_again(self, lost: ConnectionLost) -> None:
        """A new process in place of the one that was lost."""
        log.warning("%s; connecting once more", lost)
        self._closed = True  # should it fail
        self._start()
        self._closed = False

    # -- sdk.target.DeviceSession -----------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return decode_outputs(self._graph, BytesIO(self._call(RUN, inputs)).read)

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        kept = sum(layer.trace_bytes for layer in self._plan.layers)
        answer = self._call(TRACE, inputs, kept + self._bytes(self._graph.outputs))
        return decode_trace(self._plan, self._graph, BytesIO(answer).read)

    def profile(self) -> Profile:
        """Microseconds by the DSP's own clock. Only the emulator counts packets."""
        layers = self._plan.layers
        answer = self._call(PROFILE, zero_point_inputs(self._graph), 4 * (len(layers) + 1))
        microseconds = np.diff(np.frombuffer(answer, "<u4")) / TICKS_PER_MICROSECOND
        counted = [
            LayerProfile(
                stripes[0].name,
                stripes[0].op,
                sum(stripe.macs for stripe in stripes),
                {"microseconds": float(sum(times))},
            )
            for stripes, times in self._plan.by_node(microseconds)
        ]
        return Profile(counted, {"microseconds": float(microseconds.sum())}, self._plan.memory)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stack.close()

    def __enter__(self) -> FastrpcSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- calls ------------------------------------------------------------------------------------------

    def _call(self, method: int, inputs: Mapping[str, Array], answer_bytes: int = 0) -> bytes:
        """Run one of the skel's methods on the inputs: its answer; by default it has the outputs' size."""
        if self._closed:
            raise DeviceFailed("the session is closed")
        data = encode_inputs(self._graph, inputs)
        try:
            return self._answer(method, data, answer_bytes)
        except ConnectionLost as lost:
            self._stack.close()
            self._start_again(lost)
            return self._answer(method, data, answer_bytes)

    def _answer(self, method: int, data: bytes, answer_bytes: int) -> bytes:
        with contextlib.ExitStack() as stack, self._failing():
            answer = stack.enter_context(self._buffer(answer_bytes)) if answer_bytes else self._outputs
            self._inputs.write(data)
            numbers = REPORT if method == RUN and self._reports else 0
            report, _ = self._domain.channel.call(
                self._handle, method, "an inference", (), [self._inputs], numbers, [answer]
            )
            if report:
                self._keep(report)
            return answer.read()

    def _keep(self, report: list[int]) -> None:
        low, high, contexts = report
        if contexts < self.contexts and not self._shared:
            self._shared = True
            log.warning(SHARED)
        self.contexts = contexts
        microseconds = high << 32 | low
        self.device_seconds = None if microseconds == UNKNOWN else microseconds / 1e6

    def _failing(self) -> contextlib.AbstractContextManager[None]:
        return self._domain.kernel("a call or its memory")

    def _release(self) -> None:
        # The process ends next, with any answer.
        with contextlib.suppress(OSError, DspError):
            self._domain.release(self._handle)

    def _buffer(self, nbytes: int) -> DmaBuffer:
        with self._failing():
            return DmaBuffer(self._domain.node, nbytes)

    def _bytes(self, names: tuple[str, ...]) -> int:
        return sum(self._graph.tensor(name).nbytes for name in names)

"""Networks on a DSP by FastRPC: the session that `--device fastrpc` opens. Not yet run on hardware.

The network is the shared object in the `.tow`; its methods are described in kernels/skel.c. A `.tow` holds
code: here it runs on the device's DSP, in a process of its own there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

import numpy as np

from dsp.hexagon.fastrpc.channel import DspError
from dsp.hexagon.fastrpc.domain import Choice, Domain
from dsp.hexagon.fastrpc.system import DmaBuffer, LinuxCalls, SystemCalls
from dsp.hexagon.plan import HexagonPlan
from dsp.hexagon.tensors import decode_outputs, decode_trace, encode_inputs
from sdk.errors import DeviceFailed, InvalidArtifact
from sdk.graph import Array
from sdk.target import LayerProfile, Profile, Program, zero_point_inputs

ENTRY = "towline_skel_handle_invoke"
LOAD, RUN, TRACE, PROFILE = 2, 3, 4, 5
"""Methods of kernels/skel.c."""
TICKS_PER_MICROSECOND = 19.2
"""Of the timer that the DSP reads as C31:30 (evidence: inferred, Snapdragons count with 19.2 MHz)."""

UNTESTED = "not yet run on hardware"


class FastrpcDevice:
    """A Snapdragon's DSP under a mainline kernel.

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
    found = {domain: node for node, domain, _ in reversed(Choice().nodes()) if Path(node).exists()}
    return [
        ("fastrpc" if domain == "cdsp" else f"fastrpc?domain={domain}", f"{node}, {UNTESTED}")
        for domain, node in sorted(found.items(), reverse=True)
    ]


class FastrpcSession:
    """A program in a process on the DSP; a context manager."""

    def __init__(self, program: Program, choice: Choice, system: SystemCalls) -> None:
        self._plan = HexagonPlan.of(program)
        self._graph = program.graph
        code = program.code.get("network.so")
        if code is None:
            raise InvalidArtifact(
                "the program's code for a DSP is incomplete", hint="compile the model again"
            )
        name = f"libtowline_{hashlib.sha256(code).hexdigest()[:12]}.so"
        with contextlib.ExitStack() as stack:
            self._domain = stack.enter_context(Domain(system, choice, {name: code}))
            self._handle = self._domain.open(name, ENTRY)
            stack.callback(self._release)
            if program.weights.nbytes:
                with self._failing(), self._buffer(program.weights.nbytes) as weights:
                    weights.write(bytes(program.weights))
                    self._domain.channel.call(self._handle, LOAD, "the weights", (), [weights])
            self._inputs = stack.enter_context(self._buffer(self._bytes(self._graph.inputs)))
            self._outputs = stack.enter_context(self._buffer(self._bytes(self._graph.outputs)))
            self._stack = stack.pop_all()
        self._closed = False

    # -- sdk.target.DeviceSession -----------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return decode_outputs(self._graph, BytesIO(self._call(RUN, inputs, self._outputs)).read)

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self._require_open()
        kept = sum(layer.trace_bytes for layer in self._plan.layers)
        with self._buffer(kept + self._bytes(self._graph.outputs)) as buffer:
            answer = self._call(TRACE, inputs, buffer)
        return decode_trace(self._plan, self._graph, BytesIO(answer).read)

    def profile(self) -> Profile:
        """Microseconds by the DSP's own clock. Only the emulator counts packets."""
        self._require_open()
        layers = self._plan.layers
        with self._buffer(4 * (len(layers) + 1)) as buffer:
            answer = self._call(PROFILE, zero_point_inputs(self._graph), buffer)
        microseconds = np.diff(np.frombuffer(answer, "<u4")) / TICKS_PER_MICROSECOND
        counted = [
            LayerProfile(layer.name, layer.op, layer.macs, {"microseconds": float(time)})
            for layer, time in zip(layers, microseconds, strict=True)
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

    def _call(self, method: int, inputs: Mapping[str, Array], answer: DmaBuffer) -> bytes:
        """Run one of the skel's methods on the inputs; returns what it left in `answer`."""
        self._require_open()
        data = encode_inputs(self._graph, inputs)
        with self._failing():
            self._inputs.write(data)
            self._domain.channel.call(self._handle, method, "an inference", (), [self._inputs], 0, [answer])
            return answer.read()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """The kernel's errors become the device's."""
        try:
            yield
        except OSError as error:
            raise DeviceFailed(
                f"the kernel refused a call or its memory: {error.strerror or os.strerror(error.errno or 0)}",
                where=self._domain.name,
                hint="dmesg has the reason; a DSP that crashed restarts by itself",
            ) from error

    def _release(self) -> None:
        # The process ends next, with any answer.
        with contextlib.suppress(OSError, DspError):
            self._domain.release(self._handle)

    def _require_open(self) -> None:
        if self._closed:
            raise DeviceFailed("the session is closed")

    def _buffer(self, nbytes: int) -> DmaBuffer:
        with self._failing():
            return DmaBuffer(self._domain.channel.system, self._domain.channel.descriptor, nbytes)

    def _bytes(self, names: tuple[str, ...]) -> int:
        return sum(self._graph.tensor(name).nbytes for name in names)

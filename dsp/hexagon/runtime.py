"""The emulated DSP: the network's process under qemu-hexagon, driven over its standard streams.

The framing is described in kernels/runtime.c. One process serves any number of inferences, and dies with us,
however we end. A `.tow` holds code: it is executed here, in an
emulator that passes system calls through to this machine.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import numpy as np

from dsp.hexagon.layout import element_index
from dsp.hexagon.plan import LayerPlan, Plan
from sdk import files, toolchain
from sdk.errors import DeviceFailed, InvalidArtifact
from sdk.graph import Array, Tensor
from sdk.passes import flip_sign
from sdk.target import LayerProfile, Profile, Program, check_inputs, zero_point_inputs

COUNTERS = ("packets", "instructions", "hvx_instructions")


class EmulatedDevice:
    """qemu-hexagon on this machine; `qemu_flags` are what it needs for the DSP's version."""

    def __init__(self, qemu_flags: Sequence[str] = ()) -> None:
        self._qemu_flags = qemu_flags

    def load(self, program: Program) -> EmulatedSession:
        """Start the program's process.

        Raises:
            InvalidArtifact: the program is incomplete, or its plan damaged.
            ToolMissing: qemu-hexagon is not there.
            OutputFailed: its files do not fit the temporary directory.
            DeviceFailed: it stopped at once.
        """
        return EmulatedSession(program, self._qemu_flags)


class EmulatedSession:
    """A program in its own qemu-hexagon process; a context manager."""

    def __init__(self, program: Program, qemu_flags: Sequence[str]) -> None:
        self._plan = Plan.from_json(program.plan, program.graph)
        self._graph = program.graph
        self._closed = False
        elf = program.code.get("network.elf")
        if elf is None or len(program.weights) != self._plan.memory["weights"]:
            raise InvalidArtifact(
                "the program's code or weights are incomplete", hint="compile the model again"
            )
        with contextlib.ExitStack() as scratch:
            directory = scratch.enter_context(files.scratch_directory())
            self._stderr = directory / "stderr"
            image = directory / "network.elf"
            files.write(image, elf)
            image.chmod(0o700)  # qemu-user insists
            with self._stderr.open("wb") as stderr:
                self._process = toolchain.start(
                    "qemu-hexagon",
                    [*qemu_flags, image],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                )
            scratch.callback(self._stop)
            self._send(len(program.weights).to_bytes(4, "little") + program.weights)
            self._scratch = scratch.pop_all()

    # -- sdk.target.Session -----------------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._exchange("R", self._encode(inputs)):
            self._counters()
            return self._outputs()

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._trace("T", inputs)

    def _trace(self, command: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._exchange(command, self._encode(inputs)):
            values = {}
            for layer in self._plan.layers:
                values[layer.tensor] = self._decode(layer, self._receive(layer.trace_bytes))
            return values | self._outputs()

    def profile(self) -> Profile:
        data = self._encode(zero_point_inputs(self._graph))
        with self._exchange("R", data):
            total = self._counters()
            self._outputs()
        layers = []
        longer = 0
        with self._exchange("P", data):
            for layer in self._plan.layers:
                whole, first, second = (self._counters() for _ in range(3))
                longer_half = max(first["packets"], second["packets"])
                longer += longer_half
                counters = whole | {"packets_longer_half": longer_half}
                layers.append(LayerProfile(layer.name, layer.op, layer.macs, counters, limit(layer, whole)))
        return Profile(layers, total | {"packets_longer_half": longer}, self._plan.memory)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._scratch.close()

    def _stop(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.kill()  # it has nothing to put in order
        self._process.wait()

    def __enter__(self) -> EmulatedSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- for the contract tests -------------------------------------------------------------------------

    def trace_halves(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """As `trace`, each call in the two halves of two HVX contexts, the second half first."""
        return self._trace("B", inputs)

    def poison(self, byte: int) -> None:
        """Fill the arena and the margins around it with one byte."""
        with self._exchange("F", byte.to_bytes(4, "little")):
            pass

    def dump(self) -> tuple[bytes, bytes, bytes]:
        """The margin before the arena, the arena, the margin behind it."""
        margin, arena = self._plan.memory["margin"], self._plan.memory["arena"]
        with self._exchange("D"):
            return self._receive(margin), self._receive(arena), self._receive(margin)

    # -- framing ----------------------------------------------------------------------------------------

    def _tensor(self, name: str) -> Tensor:
        return self._graph.tensor(name)

    def _encode(self, inputs: Mapping[str, Array]) -> bytes:
        pieces = (
            flip_sign(np.ascontiguousarray(array).view(np.uint8), self._tensor(name)).tobytes()
            for name, array in check_inputs(self._graph, inputs).items()
        )
        return b"".join(pieces)

    def _decode(self, layer: LayerPlan, raw: bytes) -> Array:
        tensor = self._tensor(layer.tensor)
        data = np.frombuffer(raw, np.uint8)
        if layer.geometry is None:
            data = data[: tensor.size]
        else:
            data = data[element_index(tensor.shape, layer.geometry)]
        return flip_sign(data, tensor).view(tensor.dtype).reshape(tensor.shape)

    def _outputs(self) -> dict[str, Array]:
        result = {}
        for name in self._graph.outputs:
            tensor = self._tensor(name)
            data = np.frombuffer(self._receive(tensor.size), np.uint8)
            result[name] = flip_sign(data, tensor).view(tensor.dtype).reshape(tensor.shape)
        return result

    def _counters(self) -> dict[str, int]:
        words = np.frombuffer(self._receive(4 * len(COUNTERS)), "<u4")
        return {name: int(word) for name, word in zip(COUNTERS, words, strict=True)}

    @contextlib.contextmanager
    def _exchange(self, command: str, data: bytes = b"") -> Iterator[None]:
        """Send a command; the block reads all of its answer.

        A session whose exchange was broken off is closed: what is left in the pipe would be taken for the
        next answer.
        """
        if self._closed:
            raise DeviceFailed("the session is closed")
        try:
            self._send(ord(command).to_bytes(4, "little") + data)
            yield
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes) -> None:
        try:
            stream = _stream(self._process.stdin)
            stream.write(data)
            stream.flush()
        except OSError:
            raise self._died() from None

    def _receive(self, size: int) -> bytes:
        data = _stream(self._process.stdout).read(size)
        if len(data) != size:
            raise self._died()
        return data

    def _died(self) -> DeviceFailed:
        """What to say of a process that closed its streams."""
        try:
            status: int | str = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            status = "none: it still runs"
        said = self._stderr.read_bytes().decode(errors="replace").strip()[-500:]
        return DeviceFailed(
            f"qemu-hexagon stopped (exit status {status}){': ' + said if said else ''}",
            hint="compile the model again; if it persists, `towline doctor` shows the versions in use",
        )


def limit(layer: LayerPlan, counters: Mapping[str, int]) -> str:
    """Where a layer's packets go: the costs its plan knows exactly, and what remains."""
    packets = counters["packets"]
    known = {name: cost / packets for name, cost in layer.costs.items()} if packets else {}
    shares = known | {"loads and loops": 1 - sum(known.values())}
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in ranked if share >= 0.005)


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise DeviceFailed("the process has no pipe")
    return stream

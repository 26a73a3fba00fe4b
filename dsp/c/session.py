"""The device of the C target is this machine: the network compiled on loading, and run as a process.

A process rather than a library loaded into ours: its faults are errors here rather than crashes, each session
has its own arena, and it can always be ended. Framing: kernels/host.c.

A `.tow` holds code: it is compiled and executed here, with the rights of the user.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dsp.c.lowering import KERNELS, traffic
from dsp.c.plan import SOURCE, CPlan
from sdk import cache, settings, toolchain
from sdk.child import Child
from sdk.errors import BuildFailed, DeviceFailed, OutputFailed
from sdk.graph import Array, Graph, macs
from sdk.passes import from_unsigned, to_unsigned
from sdk.target import LayerProfile, Profile, Program, check_inputs, zero_point_inputs

FLAGS = ("-std=c11", "-O2", "-ffp-contract=off")

MARGIN = 128
"""Bytes on either side of the arena, for tests to find untouched."""


class HostDevice:
    """Where networks are compiled on loading, and run."""

    def load(self, program: Program) -> HostSession:
        """Compile the program, if it is not in the cache, and start its process.

        Raises:
            InvalidArtifact: the program is incomplete, or its plan damaged.
            ToolMissing, BuildFailed: there is no compiler, or it refused the program.
            OutputFailed: the cache cannot be written.
            DeviceFailed: its process stopped at once.
        """
        return HostSession(program)


class HostSession:
    """A program in a process of its own; a context manager."""

    def __init__(self, program: Program) -> None:
        self._plan = CPlan.of(program)
        self._graph = program.graph
        self._image = _built(program.code[SOURCE] + _host(self._plan, self._graph))
        process = toolchain.launch(
            [self._image], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._child = Child(process, self._died)
        with self._child.exchange(program.weights or b"\0"):
            pass

    # -- sdk.target.DeviceSession -----------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._child.exchange(b"R" + self._encode(inputs)):
            return {name: self._receive(name) for name in self._graph.outputs}

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._child.exchange(b"T" + self._encode(inputs)):
            return {node.output: self._receive(node.output) for node in self._graph.nodes}

    def profile(self) -> Profile:
        self.run(zero_point_inputs(self._graph))
        graph = self._graph
        moved = [traffic(graph, node) for node in graph.nodes]
        layers = [
            LayerProfile(node.name, node.op, macs(graph, node), {"bytes": nbytes})
            for node, nbytes in zip(graph.nodes, moved, strict=True)
        ]
        return Profile(layers, {"bytes": sum(moved)}, self._plan.memory)

    def close(self) -> None:
        self._child.close()

    def __enter__(self) -> HostSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- for the contract tests -------------------------------------------------------------------------

    def poison(self, byte: int) -> None:
        """Fill the arena and the margins around it with one byte."""
        with self._child.exchange(b"F" + bytes([byte])):
            pass

    def dump(self) -> tuple[bytes, bytes, bytes]:
        """The margin before the arena, the arena, the margin behind it."""
        with self._child.exchange(b"D"):
            receive = self._child.receive
            return receive(MARGIN), receive(self._plan.memory["arena"]), receive(MARGIN)

    # -- framing ----------------------------------------------------------------------------------------

    def _encode(self, inputs: Mapping[str, Array]) -> bytes:
        given = check_inputs(self._graph, inputs)
        return b"".join(to_unsigned(array, self._graph.tensor(name)) for name, array in given.items())

    def _receive(self, name: str) -> Array:
        tensor = self._graph.tensor(name)
        return from_unsigned(self._child.receive(tensor.nbytes), tensor)

    def _died(self, status: str) -> DeviceFailed:
        return DeviceFailed(
            f"the network's process stopped (exit status {status})",
            hint=f"compile the model again, and remove {self._image}: it may be damaged",
        )


def _host(plan: CPlan, graph: Graph) -> bytes:
    """What makes a process of a network: its sizes, and kernels/host.c."""
    sizes = {
        "MARGIN": MARGIN,
        "ARENA_BYTES": plan.memory["arena"],
        "WEIGHTS_BYTES": plan.memory["weights"] or 1,
        "INPUTS": len(graph.inputs),
        "OUTPUTS": len(graph.outputs),
        "STEPS": len(graph.nodes),
    }
    spans = {
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "steps": [node.output for node in graph.nodes],
    }
    lines = ["enum { " + ", ".join(f"{name} = {value}" for name, value in sizes.items()) + " };"]
    lines.append("struct span {\n  uint32_t offset, bytes;\n};")
    for name, tensors in spans.items():
        pairs = ", ".join(f"{{{plan.places[tensor]}, {graph.tensor(tensor).nbytes}}}" for tensor in tensors)
        lines.append(f"static const struct span {name}[] = {{{pairs}}};")
    return "\n".join([*lines, (KERNELS / "host.c").read_text(encoding="ascii")]).encode()


def _built(source: bytes) -> Path:
    """The program of a C source, in the cache; compiled if it is not there."""
    facts: list[str | bytes] = [
        platform.machine(),
        str(toolchain.find("cc")),
        toolchain.version("cc"),
        *FLAGS,
        source,
    ]
    folder = cache.directory("c")
    image = folder / f"network-{cache.digest(facts)}"
    if not image.exists():
        # The compiler itself writes it. If this process had it open for writing, a child started meanwhile
        # would inherit the handle, and the system refuses to execute a file that is open for writing.
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
                built = Path(scratch, "network")
                toolchain.run("cc", [*FLAGS, "-x", "c", "-", "-o", built], input=source)
                if not built.exists():
                    raise BuildFailed("it wrote nothing", where="cc")
                os.replace(built, image)
        except OSError as problem:
            raise OutputFailed(
                f"the cache cannot be written: {problem.strerror}",
                where=str(folder),
                hint=f"set {settings.CACHE.name} to a directory that can be written",
            ) from problem
    return image

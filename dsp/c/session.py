"""The device of the C target is this machine: the network compiled on loading, and run as a process.

A process rather than a library loaded into ours: its faults are errors here rather than crashes, each session
has its own arena, and it can always be ended. Framing: kernels/host.c.

A `.tow` holds code: it is compiled and executed here, with the rights of the user.
"""

from __future__ import annotations

import platform
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dsp.c.context import amalgamate
from dsp.c.lowering import traffic
from dsp.c.plan import SOURCE, CPlan
from sdk import cache, dtypes, toolchain
from sdk.child import Child
from sdk.errors import BuildFailed, DeviceFailed, InvalidInput
from sdk.files import no_room, scratch_directory
from sdk.graph import Array, Graph, Tensor, macs
from sdk.inputs import check_inputs
from sdk.passes import from_unsigned, to_unsigned
from sdk.target import LayerProfile, Profile, Program

FLAGS = ("-std=c11", "-O2", "-ffp-contract=off")

POSIX = b"#define _POSIX_C_SOURCE 200809L /* mmap */\n"

IMAGE = "network"
"""The program's name in the cache."""

NO_MEMORY = "3"
"""Exit status of a process that could not allocate its arena or map its weights."""

MARGIN = 128
"""Bytes on either side of the arena, for tests to find untouched."""


class HostDevice:
    """Where networks are compiled on loading, and run."""

    def load(self, program: Program) -> HostSession:
        """Compile the program, if it is not in the cache, and start its process.

        Raises:
            InvalidArtifact: the program is incomplete, or its plan damaged.
            ToolMissing, BuildFailed: there is no compiler, or it refused the program.
            OutputFailed: the cache, or a temporary file for the weights, cannot be written.
            DeviceFailed: its process stopped at once, or there is not enough memory.
        """
        return HostSession(program)


class HostSession:
    """A program in a process of its own; a context manager."""

    def __init__(self, program: Program) -> None:
        self._plan = CPlan.of(program)
        self._graph = program.graph
        self._image = _built(POSIX + program.code[SOURCE] + _host(self._plan, self._graph))
        if program.weights.file is not None:
            mapped, offset = program.weights.file
            self._child = self._start(mapped.number, offset)
            return
        try:
            with tempfile.TemporaryFile() as file:
                file.writelines(program.weights)
                file.flush()
                self._child = self._start(file.fileno(), 0)
        except OSError as problem:
            raise no_room(problem) from problem

    def _start(self, weights: int, offset: int) -> Child:
        """The process, once it has mapped its weights: the bytes of an open file from `offset` on."""
        process = toolchain.launch(
            [self._image, f"/dev/fd/{weights}", str(offset)],
            pass_fds=[weights],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        child = Child(process, self._died)
        with child.exchange(b""):
            child.receive(1)
        return child

    # -- sdk.target.DeviceSession -----------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._child.exchange(b"R" + encode_inputs(self._graph, inputs)):
            failure = self._receive_failure()
            outputs = {} if failure else {name: self._receive(name) for name in self._graph.outputs}
        if failure:
            raise failure
        return outputs

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        traced, failure = {}, None
        with self._child.exchange(b"T" + encode_inputs(self._graph, inputs)):
            for node in self._graph.nodes:
                if failure := self._receive_failure():
                    break
                traced[node.output] = self._receive(node.output)
        if failure:
            raise failure
        return traced

    def profile(self) -> Profile:
        tensors = (self._graph.tensor(name) for name in self._graph.inputs)
        self.run({tensor.name: _zeros(tensor) for tensor in tensors})
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

    def _receive(self, name: str) -> Array:
        tensor = self._graph.tensor(name)
        return decode(self._child.receive(tensor.nbytes), tensor)

    def _receive_failure(self) -> InvalidInput | None:
        """Why a run ended before its end."""
        node, index, limit = struct.unpack("<iqq", self._child.receive(20))
        return None if node < 0 else out_of_range(self._graph.nodes[node].name, index, limit)

    def _died(self, status: str) -> DeviceFailed:
        if status == NO_MEMORY:
            return DeviceFailed(
                f"no memory for {self._plan.memory['arena']:,} bytes of activations"
                f" and {self._plan.memory['weights']:,} of weights",
                hint="free memory, or run the network on a machine with more",
            )
        return DeviceFailed(
            f"the network's process stopped (exit status {status})",
            hint=f"compile the model again, and remove {self._image}: it may be damaged",
        )


def _zeros(tensor: Tensor) -> Array:
    """A tensor of real zeros."""
    value = 0 if tensor.quantization is None else tensor.zero_point
    return np.full(tensor.shape, value, dtypes.storage(tensor.dtype))


def encode_inputs(graph: Graph, inputs: Mapping[str, Array]) -> bytes:
    """The graph's inputs in its order, as its code takes them.

    Raises:
        InvalidInput: they are not what the graph takes.
    """
    tensors = graph.tensors
    return b"".join(
        np.ascontiguousarray(array).tobytes()
        if tensors[name].quantization is None
        else to_unsigned(array, tensors[name])
        for name, array in check_inputs(graph, inputs).items()
    )


def decode(data: bytes, tensor: Tensor) -> Array:
    """A tensor from the bytes that a network's code made."""
    if tensor.quantization is not None:
        return from_unsigned(data, tensor)
    return np.frombuffer(data, dtypes.storage(tensor.dtype)).reshape(tensor.shape).copy()


def out_of_range(node: str, index: int, limit: int) -> InvalidInput:
    """The error of an inference that computed an index out of its axis."""
    return InvalidInput(
        f"index {index} of an axis of {limit}: it must be from {-limit} to {limit - 1}",
        where=f"node {node}",
        hint="give inputs from which the network computes indices in this range",
    )


def _host(plan: CPlan, graph: Graph) -> bytes:
    """What makes a process of a network: its sizes, and kernels/host.c."""
    return f"{sizes_and_spans(plan, graph)}\n{amalgamate(['host.c'])}".encode()


def sizes_and_spans(plan: CPlan, graph: Graph) -> str:
    """C that says how large a network's memory is, and where in it inputs, outputs and steps' outputs lie."""
    sizes = {
        "MARGIN": MARGIN,
        "ARENA_BYTES": plan.memory["arena"],
        "WEIGHTS_BYTES": plan.memory["weights"],
        "INPUTS": len(graph.inputs),
        "OUTPUTS": len(graph.outputs),
        "STEPS": len(graph.nodes),
    }
    spans = {
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "steps": [node.output for node in graph.nodes],
    }
    lines = [f"#define {name} {value}" for name, value in sizes.items()]
    lines.append("struct span {\n  size_t offset, bytes;\n};")
    for name, tensors in spans.items():
        pairs = ", ".join(f"{{{plan.places[tensor]}, {graph.tensor(tensor).nbytes}}}" for tensor in tensors)
        lines.append(f"static const struct span {name}[] = {{{pairs}}};")
    return "\n".join(lines)


def _built(source: bytes) -> Path:
    """The program of a C source, in the cache; compiled if it is not there."""
    facts: list[str | bytes] = [
        platform.machine(),
        str(toolchain.find("cc")),
        toolchain.version("cc"),
        *FLAGS,
        source,
    ]
    folder = cache.directory("c") / f"network-{cache.digest(facts)}"
    if not cache.has_files(folder, [IMAGE]):
        # The compiler itself writes it. If this process had it open for writing, a child started meanwhile
        # would inherit the handle, and the system refuses to execute a file that is open for writing.
        with cache.writing(folder.parent), scratch_directory(folder.parent) as scratch:
            built = scratch / IMAGE
            toolchain.run("cc", [*FLAGS, "-x", "c", "-", "-o", built, "-lm"], input=source, scratch=scratch)
            if not built.exists():
                raise BuildFailed("it wrote nothing", where="cc")
            cache.keep_files(folder, {IMAGE: built})
    return folder / IMAGE

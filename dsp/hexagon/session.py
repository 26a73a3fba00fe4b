"""The emulated DSP: the network's process under qemu-hexagon, driven over its standard streams.

The framing is described in kernels/runtime.c. One process serves any number of inferences, and never
outlives ours. A `.tow` holds code: it is executed here, in an emulator that passes system calls through to
this machine.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

import numpy as np

from dsp.hexagon import disassembly
from dsp.hexagon.cycles import model
from dsp.hexagon.cycles.accesses import Memory
from dsp.hexagon.cycles.execution import execute
from dsp.hexagon.cycles.interlocks import Interlocks
from dsp.hexagon.cycles.prefetch import Requests
from dsp.hexagon.plan import HexagonPlan, LayerPlan
from dsp.hexagon.sharing import CONTEXTS
from dsp.hexagon.tensors import decode_outputs, decode_trace, encode_inputs
from sdk import files, toolchain
from sdk.child import Child
from sdk.crew import Crew
from sdk.errors import DeviceFailed, InvalidArtifact, UsageError
from sdk.estimate import Cache, Estimate
from sdk.graph import Array
from sdk.inputs import zero_point_inputs
from sdk.target import LayerProfile, Profile, Program

CONTEXTS_OPTIONS = {f"contexts={n}": n for n in range(1, CONTEXTS + 1)}
COUNTERS = ("packets", "instructions", "hvx_instructions")


class EmulatedDevice:
    """qemu-hexagon on this machine.

    Args:
        device: "emulated", or "emulated?contexts=1": HVX contexts that share an inference, each a thread; by
            default two.
        qemu_flags: what it needs for the DSP's version.

    Raises:
        UsageError: an unknown option.
    """

    def __init__(self, device: str = "emulated", qemu_flags: Sequence[str] = ()) -> None:
        self._qemu_flags = qemu_flags
        self._contexts: int | None = None
        for option in device.partition("?")[2].split("&") if "?" in device else ():
            self._contexts = CONTEXTS_OPTIONS.get(option)
            if self._contexts is None:
                raise UsageError(
                    f"unknown option {option!r} in the device {device!r}",
                    hint="for example emulated, emulated?contexts=1, emulated?contexts=2",
                )

    def load(self, program: Program) -> EmulatedSession:
        """Start the program's process.

        Raises:
            InvalidArtifact: the program is incomplete, or its plan damaged, or for fewer contexts.
            ToolMissing: qemu-hexagon is missing.
            OutputFailed: its files do not fit the temporary directory.
            DeviceFailed: its process stopped at once.
        """
        return EmulatedSession(program, self._qemu_flags, self._contexts)


class EmulatedSession:
    """A program in its own qemu-hexagon process; a context manager.

    Attributes:
        contexts: threads that share an inference.
    """

    def __init__(self, program: Program, qemu_flags: Sequence[str], contexts: int | None = None) -> None:
        self._plan = HexagonPlan.of(program)
        schedule = self._plan.schedule(contexts)
        self.contexts = CONTEXTS if schedule else 1
        self._graph = program.graph
        self._program, self._qemu_flags = program, qemu_flags
        elf = program.code.get("network.elf")
        if elf is None:
            raise InvalidArtifact("the program's code is incomplete", hint="compile the model again")
        with ExitStack() as scratch:
            directory = scratch.enter_context(files.scratch_directory())
            self._stderr = directory / "stderr"
            image = directory / "network.elf"
            files.write(image, elf)
            image.chmod(0o700)  # qemu-user requires it
            with self._stderr.open("wb") as stderr:
                process = toolchain.start(
                    "qemu-hexagon",
                    [*qemu_flags, image],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                )
            self._child = Child(process, self._died, scratch.pop_all())
        # All contexts are busy with one inference, or each with its own.
        self._crew = Crew(lambda: EmulatedSession(program, qemu_flags, contexts), CONTEXTS // self.contexts)
        with self._child.exchange(_weights(program)):
            pass
        if schedule:
            self._share(schedule)

    def _share(self, schedule: bytes) -> None:
        """Begin the second context's thread."""
        with self._exchange("C", len(schedule).to_bytes(4, "little") + schedule):
            found = int.from_bytes(self._child.receive(4), "little")
            if found == 0:
                raise InvalidArtifact(
                    f"the plan has {len(schedule)} calls, but the code has another number",
                    where="plan.layers",
                    hint="compile the model again",
                )
            if found < self.contexts:
                raise DeviceFailed(
                    "qemu-hexagon cannot start a second thread", hint="use --device 'emulated?contexts=1'"
                )

    # -- sdk.target.DeviceSession -----------------------------------------------------------------------

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        data = encode_inputs(self._graph, inputs)
        if self.contexts > 1:
            with self._exchange("r", data):
                return decode_outputs(self._graph, self._child.receive)
        with self._exchange("R", data):
            self._counters()
            return decode_outputs(self._graph, self._child.receive)

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return self._trace("t" if self.contexts > 1 else "T", inputs)

    def _trace(self, command: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with self._exchange(command, encode_inputs(self._graph, inputs)):
            return decode_trace(self._plan, self._graph, self._child.receive)

    def profile(self) -> Profile:
        data = encode_inputs(self._graph, zero_point_inputs(self._graph))
        with self._exchange("R", data):
            total = self._counters()
            decode_outputs(self._graph, self._child.receive)
        counted = []
        with self._exchange("P", data):
            for _ in self._plan.layers:
                whole, first, second = (self._counters() for _ in range(3))
                longer_half = max(first["packets"], second["packets"])
                counted.append(whole | {"packets_longer_half": longer_half})
        layers = [profiled(stripes, counters) for stripes, counters in self._plan.by_node(counted)]
        longer = sum(counters["packets_longer_half"] for counters in counted)
        return Profile(layers, total | {"packets_longer_half": longer}, self._plan.memory)

    def close(self) -> None:
        self._crew.close()
        self._child.close()

    # -- sdk.estimate.Estimates -------------------------------------------------------------------------

    def estimate(self, profile: Profile, cache: Cache) -> Estimate:
        version = self._program.target.removeprefix("hexagon-")
        elf = self._program.code["network.elf"]
        code, interlocks = disassembly.Program(elf, version), Interlocks(version)
        inputs = encode_inputs(self._graph, zero_point_inputs(self._graph))
        data = _weights(self._program) + _word("R") + inputs
        execution = execute(elf, data, code, self._qemu_flags)
        sizes = self._plan.memory
        memory = constant(code, sizes, self._program)
        requests = requested(code, self._plan)
        found = model.costs(execution, code.kernels(sizes), interlocks, cache, memory, requests)
        nodes = [numbers for _, numbers in self._plan.by_node(range(len(found.layers)))]
        return model.estimate(profile, found, nodes, cache, interlocks.llvm)

    # -- sdk.target.Submits -----------------------------------------------------------------------------

    def submit(self, inputs: Mapping[str, Array], *, step: bool = False) -> Callable[[], dict[str, Array]]:
        del step  # it keeps no states
        return self._crew.submit(inputs)

    def __enter__(self) -> EmulatedSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- for the contract tests -------------------------------------------------------------------------

    def trace_halves(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """As `trace`, each call in the two halves of two HVX contexts, the second half first."""
        return self._trace("B", inputs)

    def order(self, choice: int) -> None:
        """Of two contexts, whether one runs up to their next meeting before the other begins.

        0: no, both run at once. 1: context 0. 2: context 1. Other numbers are seeds of a random choice.
        """
        with self._exchange("O", choice.to_bytes(4, "little")):
            pass

    def poison(self, byte: int) -> None:
        """Fill the arena and the margins around it with one byte."""
        with self._exchange("F", byte.to_bytes(4, "little")):
            pass

    def dump(self) -> tuple[bytes, bytes, bytes]:
        """The margin before the arena, the arena, the margin behind it."""
        margin, arena = self._plan.memory["margin"], self._plan.memory["arena"]
        with self._exchange("D"):
            receive = self._child.receive
            return receive(margin), receive(arena), receive(margin)

    # -- framing ----------------------------------------------------------------------------------------

    def _counters(self) -> dict[str, int]:
        words = np.frombuffer(self._child.receive(4 * len(COUNTERS)), "<u4")
        return {name: int(word) for name, word in zip(COUNTERS, words, strict=True)}

    def _exchange(self, command: str, data: bytes = b"") -> AbstractContextManager[None]:
        return self._child.exchange(_word(command) + data)

    def _died(self, status: str) -> DeviceFailed:
        said = self._stderr.read_bytes().decode(errors="replace").strip()[-500:]
        return DeviceFailed(
            f"qemu-hexagon stopped (exit status {status}){': ' + said if said else ''}",
            hint="compile the model again; if it persists, `towline doctor` shows the versions in use",
        )


def _word(command: str) -> bytes:
    return ord(command).to_bytes(4, "little")


def _weights(program: Program) -> bytes:
    """What a process is sent first."""
    return program.weights.nbytes.to_bytes(4, "little") + program.weights.buffer()


def constant(code: disassembly.Program, sizes: Mapping[str, int], program: Program) -> Memory:
    """What does not change while a network runs: tables, weights, and here the context of each call."""
    arena, weights = code.places(sizes)
    return Memory([*code.constants, (weights, bytes(program.weights.buffer()))], (arena, weights, 0, 1))


def requested(code: disassembly.Program, plan: HexagonPlan) -> Requests:
    """What the code fetches ahead, call by call."""
    _, weights = code.places(plan.memory)
    return Requests(weights, [fetch for layer in plan.layers for fetch in layer.fetches])


def profiled(stripes: Sequence[LayerPlan], counted: Sequence[Mapping[str, int]]) -> LayerProfile:
    """The profile of a node from the sum over its stripes, of which it usually has one."""
    costs, counters = Counter[str](), Counter[str]()
    for stripe, own in zip(stripes, counted, strict=True):
        costs.update(stripe.costs)
        counters.update(own)  # a sum of Counters would leave zeros out
    macs = sum(stripe.macs for stripe in stripes)
    return LayerProfile(
        stripes[0].name, stripes[0].op, macs, dict(counters), limit(costs, counters["packets"])
    )


def limit(costs: Mapping[str, int], packets: int) -> str:
    """Where a layer's packets go: the costs that its plan states exactly, and what remains."""
    known = {name: cost / packets for name, cost in costs.items()} if packets else {}
    shares = known | {"loads and loops": 1 - sum(known.values())}
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in ranked if share >= 0.005)

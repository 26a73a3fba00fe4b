"""The seam between the compiler and the silicon: Target, Program, Device, DeviceSession.

A target sees what is the device's of a network (`sdk.segments`): of a quantised one the integers, of a float
one all that it takes. What the host computes is in `sdk.host`, the same for every target. Those that are
installed: `sdk.targets`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from sdk.clock import Clock
from sdk.errors import Unsupported
from sdk.graph import Array, Graph, Node
from sdk.telemetry.metrics import Identity, Metrics, Traffic
from sdk.tuning import Tuning
from sdk.weights import Weights

Arithmetic = Literal["f32", "q31", "q15"]
"""How accumulators are requantised: `sdk.arithmetic`."""


@dataclass(frozen=True)
class Verdict:
    """Whether a target takes a node; a refusal has the reason and, where there is one, the remedy."""

    supported: bool
    reason: str = ""
    hint: str | None = None


SUPPORTED = Verdict(True)


Sums = Literal["half", "float32"]
"""How products of float16 are added: up to 16 of them in half arithmetic and these sums in float32, or all in
float32."""


L2 = 1 << 20
"""Bytes of a Hexagon V65's second level of cache (SD845), the usual one."""


@dataclass(frozen=True)
class Options:
    """What a user may choose at compile time.

    Attributes:
        guard: bytes of guard placed around every device buffer, for tests; 0 in production.
        tuning: measurements that take precedence over those that came with the target, if it is `Tunable`.
        states: pairs (output, input) of the graph that the device may keep from one step to the next; a
            target whose sessions are no `KeepsStates` ignores them.
        sums: how a target that is `AddsInHalf` adds products of float16; others ignore it.
        l2: bytes of the last level of cache in which a target that is `FitsCache` keeps what layers hand on;
            others ignore it.
        arithmetic: of a target that is `OffersArithmetics`, one of them; None for its own.
    """

    guard: int = 0
    tuning: Tuning | None = None
    states: Sequence[tuple[str, str]] = ()
    sums: Sums = "half"
    l2: int = L2
    arithmetic: Arithmetic | None = None


@dataclass(frozen=True)
class OpenOptions:
    """What a user may choose when a device is opened; a target ignores what it does not use.

    Attributes:
        firmware: directory of an AMD card's firmware files; None for the one that TOWLINE_FIRMWARE names,
            or where distributions put them.
        power_cap: watts that a card may draw at most while it is open; None for its own limit. A target that
            is not `CapsPower` refuses it.
        verify_transfers: inputs and outputs of every inference are compared with what is on the device. A
            target that is not `VerifiesTransfers` refuses it.
    """

    firmware: Path | None = None
    power_cap: float | None = None
    verify_transfers: bool = False


@dataclass(repr=False)
class Program:
    """A compiled part of a network: everything the target's device needs, and nothing of the host's.

    Attributes:
        target: the target's registry name.
        graph: that part as the target executes it, after its own passes; the reference on this
            graph, in the target's arithmetic, is what every layer must equal.
        plan: the target's own description of layout and schedule; JSON values only.
        weights: in plan order.
        code: file name -> bytes (an ELF, a code object, OpenCL C).
        seconds: stage name -> wall seconds of the compilation; informative, never stored.
    """

    target: str
    graph: Graph
    plan: dict[str, Any]
    weights: Weights
    code: dict[str, bytes]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def precision(self) -> str:
        """What floats are computed in, for `sdk.reference.expect`; a plan says so if it is not float32."""
        return str(self.plan.get("precision", "float32"))

    def __repr__(self) -> str:
        code = sum(map(len, self.code.values()))
        sizes = f"{self.weights.nbytes:,} bytes of weights, {code:,} of code"
        return f"<Program for {self.target}, {self.graph}, {sizes}>"


@dataclass(frozen=True)
class LayerProfile:
    """Counters of one executed layer.

    Attributes:
        counters: named by the target; counts (packets, waves, ...) are exact, times are its device's.
    """

    name: str
    op: str
    macs: int
    counters: Mapping[str, int | float]
    note: str = ""


@dataclass(frozen=True, repr=False)
class Profile:
    """One inference, layer by layer.

    Attributes:
        layers: in execution order.
        total: counters of one whole inference; the layers' sum, except what lies between layers and what
            reading the counters costs.
        memory: bytes by kind: weights, arena, live_peak (the largest sum of tensor bytes alive at once),
            and what else the target reports.
    """

    layers: Sequence[LayerProfile]
    total: Mapping[str, Any]
    memory: Mapping[str, int]

    def __repr__(self) -> str:
        total = ", ".join(f"{count:,} {name}" for name, count in self.total.items())
        return f"<Profile of {len(self.layers)} layers: {total}>"


@runtime_checkable
class DeviceSession(Protocol):
    """A program loaded on a device. A context manager; `close` is idempotent."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one inference of the program.

        Raises:
            InvalidInput: a name, shape or dtype that is not the program's.
            DeviceFailed: the device died or gave an invalid answer.
        """

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """As `run`, but returns every tensor that the device materialises, outputs included, by name."""

    def profile(self) -> Profile:
        """Counters of one inference on zero-point inputs."""

    def close(self) -> None: ...


@runtime_checkable
class KeepsStates(Protocol):
    """What a `DeviceSession` offers beside if states can stay on the device between steps.

    Attributes:
        kept: pairs (output, input) of what it keeps; all of `Options.states`, or none.
    """

    @property
    def kept(self) -> Sequence[tuple[str, str]]: ...

    def step(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one inference from the kept states; the next ones replace them when its results are here.

        If it raises, the states are what they were, unless the session has been closed by the failure.
        `run`, `trace` and `profile` do not change them.

        Args:
            inputs: as for `run`, without the states.

        Returns:
            As `run`, without the next states.
        """

    def reset(self, states: Mapping[str, Array]) -> None:
        """Replace all states, given by the names of their inputs."""

    def states(self) -> dict[str, Array]:
        """The states now, by the names of their inputs."""


@runtime_checkable
class Submits(Protocol):
    """What a `DeviceSession` offers beside if inferences can wait in the device's queue."""

    def submit(self, inputs: Mapping[str, Array], *, step: bool = False) -> Callable[[], dict[str, Array]]:
        """Begin an inference as `run` does, or with `step` as `KeepsStates.step`.

        A step that is submitted next finds the states of this one, whether it was waited for or not.

        Returns:
            What waits for its end and returns its outputs; to be called once. It raises what `run` raises.

        Raises:
            InvalidInput, DeviceFailed: as `run`.
        """


@runtime_checkable
class Timed(Protocol):
    """What a `Device` has beside if its time is not the wall's: an emulated one has virtual time."""

    @property
    def clock(self) -> Clock: ...


@dataclass(frozen=True)
class Recovery:
    """What a recovery of a device took.

    Attributes:
        kind: "warm" if the device went on with what it had, "cold" if it was started from nothing.
        states: whether kept states are those of the last inference whose results were returned; else they
            are lost, and the session has to be reset.
    """

    kind: Literal["warm", "cold"]
    states: bool


@runtime_checkable
class Recovers(Protocol):
    """What a `Device` offers beside if it can go on after a failure; others are opened again."""

    def recover(self, seconds: float) -> Recovery:
        """Make a device, and what is loaded on it, usable again.

        What was submitted and not waited for is dropped. What the device has lost goes there with the next
        inference.

        Args:
            seconds: of the device's time to wait at most for one that is away.

        Raises:
            DeviceFailed, DeviceMissing: that is not possible now; it may be tried again.
        """


@runtime_checkable
class Measures(Protocol):
    """What a `Device` offers beside if it can report power, temperatures, its link or its traffic.

    A reading takes the device some of its time (an AMD card behind a bridge with lists: 0.5 ms), so it is
    best made while no inference waits.

    Attributes:
        last_reading: the last one, of `reading` or of the device's own checks; None before the first.
        traffic: over its cable since it was opened; costs nothing.
    """

    @property
    def last_reading(self) -> Metrics | None: ...

    @property
    def traffic(self) -> Traffic: ...

    def reading(self) -> Metrics:
        """Measure now, behind everything that was submitted; `frames` is unknown here.

        Raises:
            DeviceFailed, DeviceMissing: the device does not answer. It has failed then, as in an inference.
        """

    def identity(self) -> Identity:
        """Which device it is; takes a few transfers. Raises as `reading`."""


@runtime_checkable
class Injects(Protocol):
    """What a `Device` offers beside if faults can be rehearsed on it: an emulated one.

    Attributes:
        torments: for each kind of fault an example of about the usual severity, as `inject` takes it, with
            times from then on.
    """

    @property
    def torments(self) -> Sequence[str]: ...

    def inject(self, fault: str) -> None:
        """Plan a fault. Raises UsageError: there is no such fault, or it is not written so."""

    def faults(self) -> Sequence[tuple[str, float | None]]:
        """The faults that were planned, with the time at which each fired, None if it has not."""


Rest = Literal["awake", "idle", "off"]
"""Of a device: idle if its clocks are low, off if it has no power."""


@runtime_checkable
class Rests(Protocol):
    """What a `Device` offers beside if it can use less power while it has nothing to do."""

    @property
    def rests(self) -> Rest: ...

    def rest(self, *, off: bool = False) -> None:
        """Lower its clocks, or switch it off; nothing may be in flight.

        The sessions on it go on afterwards, with their states. One that is idle is woken by the next
        inference; one that is off, by `Recovers.recover`.

        Raises:
            DeviceFailed, DeviceMissing: that failed.
        """

    def wake(self) -> None:
        """Raise its clocks. Raises DeviceFailed: it is off; DeviceFailed, DeviceMissing: that failed."""


@runtime_checkable
class Linked(Protocol):
    """What a `DeviceSession` says beside if its device is at the end of a link."""

    def link_seconds(self, *, step: bool = False) -> float:
        """The time that the link needs at least for the inputs and outputs of one inference."""


@dataclass(frozen=True)
class Verification:
    """What it costs to compare inputs and outputs with what is on the device, each inference.

    Attributes:
        inputs, outputs: bytes that are compared.
        seconds: that the device needs for it.
        of: seconds that it needs for all of an inference, that included.
    """

    inputs: int
    outputs: int
    seconds: float
    of: float


@runtime_checkable
class ComparesTransfers(Protocol):
    """What a `DeviceSession` says beside if its target is `VerifiesTransfers`."""

    def verification(self) -> Verification | None:
        """Measure that cost; None if inputs and outputs are not compared. Raises DeviceFailed."""


@runtime_checkable
class TimesItself(Protocol):
    """What a `DeviceSession` says beside if its device measures inferences by its own clock."""

    @property
    def device_seconds(self) -> float | None:
        """Of the last `run`, without the way there and back; None before it, or if it does not tell."""


HalfArithmetic = Literal["device", "emulated"]
"""Whose half arithmetic adds products of float16: the device's, or floats rounded to half by code."""


@runtime_checkable
class ComputesInHalf(Protocol):
    """What a `DeviceSession` says beside if its target is `AddsInHalf`."""

    @property
    def half_arithmetic(self) -> HalfArithmetic | None:
        """None if no product of the program is added in half arithmetic."""


class Device(Protocol):
    def load(self, program: Program) -> DeviceSession: ...


class Target(Protocol):
    """What compiles networks for one kind of silicon, and opens devices of it.

    Attributes:
        name: in the registry.
        arithmetic: in which its results equal the reference's.
        description: one line for `towline targets`.
        device_kinds: what its device strings begin with ("emulated", "usb"), the default first.
        later_parts: registry names that users look for, of parts that run this target's code (hexagon-v73).
    """

    name: str
    arithmetic: Arithmetic
    description: str
    device_kinds: Sequence[str]
    later_parts: Sequence[str]

    def supports(self, graph: Graph, node: Node) -> Verdict:
        """Whether it takes the node; this may take as long as lowering it."""

    def compile(self, graph: Graph, options: Options) -> Program:
        """Compile a part of a network. Deterministic: the same graph and options give identical bytes.

        Raises:
            Unsupported: `supports` refuses one of the nodes, which the error need not name; or the network as
                a whole exceeds a limit.
        """

    def open(self, device: str | None, options: OpenOptions = OpenOptions()) -> Device:
        """Open a device; None or "emulated" is the embedded default.

        Raises:
            UsageError: the target has no such device string.
            DeviceMissing, ToolMissing: it is known but missing.
        """

    def devices(self) -> Sequence[tuple[str, str]]:
        """(device string, description) of what `open` takes here and now."""


@runtime_checkable
class ChecksPrograms(Protocol):
    """What a target offers beside `Target` if it can tell a damaged program before a device is opened."""

    def check(self, program: Program) -> None:
        """Raises InvalidArtifact: the plan does not fit the program's graph, weights or code."""


@dataclass(frozen=True)
class Candidate:
    """One way to compute one kind of layer, to be measured.

    Attributes:
        signature: the kind of layer and all that its count depends on beside the choice: extents, never the
            values of weights.
        choice: the name of this way; it is "" for what the target takes unmeasured.
        kernels: hash of what the count depends on as well: the kernels' sources, the compiler, its flags.
        uses: how many calls of the graph have this signature.
        work: what measuring needs, as text: it may travel to another machine.
    """

    signature: str
    choice: str
    kernels: str
    uses: int
    work: str


@runtime_checkable
class CapsPower(Protocol):
    """What a target offers beside `Target` if its devices take `OpenOptions.power_cap`."""

    @property
    def power_caps(self) -> tuple[int, int]:
        """The lowest and the highest one, in watts."""


@runtime_checkable
class VerifiesTransfers(Protocol):
    """What a target offers beside `Target` if its devices take `OpenOptions.verify_transfers`."""

    verifies_transfers: bool


@runtime_checkable
class Tunable(Protocol):
    """What a target offers beside `Target` if only measuring shows which of its kernels' variants is best."""

    cost: str
    """What `measure` counts: "packets"."""

    def candidates(self, graph: Graph) -> Sequence[Candidate]:
        """For a part of a network, in a fixed order; of each signature first the one it takes unmeasured."""

    def kernels(self, candidate: Candidate) -> str:
        """The hash of what this installation would measure it with."""

    def measure(self, candidate: Candidate) -> int:
        """The exact count, the same on every machine.

        Raises:
            ToolMissing, BuildFailed, DeviceFailed: it cannot be compiled or run here.
        """


@runtime_checkable
class AddsInHalf(Protocol):
    """What a target offers beside `Target` if it can add products of float16 in half arithmetic."""

    sums: Sequence[Sums]
    """The default first."""


@runtime_checkable
class FitsCache(Protocol):
    """What a target offers beside `Target` if it lays a network out for a cache of a given size."""

    l2_sizes: range
    """The sizes in bytes that it takes."""


@runtime_checkable
class OffersArithmetics(Protocol):
    """What a target offers beside `Target` if it can requantise in more than one arithmetic."""

    arithmetics: Sequence[Arithmetic]
    """The default, `Target.arithmetic`, first."""


@dataclass(frozen=True)
class KernelCount:
    """What one kernel costs in one layer.

    Attributes:
        kernel: its function, with the name of its variant if it is one that `Tunable` chooses between.
        layer: the layer that calls it.
        count: exact, the same on every machine.
    """

    kernel: str
    layer: str
    count: int


@runtime_checkable
class CountsKernels(Protocol):
    """What a target offers beside `Target` whose kernels have exact counts of their own."""

    counter: str
    """What `count_kernels` counts: "packets"."""

    def count_kernels(self, body: Graph) -> tuple[Mapping[str, str], Sequence[KernelCount]]:
        """Of every kernel of an integer body, in its order, and of every variant of it.

        Returns:
            The compilers that the counts depend on, by name, with their versions; and the counts.

        Raises:
            EnvironmentMissing, BuildFailed, DeviceFailed: they cannot be compiled, run or counted here.
        """


def arithmetics(target: Target) -> Sequence[Arithmetic]:
    """In which a target can requantise, its default first."""
    return target.arithmetics if isinstance(target, OffersArithmetics) else (target.arithmetic,)


def require_supported(target: Target, graph: Graph) -> None:
    """Refuse the first node the target does not take, by name.

    Raises:
        Unsupported: with the node's name, the reason and what to do.
    """
    for node in graph.nodes:
        verdict = target.supports(graph, node)
        if not verdict.supported:
            raise Unsupported(
                f"{node.op} is not supported by {target.name}: {verdict.reason}",
                where=f"node {node.name}",
                hint=verdict.hint,
            )

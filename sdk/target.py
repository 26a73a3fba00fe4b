"""The seam between the compiler and the silicon: Target, Program, Device, Session.

A target package registers an object under the entry point group `towline.targets` (name -> zero-argument
callable giving a `Target`). It sees only the integer body of a network (`sdk.passes.split`): uint8 or
int8 in, uint8 or int8 out. Quantising a float input and the float tail (Dequantize, Softmax) are the
host's, in `sdk.session`, and the same for every target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol, runtime_checkable

from sdk.errors import Unsupported, UsageError
from sdk.graph import Array, Graph, Node

Arithmetic = Literal["f32", "q31"]


@dataclass(frozen=True)
class Verdict:
    """Whether a target takes a node; a refusal carries the reason and, where there is one, the remedy."""

    supported: bool
    reason: str = ""
    hint: str | None = None


SUPPORTED = Verdict(True)


@dataclass(frozen=True)
class Options:
    """What a user may choose at compile time.

    Attributes:
        guard: bytes of guard placed around every device buffer, for tests; 0 in production.
    """

    guard: int = 0


@dataclass
class Program:
    """A compiled integer body: everything the target's device needs, and nothing of the host's.

    Attributes:
        target: the target's registry name.
        graph: the integer body as the target executes it, after its own passes; the reference on this
            graph, in the target's arithmetic, is what every layer must equal.
        plan: the target's own description of layout and schedule; JSON values only.
        weights: one blob, in plan order.
        code: file name -> bytes (an ELF, a code object, OpenCL C).
        seconds: stage name -> wall seconds of the compilation; informative, never stored.
    """

    target: str
    graph: Graph
    plan: dict[str, Any]
    weights: bytes
    code: dict[str, bytes]
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerProfile:
    """Counters of one executed layer; `counters` are exact and named by the target (packets, ...)."""

    name: str
    op: str
    macs: int
    counters: Mapping[str, int]
    note: str = ""


@dataclass(frozen=True)
class Profile:
    """One inference, layer by layer.

    Attributes:
        layers: in execution order.
        total: counters of one whole inference; the layers' sum but for what lies between layers and what
            reading the counters costs.
        memory: bytes by kind: weights, arena, live_peak (the largest sum of tensor bytes alive at once),
            and whatever else the target tells.
    """

    layers: Sequence[LayerProfile]
    total: Mapping[str, Any]
    memory: Mapping[str, int]


@runtime_checkable
class Session(Protocol):
    """A program loaded on a device. A context manager; `close` is idempotent."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one inference on the integer body.

        Raises:
            InvalidInput: a name, shape or dtype that is not the program's.
            DeviceFailed: the device died or answered nonsense.
        """

    def trace(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """As `run`, but returns every tensor that the device materialises, outputs included, by name."""

    def profile(self) -> Profile:
        """Counters of one inference on zero-point inputs."""

    def close(self) -> None: ...


class Device(Protocol):
    def load(self, program: Program) -> Session: ...


class Target(Protocol):
    name: str
    arithmetic: Arithmetic
    description: str

    def supports(self, graph: Graph, node: Node) -> Verdict: ...

    def compile(self, graph: Graph, options: Options) -> Program:
        """Compile an integer body. Deterministic: the same graph and options give identical bytes."""

    def open(self, device: str | None) -> Device:
        """Open a device; None or "emulated" is the embedded default.

        Raises:
            UsageError: the target knows no such device string.
            DeviceMissing, ToolMissing: it is known but not there.
        """

    def devices(self) -> Sequence[tuple[str, str]]:
        """(device string, description) of what `open` takes here and now."""


GROUP = "towline.targets"


def target_names() -> list[str]:
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def get_target(name: str) -> Target:
    """Look a target up by its registry name.

    Raises:
        UsageError: no installed package registers it.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            target: Target = entry.load()()
            return target
    known = ", ".join(target_names()) or "none installed"
    raise UsageError(f"no target named {name!r}", hint=f"known targets: {known}")


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

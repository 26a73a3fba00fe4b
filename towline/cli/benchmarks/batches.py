"""Many small networks compiled and run as one, for any target.

To compile a network has a fixed price: a compiler's start, a device's. Networks that know nothing of each
other can share it as parts of one graph. Where a batch fails it is halved, until what fails stands alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sdk import compiler
from sdk.check import Check, check
from sdk.errors import EnvironmentMissing, Unsupported
from sdk.graph import Array, Graph, Node, Region, Tensor
from sdk.integer_islands import for_arithmetic
from sdk.segments import boundary, place
from sdk.session import Session
from sdk.target import Device, OpenOptions
from sdk.targets import get_target, open_device

SIZE = 256
"""Nodes in a batch, unless a network has more by itself. The start of c's compiler no longer matters then,
and the planning of memory, which grows with the square, does not yet."""


@dataclass(frozen=True)
class Job:
    """A network, what to give it, and whether to compare each layer of it with the definition."""

    graph: Graph
    inputs: Mapping[str, Array]
    checked: bool = False


@dataclass(frozen=True)
class Answer:
    """What became of a job.

    Attributes:
        outputs: by name; None where it failed.
        hosted: how many nodes ran on the host that the target refused.
        check: of its layers, where that was asked for.
        failure: why there are no outputs.
    """

    outputs: Mapping[str, Array] | None
    hosted: int = 0
    check: Check | None = None
    failure: Exception | None = None


class HeldDevice:
    """A device that several sessions use one after the other, where it can be held; a context manager.

    Args:
        target: a name of `target_names()`.
        name: a device string.
        options: as `Session` takes them.

    Raises:
        UsageError, EnvironmentMissing: the target or the device does not exist, or something of theirs is
            missing.
    """

    def __init__(self, target: str, name: str | None = None, options: OpenOptions = OpenOptions()) -> None:
        self.target, self.name, self.options = target, name, options
        self._stack = contextlib.ExitStack()
        self._opened: Device | None = None
        self.device()

    def device(self) -> Device:
        """It, opened again after `release`."""
        if self._opened is None:
            self._opened = opened = open_device(self.target, self.name, self.options)
            if isinstance(opened, contextlib.AbstractContextManager):
                self._stack.enter_context(opened)
        return self._opened

    def release(self) -> None:
        """Close it; after a failure it may be closed already."""
        self._opened = None
        self._stack.close()

    def __enter__(self) -> HeldDevice:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def run(
    jobs: Mapping[str, Job],
    held: HeldDevice,
    *,
    size: int = SIZE,
) -> Iterator[tuple[str, Answer]]:
    """Each job's answer, by its name, in any order.

    What a target refuses runs on the host; a network of which nothing would run on the device is refused.

    Args:
        jobs: by name.
        held: what runs them.
        size: nodes in a batch.

    Raises:
        EnvironmentMissing: something that the target needs is missing.
    """
    runner = _Runner(held)
    kinds: dict[tuple[bool, bool], list[str]] = {}
    for name, job in jobs.items():
        ends = boundary(job.graph)
        alone = all(node.name in ends for node in job.graph.nodes)
        kinds.setdefault((alone, job.checked), []).append(name)
    for (alone, checked), names in kinds.items():
        for part in _parts(jobs, names, size):
            yield from runner.answers(part, alone, checked)


def _parts(jobs: Mapping[str, Job], names: Sequence[str], size: int) -> Iterator[dict[str, Job]]:
    """The named jobs, as many at a time as have `size` nodes, and at least one."""
    part: dict[str, Job] = {}
    nodes = 0
    for name in names:
        count = len(jobs[name].graph.nodes)
        if part and nodes + count > size:
            yield part
            part, nodes = {}, 0
        part[name] = jobs[name]
        nodes += count
    yield part


@dataclass(frozen=True)
class _Runner:
    held: HeldDevice

    def answers(self, jobs: Mapping[str, Job], alone: bool, checked: bool) -> Iterator[tuple[str, Answer]]:
        """Args:
        alone: whether all nodes are such as the host has by choice; they are left to the device here.
        checked: whether to compare layers.
        """
        try:
            found = self._batch(jobs, alone, checked)
        except EnvironmentMissing:
            raise
        except Exception as problem:  # a bug in a target is a failure of a network too
            if len(jobs) == 1:
                ((name, job),) = jobs.items()
                yield name, Answer(None, failure=self._reason(job, problem))
                return
            names = list(jobs)
            for part in (names[: len(names) // 2], names[len(names) // 2 :]):
                yield from self.answers({name: jobs[name] for name in part}, alone, checked)
        else:
            yield from found.items()

    def _batch(self, jobs: Mapping[str, Job], alone: bool, checked: bool) -> dict[str, Answer]:
        marks = {name: f"{index}/" for index, name in enumerate(jobs)}
        whole = merged({mark: jobs[name].graph for name, mark in marks.items()})
        inputs = {
            f"{mark}{given}": array
            for name, mark in marks.items()
            for given, array in jobs[name].inputs.items()
        }
        compiled = compiler.compile(whole, self.held.target, states=(), host="none" if alone else "any")
        opened = self.held.device()
        try:
            with Session(compiled, self.held.name, opened=opened) as session:
                outputs = session.run(inputs)
                layers = check(compiled, session, inputs).layers if checked else ()
        except BaseException:
            self.held.release()
            raise
        hosted = set(compiled.hosted or ())
        unwilling = hosted if alone else hosted - boundary(compiled.graph)
        answers = {}
        for name, mark in marks.items():
            nodes = [node.name for node in compiled.graph.nodes if node.name.startswith(mark)]
            refused = sum(node in unwilling for node in nodes)
            if refused and hosted.issuperset(nodes):
                answers[name] = Answer(None, failure=self._reason(jobs[name], None))
                continue
            made = {output: outputs[f"{mark}{output}"] for output in jobs[name].graph.outputs}
            own = tuple(layer for layer in layers if layer.node.startswith(mark))
            answers[name] = Answer(made, refused, Check(own) if checked else None)
        return answers

    def _reason(self, job: Job, problem: Exception | None) -> Exception:
        """Why a network has no answer; where nothing of it runs on the device, what its target says."""
        if problem is not None and not isinstance(problem, Unsupported):
            return problem
        target = get_target(self.held.target)
        for placement in place(for_arithmetic(job.graph, target.arithmetic), target, "none"):
            if not placement.verdict.supported:
                where = f"node {placement.node.name}"
                message = (
                    f"{placement.node.op} is not supported by {self.held.target}: {placement.verdict.reason}"
                )
                return Unsupported(message, where=where, hint=placement.verdict.hint)
        return problem or Unsupported("nothing of it runs on the device", where=job.graph.name)


def merged(graphs: Mapping[str, Graph]) -> Graph:
    """One graph of several that know nothing of each other; their names begin with their keys."""
    tensors: dict[str, Tensor] = {}
    nodes: list[Node] = []
    inputs: list[str] = []
    outputs: list[str] = []
    for mark, graph in graphs.items():
        for name, tensor in graph.tensors.items():
            tensors[f"{mark}{name}"] = dataclasses.replace(tensor, name=f"{mark}{name}")
        nodes += [_marked(node, mark.__add__) for node in graph.nodes]
        inputs += [f"{mark}{name}" for name in graph.inputs]
        outputs += [f"{mark}{name}" for name in graph.outputs]
    return Graph("batch", tuple(inputs), tuple(outputs), tensors, tuple(nodes))


def _marked(node: Node, mark: Callable[[str], str]) -> Node:
    inner = {"nodes": tuple(_marked(one, mark) for one in node.nodes)} if isinstance(node, Region) else {}
    return dataclasses.replace(
        node,
        name=mark(node.name),
        inputs=tuple(map(mark, node.inputs)),
        output=mark(node.output),
        **inner,
    )

"""Runs a network twice on the same inputs: what differs depends on more than these, and is a race.

An inference is compared with another one, and layer by layer with two that the device runs one launch at a
time. Where the device counts what it executes, that must be the same too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdk.artifact import Artifact
from sdk.graph import Array
from sdk.session import Session


@dataclass(frozen=True)
class Difference:
    """The first layer that is not twice the same.

    Attributes:
        layer: name of the node, or of the launch.
        tensor: that differs, None where it is the schedule.
        elements: of the tensor that differ.
        what: as a sentence without its subject.
    """

    layer: str
    tensor: str | None
    elements: int
    what: str


@dataclass(frozen=True)
class Twice:
    """The comparison.

    Attributes:
        tensors, elements: that were compared.
        scheduled: layers whose counts were compared; 0 where the device has several parts of the network.
        difference: the first, None if there is none.
    """

    tensors: int
    elements: int
    scheduled: int
    difference: Difference | None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        found = self.difference
        return {
            "tensors": self.tensors,
            "elements": self.elements,
            "scheduled": self.scheduled,
            "difference": None
            if found is None
            else {
                "layer": found.layer,
                "tensor": found.tensor,
                "elements": found.elements,
                "what": found.what,
            },
        }


def run_twice(
    artifact: Artifact,
    session: Session,
    inputs: Mapping[str, Array],
    disturb: Callable[[bool], None] = lambda second: None,
) -> Twice:
    """Run the same inputs, states among them, twice.

    Args:
        artifact: the one that the session runs.
        session: an open session; its states do not change.
        inputs: as `Session.run` takes them.
        disturb: called with False before what is run first and with True before what is run again; may change
            what results must not depend on, such as the order in which an emulator runs what is parallel.

    Raises:
        InvalidInput, DeviceFailed, UsageError: as `Session.run`.
    """

    def both(run: Callable[[], Any]) -> tuple[Any, Any]:
        found = []
        for second in (False, True):
            disturb(second)
            found.append(run())
        disturb(False)
        return found[0], found[1]

    layers = {node.output: node.name for program in artifact.programs for node in program.graph.nodes}
    layers |= {node.output: node.name for node in artifact.graph.nodes if node.output not in layers}
    first, again = both(lambda: session.run(inputs))
    alone, alone_again = both(lambda: session.observe(inputs))
    compared = [
        (alone, alone_again, "differ when it is run again"),
        (first, again, "differ when it is run again"),
    ]
    # Launches that overlap, against launches one by one.
    compared.append((first, alone, "differ when launches do not overlap"))
    difference = None
    for one, other, what in compared:
        for name in layers:
            if difference is None and name in one and name in other:
                wrong = _wrong(one[name], other[name])
                if wrong:
                    sentence = f"{wrong:,} of {one[name].size:,} elements {what}"
                    difference = Difference(layers[name], name, wrong, sentence)
    scheduled = 0
    if len(artifact.programs) == 1:
        schedules = both(lambda: _schedule(session))
        scheduled = len(schedules[0])
        if difference is None and schedules[0] != schedules[1]:
            difference = _scheduled(*schedules)
    arrays = [array for name, array in alone.items() if name in layers]
    return Twice(len(arrays), sum(array.size for array in arrays), scheduled, difference)


def _wrong(one: Array, other: Array) -> int:
    """Elements whose bytes differ."""
    size = max(one.dtype.itemsize, 1)
    bytes_of = [np.frombuffer(array.tobytes(), np.uint8).reshape(-1, size) for array in (one, other)]
    return int(np.count_nonzero((bytes_of[0] != bytes_of[1]).any(axis=1)))


Schedule = list[tuple[str, str, dict[str, int]]]


def _schedule(session: Session) -> Schedule:
    """Name, operator and exact counts of each layer, in order of execution."""
    return [
        (
            layer.name,
            layer.op,
            {name: count for name, count in layer.counters.items() if isinstance(count, int)},
        )
        for layer in session.profile().layers
    ]


def _scheduled(one: Schedule, other: Schedule) -> Difference:
    for (name, op, counts), again in zip(one, other, strict=False):
        if (name, op, counts) != again:
            return Difference(
                name, None, 0, f"executes {counts}, and when it is run again {again[0]} {again[2]}"
            )
    return Difference(one[-1][0], None, 0, f"is one of {len(one)} layers, and of {len(other)} when run again")

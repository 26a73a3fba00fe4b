"""The states of an open session: on the device, where it keeps them, or here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from sdk.artifact import Artifact
from sdk.dtypes import storage
from sdk.errors import DeviceFailed, InvalidInput
from sdk.graph import Array, Tensor
from sdk.inputs import check_inputs
from sdk.target import DeviceSession, KeepsStates, Recovery


class HeldStates:
    """Where the states of a network are between two steps.

    Args:
        artifact: whose states they are.
        opened: raises if the device cannot be used.

    Attributes:
        names: of the inputs that are states.
        keeper: the device's session, if it keeps them.
    """

    def __init__(self, artifact: Artifact, opened: Callable[[], object]) -> None:
        self._graph = artifact.graph
        self._pairs = artifact.states
        self._opened = opened
        self.names = tuple(name for _, name in self._pairs)
        self.keeper: KeepsStates | None = None
        self._here: dict[str, Array] = {}  # without a keeper
        self._reset_to: dict[str, Array] | None = None  # what the keeper has, if it made no step since
        self._lost = False  # whether it came back without them

    def adopt(self, first: DeviceSession) -> None:
        """Find out whether a device, which was just loaded, keeps them."""
        keeps = self._pairs and isinstance(first, KeepsStates) and sorted(first.kept) == sorted(self._pairs)
        self.keeper = first if keeps and isinstance(first, KeepsStates) else None

    def require(self) -> None:
        """Raises DeviceFailed if they were lost."""
        if self._lost:
            raise DeviceFailed(
                "the device came back without the states of this network",
                hint="call reset() and begin again; a towline.Stream does that by itself, and reports it",
            )

    def reset(self, states: Mapping[str, Array]) -> None:
        """As `Session.reset`."""
        for name in states:
            if name not in self.names:
                hint = f"its states: {', '.join(self.names) or 'none'}"
                raise InvalidInput(f"no state named {name!r}", where=self._graph.name, hint=hint)
        zeros = {name: _zero(self._graph.tensor(name)) for name in self.names}
        part = dataclasses.replace(self._graph, inputs=self.names)
        found = check_inputs(part, {**zeros, **states})
        if self.keeper is not None:
            self._opened()
            self.keeper.reset(found)
            self._reset_to = found
        else:
            self._here = found
        self._lost = False

    def now(self) -> dict[str, Array]:
        """As `Session.states`."""
        self.require()
        if self.keeper is not None:
            self._opened()
            return self.keeper.states()
        return {name: array.copy() for name, array in self._here.items()}

    @property
    def given(self) -> dict[str, Array]:
        """What a step is given of them: nothing if the device keeps them."""
        return {} if self.keeper is not None else self._here

    def stepped(self, values: Mapping[str, Array]) -> None:
        """A step succeeded, of whose tensors the host has these."""
        self._reset_to = None
        if self.keeper is None:
            self._here = {name: values[output] for output, name in self._pairs}

    def recovered(self, found: Recovery, first: DeviceSession) -> Recovery:
        """The device was recovered; a state that was put in place and not stepped from is put there again.

        Returns:
            The same, with whether the states are those of the last step.
        """
        kept = self.keeper is not None
        if found.kind == "cold":
            self.adopt(first)
        if kept and not found.states:
            self._lost = True
            if self._reset_to is not None:
                self.reset(self._reset_to)
        return Recovery(found.kind, not self._lost)


def _zero(tensor: Tensor) -> Array:
    """A tensor of real zeros, as it is stored."""
    value = 0 if tensor.quantization is None else tensor.zero_point
    return np.full(tensor.shape, value, storage(tensor.dtype))

"""What a target may say about time where nothing can measure it: estimates, with what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sdk.target import L2, Profile


@dataclass(frozen=True)
class Cache:
    """A device's last level of cache, as an estimate takes it.

    Attributes:
        nbytes: its size.
        ways: lines of a set.
        warm: the inference before left its data there; else it holds nothing that is used.
    """

    nbytes: int = L2
    ways: int = 8
    warm: bool = False


@dataclass(frozen=True)
class LayerEstimate:
    """One layer.

    Attributes:
        name: the layer's.
        counts: modelled, whole numbers by name (cycles, stalls, ddr_bytes).
        ms: milliseconds by way of running.
        cause: what most of the stalls wait for; empty if there is none.
    """

    name: str
    counts: Mapping[str, int]
    ms: Mapping[str, float]
    cause: str = ""


@dataclass(frozen=True)
class Estimate:
    """One inference. `counts` and `ms` are the sums over its layers, and what lies between them.

    Attributes:
        layers: in order of execution.
        assumptions: what the figures rest on, one fact each, for people.
    """

    layers: Sequence[LayerEstimate]
    counts: Mapping[str, int]
    ms: Mapping[str, float]
    assumptions: Sequence[str]


@runtime_checkable
class Estimates(Protocol):
    """What a `DeviceSession` offers beside if its device models no time, and a model of it exists."""

    def estimate(self, profile: Profile, cache: Cache) -> Estimate:
        """The time of an inference as `profile` counted.

        Raises:
            UsageError: the cache cannot be one.
            DeviceFailed, EnvironmentMissing: what the model needs to know could not be found out.
        """

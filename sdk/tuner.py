"""Measuring a target's candidates: on this machine's cores, or on the workers of a Dask scheduler.

Counts are exact, so that it does not matter where, in which order or when they are measured: each is kept in
the cache as soon as it is known, under a name made of all that determines it, and a run that was interrupted,
or one for another network with the same layers, begins with what is known.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from sdk import cache, extras
from sdk.errors import DeviceFailed, DeviceMissing, EnvironmentMissing, UsageError
from sdk.graph import Graph
from sdk.target import Candidate, Tunable
from sdk.targets import get_target, target_names
from sdk.tuning import Entry, Tuning

CONNECT_SECONDS = 10
"""How long a Dask scheduler, and then its first worker, may take to answer."""


@dataclass(frozen=True)
class Layer:
    """What measuring found for the calls of one signature.

    Attributes:
        uses: how many calls of the network have it.
        untuned, count: of the target's own choice and of the best one, for one call.
    """

    signature: str
    uses: int
    choice: str
    untuned: int
    count: int


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        tuning: one entry for each signature where the best is not the target's own choice.
        layers: every signature, in the target's order.
        known, measured: how many counts were in the cache, and how many were not.
    """

    tuning: Tuning
    layers: Sequence[Layer]
    known: int
    measured: int


def tunable(name: str) -> Tunable:
    """The target of this name, which has something to tune.

    Raises:
        UsageError: there is no such target, or it has nothing to tune.
    """
    target = get_target(name)
    if isinstance(target, Tunable):
        return target
    others = [other for other in target_names() if isinstance(get_target(other), Tunable)]
    raise UsageError(
        f"{name} has nothing to tune", hint=f"targets to tune: {', '.join(others) or 'none installed'}"
    )


def tune(name: str, body: Graph, pool: Executor, progress: Callable[[int, int], None]) -> Outcome:
    """Measure every candidate for an integer body, and choose.

    Args:
        name: a target's registry name.
        body: as `Target.compile` takes it.
        pool: where to measure; of `local` or `dask`.
        progress: called with (known, all) after each count.

    Raises:
        UsageError: the target has nothing to tune.
        EnvironmentMissing: a tool, or what a worker needs, is missing.
        BuildFailed, DeviceFailed: a candidate could not be compiled or run.
        OutputFailed: the cache cannot be written.
    """
    target = tunable(name)
    candidates = target.candidates(body)
    counts: dict[Candidate, int] = {}
    for candidate in candidates:
        count = _known(name, candidate)
        if count is not None:
            counts[candidate] = count
    known = len(counts)
    progress(known, len(candidates))
    missing = [candidate for candidate in candidates if candidate not in counts]
    waiting: dict[Future[int], Candidate] = {}
    try:
        for candidate in missing:
            waiting[pool.submit(measured, name, version(), candidate)] = candidate
        for future in as_completed(waiting):
            candidate = waiting[future]
            counts[candidate] = future.result()
            _keep(name, candidate, counts[candidate])
            progress(len(counts), len(candidates))
    except BaseException:
        for future in waiting:
            future.cancel()
        raise
    layers = _choose(candidates, counts)
    entries = {
        best.signature: Entry(best.kernels, best.choice, layer.count, layer.untuned)
        for layer, best in layers
        if layer.count < layer.untuned
    }
    tuning = Tuning(name, target.cost, entries)
    return Outcome(tuning, [layer for layer, _ in layers], known, len(missing))


def measured(name: str, made_by: str, candidate: Candidate) -> int:
    """What a worker does: the candidate's count.

    Raises:
        EnvironmentMissing: this Towline, or its kernels, differ from those of the tuning process.
    """
    require_same_version(made_by)
    target = tunable(name)
    if target.kernels(candidate) != candidate.kernels:
        raise EnvironmentMissing(
            f"has other kernels, or another compiler, for {name}",
            where=f"worker on {socket.gethostname()}",
            hint="install the same Towline and the same clang on every worker",
        )
    return target.measure(candidate)


def merged(old: Tuning | None, outcome: Outcome) -> Tuning:
    """`old` with what a run found: its signatures replaced, or removed where nothing is gained."""
    seen = {layer.signature for layer in outcome.layers}
    kept = {} if old is None else {s: entry for s, entry in old.entries.items() if s not in seen}
    return Tuning(outcome.tuning.target, outcome.tuning.counter, {**kept, **outcome.tuning.entries})


def _choose(
    candidates: Sequence[Candidate], counts: Mapping[Candidate, int]
) -> list[tuple[Layer, Candidate]]:
    """Each signature's best candidate; of equals the first."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.signature, []).append(candidate)
    result = []
    for signature, group in groups.items():
        best = min(group, key=counts.__getitem__)
        own = group[0]
        layer = Layer(signature, own.uses, best.choice, counts[own], counts[best])
        result.append((layer, best))
    return result


# -- what is known --------------------------------------------------------------------------------------


def _path(name: str, candidate: Candidate) -> Path:
    facts = (name, candidate.kernels, candidate.signature, candidate.choice)
    return cache.directory("measurements") / f"{cache.digest(facts)}.json"


def _known(name: str, candidate: Candidate) -> int | None:
    """The count of an earlier run; None if there is none, or a damaged one."""
    kept = cache.load(_path(name, candidate))
    return None if kept is None else int(json.loads(kept)["count"])


def _keep(name: str, candidate: Candidate, count: int) -> None:
    facts = {"signature": candidate.signature, "choice": candidate.choice, "count": count}
    cache.keep(_path(name, candidate), json.dumps(facts).encode())


def require_same_version(made_by: str) -> None:
    """Refuse work of another Towline.

    Raises:
        EnvironmentMissing: this one is not of that version.
    """
    if made_by != version():
        raise EnvironmentMissing(
            f"has Towline {version()}, not {made_by}",
            where=f"worker on {socket.gethostname()}",
            hint="install the same Towline on every worker",
        )


def version() -> str:
    """Of this Towline, as it is installed."""
    try:
        return metadata.version("towline")
    except metadata.PackageNotFoundError:
        return "unknown"


# -- where to measure -----------------------------------------------------------------------------------


def local(jobs: int | None = None) -> Executor:
    """`jobs` candidates at a time (default: one a core), each in processes of its own; a context manager.

    Threads suffice: they only wait for a compiler, a linker and an emulator.
    """
    return ThreadPoolExecutor(max_workers=jobs or os.cpu_count())


def share(pool: Executor, value: Any) -> Any:
    """What to submit to a pool instead of a large argument of many tasks, so that workers receive it once.

    Args:
        pool: of `local` or `dask`.
        value: is pickled for workers elsewhere, and left as it is for threads.
    """
    client = getattr(pool, "_client", None)  # Dask's executor has no method for it
    return value if client is None else client.scatter(value, broadcast=True, hash=False)


@contextlib.contextmanager
def dask(address: str) -> Iterator[Executor]:
    """All workers of the Dask scheduler at `address` ("tcp://host:8786").

    Raises:
        EnvironmentMissing: the extra is not installed, or a worker lacks Towline.
        DeviceMissing: no scheduler answers, or it has no worker.
        DeviceFailed: the scheduler went away, or workers keep dying.
    """
    distributed = extras.require("distributed", extra="tune")
    # What its client logs, tracebacks included, is raised as well.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as problem:
        raise DeviceMissing(
            f"no Dask scheduler answers: {problem}",
            where=address,
            hint="start one with `dask scheduler`; its address looks like tcp://host:8786",
        ) from problem
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as problem:
            raise DeviceMissing(
                "the Dask scheduler has no worker",
                where=address,
                hint=f"on every machine, with Towline installed: dask worker {address}",
            ) from problem
        pool = client.get_executor(pure=False)
        try:
            yield pool
        except (ImportError, RuntimeError) as problem:
            # The scheduler reads tasks too, and reports what it cannot import as the cause of a RuntimeError.
            missing = problem if isinstance(problem, ImportError) else problem.__cause__
            if not isinstance(missing, ImportError):
                raise
            raise EnvironmentMissing(
                f"the scheduler or a worker cannot import what it needs: {missing}",
                where=address,
                hint=f"install the same Towline on all of them: {extras.install('compile', 'tune')}",
            ) from problem
        except (CancelledError, distributed.scheduler.KilledWorker) as problem:
            raise DeviceFailed(
                "the scheduler or its workers were lost",
                where=address,
                hint="start them, and run the command again: `towline tune` keeps its counts",
            ) from problem
        finally:
            pool.shutdown(wait=False)

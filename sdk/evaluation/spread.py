"""Items spread over processes or Dask workers; the records are the same whatever computes them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sdk import files, toolchain, tuner
from sdk.child import Child
from sdk.errors import DeviceFailed, UsageError
from sdk.evaluation.compute import Evaluator, Job, Record
from sdk.evaluation.data import Item
from sdk.evaluation.worker import framed, received
from sdk.importers.onnx_file import read_onnx

Done = Callable[[int, int], None]
"""Called with the items that are done, and their number."""

PART = 16
"""Items that a Dask worker is given at once: it opens the models and the device for each part."""

WAITING = 64
"""Parts that are sent before the first of them is answered: pictures travel with them."""

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def here(job: Job, items: Sequence[Item], done: Done) -> list[Record]:
    """In this process, one after the other: for a real device, which one process owns."""
    records = []
    with Evaluator(job) as evaluator:
        for item in items:
            records.append(evaluator.evaluate(item))
            done(len(records), len(items))
    return records


# -- processes of this machine ----------------------------------------------------------------------------


def local(job: Job, items: Sequence[Item], jobs: int, done: Done) -> list[Record]:
    """In `jobs` processes, each with a session of its own; none is left behind."""
    records: list[Record | None] = [None] * len(items)
    answers: queue.SimpleQueue[tuple[int, Record | Exception]] = queue.SimpleQueue()
    numbers, lock = iter(range(len(items))), threading.Lock()

    def serve(worker: Child) -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                with worker.exchange(framed(items[number])):
                    answer = received(worker.receive)
            except Exception as problem:
                answer = problem
            answers.put((number, answer))
            if isinstance(answer, Exception):
                return

    with ExitStack() as ends:
        for _ in range(min(jobs, len(items))):
            worker = ends.enter_context(_worker(job))
            threading.Thread(target=serve, args=(worker,), daemon=True).start()
        for count in range(len(items)):
            number, answer = answers.get()
            if isinstance(answer, Exception):
                raise answer
            records[number] = answer
            done(count + 1, len(items))
    return [record for record in records if record is not None]


@contextmanager
def _worker(job: Job) -> Iterator[Child]:
    """A worker process; killed at the end."""
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    process = toolchain.launch(
        [sys.executable, "-c", "from sdk.evaluation import worker; worker.main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | dict.fromkeys(ONE_THREAD, "1") | {"PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C is for this process, which ends them
    )
    worker = Child(process, _died)
    try:
        with worker.exchange(framed(job)):
            pass
        yield worker
    finally:
        worker.close()


def _died(status: str) -> DeviceFailed:
    return DeviceFailed(
        f"a process that evaluates ended (exit status {status})",
        hint="give fewer --jobs if memory is short; else run one input with `towline run`",
    )


# -- machines of a Dask scheduler -------------------------------------------------------------------------


def remote(job: Job, items: Sequence[Item], pool: Executor, done: Done) -> list[Record]:
    """On the workers of `tuner.dask`; models and pictures are sent to them.

    Raises:
        UsageError: a model is too large to be sent.
        EnvironmentMissing: a worker has another Towline.
    """
    models = tuner.share(
        pool, {path: _contents(path) for path in (job.network, job.real, job.model) if path is not None}
    )
    size = len(items) if job.sequence else PART
    parts = [items[start : start + size] for start in range(0, len(items), size)]
    records: list[list[Record]] = [[] for _ in parts]
    waiting: dict[Future[list[Record]], int] = {}
    numbers = iter(range(len(parts)))
    finished = 0
    try:
        while True:
            for number in itertools.islice(numbers, WAITING - len(waiting)):
                part = parts[number]
                future = pool.submit(evaluate_part, tuner.version(), job, part, models, _pictures(part))
                waiting[future] = number
            if not waiting:
                return [record for part in records for record in part]
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                number = waiting.pop(future)
                records[number] = future.result()
                finished += len(parts[number])
                done(finished, len(items))
    except BaseException:
        for future in waiting:
            future.cancel()
        raise


def evaluate_part(
    made_by: str,
    job: Job,
    items: Sequence[Item],
    models: Mapping[str, bytes],
    pictures: Mapping[str, bytes],
) -> list[Record]:
    """What a Dask worker does.

    Args:
        made_by: the version of Towline that asks.
        job: with paths of the asking machine.
        items: likewise.
        models: what is in the job's files.
        pictures: what is in the items'.

    Raises:
        EnvironmentMissing: another Towline is installed here.
    """
    tuner.require_same_version(made_by)
    with files.scratch_directory() as directory:
        copies: dict[str | None, str] = {}
        for number, (path, data) in enumerate({**models, **pictures}.items()):
            copy = directory / f"{number}{Path(path).suffix}"
            copy.write_bytes(data)
            copies[path] = str(copy)
        local = dataclasses.replace(
            job, network=copies[job.network], real=copies.get(job.real), model=copies.get(job.model)
        )
        with Evaluator(local) as evaluator:
            return [
                evaluator.evaluate(dataclasses.replace(item, picture=copies.get(item.picture, item.picture)))
                for item in items
            ]


def _pictures(items: Sequence[Item]) -> dict[str, bytes]:
    """What is in the pictures; one that cannot be read is left out, and skipped by the worker."""
    result = {}
    for item in items:
        if item.picture:
            with contextlib.suppress(OSError):
                result[item.picture] = Path(item.picture).read_bytes()
    return result


def _contents(path: str) -> bytes:
    """A file as it is sent; an ONNX model with the external data it may have."""
    if not path.endswith(".onnx"):
        return Path(path).read_bytes()
    try:
        return bytes(read_onnx(path).SerializeToString())
    except ValueError as problem:  # protobuf's own limit
        raise UsageError(
            "exceeds the 2 GB that can be sent to other machines", where=path, hint="leave out --scheduler"
        ) from problem

"""Every emulated board of a process, and of the processes that it starts, adds to one file: TOWLINE_COVERAGE.

The file is of one build, that of the board that begins it; boards that run anything else are ignored.
What a process has executed is added when it ends; one that is killed adds nothing.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from multiprocessing import util
from pathlib import Path

from emulator.coverage.data import Coverage
from emulator.coverage.recording import Recording, Started
from sdk import settings
from sdk.errors import InvalidInput, OutputFailed, TowlineError

log = logging.getLogger(__name__)


class _File:
    """The boards of this process, and what they add to a file.

    Args:
        path: of the file.

    Raises:
        InvalidInput: it is not a coverage file.
        OutputFailed: its directory does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        hint = f"{settings.COVERAGE.name} names it: unset that, or name another file"
        if not path.parent.is_dir():
            raise OutputFailed("cannot be written: there is no such directory", where=str(path), hint=hint)
        try:
            self._build = Coverage.read(path).build if path.exists() else None
        except InvalidInput as problem:
            raise InvalidInput(problem.message, where=str(path), hint=hint) from None
        self._boards: list[tuple[weakref.ref[Started], Recording]] = []
        self._sum: Coverage | None = None
        self._lock = threading.Lock()

    def record(self, board: Started, image: str) -> None:
        recording = Recording(board, self._build, image)
        with self._lock:
            self._build = self._build or recording.build
            self._boards.append((weakref.ref(board), recording))
            self._collect([entry for entry in self._boards if entry[0]() is None])

    def flush(self) -> None:
        with self._lock:
            self._collect(self._boards)
            done, self._sum = self._sum, None
        if done is not None:
            try:
                done.add_to(self._path)
            except TowlineError as problem:
                log.warning("coverage is lost: %s", problem)

    def _collect(self, done: list[tuple[weakref.ref[Started], Recording]]) -> None:
        """Add up what these have executed, and drop them."""
        self._boards = [entry for entry in self._boards if entry not in done]
        for _, recording in done:
            taken = recording.taken()
            if taken is None or taken.build != self._build:
                continue
            if self._sum is None:
                self._sum = taken
            else:
                self._sum.add(taken)


_files: dict[Path, _File] = {}


def record(board: Started, image: str) -> None:
    """Record a board that has not run yet, if TOWLINE_COVERAGE names a file.

    Args:
        board: a weak reference to it must be possible.
        image: what to call its code.

    Raises:
        InvalidInput: the file is not a coverage file.
        OutputFailed: its directory does not exist.
    """
    name = settings.COVERAGE.value()
    if not name:
        return
    path = Path(name).absolute()
    if not _files:
        # Unlike atexit, this happens at the end of the processes of multiprocessing too.
        util.Finalize(None, flush, exitpriority=0)
    if path not in _files:
        _files[path] = _File(path)
    _files[path].record(board, image)


def flush() -> None:
    """Add what this process has executed so far to its file, boards that are still running included."""
    for file in _files.values():
        file.flush()


def begin(build: str, image: str) -> None:
    """Make the file one of this build, regardless of which board runs first, and in all child processes.

    Raises:
        InvalidInput: it exists, and is of another build, or is not a coverage file.
        OutputFailed: it cannot be written.
    """
    if name := settings.COVERAGE.value():
        os.environ[settings.COVERAGE.name] = str(Path(name).absolute())
        Coverage(build, image).add_to(Path(name))


os.register_at_fork(after_in_child=lambda: _files.clear())  # what the parent has executed is the parent's

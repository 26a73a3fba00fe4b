"""What the user sees: results on stdout, everything else on stderr.

A command returns a `Result`; the `Console` prints it, as text or, with `--json`, as one document:

    {"schema": 1, "ok": true, "result": {...}}
    {"schema": 1, "ok": false, "error": {"code", "message", "hint"}}

A failed comparison has both: `ok` is false, and `result` says what was measured. Progress bars
appear only where stderr is a terminal and rich is installed.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from sdk.errors import OutputFailed, TowlineError
from sdk.tables import Cell as Cell
from sdk.tables import stderr_width as stderr_width
from sdk.tables import table as table

SCHEMA = 1
INTERRUPTED = 130  # 128 + SIGINT, as shells count


@dataclass(frozen=True)
class Result:
    """What a command found.

    Attributes:
        document: the `result` of the JSON document: plain values, numpy scalars and arrays, paths.
        text: the same as text.
        failure: set if the command did its work and the outcome is a failure: it decides the exit code.
    """

    document: Mapping[str, Any]
    text: str
    failure: TowlineError | None = None


def seconds(stages: Mapping[str, float]) -> str:
    """Stages and their wall seconds as a table, with the sum."""
    return table(("stage", "seconds"), [*stages.items(), ("total", sum(stages.values()))])


def size(count: int) -> str:
    """A number of bytes as text: "1.4 MB"."""
    if count < 1000:
        return f"{count} bytes"
    unit = min(int(math.log10(count)) // 3, 3)
    return f"{count / 1000**unit:.1f} {('', 'kB', 'MB', 'GB')[unit]}"


def plural(count: int, what: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def dumps(document: Mapping[str, Any], *, line: bool = False) -> str:
    """Strict JSON in ASCII, whatever the locale: numpy values become plain ones, NaN and infinity null.

    Args:
        document: what to write.
        line: in one line.
    """
    return json.dumps(_plain(document), indent=None if line else 2, allow_nan=False)


def success(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA, "ok": True, "result": result}


def failure(error: TowlineError, result: Mapping[str, Any] | None = None) -> dict[str, Any]:
    problem = {"code": error.code, "message": str(error), "hint": error.hint}
    document = {"schema": SCHEMA, "ok": False, "error": problem}
    return document if result is None else document | {"result": result}


class Console:
    """Stdout for the result, stderr for the rest; a context manager that removes its bars.

    Args:
        json: print documents instead of text.
        verbose: 0, 1 for details, 2 for tracebacks too.

    Attributes:
        lines: print each document in a line of its own, for commands that print several.
    """

    def __init__(self, *, json: bool = False, verbose: int = 0) -> None:
        self.json = json
        self.verbose = verbose
        self.lines = False
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Console:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_progress()

    def note(self, text: str) -> None:
        """Something the user should know, on stderr."""
        self._log(f"towline: {text}")

    def warn(self, text: str) -> None:
        self._log(f"towline: warning: {text}")

    def detail(self, text: str) -> None:
        """As `note`, with `-v` only."""
        if self.verbose:
            self.note(text)

    def progress(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` steps of a stage are done; on a terminal only."""
        if stage not in self._tasks:
            self.detail(stage)
            if self._bars is None and sys.stderr is not None and sys.stderr.isatty():
                self._bars = _start_bars()
            self._tasks[stage] = self._bars.add_task(stage, total=total) if self._bars else None
        if self._bars:
            self._bars.update(self._tasks[stage], completed=done, total=total)

    def end_progress(self) -> None:
        if self._bars:
            self._bars.stop()
        self._bars, self._tasks = None, {}

    def finish(self, result: Result) -> int:
        """Print a result; the exit code."""
        bad = result.failure
        if self.json:
            document = success(result.document) if bad is None else failure(bad, result.document)
            self._print(dumps(document, line=self.lines))
        else:
            self._print(result.text)
            if bad is not None:
                self._explain(bad)
        return 0 if bad is None else bad.exit_code

    def fail(self, error: TowlineError) -> int:
        """Print an error; the exit code."""
        if self.json:
            self._print(dumps(failure(error), line=self.lines))
        else:
            self._explain(error)
        if self.verbose > 1:
            self._log("".join(traceback.format_exception(error)).rstrip())
        return error.exit_code

    def _explain(self, error: TowlineError) -> None:
        self._log(f"towline: error: {error}")
        if error.hint:
            self._log(f"  hint: {error.hint}")

    def _log(self, text: str) -> None:
        # A closed stderr must not hide the result, nor the exit code.
        if sys.stderr is None:
            return
        with contextlib.suppress(OSError):
            if self._bars:
                self._bars.console.print(text, markup=False, highlight=False)
            else:
                print(text, file=sys.stderr, flush=True)

    def _print(self, text: str) -> None:
        self.end_progress()
        if not text:
            return
        try:
            write_stdout(text + "\n")
        except OutputFailed:
            self.json = False  # further output goes to stderr
            raise


def tolerate_any_text() -> None:
    """Let stdout and stderr escape what their encoding lacks: names of files may hold anything."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def write_stdout(text: str) -> None:
    """Write to stdout, flushed; a reader that has gone away (`| head`) is not an error.

    Raises:
        OutputFailed: the disk behind stdout is full.
    """
    if sys.stdout is None:  # closed before we started
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_stdout()
    except OSError as problem:
        _abandon_stdout()
        raise OutputFailed(f"cannot be written: {problem.strerror}", where="standard output") from problem


def _abandon_stdout() -> None:
    """Point stdout nowhere, so that the interpreter's own flush at exit does not complain again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _start_bars() -> Any:
    try:
        from rich.console import Console as RichConsole
        from rich.progress import Progress
    except ImportError:  # the bare run-time install has no bars
        return None
    bars = Progress(console=RichConsole(stderr=True), transient=True)
    bars.start()
    return bars


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # numpy's arrays and scalars, known without importing numpy
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value

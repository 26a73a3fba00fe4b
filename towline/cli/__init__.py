"""The command line: `towline VERB ...`, one module a verb.

A verb's module declares SUMMARY and EXAMPLE, adds its arguments in `configure`, and in `run` does the work
and returns a `sdk.report.Result`. Everything common is here: parsing, `--json`, errors and exit codes
(0 done, 1 failed, 2 usage, 3 something to install, 130 interrupted).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

from sdk.errors import InternalError, TowlineError, UsageError
from sdk.report import INTERRUPTED, Console, Result, tolerate_any_text, write_stdout
from sdk.settings import SETTINGS
from towline._version import __version__
from towline.cli import (
    bench,
    compile,
    debug,
    demo,
    devices,
    doctor,
    emulate,
    export,
    firmware,
    gpu,
    inspect,
    quantize,
    run,
    targets,
    tune,
)
from towline.cli.options import add_verb


class Verb(Protocol):
    """What a verb's module offers."""

    SUMMARY: str
    EXAMPLE: str

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace, console: Console) -> Result: ...


VERBS: Mapping[str, Verb] = {
    "quantize": quantize,
    "compile": compile,
    "run": run,
    "export": export,
    "tune": tune,
    "debug": debug,
    "inspect": inspect,
    "targets": targets,
    "devices": devices,
    "emulate": emulate,
    "firmware": firmware,
    "gpu": gpu,
    "bench": bench,
    "doctor": doctor,
    "demo": demo,
}


class Interrupted(TowlineError):
    """The user pressed Ctrl-C."""

    code = "interrupted"
    exit_code = INTERRUPTED


class Parser(argparse.ArgumentParser):
    """argparse that raises what the rest of Towline raises, and takes options by their full names only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"see `{self.prog} --help`")

    def print_help(self, file: object = None) -> None:
        """To stdout, and never an error for a reader that went away."""
        write_stdout(self.format_help())


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="towline",
        description=_description(),
        epilog=_environment(),
        formatter_class=argparse.RawTextHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"towline {__version__}")
    verbs = top.add_subparsers(metavar="VERB", title="verbs", required=True)
    for name, verb in VERBS.items():
        sub = add_verb(verbs, name, verb.SUMMARY, verb.EXAMPLE)
        verb.configure(sub)
        sub.add_argument("--json", action="store_true", help="print one JSON document instead of text")
        sub.add_argument(
            "-v", "--verbose", action="count", default=0, help="say more on stderr; twice: tracebacks too"
        )
        sub.set_defaults(verb=verb)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Needed before parsing: a wrong command line is answered in JSON too.
    console = Console(json="--json" in arguments)
    tolerate_any_text()
    try:
        with console:
            args = parser().parse_args(arguments)
            console.json, console.verbose = args.json, args.verbose
            return console.finish(args.verb.run(args, console))
    except TowlineError as error:
        return _fail(console, error)
    except KeyboardInterrupt:
        return _fail(console, Interrupted("interrupted; nothing half-written is left"))
    except SystemExit as ended:  # --help and --version
        return int(ended.code or 0)
    except Exception as problem:
        bug = InternalError(
            f"{type(problem).__name__}: {problem}",
            hint="this is a bug in Towline: please report it, with what the command prints with -vv",
        )
        bug.__cause__ = problem
        return _fail(console, bug)


def _fail(console: Console, error: TowlineError) -> int:
    try:
        return console.fail(error)
    except TowlineError as second:  # stdout cannot be written either
        return console.fail(second)


def _description() -> str:
    return (
        "Puts a quantised network on the DSP and GPU of a phone or car, and on a GPU plugged in over USB.\n"
        "`towline demo` shows the whole way; `towline VERB --help` has an example of each step."
    )


def _environment() -> str:
    """What environment variables there are, folded to the terminal's width."""
    column = max(len(setting.name) for setting in SETTINGS) + 4
    width = max(shutil.get_terminal_size().columns - 2 - column, 30)
    lines = ["environment:"]
    for setting in SETTINGS:
        first, *others = textwrap.wrap(f"{setting.meaning} (default: {setting.default})", width)
        lines += [f"  {setting.name}".ljust(column) + first, *(" " * column + other for other in others)]
    return "\n".join(lines)

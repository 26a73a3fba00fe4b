"""The command line: `towline VERB ...`, one module a verb.

A verb's module declares EXAMPLE, adds its arguments in `configure`, and in `run` does the work and returns a
`sdk.report.Result`; it is imported when its verb is used, and `towline --help` imports none. Everything
common is here: parsing, `--json`, errors and exit codes (0 done, 1 failed, 2 usage, 3 something to install,
130 interrupted).
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from sdk.errors import InternalError, TowlineError, UsageError
from sdk.report import INTERRUPTED, Console, Result, tolerate_any_text, write_stdout
from sdk.settings import SETTINGS
from sdk.suggestions import did_you_mean
from towline.cli.options import add_verb

VERBS: Mapping[str, str] = {
    "quantize": "quantise a float ONNX model to int8, calibrated on pictures or arrays",
    "compile": "compile an ONNX or TFLite model for a target",
    "run": "run a compiled network on pictures or arrays (a .tow holds code: run only those you trust)",
    "push": "run a compiled network on a phone by adb or ssh: check it, time it (nothing is installed there)",
    "stream": "run a compiled network on frames, at a rate, through the device's failures",
    "eval": "evaluate a compiled network on a folder of pictures: float model, reference, target",
    "export": "write a network as C: sources, weights, header, Makefile and a program around it",
    "sign": "sign a compiled network or a firmware image with an ssh key",
    "verify": "check who signed a compiled network or a firmware image",
    "tune": "measure which kernel variants of a target cost a network least",
    "debug": "compare a compiled network layer by layer: target, reference, onnxruntime, float",
    "inspect": "show what a model or a compiled network holds, and which targets take it",
    "targets": "list the installed targets",
    "devices": "list the devices that networks can run on",
    "emulate": "run a firmware image on the emulated USB-to-PCIe bridge",
    "firmware": "build, write, test and inspect firmware of the USB bridge",
    "gpu": "check and show the AMD GPU behind a bridge; list, capture and replay its kernels",
    "zoo": "list the networks that come with Towline, or write one as ONNX",
    "bench": "count what one inference costs, layer by layer",
    "doctor": "check every external tool and Python package, and show how to install what is missing",
    "demo": "quantise, compile and run a digit classifier on the emulated DSP and GPUs, and check every step",
    "completion": "print a completion script for a shell",
}
"""Name and summary. The verb's module is `towline.cli.NAME`."""


class Verb(Protocol):
    """What a verb's module offers."""

    EXAMPLE: str

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace, console: Console) -> Result: ...


class Interrupted(TowlineError):
    """The user pressed Ctrl-C."""

    code = "interrupted"
    exit_code = INTERRUPTED


class Parser(argparse.ArgumentParser):
    """argparse that raises what the rest of Towline raises, and takes options by their full names only.

    For a misspelt verb, option or choice the error suggests the nearest one.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        self._given: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's; what was given is kept for `error`."""
        self._given = [*args] if args is not None else sys.argv[1:]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=self._hint(self._misspelt()))

    def refuse(self, rest: Sequence[str]) -> NoReturn:
        """Refuse arguments that this parser does not have."""
        self.error(f"unknown arguments: {' '.join(rest)}")

    def print_help(self, file: object = None) -> None:
        """To stdout; a reader that went away is not an error."""
        write_stdout(self.format_help())

    def _hint(self, suggestion: str) -> str:
        return "; ".join(filter(None, [suggestion, f"see `{self.prog} --help`"]))

    def _misspelt(self) -> str:
        """A suggestion for the first option given that does not exist; or ""."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        for text in self._given:
            name = text.partition("=")[0]
            if name.startswith("--") and name != "--" and name not in options:
                return did_you_mean(name, options)
        return ""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        name = "/".join(action.option_strings) or action.metavar or action.dest
        raise UsageError(
            f"{value!r} is not a {name}; choose from {', '.join(known)}",
            hint=self._hint(did_you_mean(str(value), known)),
        )


class _Help(argparse.HelpFormatter):
    """The verbs in one column, which argparse measures without their indent; the epilog as it is written."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = max(map(len, VERBS)) + 2 * self._indent_increment

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class _Version(argparse.Action):
    """`--version`; reading the installed package's metadata takes a moment, so only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from towline._version import __version__

        write_stdout(f"towline {__version__}\n")
        parser.exit()


def parser(verbs: Collection[str] = tuple(VERBS)) -> Parser:
    """The whole command line; arguments are declared for `verbs` alone, whose modules it imports."""
    top = Parser(prog="towline", description=_description(), epilog=_environment(), formatter_class=_Help)
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    table = top.add_subparsers(metavar="VERB", title="verbs", required=True)
    for name, summary in VERBS.items():
        if name not in verbs:
            table.add_parser(name, help=summary)
            continue
        verb: Any = importlib.import_module(f"{__name__}.{name}")
        sub = add_verb(table, name, summary, verb.EXAMPLE)
        verb.configure(sub)
        sub.add_argument("--json", action="store_true", help="print JSON instead of text")
        sub.add_argument(
            "-v", "--verbose", action="count", default=0, help="print more on stderr; twice: tracebacks too"
        )
        sub.set_defaults(verb=verb)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Needed before parsing: errors of the command line are JSON too.
    console = Console(json="--json" in arguments)
    tolerate_any_text()
    try:
        with console:
            args = _parsed(arguments)
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


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments of the verb that is named first."""
    name = next((text for text in arguments if not text.startswith("-")), "")
    args: argparse.Namespace
    args, rest = parser({name}).parse_known_args(arguments)
    if rest and hasattr(args, "files") and not any(text.startswith("-") for text in rest):
        # argparse takes positional arguments from one place alone; these follow an option.
        args.files = [*args.files, *rest]
    elif rest:
        args.parser.refuse(rest)
    return args


def _fail(console: Console, error: TowlineError) -> int:
    try:
        return console.fail(error)
    except TowlineError as second:  # stdout cannot be written either
        return console.fail(second)


def _description() -> str:
    return (
        "Puts a network on the DSP and GPU of a phone or car, and on a GPU plugged in over USB. "
        "`towline demo` runs all steps; `towline VERB --help` has an example of each one."
    )


def _environment() -> str:
    """The environment variables, folded to the terminal's width."""
    column = max(len(setting.name) for setting in SETTINGS) + 4
    width = max(shutil.get_terminal_size().columns - 2 - column, 30)
    lines = ["environment:"]
    for setting in SETTINGS:
        first, *others = textwrap.wrap(f"{setting.meaning} (default: {setting.default})", width)
        lines += [f"  {setting.name}".ljust(column) + first, *(" " * column + other for other in others)]
    return "\n".join(lines)

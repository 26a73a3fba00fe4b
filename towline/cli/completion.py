"""`towline completion`: the script with which a shell completes verbs, options and names of files.

The script is static, made by shtab from the parser: completing starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from sdk.extras import require
from sdk.report import Console, Result

SHELLS = ("bash", "zsh", "tcsh")
EXAMPLE = """towline completion bash > ~/.local/share/bash-completion/completions/towline
towline completion zsh > "${fpath[1]}/_towline"
eval "$(towline completion bash)\""""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(args: argparse.Namespace, console: Console) -> Result:
    """The document: `shell`, `script`.

    Raises:
        EnvironmentMissing: shtab is not installed.
    """
    shtab = require("shtab", extra="completion")
    from sdk.targets import target_names
    from towline.cli import parser

    whole = parser()
    for action in _actions(whole):
        if action.dest == "target" and action.choices is None:
            action.choices = target_names()
        elif action.choices is None and action.nargs != 0 and action.type is None:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = shtab.complete(whole, shell=args.shell)
    return Result({"shell": args.shell, "script": script}, script.rstrip())


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of those below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)

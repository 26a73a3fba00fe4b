"""`towline targets`: what this installation can compile for."""

from __future__ import annotations

import argparse

from sdk.report import Console, Result, table
from sdk.target import get_target, target_names

EXAMPLE = "towline targets"


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace, console: Console) -> Result:
    targets = [get_target(name) for name in target_names()]
    rows = [(target.name, target.arithmetic, target.description) for target in targets]
    document = {
        "targets": [
            {"name": name, "arithmetic": arithmetic, "description": description}
            for name, arithmetic, description in rows
        ]
    }
    return Result(document, table(("target", "arithmetic", "description"), rows))

"""`towline targets`: what this installation can compile for."""

from __future__ import annotations

import argparse

from sdk.report import Console, Result, table
from sdk.target import arithmetics
from sdk.targets import get_target, target_names

EXAMPLE = "towline targets"


def configure(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace, console: Console) -> Result:
    targets = [get_target(name) for name in target_names()]
    document = {
        "targets": [
            {
                "name": target.name,
                "arithmetic": target.arithmetic,
                "arithmetics": list(arithmetics(target)),
                "description": target.description,
            }
            for target in targets
        ]
    }
    rows = [(target.name, ", ".join(arithmetics(target)), target.description) for target in targets]
    return Result(document, table(("target", "arithmetic", "description"), rows))

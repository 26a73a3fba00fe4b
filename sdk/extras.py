"""Packages beyond numpy, loaded where they are needed; a missing one is an environment error.

The core of the SDK (what runs a `.tow`) needs numpy alone. Everything else belongs to an extra of
pyproject.toml and is imported through `require`, inside the function that uses it.
"""

from __future__ import annotations

import importlib
from typing import Any

from sdk.errors import EnvironmentMissing


def require(module: str, *, extra: str = "compile") -> Any:
    """Import `module`, of the extra `extra`.

    Raises:
        EnvironmentMissing: it is not installed; the hint is the install command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        package = module.partition(".")[0]
        absent = isinstance(problem, ModuleNotFoundError) and problem.name == package
        raise EnvironmentMissing(
            f"this needs the Python package {package}, which "
            + ("is not installed" if absent else f"cannot be imported: {problem}"),
            hint=install(extra),
        ) from problem


def install(*extras: str) -> str:
    """The command that adds extras to an installed Towline, wherever it was installed from."""
    return f"pip install 'towline[{','.join(extras)}]'"

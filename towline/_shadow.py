"""Whether the five packages below are ours: their names are short, and a script's own `sdk.py` hides one."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

PACKAGES = ("sdk", "firmware", "dsp", "usbgpu", "emulator")


ENVIRONMENT = 3
"""The exit code; `sdk.errors`, which has it too, may be what is hidden."""


def require_own_packages() -> None:
    """Refuse to start with a module of another project in the place of one of our packages.

    Raises:
        ImportError: with the file that hides ours, and what to do.
        SystemExit: the same, printed, where the command `towline` is starting.
    """
    problem = _shadowed()
    if problem is None:
        return
    if _is_command():
        _refuse(problem)
    raise problem


def _shadowed() -> ImportError | None:
    home = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        place = _place(name)
        if place is not None and not place.is_relative_to(home / name):
            return ImportError(
                f"towline needs its own package {name!r}, but Python finds {place} instead; rename that "
                f"file or directory (towline's packages: {', '.join(PACKAGES)})",
                name=name,
            )
    return None


def _is_command() -> bool:
    """Whether this process is `towline` or `python -m towline`, which is "-m" until its module is found."""
    if sys.argv[:1] == ["-m"]:
        return ["-m", "towline"] in (sys.orig_argv[at : at + 2] for at in range(len(sys.orig_argv)))
    return Path(sys.argv[0] if sys.argv else "").stem == "towline"


def _refuse(problem: ImportError) -> NoReturn:
    """Print it as the command line prints errors, with no other module of ours."""
    if "--json" in sys.orig_argv:
        import json

        error = {"code": "environment", "message": str(problem), "hint": None}
        print(json.dumps({"schema": 1, "ok": False, "error": error}, indent=2))
    else:
        print(f"towline: error: {problem}", file=sys.stderr)
    raise SystemExit(ENVIRONMENT)


def _place(name: str) -> Path | None:
    """Where a package would be, or was, imported from; None if there is none."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    found = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    return None if found is None else Path(found).resolve()

"""Whether the five packages below are ours: their names are short, and a script's own `sdk.py` hides one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("sdk", "firmware", "dsp", "usbgpu", "emulator")


def require_own_packages() -> None:
    """Refuse to start with a module of another project in the place of one of our packages.

    Raises:
        ImportError: with the file that is in the way, and what to do.
    """
    home = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        place = _place(name)
        if place is not None and not place.is_relative_to(home / name):
            raise ImportError(
                f"towline needs its own package {name!r}, and Python finds {place} in its place; rename that "
                f"file or directory (towline's packages: {', '.join(PACKAGES)})",
                name=name,
            )


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

"""Names to publish under."""

from __future__ import annotations

import re

from sdk.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")


def is_name(text: str) -> bool:
    """Whether a socket may be named so."""
    return _NAME.fullmatch(text) is not None


def require_name(text: str) -> None:
    """Refuse what is not a name. Raises UsageError."""
    if not is_name(text):
        raise UsageError(
            f"{text!r} cannot be the name of a publisher",
            hint="take letters, digits, dots, dashes and underscores: 48 at most, first a letter or digit",
        )

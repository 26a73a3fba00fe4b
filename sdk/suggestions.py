"""The word that a misspelt one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable

MARGIN = 0.05
"""How much less like the word the second suggestion may be than the first."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question for an error's hint, "did you mean compile?"; "" if nothing known is like it."""
    from difflib import SequenceMatcher, get_close_matches  # only errors need it

    near = get_close_matches(word, list(known), n=3)
    likeness = [SequenceMatcher(None, word, other).ratio() for other in near]
    nearest = [other for other, ratio in zip(near, likeness, strict=True) if ratio > likeness[0] - MARGIN]
    return f"did you mean {' or '.join(nearest)}?" if nearest else ""

"""`towline run --twice`: the same inputs again, to find what depends on more than them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sdk.errors import CheckFailed
from sdk.twice import Twice

if TYPE_CHECKING:
    from sdk.artifact import Artifact

Disturb = Callable[[bool], None]


@contextlib.contextmanager
def disturbing(network: Artifact, device: str | None) -> Iterator[Disturb]:
    """What runs an emulated card's workgroups backwards the second time; opened before the card is."""
    from towline.cli.run_trace import has_board

    if not has_board(network, device):
        yield lambda second: None
        return
    from emulator import board

    boards: list[board.Board] = []

    def disturb(second: bool) -> None:
        for made in boards:
            if made.card is not None:
                made.card.shaders.backwards = second

    board.watchers.append(boards.append)
    try:
        yield disturb
    finally:
        board.watchers.remove(boards.append)


def to_json(found: Sequence[Twice]) -> dict[str, Any]:
    """The sums over inputs, and the first difference."""
    whole = Twice(
        sum(one.tensors for one in found),
        sum(one.elements for one in found),
        sum(one.scheduled for one in found),
        next((one.difference for one in found if one.difference is not None), None),
    )
    return whole.to_json()


def verdict(found: Sequence[Twice]) -> tuple[str, CheckFailed | None]:
    """The result as text, and as an error if there is a difference."""
    document = to_json(found)
    text = f"twice: {document['elements']:,} elements of {document['tensors']:,} tensors"
    if document["scheduled"]:
        text += f" and the counts of {document['scheduled']:,} layers"
    difference = document["difference"]
    if difference is None:
        return f"{text} are the same when they are run again", None
    return (
        f"{text}, the first difference in {difference['layer']}",
        CheckFailed(
            f"{difference['layer']}: {difference['what']}",
            where=f"node {difference['layer']}",
            hint="this is a race in the target: please report it with the network and the input",
        ),
    )

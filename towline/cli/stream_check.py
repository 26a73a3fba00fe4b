"""`towline stream --check` and `--torture`: every inference computed again; faults at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sdk.errors import CheckFailed
from sdk.report import table

if TYPE_CHECKING:
    from sdk.session import Session
    from sdk.stream import Inference, Recovered
    from sdk.stream.replay import Replay
    from sdk.stream.torture import Torture


class Checks:
    """Compares the inferences of a stream: at once if its clock stands still meanwhile, else behind its end.

    Args:
        session: the stream's.
        fallback: its fallback's, None without one.
        witness: gives a session to compare with; None for what `sdk.stream.replay` has by itself.
        kept: steps whose states are remembered.
        stack: closes what is opened here.
    """

    def __init__(
        self,
        session: Session,
        fallback: Session | None,
        witness: Callable[[], Session] | None,
        kept: int,
        stack: ExitStack,
    ) -> None:
        from sdk.session import Session as Opened
        from sdk.stream.replay import Replay, is_exact, require_comparable

        self._waiting: list[Inference] | None = None if session.timed else []
        self._replays: list[Replay] = []
        self.against: list[str] = []
        for by, one in (("device", session), ("fallback", fallback)):
            if one is None:
                continue
            other = None
            if by == "device" and witness is not None:
                other = stack.enter_context(witness())
                require_comparable(one.artifact, other)
            elif not is_exact(one.artifact):
                other = stack.enter_context(Opened(one.artifact, "emulated"))
            name = "the reference" if other is None else f"{other.artifact.target} on {other.device}"
            self.against.append(name)
            self._replays.append(Replay(one.artifact, by, other, kept))  # type: ignore[arg-type]

    def __call__(self, made: Inference) -> None:
        if self._waiting is not None:
            self._waiting.append(made)
            return
        for replay in self._replays:
            replay(made)

    def finish(self, progress: Callable[[str, int, int], None]) -> None:
        """Compare what has waited."""
        waiting, self._waiting = self._waiting or [], None
        for number, made in enumerate(waiting):
            self(made)
            progress("compare", number + 1, len(waiting))

    @property
    def wrong(self) -> int:
        """Inferences whose results differ."""
        return sum(len(replay.wrong) for replay in self._replays)

    def to_json(self) -> dict[str, Any]:
        """`compared`, `against`, and `outside` of layers that were compared with their definition."""
        layers = [replay.layers for replay in self._replays if replay.layers is not None]
        return {
            "compared": sum(replay.compared for replay in self._replays),
            "against": self.against,
            "outside": sum(one.outside + one.mismatches for one in layers),
        }

    def verdict(self) -> tuple[str, CheckFailed | None]:
        """In words, and as an error if something differs."""
        document = self.to_json()
        against = ", ".join(self.against)
        said = f"check: {document['compared']:,} inferences against {against}, {self.wrong:,} wrong"
        if document["outside"]:
            return said, CheckFailed(
                f"{document['outside']:,} elements of what is compared with are outside their definition",
                hint="this is a bug in the target: please report it with the network",
            )
        first = next((replay.first for replay in self._replays if replay.first is not None), None)
        if first is None:
            return said, None
        return said, CheckFailed(
            f"{self.wrong:,} of {document['compared']:,} inferences are wrong; {first}",
            hint="this is a bug in the stream or the target: please report it with the command",
        )


def torture_json(torture: Torture, recoveries: Sequence[Recovered]) -> list[dict[str, Any]]:
    """For each fault how often it was planned, and the recoveries from it."""
    return [
        {
            "fault": one.fault,
            "planned": one.planned,
            "recovered": len(one.recoveries),
            "first_ms": [round(1000 * each.first, 6) for each in one.recoveries],
        }
        for one in torture.outcomes(recoveries)
    ]


def torture_text(torture: Torture, recoveries: Sequence[Recovered]) -> str:
    """The same as a table."""
    rows = []
    for one in torture.outcomes(recoveries):
        first = [1000 * each.first for each in one.recoveries]
        middle = sorted(first)[len(first) // 2] if first else None
        cold = sum(each.kind == "cold" for each in one.recoveries)
        rows.append((one.fault, one.planned, len(first), cold, middle, max(first, default=None)))
    headers = ("fault", "planned", "recoveries", "cold", "median, ms", "longest, ms")
    return table(headers, rows, least=("cold",))


def faults_text(faults: Sequence[tuple[str, float | None]]) -> str:
    """Planned faults, and when they fired."""
    rows = [(fault, "never fired" if when is None else f"fired at {when:.6f} s") for fault, when in faults]
    return table(("fault", ""), rows)

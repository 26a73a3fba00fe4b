"""Cases of a surface in a child process, watched; what each came to stands in a journal.

The child says the number of each case before it begins and its verdict after it; so a crash or a hang has its
case. A new child goes on behind it. A campaign that was interrupted goes on from the journal.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
import resource
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from sdk.errors import EnvironmentMissing, InternalError, ToolMissing, TowlineError

GOOD = ("taken", "refused")
BAD = ("crash", "hang", "traceback", "wrong")

Case = Callable[[random.Random], "str | None"]
"""One case: None if what came in was taken and treated rightly; a sentence if the result is wrong. Raises
TowlineError where it is refused. Any other exception is a traceback that a user would see."""


@dataclass(frozen=True)
class Surface:
    """Where something from outside comes in.

    Attributes:
        name: for the command line and the table.
        what: comes in, in words, and what a case does.
        opened: prepares what cases share, in the child and a scratch directory; gives the case's function.
        seconds: that a case may take; more is a hang.
        slice: cases in the slow test, a few seconds' worth; 0 where others show the same.
    """

    name: str
    what: str
    opened: Callable[[Path], AbstractContextManager[Case]]
    seconds: float = 100.0
    slice: int = 100


@dataclass
class Tally:
    """What the cases of a campaign came to.

    Attributes:
        counts: cases by verdict (GOOD and BAD).
        found: of each bad case its number, verdict and what is known of it.
        memory: the largest resident memory of a child, in bytes.
    """

    counts: Counter[str] = field(default_factory=Counter)
    found: list[tuple[int, str, str]] = field(default_factory=list)
    memory: int = 0

    def add(self, number: int, verdict: str, detail: str) -> None:
        self.counts[verdict] += 1
        if verdict in BAD:
            self.found.append((number, verdict, detail))

    def row(self, surface: Surface) -> str:
        """A row of the table in docs/security.md."""
        counts = " | ".join(
            str(self.counts[verdict]) for verdict in (*GOOD, "crash", "hang", "traceback", "wrong")
        )
        return f"| {surface.name} | {self.counts.total()} | {counts} |"


HEAD = f"| surface | cases | taken | refused | crashes | hangs | tracebacks | wrong answers |\n{'|---' * 8}|"


def generator(surface: str, seed: int, number: int) -> random.Random:
    """The random numbers of a case."""
    return random.Random(f"{surface}/{seed}/{number}")


def verdict(case: Case, rng: random.Random) -> tuple[str, str]:
    """What one case comes to, and what is known of it."""
    try:
        wrong = case(rng)
    except InternalError:
        return "traceback", traceback.format_exc()
    except TowlineError as error:
        return "refused", str(error)
    except Exception:
        return "traceback", traceback.format_exc()
    return ("wrong", wrong) if wrong else ("taken", "")


def child(surface: Surface, seed: int, numbers: list[int], scratch: Path, pipe: Connection) -> None:
    """The cases of these numbers; each is said before and after it."""
    logging.disable(logging.CRITICAL)  # of faults and refusals there are thousands
    with ExitStack() as stack:
        try:
            case = stack.enter_context(surface.opened(scratch))
        except EnvironmentMissing as problem:
            pipe.send((-1, "missing", str(problem)))
            return
        for number in numbers:
            pipe.send((number, "begins", ""))
            pipe.send((number, *verdict(case, generator(surface.name, seed, number))))
    pipe.send((-1, "memory", str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)))


def watched(
    surface: Surface, seed: int, numbers: list[int], patience: float = 600.0
) -> Iterator[tuple[int, str, str]]:
    """(number, verdict, detail) of each case in turn; memory at the end as number -1.

    Args:
        surface, seed, numbers: the cases.
        patience: seconds for the preparation of a child.

    Raises:
        ToolMissing: the preparation needs something that is not installed.
    """
    context = multiprocessing.get_context("spawn")
    while numbers:
        ours, theirs = context.Pipe(duplex=False)
        scratch = Path(tempfile.mkdtemp(prefix="campaign-"))  # ours: a child that crashes leaves it
        process = context.Process(target=child, args=(surface, seed, numbers, scratch, theirs))
        process.start()
        theirs.close()
        current, limit = -1, time.monotonic() + patience
        try:
            while True:
                if not ours.poll(max(0.0, limit - time.monotonic())):
                    process.kill()
                    if current < 0:
                        raise TimeoutError(f"{surface.name}: no case began in {patience:.0f} s")
                    yield current, "hang", f"more than {surface.seconds:g} s"
                    break
                number, word, detail = ours.recv()
                if word == "missing":
                    raise ToolMissing(detail, where=surface.name)
                limit = time.monotonic() + surface.seconds
                if word == "begins":
                    current = number
                    continue
                yield number, word, detail
                if word == "memory":
                    current = numbers[-1]
                    break
        except EOFError:
            process.join()
            if current < 0:
                raise RuntimeError(f"{surface.name}: the preparation ended with {process.exitcode}") from None
            yield current, "crash", f"the process ended with {process.exitcode}"
        finally:
            ours.close()
            process.kill()
            process.join()
            shutil.rmtree(scratch, ignore_errors=True)
        numbers = numbers[numbers.index(current) + 1 :]


def run(
    surface: Surface, numbers: range, seed: int, journal: Path | None = None, inline: bool = False
) -> Iterator[Tally]:
    """A campaign, as far as it is after each case.

    Args:
        surface: what is tried.
        numbers: of the cases.
        seed: of the campaign.
        journal: a file with a line for each case that has ended; those are not run again.
        inline: in this process: exceptions come out.
    """
    tally, ended = Tally(), set[int]()
    if journal and journal.exists():
        for line in journal.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            if one["surface"] == surface.name and one["seed"] == seed and one["number"] in numbers:
                ended.add(one["number"])
                tally.add(one["number"], one["verdict"], one["detail"])
    rest = [number for number in numbers if number not in ended]
    yield tally
    if inline:
        with (
            tempfile.TemporaryDirectory(prefix="campaign-") as scratch,
            surface.opened(Path(scratch)) as case,
        ):
            for number in rest:
                wrong = case(generator(surface.name, seed, number))
                tally.add(number, "wrong" if wrong else "taken", wrong or "")
                yield tally
        return
    for number, word, detail in watched(surface, seed, rest):
        if word == "memory":
            tally.memory = max(tally.memory, int(detail))
            continue
        tally.add(number, word, detail)
        if journal:
            entry = {
                "surface": surface.name,
                "seed": seed,
                "number": number,
                "verdict": word,
                "detail": detail,
            }
            with journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        yield tally

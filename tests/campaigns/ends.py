"""A surface whose cases end in each way, to test the watch with. A bad end costs a process: few imports."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from sdk.errors import InvalidInput
from tests.campaigns.campaign import Case, Surface


@contextlib.contextmanager
def opened(scratch: Path) -> Iterator[Case]:
    def case(rng: Random) -> str | None:
        match rng.randrange(6):
            case 0:
                raise InvalidInput("refused")
            case 1:
                os.abort()
            case 2:
                time.sleep(60)
            case 3:
                raise KeyError("traceback")
            case 4:
                return "a wrong answer"
        return None

    yield case


ENDS = Surface("ends", "", opened, seconds=0.5)

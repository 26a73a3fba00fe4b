"""A board's CPU counts what it executes of one build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from emulator.coverage.data import Coverage, digest
from emulator.mcs51.core import Mcs51
from emulator.mcs51.opcodes import OPCODES
from firmware.asm2464pd import image

_CLOCKS = np.array([opcode.clocks for opcode in OPCODES], np.uint64)


class Started(Protocol):
    """What a recording needs of a board."""

    def on_start(self, take: Callable[[Mcs51, bytes], None], /) -> None:
        """Call `take` with the CPU and the image body, now and whenever the CPU starts with code."""


class Recording:
    """What a board executes of one build, from its power-on.

    It begins when that build starts, and ends when another one does: a board that is flashed has several.

    Args:
        board: must not have run yet.
        build: from `build_of`; that of the board's first code, if None.
        image: what to call it.
    """

    def __init__(self, board: Started, build: str | None = None, image: str = "") -> None:
        self.build = build
        self._image = image
        self._tables: tuple[memoryview, memoryview] | None = None
        self._opcodes: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._ended: Coverage | None = None
        board.on_start(self._started)

    def taken(self) -> Coverage | None:
        """What has been executed so far; None if the build has never started."""
        if self._ended is not None or self._tables is None or self.build is None:
            return self._ended
        profile, sides = self._tables
        # The profile has clocks, which are the same at every execution of an instruction.
        times = np.frombuffer(profile, np.uint64) // _CLOCKS[self._opcodes]
        return Coverage(self.build, self._image, 1, times, np.frombuffer(sides, np.uint8).copy())

    def _started(self, cpu: Mcs51, body: bytes) -> None:
        build = digest(body)
        if self.build is None:
            self.build = build
        if self._tables is not None:
            if build != self.build:
                self._ended = self.taken()
        elif build == self.build:
            banks = b"".join(image.code(body, bank)[0] for bank in (0, 1))
            self._opcodes = np.frombuffer(banks, np.uint8)
            self._tables = cpu.profile(), cpu.coverage()

"""NV12 frames: a plane of luma bytes, and behind it one of chroma, U and V by turns, at half the size.

Linux calls it V4L2_PIX_FMT_NV12. A row may be longer than the picture is wide (the stride: V4L2's
`bytesperline`), and some cameras' buffers hold more rows of luma than the picture has before chroma begins.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from sdk.errors import InvalidInput, UsageError
from sdk.graph import Array

LARGEST_FRAME = 1 << 24
"""Bytes: places in a frame are computed in float32, which holds whole numbers up to here."""

PATTERN = re.compile(r"nv12:(\d{1,5})x(\d{1,5})(?::(\d{1,5})(?::(\d{1,5}))?)?")


@dataclass(frozen=True)
class Nv12:
    """How the bytes of a frame are arranged.

    Attributes:
        width, height: of the picture, in pixels; where one is odd, chroma's half is rounded up.
        stride: bytes from a row to the next, of luma and of chroma alike: even.
        rows: of luma before chroma begins.

    Raises:
        UsageError: numbers that contradict each other, or a frame of more than 16 MiB.
    """

    width: int
    height: int
    stride: int
    rows: int

    def __post_init__(self) -> None:
        problem = ""
        if self.width < 1 or self.height < 1:
            problem = "width and height must be positive"
        elif self.stride < 2 * self.chroma_width or self.stride % 2:
            problem = f"the stride must be even, and at least {2 * self.chroma_width}"
        elif self.rows < self.height:
            problem = f"there must be at least {self.height} rows of luma"
        elif self.nbytes > LARGEST_FRAME:
            problem = f"a frame has {self.nbytes:,} bytes; the limit is {LARGEST_FRAME:,}"
        if problem:
            raise UsageError(problem, where=str(self), hint="write it like nv12:1928x1208:2048")

    @staticmethod
    def parse(text: str) -> Nv12:
        """Read `nv12:WIDTHxHEIGHT`, with `:STRIDE` and `:STRIDE:ROWS` where they differ from the picture's.

        Raises:
            UsageError: not of that form, or numbers that contradict each other.
        """
        match = PATTERN.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{text!r} is not a format of a camera",
                hint="write nv12:WIDTHxHEIGHT[:STRIDE[:ROWS]], for example nv12:1928x1208 or "
                "nv12:1928x1208:2048:1216",
            )
        width, height = int(match[1]), int(match[2])
        return Nv12(width, height, int(match[3] or width + width % 2), int(match[4] or height))

    def __str__(self) -> str:
        """As `parse` reads it, without what is the picture's own."""
        text = f"nv12:{self.width}x{self.height}"
        if self.rows != self.height:
            return f"{text}:{self.stride}:{self.rows}"
        return text if self.stride == self.width + self.width % 2 else f"{text}:{self.stride}"

    @property
    def chroma_width(self) -> int:
        """Pairs of U and V in a row."""
        return -(-self.width // 2)

    @property
    def chroma_height(self) -> int:
        """Rows of chroma."""
        return -(-self.height // 2)

    @property
    def shape(self) -> tuple[int, int]:
        """Of a frame as an array of uint8: all rows, luma's first, by the stride."""
        return self.rows + self.chroma_height, self.stride

    @property
    def nbytes(self) -> int:
        """Of a frame."""
        return self.shape[0] * self.stride

    def frame(self, data: Array | bytes | memoryview, where: str) -> Array:
        """The bytes of a frame as an array of `shape`; bytes behind it, which drivers add, are left out.

        Raises:
            InvalidInput: fewer bytes; `where` names the frame.
        """
        found = np.frombuffer(data, np.uint8)
        if len(found) < self.nbytes:
            raise InvalidInput(
                f"holds {len(found):,} bytes; a frame of {self} has {self.nbytes:,}",
                where=where,
                hint="are size, stride and rows the camera's?",
            )
        return found[: self.nbytes].reshape(self.shape)

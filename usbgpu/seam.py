"""What a compiled network needs of a GPU that is up: buffers, transfers, launches, and the streamed start.

The session is written against these protocols; `usbgpu.amd` implements them on a card behind a bridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sdk.errors import DeviceFailed


class TransferDamaged(DeviceFailed):
    """What arrived on the card, or came back, is not what was sent. It may be tried again."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message, hint="`towline gpu stress` tests cable, port, dock and card, and names the faulty one"
        )


@dataclass(frozen=True, slots=True)
class Launch:
    """One dispatch, with every address in it final.

    Attributes:
        name: of the layer, for errors and tables.
        code: GPU virtual address of the kernel's first instruction, a multiple of 256.
        rsrc1, rsrc2, rsrc3: COMPUTE_PGM_RSRC1 to 3; LDS_SIZE is filled in.
        scratch: bytes of scratch memory of a work-item.
        kernarg: the kernel argument segment.
        groups: workgroups in x, y, z.
        threads: work-items of a workgroup in x, y, z. Waves have 32.
    """

    name: str
    code: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    scratch: int
    kernarg: bytes
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]


class Buffer(Protocol):
    """Memory of the GPU.

    Attributes:
        address: GPU virtual address.
        size: bytes.
    """

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int: ...

    def free(self) -> None:
        """Free it. Idempotent."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes for `offset` of a buffer on."""

    buffer: Buffer
    offset: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Read:
    """`size` bytes of a buffer from `offset` on."""

    buffer: Buffer
    offset: int
    size: int


@dataclass(frozen=True)
class Way:
    """One of the two ways by which frames are computed.

    Attributes:
        launches: in order.
        inputs: where each piece of a frame's input goes; sizes and order are the same in both ways.
        outputs: what is read when a frame has been computed; likewise.
    """

    launches: Sequence[Launch]
    inputs: Sequence[Read]
    outputs: Sequence[Read]


class Summing(Protocol):
    """Sums memory by a kernel, for comparisons with what was sent there."""

    def launch(self, address: int, nbytes: int) -> Launch:
        """The launch that sums memory from a GPU virtual address on."""

    def sums(self, nbytes: int) -> Read:
        """Where the sums of so many bytes are, once it has run."""

    def compare(self, sent: bytes, sums: bytes) -> None:
        """Raises TransferDamaged: these are not the sums of what was sent."""


class Prepared(Protocol):
    """Launches that the GPU has already; each sees what those before it wrote."""

    def run(self, inputs: Sequence[Write], outputs: Sequence[Read]) -> list[bytes]:
        """Write the inputs, run all launches in order, read the outputs.

        Raises:
            TransferDamaged: the launches themselves, of the first run.
            DeviceFailed: a launch did not finish; the error names it.
        """

    def free(self) -> None:
        """Free what it holds on the GPU. Idempotent."""


class Overlap(Protocol):
    """Launches of several frames that the GPU has already: transfers in both directions beside compute."""

    def run(self, frames: Sequence[Sequence[bytes]]) -> Iterator[list[bytes]]:
        """Compute frames.

        Args:
            frames: the pieces of each one's input.

        Returns:
            The outputs of each, as soon as they are here. To be used to the end.

        Raises:
            DeviceFailed: a launch did not finish, or another failure; frames behind have no outputs.
        """

    def free(self) -> None:
        """Free what it holds on the GPU. Idempotent."""


class Gpu(Protocol):
    """A GPU that is up. Waits are bounded, in the device's time.

    All methods raise DeviceFailed if the device fails.

    Attributes:
        chip: its name, such as gfx1100.
    """

    @property
    def chip(self) -> str: ...

    def allocate(self, size: int, alignment: int = 256) -> Buffer:
        """Memory with any content. Raises Unsupported if there is not enough, with the sizes."""

    def upload(self, buffer: Buffer, data: bytes | memoryview, offset: int = 0) -> None:
        """Write to a buffer. What is launched afterwards sees it, as data and as code."""

    def download(self, buffer: Buffer, size: int, offset: int = 0) -> bytes:
        """Read from a buffer, once everything that was launched has ended."""

    def prepare(self, launches: Sequence[Launch]) -> Prepared:
        """Put launches on the GPU, to be run repeatedly. Raises Unsupported if there is no room."""

    def stream(
        self,
        load: Sequence[Write],
        launches: Sequence[tuple[Launch, int]],
        outputs: Sequence[Read],
        summing: Summing | None = None,
    ) -> list[bytes]:
        """Upload while launches run: each starts in turn, once its share of `load` is there.

        Args:
            load: in the order in which it is uploaded.
            launches: in order, each with how many bytes of `load`, counted from its start over all its
                pieces, must be in memory first; the counts do not decrease.
            outputs: read at the end.
            summing: for the launches themselves, if they are to be compared with what was sent.

        Raises:
            TransferDamaged: the launches.
        """

    def most_frames(self, way: Way) -> int:
        """How many frames may be computed together; 1 if transfers cannot overlap with compute."""

    def overlap(self, ways: tuple[Way, Way], frames: int) -> Overlap:
        """Put the launches of 2 to `most_frames` frames on the GPU. Raises Unsupported if there is no room.

        Args:
            ways: of frames 0, 2, ... and of frames 1, 3, ...
            frames: how many.
        """

    def profile(self, launches: Sequence[Launch]) -> Sequence[Mapping[str, int | float]]:
        """Run launches in order, one at a time; what the device reports of each: `virtual_us`, and where it
        can count them `waves`, `wave_instructions`, `wmma_instructions` and `virtual_ns`, whole nanoseconds
        of the launch alone.
        """

    def close(self) -> None:
        """Release the GPU. Idempotent."""

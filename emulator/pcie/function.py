"""The seam of the fabric: what a PCIe function offers, and what the fabric offers it.

A function is a root or switch port, a test endpoint, a GPU. The fabric hands it configuration requests and
memory requests that fall into its BARs; it reaches upstream memory as a bus master through `Upstream`.
`tests/contract/test_pcie_function.py` holds what every function must do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from mmap import mmap
from typing import Protocol

RawMemory = bytearray | mmap
"""Memory that the native TLP engine can touch. Not a memoryview: Python 3.11's garbage collector crashes on a
reference cycle through one whose buffer something else, such as the engine, holds (CPython issue 77894)."""


class Status(IntEnum):
    """Completion status (PCIe base specification, 2.2.9)."""

    SC = 0
    """Successful completion."""
    UR = 1
    """Unsupported request."""
    CRS = 2
    """Configuration request retry: not ready yet."""
    CA = 4
    """Completer abort."""


class RequestFailed(Exception):
    """A request that is not completed successfully."""

    status: Status | None = None
    """What the completion says; None if there is no completion."""


class UnsupportedRequest(RequestFailed):
    """The completer does not take this request."""

    status = Status.UR


class ConfigurationRetry(RequestFailed):
    """The function is not ready for configuration requests yet."""

    status = Status.CRS


class CompleterAbort(RequestFailed):
    """The completer took the request and failed at it."""

    status = Status.CA


class NoCompletion(RequestFailed):
    """The completer never answers; the requester's time-out ends the request."""


class Reset(Enum):
    """What kind of reset reaches a function (PCIe base specification, 6.6)."""

    PERST = "fundamental"
    HOT = "hot"
    FUNCTION = "function level"


@dataclass(frozen=True, slots=True)
class Bar:
    """A base address register.

    Attributes:
        index: 0 to 5; a 64-bit BAR takes the next index too.
        size: bytes, a power of two of at least 16.
        wide: 64-bit.
        prefetchable: as its bit in the register.
        memory: the bytes behind it, where a read or write means nothing but storage; the native TLP engine
            then reads and writes them itself. At least as long as the BAR; no part of equality.
    """

    index: int
    size: int
    wide: bool = False
    prefetchable: bool = False
    memory: RawMemory | None = field(default=None, compare=False)


class Upstream(Protocol):
    """What the fabric offers a function."""

    def dma_read(self, address: int, size: int) -> bytes:
        """Read memory upstream (the bridge's SRAM and windows).

        Raises:
            UnsupportedRequest: nothing answers there, or the function's bus mastering is off.
        """

    def dma_write(self, address: int, data: bytes) -> None:
        """Write memory upstream; posted, so that a real function gets no error.

        Raises:
            UnsupportedRequest: as for `dma_read`.
        """

    def transfer_clocks(self, size: int) -> int:
        """Clocks that a DMA of that many bytes keeps the link busy."""

    def now(self) -> int:
        """Chip clocks since power-on."""

    def schedule(self, clocks: int, action: Callable[[], None]) -> None:
        """Call `action` in that many clocks, unless the function is reset before."""

    def delay_completion(self, clocks: int) -> None:
        """While a read is being served: its completion comes that much later than usual."""


class PcieFunction(Protocol):
    """What plugs into the fabric."""

    @property
    def bars(self) -> Sequence[Bar]:
        """Its base address registers; what is behind a BAR, and its size, may change with configuration."""

    def config_read(self, offset: int, byte_enables: int) -> int:
        """A dword of configuration space; offset a multiple of 4 below 4096, bytes not enabled read 0.

        Free of side effects: the fabric reads headers itself to learn where requests go.

        Raises:
            ConfigurationRetry: not ready after a reset.
        """

    def config_write(self, offset: int, value: int, byte_enables: int) -> None:
        """Write the enabled bytes of a dword of configuration space. Raises ConfigurationRetry."""

    def read(self, bar: int, offset: int, size: int) -> bytes:
        """A memory read within a BAR; size 1 to 4096 bytes.

        Raises:
            RequestFailed: any of its kinds.
        """

    def write(self, bar: int, offset: int, data: bytes) -> None:
        """A memory write within a BAR; posted: the host gets no error. Raises RequestFailed."""

    def reset(self, kind: Reset) -> None:
        """Back to the state that kind of reset leaves."""

    def attach(self, upstream: Upstream) -> None:
        """Take the fabric's end of the seam; called once, before anything else."""

"""What the driver of a card sees of a bridge."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from firmware.asm2464pd.registers.memory import SRAM, SRAM_WINDOW
from firmware.protocol.command_list import CommandList
from firmware.protocol.operations import Failure
from sdk.clock import Clock
from sdk.errors import DeviceFailed
from sdk.telemetry.metrics import Supply, Traffic
from usbgpu.transport.emulation import Emulation

SRAM_ADDRESS = SRAM.pcie or 0
"""PCIe address of the bridge's SRAM, as a card's DMA sees it."""
SRAM_SIZE = SRAM.size
FENCES = SRAM_WINDOW.size
"""Bytes of its slot 0 in which a FENCE operation may wait for a dword."""


class ListFailed(DeviceFailed):
    """An operation of a list failed; those behind it have not run.

    Attributes:
        failure: which, why, at what address.
        values: results of the operations before it.
    """

    code = "list-failed"

    def __init__(
        self, failure: Failure, values: tuple[int | bytes, ...], *, where: str, hint: str | None = None
    ) -> None:
        super().__init__(str(failure), where=where, hint=hint)
        self.failure = failure
        self.values = values


@dataclass(frozen=True, slots=True)
class Reply:
    """The results of a list.

    Attributes:
        values: of each operation that has a result, once per round: a dword, or the bytes of a block.
        data: what its SLOT_INs transferred, in order.
    """

    values: tuple[int | bytes, ...]
    data: bytes = b""


class Bridge(Protocol):
    """The PCIe bus behind a bridge. A context manager; one thread at a time.

    Attributes:
        name: of the device, for messages.
        clock: its time; all waits of a driver go through it.
        has_lists: whether a list is one round trip; otherwise each of its operations is at least one.
        traffic: over the cable since it was opened.
    """

    name: str
    clock: Clock
    has_lists: bool

    @property
    def traffic(self) -> Traffic: ...

    @property
    def emulation(self) -> Emulation | None:
        """What is emulated; None for a real bridge, or if its backend provides none."""

    def __enter__(self) -> Self:
        """Nothing is left to do."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""

    def power(self, on: bool) -> None:
        """Switch the slot on and wait for the link, or switch it off; everything behind the bridge is reset.

        Raises:
            DeviceFailed: the link does not come up.
        """

    def plugged(self) -> tuple[str, str]:
        """Where it is plugged in, as in `usb-2-1.4`, and its serial number. Takes a few control transfers.

        Raises:
            DeviceFailed, DeviceMissing: the transport's errors.
        """

    def run(self, commands: CommandList) -> Reply:
        """Run a list, operation by operation, to its end or to the first that fails.

        A list with a SLOT_IN goes on once the host has read it, so `run` reads and answers meanwhile. What a
        list may hold beyond `CommandList`'s own limits: results of any size that RESULT_BYTES allows at once,
        any amount of payload.

        Raises:
            ListFailed: an operation failed: the card refused it, or a condition did not come true.
            DeviceFailed, DeviceMissing: the transport's errors, of a bridge that stalls or is gone.
        """

    def stream(self, commands: CommandList) -> Generator[bytes, None, Reply]:
        """Run a list as `run` does, and yield what each SLOT_IN transfers when it is here; if `has_lists`.

        What the list's later operations need has been sent by then, so that they go on while the caller works
        with it. A caller that does not take everything abandons the list.
        """

    def supply(self) -> Supply | None:
        """The supply of bridge and card as it is now; None if nothing measures it.

        May be called between lists, and while one runs in another thread: it takes no bulk transfer.

        Raises:
            DeviceFailed, DeviceMissing: the transport's errors.
        """

    def close(self) -> None:
        """Release the device; what runs behind the bridge keeps running."""

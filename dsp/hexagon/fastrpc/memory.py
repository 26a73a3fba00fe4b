"""Memory that the host and the DSP share."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from dsp.hexagon.fastrpc.node import Argument, Node
from dsp.hexagon.fastrpc.uapi import SYNC_END, SYNC_READ, SYNC_WRITE, DmaBufSync, Request


class DmaBuffer:
    """Memory that can be passed to the DSP by its descriptor; a context manager.

    From the kernel's heap for that, or where programs may not use it, as the node's driver has it.

    Args:
        node: the FastRPC node.
        nbytes: whole pages are allocated.

    Attributes:
        nbytes, descriptor: as the kernel knows it.
        argument: for calls.

    Raises:
        OSError: there is no memory, or no permission to use it.
    """

    def __init__(self, node: Node, nbytes: int) -> None:
        self._node = node
        self.nbytes = max(nbytes, 1)
        whole = -(-self.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.descriptor = node.allocate(whole)
        try:
            self._memory = node.system.map(self.descriptor, whole)
        except BaseException:
            node.system.close(self.descriptor)
            raise
        self._data: NDArray[np.uint8] | None = np.frombuffer(self._memory, np.uint8, self.nbytes)
        self.argument = Argument(int(self._data.ctypes.data), self.nbytes, self.descriptor)

    def write(self, data: bytes | memoryview) -> None:
        """Put bytes at the buffer's start."""
        with self._access(SYNC_WRITE):
            self._memory[: len(data)] = data

    def read(self) -> bytes:
        """The buffer's bytes."""
        with self._access(SYNC_READ):
            return self._memory[: self.nbytes]

    @contextlib.contextmanager
    def _access(self, direction: int) -> Iterator[None]:
        self._sync(direction)
        try:
            yield
        finally:
            self._sync(direction | SYNC_END)

    def _sync(self, flags: int) -> None:
        # The driver's own buffers are coherent, and some kernels do not implement the request for them.
        with contextlib.suppress(OSError):
            self._node.system.ioctl(self.descriptor, Request.DMA_BUF_SYNC, DmaBufSync(flags))

    def close(self) -> None:
        if self._data is not None:
            self._data = None  # it holds the mapping
            self._node.forget(self.argument)
            self._memory.close()
            self._node.system.close(self.descriptor)

    def __enter__(self) -> DmaBuffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

"""A program in a process of its own, driven over its standard streams: the device of an emulated session.

A crash in it is an error here. `sdk.toolchain` starts it: it ends with this process in every case.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator

from sdk.errors import DeviceFailed


class Child:
    """A process that answers commands, one after the other.

    Args:
        process: with pipes for stdin and stdout.
        died: the error to raise when it stopped, given its exit status as text.
        resources: what is closed after it.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        died: Callable[[str], DeviceFailed],
        resources: contextlib.ExitStack | None = None,
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._died = died
        self._resources = resources or contextlib.ExitStack()
        self._closed = False

    @contextlib.contextmanager
    def exchange(self, command: bytes) -> Iterator[None]:
        """Send a command; the block receives all of its answer.

        A child whose exchange was interrupted is closed: what is left in the pipe would be taken for the next
        answer.

        Raises:
            DeviceFailed: it is closed, or stopped.
        """
        if self._closed:
            raise DeviceFailed("the session is closed")
        try:
            self._send(command)
            yield
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
            self._stdin.flush()
        except (OSError, ValueError):  # its end, or a stream that another thread closed
            raise self._stopped() from None

    def receive(self, nbytes: int) -> bytes:
        """The next bytes of an answer.

        Raises:
            DeviceFailed: it stopped before it sent that many.
        """
        try:
            data = self._stdout.read(nbytes)
        except ValueError:
            raise self._stopped() from None
        if len(data) != nbytes:
            raise self._stopped()
        return data

    def _stopped(self) -> DeviceFailed:
        try:
            return self._died(str(self.process.wait(timeout=5)))
        except subprocess.TimeoutExpired:
            return self._died("none: it is still running")

    def close(self) -> None:
        """Kill it; closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        with self._resources:
            self.process.kill()  # it has nothing to clean up, and a thread that reads its answer goes on
            for stream in (self._stdin, self._stdout):
                with contextlib.suppress(OSError):
                    stream.close()
            self.process.wait()

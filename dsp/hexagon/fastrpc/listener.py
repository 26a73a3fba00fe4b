"""The calls that come back: the process on the DSP asks us for files and for memory.

A thread waits in `adsp_listener.next2` for the next request, and its next call of that carries the answer.
Requests go to interfaces that the DSP opens by name through `apps_remotectl`: `apps_std` for files (the
loader reads the network's object through it), `apps_mem` for its heap. Files are read-only: the network's
objects, which never touch a disk, and those in the directories of the DSP's own libraries, by plain names.

Evidence of interfaces, methods and layouts: published (Qualcomm's skels, hexagonrpc). What a DSP's loader
asks for, and how it takes a refusal: inferred from their logs.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dsp.hexagon.fastrpc.channel import Channel, DspError
from dsp.hexagon.fastrpc.marshal import EXTENDED_METHOD, Scalars, pack_outputs, unpack_call, words
from sdk.errors import DeviceFailed

HANDLE = 3
"""Of `adsp_listener`, which every process has."""
INIT2, NEXT2, GET_IN_BUFS2 = 3, 4, 5
ROOM = 64 << 10
"""Bytes for a request; a longer one is fetched in two parts."""

UNSUPPORTED = 0x14
"""AEE_EUNSUPPORTED, as a program returns it."""

log = logging.getLogger(__name__)

Handler = Callable[[bytes, Sequence[bytes], Sequence[int]], Sequence[bytes]]
"""Takes numbers, input sequences and the sizes of the outputs; returns the outputs. Refuses with OSError."""


class Listener:
    """Answers the DSP's requests from a thread of its own until its process ends.

    Args:
        channel: to the process; it must exist.
        files: objects by name.
        directories: of the DSP's libraries.
    """

    def __init__(self, channel: Channel, files: Mapping[str, bytes], directories: Sequence[Path]) -> None:
        self._channel = channel
        self._interfaces: list[tuple[str, Mapping[int, Handler]]] = [
            ("apps_remotectl", {0: self._open, 1: self._close}),
            ("apps_std", Files(files, directories).methods()),
            ("apps_mem", Heap(channel).methods()),
        ]
        self._thread = threading.Thread(target=self._serve, name="towline-fastrpc", daemon=True)

    def start(self) -> None:
        """Announce the listener and start its thread.

        Raises:
            DspError, OSError: the process on the DSP refuses one.
        """
        self._channel.call(HANDLE, INIT2, "the listener")
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Whether the thread has ended, after waiting at most that long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        # The driver forgets a call that a signal interrupts, and the DSP's request with it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        context, result, answer = 0, -1, b""
        while True:
            try:
                numbers, buffers = self._channel.call(
                    HANDLE, NEXT2, "the listener", (context, result), [answer], 4, [ROOM]
                )
                context, handle, word, needed = numbers
                request = buffers[0]
                if needed > ROOM:
                    request += self._rest(context, needed - ROOM)
            except (OSError, DspError) as end:  # the process is gone
                log.info("the listener ends: %s", end)
                return
            result, answer = self.answer(handle, Scalars.parse(word), request)

    def _rest(self, context: int, size: int) -> bytes:
        _, buffers = self._channel.call(HANDLE, GET_IN_BUFS2, "the listener", (context, ROOM), [], 1, [size])
        return buffers[0]

    def answer(self, handle: int, scalars: Scalars, request: bytes) -> tuple[int, bytes]:
        """The answer to one request: a result, 0 or an error, and the packed outputs."""
        try:
            inputs, sizes = unpack_call(request, scalars)
            numbers = inputs[0] if inputs else b""
            method = scalars.method
            if method == EXTENDED_METHOD:
                method, numbers = int.from_bytes(numbers[:4], "little"), numbers[4:]
            name, methods = self._interfaces[handle] if handle < len(self._interfaces) else ("", {})
            handler = methods.get(method)
            if handler is None or scalars.handles:
                log.info("the DSP asks for method %d of %s, which does not exist", method, name or handle)
                return UNSUPPORTED, b""
            outputs = handler(numbers, inputs[1:], sizes)
            return 0, pack_outputs([_fit(data, size) for data, size in zip(outputs, sizes, strict=True)])
        except OSError as refusal:
            return refusal.errno or errno.EIO, b""
        except (DeviceFailed, ValueError, IndexError) as damage:
            log.warning("the DSP sent a damaged request: %s", damage)
            return errno.EINVAL, b""

    # -- apps_remotectl ---------------------------------------------------------------------------------

    def _open(self, numbers: bytes, inputs: Sequence[bytes], sizes: Sequence[int]) -> Sequence[bytes]:
        """open(name, rout handle, rout dlerror, rout error)."""
        wanted = _text(inputs[0])
        for handle, (name, _) in enumerate(self._interfaces):
            if name == wanted:
                log.info("the DSP opens %s", name)
                return words(handle, 0), b""
        log.info("the DSP opens %s, which does not exist", wanted)
        return words(0, -5), f"no interface {wanted}".encode()

    def _close(self, numbers: bytes, inputs: Sequence[bytes], sizes: Sequence[int]) -> Sequence[bytes]:
        """close(handle, rout dlerror, rout error)."""
        return words(0), b""


class Files:
    """`apps_std`: files that the DSP may read.

    Args:
        files: contents by name.
        directories: searched for other names.
    """

    def __init__(self, files: Mapping[str, bytes], directories: Sequence[Path]) -> None:
        self._files = files
        self._directories = directories
        self._open: dict[int, tuple[bytes, int]] = {}
        self._next = 100

    def methods(self) -> Mapping[int, Handler]:
        """Handlers by number."""
        return {
            0: lambda _, texts, sizes: self._fopen(texts[0], texts[1]),
            2: lambda numbers, texts, sizes: self._known(numbers, ()),
            3: lambda numbers, texts, sizes: self._fclose(numbers),
            4: lambda numbers, texts, sizes: self._fread(numbers),
            8: lambda numbers, texts, sizes: self._known(numbers, [words(self._file(numbers)[2])]),
            9: lambda numbers, texts, sizes: self._fseek(numbers),
            10: lambda numbers, texts, sizes: [len(self._file(numbers)[1]).to_bytes(8, "little")],
            11: lambda numbers, texts, sizes: self._fseek(numbers + words(0, os.SEEK_SET)),
            12: lambda numbers, texts, sizes: self._feof(numbers),
            13: lambda numbers, texts, sizes: self._known(numbers, [words(0)]),
            14: lambda numbers, texts, sizes: self._known(numbers, ()),
            15: lambda _, texts, sizes: self._print(texts[0]),
            19: lambda _, texts, sizes: self._fopen(texts[2], texts[3]),
            22: lambda _, texts, sizes: [bytes([self._find(texts[0]) is not None])],
            31: lambda _, texts, sizes: self._stat(texts[0]),
        }

    def _find(self, name: bytes) -> bytes | None:
        # The loader asks for "./NAME" too. No other name with a directory in it is served.
        plain = _text(name).removeprefix("./")
        if plain in self._files:
            return self._files[plain]
        if "/" in plain or plain in ("", ".", ".."):
            return None
        for directory in self._directories:
            path = directory / plain
            if os.path.isfile(path):
                return path.read_bytes()
        return None

    def _fopen(self, name: bytes, mode: bytes) -> Sequence[bytes]:
        if not _text(mode).startswith("r") or "+" in _text(mode):
            raise OSError(errno.EACCES, "read-only")
        content = self._find(name)
        log.info("the DSP opens the file %s%s", _text(name), "" if content is not None else ": not there")
        if content is None:
            raise OSError(errno.ENOENT, "no such file")
        number, self._next = self._next, self._next + 1
        self._open[number] = (content, 0)
        return [words(number)]

    def _file(self, numbers: bytes) -> tuple[int, bytes, int]:
        number = _number(numbers, 0)
        if number not in self._open:
            raise OSError(errno.EBADF, "not open")
        return number, *self._open[number]

    def _known(self, numbers: bytes, outputs: Sequence[bytes]) -> Sequence[bytes]:
        self._file(numbers)
        return outputs

    def _fclose(self, numbers: bytes) -> Sequence[bytes]:
        del self._open[self._file(numbers)[0]]
        return ()

    def _fread(self, numbers: bytes) -> Sequence[bytes]:
        """fread(file, rout data, rout read, rout end): the words are read and end."""
        number, content, position = self._file(numbers)
        size = _number(numbers, 1)
        data = content[position : position + size]
        self._open[number] = (content, position + len(data))
        return words(len(data), len(data) < size), data

    def _feof(self, numbers: bytes) -> Sequence[bytes]:
        _, content, position = self._file(numbers)
        return [words(position >= len(content))]

    def _fseek(self, numbers: bytes) -> Sequence[bytes]:
        number, content, position = self._file(numbers)
        offset, whence = _number(numbers, 1, signed=True), _number(numbers, 2)
        base = {os.SEEK_SET: 0, os.SEEK_CUR: position, os.SEEK_END: len(content)}.get(whence)
        if base is None or base + offset < 0:
            raise OSError(errno.EINVAL, "a position before the start")
        self._open[number] = (content, base + offset)
        return ()

    def _print(self, text: bytes) -> Sequence[bytes]:
        log.info("the DSP says: %s", _text(text).rstrip())
        return ()

    def _stat(self, name: bytes) -> Sequence[bytes]:
        """stat(name, rout stat): tsz, dev, ino, mode, nlink, rdev, size, and six words of times."""
        content = self._find(name)
        if content is None:
            raise OSError(errno.ENOENT, "no such file")
        head = bytes(24) + words(stat.S_IFREG | 0o444, 1) + bytes(8) + len(content).to_bytes(8, "little")
        return [head + bytes(48)]


class Heap:
    """`apps_mem`: memory for the heap of the process on the DSP, which the kernel allocates.

    Other requests (for memory that this side sees too) are refused (guess: no process that only runs a
    network makes any).
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def methods(self) -> Mapping[int, Handler]:
        """request_map, request_unmap, and the same with 64-bit addresses."""
        return {
            0: lambda numbers, _, sizes: [words(0, self._map(_number(numbers, 2), _number(numbers, 4)))],
            1: lambda numbers, _, sizes: self._unmap(_number(numbers, 0), _number(numbers, 1)),
            2: lambda numbers, _, sizes: [
                bytes(8) + self._map(_number(numbers, 2), _long(numbers, 24)).to_bytes(8, "little")
            ],
            3: lambda numbers, _, sizes: self._unmap(_long(numbers, 0), _long(numbers, 8)),
        }

    def _map(self, flags: int, size: int) -> int:
        address = self._channel.node.grow(flags, size)
        log.info("the DSP's heap grows by %d bytes", size)
        return address

    def _unmap(self, address: int, size: int) -> Sequence[bytes]:
        self._channel.node.shrink(address, size)
        return ()


def _fit(data: bytes, size: int) -> bytes:
    """An output of the size for which the other side has room."""
    return data[:size].ljust(size, b"\0")


def _number(numbers: bytes, index: int, signed: bool = False) -> int:
    word = numbers[4 * index : 4 * index + 4]
    if len(word) < 4:
        raise ValueError(f"number {index} is missing")
    return int.from_bytes(word, "little", signed=signed)


def _long(numbers: bytes, offset: int) -> int:
    if len(numbers) < offset + 8:
        raise ValueError(f"the number at {offset} is missing")
    return int.from_bytes(numbers[offset : offset + 8], "little")


def _text(data: bytes) -> str:
    return data.split(b"\0")[0].decode("utf-8", "replace")

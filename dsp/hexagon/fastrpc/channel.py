"""Calls into the process on the DSP: `INVOKE`, with buffers laid out as qaic's stubs do."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from dsp.hexagon.fastrpc.marshal import Scalars, words
from dsp.hexagon.fastrpc.memory import DmaBuffer
from dsp.hexagon.fastrpc.node import Argument, Node
from sdk.errors import DeviceFailed

AEE = {
    0x8000_0401: ("AEE_EFAILED", "it failed"),
    0x8000_0402: ("AEE_ENOMEMORY", "out of memory"),
    0x8000_0406: ("AEE_EUNABLETOLOAD", "the object could not be loaded"),
    0x8000_040D: ("AEE_EBADSTATE", "the process on the DSP has died"),
    0x8000_040E: ("AEE_EBADPARM", "an argument was refused"),
    0x8000_0414: ("AEE_EUNSUPPORTED", "there is no such method"),
    0x8000_0415: ("AEE_EPRIVLEVEL", "the privileges are insufficient"),
    0x8000_0438: ("AEE_EINVALIDSIGNATURE", "a signature is invalid"),
    0x8000_043E: ("AEE_ENOSUCHMOD", "there is no such module"),
    0x8000_0442: ("AEE_ENOSUCHSYMBOL", "the object lacks the entry"),
    0x8000_0445: ("AEE_ENOSUCHFILE", "there is no such file"),
    0x8000_0452: ("AEE_EBADELF", "the object is not an ELF file for this DSP"),
    0x8000_0469: ("AEE_ENOROOTOFTRUST", "there is no root of trust to verify a signature with"),
    0x8000_0472: ("AEE_ECONNREFUSED", "the connection was refused"),
    0x8000_0481: ("AEE_EUNSIGNEDMOD", "the object is unsigned, and there is no test signature"),
    0x8000_0482: ("AEE_EINVALIDHASH", "the object's hash is not the signed one"),
}
"""What a DSP answers, by Qualcomm's names (evidence: published, AEEStdErr.h)."""


class DspError(DeviceFailed):
    """The DSP refused or failed a call.

    Attributes:
        result: its AEE code.
    """

    def __init__(self, result: int, what: str) -> None:
        name, meaning = AEE.get(result, ("an unlisted code", "see AEEStdErr.h"))
        super().__init__(f"the DSP answered {what} with {result:#010x}, {name}: {meaning}")
        self.result = result


class Channel:
    """Calls through a FastRPC node.

    Args:
        node: an open one.
    """

    def __init__(self, node: Node) -> None:
        self.node = node

    def call(
        self,
        handle: int,
        method: int,
        what: str,
        numbers: Sequence[int] = (),
        inputs: Sequence[bytes | DmaBuffer] = (),
        answers: int = 0,
        outputs: Sequence[int | DmaBuffer] = (),
    ) -> tuple[list[int], list[bytes]]:
        """Call a method and wait until it returns.

        Args:
            handle: the module's, as `remotectl.open` gave it, or that of a module that every process has.
            method: below 31.
            what: for errors, for example "the loading of the network".
            numbers: words that go in.
            inputs: sequences that go in; bytes are copied, DMA buffers mapped.
            answers: how many words come out.
            outputs: sequences that come out: a number of bytes, copied; or a DMA buffer, mapped.

        Returns:
            The words, and what was copied out, in order.

        Raises:
            DspError: the DSP's answer.
            OSError: the kernel's.
        """
        lengths = [len(data) if isinstance(data, bytes) else data.nbytes for data in inputs]
        rooms = [room if isinstance(room, int) else room.nbytes for room in outputs]
        first = words(*numbers, *lengths, *rooms)
        kept: list[ctypes.Array[ctypes.c_char]] = []  # until the call returns

        def copied(nbytes: int, data: bytes = b"") -> Argument:
            kept.append(ctypes.create_string_buffer(data, max(nbytes, 1)))
            return Argument(ctypes.addressof(kept[-1]), nbytes)

        def passed(data: bytes | DmaBuffer) -> Argument:
            return copied(len(data), data) if isinstance(data, bytes) else data.argument

        ingoing = [copied(len(first), first), *map(passed, inputs)] if first else []
        mine = len(kept)
        results = [copied(4 * answers)] if answers else []
        results += [copied(room) if isinstance(room, int) else room.argument for room in outputs]
        scalars = Scalars(method, len(ingoing), len(results))
        result = self.node.invoke(handle, scalars, [*ingoing, *results])
        if result:
            raise DspError(result, what)
        numbers_out = kept.pop(mine).raw if answers else b""
        sizes = (room for room in outputs if isinstance(room, int))
        read = [buffer.raw[:size] for buffer, size in zip(kept[mine:], sizes, strict=True)]
        return [int.from_bytes(numbers_out[4 * i : 4 * i + 4], "little") for i in range(answers)], read

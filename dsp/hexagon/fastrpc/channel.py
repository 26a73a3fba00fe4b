"""Calls into the process on the DSP: `INVOKE`, with buffers laid out as qaic's stubs do."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from dsp.hexagon.fastrpc.marshal import Scalars, words
from dsp.hexagon.fastrpc.system import DmaBuffer, SystemCalls
from dsp.hexagon.fastrpc.uapi import Invoke, InvokeArg, Request
from sdk.errors import DeviceFailed

NO_DESCRIPTOR = -1

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
    """A FastRPC node that is open.

    Args:
        system: the seam.
        descriptor: the node's.
    """

    def __init__(self, system: SystemCalls, descriptor: int) -> None:
        self.system = system
        self.descriptor = descriptor

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
        arguments = [_copied(first), *map(_argument, inputs)] if first else []
        ingoing = len(arguments)
        result_words = ctypes.create_string_buffer(4 * answers)
        arguments += [(result_words, 4 * answers, NO_DESCRIPTOR)] if answers else []
        copied = [ctypes.create_string_buffer(room) for room in outputs if isinstance(room, int)]
        spare = iter(copied)
        for output in outputs:
            arguments.append(
                (next(spare), output, NO_DESCRIPTOR) if isinstance(output, int) else _argument(output)
            )
        table = (InvokeArg * len(arguments))(
            *(
                InvokeArg(memory if isinstance(memory, int) else ctypes.addressof(memory), nbytes, fd, 0)
                for memory, nbytes, fd in arguments
            )
        )
        scalars = Scalars(method, ingoing, len(arguments) - ingoing)
        invoke = Invoke(handle, scalars.word, ctypes.addressof(table) if arguments else 0)
        result = self.system.ioctl(self.descriptor, Request.INVOKE, invoke)
        if result:
            raise DspError(result, what)
        answer = [int.from_bytes(result_words.raw[4 * i : 4 * i + 4], "little") for i in range(answers)]
        return answer, [buffer.raw for buffer in copied]


_Argument = tuple["ctypes.Array[ctypes.c_char] | int", int, int]
"""Memory or its address, bytes, descriptor."""


def _argument(data: bytes | DmaBuffer) -> _Argument:
    return _copied(data) if isinstance(data, bytes) else (data.address, data.nbytes, data.descriptor)


def _copied(data: bytes) -> _Argument:
    return ctypes.create_string_buffer(data, max(len(data), 1)), len(data), NO_DESCRIPTOR

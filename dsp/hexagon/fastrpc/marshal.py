"""How a call's numbers and buffers lie: scalars, and the packed buffers of calls that come back.

A call has a method and buffers, counted in its scalars: method << 24 | inputs << 16 | outputs << 8 | handles.
qaic's convention for what is in them: the first input holds the numbers that go in and the lengths of the
sequences, both ways, in words; the first output the numbers that come out; the sequences follow. Evidence:
published (Qualcomm's stubs and skels, hexagonrpc).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from sdk.errors import DeviceFailed

EXTENDED_METHOD = 31
"""In the scalars: the method's number is the first word of the first input."""


@dataclass(frozen=True)
class Scalars:
    """A call's method, and how many buffers and handles go in and out."""

    method: int
    inputs: int
    outputs: int
    handles: int = 0

    @property
    def word(self) -> int:
        return self.method << 24 | self.inputs << 16 | self.outputs << 8 | self.handles

    @staticmethod
    def parse(word: int) -> Scalars:
        """From a word; the three bits above the method are ignored."""
        return Scalars(word >> 24 & 31, word >> 16 & 255, word >> 8 & 255, word & 255)


def words(*numbers: int) -> bytes:
    """Numbers as words, negative ones as two's complement."""
    return struct.pack(f"<{len(numbers)}I", *(number & 0xFFFF_FFFF for number in numbers))


def unpack_call(data: bytes, scalars: Scalars) -> tuple[list[bytes], list[int]]:
    """The inputs of a call that came back, and the sizes of its outputs.

    Each input is its length in a word and, from the next multiple of 8 on, its bytes; then come the outputs'
    lengths.

    Raises:
        DeviceFailed: they reach beyond the data.
    """
    inputs: list[bytes] = []
    position = 0
    for _ in range(scalars.inputs):
        length, position = _word(data, position)
        if length:
            position += -position % 8
            if position + length > len(data):
                raise DeviceFailed(f"an input of {length} bytes in a call of {len(data)}")
        inputs.append(data[position : position + length])
        position += length
    sizes = []
    for _ in range(scalars.outputs):
        size, position = _word(data, position)
        sizes.append(size)
    return inputs, sizes


def pack_outputs(outputs: Sequence[bytes]) -> bytes:
    """The outputs of a call that came back, as inputs are packed."""
    packed = bytearray()
    for output in outputs:
        packed += words(len(output))
        if output:
            packed += bytes(-len(packed) % 8) + output
    return bytes(packed)


def _word(data: bytes, position: int) -> tuple[int, int]:
    if position + 4 > len(data):
        raise DeviceFailed(f"a call of {len(data)} bytes ends within a length")
    return int.from_bytes(data[position : position + 4], "little"), position + 4

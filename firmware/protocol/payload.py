"""Payload in packets, and the checksums of lists and packets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from firmware.protocol.commands import PAYLOAD_HEADER

SYNC_PACKET = bytes(PAYLOAD_HEADER.size)
"""The packet that SYNC waits for: payload with number 0 and no dwords; its checksum is 0 too."""


def payload_packets(data: bytes, packet: int) -> bytes:
    """The payload of one block write, in packets; the last one may be short."""
    each = packet - PAYLOAD_HEADER.size
    whole, rest = divmod(len(data), each)
    full = np.zeros((whole, packet), np.uint8)
    full[:, PAYLOAD_HEADER.size :] = np.frombuffer(data, np.uint8, whole * each).reshape(whole, each)
    full[:, :2] = np.arange(whole, dtype="<u2").view(np.uint8).reshape(whole, 2)
    _seal_all(full, PAYLOAD_HEADER.offset("check"))
    if not rest:
        return full.tobytes()
    last = bytearray(PAYLOAD_HEADER.pack(number=whole) + data[whole * each :])
    seal(last, PAYLOAD_HEADER.offset("check"))
    return full.tobytes() + bytes(last)


def sums(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Fletcher's two sums of each row. The second weights each byte by the number of bytes from it on."""
    weights = np.arange(rows.shape[1], 0, -1)
    first = rows.sum(axis=1, dtype=np.int64)
    second = rows @ weights
    return np.stack((first, second), axis=1).astype(np.uint8)


def _seal_all(rows: npt.NDArray[np.uint8], place: int) -> None:
    """Write the check bytes of each row at `place`, where it has zeros; see `commands.check_bytes`."""
    first, second = sums(rows).astype(np.int64).T
    weight = rows.shape[1] - place
    rows[:, place] = (-second + (weight - 1) * first) & 0xFF
    rows[:, place + 1] = (-first - rows[:, place]) & 0xFF


def seal(data: bytearray, place: int) -> None:
    """Write the check bytes of `data` at `place`, where it has zeros; see `commands.check_bytes`."""
    _seal_all(np.frombuffer(data, np.uint8)[None, :], place)

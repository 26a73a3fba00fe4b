"""What the host's memory holds of data on its way to a bridge."""

import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest

from sdk.errors import DeviceFailed
from sdk.files import Mapped
from sdk.weights import address
from usbgpu.bridge.base import PIECE, BaseBridge

PART = 300_000


class Transfer:
    done = True

    def __init__(self, data, failure=None):
        self.data, self.failure = data, failure

    def result(self):
        if self.failure is not None:
            raise self.failure
        return b""

    def cancel(self):
        pass


class Sink:
    """A transport whose transfers are over at once.

    Attributes:
        alive: the most of them that were held at a time.
    """

    name, clock = "sink", None

    def __init__(self, seen=lambda: None, fails=None):
        self.sent, self.taken, self.alive = [], 0, 0
        self.seen, self.fails = seen, fails

    def out_call(self, data, timeout):
        return SimpleNamespace(data=data)

    def submit(self, call):
        transfer = Transfer(call.data, DeviceFailed("gone") if len(self.sent) == self.fails else None)
        self.sent.append(weakref.ref(transfer))
        self.taken += len(call.data)
        self.alive = max(self.alive, sum(one() is not None for one in self.sent))
        self.seen()
        return transfer


def resident(view):
    """Bytes of a mapping that are in memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    start = f"{address(view):x}-"
    next(line for line in lines if line.startswith(start))
    return 1024 * int(next(line for line in lines if line.startswith("Rss:")).split()[1])


@pytest.mark.slow
def test_what_has_been_sent_is_not_kept(tmp_path):
    """Neither the transfers nor the pages of a mapped file that they came from."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(24 * PIECE))
    mapped = Mapped(path).view
    most = []
    sink = Sink(lambda: most.append(resident(mapped)))
    pieces = (mapped[at : at + PART] for at in range(0, len(mapped), PART))
    BaseBridge(sink).send(pieces, 1.0)
    assert sink.taken == len(mapped)
    assert len(sink.sent) == 24
    assert sink.alive <= 2
    assert max(most) <= 4 * PIECE
    assert resident(mapped) <= PART


def test_a_transfer_that_failed_ends_the_rest():
    sink = Sink(fails=2)
    with pytest.raises(DeviceFailed, match="gone"):
        BaseBridge(sink).send([bytes(PIECE)] * 10, 1.0)
    assert len(sink.sent) <= 4

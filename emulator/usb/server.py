"""What the fronts on a TCP port share: connections on loopback, transfers under way, and the passing of time.

One thread does everything, in `Server.serve`: it reads packets, hands them to the connection's protocol
(`ProtocolSession`), lets virtual time pass, and sends answers. While transfers move, the device runs as fast
as it can be emulated; while one waits, virtual time keeps to wall time, by which a real host measures its
time-outs; while none is under way it soon passes more slowly, to leave the machine to others. An emulation
slower than wall time is the business of `emulator.usb.freeze`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial

from emulator.core.clock import clocks, seconds
from emulator.usb import standard
from emulator.usb.host import FIRST_ADDRESS, Host
from emulator.usb.pump import Waiter
from emulator.usb.standard import Descriptors, EnumerationFailed
from emulator.usb.wire import Setup, Transfer
from sdk.errors import EnvironmentMissing

LOOPBACK = "127.0.0.1"
MAX_DATA = 64 << 20
"""Bytes of one packet beyond which its header is taken for garbage, and of answers that wait to be sent."""
READ_SIZE = 1 << 18
MOST_UNDER_WAY = 128 << 20
"""Bytes of the transfers that one connection may have under way; each counts for LEAST of them at least."""
LEAST = 1 << 10
MOST_PEERS = 16
"""Connections at once. One beyond takes the place of the oldest that has not sent a packet yet."""

SLICE = 1e-3
"""Virtual seconds between two checks of the sockets, at most; the end of a transfer ends it too."""
SLICE_CLOCKS = clocks(SLICE)
LEAD = 5e-3
"""Seconds that virtual time may be ahead of wall time while no transfer moves."""
DEBT = 0.1
"""Seconds that it may be behind with no transfer under way, before they are forgiven."""
GRACE = 1.0
"""Seconds for which virtual time keeps to wall time when an attached device has no transfers."""
IDLE_RATE = 0.1
"""How fast it passes after that: waiting firmware takes as much of the machine as working firmware."""
TIMED_OUT = 1.0
"""Virtual seconds after which a transfer that is cancelled counts as timed out."""
BUSY_NAP, IDLE_NAP = 1e-3, 20e-3
"""Seconds to wait for packets at a time, with transfers under way or without."""

Packets = Generator[int, bytes, None]
"""A protocol as its reader: yields how many bytes it needs, is sent them, and returns to disconnect."""
Reply = Callable[[Transfer], None]


class Refused(Exception):
    """The other side breaks the protocol, or wants what is not offered: disconnect, and report it."""


class ProtocolSession(ABC):
    """A connection's end of a protocol.

    Args:
        peer: the connection.

    Attributes:
        host: the port of the emulated device.
        pending: transfers under way, by what the other side calls them.
        attachment: which one of the device the other side has got; 0 for none.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.host = peer.server.host
        self.pending: dict[int, Transfer] = {}
        self.attachment = 0
        self._under_way = 0

    @property
    def has_device(self) -> bool:
        """Whether the device that the other side has got is still there."""
        return self.host.speed is not None and self.host.attachments == self.attachment

    @property
    def taken(self) -> bool:
        """Whether another connection has got the device."""
        return any(
            peer.session.attachment for peer in self.peer.server.peers.values() if peer is not self.peer
        )

    @abstractmethod
    def packets(self) -> Packets:
        """Read and serve what the other side sends.

        Raises:
            Refused: it is not part of this protocol.
        """

    @abstractmethod
    def link_changed(self) -> None:
        """The device has left the bus, or a device has attached, since this was called last."""

    def control(self, key: int, setup: Setup, data: bytes, reply: Reply) -> None:
        """Begin a control transfer; `reply` is called, from `serve`, when it has ended.

        Raises:
            UsageError: the length of the data is not that of the SETUP packet.
        """
        self._began(key, self.host.submit_control(setup, data, self._ended(key, reply)))

    def bulk(
        self, key: int, endpoint: int, data_or_length: bytes | int, reply: Reply, stream: int = 0
    ) -> None:
        """The same for a bulk transfer."""
        done = self._ended(key, reply)
        self._began(key, self.host.submit(endpoint, data_or_length, stream, done))

    def cancel(self, key: int) -> None:
        """The other side cancels a transfer. If that was its time-out, say what the device waits for."""
        transfer = self.pending[key]
        waited = seconds(self.host.pump.scheduler.now - transfer.submitted)
        if waited >= TIMED_OUT and (why := self.host.why(transfer.endpoint)):
            self.peer.server.say(f"a transfer was cancelled after {waited:.1f} s: {why}")
        self.host.cancel(transfer)

    def cancel_all(self) -> None:
        """Cancel everything that is under way."""
        for transfer in list(self.pending.values()):
            self.host.cancel(transfer)

    def _began(self, key: int, transfer: Transfer) -> None:
        self.pending[key] = transfer
        self.peer.server.work_began()
        self._under_way += max(transfer.length, LEAST)
        if self._under_way > MOST_UNDER_WAY:
            raise Refused(f"{self._under_way:,} bytes of transfers under way")

    def _ended(self, key: int, reply: Reply) -> Callable[[Transfer], None]:
        def finish(transfer: Transfer) -> None:
            del self.pending[key]
            self._under_way -= max(transfer.length, LEAST)
            reply(transfer)

        return partial(self.peer.server.transfer_ended, finish)


class Peer:
    """A connection: its socket, what has come of a packet, what is still to be sent.

    Args:
        server: it belongs to.
        connection: the socket, accepted.
        front: makes the session.
    """

    def __init__(
        self, server: Server, connection: socket.socket, front: Callable[[Peer], ProtocolSession]
    ) -> None:
        self.server = server
        self.socket = connection
        self.name = "{}:{}".format(*connection.getpeername())
        self.outgoing = bytearray()
        self.open = True
        self._incoming = bytearray()
        self.session = front(self)
        self._packets = self.session.packets()
        self._wanted = next(self._packets)
        self.silent = True

    def send(self, data: bytes) -> None:
        """Send, now or when the other side takes it."""
        self.outgoing += data

    def flush(self) -> None:
        """Send what the other side takes now."""
        try:
            while self.outgoing:
                del self.outgoing[: self.socket.send(self.outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self.open = False

    def read(self) -> None:
        """Read what has come, and serve the packets that are whole."""
        try:
            data = self.socket.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._incoming += data
        self.open = self.open and bool(data)
        try:
            while self.open and len(self._incoming) >= self._wanted:
                packet = bytes(self._incoming[: self._wanted])
                del self._incoming[: self._wanted]
                self.silent = False
                self._wanted = self._packets.send(packet)
                if self._wanted > MAX_DATA:
                    raise Refused(f"a packet of {self._wanted:,} bytes")
        except StopIteration:
            self.open = False
        except Refused as problem:
            self.server.say(f"{self.name}: {problem}: disconnected")
            self.open = False


@dataclass(frozen=True, slots=True)
class Work:
    """A stretch of time in which transfers were under way all the time: when it began.

    Attributes:
        wall: by `time.monotonic`.
        clock: in virtual time.
    """

    wall: float
    clock: int


class Server:
    """Serves an emulated device on a port of loopback.

    Args:
        host: the port of the device.
        port: TCP port; 0 for any that is free.
        front: makes the protocol's session for a connection.
        say: takes messages, a line at a time.

    Attributes:
        port: that it listens on.
        peers: connections, by their sockets.
        work: the present stretch of work, None if nothing is under way. Other threads may read it.

    Raises:
        EnvironmentMissing: the port is not available.
    """

    def __init__(
        self, host: Host, port: int, front: Callable[[Peer], ProtocolSession], say: Callable[[str], None]
    ) -> None:
        self.host = host
        self.say = say
        self.peers: dict[socket.socket, Peer] = {}
        self.work: Work | None = None
        self._front = front
        self._stopping = False
        self._done: deque[tuple[Reply, Transfer]] = deque()  # appended to in the thread that has the pump
        self._waiter: Waiter | None = None
        self._found: tuple[int, Descriptors] | None = None
        self._link: tuple[bool, int] = (False, 0)
        self._progress = -1  # transfers' progress, and the time and clock of the last of it
        self._quiet = Work(0.0, 0)
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((LOOPBACK, port))
        except OSError as problem:
            self._listener.close()
            reason = os.strerror(problem.errno or errno.EADDRINUSE)
            raise EnvironmentMissing(
                f"port {port} of {LOOPBACK} is not available: {reason}",
                hint="choose another one, or 0 for any that is free",
            ) from None
        self._listener.listen()
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Serve until `stop`, or Ctrl-C.

        Raises:
            TowlineError: what ended the emulation, such as a guard of the CPU.
            KeyboardInterrupt: Ctrl-C.
        """
        self._moved()
        nap = 0.0
        while not self._stopping:
            self._exchange(nap)
            self.finish_transfers()
            self._follow_link()
            nap = self._pass_time()

    def stop(self) -> None:
        """Have `serve` return soon; from any thread."""
        self._stopping = True

    def close(self) -> None:
        """Close every connection, and stop listening."""
        self._stopping = True
        for peer in list(self.peers.values()):
            self._hang_up(peer)
        self._selector.close()
        self._listener.close()

    # -- for sessions -----------------------------------------------------------------------------------

    def enumerate(self) -> Descriptors | None:
        """Reset the device and bring it to the configured state: its descriptors. None if there is none."""
        if self.host.speed is None:
            return None
        try:
            with self.working():
                found = self.host.enumerate(FIRST_ADDRESS)
            for configuration in found.configurations:
                standard.parse_configuration(configuration)
            if not found.configurations:
                raise EnumerationFailed("it has no configuration", where="device descriptor")
        except (ConnectionError, EnumerationFailed) as problem:
            self.say(f"the device cannot be enumerated: {problem}")
            return None
        self._found = self.host.attachments, found
        return found

    def descriptors(self) -> Descriptors | None:
        """Those of the device, enumerated if it has not been since it attached. None if there is none."""
        if self._found is None or self.host.speed is None or self._found[0] != self.host.attachments:
            return self.enumerate()
        return self._found[1]

    def work_began(self) -> None:
        """Transfers are under way."""
        self._moved()
        if self.work is None:
            self.work = self._quiet

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Inside, the server waits for the device, and packets are not read."""
        self.work_began()
        try:
            yield
        finally:
            self.finish_transfers()

    def transfer_ended(self, reply: Reply, transfer: Transfer) -> None:
        """Have that reply made from `serve`; called in the thread that lets time pass."""
        self._done.append((reply, transfer))
        waiter = self._waiter
        if waiter is not None:
            waiter.wake()

    def finish_transfers(self) -> None:
        """Make the replies to all transfers that have ended."""
        while self._done:
            reply, transfer = self._done.popleft()
            reply(transfer)
        if not any(peer.session.pending for peer in self.peers.values()):
            self.work = None

    # -- inside -----------------------------------------------------------------------------------------

    def _exchange(self, nap: float) -> None:
        """Send and receive what is ready; wait `nap` seconds for something, if nothing is."""
        for peer in list(self.peers.values()):
            peer.flush()
            events = selectors.EVENT_WRITE if peer.outgoing else 0
            if len(peer.outgoing) < MAX_DATA:
                events |= selectors.EVENT_READ
            self._selector.modify(peer.socket, events, peer)
        for key, events in self._selector.select(nap):
            if key.data is None:
                self._accept()
            elif events & selectors.EVENT_READ:
                key.data.read()
        for peer in list(self.peers.values()):
            if not peer.open:
                self._hang_up(peer)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone already
            return
        connection.setblocking(False)
        if len(self.peers) >= MOST_PEERS:
            silent = next((peer for peer in self.peers.values() if peer.silent), None)
            if silent is None:
                self.say(f"a connection was refused: there are {len(self.peers)}")
                connection.close()
                return
            self._hang_up(silent)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = Peer(self, connection, self._front)
        except OSError:  # the same
            connection.close()
            return
        self._selector.register(peer.socket, selectors.EVENT_READ, peer)
        self.peers[peer.socket] = peer
        self.say(f"{peer.name} is connected")
        peer.session.link_changed()

    def _hang_up(self, peer: Peer) -> None:
        peer.open = False
        peer.flush()
        del self.peers[peer.socket]
        self._selector.unregister(peer.socket)
        peer.session.attachment = 0
        peer.session.cancel_all()
        self.finish_transfers()
        with contextlib.suppress(OSError):
            peer.socket.shutdown(socket.SHUT_RDWR)
        peer.socket.close()
        self.say(f"{peer.name} has gone")
        if self._stopping:
            return
        for other in list(self.peers.values()):
            other.session.link_changed()

    def _follow_link(self) -> None:
        speed = self.host.speed
        link = (speed is not None, self.host.attachments)
        if link == self._link:
            return
        self._link = link
        self.say(f"the device is attached: {speed.value}" if speed is not None else "the device has left")
        for peer in list(self.peers.values()):
            peer.session.link_changed()

    def _moved(self) -> None:
        """Something has moved: until it stands still again, virtual time need not keep to wall time."""
        self._progress = self.host.pump.progress
        self._quiet = Work(time.monotonic(), self.host.pump.scheduler.now)

    def _pass_time(self) -> float:
        """Let some virtual time pass if it may; seconds until more may, if packets do not come first."""
        if self.host.pump.progress != self._progress:
            self._moved()
        idle = self.work is None
        elapsed = time.monotonic() - self._quiet.wall
        if idle and self.host.speed is not None and elapsed > GRACE:
            elapsed = GRACE + (elapsed - GRACE) * IDLE_RATE
        ahead = seconds(self.host.pump.scheduler.now - self._quiet.clock) - elapsed
        if idle and ahead < -DEBT:
            self._moved()
            ahead = 0.0
        if ahead + SLICE > (0.0 if idle else LEAD):
            return IDLE_NAP if idle else BUSY_NAP
        self._run()
        return 0.0

    def _run(self) -> None:
        """Let time pass until a transfer ends, at most a slice of it."""
        pump = self.host.pump
        waiter = Waiter(bounded=True)

        def begin() -> None:
            self._waiter = waiter
            pump.scheduler.after(SLICE_CLOCKS, waiter.wake)
            if self._done:
                waiter.wake()

        pump.run(begin, waiter)
        self._waiter = None

"""The plainest device behind a front on a TCP port, served in a thread; and what tests send to it raw."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from emulator.usb.host import Host
from emulator.usb.server import ProtocolSession, Server
from emulator.usb.wire import Speed
from tests.contract.loopback_function import LoopbackFunction
from tests.contract.usb_fixture import QuietWorld
from tests.usb_remote import Remote

HELLO = struct.pack("<III", 0, 68, 0) + bytes(64) + struct.pack("<I", 0b1111010)
IMPORT = struct.pack(">HHI32s", 0x0111, 0x8003, 0, b"1-1")


@dataclass
class Bench:
    host: Host
    server: Server
    function: LoopbackFunction
    said: list[str]
    errors: list[BaseException]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), 10)


@contextmanager
def bench(front: type[ProtocolSession], best: Speed = Speed.SUPER) -> Iterator[Bench]:
    world = QuietWorld()
    function = LoopbackFunction(world.clock)
    host = Host(function, world, best=best)
    host.plug()
    said: list[str] = []
    serving = Server(host, 0, front, said.append)
    found = Bench(host, serving, function, said, [])

    def serve() -> None:
        try:
            serving.serve()
        except BaseException as problem:
            found.errors.append(problem)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield found
    finally:
        serving.stop()
        thread.join(10)
        assert not thread.is_alive(), "the server hangs"
        serving.close()
        assert not found.errors


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


@contextmanager
def attached(client: Remote) -> Iterator[Remote]:
    assert client.wait_attached(10.0)
    yield client
    client.close()

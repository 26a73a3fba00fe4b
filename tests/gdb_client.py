"""A small client of the GDB remote serial protocol, for tests: packets as the manual has them."""

from __future__ import annotations

import socket


def checksum(data: bytes) -> bytes:
    return b"%02x" % (sum(data) % 256)


class GdbClient:
    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.acknowledge = True
        self.pending = b""

    def __enter__(self) -> GdbClient:
        return self

    def __exit__(self, *problem: object) -> None:
        self.socket.close()

    def ask(self, data: str | bytes) -> str:
        self.send(data)
        return self.reply()

    def send(self, data: str | bytes) -> None:
        raw = data.encode("latin-1") if isinstance(data, str) else data
        self.socket.sendall(b"$" + raw + b"#" + checksum(raw))
        if self.acknowledge:
            assert self.take(1) == b"+"

    def reply(self) -> str:
        assert self.take(1) == b"$"
        data = b""
        while (byte := self.take(1)) != b"#":
            data += byte
        assert self.take(2) == checksum(data)
        if self.acknowledge:
            self.socket.sendall(b"+")
        out = bytearray()
        escaped = False
        for byte in data:
            if byte == 0x7D and not escaped:
                escaped = True
            else:
                out.append(byte ^ 0x20 if escaped else byte)
                escaped = False
        return out.decode("latin-1")

    def interrupt(self) -> None:
        self.socket.sendall(b"\x03")

    def take(self, count: int) -> bytes:
        while len(self.pending) < count:
            data = self.socket.recv(4096)
            if not data:
                raise ConnectionError("the stub has closed the connection")
            self.pending += data
        data, self.pending = self.pending[:count], self.pending[count:]
        return data

    def monitor(self, command: str) -> str:
        answer = self.ask(b"qRcmd," + command.encode().hex().encode())
        return "" if answer == "OK" else bytes.fromhex(answer).decode()

    def register(self, number: int) -> int:
        return int.from_bytes(bytes.fromhex(self.ask(f"p{number:x}")), "little")

"""A bench for the mask ROM's boot loader: a host's half of the wire."""

from __future__ import annotations

import struct

from emulator.asm2464pd.flash_chip import FlashChip
from emulator.asm2464pd.rom import MaskRom, Restart
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler
from emulator.usb.wire import Function, Handshake, Setup, Speed
from firmware.asm2464pd.registers import ASM2464PD

IN, OUT = 0x81, 0x02


class Stalled(Exception):
    def __init__(self, endpoint: int, data: bytes = b"") -> None:
        super().__init__(f"{endpoint:#x}")
        self.endpoint = endpoint
        self.data = data


class Host:
    """A host port, and the host's half of control and bulk-only transfers; time passes while it waits."""

    def __init__(
        self, contents: bytes = b"", *, best: Speed = Speed.SUPER_PLUS, configure: bool = True
    ) -> None:
        self.clock = Scheduler()
        self.bus = Bus(ASM2464PD, self.clock)
        self.chip = FlashChip(self.clock, contents)
        self.restarts: list[Restart] = []
        self.rom = MaskRom(self.bus, self.chip, self.restarts.append)
        self.device: Function = self.rom
        self.best = best
        self.speed: Speed | None = None
        self.awake: set[int] = set()
        self.packet = 1024 if best.is_super else 512
        self.tag = 0
        self.device.connect(self)
        while self.speed is None:
            self.step()
        if configure:
            self.control(0x00, 9, 1)

    def attached(self, speed: Speed) -> None:
        self.speed = speed

    def detached(self) -> None:
        self.speed = None

    def ready(self, endpoint: int) -> None:
        self.awake.add(endpoint)

    def step(self) -> None:
        due = self.clock.next
        assert due is not None, "nothing will ever happen again"
        self.clock.now = due
        self.clock.run_due()

    def until_ready(self, endpoint: int) -> None:
        """As a host does after NAK or NRDY: nothing, until the device says so."""
        while endpoint not in self.awake:
            self.step()

    def control(
        self,
        request_type: int,
        request: int,
        value: int = 0,
        index: int = 0,
        length: int = 0,
        data: bytes = b"",
    ) -> bytes:
        self.device.setup(Setup(request_type, request, value, index, length or len(data)).pack())
        answer = b""
        if request_type & 0x80:
            size = 512 if self.best.is_super else 64
            while len(answer) < length:
                packet = self.device.control_in()
                if not isinstance(packet, bytes):
                    raise Stalled(0)
                answer += packet
                if len(packet) < size:
                    break
        elif data and self.device.control_out(data) is not Handshake.ACK:
            raise Stalled(0)
        if self.device.status() is not Handshake.ACK:
            raise Stalled(0)
        return answer

    def send(self, data: bytes) -> None:
        for start in range(0, len(data), self.packet):
            self.send_packet(data[start : start + self.packet])

    def send_packet(self, packet: bytes) -> None:
        while True:
            self.awake.discard(OUT)
            answer = self.device.bulk_out(OUT, packet)
            if answer is Handshake.ACK:
                return
            if answer is Handshake.STALL:
                raise Stalled(OUT)
            self.until_ready(OUT)

    def receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            self.awake.discard(IN)
            packet = self.device.bulk_in(IN)
            if packet is Handshake.STALL:
                raise Stalled(IN, data)
            if not isinstance(packet, bytes):
                self.until_ready(IN)
                continue
            data += packet
            if len(packet) < self.packet:
                break
        return data

    def command(
        self, cdb: bytes, *, out: bytes = b"", wanted: int = 0, direction: int | None = None
    ) -> tuple[int, bytes, int]:
        """A whole command: status, data, residue. As a driver does, it clears the STALL of a data stage."""
        self.tag += 1
        flags = direction if direction is not None else (0x80 if wanted else 0)
        length = wanted or len(out)
        self.send_packet(
            struct.pack("<IIIBBB16s", 0x43425355, self.tag, length, flags, 0, len(cdb), cdb.ljust(16, b"\0"))
        )
        data = b""
        try:
            if flags and wanted:
                data = self.receive(wanted)
            else:
                self.send(out)
        except Stalled as stall:
            data = stall.data
            self.control(0x02, 1, 0, stall.endpoint)
        try:
            status = self.receive(13)
        except Stalled:
            self.control(0x02, 1, 0, IN)
            status = self.receive(13)
        signature, tag, residue, result = struct.unpack("<IIIB", status)
        assert signature == 0x53425355
        assert tag == self.tag
        return result, data, residue

    def sense(self) -> tuple[int, int]:
        result, data, _ = self.command(bytes((0x03, 0, 0, 0, 18, 0)), wanted=18)
        assert result == 0
        return data[2] & 0xF, int.from_bytes(data[12:14], "big")

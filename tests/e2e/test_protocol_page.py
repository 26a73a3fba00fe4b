"""A host that knows the protocol from docs/protocol.md alone, on our firmware.

It reads every number of the protocol from the tables of the page. It uses pyusb, struct, and the emulator's
port and test endpoint.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import pytest
import usb.core

from emulator.board import Board
from emulator.options import Options
from emulator.usb.wire import Speed
from tests.protocol_page import Page, sealed

OUT, IN = 0x02, 0x81
TIMEOUT = 10_000
SINGLE, STREAM_WRITE, STREAM_READ = 0, 1, 2
REGISTERS, RAM, RAM_SIZE = 0x1000_0000, 0x8_0000_0000, 0x100_0000
"""Addresses for the endpoint's BARs; bus 4 is behind four bridges."""
MAGIC, SCRATCH, FENCE, FENCE_VALUE, SIGNAL = 0x4C57_4F54, 0x04, 0x2C, 0x30, 0x34
"""Of the test endpoint, emulator/pcie/endpoint.py: the value of its first register, and other registers."""
TRIGGER = 12
"""Offset of the last dword of a completion queue entry."""


class Host:
    """The host. Small numbers in it are those of the USB and PCI Express specifications."""

    def __init__(self, page: Page, device: usb.core.Device) -> None:
        self.page, self.device = page, device
        self.packet = device.get_active_configuration()[0, 0][0].wMaxPacketSize
        self.sequence = 0

    # -- EP0 --------------------------------------------------------------------------------------------

    def get(self, name: str, length: int, value: int = 0, index: int = 0) -> bytes:
        kind, code = self.page.requests[name]
        return bytes(self.device.ctrl_transfer(kind, code, value, index, length, TIMEOUT))

    def put(self, name: str, value: int = 0, index: int = 0, data: bytes = b"") -> None:
        kind, code = self.page.requests[name]
        assert self.device.ctrl_transfer(kind, code, value, index, data, TIMEOUT) == len(data)

    def tlp(self, name: str, address: int, value: int = 0, mode: int = SINGLE, enables: int = 15) -> None:
        request = self.page.layout("TLP_REQUEST").pack(
            address_low=address & 0xFFFFFFFF, address_high=address >> 32, value=value
        )
        self.put("TLP_START", enables << 8 | self.page.formats[name], mode, request)

    def completion(self) -> tuple[int, int, int]:
        """Data, completion status, and how the launch ended."""
        data, completion, _, status = struct.unpack(
            "<I", (raw := self.get("TLP_STATUS", 8))[:4]
        ) + struct.unpack(">HBB", raw[4:])
        return data, completion >> 13, status

    def config(self, bus: int, register: int, value: int | None = None) -> int:
        self.tlp(f"CFG{'RD' if value is None else 'WR'}{int(bus > 0)}", bus << 24 | register, value or 0)
        data, status, launch = self.completion()
        assert (status, launch) == (0, 0)
        return data

    def read(self, address: int) -> int:
        self.tlp(f"MRD{64 if address >> 32 else 32}", address)
        data, status, launch = self.completion()
        assert (status, launch) == (0, 0)
        return data

    def set_up_pcie(self) -> None:
        for bus in range(4):
            self.config(bus, 0x18, 4 << 16 | bus + 1 << 8 | bus)
            self.config(bus, 0x20, REGISTERS | REGISTERS >> 16)
            self.config(bus, 0x24, (RAM & 0xFFFFFFFF) + RAM_SIZE - 1 & 0xFFF00000)
            self.config(bus, 0x28, RAM >> 32)
            self.config(bus, 0x2C, RAM >> 32)
            self.config(bus, 0x04, 6)
        for register, value in ((0x10, 0), (0x14, RAM >> 32), (0x18, REGISTERS), (0x04, 6)):
            self.config(4, register, value)

    # -- lists ------------------------------------------------------------------------------------------

    def open(self, sequence: int) -> None:
        self.put("LIST", 1, sequence)
        self.sequence = sequence

    def op(self, name: str, address: int = 0, value: int = 0, count: int = 0, **extension: int) -> bytes:
        kind = self.page.operations[name]
        raw = self.page.layout("OPERATION").pack(
            opcode=kind.code, enables=15, count=count, address=address, value=value
        )
        if kind.size > len(raw):
            raw += self.page.layout("EXTENSION").pack(**extension)
        assert len(raw) == kind.size
        return raw

    def list(self, operations: Sequence[bytes]) -> bytes:
        header, trailer = self.page.layout("LIST_HEADER"), self.page.layout("LIST_TRAILER")
        body = b"".join(operations)
        length = header.size + len(body) + trailer.size
        data = header.pack(sequence=self.sequence, length=length) + body + trailer.pack()
        return sealed(data, length - trailer.size + trailer.places["check"][0])

    def payload(self, data: bytes) -> bytes:
        layout = self.page.layout("PAYLOAD_HEADER")
        room = self.packet - layout.size
        packets = [
            sealed(layout.pack(number=number) + data[start : start + room], layout.places["check"][0])
            for number, start in enumerate(range(0, len(data), room))
        ]
        return b"".join(packets)

    def padded(self, data: bytes) -> bytes:
        return data + bytes(-len(data) % self.packet)

    def write(self, data: bytes) -> None:
        assert self.device.write(OUT, data, TIMEOUT) == len(data)

    def result(self) -> tuple[bytes, dict[str, int]]:
        """The results of a list, and its trailer."""
        size = self.page.layout("RESULT_TRAILER").size
        raw = bytes(self.device.read(IN, 16 * self.packet, TIMEOUT))
        trailer = self.page.layout("RESULT_TRAILER").unpack(raw[-size:])
        assert trailer["sequence"] == self.sequence
        if trailer["cause"] < 0x20 or trailer["opcode"]:
            self.sequence = self.sequence + 1 & 0xFFFF
        return raw[:-size], trailer

    def run(self, operations: Sequence[bytes], payload: bytes = b"") -> bytes:
        """Run a list that must succeed, with its payload in one transfer; returns its results."""
        head = self.list(operations)
        self.write(self.padded(head) + payload if payload else head)
        data, trailer = self.result()
        assert self.page.causes[trailer["cause"]] == "done", trailer
        assert trailer["index"] == len(operations)
        return data

    def signal(self, address: int, value: int) -> list[bytes]:
        """Operations by which the endpoint writes a dword upstream."""
        return [
            self.op("WRITE", REGISTERS + FENCE, address),
            self.op("WRITE", REGISTERS + FENCE_VALUE, value),
            self.op("WRITE", REGISTERS + SIGNAL, 1),
        ]


def pattern(size: int) -> bytes:
    return bytes((11 * i + (i >> 8) * 3 + 5) & 0xFF for i in range(size))


@pytest.fixture(scope="module", params=[Speed.SUPER_PLUS, Speed.HIGH], ids=lambda speed: speed.value)
def host(request) -> Iterator[Host]:
    board = Board.of("firmware", Options(port=request.param, strict=True))
    device = usb.core.find(backend=board.backend(), idVendor=0xADD1, idProduct=0x0001)
    assert device is not None
    device.set_configuration()
    yield Host(Page(), device)
    board.close()


@pytest.mark.slow
def test_descriptors(host: Host):
    page, fast = host.page, host.packet == 1024
    names = {0x0100: "Device", 0x0200: "Configuration"}
    wanted = {
        code: page.bytes_after(f"{name}, at {'SuperSpeed' if fast else 'High Speed'}")
        for code, name in names.items()
    }
    wanted[0x0F00] = page.bytes_after("BOS, at every speed")
    if not fast:
        wanted[0x0600] = page.bytes_after("Device qualifier")
    for code, data in wanted.items():
        assert bytes(host.device.ctrl_transfer(0x80, 6, code, 0, 255)) == data
    strings = {int(row[0]): row[1].strip("`") for row in page.rows("| index | string |")}
    assert (host.device.manufacturer, host.device.product) == (strings[1], strings[2])
    assert len(host.device.serial_number) == 8
    assert {endpoint.bEndpointAddress for endpoint in host.device.get_active_configuration()[0, 0]} == {
        OUT,
        IN,
    }


@pytest.mark.slow
def test_info_and_refusals(host: Host):
    layout = host.page.layout("INFO")
    info = layout.unpack(host.get("INFO", layout.size))
    assert info["api_level"] == host.device.bcdDevice == host.page.limits["API_LEVEL"]
    assert (info["list_bytes"], info["result_bytes"]) == (
        host.page.limits["LIST_BYTES"],
        host.page.limits["RESULT_BYTES"],
    )
    assert info["ltssm"] == 0x78
    kind, code = host.page.requests["XDATA_WRITE"]
    for refused in (
        (0x40, 0xFD, 0, 0, b""),
        (kind, code, 0xF000, 0, b"x"),
        (kind, code, 0xF000, 0x0200, b""),
    ):
        with pytest.raises(usb.core.USBError) as caught:
            host.device.ctrl_transfer(*refused)
        assert caught.value.backend_error_code == -9  # LIBUSB_ERROR_PIPE
    host.put("XDATA_WRITE", 0xF000, 0x5A)
    assert host.get("XDATA_READ", 1, 0xF000) == b"\x5a"
    limit = 512 if host.packet == 1024 else 64
    assert len(host.get("XDATA_READ", limit + 1, 0xF000)) == limit


@pytest.mark.slow
def test_standard_requests(host: Host):
    """Each row of the table is answered, or at High Speed refused where it says so."""
    fast = host.packet == 1024
    values = {"type << 8, index": 0x0100, "any": 0x1234}
    answered = set()
    for request, kind, value, index, length, what in host.page.rows("| bRequest | bmRequestType | wValue"):
        for code in map(int, request_numbers(request)):
            if code in (5, 9):  # the operating system's, and pyusb's
                continue
            low = values.get(value) or first_number(value)
            where = {"endpoint": IN, "low byte 0": 0, "any": 0}.get(index)
            where = int(index.split(",")[0], 0) if where is None else where
            size = 18 if length == "1 or more" else int(length)
            type_ = int(kind, 16)
            data = size if type_ & 0x80 else bytes(size)
            if what.startswith("at SuperSpeed") and not fast:
                with pytest.raises(usb.core.USBError):
                    host.device.ctrl_transfer(type_, code, low, where, data, TIMEOUT)
                continue
            answer = host.device.ctrl_transfer(type_, code, low, where, data, TIMEOUT)
            assert (len(answer) if type_ & 0x80 else answer) == size, (request, kind)
            answered.add((code, type_))
            if (code, type_) == (3, 0x02):  # halted: cleared again
                assert bytes(host.device.ctrl_transfer(0x82, 0, 0, where, 2)) == b"\1\0"
                host.device.clear_halt(where)
    assert len(answered) == (15 if fast else 9)
    host.device.clear_halt(OUT)


def request_numbers(text: str) -> list[str]:
    return [part.split()[0] for part in text.split(", ")]


def first_number(text: str) -> int:
    return int(text.split()[0].rstrip(","))


@pytest.mark.slow
def test_single_requests_streams_and_slots(host: Host):
    host.set_up_pcie()
    assert host.read(REGISTERS) == MAGIC
    for address in (REGISTERS + SCRATCH, RAM + 0x40):
        wide = 64 if address >> 32 else 32
        host.tlp(f"MWR{wide}", address, 0x11223344)
        host.tlp(f"MWR{wide}", address, 0xAABBCCDD, enables=0b1001)
        assert host.read(address) == 0xAA2233DD
    host.tlp("MRD32", 0x7000_0000)
    assert host.completion()[1:] == (1, 0), "UR"
    for size in (4, host.packet, 3 * host.packet + 8):
        data = pattern(size)
        host.tlp("MWR64", RAM + 0x1000, size // 4, STREAM_WRITE)
        host.write(data)
        host.tlp("MRD64", RAM + 0x1000, size // 4, STREAM_READ)
        assert bytes(host.device.read(IN, size, TIMEOUT)) == data
    sector, slot = host.page.limits["SECTOR"], host.page.limits["SLOT_SIZE"]
    data = pattern(slot + 3 * sector)
    where = 2 << 8 | 3  # two slots from 3 on
    host.put("SRAM_DMA", len(data) // sector, where)
    host.write(data)
    host.put("SRAM_DMA", 1 << 15 | len(data) // sector, where)
    host.tlp("MWR32", REGISTERS + FENCE, host.page.windows["NVME_CQ"] + TRIGGER)
    host.tlp("MWR32", REGISTERS + FENCE_VALUE, 0)
    host.tlp("MWR32", REGISTERS + SIGNAL, 1)
    assert bytes(host.device.read(IN, len(data), TIMEOUT)) == data


@pytest.mark.slow
def test_a_list_of_every_kind(host: Host):
    host.set_up_pcie()
    host.open(0xFFFF)
    scratch = REGISTERS + SCRATCH
    op = host.op
    block, fifo = pattern(2 * host.packet), pattern(8)
    given = host.run(
        [
            op("CONFIG_WRITE", 0x18, 0x00040100),
            op("CONFIG_READ", 0x18),
            op("WRITE", scratch, 0x0F0F0F0F),
            op("MODIFY", scratch, 0xFFFFFFFF, mask=0xF0),
            op("READ", scratch),
            op("POLL", scratch, 0xFF, mask=0xFF, timeout=1000),
            op("BLOCK_WRITE", RAM, count=len(block) // 4),
            op("BLOCK_READ", RAM, count=len(block) // 4),
            op("FILL", RAM, 0x77777777, count=3),
            op("FIFO_WRITE", RAM + 4, count=2),
            op("FIFO_READ", RAM + 4, count=2),
            op("DELAY", value=50),
            op("XDATA_WRITE", 0xF000, 0x21),
            op("XDATA_READ", 0xF000, count=1),
            op("LOOP", count=3),
            op("READ", RAM),
            op("END"),
        ],
        host.padded(host.payload(block)) + host.payload(fifo),
    )
    last = int.from_bytes(fifo[4:], "little")
    expected = struct.pack("<III", 0x00040100, 0x0F0F0FFF, 0x0F0F0FFF) + block
    expected += struct.pack("<IIIIII", last, last, 0x21, *[0x77777777] * 3)
    assert given == expected
    assert host.sequence == 0, "numbers go on from 0xFFFF to 0"


@pytest.mark.slow
def test_a_stream_of_sectors_in_a_list(host: Host):
    host.set_up_pcie()
    host.open(1)
    sector, fence = host.page.limits["SECTOR"], 0x40
    data = pattern(8 * sector)
    arrived = [
        host.op("SLOT_OUT", 1, len(data) // sector, count=1),
        host.op("DELAY", value=2000),
        *host.signal(host.page.windows["SRAM"] + fence, 9),
        host.op("FENCE", fence, 9, mask=0, timeout=1000),
    ]
    host.run(arrived, data)
    asked = [
        host.op("SLOT_IN", 1, len(data) // sector, count=1),
        *host.signal(host.page.windows["NVME_CQ"] + TRIGGER, 0),
        host.op("SYNC"),
        host.op("READ", REGISTERS),
    ]
    host.write(host.list(asked))
    assert bytes(host.device.read(IN, len(data), TIMEOUT)) == data
    host.write(bytes(host.page.layout("PAYLOAD_HEADER").size))
    given, trailer = host.result()
    assert (given, host.page.causes[trailer["cause"]]) == (MAGIC.to_bytes(4, "little"), "done")


@pytest.mark.slow
def test_lists_that_fail_and_are_refused(host: Host):
    host.set_up_pcie()
    host.open(5)
    op, causes = host.op, host.page.causes
    nowhere = 0x7000_0000
    host.write(host.list([op("READ", REGISTERS), op("READ", nowhere), op("DELAY", value=1)]))
    given, trailer = host.result()
    assert given == MAGIC.to_bytes(4, "little")
    assert causes[trailer["cause"]] == "unsupported request"
    assert (trailer["opcode"], trailer["index"], trailer["address"]) == (
        host.page.operations["READ"].code,
        1,
        nowhere,
    )
    info = host.page.layout("INFO")
    reported = info.unpack(host.get("INFO", info.size))
    assert {name: reported[name] for name in ("cause", "opcode", "index", "address")} == {
        name: trailer[name] for name in ("cause", "opcode", "index", "address")
    }
    good = host.list([op("XDATA_WRITE", 0xF000, 0x99)])
    host.put("XDATA_WRITE", 0xF000, 0)
    host.write(good[:20] + bytes([good[20] ^ 1]) + good[21:])
    _, trailer = host.result()
    assert causes[trailer["cause"]] == "bad checksum"
    assert (trailer["opcode"], trailer["index"], trailer["address"]) == (0, 0, 0)
    assert host.get("XDATA_READ", 1, 0xF000) == b"\0"
    host.write(good)
    assert causes[host.result()[1]["cause"]] == "done"
    assert host.get("XDATA_READ", 1, 0xF000) == b"\x99"
    host.device.clear_halt(OUT)  # list mode is closed: no packet is accepted
    with pytest.raises(usb.core.USBTimeoutError):
        host.device.write(OUT, good, 20)
    host.device.clear_halt(OUT)

"""PCIe by the compatible requests, as a host drives it: single TLPs, streams, slot DMA, and the bridges.

Written from the contract of the requests (`firmware.protocol.requests`) alone. The test endpoint's registers
are those that docs/emulator.md describes; only an emulated board has one.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from firmware.asm2464pd.registers import memory
from firmware.asm2464pd.registers.tlp import FMT_TYPES
from firmware.asm2464pd.wire import COMPLETION_TRIGGER
from firmware.protocol import requests
from firmware.protocol.requests import TLP_REQUEST, TLP_RESULT
from sdk.errors import DeviceFailed
from usbgpu.conform.bench import Bench, Failed, equal, require

SINGLE, STREAM_WRITE, STREAM_READ = 0, 1, 2
"""Modes of TLP_START."""
SECTOR = 512
SRAM_PCIE = memory.SRAM.pcie or 0
TRIGGER = (memory.NVME_CQ.pcie or 0) + COMPLETION_TRIGGER.start
"""Where a device writes a dword to make an armed slot DMA send."""

SUCCESS, UNSUPPORTED, ABORTED = 0, 1, 4
"""Completion status."""
ALL = 0xF
LAST_BUS = 4
"""Of the card: four bridges are before it, on buses 0 to 3."""
MEMORY_AND_MASTER = 0x0006

REGISTERS = 0x1000_0000
"""Where the test endpoint's registers are placed; a window of 1 MiB."""
RAM = 0x8_0000_0000
"""Where its memory is placed, above 4 GiB."""
RAM_SIZE = 0x100_0000
LOW_RAM = 0x2000_0000
"""Where its memory is placed for requests with 32-bit addresses."""

ENDPOINT_ID = 0x70E1_1234
ENDPOINT_MAGIC = 0x4C57_4F54
SCRATCH, FENCE, FENCE_VALUE, SIGNAL = 0x04, 0x2C, 0x30, 0x34
DELAY, RETRY, DELAYED, ABORTING = 0x38, 0x3C, 0x40, 0x44
STATUS, LOCAL, UPSTREAM, UPSTREAM_HIGH, LENGTH, CONTROL = 0x08, 0x10, 0x14, 0x18, 0x1C, 0x20
COPY_IN, COPY_OUT = 1, 2
NEVER = 0xFFFF_FFFF

_KINDS = {name: code for code, name in FMT_TYPES.items()}


@dataclass(frozen=True, slots=True)
class Completion:
    """A request's outcome, as TLP_STATUS reports it.

    Attributes:
        data: the dword.
        status: of the completion.
        byte_count: of the completion.
        has_data: whether it carried data.
        launch: how the launch ended: 0 completed, 1 error bit, 0xFF nothing came.
    """

    data: int
    status: int
    byte_count: int
    has_data: bool
    launch: int


def send(
    bench: Bench, kind: str, address: int, value: int = 0, enables: int = ALL, mode: int = SINGLE
) -> None:
    """TLP_START."""
    data = TLP_REQUEST.pack(address_low=address & 0xFFFFFFFF, address_high=address >> 32, value=value)
    bench.vendor_out(requests.TLP_START, enables << 8 | _KINDS[kind], mode, data)


def status(bench: Bench) -> Completion:
    """TLP_STATUS."""
    answer = bench.vendor_in(requests.TLP_STATUS, length=TLP_RESULT.size)
    equal("bytes of the TLP's result", len(answer), TLP_RESULT.size)
    found = TLP_RESULT.unpack(answer)
    completion = TLP_RESULT.member("completion")
    return Completion(
        found["data"],
        completion.field("STATUS").get(found["completion"]),
        completion.field("BYTE_COUNT").get(found["completion"]),
        bool(found["has_data"] & 1),
        found["status"],
    )


def request(bench: Bench, kind: str, address: int, value: int = 0, enables: int = ALL) -> Completion:
    """A non-posted request and its outcome."""
    send(bench, kind, address, value, enables)
    return status(bench)


def config_kind(bus: int, *, write: bool) -> str:
    """The kind of a configuration request: type 0 reaches bus 0, type 1 the others."""
    return f"CFG{'WR' if write else 'RD'}{1 if bus else 0}"


def config_read(bench: Bench, bus: int, register: int, enables: int = ALL) -> int:
    """A configuration read of device 0 that must succeed."""
    found = request(bench, config_kind(bus, write=False), bus << 24 | register, enables=enables)
    _succeeded(found, f"configuration read of bus {bus} register {register:#x}")
    return found.data


def config_write(bench: Bench, bus: int, register: int, value: int, enables: int = ALL) -> None:
    """A configuration write of device 0 that must succeed."""
    found = request(bench, config_kind(bus, write=True), bus << 24 | register, value, enables)
    _succeeded(found, f"configuration write of bus {bus} register {register:#x}")


def read(bench: Bench, address: int) -> int:
    """A memory read of a dword that must succeed."""
    found = request(bench, _memory(address, write=False), address)
    _succeeded(found, f"memory read of {address:#x}")
    return found.data


def write(bench: Bench, address: int, value: int, enables: int = ALL) -> None:
    """A memory write of a dword; whether it arrived is not reported."""
    send(bench, _memory(address, write=True), address, value, enables)


def stream_write(bench: Bench, address: int, data: bytes) -> None:
    """Memory from `address` upwards, by a stream of dwords on bulk OUT."""
    send(bench, _memory(address, write=True), address, len(data) // 4, mode=STREAM_WRITE)
    bench.device.bulk_out(data)


def stream_read(bench: Bench, address: int, size: int) -> bytes:
    """The same the other way."""
    send(bench, _memory(address, write=False), address, size // 4, mode=STREAM_READ)
    return bench.device.bulk_in(size)


def slot_out(bench: Bench, slot: int, data: bytes, slots: int = 0) -> None:
    """Send whole sectors to SRAM slots."""
    bench.vendor_out(requests.SRAM_DMA, len(data) // SECTOR, slots << 8 | slot)
    bench.device.bulk_out(data)


def slot_in(bench: Bench, slot: int, size: int, slots: int = 0) -> bytes:
    """Receive whole sectors of SRAM slots; the test endpoint gives the signal."""
    to_host = 1 << requests.SRAM_DMA.value[1].bit
    bench.vendor_out(requests.SRAM_DMA, to_host | size // SECTOR, slots << 8 | slot)
    signal(bench, TRIGGER, 0)
    return bench.device.bulk_in(size)


def signal(bench: Bench, address: int, value: int) -> None:
    """Make the test endpoint write a dword upstream."""
    write(bench, REGISTERS + FENCE, address)
    write(bench, REGISTERS + FENCE_VALUE, value)
    write(bench, REGISTERS + SIGNAL, 1)
    equal("errors upstream", read(bench, REGISTERS + STATUS) & 4, 0)


def set_up(bench: Bench, ram: int = RAM) -> None:
    """Number the buses, open the bridges' windows, and place the test endpoint's memory and registers."""
    number_buses(bench)
    low, high = ram & 0xFFFF_FFFF, ram >> 32
    for bus in range(LAST_BUS):
        config_write(bench, bus, 0x20, REGISTERS | REGISTERS >> 16)  # limit and base, 1 MiB each
        config_write(bench, bus, 0x24, low + RAM_SIZE - 1 & 0xFFF0_0000 | low >> 16)
        config_write(bench, bus, 0x28, high)
        config_write(bench, bus, 0x2C, high)
        config_write(bench, bus, 0x04, MEMORY_AND_MASTER)
    config_write(bench, LAST_BUS, 0x10, low)
    config_write(bench, LAST_BUS, 0x14, high)
    config_write(bench, LAST_BUS, 0x18, REGISTERS)
    config_write(bench, LAST_BUS, 0x04, MEMORY_AND_MASTER)


def number_buses(bench: Bench) -> None:
    """Primary, secondary and subordinate bus of each bridge."""
    for bus in range(LAST_BUS):
        config_write(bench, bus, 0x18, LAST_BUS << 16 | bus + 1 << 8 | bus)


def link_status(bench: Bench, bus: int) -> int:
    """Of a port's PCI Express capability; buses must have been numbered."""
    place = config_read(bench, bus, 0x34) & 0xFC
    for _ in range(48):
        head = config_read(bench, bus, place)
        if head & 0xFF == 0x10:
            return config_read(bench, bus, place + 0x10) >> 16
        place = head >> 8 & 0xFC
        require(place, f"bus {bus} has no PCI Express capability")
    raise Failed(f"the capabilities on bus {bus} do not end")


def has_endpoint(bench: Bench) -> bool:
    """Whether the test endpoint is on the last bus; numbers the buses to find it, once per bench."""
    if bench.endpoint is None:
        bench.endpoint = False
        with contextlib.suppress(DeviceFailed, Failed):
            number_buses(bench)
            bench.endpoint = config_read(bench, LAST_BUS, 0) == ENDPOINT_ID
    return bench.endpoint


def _memory(address: int, *, write: bool) -> str:
    return f"M{'WR' if write else 'RD'}{64 if address >> 32 else 32}"


def _succeeded(found: Completion, what: str) -> None:
    require(found.launch == 0, f"{what}: the launch ended with {found.launch:#04x}")
    require(found.status == SUCCESS, f"{what}: completion status {found.status}")

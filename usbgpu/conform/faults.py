"""Checks of what must not hang: invalid requests, transfers that are abandoned, resets in every phase.

Few of them say how the device handles the fault; all of them require that it works normally afterwards. They
come last: firmware that has once abandoned a request may be more careful from then on, and slower (tlp.h),
and what it does without that care has been tested by then.
"""

from __future__ import annotations

import contextlib

from firmware.asm2464pd.registers import memory
from firmware.protocol import requests
from firmware.protocol.requests import VENDOR_IN, VENDOR_OUT
from sdk.errors import DeviceFailed
from usbgpu.conform import pcie
from usbgpu.conform.bench import MOMENT, MOMENTS, SHORT, Bench, equal, pattern, require, same_bytes
from usbgpu.conform.check import Need, Section, lacking
from usbgpu.conform.pcie import RAM, REGISTERS, SECTOR, STREAM_READ, STREAM_WRITE
from usbgpu.transport import Stalled, TimedOut

FAULTS = Section("faults")
VENDOR_FAULTS = Section("faults of the requests", frozenset({Need.VENDOR}))
WINDOW = memory.SRAM_WINDOW.address
NOTHING_THERE = 0xFD
"""A vendor request that no firmware has."""


@FAULTS("unknown vendor requests", "USB 3.2, 9.2.7: vendor and class ones too are request errors")
def _unknown(bench: Bench) -> None:
    for request_type in (0xC0, 0xC1, 0xC2, 0xA0, 0xA1):
        bench.refuses(request_type, NOTHING_THERE, 0, 0, 16)
    for request_type in (0x40, 0x41, 0x42, 0x20, 0x21):
        bench.refuses(request_type, NOTHING_THERE, 0, 0, b"")
        bench.refuses(request_type, NOTHING_THERE, 0, 0, bytes(8))


@FAULTS(
    "long data stages", "USB 3.2, 9.2.7: a request error may come in the data stage, however long that is"
)
def _long(bench: Bench) -> None:
    for length in (64, 512, 513, 1024, 4096):
        bench.refuses(VENDOR_OUT, NOTHING_THERE, 0, 0, bytes(length))
        bench.refuses(VENDOR_IN, NOTHING_THERE, 0, 0, length)


@FAULTS(
    "bulk without a request", "contract: endpoints that are not armed leave the host waiting, and do no harm"
)
def _idle_bulk(bench: Bench) -> None:
    device = bench.device
    for what in (device.packet_size, device.packet_size):
        try:
            device.bulk_in(what, timeout=0.02)
        except (TimedOut, Stalled):
            device.clear_halt(device.in_endpoint)
    bench.alive()


@FAULTS("many resets", "USB 3.2, 9.1.1: each of a series of resets leaves a device that can be configured")
def _resets(bench: Bench) -> None:
    for _ in range(4):
        bench.device.reset()
        bench.alive()


def _whole(bench: Bench) -> None:
    """The requests work: memory, configuration space, and, with the test endpoint, streams and slots."""
    bench.alive()
    bench.poke(WINDOW, b"\x3c")
    equal("XDATA", bench.peek(WINDOW), b"\x3c")
    pcie.config_read(bench, 0, 0)
    if lacking(bench, frozenset({Need.ENDPOINT})):
        return
    data = pattern(2 * bench.device.packet_size + 12, 11)
    pcie.set_up(bench)
    pcie.stream_write(bench, RAM + 0x100, data)
    same_bytes("a stream", pcie.stream_read(bench, RAM + 0x100, len(data)), data)
    pcie.slot_out(bench, 7, data[:SECTOR])
    same_bytes("a slot", pcie.slot_in(bench, 7, SECTOR), data[:SECTOR])


def _free(bench: Bench) -> None:
    """What a host does after a transfer that it abandoned."""
    for endpoint in (bench.device.out_endpoint, bench.device.in_endpoint):
        bench.device.clear_halt(endpoint)


@VENDOR_FAULTS(
    "no completion",
    "contract F0: 01 or FF within the host's time limit, and the next request is unharmed",
    Need.ENDPOINT,
)
def _no_completion(bench: Bench) -> None:
    pcie.set_up(bench)
    pcie.write(bench, REGISTERS + pcie.DELAY, pcie.NEVER)
    found = pcie.request(bench, "MRD32", REGISTERS + pcie.DELAYED)
    require(found.launch in (0x01, 0xFF), f"the launch ended with {found.launch:#04x}")
    equal("the next request", pcie.read(bench, REGISTERS), pcie.ENDPOINT_MAGIC)


@VENDOR_FAULTS(
    "requests without power", "contract F0: with the power off a request ends with an error", Need.ENDPOINT
)
def _powerless(bench: Bench) -> None:
    bench.vendor_out(requests.PCIE_POWER, 0, timeout=10.0)
    try:
        found = pcie.request(bench, "CFGRD1", pcie.LAST_BUS << 24)
        require(found.launch != 0 or found.status != pcie.SUCCESS, "a card without power answers")
    finally:
        bench.vendor_out(requests.PCIE_POWER, 1, timeout=10.0)


@VENDOR_FAULTS(
    "abandoned stream writes", "contract F0: after half a stream and a clear halt, all works", Need.ENDPOINT
)
def _half_write(bench: Bench) -> None:
    packet = bench.device.packet_size
    for sent in (0, 4, packet, packet + 8):
        pcie.send(bench, "MWR64", RAM, 3 * packet // 4, mode=STREAM_WRITE)
        if sent:
            bench.device.bulk_out(bytes(sent))
        _free(bench)
        bench.silent(bench.device.out_endpoint, bytes(4))
        _free(bench)
        _whole(bench)


@VENDOR_FAULTS(
    "abandoned stream reads", "contract F0: data not fetched is gone after a clear halt", Need.ENDPOINT
)
def _half_read(bench: Bench) -> None:
    packet = bench.device.packet_size
    for fetched in (0, 1):
        pcie.send(bench, "MRD64", RAM, 3 * packet // 4, mode=STREAM_READ)
        if fetched:
            bench.device.bulk_in(packet)
        _free(bench)
        bench.silent(bench.device.in_endpoint, packet)
        _free(bench)
        _whole(bench)


@VENDOR_FAULTS("streams over streams", "contract F0: a new stream ends the one before", Need.ENDPOINT)
def _over(bench: Bench) -> None:
    pcie.send(bench, "MWR64", RAM, 4096, mode=STREAM_WRITE)
    bench.device.bulk_out(pattern(bench.device.packet_size))
    pcie.send(bench, "MRD64", RAM, 4096, mode=STREAM_READ)
    bench.silent(bench.device.out_endpoint, bytes(4))
    _free(bench)
    _whole(bench)


@VENDOR_FAULTS(
    "stream too long", "contract F0: a packet with more than is left is dropped, nothing else", Need.ENDPOINT
)
def _too_long(bench: Bench) -> None:
    pcie.set_up(bench)
    pcie.stream_write(bench, RAM, bytes(32))
    pcie.send(bench, "MWR64", RAM, 2, mode=STREAM_WRITE)
    bench.device.bulk_out(b"\xff" * 16)
    _free(bench)
    same_bytes("the memory", pcie.stream_read(bench, RAM, 32)[8:], bytes(24))
    _whole(bench)


@VENDOR_FAULTS("odd stream packets", "contract F0: bytes beyond whole dwords are dropped", Need.ENDPOINT)
def _odd(bench: Bench) -> None:
    pcie.set_up(bench)
    for size in (1, 3, 5, 511):
        pcie.stream_write(bench, RAM, bytes(512))
        pcie.send(bench, "MWR64", RAM, 256, mode=STREAM_WRITE)
        bench.device.bulk_out(b"\xff" * size)
        _free(bench)
        behind = pcie.stream_read(bench, RAM, 512)[size & ~3 :]
        same_bytes(f"memory behind {size} bytes", behind, bytes(len(behind)))
    _whole(bench)


@VENDOR_FAULTS("streams of nothing", "contract F0: a stream of no dwords is over at once")
def _empty(bench: Bench) -> None:
    for mode in (STREAM_WRITE, STREAM_READ):
        pcie.send(bench, "MRD32" if mode == STREAM_READ else "MWR32", REGISTERS, 0, mode=mode)
        _free(bench)
    _whole(bench)


@VENDOR_FAULTS("abandoned slots", "contract F2: a reset frees an armed engine for another use", Need.SANDBOX)
def _half_slot(bench: Bench) -> None:
    for sectors in (0, 1):
        bench.vendor_out(requests.SRAM_DMA, 4, 8)
        if sectors:
            bench.device.bulk_out(bytes(2 * SECTOR))
        bench.device.reset()
        _whole(bench)


@VENDOR_FAULTS("resets in streams", "contract: a bus reset ends any transfer", Need.ENDPOINT)
def _reset_in_streams(bench: Bench) -> None:
    packet = bench.device.packet_size
    for mode in (STREAM_WRITE, STREAM_READ):
        pcie.send(bench, "MWR64" if mode == STREAM_WRITE else "MRD64", RAM, packet, mode=mode)
        if mode == STREAM_WRITE:
            bench.device.bulk_out(bytes(packet))
        else:
            bench.device.bulk_in(packet)
        bench.device.reset()
        _whole(bench)


@VENDOR_FAULTS(
    "reads without completion",
    "contract F0: a stream over a dead address ends, and EP0 answers",
    Need.ENDPOINT,
)
def _dead_stream(bench: Bench) -> None:
    pcie.set_up(bench)
    pcie.write(bench, REGISTERS + pcie.DELAY, pcie.NEVER)
    pcie.send(bench, "MRD32", REGISTERS + pcie.DELAYED, 1, mode=STREAM_READ)
    with bench.restless(), contextlib.suppress(TimedOut, Stalled):
        bench.device.bulk_in(4, timeout=SHORT)
    _free(bench)
    _whole(bench)


@VENDOR_FAULTS("resets while a read waits", "contract F0: the late completion is ignored", Need.ENDPOINT)
def _reset_while_out(bench: Bench) -> None:
    pcie.set_up(bench)
    pcie.write(bench, REGISTERS + pcie.DELAY, 2_000_000)
    pcie.send(bench, "MRD32", REGISTERS + pcie.DELAYED)
    bench.device.reset()
    _whole(bench)


@VENDOR_FAULTS(
    "abandoned requests", "contract F0: a status that the host no longer waits for is dropped", Need.ENDPOINT
)
def _status_given_up(bench: Bench) -> None:
    pcie.set_up(bench)
    pcie.write(bench, REGISTERS + pcie.DELAY, pcie.NEVER)
    for _ in range(2):
        pcie.send(bench, "MRD32", REGISTERS + pcie.DELAYED)
        request = requests.TLP_STATUS
        with bench.restless(), contextlib.suppress(TimedOut, Stalled):
            bench.device.control_in(request.request_type, request.code, length=8, timeout=0.002)
        bench.alive()
    _whole(bench)


@VENDOR_FAULTS(
    "abandoned power requests", "contract F3: EP0 answers while the slot is being powered", Need.SANDBOX
)
def _power_given_up(bench: Bench) -> None:
    bench.vendor_out(requests.PCIE_POWER, 0, timeout=10.0)
    with contextlib.suppress(DeviceFailed):
        bench.vendor_out(requests.PCIE_POWER, 1, timeout=0.01)
    bench.alive()
    bench.vendor_out(requests.PCIE_POWER, 1, timeout=10.0)
    _whole(bench)


@VENDOR_FAULTS(
    "abandoned at any moment", "contract F0: after a stream is abandoned, the next is whole", Need.ENDPOINT
)
def _any_moment(bench: Bench) -> None:
    pcie.set_up(bench)
    old, new = RAM, RAM + 0x1000
    data = pattern(16, 21)
    for step in range(MOMENTS):
        pcie.send(bench, "MRD64", old, 64, mode=STREAM_READ)
        bench.sleep(step * MOMENT)
        _free(bench)
        pcie.stream_write(bench, new, data)
        pcie.send(bench, "MWR64", old, 1024, mode=STREAM_WRITE)
        bench.device.bulk_out(bytes(256))
        bench.sleep(step * MOMENT)
        _free(bench)
        same_bytes(f"the stream after {step} moments", pcie.stream_read(bench, new, 16), data)


SECTIONS = (FAULTS, VENDOR_FAULTS)

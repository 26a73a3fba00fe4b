"""Checks of command lists that fail, are refused, abandoned or followed by other requests."""

from __future__ import annotations

import contextlib

from firmware.asm2464pd.registers import memory
from firmware.protocol import commands, requests
from firmware.protocol.commands import LIST_HEADER, OPERATION, PAYLOAD_HEADER, RESULT_TRAILER
from usbgpu.conform import pcie
from usbgpu.conform.bench import MOMENT, MOMENTS, Bench, equal, fail, pattern, require, same_bytes
from usbgpu.conform.check import Need, Section
from usbgpu.conform.list_client import (
    CAUSES,
    FIRST,
    LONGEST,
    OPCODES,
    PATIENCE,
    done,
    op,
    open_lists,
    packed,
    payload,
    result,
    run,
    sealed,
)
from usbgpu.conform.pcie import RAM, REGISTERS
from usbgpu.conform.standard import ENDPOINT_HALT, SET_FEATURE, TO_ENDPOINT
from usbgpu.transport import Stalled, TimedOut

FAILURES = Section("command lists that fail", frozenset({Need.LISTS}))
LEAVING = Section("leaving command lists", frozenset({Need.LISTS}))

WINDOW = memory.SRAM_WINDOW.address

# -- failures -------------------------------------------------------------------------------------------


@FAILURES("failures", "contract: the first failure stops the list, and is named", Need.ENDPOINT)
def _failures(bench: Bench) -> None:
    pcie.set_up(bench)
    pcie.write(bench, REGISTERS + pcie.DELAY, pcie.NEVER)
    cases = (
        ("unsupported request", 0x7000_0000),
        ("unsupported request", RAM + pcie.RAM_SIZE),
        ("completer abort", REGISTERS + pcie.ABORTING),
        ("completion timeout", REGISTERS + pcie.DELAYED),
    )
    for cause, address in cases:
        operations = [op("WRITE", RAM, 1), op("READ", RAM), op("READ", address), op("WRITE", RAM, 2)]
        found = run(bench, operations)
        alternatives = (cause, "no completion") if cause == "completion timeout" else (cause,)
        require(found.cause in alternatives, f"the cause is {found.cause!r}, not {cause!r}")
        expected = (2, address, OPCODES["READ"].code)
        equal("index, address and opcode", (found.index, found.address, found.opcode), expected)
        equal("results before it", found.dwords(), [1])
        equal("memory after it", pcie.read(bench, RAM), 1)
    retry = [op("WRITE", REGISTERS + pcie.RETRY, 1_000_000), op("CONFIG_READ", pcie.LAST_BUS << 24)]
    equal("the cause while the device retries", run(bench, retry).cause, "configuration retry")
    bench.sleep(0.01)
    done(run(bench, retry[1:]), 1)


@FAILURES("without power", "contract: requests over a link that is down fail with that cause", Need.ENDPOINT)
def _powerless(bench: Bench) -> None:
    bench.vendor_out(requests.PCIE_POWER, 0, timeout=10.0)
    try:
        for operation in (op("WRITE", RAM), op("READ", RAM), op("FILL", RAM, count=2), op("CONFIG_READ")):
            found = run(bench, [op("DELAY", value=1), operation])
            equal(f"cause and index of {operation.hex()[:2]}", (found.cause, found.index), ("link down", 1))
        found = run(bench, [op("BLOCK_WRITE", RAM, count=1)], [bytes(4)])
        equal("the cause of a block", found.cause, "link down")
    finally:
        bench.vendor_out(requests.PCIE_POWER, 1, timeout=10.0)


@FAILURES("bad operations", "contract: unknown opcodes and impossible operands stop the list")
def _bad(bench: Bench) -> None:
    unknown = OPERATION.pack(opcode=0xEE)
    equal("the cause of opcode EE", run(bench, [unknown]).cause, "bad opcode")
    delay = op("DELAY", value=1)
    for name, operations, index in (
        ("an odd address", [op("READ", 2)], 0),
        ("an odd address to write", [op("WRITE", 2)], 0),
        ("byte enables beyond 3", [op("READ", enables=0x1F)], 0),
        ("byte enables beyond 3 to write", [op("WRITE", enables=0x1F)], 0),
        ("an odd fence", [op("FENCE", 2, mask=0)], 0),
        ("a fence outside slot 0's page", [op("FENCE", memory.SRAM_WINDOW.size, mask=0)], 0),
        ("a loop of no rounds", [op("LOOP"), delay, op("END")], 0),
        ("a loop in a loop", [op("LOOP", count=2), op("LOOP", count=2), op("END"), op("END")], 1),
        ("END without LOOP", [delay, op("END")], 1),
        ("LOOP without END", [op("LOOP", count=2), delay], 2),
        ("slot 32", [op("SLOT_OUT", 32, 1, count=1)], 0),
        ("slots 31 and 32", [op("SLOT_OUT", 31, 1, count=2)], 0),
        ("no slots", [op("SLOT_OUT", 1, 1)], 0),
        ("no sectors", [op("SLOT_OUT", 1, 0, count=1)], 0),
        ("more sectors than a slot has", [op("SLOT_OUT", 1, 33, count=1)], 0),
    ):
        found = run(bench, operations)
        equal(f"cause and index of {name}", (found.cause, found.index), ("bad operand", index))
    long = commands.MICROSECONDS
    equal("the cause of a long delay", run(bench, [op("DELAY", value=long)]).cause, "bad operand")
    store = [op("XDATA_WRITE", WINDOW + place, 0) for place in range(4)]
    found = run(bench, [*store, op("FENCE", 0, 1, mask=0, timeout=long)])
    equal("the cause of a long time-out", found.cause, "bad operand")
    half = op("FENCE")[: OPERATION.size]
    found = run(bench, [op("DELAY", value=1), half])
    require(
        found.cause in ("bad opcode", "bad operand"), f"the cause of half an operation is {found.cause!r}"
    )
    equal("its index", found.index, 1)


def _refused(bench: Bench, data: bytes, cause: str) -> None:
    """A list that must be refused, and of which nothing may run."""
    bench.poke(WINDOW, b"\0")
    open_lists(bench)
    bench.device.bulk_out(data)
    raw = bench.device.bulk_in(LONGEST, timeout=PATIENCE)
    equal("bytes of its result", len(raw), RESULT_TRAILER.size)
    equal("the cause", CAUSES.get(RESULT_TRAILER.unpack(raw)["cause"]), cause)
    equal("what the refused list would have written", bench.peek(WINDOW), b"\0")
    done(run(bench, [op("XDATA_WRITE", WINDOW, 1)]), 1)


@FAILURES("refused lists", "contract: nothing of a list runs if a check fails, and the result names it")
def _refusals(bench: Bench) -> None:
    harm = [op("XDATA_WRITE", WINDOW, 0x77)] * 3
    good = packed(harm)
    value = LIST_HEADER.size + OPERATION.offset("value")
    for place in (len(good) - 1, LIST_HEADER.size, value + 1):
        changed = bytearray(good)
        changed[place] ^= 0x10
        _refused(bench, bytes(changed), "bad checksum")
    swapped = bytearray(good)
    swapped[value], swapped[value + 1] = swapped[value + 1], swapped[value]
    _refused(bench, bytes(swapped), "bad checksum")
    _refused(bench, packed(harm, FIRST + 1), "bad sequence")
    _refused(bench, packed(harm, magic=0x1234), "bad header")
    _refused(bench, packed(harm, length=12), "bad header")
    _refused(bench, packed(harm, length=len(good) - 4), "bad header")
    _refused(bench, packed(harm, length=commands.LIST_BYTES + 8), "bad header")
    _refused(bench, packed([*harm, op("DELAY") * (commands.LIST_BYTES // OPERATION.size)]), "bad header")
    _refused(bench, good[:8], "bad header")


@FAILURES(
    "bad payload",
    "contract: a packet whose checksum or number is wrong stops the list and is named",
    Need.ENDPOINT,
)
def _bad_payload(bench: Bench) -> None:
    pcie.set_up(bench)
    packet = bench.device.packet_size
    room = packet - PAYLOAD_HEADER.size
    data = pattern(3 * room, 1)
    wrong = sealed(PAYLOAD_HEADER.pack(number=2) + data[room : 2 * room])
    swapped = bytearray(good := payload(data, packet)[packet : 2 * packet])
    swapped[8], swapped[9] = swapped[9], swapped[8]
    spoilt = bytes([good[0], good[1], good[2] ^ 1]) + good[3:]
    for second in (wrong, bytes(swapped), spoilt):
        pcie.stream_write(bench, RAM, bytes(3 * room))
        open_lists(bench)
        bench.device.bulk_out(packed([op("BLOCK_WRITE", RAM, count=len(data) // 4), op("WRITE", RAM, 0)]))
        whole = payload(data, packet)
        try:
            bench.device.bulk_out(whole[:packet] + second + whole[2 * packet :], timeout=0.1)
        except TimedOut as problem:
            require(problem.transferred >= packet, "the bad packet is not taken")
        found = result(bench)
        equal("cause, index and packet", (found.cause, found.index, found.address), ("bad payload", 0, 1))
        bench.vendor_out(requests.LIST, 0)
        same_bytes("what was written before", pcie.stream_read(bench, RAM, room), data[:room])


@FAILURES("after a failure", "contract: what is still sent of a failed list's payload is dropped")
def _dropping(bench: Bench) -> None:
    packet = bench.device.packet_size
    open_lists(bench)
    failing = packed([op("READ", 2), op("BLOCK_WRITE", count=packet // 2)])
    bench.device.bulk_out(failing.ljust(packet, b"\0") + payload(bytes(2 * packet), packet))
    equal("the cause", result(bench).cause, "bad operand")
    bench.device.bulk_out(packed([op("DELAY", value=1)], FIRST + 1))
    done(result(bench, FIRST + 1), 1)
    bench.silent(bench.device.in_endpoint, packet)


# -- giving up ------------------------------------------------------------------------------------------


@LEAVING("aborting", "contract: LIST ends a running list, which answers within bounded time")
def _abort(bench: Bench) -> None:
    for waiting in (
        op("DELAY", value=5_000_000),
        op("FENCE", 0x40, 0x7000_0000, mask=0, timeout=5_000_000),
        op("SYNC"),
        op("XDATA_READ", WINDOW, count=0x3000),
    ):
        open_lists(bench)
        bench.poke(WINDOW + 0x40, bytes(4))
        bench.device.bulk_out(packed([waiting, op("XDATA_WRITE", WINDOW, 0x66)]))
        bench.poke(WINDOW, b"\0")
        began = bench.device.clock.now()
        done(run(bench, []), 0)
        took = bench.device.clock.now() - began
        require(took < 0.1, f"it took {took:.2f} s")
        equal("what the ended list would have written", bench.peek(WINDOW), b"\0")


@LEAVING("opened at any moment", "contract: LIST may come at any time, and opens list mode")
def _any_moment(bench: Bench) -> None:
    packet = bench.device.packet_size
    half = packed([op("XDATA_WRITE", WINDOW, 1)] * (packet // OPERATION.size))[:packet]
    for step in range(MOMENTS):
        open_lists(bench)
        bench.device.bulk_out(half)
        bench.sleep(step * MOMENT)
        done(run(bench, []), 0)


@LEAVING(
    "half lists", "contract: LIST, a clear halt and a bus reset each end a list that did not arrive whole"
)
def _half(bench: Bench) -> None:
    packet = bench.device.packet_size
    whole = packed([op("XDATA_WRITE", WINDOW, 1)] * (3 * packet // OPERATION.size))
    for how in ("open", "reset", "clear halt"):
        open_lists(bench)
        bench.device.bulk_out(whole[:packet])
        if how == "reset":
            bench.device.reset()
        elif how == "clear halt":
            bench.device.clear_halt(bench.device.out_endpoint)
        done(run(bench, [op("DELAY", value=1)]), 1)


@LEAVING("results not fetched", "contract: LIST and a bus reset empty the endpoints")
def _unfetched(bench: Bench) -> None:
    for how in ("open", "reset"):
        open_lists(bench)
        bench.device.bulk_out(packed([op("XDATA_READ", WINDOW, count=2048)]))
        bench.sleep(0.01)
        if how == "reset":
            bench.device.reset()
        done(run(bench, [op("DELAY", value=1)]), 1)


@LEAVING("resets while it runs", "contract: a bus reset ends a running list")
def _reset_running(bench: Bench) -> None:
    open_lists(bench)
    bench.device.bulk_out(packed([op("DELAY", value=5_000_000)]))
    bench.device.reset()
    done(run(bench, [op("DELAY", value=1)]), 1)


@LEAVING(
    "halted endpoints", "USB 3.2, 9.4.9: nothing passes a halted endpoint until it is freed", Need.SANDBOX
)
def _halted(bench: Bench) -> None:
    device = bench.device
    for endpoint in (device.out_endpoint, device.in_endpoint):
        bench.standard_out(TO_ENDPOINT, SET_FEATURE, ENDPOINT_HALT, endpoint)
        open_lists(bench)
        with contextlib.suppress(TimedOut, Stalled):
            device.bulk_out(packed([]), timeout=0.01)
            raw = device.bulk_in(LONGEST, timeout=0.01)
            fail(f"a list has its result, {len(raw)} bytes, while EP {endpoint:#04x} is halted")
        device.clear_halt(endpoint)
        done(run(bench, []), 0)


@LEAVING("requests beside lists", "contract: E4, E5 and INFO leave list mode as it is")
def _beside(bench: Bench) -> None:
    open_lists(bench)
    bench.device.bulk_out(packed([op("DELAY", value=2000)]))
    bench.poke(WINDOW, b"\x2b")
    equal("the byte", bench.peek(WINDOW), b"\x2b")
    with bench.restless():
        bench.vendor_in(requests.INFO, length=commands.INFO.size)
    done(result(bench), 1)


@LEAVING("ends of list mode", "contract: F0, F2, LIST, a clear halt, a bus reset close it: no list runs then")
def _ends(bench: Bench) -> None:
    device = bench.device
    ends = {
        "F0 OUT": lambda: pcie.send(bench, "CFGRD0", 0),
        "F0 IN": lambda: pcie.status(bench),
        "F2": lambda: pcie.slot_out(bench, 0, bytes(pcie.SECTOR)),
        "LIST": lambda: bench.vendor_out(requests.LIST, 0),
        "a clear halt": lambda: device.clear_halt(device.in_endpoint),
        "a bus reset": device.reset,
    }
    for name, end in ends.items():
        open_lists(bench)
        end()
        bench.poke(WINDOW, b"\0")
        try:
            device.bulk_out(packed([op("XDATA_WRITE", WINDOW, 1)]), timeout=0.01)
        except TimedOut:
            device.clear_halt(device.out_endpoint)
        equal(f"what a list after {name} would have written", bench.peek(WINDOW), b"\0")


@LEAVING(
    "leaving list mode",
    "contract: the compatible requests work after LIST has closed it, and after it was left",
)
def _leave(bench: Bench) -> None:
    for close in (True, False):
        done(run(bench, [op("DELAY", value=1)]), 1)
        if close:
            bench.vendor_out(requests.LIST, 0)
        pcie.config_read(bench, 0, 0)
        data = pattern(pcie.SECTOR, 5)
        pcie.slot_out(bench, 0, data)
        same_bytes("slot 0", bench.peek(WINDOW, 64), data[:64])


SECTIONS = (FAILURES, LEAVING)

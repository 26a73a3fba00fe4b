"""Checks of the command list and of INFO, which only our own firmware has."""

from __future__ import annotations

from firmware.asm2464pd.registers import link, memory, phy
from firmware.protocol import commands, requests
from firmware.protocol.commands import LIST_HEADER, LIST_TRAILER, OPERATION, PAYLOAD_HEADER, RESULT_TRAILER
from firmware.protocol.requests import VENDOR_IN, VENDOR_OUT
from usbgpu.conform import pcie
from usbgpu.conform.bench import Bench, equal, pattern, require, same_bytes
from usbgpu.conform.check import Need, Section
from usbgpu.conform.list_client import (
    CAUSES,
    FIRST,
    done,
    op,
    open_lists,
    packed,
    payload,
    result,
    run,
    sealed,
)
from usbgpu.conform.pcie import RAM, REGISTERS, SCRATCH

LISTS = Section("command lists", frozenset({Need.LISTS}))
INFO = Section("INFO", frozenset({Need.LISTS}))

WINDOW = memory.SRAM_WINDOW.address
PHY = phy.PCIE_LANES[0].address

# -- INFO -----------------------------------------------------------------------------------------------


@INFO(
    "contents", "contract INFO: the API level is bcdDevice, limits are those of the protocol, the link is up"
)
def _info(bench: Bench) -> None:
    with bench.restless():
        raw = bench.vendor_in(requests.INFO, length=commands.INFO.size)
    found = commands.INFO.unpack(raw)
    equal("the API level", found["api_level"], bench.identity.release)
    equal("list_bytes", found["list_bytes"], commands.LIST_BYTES)
    equal("result_bytes", found["result_bytes"], commands.RESULT_BYTES)
    equal("ltssm", found["ltssm"], bench.peek(link.PCIE_LTSSM.address)[0])
    equal("link_rate", found["link_rate"], bench.peek(link.PCIE_LINK_RATE.address, bank=1)[0])
    require(found["build"], "the build is 0")


@INFO(
    "lanes", "contract INFO: link_rate is what the link status of both ports of the slot says", Need.ENDPOINT
)
def _lanes(bench: Bench) -> None:
    pcie.number_buses(bench)
    rate = commands.INFO.unpack(bench.vendor_in(requests.INFO, length=commands.INFO.size))["link_rate"]
    for bus in (1, 2):
        status = pcie.link_status(bench, bus)
        generation, lanes = (link.PCIE_LINK_RATE.field(name).get(rate) for name in ("GENERATION", "LANES"))
        equal(f"generation and lanes on bus {bus}", (status & 0xF, status >> 4 & 0x3F), (generation, lanes))


@INFO("uptime", "contract INFO: in milliseconds")
def _uptime(bench: Bench) -> None:
    with bench.restless():
        times = []
        for _ in range(2):
            raw = bench.vendor_in(requests.INFO, length=commands.INFO.size)
            times.append(commands.INFO.unpack(raw)["uptime"])
            bench.sleep(0.1)
    require(90 <= times[1] - times[0] <= 120, f"it advanced by {times[1] - times[0]} ms in 100 ms")


@INFO(
    "last failure", "contract INFO: cause, opcode, index, address, and the number of the last list that ran"
)
def _last_failure(bench: Bench) -> None:
    found = run(bench, [op("DELAY", value=1), op("CONFIG_READ", pcie.LAST_BUS + 3 << 24)])
    with bench.restless():
        info = commands.INFO.unpack(bench.vendor_in(requests.INFO, length=commands.INFO.size))
    equal("the cause", CAUSES[info["cause"]], found.cause)
    equal("the index", info["index"], found.index)
    equal("the opcode", info["opcode"], found.opcode)
    equal("the address", info["address"], found.address)
    equal("the sequence number", info["sequence"], FIRST)


@INFO("wrong shapes of INFO, LIST", "contract INFO: IN; LIST: OUT without data")
def _shapes(bench: Bench) -> None:
    bench.refuses(VENDOR_OUT, requests.INFO.code, 0, 0, b"")
    bench.refuses(VENDOR_IN, requests.LIST.code, 1, 0, 4)
    bench.refuses(VENDOR_OUT, requests.LIST.code, 1, 0, bytes(4))
    for value in (2, 3, 0x100):
        bench.refuses(VENDOR_OUT, requests.LIST.code, value, 0, b"")


# -- what operations do ---------------------------------------------------------------------------------


@LISTS("nothing to do", "contract: every list has exactly one result")
def _empty(bench: Bench) -> None:
    done(run(bench, []), 0)
    bench.silent(bench.device.in_endpoint, bench.device.packet_size)


@LISTS("sequence", "contract: each list's number is one more than the last one's, modulo 2^16")
def _sequence(bench: Bench) -> None:
    open_lists(bench, 0xFFFE)
    for sequence in (0xFFFE, 0xFFFF, 0, 1):
        bench.device.bulk_out(packed([op("DELAY", value=1)], sequence))
        done(result(bench, sequence), 1)


@LISTS("queued", "contract: the next list waits until the host has read the result of the one before")
def _queued(bench: Bench) -> None:
    open_lists(bench)
    for place, value in enumerate(b"\x21\x43"):
        write, read = op("XDATA_WRITE", WINDOW, value), op("XDATA_READ", WINDOW, count=1)
        bench.device.bulk_out(packed([write, read], FIRST + place))
    equal("the byte between them", bench.peek(WINDOW), b"\x21")
    for place, value in enumerate(b"\x21\x43"):
        equal("the byte read", done(result(bench, FIRST + place), 2).data[0], value)


@LISTS("XDATA", "contract: XDATA_WRITE and XDATA_READ; a result is rounded up to a dword")
def _xdata(bench: Bench) -> None:
    writes = [op("XDATA_WRITE", WINDOW + place, value) for place, value in enumerate(b"\x11\x22\x33\x44\x55")]
    found = done(
        run(bench, [*writes, op("XDATA_READ", WINDOW, count=5), op("XDATA_READ", WINDOW, count=1)]), 7
    )
    equal("bytes of results", len(found.data), 12)
    equal("five bytes", found.data[:5], b"\x11\x22\x33\x44\x55")
    equal("one byte", found.data[8:9], b"\x11")


@LISTS("PHY plane in lists", "contract: bit 16 of an XDATA address chooses the PHY plane", Need.SANDBOX)
def _plane(bench: Bench) -> None:
    address, before = PHY, bench.peek(PHY, bank=1)[0]
    operations = [
        op("XDATA_WRITE", 1 << 16 | address, before ^ 0xFF),
        op("XDATA_READ", 1 << 16 | address, count=1),
        op("XDATA_WRITE", 1 << 16 | address, before),
    ]
    equal("the byte", done(run(bench, operations), 3).data[0], before ^ 0xFF)
    equal("the byte in the end", bench.peek(address, bank=1)[0], before)


@LISTS("CONFIG_READ", "contract: CONFIG_READ returns what F0 returns")
def _config(bench: Bench) -> None:
    expected = pcie.config_read(bench, 0, 0)
    equal("the dword", done(run(bench, [op("CONFIG_READ", 0)]), 1).dwords(), [expected])


@LISTS("CONFIG_WRITE", "contract: CONFIG_WRITE, byte enables count", Need.SANDBOX)
def _config_write(bench: Bench) -> None:
    operations = [
        op("CONFIG_WRITE", 0x18, 0x0003_0100),
        op("CONFIG_WRITE", 0x18, 0x0004_0200, enables=0b0100),
        op("CONFIG_READ", 0x18),
    ]
    equal("bytes 2:0", done(run(bench, operations), 3).dwords()[0] & 0xFFFFFF, 0x040100)


@LISTS("memory", "contract: WRITE, READ and MODIFY at 32-bit and 64-bit addresses", Need.ENDPOINT)
def _memory(bench: Bench) -> None:
    pcie.set_up(bench)
    operations = []
    for address in (REGISTERS + SCRATCH, RAM + 0x40):
        operations += [
            op("WRITE", address, 0x1234_5678),
            op("WRITE", address, 0xAABB_CCDD, enables=0b1000),
            op("READ", address),
            op("MODIFY", address, 0xFFFF_FFFF, mask=0x5500_FF00),
            op("READ", address),
        ]
    expected = [0xAA34_5678, 0xFF34_FF78] * 2
    equal("the dwords", done(run(bench, operations), 10).dwords(), expected)


@LISTS("blocks", "contract: BLOCK_WRITE takes payload, BLOCK_READ returns it", Need.ENDPOINT)
def _blocks(bench: Bench) -> None:
    pcie.set_up(bench)
    packet = bench.device.packet_size
    for seed, size in enumerate((4, packet - 4, packet, 3 * packet)):
        data = pattern(size, seed)
        operations = [
            op("BLOCK_WRITE", RAM + 0xFF0, count=size // 4),
            op("BLOCK_READ", RAM + 0xFF0, count=size // 4),
        ]
        same_bytes(f"a block of {size} bytes", done(run(bench, operations, [data]), 2).data, data)


@LISTS("padding", "contract: bytes behind a list or payload in its packet are ignored", Need.ENDPOINT)
def _padding(bench: Bench) -> None:
    pcie.set_up(bench)
    operations = [
        op("FILL", RAM, 0, count=5),
        op("BLOCK_WRITE", RAM, count=3),
        op("BLOCK_READ", RAM, count=5),
    ]
    data = pattern(12, 17)
    packet = bench.device.packet_size
    open_lists(bench)
    bench.device.bulk_out(packed(operations).ljust(packet, b"\xff") + payload(data, packet) + b"\xff" * 8)
    same_bytes("the memory", done(result(bench), 3).data, data + bytes(8))


@LISTS("FIFOs", "contract: FIFO_WRITE and FIFO_READ stay at one address", Need.ENDPOINT)
def _fifos(bench: Bench) -> None:
    pcie.set_up(bench)
    operations = [
        op("FILL", RAM, 0, count=4),
        op("FIFO_WRITE", RAM, count=3),
        op("FIFO_READ", RAM, count=2),
        op("READ", RAM + 4),
    ]
    found = done(run(bench, operations, [b"\1\0\0\0\2\0\0\0\3\0\0\0"]), 4)
    equal("the dwords", found.dwords(), [3, 3, 0])


@LISTS("fills", "contract: FILL writes one value to successive dwords", Need.ENDPOINT)
def _fills(bench: Bench) -> None:
    pcie.set_up(bench)
    operations = [
        op("FILL", RAM, 0x1111_1111, count=10),
        op("FILL", RAM + 8, 0xDEAD_BEEF, count=3),
        op("BLOCK_READ", RAM, count=10),
    ]
    expected = [0x1111_1111] * 2 + [0xDEAD_BEEF] * 3 + [0x1111_1111] * 5
    equal("the dwords", done(run(bench, operations), 3).dwords(), expected)


@LISTS("polls", "contract: POLL ends when the masked dword is equal, or with a time-out", Need.ENDPOINT)
def _polls(bench: Bench) -> None:
    pcie.set_up(bench)
    address = REGISTERS + SCRATCH
    met = [op("WRITE", address, 0xAB12_3456), op("POLL", address, 0x0012_0000, mask=0x00FF_0000)]
    equal("the dword", done(run(bench, met), 2).dwords(), [0xAB12_3456])
    began = bench.device.clock.now()
    found = run(bench, [op("POLL", address, 0, mask=1 << 4, timeout=20_000)])
    took = bench.device.clock.now() - began
    equal("the cause", found.cause, "condition timeout")
    equal("index and address", (found.index, found.address), (0, address))
    require(0.02 <= took <= 0.03, f"20 ms took {took * 1e3:.1f} ms")


@LISTS("delays", "contract: DELAY waits in microseconds")
def _delays(bench: Bench) -> None:
    for wanted in (100, 20_000):
        began = bench.device.clock.now()
        done(run(bench, [op("DELAY", value=wanted)]), 1)
        took = (bench.device.clock.now() - began) * 1e6
        require(wanted <= took <= 1.2 * wanted + 500, f"{wanted} us took {took:.0f} us")


@LISTS("loops", "contract: LOOP repeats what is before END, each round with its own results", Need.ENDPOINT)
def _loops(bench: Bench) -> None:
    pcie.set_up(bench)
    operations = [
        op("WRITE", RAM, 7),
        op("LOOP", count=5),
        op("READ", RAM),
        op("MODIFY", RAM, 0x100, mask=0x100),
        op("END"),
        op("READ", RAM),
    ]
    equal("the dwords", done(run(bench, operations), 6).dwords(), [7, *[0x107] * 5])


@LISTS("fences", "contract: FENCE waits until a dword of SRAM slot 0 has reached a value, or times out")
def _fences(bench: Bench) -> None:
    store = [op("XDATA_WRITE", WINDOW + 0x40 + place, value) for place, value in enumerate(b"\x05\0\0\0")]
    for value in (4, 5, 0xFFFF_FFFF):
        done(run(bench, [*store, op("FENCE", 0x40, value, mask=0, timeout=1000)]), 5)
    for value in (6, 0x7000_0000):
        found = run(bench, [*store, op("FENCE", 0x40, value, mask=0, timeout=1000)])
        equal("cause and index", (found.cause, found.index), ("condition timeout", 4))
    for first, cause in ((4, "done"), (5, "condition timeout")):
        fence = op("FENCE", 0x40, first, mask=1, timeout=1000)
        found = run(bench, [*store, op("LOOP", count=2), fence, op("END")])
        equal(f"the cause with {first} and {first + 1} in a loop", found.cause, cause)


@LISTS("slots", "contract: SLOT_OUT takes bare sectors as payload", Need.ENDPOINT)
def _slots(bench: Bench) -> None:
    pcie.set_up(bench)
    data = pattern(2 * memory.SLOT_SIZE, 3)
    open_lists(bench)
    bench.device.bulk_out(packed([op("SLOT_OUT", 2, len(data) // pcie.SECTOR, count=2)]))
    bench.device.bulk_out(data)
    done(result(bench), 1)
    bench.vendor_out(requests.LIST, 0)
    same_bytes("the slots", pcie.slot_in(bench, 2, len(data), 2), data)


@LISTS(
    "slots towards the host",
    "contract: SLOT_IN gives sectors on bulk IN; SYNC waits for the host",
    Need.ENDPOINT,
)
def _slots_in(bench: Bench) -> None:
    pcie.set_up(bench)
    data = pattern(memory.SLOT_SIZE, 12)
    pcie.slot_out(bench, 9, data)
    operations = [
        op("SLOT_IN", 9, len(data) // pcie.SECTOR, count=1),
        op("WRITE", REGISTERS + pcie.FENCE, pcie.TRIGGER),
        op("WRITE", REGISTERS + pcie.FENCE_VALUE, 0),
        op("WRITE", REGISTERS + pcie.SIGNAL, 1),
        op("SYNC"),
        op("XDATA_WRITE", WINDOW, 0x5C),
        op("READ", REGISTERS),
    ]
    bench.poke(WINDOW, b"\0")
    open_lists(bench)
    bench.device.bulk_out(packed(operations))
    same_bytes("the slot", bench.device.bulk_in(len(data)), data)
    equal("what follows SYNC, before its packet", bench.peek(WINDOW), b"\0")
    bench.device.bulk_out(sealed(PAYLOAD_HEADER.pack(number=0)))
    equal("the dword", done(result(bench), 7).dwords(), [pcie.ENDPOINT_MAGIC])


@LISTS(
    "slots both ways in turn",
    "contract: SLOT_OUT, FENCE, SLOT_IN and SYNC may follow each other again and again in a list",
    Need.ENDPOINT,
)
def _slots_in_turn(bench: Bench) -> None:
    pcie.set_up(bench)
    turns = (1, 2, 3)
    size = memory.SRAM_WINDOW.size
    operations = []
    for turn in turns:
        operations += [
            op("SLOT_OUT", 0, size // pcie.SECTOR, count=1),
            op("FENCE", size - 4, turn, mask=0, timeout=1_000_000),  # the last bytes that arrive
            op("SLOT_IN", 0, size // pcie.SECTOR, count=1),
            op("WRITE", REGISTERS + pcie.FENCE, pcie.TRIGGER),
            op("WRITE", REGISTERS + pcie.FENCE_VALUE, 0),
            op("WRITE", REGISTERS + pcie.SIGNAL, 1),
            op("SYNC"),
        ]
    bench.poke(WINDOW + size - 4, bytes(4))
    open_lists(bench)
    bench.device.bulk_out(packed(operations))
    for turn in turns:
        data = pattern(size - 4, turn) + turn.to_bytes(4, "little")
        bench.device.bulk_out(data)
        same_bytes(f"the slot in turn {turn}", bench.device.bulk_in(size), data)
        bench.device.bulk_out(sealed(PAYLOAD_HEADER.pack(number=0)))
    done(result(bench), len(operations))


@LISTS(
    "supply beside a list",
    "contract SUPPLY: it is answered within 100 ms also while a list runs, which goes on meanwhile",
    Need.SUPPLY,
)
def _supply_beside(bench: Bench) -> None:
    open_lists(bench)
    bench.device.bulk_out(packed([op("DELAY", value=300_000)]))
    supply = requests.SUPPLY
    before = bench.device.clock.now()
    bench.device.control_in(supply.request_type, supply.code, length=5, timeout=0.1)
    require(bench.device.clock.now() - before < 0.1, "it took 100 ms or more")
    done(result(bench), 1)


@LISTS("SYNC", "contract: SYNC takes an empty packet of payload with number 0, and no other")
def _sync(bench: Bench) -> None:
    for number, cause in ((0, "done"), (1, "bad payload")):
        open_lists(bench)
        bench.device.bulk_out(packed([op("SYNC")]))
        bench.device.bulk_out(sealed(PAYLOAD_HEADER.pack(number=number)))
        equal(f"the cause of packet {number}", result(bench).cause, cause)


@LISTS("longest list", "contract: lists of up to 16 KiB")
def _longest(bench: Bench) -> None:
    count = (commands.LIST_BYTES - LIST_HEADER.size - LIST_TRAILER.size) // OPERATION.size
    writes = [op("XDATA_WRITE", WINDOW + number % 64, number & 0xFF) for number in range(count)]
    done(run(bench, writes), count)
    expected = bytes((count - 64 + (place - count) % 64) & 0xFF for place in range(64))
    same_bytes("the last bytes", bench.peek(WINDOW, 64), expected)


@LISTS("500 operations", "contract: many writes in one round trip", Need.ENDPOINT)
def _many(bench: Bench) -> None:
    pcie.set_up(bench)
    writes = [op("WRITE", RAM + 4 * number, number * 0x0010_0401) for number in range(500)]
    done(run(bench, writes), 500)
    expected = b"".join((number * 0x0010_0401).to_bytes(4, "little") for number in range(500))
    same_bytes("the memory", pcie.stream_read(bench, RAM, 2000), expected)


@LISTS(
    "results of whole packets",
    "contract: a result that would end with a full packet is ended by an empty one",
)
def _whole_packets(bench: Bench) -> None:
    data = pattern(memory.SRAM_WINDOW.size, 13)
    pcie.slot_out(bench, 0, data)
    for size in (bench.device.packet_size, commands.RESULT_BYTES):
        count = size - RESULT_TRAILER.size
        operations = [op("XDATA_READ", WINDOW, count=4), op("XDATA_READ", WINDOW + 4, count=count - 4)]
        same_bytes("the results", done(run(bench, operations), 2).data, data[:count])
    done(run(bench, []), 0)


@LISTS("long results", "contract: a result may have more bytes than the firmware keeps", Need.ENDPOINT)
def _long_results(bench: Bench) -> None:
    pcie.set_up(bench)
    data = pattern(3 * commands.RESULT_BYTES + 20, 6)
    pcie.stream_write(bench, RAM, data)
    for pause in (0, 0.02):  # the host reads along, or once the firmware's memory is full
        open_lists(bench)
        bench.device.bulk_out(packed([op("BLOCK_READ", RAM, count=len(data) // 4)]))
        bench.sleep(pause)
        same_bytes(f"the block, fetched {pause:g} s later", done(result(bench), 1).data, data)


SECTIONS = (INFO, LISTS)

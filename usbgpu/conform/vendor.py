"""Checks of the compatible requests: E4, E5, F0, F2, F3, as existing hosts use them."""

from __future__ import annotations

from firmware.asm2464pd.registers import link, memory, phy, tlp
from firmware.protocol import requests
from firmware.protocol.requests import SUPPLY_STATUS, VENDOR_IN, VENDOR_OUT
from usbgpu.conform import pcie
from usbgpu.conform.bench import Bench, equal, pattern, require, same_bytes
from usbgpu.conform.check import Need, Section
from usbgpu.conform.pcie import ABORTED, RAM, REGISTERS, SECTOR, SRAM_PCIE, SUCCESS, UNSUPPORTED

NEEDS = frozenset({Need.VENDOR})
XDATA = Section("XDATA: E4, E5", NEEDS)
TLP = Section("PCIe requests: F0", NEEDS)
STREAM = Section("PCIe streams: F0", NEEDS)
SRAM = Section("slot DMA: F2", NEEDS)
POWER = Section("slot power: F3", NEEDS)
SUPPLY = Section("supply: C0", NEEDS | {Need.SUPPLY})

E4, E5, F0, F2, F3 = (
    requests.XDATA_READ.code,
    requests.XDATA_WRITE.code,
    requests.TLP_START.code,
    requests.SRAM_DMA.code,
    requests.PCIE_POWER.code,
)
WINDOW = memory.SRAM_WINDOW.address
"""Safe to write: the first page of the data buffer."""
SLOT = memory.SLOT_SIZE
LINK_UP = next(value for value, name in link.LTSSM.items() if name == "L0")
LOW_RAM = 0x2000_0000
"""Where the test endpoint's memory is placed for requests with 32-bit addresses."""
NO_FORMAT = 0xFF


# -- E4, E5 ---------------------------------------------------------------------------------------------


@XDATA("one byte", "contract E5, E4: what is written can be read back")
def _byte(bench: Bench) -> None:
    for value in (0x5A, 0xA5):
        bench.poke(WINDOW, bytes([value]))
        equal("the byte", bench.peek(WINDOW), bytes([value]))


@XDATA(
    "successive bytes", "contract E4: wLength bytes from successive addresses, up to the limit of the speed"
)
def _run(bench: Bench) -> None:
    data = pattern(80)
    bench.poke(WINDOW + 0x3F0, data)
    limit = 64 if bench.high else 80
    for length in (1, 2, 63, limit):
        same_bytes(f"{length} bytes", bench.peek(WINDOW + 0x3F0, length), data[:length])


@XDATA("limit", "contract E4: at most 512 bytes at SuperSpeed and 64 at High Speed")
def _limit(bench: Bench) -> None:
    limit = 64 if bench.high else 512
    equal(f"bytes of {limit}", len(bench.peek(WINDOW, limit)), limit)
    equal(f"bytes of {limit + 1}", len(bench.peek(WINDOW, limit + 1)), limit)


@XDATA("registers", "contract E4: registers can be read; 9100 holds the speed of the link")
def _register(bench: Bench) -> None:
    speed = bench.peek(0x9100)[0] & 3
    require(speed == 1 if bench.high else speed in (2, 3), f"9100 gives {speed}")


@XDATA("PHY plane", "contract E4, E5: wIndex 15:8 chooses the plane; the other does not change XDATA")
def _plane(bench: Bench) -> None:
    bench.poke(WINDOW, b"\x11")
    bench.peek(link.PCIE_LINK_RATE.address, 1, bank=1)
    equal("XDATA after a read of the PHY plane", bench.peek(WINDOW), b"\x11")


@XDATA("PHY plane written", "contract E5, E4: the other plane keeps what is written to it", Need.SANDBOX)
def _plane_written(bench: Bench) -> None:
    address = phy.PCIE_LANES[0].address
    before, beside = bench.peek(address, bank=1), bench.peek(address)
    changed = bytes([before[0] ^ 0xFF])
    bench.poke(address, changed, bank=1)
    found = bench.peek(address, bank=1), bench.peek(address)
    bench.poke(address, before, bank=1)
    equal("the byte, and the one of XDATA", found, (changed, beside))
    for plane in (2, 0x80):
        bench.refuses(VENDOR_IN, E4, WINDOW, plane << 8, 1)
        bench.refuses(VENDOR_OUT, E5, WINDOW, plane << 8, b"")


@XDATA("wrong shapes of E4, E5", "contract: E4 is IN, E5 is OUT without data; to the device")
def _xdata_shapes(bench: Bench) -> None:
    bench.refuses(VENDOR_OUT, E4, WINDOW, 0, b"")
    bench.refuses(VENDOR_OUT, E4, WINDOW, 0, bytes(4))
    bench.refuses(VENDOR_IN, E5, WINDOW, 0, 1)
    bench.refuses(VENDOR_IN | 1, E4, WINDOW, 0, 1)


# -- F0 -------------------------------------------------------------------------------------------------


@TLP("configuration read", "contract F0: completed, SC, byte count 4, with data")
def _config_read(bench: Bench) -> None:
    found = pcie.request(bench, "CFGRD0", 0)
    equal("the launch", found.launch, 0)
    equal("the status", found.status, SUCCESS)
    equal("the byte count", found.byte_count, 4)
    require(found.has_data, "it carries no data")
    require(
        found.data & 0xFFFF not in (0, 0xFFFF), f"the vendor id of the root port is {found.data & 0xFFFF:#x}"
    )
    equal("a second reading", pcie.config_read(bench, 0, 0), found.data)


@TLP("header of the root port", "PCI Express, 7.5.1: a bridge, with the class of one")
def _root_port(bench: Bench) -> None:
    equal("header type", pcie.config_read(bench, 0, 0x0C) >> 16 & 0x7F, 1)
    equal("class", pcie.config_read(bench, 0, 0x08) >> 16, 0x0604)


@TLP("configuration write", "contract F0: completed, SC, without data; byte enables count", Need.SANDBOX)
def _config_write(bench: Bench) -> None:
    pcie.config_write(bench, 0, 0x18, 0x00AA5500)
    found = pcie.request(bench, "CFGWR0", 0x18, 0x00BB6600, enables=0b0010)
    equal("the launch and status", (found.launch, found.status), (0, SUCCESS))
    require(not found.has_data, "its completion carries data")
    equal("bytes 2:1 of what was written", pcie.config_read(bench, 0, 0x18) >> 8 & 0xFFFF, 0xAA66)


@TLP("memory, 32-bit", "contract F0: MWr32 and MRd32, with byte enables", Need.ENDPOINT)
def _memory_32(bench: Bench) -> None:
    pcie.set_up(bench)
    equal("the endpoint's ID register", pcie.read(bench, REGISTERS), pcie.ENDPOINT_MAGIC)
    pcie.write(bench, REGISTERS + pcie.SCRATCH, 0x12345678)
    pcie.write(bench, REGISTERS + pcie.SCRATCH, 0xAABBCCDD, enables=0b0101)
    equal("the register", pcie.read(bench, REGISTERS + pcie.SCRATCH), 0x12BB56DD)


@TLP("memory, 64-bit", "contract F0: MWr64 and MRd64 reach addresses above 4 GiB", Need.ENDPOINT)
def _memory_64(bench: Bench) -> None:
    pcie.set_up(bench)
    for offset in (0, 0xFFFFFC):
        pcie.write(bench, RAM + offset, 0xCAFE0000 | offset >> 8)
    for offset in (0, 0xFFFFFC):
        equal(f"the dword at {offset:#x}", pcie.read(bench, RAM + offset), 0xCAFE0000 | offset >> 8)


@TLP(
    "unsupported request",
    "contract F0: UR is reported in the completion, the launch completes",
    Need.ENDPOINT,
)
def _unsupported(bench: Bench) -> None:
    pcie.set_up(bench)
    for kind, address in (("MRD32", 0x7000_0000), ("CFGRD1", pcie.LAST_BUS << 24 | 5 << 19)):
        found = pcie.request(bench, kind, address)
        equal(f"launch and status of {kind}", (found.launch, found.status), (0, UNSUPPORTED))
    equal("the next request", pcie.read(bench, REGISTERS), pcie.ENDPOINT_MAGIC)


@TLP("completer abort", "contract F0: CA is reported in the completion", Need.ENDPOINT)
def _aborted(bench: Bench) -> None:
    pcie.set_up(bench)
    equal("the status", pcie.request(bench, "MRD32", REGISTERS + pcie.ABORTING).status, ABORTED)
    equal("the next request", pcie.read(bench, REGISTERS), pcie.ENDPOINT_MAGIC)


@TLP("wrong shapes of F0", "contract F0: 12 bytes and mode 0 to 2, else a request error")
def _tlp_shapes(bench: Bench) -> None:
    for length in (0, 11, 13, 64):
        bench.refuses(VENDOR_OUT, F0, 0x0F04, 0, bytes(length))
    bench.refuses(VENDOR_OUT, F0, 0x0F04, 3, bytes(12))
    bench.refuses(VENDOR_OUT, F0, 0x1F04, 0, bytes(12))


@TLP("unknown kinds", "contract F0: kinds that the engine is not known to send are refused", Need.SANDBOX)
def _kinds(bench: Bench) -> None:
    for kind in (0x01, 0x02, 0x0A, 0x30, 0x42, 0x7F, 0x80, 0xFF):
        bench.refuses(VENDOR_OUT, F0, 0x0F00 | kind, 0, bytes(12))
    for mode, kind in ((pcie.STREAM_WRITE, 0x20), (pcie.STREAM_WRITE, 0x44), (pcie.STREAM_READ, 0x60)):
        bench.refuses(VENDOR_OUT, F0, 0x0F00 | kind, mode, bytes(12))


# -- streams --------------------------------------------------------------------------------------------


def _sizes(bench: Bench) -> tuple[int, ...]:
    packet = bench.device.packet_size
    return (4, packet - 4, packet, packet + 4, 3 * packet, 3 * packet + 8)


@STREAM("there and back", "contract F0: modes 1 and 2 move as many dwords as are requested", Need.ENDPOINT)
def _stream(bench: Bench) -> None:
    pcie.set_up(bench)
    for seed, size in enumerate(_sizes(bench)):
        data = pattern(size, seed)
        pcie.stream_write(bench, RAM + 0x1000, data)
        same_bytes(f"a stream of {size} bytes", pcie.stream_read(bench, RAM + 0x1000, size), data)


@STREAM("where they go", "contract F0: streams and single requests see the same dwords", Need.ENDPOINT)
def _stream_places(bench: Bench) -> None:
    pcie.set_up(bench)
    data = pattern(64, 9)
    pcie.stream_write(bench, RAM + 0x2000, data)
    for offset in (0, 4, 60):
        expected = int.from_bytes(data[offset : offset + 4], "little")
        equal(f"the dword at {offset}", pcie.read(bench, RAM + 0x2000 + offset), expected)
    pcie.write(bench, RAM + 0x2004, 0x01020304)
    same_bytes("the stream", pcie.stream_read(bench, RAM + 0x2004, 4), bytes.fromhex("04030201"))


@STREAM("carries", "contract F0: the address is carried through all of its bytes", Need.ENDPOINT)
def _stream_carries(bench: Bench) -> None:
    pcie.set_up(bench)
    for offset in (0xFC, 0xFFFC, 0x0F_FFFC):
        data = pattern(12, offset & 0xFF)
        pcie.stream_write(bench, RAM + offset, data)
        for step in (0, 4, 8):
            expected = int.from_bytes(data[step : step + 4], "little")
            equal(f"the dword at {offset + step:#x}", pcie.read(bench, RAM + offset + step), expected)
        same_bytes(f"the stream from {offset:#x}", pcie.stream_read(bench, RAM + offset, 12), data)
    # Nothing answers there; the engine holds how far a stream has come, in two big-endian dwords.
    for before in (4, 8, 12):
        pcie.stream_write(bench, (2 << 32) - before, bytes(before + 4))
        low = int.from_bytes(bench.peek(tlp.TLP_ADDRESS.address, 4), "big")
        high = int.from_bytes(bench.peek(tlp.TLP_ADDRESS_HIGH.address, 4), "big")
        require(high == 2 and low <= 4, f"{before + 4} bytes up to 2_0000_0004 ended at {high:x}_{low:08x}")


@STREAM("32-bit addresses", "contract F0: streams of MWr32 and MRd32", Need.ENDPOINT)
def _stream_32(bench: Bench) -> None:
    pcie.set_up(bench, LOW_RAM)
    data = pattern(256, 3)
    pcie.stream_write(bench, LOW_RAM + 0xFF80, data)
    same_bytes("the stream", pcie.stream_read(bench, LOW_RAM + 0xFF80, 256), data)


@STREAM("in parts", "contract F0: a stream may come in several transfers", Need.ENDPOINT)
def _stream_parts(bench: Bench) -> None:
    pcie.set_up(bench)
    packet = bench.device.packet_size
    data = pattern(2 * packet + 16, 5)
    pcie.send(bench, "MWR64", RAM + 0x4000, len(data) // 4, mode=pcie.STREAM_WRITE)
    for part in (data[:packet], data[packet : packet + 12], data[packet + 12 :]):
        bench.device.bulk_out(part)
    same_bytes("the stream", pcie.stream_read(bench, RAM + 0x4000, len(data)), data)


@STREAM("ends", "contract F0: after its last dword a stream takes and returns nothing more", Need.ENDPOINT)
def _stream_ends(bench: Bench) -> None:
    pcie.set_up(bench)
    pcie.stream_write(bench, RAM, bytes(8))
    bench.silent(bench.device.out_endpoint, bytes(4))
    bench.device.clear_halt(bench.device.out_endpoint)
    equal("the stream's data", pcie.stream_read(bench, RAM, 8), bytes(8))
    bench.silent(bench.device.in_endpoint, bench.device.packet_size)
    bench.device.clear_halt(bench.device.in_endpoint)


# -- F2 -------------------------------------------------------------------------------------------------


@SRAM("host to SRAM", "contract F2: sectors go to the slot; slot 0 is seen at F000")
def _slot_zero(bench: Bench) -> None:
    data = pattern(4 * SECTOR, 1)
    pcie.slot_out(bench, 0, data)
    step = 64 if bench.high else 512
    seen = b"".join(bench.peek(WINDOW + place, step) for place in range(0, len(data), step))
    same_bytes("slot 0", seen, data)


@SRAM("SRAM to host", "contract F2: sectors come once the device has given its signal", Need.ENDPOINT)
def _slot_back(bench: Bench) -> None:
    pcie.set_up(bench)
    data = pattern(2 * SECTOR, 2)
    pcie.slot_out(bench, 1, data)
    same_bytes("slot 1", pcie.slot_in(bench, 1, len(data)), data)


@SRAM("waits for the sign", "contract F2: before it, bulk IN returns nothing", Need.ENDPOINT)
def _slot_waits(bench: Bench) -> None:
    pcie.set_up(bench)
    data = pattern(SECTOR, 6)
    pcie.slot_out(bench, 2, data)
    bench.vendor_out(requests.SRAM_DMA, 0x8000 | 1, 2)
    bench.silent(bench.device.in_endpoint, bench.device.packet_size)
    pcie.signal(bench, pcie.TRIGGER, 0)
    same_bytes("slot 2", bench.device.bulk_in(SECTOR), data)


@SRAM(
    "several slots",
    "contract F2: wIndex 15:8 slots from the first, filled one after the other",
    Need.ENDPOINT,
)
def _slots(bench: Bench) -> None:
    pcie.set_up(bench)
    data = pattern(3 * SLOT, 4)
    pcie.slot_out(bench, 4, data, 3)
    same_bytes("slots 4 to 6", pcie.slot_in(bench, 4, len(data), 3), data)
    same_bytes("slot 5 alone", pcie.slot_in(bench, 5, SLOT), data[SLOT : 2 * SLOT])


@SRAM("all of it", "contract F2: 512 KiB at once, both ways", Need.ENDPOINT)
def _whole(bench: Bench) -> None:
    pcie.set_up(bench)
    data = pattern(memory.SRAM.size, 8)
    pcie.slot_out(bench, 0, data, 32)
    same_bytes("the SRAM", pcie.slot_in(bench, 0, len(data), 32), data)


@SRAM("seen over PCIe", "contract F2: a device finds slot s at 0x200000 + s * 0x4000", Need.ENDPOINT)
def _seen(bench: Bench) -> None:
    pcie.set_up(bench)
    data = pattern(SECTOR, 7)
    pcie.slot_out(bench, 3, data)
    for register, value in (
        (pcie.LOCAL, 0x8000),
        (pcie.UPSTREAM, SRAM_PCIE + 3 * SLOT),
        (pcie.UPSTREAM_HIGH, 0),
        (pcie.LENGTH, SECTOR),
        (pcie.CONTROL, pcie.COPY_IN),
    ):
        pcie.write(bench, REGISTERS + register, value)
    bench.sleep(1e-3)
    equal("the endpoint's status", pcie.read(bench, REGISTERS + pcie.STATUS) & 7, 2)
    same_bytes("what the device read", pcie.stream_read(bench, RAM + 0x8000, SECTOR), data)


@SRAM("impossible slots", "contract F2: what does not fit into the slots is refused", Need.SANDBOX)
def _impossible(bench: Bench) -> None:
    for sectors, index in ((1, 32), (1, 2 << 8 | 31), (0, 1), (33, 1), (65, 2 << 8 | 4), (1, 33 << 8)):
        bench.refuses(VENDOR_OUT, F2, sectors, index, b"")


@SRAM("wrong shapes of F2", "contract F2: OUT without data")
def _sram_shapes(bench: Bench) -> None:
    bench.refuses(VENDOR_IN, F2, 1, 0, 8)
    bench.refuses(VENDOR_OUT, F2, 1, 0, bytes(8))


# -- F3 -------------------------------------------------------------------------------------------------


@POWER("link state", "contract: after start-up with something in the slot, the link is in L0 (B450 is 78)")
def _link(bench: Bench) -> None:
    equal("the LTSSM", bench.peek(link.PCIE_LTSSM.address), bytes([LINK_UP]))


@POWER("off and on", "contract F3: off takes the link down, on brings it up again within 2.5 s", Need.SANDBOX)
def _off_and_on(bench: Bench) -> None:
    bench.vendor_out(requests.PCIE_POWER, 0, timeout=10.0)
    down = bench.peek(link.PCIE_LTSSM.address)[0]
    off = pcie.request(bench, "CFGRD0", 0) if down == LINK_UP else None
    began = bench.device.clock.now()
    bench.vendor_out(requests.PCIE_POWER, 1, timeout=10.0)
    took = bench.device.clock.now() - began
    require(off is None, "the link is in L0 with the power off")
    require(took <= 2.5, f"on took {took:.2f} s")
    equal("the LTSSM", bench.peek(link.PCIE_LTSSM.address), bytes([LINK_UP]))
    require(pcie.config_read(bench, 0, 0) & 0xFFFF != 0xFFFF, "the root port does not answer")


@POWER("wrong shapes of F3", "contract F3: OUT without data")
def _power_shapes(bench: Bench) -> None:
    bench.refuses(VENDOR_IN, F3, 1, 0, 1)
    bench.refuses(VENDOR_OUT, F3, 1, 0, bytes(4))


# -- C0 -------------------------------------------------------------------------------------------------


@SUPPLY("measurement", "contract C0: 5 bytes within 100 ms; zeros if the fault says that no sensor answers")
def _supply(bench: Bench) -> None:
    request = requests.SUPPLY
    for _ in range(3):
        with bench.restless():
            raw = bench.device.control_in(request.request_type, request.code, length=64, timeout=0.1)
        equal("its length", len(raw), SUPPLY_STATUS.size)
        found = SUPPLY_STATUS.unpack(raw)
        fault = SUPPLY_STATUS.member("fault")
        require(
            not found["fault"] & ~(fault.field("SUPPLY").mask | fault.field("SENSOR").mask), "unknown faults"
        )
        if fault.field("SENSOR").get(found["fault"]):
            equal("the values without a sensor", raw[:4], bytes(4))
        else:
            require(5000 <= found["millivolts"] <= 16_000, f"a supply of {found['millivolts']} mV")


@SUPPLY("shorter", "contract C0: the host may ask for less; the first bytes come")
def _supply_shorter(bench: Bench) -> None:
    request = requests.SUPPLY
    for length in (1, 2, 4):
        raw = bench.device.control_in(request.request_type, request.code, length=length, timeout=0.1)
        equal("its length", len(raw), length)


@SUPPLY("wrong shapes of C0", "contract C0: only IN, and only for the device")
def _supply_shapes(bench: Bench) -> None:
    bench.refuses(VENDOR_OUT, requests.SUPPLY.code, 0, 0, b"")
    bench.refuses(VENDOR_OUT, requests.SUPPLY.code, 0, 0, bytes(5))
    bench.refuses(VENDOR_IN | 1, requests.SUPPLY.code, 0, 0, 5)


SECTIONS = (XDATA, TLP, STREAM, SRAM, POWER, SUPPLY)

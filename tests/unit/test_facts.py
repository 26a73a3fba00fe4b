"""The chip's facts: the rules for declarations, and the declared facts."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from firmware.asm2464pd import bot, phy, wire
from firmware.asm2464pd.describe import ByteRegister, Map, Memory, Space
from firmware.asm2464pd.registers import ASM2464PD, BLOCKS, memory
from firmware.protocol import requests
from firmware.protocol.requests import REQUESTS, VENDOR_OUT, VendorRequest
from sdk.facts.registers import Access, Evidence, FactError, Field
from sdk.facts.structures import Malformed, Member, Struct


def register(name="ONE", address=0x9000, **rest):
    return ByteRegister(name, Space.XDATA, address, Evidence.TRACE, "a register", **rest)


@pytest.mark.parametrize(
    ("declaration", "complaint"),
    [
        (lambda: register("lower"), "named like a C macro"),
        (lambda: register(address=0xFFFF, size=2), "outside xdata"),
        (lambda: ByteRegister("S", Space.SFR, 0x100, Evidence.TRACE, ""), "outside sfr"),
        (lambda: register(reset=0x100), "does not fit 8 bits"),
        (lambda: register(fields=(Field("A", 0, 3), Field("B", 2))), "overlaps another field"),
        (lambda: register(fields=(Field("A", 7, 2),)), "outside the register"),
        (lambda: register(fields=(Field("A", 0), Field("A", 1))), "used twice"),
        (lambda: register(fields=(Field("A", 0, 2, values={4: "four"}),)), "does not fit"),
        (lambda: Map([register(), register("TWO")], []), "TWO: xdata 0x9000 is ONE already"),
        (lambda: Map([register(), register(address=0x9001)], []), "ONE: declared twice"),
        (
            lambda: Map([register()], [Memory("RAM", Space.XDATA, 0x8F00, 0x200, Evidence.TRACE, "")]),
            "RAM: xdata 0x9000 is ONE already",
        ),
        (lambda: Struct("S", 3, (Member("a", 2),), "", Evidence.TRACE, ""), "have 2 bytes, not 3"),
        (lambda: Struct("S", 2, (Member("a", 1), Member("a", 1)), "", Evidence.TRACE, ""), "declared twice"),
        (lambda: Member("a", 1, fixed=0x100), "does not fit 1 bytes"),
        (lambda: Member("a", 1, fields=(Field("F", 8),)), "outside the register"),
        (
            lambda: VendorRequest("R", 0x21, 1, "", Evidence.TRACE, ""),
            "not a vendor request",
        ),
        (
            lambda: VendorRequest("R", VENDOR_OUT, 1, "", Evidence.TRACE, "", data=requests.TLP_REQUEST),
            "its data stage has 12 bytes",
        ),
        (lambda: bot.Command(wire.CBW), "a CDB has 16 bytes"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(declaration, complaint):
    with pytest.raises(FactError, match=complaint):
        declaration()


def test_a_register_of_several_bytes_is_most_significant_byte_first_unless_little():
    big = register(size=2)
    assert [big.shift(address) for address in big.addresses] == [8, 0]
    assert [replace(big, little=True).shift(address) for address in big.addresses] == [0, 8]


def test_a_field_puts_and_gets_and_refuses_what_does_not_fit():
    field = Field("F", 3, 2)
    assert field.put(2) == 0x10
    assert field.get(0xFF) == 3
    with pytest.raises(FactError, match="F: 0x4 does not fit 2 bits"):
        field.put(4)


def test_every_fact_names_its_source():
    without = [entry.name for entry in (*ASM2464PD.registers, *ASM2464PD.memories) if not entry.source]
    assert without == []


def test_every_name_begins_with_one_of_its_blocks_prefixes():
    prefixes = {
        "cpu": {"CPU"},
        "interrupts": {"INT", "USB"},
        "usb": {"USB", "EP0", "EP", "BULK", "MSC", "UAS"},
        "tlp": {"TLP"},
        "link": {"PCIE"},
        "phy": {"PHY"},
        "dma": {"DMA"},
        "flash": {"FLASH"},
        "i2c": {"I2C", "PIN"},
        "system": {"UART", "SYS", *(f"TIMER{number}" for number in range(5))},
        "unnamed": {"UNNAMED"},
    }
    strays = [
        register.name
        for block, registers in BLOCKS.items()
        for register in registers
        if register.name.partition("_")[0] not in prefixes[block]
    ]
    assert strays == []


@pytest.mark.parametrize(
    ("space", "address", "name", "access", "reset"),
    [
        (Space.SFR, 0x93, "CPU_DPX", Access.RW, 0),
        (Space.SFR, 0x96, "CPU_CODE_BANK", Access.RW, 0),
        (Space.XDATA, 0x9101, "USB_EVENTS", Access.RO, 0),
        (Space.XDATA, 0x9091, "EP0_PHASE", Access.W1C, 0),
        (Space.XDATA, 0x9092, "EP0_COMMAND", Access.SELF_CLEARING, 0),
        (Space.XDATA, 0x9002, "USB_CONFIG", Access.WO, 0x20),
        (Space.XDATA, 0x92C0, "USB_POWER_ENABLE", Access.RW, 0x80),
        (Space.XDATA, 0xB296, "TLP_STATUS", Access.W1C, 0),
        (Space.XDATA, 0xB450, "PCIE_LTSSM", Access.RO, 0),
        (Space.XDATA, 0xC000, "UART_RBR", Access.FIFO, 0),
        (Space.XDATA, 0xC429, "DMA_ARM", Access.RW, 0),
        (Space.XDATA, 0xC8A9, "FLASH_CSR", Access.SELF_CLEARING, 0),
        (Space.PHY, 0x6025, "PCIE_ROUTING", Access.RW, 0),
    ],
)
def test_what_the_open_firmware_relies_on(space, address, name, access, reset):
    found = ASM2464PD.at(space, address)
    assert found is not None
    assert (found.name, found.access, found.reset) == (name, access, reset)
    assert found.evidence is not Evidence.GUESS


def test_the_window_is_the_start_of_the_sram():
    window, sram = ASM2464PD.memory("SRAM_WINDOW"), ASM2464PD.memory("SRAM")
    assert window.sram == 0
    assert window.pcie == sram.pcie == 0x0020_0000
    assert sram.size == 32 * memory.SLOT_SIZE == 512 * 1024


def test_mirrors_repeat_plain_ram_of_their_size():
    mirrors = [entry for entry in ASM2464PD.memories if entry.mirror is not None]
    assert len(mirrors) == 5
    for mirror in mirrors:
        original = ASM2464PD.memory_at(mirror.space, mirror.mirror)
        assert original is not None
        assert original.mirror is None
        assert mirror.size <= original.size


def test_the_phy_setup_is_the_published_one():
    """Digests of the published sequences, address and value of each write in order."""
    writes = b"".join(write.address.to_bytes(2, "big") + bytes([write.value]) for write in phy.PCIE_SETUP)
    updates = b"".join(bytes([update.offset, update.keep, update.put]) for update in phy.USB_LANE_SETUP)
    assert (len(phy.PCIE_SETUP), len(phy.PCIE_FINAL), len(phy.USB_LANE_SETUP)) == (341, 244, 42)
    assert hashlib.sha256(writes).hexdigest().startswith("65eb074a47e8ba14c7935a7f1a11561753b1aebb")
    assert hashlib.sha256(updates).hexdigest().startswith("34f1f685fcd0f62ca4701f9ff92d7e62cdd48872")


def test_every_address_of_the_phy_setup_is_a_register():
    lanes = {lane + update.offset for lane in phy.USB_LANES for update in phy.USB_LANE_SETUP}
    assert [hex(address) for address in sorted(lanes) if ASM2464PD.at(Space.XDATA, address) is None] == []
    assert [hex(address) for address in phy.PCIE_FINAL if ASM2464PD.at(Space.PHY, address) is None] == []


def test_an_update_keeps_and_puts():
    assert phy.Update(0x02, keep=0x1F, put=0xA0).apply(0xFF) == 0xBF


def test_the_codes_of_requests_and_boot_loader_commands():
    assert {(request.code, request.request_type) for request in REQUESTS} == {
        (0xE4, 0xC0),
        (0xE5, 0x40),
        (0xF0, 0x40),
        (0xF0, 0xC0),
        (0xF2, 0x40),
        (0xF3, 0x40),
        (0xC0, 0xC0),
        (0xF8, 0x40),  # ours
        (0xF9, 0xC0),
    }
    assert [f"{command.opcode:02X}" for command in bot.COMMANDS] == [
        "E0", "E1", "E2", "E3", "E4", "E5", "E6", "E8",
    ]  # fmt: skip


def test_structures_pack_as_on_the_wire():
    cdb = bot.XDATA_READ.cdb.pack(opcode=0xE4, count=6, address=bot.XDATA_BASE | 0x07F0)
    assert cdb == bytes.fromhex("e4 06 50 07 f0") + bytes(11)
    packed = wire.CBW.pack(tag=0x01020304, data_transfer_length=6, flags=0x80, cb_length=6, cdb=cdb)
    assert packed == b"USBC\4\3\2\1\6\0\0\0\x80\0\6" + cdb
    assert wire.CBW.unpack(packed)["tag"] == 0x01020304
    assert wire.CBW.part(packed, "cdb") == cdb
    assert wire.CBW.offset("flags") == 12
    assert bot.FLASH_WRITE.cdb.pack(part=0x50, length=0xFF00)[:6] == bytes.fromhex("e3 50 00 00 ff 00")


def test_a_tlp_result_has_its_fields_where_hosts_look():
    reply = bytes.fromhex("78563412 2004 01 00")
    result = requests.TLP_RESULT.unpack(reply)
    completion = requests.TLP_RESULT.member("completion")
    assert result["data"] == 0x12345678
    assert completion.field("STATUS").get(result["completion"]) == 1
    assert completion.field("BYTE_COUNT").get(result["completion"]) == 4


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        (
            lambda: wire.CSW.unpack(b"USBC" + bytes(9)),
            "signature at offset 0x0 is 0x43425355, expected 0x53425355",
        ),
        (lambda: wire.CSW.unpack(bytes(12)), "length at offset 0x0 is 12 bytes, expected 13 bytes"),
        (lambda: wire.CSW.pack(status=0x100), "status at offset 0xc is 0x100, expected 1 bytes"),
        (lambda: wire.CBW.pack(cdb=b"short"), "cdb at offset 0xf is 5 bytes, expected 16 bytes"),
    ],
)
def test_bytes_that_do_not_fit_are_refused_by_member(attempt, complaint):
    with pytest.raises(Malformed, match=complaint):
        attempt()


def test_an_unknown_member_is_a_mistake_of_the_caller():
    with pytest.raises(FactError, match="CSW has no member colour"):
        wire.CSW.pack(colour=1)


def test_the_registers_that_a_boot_of_the_makers_firmware_touches_are_declared():
    unnamed = BLOCKS["unnamed"]
    # Six of the 110 have names: C6B3, 905F and the four lane commits.
    assert sum(register.size for register in unnamed) == 104
    assert sum(register.size for register in unnamed if register.space is Space.PHY) == 18
    for space, address in ((Space.XDATA, 0xCC32), (Space.XDATA, 0x9323), (Space.PHY, 0x7B27)):
        assert ASM2464PD.at(space, address) in unnamed

"""The SPI flash chip on its pins, and the controller that firmware reaches it through."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.asm2464pd import timing
from emulator.asm2464pd.flash import FlashController
from emulator.asm2464pd.flash_chip import BLOCK, OTP_SIZE, PAGE, SECTOR, SIZE, Command, FlashChip, Status
from emulator.asm2464pd.undefined import Undefined
from emulator.core.bus import Bus
from emulator.core.clock import Scheduler, Timing, clocks
from emulator.model import DEFAULT, Model
from firmware.asm2464pd import flash_layout
from firmware.asm2464pd.describe import Space
from firmware.asm2464pd.registers import ASM2464PD
from sdk.errors import InvalidInput


def command(code: int, address: int | None = None, data: bytes = b"") -> bytes:
    return bytes((code,)) + (b"" if address is None else address.to_bytes(3, "big")) + data


class Pins:
    """A chip accessed directly."""

    def __init__(self, contents: bytes = b"", otp: bytes = b"") -> None:
        self.clock = Scheduler()
        self.chip = FlashChip(self.clock, contents, otp)

    def status(self) -> int:
        return self.chip.transfer(command(Command.RDSR), 1)[0]

    def wait(self) -> int:
        """Clocks that the operation under way still took."""
        began = self.clock.now
        self.clock.now += self.chip.busy_clocks
        assert not self.status() & Status.WIP
        return self.clock.now - began

    def enabled(self, out: bytes) -> int:
        self.chip.transfer(command(Command.WREN))
        self.chip.transfer(out)
        return self.wait()

    def read(self, address: int, size: int) -> bytes:
        return self.chip.transfer(command(Command.READ, address), size)


def test_identification_and_erased_state() -> None:
    pins = Pins()
    assert pins.chip.transfer(command(Command.RDID), 3) == b"\xc2\x20\x14"
    assert pins.read(0, 4) == b"\xff" * 4
    assert pins.status() == 0


def test_reads_run_over_the_end() -> None:
    pins = Pins(b"start" + bytes(SIZE - 8) + b"end")
    assert pins.read(SIZE - 3, 8) == b"endstart"


def test_write_enable_latch() -> None:
    pins = Pins()
    pins.chip.transfer(command(Command.PP, 0, b"\0"))
    assert pins.read(0, 1) == b"\xff", "without WREN nothing is programmed"
    pins.chip.transfer(command(Command.WREN))
    assert pins.status() == Status.WEL
    pins.chip.transfer(command(Command.WRDI))
    assert pins.status() == 0
    assert pins.enabled(command(Command.PP, 0, b"\0")) == timing.FLASH_PAGE_PROGRAM.clocks
    assert pins.read(0, 1) == b"\0"
    assert pins.status() == 0, "the latch falls after each write"


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=PAGE, max_size=PAGE), st.integers(0, PAGE - 1), st.binary(min_size=1, max_size=300))
def test_page_program_clears_bits_and_wraps_in_its_page(before: bytes, offset: int, data: bytes) -> None:
    pins = Pins(bytes(PAGE) + before + bytes(PAGE))
    pins.enabled(command(Command.PP, PAGE + offset, data))
    expected = bytearray(before)
    for place in range(max(0, len(data) - PAGE), len(data)):  # only the last page of data is kept
        expected[(offset + place) % PAGE] &= data[place]
    assert pins.read(PAGE, PAGE) == bytes(expected)
    assert pins.read(0, PAGE) == pins.read(2 * PAGE, PAGE) == bytes(PAGE)


@pytest.mark.parametrize(
    ("code", "size", "duration"),
    [(Command.SE, SECTOR, timing.FLASH_SECTOR_ERASE), (Command.BE, BLOCK, timing.FLASH_BLOCK_ERASE)],
)
def test_erase_takes_the_whole_unit(code: int, size: int, duration: Timing) -> None:
    pins = Pins(bytes(SIZE))
    assert pins.enabled(command(code, 3 * size + 5)) == duration.clocks
    assert pins.read(3 * size, size) == b"\xff" * size
    assert pins.read(3 * size - 1, 1) == pins.read(4 * size, 1) == b"\0"


def test_while_busy_only_the_status_answers() -> None:
    pins = Pins(b"abcd")
    pins.chip.transfer(command(Command.WREN))
    pins.chip.transfer(command(Command.BE, BLOCK))
    assert pins.status() == Status.WIP | Status.WEL
    assert pins.read(0, 4) == b"\xff" * 4
    pins.chip.transfer(command(Command.WREN))
    pins.chip.transfer(command(Command.PP, 0, b"\0"))
    pins.wait()
    assert pins.read(0, 4) == b"abcd"


@pytest.mark.parametrize(("bits", "blocks"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (7, 16)])
def test_block_protection(bits: int, blocks: int) -> None:
    pins = Pins(b"\xff" * SIZE)
    assert pins.enabled(command(Command.WRSR, data=bytes((bits << 2,)))) == (timing.FLASH_STATUS_WRITE.clocks)
    assert pins.status() == bits << 2
    first = SIZE - blocks * BLOCK
    for address in (0, first - 1, first, SIZE - 1):
        if 0 <= address < SIZE:
            pins.enabled(command(Command.PP, address, b"\0"))
            assert pins.read(address, 1) == (b"\xff" if address >= first else b"\0")
    pins.enabled(command(Command.BE, SIZE - 1))
    assert pins.read(SIZE - 1, 1) == b"\xff"


def test_protection_prevents_an_erase() -> None:
    pins = Pins(bytes(SIZE))
    pins.enabled(command(Command.WRSR, data=b"\x1c"))
    assert pins.enabled(command(Command.BE, 0)) == 0
    assert pins.read(0, 1) == b"\0"
    pins.enabled(command(Command.WRSR, data=b"\x00"))
    pins.enabled(command(Command.BE, 0))
    assert pins.read(0, 1) == b"\xff"


def test_the_status_register_has_bits_that_can_not_be_written() -> None:
    pins = Pins()
    pins.enabled(command(Command.WRSR, data=b"\xff"))
    assert pins.status() == Status.BP | Status.SRWD
    pins.chip.transfer(command(Command.WRSR, data=b"\0"))
    assert pins.status() == Status.BP | Status.SRWD, "without WREN"


def test_one_time_programmable_area() -> None:
    otp = flash_layout.otp(b"\x12\x34\x56\x78")
    pins = Pins(b"memory", otp)
    pins.chip.transfer(command(Command.ENSO))
    assert pins.read(0, 5) == otp == b"\x12\x34\x56\x78\x08"
    pins.enabled(command(Command.PP, 8, b"\x55"))
    assert pins.read(8, 1) == b"\x55"
    assert pins.enabled(command(Command.BE, 0)) == 0, "it can not be erased"
    pins.chip.transfer(command(Command.EXSO))
    assert pins.read(0, 6) == b"memory"
    assert len(pins.chip.otp) == OTP_SIZE


@pytest.mark.parametrize("tenths", [0, 1, 5, 9])
def test_a_power_cut_leaves_the_work_done_so_far(tenths: int) -> None:
    pins = Pins(bytes(SIZE))
    pins.chip.transfer(command(Command.WREN))
    pins.chip.transfer(command(Command.BE, BLOCK))
    pins.clock.now += timing.FLASH_BLOCK_ERASE.clocks * tenths // 10
    pins.chip.cut_power()
    done = pins.chip.contents[BLOCK : 2 * BLOCK].count(b"\xff")
    assert done == pytest.approx(BLOCK * tenths / 10, abs=1)
    assert pins.chip.contents[BLOCK : BLOCK + done] == b"\xff" * done
    assert pins.status() == 0
    pins.clock.now += timing.FLASH_BLOCK_ERASE.clocks
    assert pins.chip.contents[BLOCK : 2 * BLOCK].count(b"\xff") == done, "it is not taken up again"


def test_a_power_cut_in_a_page_program() -> None:
    pins = Pins()
    pins.chip.transfer(command(Command.WREN))
    pins.chip.transfer(command(Command.PP, 0, bytes(PAGE)))
    pins.clock.now += timing.FLASH_PAGE_PROGRAM.clocks // 2
    pins.chip.cut_power()
    assert pins.read(0, PAGE) == bytes(PAGE // 2) + b"\xff" * (PAGE // 2)


def test_what_survives_without_power() -> None:
    pins = Pins(b"image", b"serial")
    pins.enabled(command(Command.WRSR, data=b"\x0c"))
    again = FlashChip.restore(Scheduler(), pins.chip.save())
    assert again.contents == pins.chip.contents
    assert again.otp == pins.chip.otp
    assert again.transfer(command(Command.RDSR), 1) == b"\x0c"
    dump = FlashChip.restore(Scheduler(), pins.chip.contents)
    assert dump.otp == b"\xff" * OTP_SIZE
    assert dump.transfer(command(Command.RDSR), 1) == b"\0"
    with pytest.raises(InvalidInput, match="has 7"):
        FlashChip.restore(Scheduler(), bytes(7))
    with pytest.raises(InvalidInput, match="flash contents"):
        FlashChip(Scheduler(), bytes(SIZE + 1))


def test_bit_error() -> None:
    pins = Pins(b"\x00\x80")
    pins.chip.flip(1, 7)
    pins.chip.flip(0, 0)
    assert pins.read(0, 2) == b"\x01\x00"
    with pytest.raises(InvalidInput):
        pins.chip.flip(SIZE, 0)


def test_nonsense_on_the_pins_does_nothing() -> None:
    pins = Pins(b"abc")
    for out in (b"", b"\x00", b"\x03\x00", b"\x77abc", b"\xd8\x00", b"\x02\x00\x00"):
        pins.chip.transfer(command(Command.WREN))
        assert pins.chip.transfer(out, 2) == b"\xff\xff"
        assert pins.chip.busy_clocks == 0
    assert pins.read(0, 3) == b"abc"


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*Command, 0x00, 0xAB]),
            st.binary(max_size=8),
            st.integers(0, 8),
            st.integers(0, 10**6),
        ),
        max_size=20,
    )
)
def test_random_traffic_answers_as_many_bytes_as_were_clocked(traffic) -> None:
    pins = Pins()
    for code, rest, size, pause in traffic:
        assert len(pins.chip.transfer(bytes((code,)) + rest, size)) == size
        pins.clock.now += pause
    assert len(pins.chip.contents) == SIZE
    assert len(pins.chip.otp) == OTP_SIZE


# -- through the controller -----------------------------------------------------------------------------


GATED = Model.of(["flash-gate=needed"])


class Firmware:
    """Transactions as the open firmware's flash script runs them."""

    def __init__(
        self, contents: bytes = b"", *, gate: bool = True, strict: bool = True, model: Model = DEFAULT
    ) -> None:
        self.clock = Scheduler()
        self.bus = Bus(ASM2464PD, self.clock, strict=strict)
        self.chip = FlashChip(self.clock, contents, flash_layout.otp(b"\x01\x02\x03\x04"))
        FlashController(self.bus, self.chip, model)
        if gate:
            self.write(0xCA81, self.read(0xCA81) | 0x01)
        self.write(0xC805, 0x02)
        self.write(0xC8A6, 0x04)

    def write(self, address: int, value: int) -> None:
        self.bus.cpu_write(Space.XDATA, address, value)

    def read(self, address: int) -> int:
        return self.bus.cpu_read(Space.XDATA, address)

    def start(
        self, code: int, address: int = 0, length: int = 0, *, bytes_mode: int = 0x07, write: bool = False
    ) -> None:
        for register, value in (
            (0xC8AD, int(write)),
            (0xC8AE, 0),
            (0xC8AF, 0),
            (0xC8AA, code),
            (0xC8AC, bytes_mode),
            (0xC8A1, address & 0xFF),
            (0xC8A2, address >> 8 & 0xFF),
            (0xC8AB, address >> 16),
            (0xC8A3, length >> 8),
            (0xC8A4, length & 0xFF),
            (0xC8A9, 0x01),
        ):
            self.write(register, value)

    def finish(self) -> int:
        """Let time pass until the controller is ready; the clocks it took."""
        began = self.clock.now
        while self.read(0xC8A9) & 1:
            due = self.clock.next
            assert due is not None, "busy without end"
            self.clock.now = due
            self.clock.run_due()
        return self.clock.now - began

    def run(self, code: int, address: int = 0, length: int = 0, **how) -> int:
        self.start(code, address, length, **how)
        return self.finish()

    def buffer(self, size: int) -> bytes:
        return self.bus.load(Space.XDATA, 0x7000, size)

    def status(self) -> int:
        self.run(Command.RDSR, length=1, bytes_mode=0x04)
        return self.buffer(1)[0]

    def write_enable(self) -> None:
        self.run(Command.WREN, bytes_mode=0x04)

    def wait(self) -> None:
        while self.status() & Status.WIP:
            self.clock.now += clocks(1e-3)


def test_reading_identification_and_memory() -> None:
    firmware = Firmware(bytes(range(256)) * 16)
    firmware.run(Command.RDID, length=3, bytes_mode=0x04)
    assert firmware.buffer(3) == b"\xc2\x20\x14"
    for mode in (0x07, 0x03):  # the open firmware's, and that of cyrozap's tool
        firmware.bus.store(Space.XDATA, 0x7000, bytes(256))
        firmware.run(Command.READ, 0x123, 128, bytes_mode=mode)
        assert firmware.buffer(128) == (bytes(range(256)) * 2)[0x23 : 0x23 + 128]


def test_a_transaction_takes_the_time_of_its_bits() -> None:
    firmware = Firmware()
    assert firmware.run(Command.READ, 0, 4096) == 8 * (1 + 3 + 4096) * 5
    assert firmware.run(Command.WREN, bytes_mode=0x04) == 8 * 5


def test_data_arrives_at_the_end_of_the_transaction() -> None:
    firmware = Firmware(b"data")
    firmware.start(Command.READ, 0, 4)
    assert firmware.read(0xC8A9) == 1
    assert firmware.buffer(4) == bytes(4)
    firmware.finish()
    assert firmware.buffer(4) == b"data"


def test_erase_and_program_as_the_flash_script_does() -> None:
    firmware = Firmware(bytes(SIZE))
    firmware.write_enable()
    firmware.run(Command.BE, 0x010000)
    assert firmware.status() & Status.WIP
    firmware.wait()
    for address in (0x010000, 0x010080):
        firmware.bus.store(Space.XDATA, 0x7000, b"towline!" * 16)  # a bulk OUT packet
        firmware.write_enable()
        firmware.run(Command.PP, address, 128, write=True)
        firmware.wait()
    contents = firmware.chip.contents
    assert contents[0x010000:0x010100] == b"towline!" * 32
    assert contents[0x010100:0x020000] == b"\xff" * (BLOCK - PAGE)
    assert contents[0x00FFFF] == contents[0x020000] == 0


def test_reading_the_serial_number() -> None:
    firmware = Firmware()
    firmware.run(Command.ENSO, bytes_mode=0x04)
    page = b""
    for address in range(5):
        firmware.run(Command.READ, address, 1)
        page += firmware.buffer(1)
    firmware.run(Command.EXSO, bytes_mode=0x04)
    assert flash_layout.serial_number(page) == "01020304"


def test_block_protection_is_taken_off_through_the_buffer() -> None:
    firmware = Firmware()
    for value in (0x1C, 0x00):
        firmware.bus.store(Space.XDATA, 0x7000, bytes((value, 0, 0, 0)))
        firmware.write_enable()
        firmware.run(Command.WRSR, length=1, bytes_mode=0x04, write=True)
        firmware.wait()
        assert firmware.status() == value


def test_the_gate_is_not_needed() -> None:
    """As the maker's firmware and later revisions of the open firmware read the flash."""
    firmware = Firmware(b"data", gate=False)
    firmware.run(Command.READ, 0, 4)
    assert firmware.buffer(4) == b"data"


def test_a_model_in_which_the_gate_is_needed(caplog: pytest.LogCaptureFixture) -> None:
    firmware = Firmware(b"data", gate=False, strict=False, model=GATED)
    for _ in range(2):
        assert firmware.run(Command.READ, 0, 4) == 0
        assert firmware.buffer(4) == bytes(4)
    assert [message for message in caplog.messages if "FLASH_GATE" in message] == caplog.messages
    assert len(caplog.messages) == 1
    firmware.write(0xCA81, 0x01)
    firmware.run(Command.READ, 0, 4)
    assert firmware.buffer(4) == b"data"


def test_the_data_goes_through_the_chosen_buffer() -> None:
    """0 is the bulk IN buffer, as the maker's firmware has it; 2 the bulk OUT buffer, as the open one."""
    firmware = Firmware(b"from flash")
    firmware.write(0xC805, 0x00)
    firmware.run(Command.READ, 0, 10)
    assert firmware.bus.load(Space.XDATA, 0x8000, 10) == b"from flash"
    assert firmware.buffer(10) == bytes(10)
    firmware.write_enable()
    firmware.bus.store(Space.XDATA, 0x8000, b"page")
    firmware.run(Command.PP, 0x20000, 4, write=True)
    firmware.clock.now += timing.FLASH_PAGE_PROGRAM.clocks
    firmware.write(0xC805, 0x02)
    firmware.run(Command.READ, 0x20000, 4)
    assert firmware.buffer(4) == b"page"
    for value in (0x04, 0x06):
        firmware.write(0xC805, value)
        with pytest.raises(Undefined, match="another buffer"):
            firmware.run(Command.READ, 0, 4)


def test_commands_with_the_address_lengths_of_the_makers_firmware() -> None:
    """FLASH_ADDRESS_LENGTH is 3 with an address and 0 without; the open firmware has a bit set beside."""
    firmware = Firmware(bytes(range(256)))
    firmware.run(Command.RDID, length=3, bytes_mode=0x00)
    assert firmware.buffer(3) == b"\xc2\x20\x14"
    firmware.run(Command.READ, 0x40, 4, bytes_mode=0x03)
    assert firmware.buffer(4) == bytes(range(0x40, 0x44))


def test_uses_that_sources_disagree_on_are_errors_under_strict() -> None:
    with pytest.raises(Undefined, match="FLASH_GATE"):
        Firmware(gate=False, model=GATED).run(Command.READ, 0, 4)
    firmware = Firmware(b"from flash")
    firmware.start(Command.READ, 0, 10)
    firmware.bus.store(Space.XDATA, 0x7000, b"from host!")
    with pytest.raises(Undefined, match="0x7000 changed"):
        firmware.finish()


def test_a_packet_in_the_buffer_under_a_transaction_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    firmware = Firmware(b"from flash", strict=False)
    with caplog.at_level(logging.WARNING):
        firmware.start(Command.READ, 0, 10)
        firmware.bus.store(Space.XDATA, 0x7000, b"from host!")
        firmware.finish()
    assert firmware.buffer(10) == b"from flash"
    assert len(caplog.messages) == 1
    assert "0x7000 changed under a flash transaction" in caplog.messages[0]


def test_a_start_while_busy_is_ignored() -> None:
    firmware = Firmware(b"abcd")
    firmware.start(Command.READ, 0, 4)
    firmware.write(0xC8AA, Command.RDID)
    firmware.write(0xC8A9, 0x01)
    firmware.finish()
    assert firmware.buffer(4) == b"abcd"
    assert firmware.clock.next is None


def test_offset_and_length_stay_inside_the_buffer() -> None:
    firmware = Firmware(bytes(range(256)) * 64)
    firmware.bus.store(Space.XDATA, 0x8000, b"\xee")
    firmware.start(Command.READ, 0, 0)
    firmware.finish()
    for register, value in ((0xC8AE, 0x0F), (0xC8AF, 0xFE), (0xC8A3, 0x80), (0xC8A9, 0x01)):
        firmware.write(register, value)
    firmware.finish()
    assert firmware.bus.load(Space.XDATA, 0x7FFE, 3) == b"\x00\x01\xee"

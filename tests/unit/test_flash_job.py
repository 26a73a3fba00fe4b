"""What the flasher decides and refuses, on the boot loader of an emulated board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from emulator.asm2464pd.flash_chip import Command
from emulator.board import Board
from firmware.asm2464pd import bot, flash_layout, image
from sdk.errors import CheckFailed, DeviceFailed, InvalidInput, OutputFailed, Unsupported, UsageError
from tests.flash_bench import CONFIG, SERIAL, Bench, Cut, filler, holds, running, saved
from usbgpu import transport
from usbgpu.flash import job, plan, state
from usbgpu.flash.job import FlashAborted, FlashInterrupted, NotStarted
from usbgpu.flash.mass_storage import MassStorage
from usbgpu.flash.programmer import VerifyFailed, choose
from usbgpu.flash.spi import SpiFlash, Xdata
from usbgpu.flash.state import Backup
from usbgpu.transport import AccessDenied, Running, Transport

OLD, NEW = filler(700), filler(900)
OTHER = (flash_layout.seal(0, b"\x01" * 0x80), flash_layout.seal(1, b"\x02" * 0x80))
ERASED = (b"\xff" * 0x80, b"\xff" * 0x80)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "bench", saved(OLD))


def interrupted(bench: Bench, cut: Cut | None = None) -> Cut:
    """Cut the power near the end of the last erase of block 0, which leaves it empty."""
    if cut is None:
        whole = bench.copy(bench.home / "whole")
        whole.flash(whole.power(strap=True), NEW)
        cut = Cut(max(place for place, clocks in enumerate(whole.operations) if clocks > 10**7), 0.9)
    with pytest.raises(FlashInterrupted):
        bench.flash(bench.power(strap=True), NEW, cut=cut)
    return cut


# -- images -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "11 bytes or more"),
        (b"\x02\x00\x06" + bytes(5000), "body_length"),
        (NEW[:-1], "body_length"),
        (NEW[:-1] + b"!", "crc"),
        (NEW[:50] + b"!" + NEW[51:], "checksum"),
        (NEW + b"more", "4 bytes"),
        (bytes(image.MAX_IMAGE + 1), str(image.MAX_IMAGE)),
    ],
)
def test_a_file_that_is_not_a_wrapped_image_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "image.bin"
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match=words) as caught:
        job.read_image(path)
    assert "towline firmware build" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="No such file"):
        job.read_image(tmp_path / "none.bin")


def test_the_releases_in_an_image_are_those_of_its_device_descriptors() -> None:
    descriptor = bytes.fromhex("1201 2003 000000 09 d1ad 0100 0107 010203 01".replace(" ", ""))
    assert job.releases(b"xx" + descriptor + b"\x12\x01" + descriptor.replace(b"\x01\x07", b"\x02\x07")) == {
        0x0701,
        0x0702,
    }
    assert job.releases(descriptor.replace(b"\xd1\xad", b"\x01\x38")) == job.releases(descriptor) != set()
    assert job.releases(OLD) == set()


# -- devices ----------------------------------------------------------------------------------------------


def test_a_device_that_is_not_a_bridge_is_refused(bench: Bench) -> None:
    device = transport.attach(bench.power(strap=True).backend())
    unknown = replace(device.identify(), running=Running.UNKNOWN)
    with pytest.raises(Unsupported, match="not a bridge"):
        choose(device, unknown)


def test_another_chip_of_the_maker_is_refused(bench: Bench, monkeypatch) -> None:
    inquiry = bytes((0, 0x80, 6, 2, 31, 0, 0, 0)) + b"ASMT    ASM236X         0   "
    monkeypatch.setattr("usbgpu.flash.mass_storage.MassStorage.inquiry", lambda self: inquiry)
    with pytest.raises(Unsupported, match="ASM236X"):
        bench.prepare(bench.power(strap=True), NEW)
    inquiry = inquiry.replace(b"ASM236X", b"Gadget ")
    prepared = bench.prepare(bench.power(strap=True), NEW)
    assert "which chip" in prepared.programmer.caution


def test_a_device_that_does_not_return_its_configuration_is_refused(tmp_path: Path) -> None:
    device = transport.attach(Board.of("storage").backend())
    identity = replace(device.identify(), running=Running.MAKERS)
    device.identify = lambda: identity
    with pytest.raises(DeviceFailed, match="configuration") as caught:
        job.prepare(device, tmp_path, image=NEW, kind="emulated")
    assert "strap" in (caught.value.hint or "")


# -- where the configuration comes from ---------------------------------------------------------------------


def test_the_first_write_backs_up_what_the_flash_holds(bench: Bench) -> None:
    prepared = bench.prepare(bench.power(strap=True), NEW)
    assert prepared.contents.config == CONFIG
    path, journal = job.secure(prepared, bench.state, "emulated")
    kept = Backup.read(path)
    assert (kept.config, plan.image_in(kept.memory)) == (CONFIG, OLD)
    assert Backup.read(journal.backup) == kept
    job.write(prepared, journal)
    assert bench.jobs() == []


@pytest.mark.slow
def test_a_later_run_takes_the_configuration_from_the_interrupted_ones_backup(bench: Bench) -> None:
    interrupted(bench)
    assert bench.contents[:0x80] != CONFIG[0]
    prepared = bench.prepare(bench.power(), NEW)
    assert prepared.contents.config == CONFIG
    assert prepared.present is None, "a half-written flash does not replace the complete backup"
    assert any(str(prepared.resumes[0].backup) in warning for warning in prepared.warnings)
    bench.flash(bench.power(), NEW)
    assert holds(bench.contents, NEW)
    assert bench.jobs() == []
    assert len(list((bench.state / "backups").iterdir())) == 1


def test_without_a_journal_half_a_configuration_is_kept_with_a_warning(tmp_path: Path) -> None:
    half = CONFIG[0][:0x40] + b"\xff" * 0x40
    stranger = Bench(tmp_path, saved(OLD, config=(half, CONFIG[1])))
    prepared = stranger.prepare(stranger.power(strap=True), NEW)
    assert ["block 0 is not valid" in warning for warning in prepared.warnings] == [True]


def test_a_job_is_not_this_boards_if_another_configuration_was_written_since(bench: Bench) -> None:
    interrupted(bench)
    bench.file.write_bytes(saved(OLD, config=OTHER))
    prepared = bench.prepare(bench.power(strap=True), NEW)
    assert prepared.contents.config == OTHER
    assert prepared.resumes == ()


@pytest.mark.slow
def test_jobs_of_several_boards_need_a_named_backup(bench: Bench) -> None:
    cut = interrupted(bench)
    hurt = bench.contents
    first = bench.jobs()[0].backup
    bench.file.write_bytes(saved(OLD, config=OTHER))
    interrupted(bench, cut)
    bench.file.write_bytes(hurt)
    with pytest.raises(UsageError, match="several writes") as caught:
        bench.prepare(bench.power(), NEW)
    assert "--restore" in (caught.value.hint or "")
    bench.flash(bench.power(), NEW, restore=first)
    assert holds(bench.contents, NEW)
    assert len(bench.jobs()) == 1


@pytest.mark.slow
def test_boards_with_the_same_configuration_each_keep_their_journal(bench: Bench) -> None:
    """A power strip was switched off while one was being written, and another was next."""
    cut = interrupted(bench)
    first = bench.contents
    bench.file.write_bytes(saved(OLD))
    bench.flash(bench.power(strap=True), NEW)
    assert len(bench.jobs()) == 1, "an intact board does not end the other's"
    bench.file.write_bytes(saved(OLD))
    interrupted(bench, cut)
    assert len(bench.jobs()) == 2
    for left, hurt in ((1, bench.contents), (0, first)):
        bench.file.write_bytes(hurt)
        bench.flash(bench.power(), NEW)
        assert bench.contents[:0x100] == b"".join(CONFIG)
        assert len(bench.jobs()) == left


def test_a_job_is_not_this_boards_if_its_flash_holds_an_image_that_the_job_never_saw(bench: Bench) -> None:
    """A board whose configuration was never written must not get that of another."""
    interrupted(bench)
    stranger = filler(1100)
    bench.file.write_bytes(saved(stranger, config=ERASED))
    prepared = bench.prepare(bench.power(strap=True), NEW)
    assert prepared.contents.config == ERASED
    assert prepared.resumes == ()


def test_what_is_unknown_of_a_board_is_reported(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "backup.json"
    state.export(Backup(state.now(), "x", None, OTHER, b""), path)
    prepared = bench.prepare(bench.power(strap=True), NEW, restore=path)
    assert ["holds another valid configuration" in warning for warning in prepared.warnings] == [True]
    interrupted(bench)
    prepared = bench.prepare(bench.power(strap=True), NEW)
    assert any("whether this is the board of that write" in warning for warning in prepared.warnings)


def test_a_write_interrupted_on_another_computer_is_suspected(bench: Bench, tmp_path: Path) -> None:
    interrupted(bench)
    elsewhere = Bench(tmp_path / "elsewhere", bench.contents)
    prepared = elsewhere.prepare(elsewhere.power(), NEW)
    assert any("interrupted on another computer" in warning for warning in prepared.warnings)
    (backup,) = (bench.state / "backups").iterdir()
    elsewhere.flash(elsewhere.power(), NEW, restore=backup)
    assert holds(elsewhere.contents, NEW)


def test_a_journal_whose_backup_is_missing_says_what_to_do(bench: Bench) -> None:
    interrupted(bench)
    bench.jobs()[0].backup.unlink()
    with pytest.raises(InvalidInput, match="cannot be read") as caught:
        bench.prepare(bench.power(), NEW)
    assert "--restore" in (caught.value.hint or "")


def test_restoring_writes_the_old_image_and_configuration_back(bench: Bench, tmp_path: Path) -> None:
    prepared = bench.prepare(bench.power(strap=True), NEW)
    path, journal = job.secure(prepared, bench.state, "emulated")
    job.write(prepared, journal)
    bench.file.write_bytes(saved(NEW, config=OTHER))
    elsewhere = tmp_path / "backup.json"
    elsewhere.write_bytes(path.read_bytes())
    bench.flash(bench.power(strap=True), None, restore=elsewhere)
    assert holds(bench.contents, OLD)


def test_a_backup_that_cannot_be_used_is_refused(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "backup.json"
    state.export(Backup(state.now(), "x", None, CONFIG, b""), path)
    with pytest.raises(InvalidInput, match="no complete image"):
        bench.prepare(bench.power(strap=True), None, restore=path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(InvalidInput, match="damaged"):
        bench.prepare(bench.power(strap=True), NEW, restore=path)


def test_no_backup_no_write(bench: Bench) -> None:
    bench.state.mkdir()
    (bench.state / "backups").write_text("in the way")
    before = bench.contents
    with pytest.raises(OutputFailed, match="cannot be created") as caught:
        bench.flash(bench.power(strap=True), NEW)
    assert "nothing was changed" in (caught.value.hint or "")
    assert bench.contents == before


# -- writing ------------------------------------------------------------------------------------------------


def test_the_backup_is_on_the_disk_before_the_flash_changes(bench: Bench, monkeypatch) -> None:
    """Its bytes, its name, and the journal's; and the journal goes after the last change."""
    events: list[str] = []
    sync = state.os.fsync

    def fsync(handle: int) -> None:
        sync(handle)
        events.append(Path(f"/proc/self/fd/{handle}").resolve().parent.name)

    monkeypatch.setattr(state.os, "fsync", fsync)
    bench.flash(bench.power(strap=True), NEW, begun=lambda board, operation: events.append("flash"))
    first, last = events.index("flash"), len(events) - 1 - events[::-1].index("flash")
    assert events[:first].count("backups") >= 1
    assert events[:first].count("jobs") >= 1
    assert events[first : last + 1] == ["flash"] * len(bench.operations)
    assert events[last + 1 :] == ["state"], "the directory `jobs`, where the journal was"


def test_an_image_that_ends_in_erased_bytes_is_there_only_if_all_of_it_is(bench: Bench) -> None:
    survey = bench.prepare(bench.power(strap=True), NEW).programmer.survey(lambda *step: None)
    assert survey.memory is not None
    contents = plan.Contents(CONFIG, OLD[:-1] + b"\xff")
    cut = replace(survey, memory=survey.memory[: 0x100 + len(OLD) - 1])
    assert not job._holds(cut, contents)
    assert job._holds(survey, plan.Contents(CONFIG, OLD))


def test_an_image_that_is_there_is_not_written_again(bench: Bench) -> None:
    bench.flash(bench.power(strap=True), NEW)
    written, _ = bench.flash(bench.power(strap=True), NEW)
    assert written is None
    assert bench.operations == []


def test_erased_configuration_blocks_stay_erased(tmp_path: Path) -> None:
    bench = Bench(tmp_path, saved(OLD, config=ERASED))
    bench.flash(bench.power(strap=True), NEW)
    assert bench.contents[:0x100] == b"\xff" * 0x100
    assert bench.contents[0x100 : 0x100 + len(NEW)] == NEW


def test_erased_configuration_blocks_are_restored_over_others(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "backup.json"
    state.export(Backup(state.now(), "x", None, ERASED, b""), path)
    bench.flash(bench.power(strap=True), NEW, restore=path)
    assert bench.contents[:0x100] == b"\xff" * 0x100


def test_a_bit_that_was_wrong_once_is_written_again(bench: Bench) -> None:
    written, _ = bench.flash(
        bench.power(strap=True),
        NEW,
        begun=lambda board, operation: board.flash.flip(0x1F0, 3) if len(bench.operations) == 14 else None,
    )
    assert written is not None
    assert written.repeats == 1
    assert holds(bench.contents, NEW)


def stuck(board: Board, address: int) -> None:
    """A cell that always reads 0."""
    read = board.flash._commands[Command.READ]

    def answer(out: bytes, size: int) -> bytes:
        data = bytearray(read(out, size))
        place = address - int.from_bytes(out[:3], "big")
        if 0 <= place < size:
            data[place] = 0
        return bytes(data)

    board.flash._commands[Command.READ] = answer


def test_a_bit_that_stays_wrong_is_reported_with_its_address(bench: Bench) -> None:
    board = bench.power(strap=True)
    stuck(board, 0x1F1)
    with pytest.raises(VerifyFailed, match=r"0x00 .* 3 attempts") as caught:
        bench.flash(board, NEW)
    assert caught.value.where == "flash address 0x001f1"
    assert "backups" in (caught.value.hint or "")
    assert "guess" in (caught.value.hint or "")
    assert len(bench.jobs()) == 1


def test_a_cable_pulled_in_the_middle_is_reported_and_the_write_resumes(bench: Bench) -> None:
    board = bench.power(strap=True)

    def pull(board: Board, operation: int) -> None:
        if operation == 4:
            board.usb.unplug()

    with pytest.raises(FlashInterrupted, match="gone") as caught:
        bench.flash(board, NEW, begun=pull)
    assert "same command" in (caught.value.hint or "")
    board.usb.plug()
    bench.flash(board, NEW)
    assert holds(bench.contents, NEW)


def test_ctrl_c_in_the_middle_is_reported_too(bench: Bench, monkeypatch) -> None:
    def interrupt(self, contents, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr("usbgpu.flash.programmer.StorageProgrammer.write", interrupt)
    with pytest.raises(FlashAborted) as caught:
        bench.flash(bench.power(strap=True), NEW)
    assert caught.value.exit_code == 130
    assert len(bench.jobs()) == 1


def test_the_loader_starts_the_new_firmware_and_it_is_identified(bench: Bench, monkeypatch) -> None:
    monkeypatch.setattr(job, "releases", lambda wrapped: set())
    _, identity = bench.flash(bench.power(strap=True), running())
    assert identity is not None
    assert identity.running in (Running.OURS, Running.COMPATIBLE)
    monkeypatch.setattr(job, "releases", lambda wrapped: {0xBEEF})
    with pytest.raises(CheckFailed, match="0xbeef"):
        bench.flash(bench.power(strap=True), running())


def test_firmware_that_was_not_started_is_distinguished_from_the_new_one(bench: Bench, monkeypatch) -> None:
    """The user unplugged USB, and the supply kept the old firmware running: same release, another build."""
    identify = Transport.identify
    monkeypatch.setattr(Transport, "identify", lambda self: replace(identify(self), build=0xBAD00BAD))
    with pytest.raises(NotStarted, match="bad00bad"):
        bench.flash(bench.power(strap=True), running())


def test_firmware_that_does_not_answer_is_distinguished_from_a_wrong_flash(bench: Bench) -> None:
    prepared = bench.prepare(bench.power(strap=True), NEW)
    stays = SimpleNamespace(start=lambda: True)
    with pytest.raises(NotStarted, match=r"written.*does not answer"):
        job.start(replace(prepared, programmer=stays), lambda device: None)


def test_a_loader_that_leaves_in_the_middle_of_its_status(bench: Bench, monkeypatch) -> None:
    """What libusb reports then is one of several errors."""
    write = MassStorage.write

    def leave(self, command, data=b"", **members):
        write(self, command, data, **members)
        if command is bot.RESET:
            raise DeviceFailed("Input/Output Error")

    monkeypatch.setattr(MassStorage, "write", leave)
    _, identity = bench.flash(bench.power(strap=True), running())
    assert identity is not None
    assert identity.running is Running.OURS


def test_any_error_in_the_middle_of_a_write_says_how_to_continue(bench: Bench, monkeypatch) -> None:
    def refuse(self, contents, progress):
        raise AccessDenied("no permission to use the device")

    monkeypatch.setattr("usbgpu.flash.programmer.StorageProgrammer.write", refuse)
    with pytest.raises(FlashInterrupted, match="no permission") as caught:
        bench.flash(bench.power(strap=True), NEW)
    assert "leave the power on" in (caught.value.hint or "")


def test_a_board_that_was_not_power_cycled_is_not_checked(bench: Bench) -> None:
    prepared = bench.prepare(bench.power(strap=True), NEW)
    waits = SimpleNamespace(start=lambda: False)
    assert job.start(replace(prepared, programmer=waits), lambda device: None) is None
    with pytest.raises(CheckFailed, match="boot loader"):
        job.start(replace(prepared, programmer=waits), lambda device: device)


# -- the SPI controller -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_flash_through_the_spi_controller(tmp_path: Path) -> None:
    board = Bench(tmp_path, saved(running())).power()
    device = transport.attach(board.backend())
    flash = SpiFlash(device)
    assert flash.identification == bytes.fromhex("c22014")
    assert flash.otp()[:5] == flash_layout.otp(SERIAL)
    assert flash.read(0x100, 1000) == running()[:1000]
    flash.protect(0x1C)
    flash.unprotect()
    flash.erase(0x20000)
    flash.program(plan.Program(0x20010, b"some data"))
    assert flash.read(0x20000, 0x20) == b"\xff" * 0x10 + b"some data" + b"\xff" * 7
    assert board.flash.contents[0x20010:0x20019] == b"some data"


@pytest.mark.slow
def test_a_job_knows_its_board_although_the_backup_does_not(tmp_path: Path) -> None:
    """Restored from a backup that was made in the boot loader, and written through E4 and E5."""
    bench = Bench(tmp_path, saved(running()))
    path = tmp_path / "backup.json"
    state.export(Backup(state.now(), "x", None, CONFIG, b""), path)
    prepared = bench.prepare(bench.power(), NEW, restore=path)
    _, journal = job.secure(prepared, bench.state, "emulated")
    assert journal.serial == SERIAL.hex()


def test_a_buffer_of_which_only_128_bytes_are_reliable(tmp_path: Path) -> None:
    board = Bench(tmp_path, saved(running())).power()
    transfer = board.flash.transfer
    board.flash.transfer = lambda out, size=0: transfer(out, size)[:128] + b"?" * max(0, size - 128)
    flash = SpiFlash(transport.attach(board.backend()))
    assert flash.read(0x100, 1000) == running()[:1000]


def test_a_chip_that_stays_in_its_otp_page_is_not_written(tmp_path: Path) -> None:
    board = Bench(tmp_path, saved(running())).power()
    flash = SpiFlash(transport.attach(board.backend()))
    board.flash._commands[Command.EXSO] = lambda out, size: b""
    with pytest.raises(DeviceFailed, match="one-time programmable"):
        flash.otp()


def test_without_a_flash_chip(tmp_path: Path) -> None:
    board = Bench(tmp_path, saved(running())).power()
    board.flash.transfer = lambda out, size=0: bytes(size)
    with pytest.raises(DeviceFailed, match="flash chip"):
        SpiFlash(transport.attach(board.backend()))


def test_xdata_is_read_in_the_largest_pieces_that_firmware_answers(tmp_path: Path) -> None:
    board = Bench(tmp_path, saved(running())).power()
    device = transport.attach(board.backend())
    sizes = []
    device.observers.append(lambda call, outcome: sizes.append(call.length))
    assert len(Xdata(device).read(0x0000, 1200)) == 1200
    assert sizes == [512, 512, 176]

"""`towline firmware flash`: the power is cut at every flash operation, and no board is lost."""

from __future__ import annotations

import errno
import io
import itertools
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from emulator.asm2464pd.flash_chip import FlashChip
from emulator.asm2464pd.rom import find_image
from emulator.board import Board
from emulator.core.clock import Scheduler
from emulator.usb.wire import Speed
from firmware.asm2464pd import image
from firmware.asm2464pd.flash_layout import IMAGE
from sdk.errors import DeviceFailed
from sdk.report import table
from tests.amount import amount
from tests.flash_bench import (
    CONFIG,
    PROTECTED,
    TAIL,
    Bench,
    Cut,
    filler,
    holds,
    image_of,
    makers,
    running,
    saved,
)
from towline.cli import main
from towline.cli.flash_boards import EmulatedBoard
from usbgpu.flash import plan
from usbgpu.flash.job import FlashInterrupted
from usbgpu.flash.programmer import VerifyFailed, Written
from usbgpu.flash.state import Backup

SHARES = (0.0, 0.5)
"""How far an operation has got when the power is cut. At its end is just before the next one."""
FULL = 98_006
"""Bytes of the largest body."""


@dataclass
class Tally:
    """The outcome for the boards whose power was cut.

    Attributes:
        way: how they were written.
        size: bytes of the new image.
        operations: erases, programs and status writes of one undisturbed write.
        cuts: how often the power was cut: in all of them, at so many moments each.
        old: boards that then booted the old image; so are the next two the new image, and the boot loader
            because neither was complete.
        strap: boards without that fallback, which started only by the strap.
        recovered: boards that the same command brought to the new image.
    """

    way: str
    size: int
    operations: int = 0
    cuts: int = 0
    old: int = 0
    new: int = 0
    loader: int = 0
    strap: int = 0
    recovered: int = 0

    def came_up(self, contents: bytes, old: bytes, new: bytes, *, fallback: bool) -> bytes | None:
        """Count what a board with that flash does at power-on; the wrapped image that it boots."""
        found = whole_image(FlashChip.restore(Scheduler(), contents), old, new)
        self.old += found == old
        self.new += found == new
        self.loader += found is None and fallback
        self.strap += found is None and not fallback
        return found


def whole_image(chip: FlashChip, old: bytes, new: bytes) -> bytes | None:
    """The wrapped image that a board with that flash boots: one of these, and with its configuration."""
    found = find_image(chip)
    if not isinstance(found, bytes):
        return None
    assert image.wrap(found) in (old, new), "neither the old image nor the new one"
    assert chip.contents[: IMAGE.address] == b"".join(CONFIG), "an image without its configuration"
    return image.wrap(found)


@pytest.fixture(scope="module")
def tallies() -> Iterator[list[Tally]]:
    """Prints the table of the power cuts: `pytest -m slow -s -n 0 tests/e2e/test_flash.py`."""
    rows: list[Tally] = []
    yield rows
    headers = ("written through", "bytes", "operations", "cuts", "old", "new", "loader", "strap", "recovered")
    cells = [tuple(getattr(row, field.name) for field in fields(row)) for row in rows]
    boards = [row.old + row.new + row.loader + row.strap for row in rows]
    bricks = [count - row.recovered for count, row in zip(boards, rows, strict=True)]
    lines = [(*line, lost) for line, lost in zip(cells, bricks, strict=True)]
    print(f"\n{table((*headers, 'bricks'), lines)}")
    print("Boards start with the ROM's fallback and without it, in turn. With the full-size images, what the")
    print("flash holds in the middle of every operation of one write is recovered, once for both.")


@pytest.fixture
def tally(tallies: list[Tally], monkeypatch) -> Callable[..., Tally]:
    """A new row of the table, and no waits for the host's disk: a unit test checks that."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)

    def add(*what: Any) -> Tally:
        tallies.append(Tally(*what))
        return tallies[-1]

    return add


def chosen(operations: int) -> Sequence[int]:
    """Those in which the power is cut: every 29th and the last two; with `--thorough` all."""
    return sorted({*range(0, operations, amount(29, 1)), operations - 2, operations - 1})


def recover(bench: Bench, old: bytes, new: bytes, tally: Tally, *, fallback: bool) -> None:
    """What a user does after a power cut: power on, with the strap if nothing appears; the same command."""
    found = tally.came_up(bench.contents, old, new, fallback=fallback)
    board = bench.power(fallback=fallback)
    assert image_of(board) == found
    assert board.boot.loader == (found is None and fallback)
    if not board.boot.loader and found != running():  # filler does not enumerate
        board = bench.power(strap=True)
    bench.flash(board, new)
    assert holds(bench.contents, new)
    assert found is not None or not bench.jobs()
    assert image_of(bench.power(fallback=False)) == new
    tally.recovered += 1


def cut_everywhere(start: Bench, new: bytes, tally: Tally, *, strap: bool) -> None:
    """Cut the power in every operation of a job, and recover.

    At the begin of one operation and in the middle of the next; with the ROM's fallback and without, in turn.
    """
    old = image_of(start.power())
    assert old is not None
    whole = start.copy(start.home / "whole")
    whole.flash(whole.power(strap=strap), new)
    assert holds(whole.contents, new)
    tally.operations = len(whole.operations)
    for operation, (share, fallback) in zip(
        chosen(tally.operations), itertools.cycle(itertools.product(SHARES, (True, False))), strict=False
    ):
        hurt = start.copy(start.home / "hurt")
        with pytest.raises(FlashInterrupted) as caught:
            hurt.flash(hurt.power(strap=strap), new, cut=Cut(operation, share))
        assert "same command" in (caught.value.hint or "")
        tally.cuts += 1
        recover(hurt.copy(start.home / "again"), old, new, tally, fallback=fallback)
    assert tally.recovered == tally.cuts == len(chosen(tally.operations))


def cut_everywhere_in_copies(start: Bench, new: bytes, tally: Tally, *, strap: bool) -> None:
    """As `cut_everywhere`, from what the flash holds in the middle of every operation of a single job.

    For large images: a job is written once, and not again for every cut. One recovery counts for two: by
    itself or by the strap, the same boot loader starts. Before every operation only the image that would boot
    is checked.
    """
    old = image_of(start.power())
    assert old is not None
    whole = start.copy(start.home / "whole")
    middles: list[bytes] = []

    def begun(board: Board, operation: int) -> None:
        if not operation:  # the host's disk as a later run finds it
            shutil.copytree(whole.state, start.state)
        whole_image(board.flash, old, new)
        memory, work = bytearray(board.flash.contents), board.flash._operation
        assert work is not None
        done = len(work.result) // 2
        if work.target is board.flash._memory:
            memory[work.start : work.start + done] = work.result[:done]
        middles.append(bytes(memory[: plan.AREA]))

    whole.flash(whole.power(strap=strap), new, begun=begun)
    assert holds(whole.contents, new)
    tally.operations = len(whole.operations)
    rest = start.contents[plan.AREA :]
    (journal,) = (start.state / "jobs").iterdir()
    journal_text = journal.read_bytes()
    for operation in chosen(tally.operations):
        middle = middles[operation]
        start.file.write_bytes(middle + rest)
        journal.write_bytes(journal_text)
        tally.cuts += 1
        found = [tally.came_up(start.contents, old, new, fallback=fallback) for fallback in (True, False)]
        start.flash(start.power(strap=True), new)
        assert holds(start.contents, new)
        assert found[0] is not None or not start.jobs()
        tally.recovered += 2
    assert tally.operations > FULL // 0x200


@pytest.mark.slow
def test_power_cut_at_every_operation_of_a_write_through_e4_and_e5(tmp_path: Path, tally) -> None:
    """Both blocks, and the protection bits cleared and restored."""
    start, new = Bench(tmp_path / "start", saved(running(), status=PROTECTED)), filler(0x10180, every=0x80)
    cut_everywhere(start, new, tally("E4/E5", len(new)), strap=False)


@pytest.mark.slow
def test_power_cut_at_every_operation_of_a_write_in_mass_storage_mode(tmp_path: Path, tally) -> None:
    start, new = Bench(tmp_path / "start", saved(filler(2000), status=PROTECTED)), filler(0x10180, every=0x20)
    cut_everywhere(start, new, tally("mass storage", len(new)), strap=True)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["E4/E5", "mass storage"])
def test_power_cut_at_every_operation_of_a_full_size_write(tmp_path: Path, tally, way: str) -> None:
    """Three of four pages of the image are erased, which saves minutes."""
    start, new = Bench(tmp_path / "start", saved(running())), filler(FULL, every=4)
    cut_everywhere_in_copies(start, new, tally(way, len(new)), strap=way != "E4/E5")


@pytest.mark.slow
def test_power_cut_at_every_operation_of_a_recovery(tmp_path: Path, tally) -> None:
    """The power is cut a second time."""
    old, new = filler(300), filler(400)
    start = Bench(tmp_path / "start", saved(old))
    with pytest.raises(FlashInterrupted):
        start.flash(start.power(strap=True), new, cut=Cut(0, 0.5))
    whole = start.copy(tmp_path / "whole")
    whole.flash(whole.power(strap=True), new)
    row = tally("mass storage, again", len(new), len(whole.operations))
    for operation in chosen(row.operations):
        hurt = start.copy(tmp_path / "hurt")
        with pytest.raises(FlashInterrupted):
            hurt.flash(hurt.power(strap=True), new, cut=Cut(operation, 0.5))
        row.cuts += 1
        for fallback in (True, False):
            recover(hurt.copy(tmp_path / "again"), old, new, row, fallback=fallback)
    assert row.recovered == 2 * row.cuts


# -- through an image in the maker's style ------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("port", [Speed.SUPER_PLUS, Speed.HIGH])
def test_a_write_through_an_image_in_the_makers_style(tmp_path: Path, port: Speed) -> None:
    """By the maker's commands, in both parts; the configuration blocks stay."""
    bench, new = Bench(tmp_path, saved(makers())), filler(0x10180, every=0x40)
    written, _ = bench.flash(bench.power(port=port), new)
    assert written is not None
    assert holds(bench.contents, new)


@pytest.mark.slow
def test_power_cut_at_every_operation_of_a_write_through_an_image_in_the_makers_style(
    tmp_path: Path, tally
) -> None:
    start, new = Bench(tmp_path / "start", saved(makers())), filler(0x280)
    cut_everywhere(start, new, tally("maker's style", len(new)), strap=False)


# -- through E4/E5, what else can happen --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("port", [Speed.SUPER_PLUS, Speed.HIGH])
def test_a_write_through_e4_and_e5_changes_nothing_else(tmp_path: Path, port: Speed) -> None:
    """Both blocks; configuration, serial number, protection, and what follows the largest image stay."""
    start = saved(running(), status=PROTECTED)
    bench = Bench(tmp_path, start)
    new = filler(0x10180, every=0x40)
    written, _ = bench.flash(bench.power(port=port), new)
    assert written == Written(verified=0x11000, repeats=0)
    assert bench.contents == saved(new, status=PROTECTED)
    assert bench.contents.count(TAIL) == 1


@pytest.mark.slow
def test_bad_cells_and_a_pulled_cable_through_e4_and_e5(tmp_path: Path) -> None:
    bench, new = Bench(tmp_path, saved(running())), filler(300)

    def flip(board: Board, operation: int) -> None:
        if operation == 6:
            board.flash.flip(0x120, 3)

    flipped = bench.copy(tmp_path / "flip")
    written, _ = flipped.flash(flipped.power(), new, begun=flip)
    assert written is not None
    assert written.repeats == 1

    def wear(board: Board, operation: int) -> None:
        board.flash._memory[0x121] = 0

    worn = bench.copy(tmp_path / "wear")
    with pytest.raises(VerifyFailed, match="reads 0x00 instead of") as caught:
        worn.flash(worn.power(), new, begun=wear)
    assert caught.value.where == "flash address 0x00121"

    def pull(board: Board, operation: int) -> None:
        if operation == 2:
            board.usb.unplug()

    board = bench.power()
    with pytest.raises(FlashInterrupted, match="gone"):
        bench.flash(board, new, begun=pull)
    assert len(bench.jobs()) == 1
    board.usb.plug()  # the firmware still runs, from RAM, and its flash is half written
    bench.flash(board, new)
    assert holds(bench.contents, new)
    assert bench.jobs() == []


# -- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def towline(tmp_path: Path, monkeypatch, capsys):
    """Run `towline firmware flash`; exit code and JSON document."""
    monkeypatch.setenv("TOWLINE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    def run(*args: object) -> tuple[int, dict[str, Any]]:
        code = main(["firmware", "flash", *map(str, args), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def board(tmp_path: Path) -> Path:
    path = tmp_path / "board.flash"
    path.write_bytes(saved(filler(500)))
    return path


@pytest.fixture
def image_file(tmp_path: Path) -> Path:
    path = tmp_path / "new.bin"
    path.write_bytes(running())
    return path


LOADER = "emulated?strap"


def test_the_command_writes_and_starts(towline, board: Path, image_file: Path) -> None:
    code, document = towline(image_file, "--device", LOADER, "--flash", board, "--yes")
    result = document["result"]
    assert code == 0
    assert result["running"] == "mask ROM boot loader"
    assert result["config"] == ["valid", "valid"]
    assert result["verified_bytes"] == 0x100 + len(running())
    assert (result["written"], result["started"]) == (True, True)
    assert result["release"] in result["releases"]
    assert holds(board.read_bytes(), running())
    assert Backup.read(Path(result["backup"])).config == CONFIG


def test_a_dry_run_changes_nothing(towline, board: Path, image_file: Path, tmp_path: Path) -> None:
    before = board.read_bytes()
    code, document = towline(image_file, "--device", LOADER, "--flash", board, "--dry-run")
    assert code == 0
    assert document["result"]["erases"] == 3
    assert document["result"]["programs"] > len(running()) // 0x80
    assert board.read_bytes() == before
    assert not (tmp_path / "state").exists()


def test_backup_and_restore(towline, board: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup.json"
    board.write_bytes(saved(running()))
    code, document = towline("--backup", backup, "--device", LOADER, "--flash", board)
    assert (code, document["result"]["config"]) == (0, ["valid", "valid"])
    assert holds(board.read_bytes(), running())
    board.write_bytes(saved(filler(500), config=(b"\xff" * 0x80, b"\xff" * 0x80)))
    code, document = towline("--restore", backup, "--device", LOADER, "--flash", board, "--yes")
    assert (code, document["result"]["config_from"]) == (0, str(backup))
    assert holds(board.read_bytes(), running())


def test_a_backup_replaces_nothing(towline, board: Path, tmp_path: Path) -> None:
    kept = tmp_path / "good.json"
    kept.write_text("the good one")
    code, document = towline("--backup", kept, "--device", LOADER, "--flash", board)
    assert (code, document["error"]["code"]) == (2, "usage")
    assert kept.read_text() == "the good one"


def test_a_backup_that_cannot_be_written_leaves_no_journal(
    towline, board: Path, image_file: Path, tmp_path: Path
) -> None:
    before = board.read_bytes()
    way = (image_file, "--device", LOADER, "--flash", board, "--yes")
    code, document = towline(*way, "--backup", tmp_path)
    assert (code, document["error"]["code"]) == (1, "output-failed")
    assert "nothing was changed" in document["error"]["hint"]
    assert board.read_bytes() == before
    assert not list(tmp_path.glob("state/flash/jobs/*"))


@pytest.mark.parametrize("state", ["a file", "read-only"])
def test_without_a_place_for_the_backup_nothing_is_written(
    towline, board: Path, image_file: Path, tmp_path: Path, monkeypatch, state: str
) -> None:
    before = board.read_bytes()
    if state == "a file":
        (tmp_path / "state").write_text("in the way")
    else:  # even of root's writes

        def refuse(*args, **kind):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr("tempfile.mkstemp", refuse)
    monkeypatch.setattr("emulator.board.Board.close", lambda self: None)
    code, document = towline(image_file, "--device", LOADER, "--flash", board, "--yes")
    assert (code, document["error"]["code"]) == (1, "output-failed")
    assert "nothing was changed" in document["error"]["hint"]
    assert board.read_bytes() == before


def test_a_guess_is_reported_before_it_is_relied_upon(
    board: Path, image_file: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    """With --yes too."""
    monkeypatch.setenv("TOWLINE_STATE", str(tmp_path / "state"))
    begun: list[str] = []

    def write(*args: object) -> None:
        begun.append(capsys.readouterr().err)
        raise DeviceFailed("enough")

    monkeypatch.setattr("usbgpu.flash.job.write", write)
    args = ["firmware", "flash", str(image_file), "--device", LOADER, "--flash", str(board), "--yes"]
    assert main(args) == 1
    assert "is a guess" in begun[0]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "nothing to do"),
        (["IMAGE"], "not a terminal"),
        (["IMAGE", "--yes", "--device", "usb", "--flash", "x"], "are for --device emulated"),
        (["IMAGE", "--yes", "--device", "carrot"], "'carrot'"),
        (["IMAGE", "--yes", "--wait", "-1"], "--wait"),
        (["IMAGE", "--yes", "--wait", "nan"], "--wait"),
    ],
)
def test_invalid_command_lines(towline, image_file: Path, args: list[str], words: str) -> None:
    code, document = towline(*(image_file if word == "IMAGE" else word for word in args))
    assert code == 2
    assert words in document["error"]["message"]


@pytest.mark.parametrize("option", [[], ["--restore"]])
def test_a_wrong_file_is_reported_before_anything_is_asked(
    towline, tmp_path: Path, option: list[str]
) -> None:
    wrong = tmp_path / "cat.jpg"
    wrong.write_bytes(b"\xff\xd8\xff\xe0" + bytes(500))
    code, document = towline(*option, wrong, "--device", LOADER)
    assert (code, document["error"]["code"]) == (1, "invalid-input")
    assert str(wrong) in document["error"]["message"]


def test_the_user_is_asked_and_may_say_no(board: Path, image_file: Path, monkeypatch, capsys) -> None:
    before = board.read_bytes()
    terminal = io.StringIO("n\n")
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    assert main(["firmware", "flash", str(image_file), "--device", LOADER, "--flash", str(board)]) == 1
    shown = capsys.readouterr().err
    assert "Write this? [y/N]" in shown
    assert "configuration  blocks: valid, valid; from the flash" in shown
    assert "nothing was changed" in shown
    assert board.read_bytes() == before


@pytest.mark.slow
def test_the_command_after_a_power_cut(towline, board: Path, image_file: Path, tmp_path: Path) -> None:
    """Through E4/E5: the power is cut, the boot loader starts, the same command recovers the board."""
    board.write_bytes(saved(running()))
    other = tmp_path / "other.bin"
    other.write_bytes(filler(3000))
    flash = ("--device", "emulated", "--flash", board, "--yes")
    code, document = towline(other, *flash, "--inject", "power-cut@650ms")
    assert code == 1
    assert document["error"]["code"] == "flash-interrupted"
    assert "run the same command" in document["error"]["hint"]
    assert not holds(board.read_bytes(), running())
    code, document = towline(image_file, *flash)
    assert code == 0
    assert any("was interrupted" in warning for warning in document["result"]["warnings"])
    assert document["result"]["running"] == "mask ROM boot loader"
    assert document["result"]["started"]
    assert holds(board.read_bytes(), running())
    code, document = towline(image_file, *flash)
    assert (code, document["result"]["written"], document["result"]["erases"]) == (0, False, 0)
    assert document["result"]["running"] != "mask ROM boot loader"


def test_what_the_emulated_board_warns_of_is_a_warning(
    board: Path, image_file: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    opened = EmulatedBoard.open

    def noisy(self):
        logging.getLogger("emulator.board").warning("registers without a name")
        return opened(self)

    monkeypatch.setattr(EmulatedBoard, "open", noisy)
    monkeypatch.setenv("TOWLINE_STATE", str(tmp_path / "state"))
    arguments = ["firmware", "flash", str(image_file), "--device", LOADER, "--flash", str(board), "--dry-run"]
    assert main(arguments) == 0
    assert "towline: warning: registers without a name" in capsys.readouterr().err.splitlines()

"""Backups and journals: on the disk, whole, or not there at all."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from sdk.errors import InvalidInput, OutputFailed
from tests.flash_bench import CONFIG
from usbgpu.flash import state
from usbgpu.flash.state import Backup

BACKUP = Backup(
    "2025-11-21T06:00:00+00:00", "a bridge", "00c0ffee", CONFIG, b"\0\1\2" * 50, b"\xff" * 64, b"abc", 28
)


def test_a_backup_reads_back_unchanged(tmp_path: Path) -> None:
    path = state.keep(BACKUP, tmp_path)
    assert path == tmp_path / "backups" / f"20251121T060000-00c0ffee-{os.getpid()}.json"
    assert Backup.read(path) == BACKUP
    second = state.keep(Backup("2025-11-21T06:00:00+00:00", "a", None, CONFIG, b""), tmp_path)
    assert state.keep(BACKUP, tmp_path).stem == f"{path.stem}-2", "none is overwritten"
    assert Backup.read(second).otp is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:100], "not JSON"),
        (lambda text: text.replace('"status": 28', '"status": 29'), "digest"),
        (lambda text: text.replace('"schema": 1', '"schema": 2'), "schema 2"),
        (lambda text: json.dumps({"schema": 1}), "no digest"),
        (lambda text: "[]", "no digest"),
    ],
)
def test_a_damaged_backup_is_refused(tmp_path: Path, change, words: str) -> None:
    path = state.keep(BACKUP, tmp_path)
    path.write_text(change(path.read_text()))
    with pytest.raises(InvalidInput, match=words) as caught:
        Backup.read(path)
    assert caught.value.where == str(path)


def test_a_backup_with_a_right_digest_and_wrong_contents_is_refused(tmp_path: Path) -> None:
    document = BACKUP.document()
    document.pop("sha256")
    document["config"] = ["00"]
    path = tmp_path / "backup.json"
    path.write_text(json.dumps(document | {"sha256": state.digest_of(document)}))
    with pytest.raises(InvalidInput, match="damaged"):
        Backup.read(path)


def test_a_backup_of_lists_in_lists_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "backup.json"
    path.write_text("[" * 100_000)
    with pytest.raises(InvalidInput) as caught:
        Backup.read(path)
    assert caught.value.where == str(path)


def test_a_journal_names_what_was_interrupted_until_the_job_ends(tmp_path: Path) -> None:
    assert state.jobs(tmp_path, "usb") == []
    backup = state.keep(BACKUP, tmp_path)
    job = state.begin(tmp_path, backup, "usb", "00c0ffee", b"image")
    state.begin(tmp_path, backup, "emulated", None, b"image")
    assert state.jobs(tmp_path, "usb") == [job]
    assert Backup.read(job.backup) == BACKUP
    job.end()
    job.end()
    assert state.jobs(tmp_path, "usb") == []
    assert len(state.jobs(tmp_path, "emulated")) == 1


def test_the_directory_can_be_moved(tmp_path: Path) -> None:
    state.begin(tmp_path / "old", state.keep(BACKUP, tmp_path / "old"), "usb", None, b"image")
    (tmp_path / "old").rename(tmp_path / "new")
    (job,) = state.jobs(tmp_path / "new", "usb")
    assert Backup.read(job.backup) == BACKUP


def test_a_damaged_journal_is_an_error(tmp_path: Path) -> None:
    job = state.begin(tmp_path, state.keep(BACKUP, tmp_path), "usb", None, b"")
    job.path.write_text("{")
    with pytest.raises(InvalidInput, match="journal"):
        state.jobs(tmp_path, "usb")


def test_no_room_and_no_directory_are_errors_that_leave_nothing(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "backups").write_text("in the way")
    with pytest.raises(OutputFailed, match="cannot be created"):
        state.keep(BACKUP, tmp_path)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(state.os, "fsync", full)
    with pytest.raises(OutputFailed, match="No space left") as caught:
        state.keep(BACKUP, tmp_path / "other")
    assert "nothing was changed on the device" in (caught.value.hint or "")
    assert list((tmp_path / "other" / "backups").iterdir()) == []


def test_two_processes_that_save_two_boards_in_one_second_do_not_collide(tmp_path: Path, monkeypatch) -> None:
    """Each has seen that there is no such file before either has written it."""
    monkeypatch.setattr(state.Path, "exists", lambda path: False)
    mine = state.keep(BACKUP, tmp_path)
    monkeypatch.setattr(state.os, "getpid", lambda: 1)
    assert state.keep(BACKUP, tmp_path) != mine


def test_the_directory_is_the_users_or_the_variables(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOWLINE_STATE", str(tmp_path))
    assert state.directory() == tmp_path / "flash"
    monkeypatch.delenv("TOWLINE_STATE")
    assert state.directory().parts[-2:] == ("towline", "flash")

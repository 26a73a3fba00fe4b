"""Temporary files: what a killed process leaves is removed by a later one, and nothing else is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sdk import files

ROOT = Path(__file__).parents[2]

HOLD = (
    "import sys, time\n"
    "from pathlib import Path\n"
    "from sdk import files\n"
    "home = Path(sys.argv[1])\n"
    "with files.scratch_directory(home) as scratch, files.replacing(home / 'out') as out:\n"
    "    (scratch / 'inner').write_text('x')\n"
    "    out.write(b'half')\n"
    "    print('ready', flush=True)\n"
    "    time.sleep(60)\n"
)


@pytest.fixture
def held(tmp_path):
    """A process that holds a temporary directory and a temporary file in tmp_path."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def age(directory, seconds=2 * files.LITTER_SECONDS):
    then = time.time() - seconds
    for path in directory.iterdir():
        os.utime(path, (then, then), follow_symlinks=False)


def left(directory):
    files.remove_litter.cache_clear()
    files.write(directory / "result", b"")
    return sorted(path.name for path in directory.iterdir() if path.name != "result")


def test_what_a_killed_process_left_is_removed(held, tmp_path):
    held.send_signal(signal.SIGKILL)
    held.wait()
    assert len(left(tmp_path)) == 2, "it is new"
    age(tmp_path)
    assert left(tmp_path) == []


def test_what_a_living_process_holds_stays_however_old(held, tmp_path):
    age(tmp_path)
    assert len(left(tmp_path)) == 2


def test_nothing_else_is_removed(tmp_path):
    for mine in ("towline-mine", ".towline-keys", ".towline-12345678", ".towline-12345678.tmp2"):
        (tmp_path / mine).mkdir()
    (tmp_path / ".towline-env").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    (tmp_path / ".towline-link____.tmp").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / ".towline-pipe____.tmp")
    before = sorted(path.name for path in tmp_path.iterdir())
    age(tmp_path)
    assert left(tmp_path) == before
    assert (tmp_path / "elsewhere" / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_is_another_user_s_stays(tmp_path):
    (tmp_path / ".towline-theirs__.tmp").touch()
    os.chown(tmp_path / ".towline-theirs__.tmp", 12345, -1)
    age(tmp_path)
    assert left(tmp_path) == [".towline-theirs__.tmp"]


def test_a_clock_set_back_removes_nothing(tmp_path):
    (tmp_path / ".towline-new_____.tmp").touch()
    age(tmp_path, -1e6)
    assert left(tmp_path) == [".towline-new_____.tmp"]

"""./dev, in a checkout whose environment is made of stubs that record their arguments."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PYTHON = """#!/bin/sh
case "$*" in "-m pytest"*) printf '%s\\n' "$@" >"$CALLED" ;; esac
"""
SCRIPT = """#!/bin/sh
{ pwd; printf '%s\\n' "$@"; } >"$CALLED"
"""


@pytest.fixture
def dev(tmp_path):
    """Runs ./dev from another directory; the lines that the stub it ended in wrote."""
    checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    bin_ = checkout / ".venv" / "bin"
    bin_.mkdir(parents=True)
    elsewhere.mkdir()
    for name in ("dev", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout)
    (bin_ / "pip").write_text(f"#!{bin_}/python\n")
    for name, text in (("python", PYTHON), ("towline", SCRIPT), ("lint-imports", "#!/bin/sh\n")):
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    tools = {f"TOWLINE_{name}": "/stub" for name in ("CLANG", "LLD", "QEMU_HEXAGON")}
    there = tmp_path / "bin"
    there.mkdir()
    for name in re.findall(r"[a-z0-9_]+-linux-gnu\w*(?=:)", (ROOT / "dev").read_text()):
        (there / f"{name}-gcc").symlink_to("/bin/true")
    for name in ("gcc", "g++", "apt-get", "apt-cache"):  # nothing is installed
        (there / name).symlink_to("/bin/true")
    path = {"PATH": f"{there}:{os.environ['PATH']}"}
    environment = os.environ | tools | path | {"CALLED": str(tmp_path / "called")}

    def call(*words):
        subprocess.run([checkout / "dev", *words], cwd=elsewhere, env=environment, check=True, timeout=60)
        return (tmp_path / "called").read_text().splitlines()

    return call


def test_demo_writes_where_it_was_called(dev, tmp_path):
    assert dev("demo", "--keep", "out") == [str(tmp_path / "elsewhere"), "demo", "--keep", "out"]


@pytest.mark.parametrize("words", [("--slow", "-k", "x"), ("-k", "x", "--slow")])
def test_slow_is_an_option_of_dev_at_any_place(dev, words):
    assert dev("test", *words)[-4:] == ["-m", "not hardware", "-k", "x"]


def test_thorough_is_slow_and_goes_to_pytest(dev):
    assert dev("test", "--thorough", "-k", "x")[-5:] == ["-m", "not hardware", "--thorough", "-k", "x"]


def test_what_is_slow_is_left_out(dev):
    assert dev("test", "-x")[-3:] == ["-m", "not slow and not hardware", "-x"]

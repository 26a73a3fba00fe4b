"""The programs of examples/ do what they say."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

EXPECTED = {
    "cable_pulled.py": ("link state 3", "Disconnected", "what to do:"),
    "digits_on_dsp.py": ("000_label_5.png: 5", "0 differ"),
    "every_target.py": ("amd-gfx1201   000_label_5.png is 5", "hexagon-v68   000_label_5.png is 5"),
    "gpu_kernel.py": ("gfx1100: 256 of 256 are right",),
    "stream.py": ("frame 0: 5, ", "frame 39: ", " 0 lost"),
    "gpu_network.py": ("gfx1100: 96 compute units", "000_label_5.png 5", "degrees Celsius"),
}
"""What each prints, among other things."""
QUICK = ("cable_pulled.py", "gpu_kernel.py")


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_quick_examples(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    assert all(text in printed for text in EXPECTED[name]), printed


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(EXPECTED) - set(QUICK)))
def test_examples(name, tmp_path):
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert all(text in done.stdout for text in EXPECTED[name]), done.stdout

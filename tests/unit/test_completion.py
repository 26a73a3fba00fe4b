"""`towline completion`: the scripts, and what a real bash makes of one."""

import contextlib
import json
import shutil
import subprocess

import pytest

from towline.cli import VERBS, main

COMPLETE = """
source "$1"; shift
command=$(complete -p towline); command=${command##*-F }; command=${command%% *}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
"$command" towline "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The file of the script for bash."""
    pytest.importorskip("shtab")
    path = tmp_path_factory.mktemp("completion") / "towline.bash"
    with path.open("w") as file, contextlib.redirect_stdout(file):
        assert main(["completion", "bash"]) == 0
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["qu"], {"quantize"}),
        (["run", "--che"], {"--check"}),
        (["gpu", "inf"], {"info"}),
        (["compile", "--target", "hexagon-v6"], {"hexagon-v65", "hexagon-v66", "hexagon-v68"}),
        (["quantize", "--method", "per"], {"percentile"}),
        (["run", "net.t"], {"net.tow"}),
        ([""], set(VERBS)),
    ],
)
def test_bash_completes(script, tmp_path, words, expected):
    (tmp_path / "net.tow").touch()
    command = ["bash", "--norc", "-c", COMPLETE, "bash", str(script), "towline", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert set(done.stdout.split()) >= expected
    assert words == [""] or set(done.stdout.split()) == expected


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script(capsys, shell):
    pytest.importorskip("shtab")
    assert main(["completion", shell, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["shell"] == shell
    assert "quantize" in result["script"]


def test_without_shtab_the_answer_is_how_to_install_it(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "shtab", None)
    assert main(["completion", "bash"]) == 3
    assert "towline[completion]" in capsys.readouterr().err

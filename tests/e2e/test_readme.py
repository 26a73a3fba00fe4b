"""README and docs say what is true: the example runs, the commands parse, the links lead somewhere."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sdk.cli import parser
from sdk.preprocess import Preprocessing

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.slow
def test_the_example_classifies_three_digits(tmp_path):
    (example,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in example.splitlines() if line]) == 10
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = re.findall(r"label_(\d)\.png Prediction\(index=(\d),", done.stdout)
    assert len(answers) == 3
    assert all(label == index for label, index in answers)


@pytest.mark.slow
def test_the_command_list_of_the_firmware_s_page_runs():
    (example,) = blocks(ROOT / "docs" / "firmware.md", "python")
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(262400, b'x')\n"


def commands():
    for document in DOCUMENTS:
        for block in blocks(document, "sh"):
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                if words and words[0] == "towline":
                    yield pytest.param(words[1:], id=f"{document.name}: {' '.join(words)}")


@pytest.mark.parametrize("words", list(commands()))
def test_commands_parse(words):
    assert parser().parse_args(words).verb


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (document.parent / target).exists(), target


def test_the_recipe_in_the_tutorial_is_valid():
    (recipe,) = blocks(ROOT / "docs" / "compile.md", "json")
    assert Preprocessing.from_json(json.loads(recipe)).size == (224, 224)


def test_dev_commands_exist():
    usage = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
    for command in re.findall(r"\./dev (\w+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert f"\n  {command} " in usage

"""README and docs are true: the example runs, the links have a target. Commands: test_docs.py."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sdk.preprocess import Preprocessing

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document, language):
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.slow
def test_the_example_classifies_three_digits(tmp_path):
    (example,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in example.splitlines() if line]) <= 10
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = re.findall(r"label_(\d)\.png Prediction\(index=(\d),", done.stdout)
    assert len(answers) == 3
    assert all(label == index for label, index in answers)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_have_a_target(document):
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (document.parent / target).exists(), target


def test_the_recipe_in_the_tutorial_is_valid():
    (recipe,) = blocks(ROOT / "docs" / "compile.md", "json")
    assert Preprocessing.from_json(json.loads(recipe)).size == (224, 224)


def test_dev_commands_exist():
    usage = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
    for command in re.findall(r"\./dev (\w+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert f"\n  {command} " in usage

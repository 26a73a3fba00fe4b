"""The environment variables: one table, from which every reader takes the name; and no one writes them."""

import ast
import contextlib
import re
from pathlib import Path

import pytest

from sdk import cache, settings
from sdk.settings import SETTINGS
from towline.cli import parser

ROOT = Path(__file__).parents[2]
PACKAGES = ("towline", "emulator", "usbgpu", "dsp", "firmware", "sdk")
TABLE = ROOT / "sdk" / "settings.py"
NAME = re.compile(r"\bTOWLINE_[A-Z0-9_]+")
WRITTEN = {
    ROOT / "dsp" / "adreno" / "opencl.py": "PoCL, in this process, reads where to cache from there alone",
    ROOT / "emulator" / "coverage" / "environment.py": "for processes that are started later, elsewhere",
}
"""Where the process's own environment is changed, and why."""


def sources(pattern):
    """Files in which the pattern occurs, parsed."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if re.search(pattern, text := path.read_text(encoding="utf-8")):
                yield path, ast.parse(text)


def literals(tree):
    """Strings of a module, those of f-strings included, that do something: no docstrings."""
    idle = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in idle:
            yield node.value


def changes_environment(node):
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return ast.unparse(node.value) == "os.environ"
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {
        *(f"os.environ.{method}" for method in ("pop", "popitem", "clear", "update", "setdefault")),
        *("os.putenv", "os.unsetenv"),
    }


@pytest.mark.slow
def test_names_are_written_in_the_table_alone():
    found = {path: NAME.findall(" ".join(literals(tree))) for path, tree in sources(NAME)}
    assert sorted(found.pop(TABLE)) == sorted(setting.name for setting in SETTINGS)
    assert {path.name: names for path, names in found.items() if names} == {}


def test_every_variable_is_read_where_the_table_says():
    constants = {name: value for name, value in vars(settings).items() if value in SETTINGS}
    assert len(constants) == len(SETTINGS) == len({setting.name for setting in SETTINGS})
    for constant, setting in constants.items():
        read = re.compile(rf"\bsettings\.{constant}\b")
        for reader in setting.readers:
            place = ROOT / reader.replace(".", "/")
            modules = [place.with_suffix(".py"), *sorted(place.glob("*.py"))]
            assert any(path.is_file() and read.search(path.read_text()) for path in modules), reader


def test_help_lists_every_variable():
    text = parser().format_help()
    assert [setting.name for setting in SETTINGS if setting.name not in text] == []


@pytest.mark.slow
def test_the_environment_is_not_written():
    written = {
        path for path, tree in sources(r"environ|env\b") if any(map(changes_environment, ast.walk(tree)))
    }
    assert written == WRITTEN.keys()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("os.environ['X'] = '1'", True),
        ("del os.environ['X']", True),
        ("os.environ.pop('X', None)", True),
        ("os.environ.get('X')", False),
        ("x = {**os.environ, 'X': os.environ['X']}", False),
    ],
)
def test_what_writes_the_environment_is_noticed(line, expected):
    assert any(map(changes_environment, ast.walk(ast.parse(line)))) == expected


def test_an_empty_variable_says_nothing(monkeypatch):
    monkeypatch.setenv(settings.DEVICE.name, "")
    assert settings.DEVICE.value() is None
    monkeypatch.setenv(settings.DEVICE.name, "usb")
    assert settings.DEVICE.value() == "usb"


def test_an_empty_cache_lasts_for_a_block(tmp_path, monkeypatch):
    monkeypatch.setenv(settings.CACHE.name, str(tmp_path))
    with contextlib.suppress(KeyError), cache.empty():
        outer = cache.directory("x")
        cache.keep(outer / "file", b"")
        with cache.empty():
            assert not (cache.directory("x") / "file").exists()
        assert cache.directory("x") == outer
        raise KeyError
    assert cache.directory("x") == tmp_path / "x"
    assert not outer.exists()
    assert not any(tmp_path.iterdir())

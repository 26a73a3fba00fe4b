"""The public API: every name is there, explained, and imported only when it is used."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import towline


@pytest.mark.parametrize("name", towline.__all__)
def test_every_public_name_is_there_and_explained(name):
    value = getattr(towline, name)
    assert name in dir(towline)
    if name == "__version__":
        assert value[0].isdigit()
        return
    assert inspect.getdoc(value)
    if inspect.isclass(value):
        for member, method in inspect.getmembers(value, inspect.isfunction):
            assert member.startswith("_") or inspect.getdoc(method), f"{name}.{member}"


def test_every_public_name_is_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in towline.__all__ if name != "Error" and f"`{name}`" not in page] == []


def test_the_star_brings_what_is_listed():
    names = {}
    exec("from towline import *", names)
    assert names.keys() >= set(towline.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="compil"):
        towline.compil  # noqa: B018


def test_importing_costs_nothing():
    script = "import sys, towline; sys.exit('numpy' in sys.modules or 'sdk.session' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.slow
def test_a_card_behind_an_emulated_board():
    board = towline.emulated_board(gpu="gfx1201", vram="256M")
    with towline.open_gpu(board) as gpu:
        assert gpu.info().chip == gpu.chip == "gfx1201"
        assert gpu.info().vram == 256 << 20
        assert gpu.metrics().power > 0
        data = np.arange(64, dtype=np.uint32).tobytes()
        buffer = gpu.allocate(len(data))
        gpu.upload(buffer, data)
        assert gpu.download(buffer, len(data)) == data


def upload_until_it_fails(gpu, buffer):
    for _ in range(100):
        gpu.upload(buffer, bytes(buffer.size))


@pytest.mark.slow
def test_a_board_with_a_fault():
    board = towline.emulated_board(gpu="gfx1100", vram="256M", faults=["link-drop@300ms"])
    with towline.open_gpu(board) as gpu:
        buffer = gpu.allocate(4 << 20)
        with pytest.raises(towline.Error) as caught:
            upload_until_it_fails(gpu, buffer)
    assert caught.value.code == "disconnected"
    assert caught.value.hint


def test_a_board_without_a_card_has_no_gpu():
    with pytest.raises(towline.Error) as caught:
        towline.open_gpu(towline.emulated_board())
    assert caught.value.code == "device-missing"


@pytest.mark.parametrize(
    "wrong", [{"faults": ["meteor"]}, {"gpu": "gfx9"}, {"gpu": "gfx1100", "vram": "some"}]
)
def test_wrong_boards_are_usage_errors(wrong):
    with pytest.raises(towline.Error) as caught:
        towline.emulated_board(**wrong)
    assert caught.value.code == "usage"


def test_a_kernel_that_does_not_compile():
    with pytest.raises(towline.Error) as caught:
        towline.compile_kernels("kernel void f(", "gfx1100")
    assert caught.value.code == "build-failed"

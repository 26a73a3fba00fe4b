"""The card on the board: behind the bridge's firmware, by device string and by `towline emulate`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.board import Board
from emulator.options import described
from sdk.errors import UsageError
from tests.reference_host import Host
from towline.cli import main

BAR0, BAR2, BAR5 = 0x8_0000_0000, 0x8_4000_0000, 0x1000_0000
"""In the windows that the host opens on the bridges."""

HOST = """
from tests.e2e.test_amdgpu_board import discover
print(f"memory {discover(board):#x}")
"""


def discover(board: Board) -> int:
    """Set PCIe up through the firmware's compatible requests; the card's memory size register."""
    host = Host(board)
    host.power(True)
    host.sleep(0.2)
    host.set_up_pcie()
    assert host.config_read(4, 0x00) & 0xFFFF == 0x1002
    for register, base in ((0x10, BAR0), (0x18, BAR2)):
        host.config_write(4, register, base & 0xFFFFFFFF)
        host.config_write(4, register + 4, base >> 32)
    host.config_write(4, 0x24, BAR5)
    host.config_write(4, 0x04, 0x0006)
    return host.read32(BAR5 + 4 * 0xDE3)


@pytest.mark.slow
def test_a_device_string_puts_the_card_behind_the_firmware() -> None:
    name, options = described("emulated?gpu=gfx1201&vram=512M")
    board = Board.of(name or "firmware", options)
    assert board.usb.wait_attached(3.0)
    board.usb.enumerate()
    assert discover(board) == 512
    host = Host(board)
    data = bytes(range(256)) * 64
    host.stream_write(BAR0 + 0x10000, data)
    assert host.stream_read(BAR0 + 0x10000, len(data)) == data
    host.sleep(20e-6)
    assert board.endpoint.vram.read(0x10000, len(data)) == data  # type: ignore[attr-defined]


@pytest.mark.slow
def test_emulate_shows_the_cards_registers_by_name(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = tmp_path / "host.py"
    program.write_text(HOST)
    arguments = ["emulate", "firmware", "--gpu", "gfx1100", "--vram", "1G", "--host", str(program)]
    assert main([*arguments, "--trace", "gpu"]) == 0
    out, err = capfd.readouterr()
    assert "memory 0x400" in out
    assert "gpu  R NBIO:RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE = 0x400" in err
    assert "USB_" not in err, "the bridge's own registers were not chosen"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "gfx900"], "no emulated GPU 'gfx900'"),
        (["--gpu", ""], "not empty"),
        (["--vram", "1G"], "--gpu"),
        (["--gpu", "gfx1100", "--vram", "1T"], "'1T' is not a size"),
        (["--gpu", "gfx1100", "--vram", ""], "'' is not a size"),
        (["--gpu", "gfx1100", "--vram", "100M"], "VRAM cannot have 104857600"),
        (["--trace", "gpu"], "--gpu"),
        (["--gpu", "gfx1100", "--trace", "gpu,nothing"], "no block nothing"),
        (["--gpu", "gfx1100", "--replay", "x.jsonl"], "--replay"),
    ],
)
def test_wrong_cards_are_refused(
    capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["emulate", "firmware", *arguments, "--json"]) == 2
    assert message in json.loads(capfd.readouterr().out)["error"]["message"]


@pytest.mark.parametrize(
    "spec", ["emulated?gpu=", "emulated?vram=1G", "emulated?gpu=gfx1100&vram=", "emulated?gpu"]
)
def test_wrong_device_strings_are_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        described(spec)


@pytest.mark.slow
def test_without_a_gpu_its_facts_are_not_loaded() -> None:
    script = "import sys, emulator.board; print(*[m for m in sys.modules if 'amd' in m])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) == {
        "emulator.amdgpu",
        "emulator.amdgpu.disturbance",
        "usbgpu.amd",
        "usbgpu.amd.facts",
        "usbgpu.amd.facts.disputes",
    }

"""`towline gpu info` and `gpu doctor`: what they recognise, and what they report."""

import json

import pytest

from emulator.board import Board, emulated
from emulator.faults import parse as fault
from emulator.options import Options
from emulator.usb.wire import Speed
from towline.cli import bench_usb, main
from usbgpu.amd.facts.chips import CHIPS
from usbgpu.transport import device_string

VRAM = 512 << 20


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch, quiet_card):
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)
    monkeypatch.delenv("TOWLINE_FIRMWARE", raising=False)


def call(capsys, *argv):
    """(exit code, JSON document, lines of stderr) of a command line in this process."""
    code = main([*map(str, argv), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err.splitlines()


@pytest.fixture
def board(monkeypatch):
    """Puts a board behind `emulated`, which stays powered from one command to the next."""

    def put(**options):
        made = Board.of("firmware", Options(**options))
        backend = made.backend()
        monkeypatch.setattr(device_string, "backend", lambda named: backend)
        return made

    return put


@pytest.mark.slow
@pytest.mark.parametrize(("device", "chip", "pci"), [
    (None, "gfx1100", "1002:744c"),
    pytest.param("emulated?gpu=gfx1102&vram=512M", "gfx1102", "1002:7480", marks=pytest.mark.slow),
    pytest.param("emulated?gpu=gfx1200&vram=512M", "gfx1200", "1002:7590", marks=pytest.mark.slow),
    pytest.param("emulated?gpu=gfx1201&vram=512M", "gfx1201", "1002:7550", marks=pytest.mark.slow),
])  # fmt: skip
def test_the_emulated_card(device, chip, pci, capsys):
    code, document, _ = call(capsys, "gpu", "info", *([] if device is None else ["--device", device]))
    assert code == 0
    result = document["result"]
    assert result["bridge"]["running"] == "towline firmware"
    assert result["bridge"]["command_lists"]
    assert result["bridge"]["speed"] == "super-speed-plus"
    card = result["card"]
    assert (card["chip"], card["pci"], card["vram"], card["vram_reached"]) == (chip, pci, VRAM, VRAM)
    assert card["bars"] == {"0": VRAM, "2": 2 << 20, "5": CHIPS[chip].family.register_bar}
    assert card["untested"] == (chip in ("gfx1102", "gfx1200"))
    best = {"rate_gt": 16.0, "lanes": 4}
    assert result["link"] == {
        "pcie": {"rate_gt": 8.0, "lanes": 4, "bridge": best, "card": {"rate_gt": 16.0, "lanes": 16}}
    }
    assert result["open"]["cold"]
    assert result["open"]["left_clean"]
    assert result["open"]["transfers"] <= 60
    assert 0 < result["open"]["device_seconds"] < 1
    assert result["metrics"]["power_watts"] > 0
    assert result["metrics"]["temperatures_celsius"]["EDGE"] < 100
    assert result["metrics"]["clocks_mhz"]["GFXCLK"] > 1000


@pytest.mark.slow
def test_a_card_that_is_up_is_opened_warm(board, capsys):
    board(gpu="gfx1100", vram=VRAM)
    code, document, cold = call(capsys, "gpu", "info", "-v")
    assert code == 0
    assert document["result"]["open"]["cold"]
    assert 3 < len(cold) <= 12
    assert all(" ms  " in line for line in cold)
    code, document, warm = call(capsys, "gpu", "info", "-v")
    assert code == 0
    assert not document["result"]["open"]["cold"]
    assert document["result"]["open"]["transfers"] <= 12
    assert 1 <= len(warm) <= 3
    assert main(["gpu", "info"]) == 0
    assert "warm: it was up" in capsys.readouterr().out


@pytest.mark.slow
def test_compatible_firmware_works_and_is_distinguished_from_ours(tmp_path, capsys):
    image = tmp_path / "compatible.bin"
    image.write_bytes(bench_usb.compatible_firmware())
    assert main(["gpu", "info", "--device", f"emulated:{image}"]) == 0
    out = capsys.readouterr().out
    assert "compatible firmware" in out
    assert "command lists" not in out.splitlines()[1]
    assert "towline firmware flash" in out
    assert "gfx1100, 96 compute units" in out


@pytest.mark.parametrize(("device", "running"), [
    ("emulated:storage", "mass-storage firmware"),
    ("emulated?strap", "mask ROM boot loader"),
])  # fmt: skip
def test_other_firmware_is_named_with_what_to_run_next(device, running, capsys):
    code, document, _ = call(capsys, "gpu", "info", "--device", device)
    assert code == 1
    assert document["result"]["bridge"]["running"] == running
    assert document["result"]["card"] is None
    assert document["error"]["code"] == "firmware-unsuitable"
    assert "towline firmware flash" in document["error"]["hint"]
    code, document, _ = call(capsys, "gpu", "doctor", "--device", device)
    assert code == 3
    assert "bridge's firmware" in document["error"]["message"]


def test_an_empty_slot(board, capsys):
    board(gpu="gfx1100", vram=VRAM, faults=(fault("perst-stuck"),))
    code, document, _ = call(capsys, "gpu", "info")
    assert code == 1
    assert "link does not come up" in document["error"]["message"]
    assert "slot" in document["error"]["hint"]
    assert document["result"]["bridge"]["pcie_link_up"] is False
    assert main(["gpu", "info"]) == 1
    assert "no link" in capsys.readouterr().out


def test_something_else_in_the_slot(board, capsys):
    board()
    code, document, _ = call(capsys, "gpu", "info")
    assert (code, document["error"]["code"]) == (3, "device-missing")
    assert "not an AMD GPU" in document["error"]["message"]
    assert document["result"]["card"]["bdf"] == "04:00.0"


@pytest.mark.slow
def test_usb_2_works_and_is_reported_as_slow(board, capsys):
    board(gpu="gfx1100", vram=VRAM, port=Speed.HIGH)
    assert main(["gpu", "info"]) == 0
    out = capsys.readouterr().out
    assert "works, slower" in out
    assert "USB 3 port" in out
    code, document, _ = call(capsys, "gpu", "doctor")
    assert code == 0
    (link,) = (each for each in document["result"]["checks"] if each["name"] == "USB link")
    assert "slower" in link["problem"]


@pytest.mark.slow
def test_missing_and_damaged_firmware_files(tmp_path, capsys):
    code, document, _ = call(capsys, "gpu", "info", "--firmware", tmp_path)
    assert (code, document["error"]["code"]) == (3, "firmware-missing")
    assert "psp_13_0_0_sos.bin" in document["error"]["message"]
    assert "firmware-amd-graphics" in document["error"]["hint"]
    assert "non-free-firmware" in document["error"]["hint"]
    assert document["result"]["card"]["pci"] == "1002:744c", "what was found is reported"
    made = emulated("emulated?gpu=gfx1100").emulation.firmware_directory
    for path in made.iterdir():
        data = path.read_bytes()
        (tmp_path / path.name).write_bytes(data[: len(data) // 2] if "mec" in path.name else data)
    code, document, _ = call(capsys, "gpu", "info", "--firmware", tmp_path)
    assert (code, document["error"]["code"]) == (1, "invalid-firmware")
    assert "gc_11_0_0_mec.bin" in document["error"]["message"]
    code, document, _ = call(capsys, "gpu", "doctor", "--firmware", tmp_path, "--chip", "gfx1100")
    assert code == 3
    assert "firmware of gfx1100" in document["error"]["message"]
    code, document, _ = call(capsys, "gpu", "doctor", "--firmware", made, "--chip", "gfx1100")
    assert code == 0
    code, document, _ = call(capsys, "gpu", "info", "--firmware", tmp_path / "nowhere")
    assert (code, document["error"]["code"]) == (2, "usage")


@pytest.mark.parametrize(
    "argv",
    [
        ("info", "--device", "nonsense"),
        ("info", "--device", "emulated?gpu=gfx900"),
        ("info", "--chip", "gfx1100"),
        ("doctor", "--chip", "gfx900"),
        ("doctor", "--device", "emulated?colour=red"),
        ("doctor", "net.tow"),
    ],
)
def test_wrong_command_lines(argv, capsys):
    code, document, _ = call(capsys, "gpu", *argv)
    assert (code, document["error"]["code"]) == (2, "usage")

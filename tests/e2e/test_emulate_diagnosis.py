"""Why a board does nothing, as `towline emulate` and a host's time-outs report it; and ideas tried on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import usb.core

from emulator import images
from emulator.board import Board
from emulator.options import Options
from emulator.usb.wire import Setup, Speed
from firmware.asm2464pd.image import wrap
from sdk.errors import DeviceMissing
from tests.unknown_register import UNKNOWN
from towline.cli import main
from usbgpu import transport
from usbgpu.transport import TimedOut

WAIT = f"90{UNKNOWN:04X} E0 5430 60FB"
"""MOV DPTR,#UNKNOWN; wait: MOVX A,@DPTR; ANL A,#30; JZ wait."""


@pytest.fixture(scope="module")
def hung(tmp_path_factory) -> Path:
    """The mass-storage test image, which waits for UNKNOWN before it begins."""
    code = images.build("storage").bin.read_bytes()
    wait = bytes.fromhex(WAIT) + code[:3]  # and then LJMP to where it really starts
    path = tmp_path_factory.mktemp("hung") / "hung.bin"
    path.write_bytes(wrap(b"\x02" + len(code).to_bytes(2, "big") + code[3:] + wait))
    return path


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["emulate", *map(str, arguments)])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def document(capfd: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    code, out, _ = run(capfd, *arguments, "--json")
    assert code == 0
    return dict(json.loads(out)["result"])


def test_a_hung_image_is_reported_once(capfd, hung) -> None:
    code, out, err = run(capfd, hung)
    assert (code, out) == (0, "")
    assert err.count("spinning for ") == 1
    assert "spinning for 25" in err
    assert f"on xdata {UNKNOWN:#06x} = 0x00, about which nothing is known" in err
    assert err.count("USB_POWER_STATUS.USB_PATH (xdata 0x92c2 bit 6) = 0") == 1


def test_the_document_has_what_the_board_waits_for(capfd, hung) -> None:
    spinning, link = document(capfd, hung)["waits"]
    assert f"{UNKNOWN:#06x}" in spinning
    assert "USB_POWER_STATUS" in link
    assert document(capfd, "storage", "--for", "300ms")["waits"] == []


def test_strict_stops_there(capfd, hung) -> None:
    code, _, err = run(capfd, hung, "--strict")
    assert code == 1
    assert f"{UNKNOWN:#06x}" in err


@pytest.mark.parametrize("change", ["30@100ms", "10@1ms:always"])
def test_a_poke_makes_a_hung_image_boot(capfd, hung, change) -> None:
    found = document(capfd, hung, "--poke", f"xdata:{UNKNOWN:x}={change}", "--for", "500ms")
    assert found["speed"] == "super-speed-plus"
    assert found["uart"] == "towline test storage image\n"
    assert found["waits"] == []


def test_a_behaviour_makes_a_hung_image_boot(capfd, hung, tmp_path) -> None:
    idea = tmp_path / "idea.py"
    idea.write_text(
        f"def ready(access):\n    return 0x30 if access.kind == 'R' and access.seconds > 5e-4 else None\n"
        f"BEHAVIOUR = {{'xdata:{UNKNOWN:x}': ready}}\n"
    )
    code, out, err = run(capfd, hung, "--behaviour", idea, "--for", "300ms", "--trace", "link", "--strict")
    assert (code, out.strip()) == (0, "towline test storage image")
    assert f"{UNKNOWN:04x} = 00 -> 30" in err
    assert "USB super-speed-plus" in err


def test_time_outs_on_the_host_say_what_the_device_waits_for(capfd, caplog, hung) -> None:
    code, _, err = run(capfd, hung, "--control", "80:06:0100:0:12")
    assert code == 1
    assert "spinning for 1000 ms" in err
    with pytest.raises(DeviceMissing):
        transport.open(f"emulated:{hung}")
    assert f"{UNKNOWN:#06x}" in caplog.messages[-1]
    assert "no device attaches" in caplog.messages[-1]
    device = transport.open(f"emulated:{hung}?poke=xdata:{UNKNOWN:x}=30@100ms")
    with device, pytest.raises(TimedOut) as caught:
        device.bulk_in(64, timeout=0.1)
    assert "EP 0x81" in caught.value.hint


def attached(name: str, **options) -> Board:
    board = Board.of(name, Options(**options))
    assert board.usb.wait_attached(3.0)
    board.usb.enumerate()
    return board


CBW = b"USBC" + bytes(27)


def test_why_a_command_wrapper_is_not_taken() -> None:
    device = usb.core.find(backend=attached("firmware").backend())
    with pytest.raises(usb.core.USBTimeoutError) as caught:
        device.write(2, CBW, 100)
    (note,) = caught.value.__notes__
    assert "command wrapper on EP 0x02 is not taken" in note
    assert "MSC_CONTROL.START (xdata 0xc42c bit 0) = 1" in note
    device = usb.core.find(backend=attached("storage").backend())
    device.write(2, CBW, 100)
    with pytest.raises(usb.core.USBTimeoutError) as caught:
        device.write(2, CBW, 100)
    assert "the host to take the status of the last command" in caught.value.__notes__[0]


def test_why_a_control_transfer_does_not_end() -> None:
    board = attached("firmware")
    board.usb.clock.sleep(0.01)
    board.machine.cpu.set_sfr(0xA8, 0)  # no interrupt reaches the firmware any more
    with pytest.raises(TimeoutError) as caught:
        board.usb.control(Setup(0x80, 6, 0x100, 0, 18), timeout=0.1)
    assert "EP0_PHASE.SETUP" in caught.value.__notes__[0]


def test_why_the_link_does_not_train(hung) -> None:
    board = Board.of(hung)
    board.usb.clock.sleep(0.05)
    (sentence,) = board.waits()
    assert "USB_POWER_STATUS.USB_PATH" in sentence
    board.machine.bus.poke(*_place("USB_POWER_STATUS"), b"\0")
    assert "set-up of the SerDes lanes: xdata 0x" in board.waits()[0]
    board = attached("storage", port=Speed.HIGH)
    assert board.waits() == []


def test_why_pcie_stays_in_detect() -> None:
    board = attached("firmware")
    assert board.waits() == []
    bus, link = board.machine.bus, board.chip.link
    bus.poke(*_place("PCIE_PERST"), b"\1")
    bus.poke(*_place("PCIE_SLOT_12V"), b"\0")
    link.perst_stuck = False  # looks at the registers
    (sentence,) = board.waits()
    assert "PCIe stays in Detect" in sentence
    assert "PCIE_PERST.ASSERT (xdata 0xb480 bit 0) = 0" in sentence
    assert "PCIE_SLOT_12V.ENABLE" in sentence
    stuck = attached("firmware")
    stuck.chip.link.perst_stuck = True
    assert "PERST#" in stuck.waits()[0]


def _place(name: str):
    from firmware.asm2464pd.registers import ASM2464PD

    register = ASM2464PD[name]
    return register.space, register.address


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--poke", "xdata:c6b3"], 2, "not how a poke is written"),
        (["--poke", "NO_SUCH=1"], 2, "NO_SUCH"),
        (["--poke", "xdata:c6b3=1", "--record", "x.jsonl"], 2, "--poke"),
        (["--behaviour", "nothing.py"], 2, "nothing.py: no such file"),
        (["--behaviour", ""], 2, "--behaviour needs a name"),
        (["--behaviour", "wrong.py"], 1, "wrong.py:2: NameError"),
        (["--behaviour", "fails.py"], 1, "fails.py:2: ZeroDivisionError"),
        (["--behaviour", "fails.py", "--flash", "fails.py"], 2, "the same file"),
    ],
)
def test_wrong_use(capfd, hung, tmp_path, monkeypatch, arguments, code, complaint) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.py").write_text("x = 1\nunknown\n")
    Path("fails.py").write_text(f"def f(access):\n    1 / 0\nBEHAVIOUR = {{'xdata:{UNKNOWN:x}': f}}\n")
    found, _, err = run(capfd, hung, *arguments, "--for", "1ms")
    assert found == code, err
    assert complaint in err
    assert "Traceback" not in err

"""`towline firmware info`, `reset` and `monitor` on emulated boards, in each state that a board may be in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from emulator.board import Board
from emulator.faults import parse as fault
from emulator.options import Options
from firmware.asm2464pd.registers.usb import BULK_COMMAND
from sdk import files
from sdk.errors import DeviceFailed
from towline.cli import bench_usb, main
from usbgpu import transport
from usbgpu.bridge import health
from usbgpu.flash.restart import restart
from usbgpu.flash.spi import SpiFlash
from usbgpu.transport import Running, device_string

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch):
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)


@pytest.fixture
def board(monkeypatch):
    """Puts a board behind `emulated`, which stays powered from one command to the next."""

    def put(image="firmware", **options):
        made = Board.of(image, Options(**options))
        backend = made.backend()
        monkeypatch.setattr(device_string, "backend", lambda named: backend)
        return made

    return put


def call(capsys, *argv):
    """(exit code, result)."""
    code = main(["firmware", *map(str, argv), "--json"])
    document = json.loads(capsys.readouterr().out)
    return code, document.get("result", document.get("error"))


def watched(capsys, *argv):
    """(exit code, events, result) of the monitor."""
    code = main(["firmware", "monitor", *map(str, argv), "--json"])
    *events, last = map(json.loads, capsys.readouterr().out.splitlines())
    return code, events, last["result"]


def health_of(device):
    return health.ask(device, device.identify().running)


# -- info ---------------------------------------------------------------------------------------------------


def test_info_of_our_firmware_and_its_flash_chip(board, capsys):
    board(serial=bytes.fromhex("0000beef"))
    code, found = call(capsys, "info")
    assert code == 0
    assert (found["running"], found["usb"], found["serial"]) == ("towline firmware", "add1:0001", "0000beef")
    assert (found["api_level"], found["place"], found["speed"]) == ("1.1", "usb-1-1", "super-speed-plus")
    assert found["flash"] == {"id": "c22014", "bytes": 1 << 20, "status": 0, "protected": False}
    assert (found["health"]["pcie_link_up"], found["health"]["last_failure"]) == (True, "")


def test_info_sends_nothing_in_bulk_and_changes_no_flash(board):
    made = board()
    before = bytes(made.flash.contents)
    with transport.open("emulated") as device:
        kinds, registers = [], []
        device.observers.append(lambda call, outcome: kinds.append((call.kind.is_bulk, outcome.code)))
        device.observers.append(lambda call, outcome: registers.append(call.value))
        chip = SpiFlash(device, reads=False)
        assert (chip.identification.hex(), chip.status) == ("c22014", 0)
        assert set(kinds) == {(False, "ok")}
        assert BULK_COMMAND.address not in registers, "what is armed stays armed"
    assert bytes(made.flash.contents) == before


def test_info_of_a_compatible_firmware(board, capsys):
    with files.scratch_directory() as directory:
        files.write(directory / "compatible.bin", bench_usb.compatible_firmware())
        board(directory / "compatible.bin")
    code, found = call(capsys, "info")
    assert (code, found["running"], found["build"]) == (0, "compatible firmware", None)
    assert (found["flash"]["id"], found["health"]["pcie_link_up"]) == ("c22014", True)
    assert found["health"]["uptime_s"] is None


@pytest.mark.parametrize(
    ("image", "running"), [("firmware", "mask ROM boot loader"), ("maker", "mass-storage")]
)
def test_info_in_mass_storage_mode(image, running, board, capsys):
    board(image, strap=image == "firmware")
    code, found = call(capsys, "info")
    assert code == 0
    assert found["running"].startswith(running)
    assert found["flash"]["config"] == ["erased", "erased"]
    assert found["health"] is None


def test_info_without_an_answer_of_the_flash_chip(board, capsys, monkeypatch):
    made = board()
    monkeypatch.setattr(made.flash, "transfer", lambda out, count=0: b"\0" * count)
    code, found = call(capsys, "info")
    assert (code, found["flash"]) == (0, None)
    assert "no flash chip answers" in found["flash_problem"]


# -- reset --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_reset_starts_the_firmware_again(board, capsys):
    board()
    with transport.open("emulated") as device:
        device.clock.sleep(1.0)
        before = health_of(device).uptime
        done = restart(device)
        assert health_of(device).uptime < 0.5 < before
        assert done.before == done.after
        assert 0.1 < done.seconds < 2.0
    code, found = call(capsys, "reset")
    assert (code, found["what"], found["after"]["running"]) == (0, "firmware", "towline firmware")


@pytest.mark.slow
def test_reset_of_the_port_alone_leaves_the_firmware(board, capsys):
    board()
    with transport.open("emulated") as device:
        device.clock.sleep(1.0)
    code, found = call(capsys, "reset", "--port")
    assert (code, found["what"]) == (0, "port")
    with transport.open("emulated") as device:
        assert health_of(device).uptime > 1.0


def test_reset_of_the_boot_loader_starts_what_is_in_the_flash(board, capsys):
    board(strap=True)
    code, found = call(capsys, "reset")
    assert (code, found["before"]["running"]) == (0, "mask ROM boot loader")
    assert found["after"]["running"] == "towline firmware"


def test_reset_into_the_boot_loader_takes_the_strap(board, capsys):
    board()
    code, error = call(capsys, "reset", "--rom")
    assert (code, error["code"]) == (1, "unsupported")
    assert "strap" in error["hint"]
    board(strap=True)
    code, found = call(capsys, "reset", "--rom")
    assert (code, found["what"]) == (0, "nothing")


def test_a_board_that_does_not_come_back_from_a_reset(board, capsys):
    made = board()
    with transport.open("emulated") as device:
        observed = device.observers
        observed.append(lambda call, outcome: made.usb.unplug() if call.request == 0xE5 else None)
        with pytest.raises(DeviceFailed):
            restart(device, 0.5)
    assert main(["firmware", "reset", "--wait", "0"]) == 2
    assert main(["firmware", "reset", "--wait", "nan"]) == 2


# -- monitor ------------------------------------------------------------------------------------------------


def test_the_monitor_shows_the_uart_and_what_the_firmware_reports(capsys):
    code, events, result = watched(capsys, "--for", "300ms")
    assert code == 0
    assert [each["text"] for each in events if each["event"] == "uart"] == [
        "towline firmware",
        "pcie: link up",
    ]
    assert [each["link_up"] for each in events if each["event"] == "pcie"] == [True]
    assert result["events"]["uart"] == 2
    assert result["seconds"] == pytest.approx(0.3, abs=0.01)


@pytest.mark.slow
def test_the_monitor_follows_a_board_through_its_failures(capsys):
    device = "emulated?inject=pcie-drop@500ms+50ms,unplug@800ms+200ms,bridge-reset@1400ms"
    code, events, _ = watched(capsys, "--device", device, "--for", "1800ms", "--interval", "50ms")
    kinds = [each["event"] for each in events]
    assert code == 0
    assert kinds.count("gone") == kinds.count("back") == 2
    assert kinds.count("start") == 1, "the cable did not restart it"
    assert [each["links_lost"] for each in events if "links_lost" in each] == [1]
    assert False in [each.get("link_up") for each in events]


@pytest.mark.slow
def test_a_board_that_stays_away_ends_the_monitor_at_its_time(capsys):
    code, events, result = watched(capsys, "--device", "emulated?inject=unplug@300ms", "--for", "7s")
    assert (code, events[-1]["event"]) == (0, "away")
    assert result["seconds"] == pytest.approx(7.0, abs=0.2)


def test_the_uart_of_a_real_board_is_its_debug_port(tmp_path, capsys):
    port = tmp_path / "ttyUSB0"
    os.mkfifo(port)

    def send():
        port.write_bytes(b"boot\r\nlink \xffup\nhalf")

    sender = threading.Thread(target=send)
    sender.start()
    code, events, _ = watched(capsys, "--uart", port, "--for", "300ms")
    sender.join(5)
    assert code == 0
    texts = [each["text"] for each in events if each["event"] == "uart"]
    assert texts == ["boot", "link \\xffup", "half"]
    assert main(["firmware", "monitor", "--uart", str(tmp_path / "none")]) == 2


def test_the_monitor_refuses_what_reports_nothing(board, capsys):
    board(strap=True)
    assert main(["firmware", "monitor", "--for", "1s"]) == 1
    assert "mask ROM boot loader" in capsys.readouterr().err


def test_ctrl_c_ends_the_monitor_in_order(monkeypatch, capsys):
    asked, ask = [], health.ask

    def interrupted(device, running):
        asked.append(running)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return ask(device, running)

    monkeypatch.setattr(health, "ask", interrupted)
    code, _, result = watched(capsys)
    assert (code, len(asked), result["events"]["board"]) == (0, 3, 1)


@pytest.mark.slow
def test_ctrl_c_from_a_terminal():
    running = subprocess.Popen(
        [sys.executable, "-m", "towline", "firmware", "monitor"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    while "link up, " not in running.stdout.readline():
        pass
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 0
    assert " ends " in out


def test_a_list_that_failed_is_in_the_report(board):
    board(faults=(fault("pcie-dead=100000000-100000fff"),))
    from firmware.protocol.command_list import CommandList
    from usbgpu import bridge as bridges

    with bridges.open("emulated") as bridge:
        commands = CommandList()
        commands.read(0x1_0000_0000)
        with pytest.raises(bridges.ListFailed):
            bridge.run(commands)
        found = health.ask(bridge.transport, Running.OURS)
        assert found.failure.endswith("operation 0 (READ), address 0x100000000")
        assert found.sequence == 0

"""`towline emulate` as a user runs it, on both test images."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firmware.asm2464pd import image
from towline.cli import main

BOOTED = "220ms"
"""Virtual time by which the vendor image has enumerated."""


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["emulate", *arguments])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


def result(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, _ = run(capfd, *arguments, "--json")
    document = json.loads(out)
    assert (code, document["ok"]) == (0, True)
    return document["result"]


@pytest.mark.slow
def test_uart_goes_to_stdout_and_requests_are_answered(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "vendor", "--for", BOOTED, "--control", "C0:E4:9100:0:1")
    assert code == 0
    assert "pcie: link up" in out
    assert out.rstrip().endswith("C0:E4:9100:0:1 03"), "10 Gb/s"
    assert "USB super-speed-plus" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("speed", "link"), [("super", "super-speed"), ("high", "high-speed"), ("super-plus", "super-speed-plus")]
)
def test_the_port_decides_the_speed(capfd: pytest.CaptureFixture[str], speed: str, link: str) -> None:
    assert result(capfd, "vendor", "--for", "400ms", "--speed", speed)["speed"] == link


def test_e5_writes_what_e4_reads_under_strict(capfd: pytest.CaptureFixture[str]) -> None:
    found = result(
        capfd, "vendor", "--strict", "--for", BOOTED,
        "--control", "40:E5:8123:5A:", "--control", "C0:E4:8122:0:3", "--control", "C0:77:0:0:1",
    )  # fmt: skip
    assert found["control"][1]["data"][2:4] == "5a"
    assert found["control"][2] == {"request": "C0:77:0:0:1", "stall": True}


def test_strict_names_the_bad_register(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "vendor", "--strict", "--for", BOOTED, "--control", "C0:E4:9001:0:1")
    assert code == 1
    assert re.search(
        r"error: xdata 0x9001, accessed at PC 0x[0-9a-f]{4}.*: unknown address \(nearest: USB_", err
    )


@pytest.mark.parametrize("speed", ["super", "high"])
def test_the_image_in_the_makers_style_is_clean_under_strict(
    capfd: pytest.CaptureFixture[str], speed: str
) -> None:
    code, out, err = run(
        capfd, "maker", "--strict", "--speed", speed, "--for", BOOTED, "--control", "80:6:100:0:8"
    )
    assert code == 0
    assert "80:6:100:0:8 12 01" in out
    (warning,) = [line for line in err.splitlines() if "warning" in line]
    assert "92c5-92c7" in warning, "the registers of unknown meaning, in one line"


@pytest.mark.slow
def test_a_replay_is_identical_and_a_change_is_found(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recording = tmp_path / "run.jsonl"
    recorded = result(
        capfd, "vendor", "--for", BOOTED, "--control", "C0:E4:9100:0:4", "--record", str(recording)
    )
    replayed = result(capfd, "vendor", "--replay", str(recording))
    assert replayed["clocks"] == recorded["clocks"]
    assert replayed["instructions"] == recorded["instructions"]

    lines = recording.read_text().splitlines()
    reads = [number for number, line in enumerate(lines) if line.startswith('["W"')]
    victim = reads[len(reads) // 2]
    event = json.loads(lines[victim])
    event[-1] ^= 0x01
    lines[victim] = json.dumps(event)
    recording.write_text("\n".join(lines))
    code, _, err = run(capfd, "vendor", "--replay", str(recording))
    assert code == 1
    assert f"recorded was W xdata {event[4]:#06x}" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda text: "hello\n", "not a recording"),
        (lambda text: text[: len(text) // 2], "damaged|cut off"),
        (lambda text: "".join(text.splitlines(keepends=True)[:-1]), "cut off"),
        (lambda text: text.replace('"towline-recording",1', '"towline-recording",9'), "schema 9"),
        (lambda text: re.sub(r'"[0-9a-f]{64}"', f'"{"0" * 64}"', text, count=1), "another firmware"),
        (lambda text: text.replace('["L"', '["Q"', 1), "unknown kind"),
    ],
)
def test_damaged_recordings_are_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, damage: Any, complaint: str
) -> None:
    recording = tmp_path / "run.jsonl"
    assert run(capfd, "vendor", "--for", "220ms", "--record", str(recording))[0] == 0
    recording.write_text(damage(recording.read_text()))
    code, _, err = run(capfd, "vendor", "--replay", str(recording))
    assert code == 1
    assert re.search(complaint, err)
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_the_capture(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    capture = tmp_path / "usb.pcap"
    assert (
        run(capfd, "vendor", "--for", BOOTED, "--control", "C0:E4:9100:0:4", "--pcap", str(capture))[0] == 0
    )
    shown = subprocess.run(
        ["tshark", "-r", capture, "-V"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "idVendor: Unknown (0xadd1)" in shown
    assert "bRequest: 228" in shown, "E4"


def test_trace_names_registers_and_fields(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "vendor", "--for", BOOTED, "--trace", "usb")
    assert code == 0
    assert re.search(r"^ *0\.\d{9} [0-9a-f]{4}  W EP0_COMMAND +9092 = 04  SEND$", err, re.MULTILINE)
    assert re.search(r"^ *0\.\d{9}       \. EP0_PHASE +9091 = 01  SETUP$", err, re.MULTILINE)
    assert "TIMER0" not in err, "another block"


@pytest.mark.slow
def test_tracing_does_not_change_time(capfd: pytest.CaptureFixture[str]) -> None:
    request = ("--for", BOOTED, "--control", "C0:E4:9100:0:4")
    plain = result(capfd, "vendor", *request)
    traced = result(capfd, "vendor", *request, "--trace", "usb,interrupts,tlp")
    profiled = result(capfd, "vendor", *request, "--profile", "--guard", "stack,interrupt")
    assert (traced["clocks"], traced["instructions"]) == (plain["clocks"], plain["instructions"])
    assert (profiled["clocks"], profiled["instructions"]) == (plain["clocks"], plain["instructions"])
    shares = {row["function"]: row["share"] for row in profiled["profile"]}
    assert sum(shares.values()) == pytest.approx(100)
    assert shares["main"] > 1


def test_a_python_program_is_the_host(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = tmp_path / "drive.py"
    program.write_text(
        "import usb.core\n"
        "device = usb.core.find(backend=backend)\n"
        "device.ctrl_transfer(0x40, 0xE5, 0x8123, 0x5A)\n"
        "print('host read', bytes(device.ctrl_transfer(0xC0, 0xE4, 0x8123, 0, 1)).hex())\n"
    )
    code, out, _ = run(capfd, "vendor", "--for", BOOTED, "--host", str(program))
    assert (code, "host read 5a" in out) == (0, True)
    program.write_text("x = 1\nx / 0\n")
    code, _, err = run(capfd, "vendor", "--for", BOOTED, "--host", str(program))
    assert code == 1
    assert f"{program}:2: ZeroDivisionError" in err


@pytest.mark.slow
def test_faults_show(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dark = result(capfd, "vendor", "--for", "300ms", "--inject", "perst-stuck")
    assert dark["uart"].startswith("towline firmware")
    assert "link up" not in dark["uart"]
    loader = result(
        capfd, "vendor", "--for", BOOTED, "--inject", "flash-flip=200.1", "--control", "80:6:100:0:12"
    )
    assert loader["uart"] == "", "the mask ROM's boot loader"
    assert loader["control"][0]["data"][16:24] == "4c176324"
    flash = tmp_path / "flash.bin"
    code, _, err = run(capfd, "vendor", "--inject", "power-cut@5ms", "--flash", str(flash))
    assert (code, "the power was cut" in err) == (0, True)
    assert flash.stat().st_size > 0x10000
    dropped = result(capfd, "vendor", "--for", "250ms", "--inject", "link-drop@230ms")
    assert dropped["speed"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["nothing.ihx"], 2, "nothing.ihx: no such file"),
        (["vendor", "--control", "E4"], 2, "not a control request"),
        (["vendor", "--for", "long"], 2, "is not a time"),
        (["vendor", "--inject", "fire"], 2, "no fault fire"),
        (["vendor", "--guard", "dragon"], 2, "guard dragon"),
        (["vendor", "--trace", "cache"], 2, "no block cache"),
        (["vendor", "--host", "nothing.py"], 2, "nothing.py: no such file"),
        (["vendor", "--no-host", "--control", "C0:E4:0:0:1"], 2, "--no-host"),
        (["vendor", "--replay", "x", "--record", "y"], 2, "--replay"),
        (["vendor", "--replay", "nothing.jsonl"], 1, "nothing.jsonl: cannot be read"),
        (["vendor", "--pcap", "no/such/place.pcap"], 1, "directory does not exist"),
        (["vendor", "--replay", ""], 2, "--replay needs a name"),
        (["vendor", "--guard", ""], 2, "guard ''"),
        (["vendor", "--inject", ""], 2, "no fault ''"),
        (["vendor", "--trace", "cpu"], 2, "no block cpu"),
        (["vendor", "--flash", "/dev/full"], 1, "/dev/full: is not a regular file"),
        (["vendor", "--record", "x.jsonl", "--strap"], 2, "nothing to record"),
        (["vendor", "--pcap", "x", "--record", "./x"], 2, "the same file for --pcap and --record"),
        (["x.bin", "--flash", "x.bin"], 2, "the same file for IMAGE and --flash"),
    ],
)
def test_wrong_use(
    capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, complaint: str
) -> None:
    found, _, err = (
        run(capfd, *arguments, "--for", "1us") if "--for" not in arguments else run(capfd, *arguments)
    )
    assert found == code, err
    assert complaint in err
    assert "Traceback" not in err


CALLS_POKE = bytes.fromhex("12 00 06 80 FE 00 90 90 01 F0 22")
"""Writes XDATA 0x9001, which is unknown, in a subroutine at 6."""
CDB = "M:x\nF:G$poke$0_0$0({2}DF,SV:S),C,0,0,0,0,0\nL:G$poke$0$0:6\nL:C$x.c$3$0_0$0:6\nL:XG$poke$0$0:A\n"


def test_messages_name_function_and_line(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x y ü.bin"
    path.write_bytes(image.wrap(CALLS_POKE))
    path.with_suffix(".cdb").write_text(CDB)
    code, _, err = run(capfd, str(path), "--strict", "--for", "1ms")
    assert (code, "accessed at PC 0x0009 (poke+0x3, x.c:3): unknown address" in err) == (1, True)
    code, _, err = run(capfd, str(path), "--for", "1ms")
    assert (code, err.count("accessed at PC 0x0009 (poke+0x3, x.c:3)")) == (0, 1)
    path.write_bytes(image.wrap(CALLS_POKE.replace(b"\x90\x90", b"\xa5\x00")))
    code, _, err = run(capfd, str(path), "--for", "1ms")
    assert (code, "PC 0x0006 (poke+0x0, x.c:3): the reserved opcode A5 was executed" in err) == (1, True)
    assert "called from, innermost first: 0x0003" in err
    path.write_bytes(image.wrap(CALLS_POKE.replace(b"\xf0", b"\xe0").replace(b"\x90\x01", b"\x10\x00")))
    path.with_suffix(".cdb").write_text(CDB)
    code, _, err = run(capfd, str(path), "--for", "1ms", "--guard", "uninit")
    assert (code, "it was XDATA 0x1000" in err) == (1, True)


@pytest.mark.slow
def test_a_host_program_runs_as_python_runs_it(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "helper_of_drive.py").write_text("WORD = 'helped'\n")
    program = tmp_path / "drive.py"
    program.write_text("import sys, helper_of_drive as h\nprint(h.WORD, sys.argv)\n")
    before = sys.argv, list(sys.path)
    code, out, err = run(capfd, "vendor", "--for", BOOTED, "--host", str(program), "--json")
    assert code == 0
    assert json.loads(out)["ok"], "stdout is the document and nothing else"
    assert f"helped ['{program}']" in err
    assert (sys.argv, sys.path) == before
    for source, complaint in (
        ("import sys\nsys.exit(3)\n", "drive.py: the host program exited with 3"),
        ("x = 1\ndef f(:\n", "drive.py:2: SyntaxError: invalid syntax"),
        ("import json\njson.loads('')\n", "drive.py:2: JSONDecodeError"),
    ):
        program.write_text(source)
        code, _, err = run(capfd, "vendor", "--for", BOOTED, "--host", str(program))
        assert (code, complaint in err, "Traceback" in err) == (1, True, False), err
    assert "Traceback" in run(capfd, "vendor", "--for", BOOTED, "--host", str(program), "-vv")[2]


def test_ctrl_c_ends_the_run_and_keeps_the_part_so_far(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program, recording, capture = (tmp_path / name for name in ("drive.py", "run.jsonl", "usb.pcap"))
    program.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass\n")
    code, out, _ = run(
        capfd, "vendor", "--host", str(program), "--record", str(recording), "--pcap", str(capture),
        "--profile", "--json",
    )  # fmt: skip
    document = json.loads(out)
    assert (code, document["error"]["code"]) == (130, "interrupted")
    assert document["result"]["profile"]
    assert capture.stat().st_size > 1000
    replayed = result(capfd, "vendor", "--replay", str(recording))
    assert replayed["clocks"] == document["result"]["clocks"]


@pytest.mark.slow
def test_a_replay_can_be_traced_and_profiled(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recording = tmp_path / "run.jsonl"
    first = run(capfd, "vendor", "--for", BOOTED, "--record", str(recording), "--trace", "usb", "--profile")
    again = run(capfd, "vendor", "--replay", str(recording), "--trace", "usb", "--profile")
    assert (first[0], again[0]) == (0, 0)
    trace = [
        [line for line in err.splitlines() if not line.startswith("towline")] for _, _, err in (first, again)
    ]
    assert len(trace[0]) > 50
    assert trace[0] == trace[1]
    assert first[1][first[1].index("function ") :] == again[1][again[1].index("function ") :]


class Closed(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("stderr", [Closed(), None])
def test_a_trace_without_a_reader_is_not_an_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, stderr: Closed | None
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    code, out, _ = run(capfd, "vendor", "--for", "1ms", "--trace", "system")
    assert (code, out) == (0, "towline firmware\n")


def test_the_uart_shows_utf8_and_every_other_byte(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "uart.bin"
    sent = "°C\n".encode() + b"\xff>"
    writes = b"".join(bytes((0x74, byte, 0xF0)) for byte in sent)
    path.write_bytes(image.wrap(b"\x90\xc0\x01" + writes + b"\x80\xfe"))
    assert run(capfd, str(path), "--for", "1ms")[1] == "°C\n\\xff>"
    assert result(capfd, str(path), "--for", "1ms")["uart"] == "°C\n\\xff>"


def test_a_damaged_image_names_the_field(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    damaged = bytearray(image.wrap(b"\x02\x00\x03" + bytes(61)))
    damaged[10] ^= 1
    path = tmp_path / "image.bin"
    path.write_bytes(damaged)
    code, _, err = run(capfd, str(path))
    assert code == 1
    assert "checksum" in err
    assert "crc" in err


@pytest.mark.slow
@pytest.mark.parametrize("image", ["vendor", "storage"])
def test_both_images_run_under_every_guard(capfd: pytest.CaptureFixture[str], image: str) -> None:
    found = result(capfd, image, "--for", "250ms", "--guard", "all", "--strict")
    assert found["speed"] == "super-speed-plus"


@pytest.mark.slow
def test_a_choice_of_the_model_reaches_the_chip(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ("firmware", "--for", BOOTED, "--control", "C0:E4:9100:0:1")
    assert result(capfd, *arguments)["control"][0]["data"] == "03"
    chosen = result(capfd, *arguments, "--model", "super-plus-code=2")
    assert chosen["control"][0]["data"] == "02"
    code, _, err = run(capfd, *arguments, "--model", "super-plus-code=4")
    assert code == 2
    assert "super-plus-code=3|2" in err


def test_unknown_addresses_are_summed_up_in_one_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "reads.bin"
    # ljmp 3; mov dptr, #0x9400; movx a, @dptr; inc dptr; mov a, dph; cjne a, #0x98, -6; sjmp $
    path.write_bytes(image.wrap(bytes.fromhex("02 00 03 90 94 00 E0 A3 E5 83 B4 98 F9 80 FE")))
    code, _, err = run(capfd, str(path), "--for", "10ms", "--no-host")
    assert code == 0
    assert err.count("unknown address") == 8
    assert err.count("of 1024 accessed addresses (xdata 9400-97ff) nothing is known") == 1

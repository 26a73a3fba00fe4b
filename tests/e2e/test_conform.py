"""The conformance suite on whole boards: ours passes, others get a correct table."""

from __future__ import annotations

import json
import shutil

import pytest

from emulator.board import Board
from emulator.mcs51.core import GUARDS
from emulator.options import Options
from emulator.usb.wire import Speed as Port
from firmware import build
from sdk import toolchain
from tests.amount import amount
from towline.cli import main
from usbgpu import conform, transport
from usbgpu.conform import Verdict
from usbgpu.conform.check import Need
from usbgpu.transport import Running

USB_SECTIONS = ("descriptor fields", "descriptor sets", "strings", "reading descriptors", "standard requests")


def failed(report) -> dict[str, str]:
    return {row.name: row.detail for row in report.rows if row.verdict is Verdict.FAILED}


@pytest.mark.parametrize("speed", ["super-plus", pytest.param("high", marks=pytest.mark.slow)])
def test_our_descriptors_and_standard_requests(speed):
    report = conform.run(f"firmware?speed={speed}", sections=USB_SECTIONS)
    assert failed(report) == {}
    assert report.conforms
    assert report.identity.running is Running.OURS
    assert report.identity.api_level == report.identity.release


def examined(image, port):
    """An image's report, strict about registers and with every guard on: the emulator reports nothing."""
    board = Board.of(image, Options(port=port, strict=True, guards=frozenset(GUARDS)))
    with transport.attach(board.backend()) as device:
        report = conform.examine(device, image)
    assert failed(report) == {}
    assert report.identity.speed.value == port.value
    return report


def skipped(report):
    return {row.detail for row in report.rows if row.verdict is Verdict.SKIPPED}


def other_speed(port):
    return Need.SUPER if port is Port.HIGH else Need.HIGH


@pytest.mark.slow
@pytest.mark.parametrize("port", amount((Port.HIGH, Port.SUPER_PLUS), tuple(Port)))
def test_our_firmware_passes(port):
    report = examined("firmware", port)
    assert skipped(report) == {f"needs {need.value}" for need in (Need.STORAGE, other_speed(port))}
    assert report.counts[Verdict.PASSED] > 185


STORAGE_FAILURES = {
    "GET_STATUS of endpoints": "82:00:0000:008E is not stalled, but answered with 2 bytes",
    "unconfigured": "81:00:0000:0000 is not stalled, but answered with 2 bytes",
    "ENDPOINT_HALT": "control 02:03:0:2:0: the device stalled the request",
    "end of halts": "control 02:03:0:2:0: the device stalled the request",
    "unknown features": "02:01:0100:0081 is not stalled, but accepted",
}
"""What the storage test image leaves out: it has no endpoint halts, and no states."""
STORAGE_FAILURES_HIGH = STORAGE_FAILURES | {
    "SuperSpeed requests at High Speed": "00:31:0028:0000 is not stalled, but accepted",
}
STORAGE_FAILURES_SUPER = STORAGE_FAILURES | {
    "capabilities": "missing: SuperSpeedPlus capability",
    "U1 and U2": "control 00:03:30:0:0: the device stalled the request",
    "U1 and U2 after a reset": "control 00:03:30:0:0: the device stalled the request",
    "FUNCTION_SUSPEND": "control 01:03:0:0:0: the device stalled the request",
}


@pytest.mark.slow
@pytest.mark.parametrize("speed", ["super", "high"])
def test_an_image_in_the_makers_style_passes_the_storage_checks(speed):
    report = conform.run(f"maker?speed={speed}", sections=("bulk-only transport",))
    assert failed(report) == {}
    assert report.conforms
    assert report.identity.running is Running.MAKERS
    assert report.counts[Verdict.PASSED] == len(report.rows)


@pytest.mark.slow
@pytest.mark.parametrize("port", Port)
def test_an_image_in_the_makers_style_passes(port):
    """It touches 108 registers of unknown meaning, which have names."""
    report = examined("maker", port)
    needs = (other_speed(port), Need.VENDOR, Need.LISTS)
    assert skipped(report) == {f"needs {need.value}" for need in needs}


def test_the_table(capsys):
    assert main(["firmware", "conform", "storage", "--section", "standard requests"]) == 1
    printed = capsys.readouterr()
    table, _, rest = printed.out.partition("\n\n")
    assert "\n  pass  GET_CONFIGURATION\n" in table
    assert max(map(len, table.splitlines())) <= 80
    assert "9.4.9, 9.4.1: a bulk endpoint" in rest
    assert "but: control 02:03:0:2:0: the device stalled" in rest
    assert printed.err.endswith("checks failed\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("speed", "expected"), [("super-plus", STORAGE_FAILURES_SUPER), ("high", STORAGE_FAILURES_HIGH)]
)
def test_the_storage_image_gets_a_correct_table(speed, expected):
    report = conform.run(f"storage?speed={speed}")
    assert failed(report) == expected
    assert report.identity.running is Running.MAKERS
    rows = {(row.section, row.name): row for row in report.rows}
    assert rows["bulk-only transport", "reset recovery"].verdict is Verdict.PASSED
    assert rows["command lists", "nothing to do"].verdict is Verdict.SKIPPED
    assert rows["XDATA: E4, E5", "one byte"].detail == f"needs {Need.VENDOR.value}"


MUTANTS = [
    ("descriptors.c", "TYPE_COMPANION, 15, 0", "TYPE_COMPANION, 16, 0", "endpoint companion: bMaxBurst"),
    (
        "control.c",
        "        control_stall();\n    EP0_PHASE",
        "        control_accept();\n    EP0_PHASE",
        "unknown requests",
    ),
    ("bulk.c", "in_halted = out_halted = 0;", "", "end of halts"),
    ("tlp.c", "for (i = 1; i < 8; i++)", "for (i = 1; i < 4; i++)", "carries"),
    ("list.c", "if (block_first | block_second)", "if (block_first)", "refused lists"),
    ("execute.c", "for (i = 4; i; i--) {\n        mask", "for (i = 3; i; i--) {\n        mask", "memory"),
]
"""Mistakes in the firmware's C, each with a check that must notice it."""


@pytest.mark.slow
@pytest.mark.parametrize(("source", "good", "wrong", "check"), MUTANTS, ids=[each[3] for each in MUTANTS])
def test_a_mistake_in_the_firmware_is_noticed(tmp_path, source, good, wrong, check):
    for place in (build.SOURCES, build.INCLUDE):
        shutil.copytree(place, tmp_path / place.name)
    path = tmp_path / build.SOURCES.name / source
    text = path.read_text()
    assert text.count(good) == 1, f"{source} has changed: choose another mistake for {check!r}"
    path.write_text(text.replace(good, wrong))
    toolchain.run("make", ["--silent", f"OUT={tmp_path / 'out'}"], cwd=path.parent, timeout=build.TIMEOUT)
    section = next(each.section for each in conform.CHECKS if each.name == check)
    report = conform.run(str(tmp_path / "out" / "firmware.ihx"), sections=[section])
    assert check in failed(report)


@pytest.mark.slow
def test_record_and_replay(tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    assert main(["firmware", "conform", "firmware", "--record", str(trace), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert (result["failed"], result["running"]) == (0, Running.OURS.value)
    assert main(["firmware", "conform", "firmware", "--replay", str(trace), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["difference"] is None
    assert result["compared"] > 2000
    assert main(["firmware", "conform", "storage", "--replay", str(trace), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["code"] == "check-failed"
    assert document["result"]["difference"]["check"] == "device: bLength"


def test_the_command_line(capsys, tmp_path):
    assert main(["firmware", "conform", "--list", "--section", "INFO", "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["result"]["checks"]
    assert {check["section"] for check in checks} == {"INFO"}
    for wrong in (
        [],
        ["nonsense.ihx", "--section", "nonsense"],
        ["emulated", "--list"],
        ["emulated", "--replay", str(tmp_path / "gone")],
        ["emulated", "--replay", "x", "--record", "y"],
        ["usb", "--speed", "high"],
        ["emulated?speed=full"],
        ["usb:"],
    ):
        assert main(["firmware", "conform", *wrong]) == 2, wrong
        assert "towline: error: " in capsys.readouterr().err
    assert main(["firmware", "conform", str(tmp_path / "gone.ihx")]) == 2
    assert "gone.ihx: no such file" in capsys.readouterr().err

"""The commands of the USB GPU, and what they report: device strings, doctor's verdicts, tables."""

import argparse
import json
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from emulator.amdgpu.scoreboard import Record
from emulator.amdgpu.seams import Dispatch, Outcome
from emulator.board import Board
from emulator.options import Options
from sdk.errors import DeviceFailed, UsageError
from sdk.report import Console
from sdk.target import LayerProfile, OpenOptions, Profile
from sdk.targets import get_target
from towline.cli import bench, bench_usb, demo, gpu_doctor, gpu_info, main, runtime
from usbgpu import emulation
from usbgpu.transport import sysfs


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.delenv("TOWLINE_DEVICE", raising=False)
    monkeypatch.delenv("TOWLINE_FIRMWARE", raising=False)


@pytest.mark.parametrize(("given", "meant"), [
    (None, "emulated?gpu=gfx1201&vram=512M"),
    ("emulated", "emulated?gpu=gfx1201&vram=512M"),
    ("emulated:bridge.bin", "emulated:bridge.bin?gpu=gfx1201&vram=512M"),
    ("emulated?speed=high", "emulated?speed=high&gpu=gfx1201&vram=512M"),
    ("emulated?vram=1G", "emulated?vram=1G&gpu=gfx1201"),
    ("emulated?gpu=gfx1100", "emulated?gpu=gfx1100"),
    ("usb", "usb"),
    ("usb:0001", "usb:0001"),
    ("replay:a?b", "replay:a?b"),
])  # fmt: skip
def test_an_emulated_bridge_has_a_card(given, meant):
    assert emulation.with_card(given, "gfx1201") == meant


def test_the_default_device_counts_and_a_wrong_one_is_refused(monkeypatch):
    monkeypatch.setenv("TOWLINE_DEVICE", "usb:7")
    assert emulation.with_card(None) == "usb:7"
    with pytest.raises(UsageError, match="'emulate'"):
        emulation.with_card("emulate")


def test_an_emulation_says_what_a_device_does_not():
    bridge = SimpleNamespace(emulation=None)
    assert emulation.firmware_directory(bridge) is None
    assert emulation.wave_instructions(bridge, 1) is None
    bridge.emulation = Board(None)
    assert emulation.firmware_directory(bridge) is None
    assert emulation.wave_instructions(bridge, 1) is None
    bridge.emulation = board = Board(None, Options(gpu="gfx1201", vram=256 << 20))
    assert emulation.firmware_directory(bridge) == board.firmware_directory
    assert board.firmware_directory.is_dir()
    assert emulation.wave_instructions(bridge, 1) is None
    for number in (3, 4, 5):
        outcome = Outcome(1, {"valu": number}, 0, 0)
        board.card.scoreboard.dispatched(
            Record(Dispatch(0x1000, (1, 1, 1), (32, 1, 1), (), 0, 0, 0), outcome, 0, 1)
        )
    assert emulation.wave_instructions(bridge, 2) == [4, 5]
    assert emulation.wave_instructions(bridge, 4) is None


# -- the environment of a run -------------------------------------------------------------------------------


def test_logs_of_runtimes_are_shown_while_a_run_lasts(capsys):
    log = logging.getLogger("usbgpu.amd.start")
    with runtime.logged(Console(verbose=1)):
        log.info("number %d", 1)
    log.info("number 2")
    with runtime.logged(Console()):
        log.info("number 3")
    assert capsys.readouterr().err == "towline: number 1\n"


def test_a_firmware_directory_is_an_option_of_opening(tmp_path, monkeypatch):
    named, other = tmp_path / "named", tmp_path / "other"
    named.mkdir()
    other.mkdir()
    monkeypatch.delenv("TOWLINE_FIRMWARE", raising=False)

    def options(firmware):
        return runtime.open_options(
            argparse.Namespace(firmware=firmware, power_cap=None, verify_transfers=False)
        )

    assert options(None) == OpenOptions()
    assert options(str(named)) == OpenOptions(named)
    monkeypatch.setenv("TOWLINE_FIRMWARE", str(other))
    assert options(None) == OpenOptions(other)
    assert options(str(named)) == OpenOptions(named)


def test_a_firmware_directory_that_is_not_there_is_refused(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    monkeypatch.setenv("TOWLINE_FIRMWARE", str(gone))
    with pytest.raises(UsageError) as caught:
        runtime.open_options(argparse.Namespace(firmware=None, power_cap=None))
    assert caught.value.where == f"TOWLINE_FIRMWARE {gone}"
    with pytest.raises(UsageError) as caught:
        runtime.open_options(argparse.Namespace(firmware=str(gone)))
    assert caught.value.where == f"--firmware {gone}"


@pytest.mark.parametrize("way", ["option", "variable", "neither"])
def test_a_card_is_given_the_chosen_firmware(tmp_path, monkeypatch, way):
    seen = []

    def opened(device, directory, *_):
        seen.append((device, directory))
        raise DeviceFailed("as far as this")

    monkeypatch.setattr("usbgpu.amd.gpu.open", opened)
    monkeypatch.setenv("TOWLINE_FIRMWARE", "" if way == "neither" else str(tmp_path / "variable"))
    options = OpenOptions(tmp_path / "option") if way == "option" else OpenOptions()
    before = dict(os.environ)
    with pytest.raises(DeviceFailed):
        get_target("amd-gfx1201").open("emulated", options)
    assert seen == [("emulated?gpu=gfx1201&vram=512M", None if way == "neither" else tmp_path / way)]
    assert dict(os.environ) == before


# -- doctor -------------------------------------------------------------------------------------------------


@pytest.fixture
def plugged(monkeypatch):
    """Sets the bridges that Linux sees; the bridge itself and libusb are not used."""

    def put(*bridges):
        monkeypatch.setattr(sysfs, "bridges", lambda: iter(bridges))

    monkeypatch.setattr(gpu_doctor, "_bridge", lambda named, before: iter(()))
    monkeypatch.setattr(gpu_doctor, "_libusb", lambda needed: gpu_doctor.Line("libusb", "installed"))
    put()
    return put


def doctor(capsys, *argv):
    code = main(["gpu", "doctor", *map(str, argv), "--json"])
    document = json.loads(capsys.readouterr().out)
    return code, {each["name"]: each for each in document["result"]["checks"]}, document.get("error", {})


def bridge(*, usable, suspends):
    return sysfs.Plugged("2-1", 0xADD1, 1, Path("/dev/bus/usb/002/003"), usable, suspends)


def test_a_bridge_that_may_not_be_opened(plugged, capsys):
    plugged(bridge(usable=False, suspends=True))
    code, checks, error = doctor(capsys, "--device", "usb")
    assert code == 3
    assert "/dev/bus/usb/002/003" in checks["bridge 2-1"]["problem"]
    assert "udev" in checks["bridge 2-1"]["hint"]
    assert "bridge 2-1" in error["message"]
    code, checks, _ = doctor(capsys)
    assert code == 0, "the emulated card does not need it"
    assert checks["bridge 2-1"]["problem"]


def test_a_bridge_that_may_be_suspended_is_not_a_failure(plugged, capsys):
    plugged(bridge(usable=True, suspends=True))
    _, checks, error = doctor(capsys, "--device", "usb")
    assert "suspend" in checks["bridge 2-1"]["problem"]
    assert "echo on" in checks["bridge 2-1"]["hint"]
    assert not checks["bridge 2-1"]["needed"]
    assert "bridge 2-1" not in error.get("message", "")


def test_the_files_and_their_package_are_named(plugged, tmp_path, capsys):
    for argv in (("--device", "usb"), ("--chip", "gfx1100"), ()):
        code, checks, error = doctor(capsys, "--firmware", tmp_path, *argv)
        assert code == 3
        assert "smu_13_0_0.bin" in checks["firmware of gfx1100"]["problem"]
        assert "firmware-amd-graphics" in error["hint"]
    _, checks, _ = doctor(capsys, "--firmware", tmp_path, "--chip", "gfx1102")
    assert [name for name in checks if name.startswith("firmware of")] == ["firmware of gfx1102"]


def test_a_missing_tool_is_named(plugged, capsys, monkeypatch):
    monkeypatch.setenv("TOWLINE_SDCC", "/nowhere/sdcc")
    code, checks, error = doctor(capsys)
    assert code == 3
    assert checks["sdcc"]["problem"]
    assert "sdcc" in error["message"]
    _, checks, error = doctor(capsys, "--device", "usb")
    assert "sdcc" not in checks


# -- info ---------------------------------------------------------------------------------------------------

INFO = {
    "device": "usb",
    "bridge": {
        "running": "towline firmware", "usb": "add1:0001", "product": "custom towline", "serial": "7",
        "api_level": "1.0", "speed": "super-speed", "command_lists": True, "pcie_link_up": True,
        "advice": None,
    },
    "card": {
        "pci": "1002:744c", "bdf": "04:00.0", "bars": {"0": 256 << 20, "2": 2 << 20}, "chip": "gfx1102",
        "untested": True, "vram": 8176 << 20, "vram_reached": 256 << 20, "compute_units": 32,
    },
    "link": {
        "pcie": {
            "rate_gt": 8.0, "lanes": 1, "bridge": {"rate_gt": 16.0, "lanes": 4},
            "card": {"rate_gt": 8.0, "lanes": 16},
        },
    },
    "supply": {"volts": 11.5, "amperes": 5.0, "fault": True},
    "open": {
        "cold": False, "transfers": 10, "device_seconds": 0.0123, "wall_seconds": 0.01, "steps": [],
        "left_clean": False,
    },
    "metrics": {
        "power_watts": 55, "temperatures_celsius": {"EDGE": 60, "HOTSPOT": 75, "PLX": 1},
        "clocks_mhz": {"GFXCLK": 2400, "DCLK_0": 1}, "activity_percent": 3, "fan_rpm": 1200,
        "throttled": True,
    },
}  # fmt: skip


def test_the_table_of_a_card():
    text = gpu_info.text(INFO)
    for words in (
        "gfx1102, 32 compute units (untested", "8,176 MiB, 268.4 MB within reach of BAR 0",
        "8 GT/s, 1 lane; bridge and card could do 8 GT/s, 4 lanes",
        "warm: it was up; 10 USB transfers, 12.3 ms", "not in order",
        "55 W, 3 % busy, fan 1,200 rpm, throttled",
        "11.50 V, 5.00 A, 57.5 W, and it reports a fault",
        "edge 60 °C, hot spot 75 °C", "shaders 2,400 MHz", "USB 3 (5 Gb/s)",
    ):  # fmt: skip
        assert words in text, words
    assert "PLX" not in text
    INFO["link"]["pcie"]["lanes"] = 4
    assert "8 GT/s, 4 lanes\n" in gpu_info.text(INFO).replace(" \n", "\n")
    assert max(map(len, text.splitlines())) < 110


# -- benchmarks ---------------------------------------------------------------------------------------------

ONE = {
    "boot": {"transfers": 26, "blob_transfers": 4, "virtual_ms": 85.9175},
    "warm_open": {"transfers": 10},
    "launch": {"transfers": 2},
    "upload": {"transfers": 66, "share_of_link": 0.9494},
    "download": {"transfers": 514, "share_of_link": 0.9058},
    "mobilenet": {
        "first_virtual_ms": 6.697, "first_over_bound": 1.2275, "next_transfers": 4, "host_cpu_us": 1200,
        "next_virtual_ms": 0.7086, "in_flight_virtual_ms": 0.2905, "in_flight_over_next": 2.439,
        "in_flight_share_of_link": 0.7443, "mismatches": 0, "wall_seconds": 3.25,
    },
}  # fmt: skip
USB = {chip: ONE | {"compatible": ONE} for chip in bench_usb.CHIPS}


def test_a_baseline_of_usb_holds_what_is_the_same_in_every_run():
    counts = bench_usb.counts(USB)["counts"]
    assert counts["gfx1201.compatible.boot.transfers"] == 26
    assert counts["gfx1100.boot.virtual_us"] == 85918
    assert counts["gfx1100.mobilenet.mismatches"] == 0
    assert not [name for name in counts if "cpu" in name or "wall" in name or "share" in name]
    assert len(counts) == 4 * 12


def test_the_table_of_usb_has_the_peer_and_the_constants():
    text = bench_usb.text(USB)
    for words in ("4,203", "<= 60", "94.9 %", "1.23x", "85.92 ms", "1,200 us", "3.2 s", "700 MB/s", "launch"):
        assert words in text, words
    shown = {name for _, name, *_ in bench_usb.ROWS}
    flat = {f"{group}.{key}" for group, keys in ONE.items() for key in keys}
    assert shown == flat, "every figure has a row"


def test_layers_of_a_gpu_are_reported_in_wave_instructions():
    layers = [
        LayerProfile("stem", "Conv", 1000, {"waves": 4, "wave_instructions": 100, "virtual_us": 2.5}),
        LayerProfile("to_nhwc", "Layout", 0, {"waves": 2, "wave_instructions": 10, "virtual_us": 2.0}),
    ]
    total = {"macs": 1000, "waves": 6, "wave_instructions": 110, "virtual_us": 4.5, "launches": 2}
    profile = Profile(layers, total, {"weights": 5000})
    document = bench.summary(profile) | {"compile_seconds": 1.0}
    assert {"waves", "wave_instructions", "virtual_us"} <= document["total"].keys()
    header, stem, layout, sums, *_ = bench._text("amd-gfx1100", profile, document).splitlines()
    assert header.split("  ")[-1].strip() == "MAC/wave instruction"
    assert "packet" not in header
    assert stem.split() == ["stem", "Conv", "1,000", "4", "100", "2.50", "10.00"]
    assert layout.split() == ["to_nhwc", "Layout", "0", "2", "10", "2.00"]
    assert sums.split() == ["total", "1,000", "6", "110", "4.50", "9.09"]


def test_bench_usb_takes_no_options_of_networks(capsys, tmp_path):
    for argv in (("--target", "c"), ("--device", "usb"), ("--input-shape", "a=1"), ("--update-baseline",)):
        assert main(["bench", "usb", *argv, "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"
    assert main(["bench", "usb", "--baseline", str(tmp_path / "none.json")]) == 2


def test_a_demo_without_the_emulator_says_so():
    (name, value) = demo._gpu_row({"target": "amd-gfx1100", "skipped": "sdcc was not found"})
    assert (name, value) == ("amd-gfx1100: left out", "sdcc was not found")

"""Two boards with a card each on one host: networks run on both side by side, each with its own results."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import usb.core

from emulator.board import Board
from emulator.options import Options
from emulator.usb.pyusb_backend import Backend
from sdk import artifact as artifacts_file
from sdk import compiler
from sdk.session import Session
from sdk.stream import Stream
from sdk.stream.replay import Replay
from tests.gpu_host import firmware
from tests.graph_builder import GraphBuilder
from usbgpu.transport import DeviceBusy, sysfs

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
CHIP = "gfx1100"
VRAM = 256 << 20
FRAMES = 12
NUMBERS = ("0000000a", "0000000b")


def network(seed):
    b = GraphBuilder((1, 3, 9, 9), seed=seed)
    b.gemm(b.reshape(b.global_average_pool(b.conv("x", 20, 3, pads=1, relu=True))), 10)
    return compiler.compile(b.graph(), f"amd-{CHIP}")


def frames(session, seed):
    random = np.random.default_rng(seed)
    for _ in range(FRAMES):
        yield {
            name: (128 + 30 * random.standard_normal(tensor.shape)).astype(np.uint8)
            for name, tensor in session.inputs.items()
        }


def streamed(artifact, device, seed, found):
    """Run a stream on a device; the results, or what went wrong, go to `found`."""
    try:
        with Session(artifact, device) as session:
            replay = Replay(artifact, "device")
            stream = Stream(session, depth=3, observe=replay)
            results = list(stream.run(frames(session, seed)))
        assert {result.status for result in results} == {"ok"}
        found[device] = replay.compared, replay.wrong, stream.recoveries
    except BaseException as problem:
        found[device] = problem


def side_by_side(devices, artifacts):
    """Streams in a thread each, of other networks and other frames."""
    found: dict[str, object] = {}
    threads = [
        threading.Thread(target=streamed, args=(artifact, device, seed, found))
        for seed, (device, artifact) in enumerate(zip(devices, artifacts, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return found


@pytest.fixture(scope="module")
def artifacts():
    return [network(seed) for seed in (3, 4)]


def test_two_streams_in_one_process(artifacts, quiet_card):
    devices = [f"emulated?gpu={CHIP}&vram=256M&serial={number}" for number in NUMBERS]
    found = side_by_side(devices, artifacts)
    assert found == dict.fromkeys(devices, (FRAMES, [], []))


def test_two_boards_on_one_bus_by_their_serial_numbers(artifacts, quiet_card, monkeypatch, tmp_path):
    """As on a real bus: pyusb finds both, each has its lock, and time is that of the wall."""
    boards = [
        Board.of("firmware", Options(serial=bytes.fromhex(number), gpu=CHIP, vram=VRAM)) for number in NUMBERS
    ]
    both, find = Backend([board.usb for board in boards]), usb.core.find
    monkeypatch.setattr(usb.core, "find", lambda backend=None, **how: find(backend=backend or both, **how))
    monkeypatch.setattr(sysfs, "DEVICES", tmp_path)
    monkeypatch.setenv("TOWLINE_LOCKS", str(tmp_path))
    monkeypatch.setenv("TOWLINE_FIRMWARE", str(firmware(CHIP)))
    devices = [f"usb:serial={NUMBERS[0]}", "usb:port=1-2"]
    found = side_by_side(devices, artifacts)
    assert found == dict.fromkeys(devices, (FRAMES, [], []))
    assert [len(board.card.scoreboard.records) >= FRAMES for board in boards] == [True, True]
    with Session(artifacts[0], "usb:port=1-1"), pytest.raises(DeviceBusy):
        Session(artifacts[1], devices[0])


def test_two_streams_in_two_processes(artifacts, tmp_path):
    running = []
    for number, artifact in zip(NUMBERS, artifacts, strict=True):
        path = tmp_path / f"{number}.tow"
        artifacts_file.save(artifact, path)
        device = f"emulated?gpu={CHIP}&vram=256M&serial={number}"
        command = ["stream", path, "--device", device, "--frames", FRAMES, "--check", "--json"]
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "towline", *map(str, command)], cwd=ROOT, stdout=subprocess.PIPE
            )
        )
    for process in running:
        out, _ = process.communicate(timeout=120)
        result = json.loads(out.splitlines()[-1])["result"]  # events come before
        assert (process.returncode, result["frames"]["ok"], result["wrong"]) == (0, FRAMES, 0)

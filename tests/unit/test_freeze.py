"""The freezer against a QEMU that is a few lines of QMP."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emulator.core.clock import clocks
from emulator.usb import freeze
from emulator.usb.freeze import Freezer
from emulator.usb.server import Work
from tests.usb_bench import until

GREETING = {
    "QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}
}


class Qemu:
    """Answers every command, and keeps those that stop and continue the guest."""

    def __init__(self, path: Path) -> None:
        self.commands: list[str] = []
        self.silent = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                self.peer, _ = self._listener.accept()
            except OSError:
                return
            with self.peer, contextlib.suppress(ConnectionError):
                if not self.silent:
                    self._send(GREETING)
                while data := self.peer.recv(4096):
                    command = json.loads(data)  # the client waits for the answer to each
                    if command["execute"] != "qmp_capabilities":
                        self.commands.append(command["execute"])
                    self._send({"return": {}, **{key: command[key] for key in ("id",) if key in command}})

    def _send(self, message: Any) -> None:
        self.peer.sendall(json.dumps(message).encode() + b"\r\n")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@contextmanager
def frozen(path: Path, said: list[str]) -> Iterator[Any]:
    """A freezer over a server with a connection, whose device stands still."""
    scheduler = SimpleNamespace(now=0)
    server: Any = SimpleNamespace(
        peers={1: 1}, work=None, host=SimpleNamespace(pump=SimpleNamespace(scheduler=scheduler))
    )
    freezer = Freezer(server, str(path), said.append)
    try:
        yield server
    finally:
        freezer.close()


@pytest.fixture
def qemu(tmp_path: Path) -> Iterator[Qemu]:
    running = Qemu(tmp_path / "qmp")
    yield running
    running.close()


def test_the_guest_stands_still_until_the_device_has_caught_up(qemu: Qemu, tmp_path: Path):
    with frozen(tmp_path / "qmp", []) as server:
        began = time.monotonic()
        server.work = Work(began, 0)
        until(lambda: qemu.commands == ["stop"])
        assert time.monotonic() - began >= freeze.LAG
        time.sleep(0.05)
        assert qemu.commands == ["stop"]
        server.host.pump.scheduler.now = clocks(0.4)  # longer than the guest has run
        until(lambda: qemu.commands == ["stop", "cont"])
        server.work = None
        time.sleep(2 * freeze.LAG)
        assert qemu.commands == ["stop", "cont"], "nothing is waited for"


@pytest.mark.parametrize("end", ["the answer", "the guest's going", "Ctrl-C"])
def test_a_guest_that_stands_still_goes_on_at_the_end(qemu: Qemu, tmp_path: Path, end: str):
    with frozen(tmp_path / "qmp", []) as server:
        server.work = Work(time.monotonic(), 0)
        until(lambda: qemu.commands == ["stop"])
        if end == "the answer":
            server.work = None
        elif end == "the guest's going":
            server.peers = {}
        if end != "Ctrl-C":
            until(lambda: qemu.commands == ["stop", "cont"])
    assert qemu.commands == ["stop", "cont"]


def test_a_qemu_that_goes_and_returns(qemu: Qemu, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(freeze, "RETRY", 0.01)
    said: list[str] = []
    with frozen(tmp_path / "qmp", said) as server:
        until(lambda: len(said) == 1)
        qemu.peer.shutdown(socket.SHUT_RDWR)
        server.work = Work(time.monotonic(), 0)
        until(lambda: len(said) == 3)
        until(lambda: qemu.commands == ["stop"])
    assert "no QMP" in said[1]
    assert "stands still" in said[0] == said[2]


def test_a_qemu_that_does_not_answer(qemu: Qemu, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(freeze, "PATIENCE", 0.05)
    qemu.silent = True
    said: list[str] = []
    with frozen(tmp_path / "qmp", said):
        until(lambda: bool(said))
        began = time.monotonic()
    assert time.monotonic() - began < freeze.RETRY / 2, "closing waits for nothing"
    assert said == [f"no QMP at {tmp_path / 'qmp'}: no answer: time-outs of the guest may come early"]


def test_a_missing_qemu_is_reported_once(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(freeze, "RETRY", 0.01)
    said: list[str] = []
    with frozen(tmp_path / "qmp", said):
        until(lambda: bool(said))
        time.sleep(0.1)
    (line,) = said
    assert line.startswith(f"no QMP at {tmp_path / 'qmp'}: ")
    assert "No such file" in line

"""Record and replay on small firmware: what stops a CPU, observers, and damaged files."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.board import Board
from emulator.machine import CpuFault
from emulator.options import Options
from emulator.trace import Trace
from firmware.asm2464pd.image import wrap
from firmware.asm2464pd.registers import BLOCKS
from sdk.errors import CheckFailed, InvalidInput, TowlineError, UsageError

PLAIN = Options()
SERIAL = "759841 759955 80FE"  # SCON mode 1, SBUF
GUESS = "90C0FF E0 F0 80FE"  # reads and writes XDATA 0xC0FF, which is unknown
CRASH = "7400 A5"
POP = "D0E0 D0E0 D0E0 D0E0 D0E0 D0E0 D0E0 D0E0 D0E0 80FE"  # below the stack's start
UART = "90C001 7441 F0 90C009 E0 90C006 E0 80F2"  # a character, and the status, without end


def image(tmp_path: Path, code: str) -> Path:
    path = tmp_path / "image.bin"
    path.write_bytes(wrap(bytes.fromhex(code)))
    return path


def record(path: Path, clocks: int, *, trace: bool = False, options: Options = PLAIN) -> str:
    """A recording; any stop of the run ends it."""
    board, stream = Board.of(path, options), io.StringIO()
    recorder = board.record(stream)
    if trace:
        Trace(board.machine.bus, BLOCKS, (), lambda line: None)
    with contextlib.suppress(TowlineError):
        board.machine.run(clocks)
    recorder.finish()
    return stream.getvalue()


def replay(tmp_path: Path, path: Path, text: str, *, trace: bool = False, options: Options = PLAIN) -> int:
    file = tmp_path / "run.jsonl"
    file.write_text(text)
    board = Board.of(path, options)
    if trace:
        Trace(board.machine.bus, BLOCKS, (), lambda line: None)
    return board.replay(file).clock


@pytest.mark.slow
@pytest.mark.parametrize("code", [SERIAL, GUESS, CRASH, POP, UART])
@pytest.mark.parametrize("options", [Options(), Options(strict=True, guards=frozenset({"stack", "erased"}))])
def test_a_replay_is_identical_however_the_run_ends(tmp_path: Path, code: str, options: Options) -> None:
    path = image(tmp_path, code)
    text = record(path, 20_000, options=options)
    end = json.loads(text.splitlines()[-1])
    assert replay(tmp_path, path, text) == end[1]


@pytest.mark.slow
@pytest.mark.parametrize(("recorded", "replayed"), [(True, False), (False, True), (True, True)])
def test_a_trace_makes_no_difference(tmp_path: Path, recorded: bool, replayed: bool) -> None:
    path = image(tmp_path, UART)
    text = record(path, 20_000, trace=recorded)
    assert text == record(path, 20_000)
    assert replay(tmp_path, path, text, trace=replayed) >= 20_000


def test_a_guard_finds_in_the_replay_what_the_run_did_not_stop_at(tmp_path: Path) -> None:
    path = image(tmp_path, POP)
    text = record(path, 20_000)
    with pytest.raises(CpuFault, match="the stack"):
        replay(tmp_path, path, text, options=Options(guards=frozenset({"stack"})))


def test_a_difference_names_line_clock_and_place(tmp_path: Path) -> None:
    path = image(tmp_path, UART)
    lines = record(path, 20_000).splitlines()
    number = next(number for number, line in enumerate(lines) if line.startswith('["W"'))
    event = json.loads(lines[number])
    event[-1] = 0x42
    lines[number] = json.dumps(event)
    with pytest.raises(
        CheckFailed, match=rf"run.jsonl:{number + 1}: the CPU did W xdata 0xc001 = 0x41 at .*; recorded was W"
    ):
        replay(tmp_path, path, "\n".join(lines))


def test_a_boot_loader_cannot_be_recorded(tmp_path: Path) -> None:
    board = Board.of(image(tmp_path, UART), Options(strap=True))
    with pytest.raises(UsageError, match="nothing to record"):
        board.record(io.StringIO())


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(
            st.integers(),
            st.lists(
                st.one_of(
                    st.sampled_from(["R", "W", "C", "L", "X", "E", "xdata", "sram", "00", ""]),
                    st.integers(-(2**70), 2**70),
                    st.integers(0, 300),
                    st.none(),
                ),
                max_size=6,
            ),
        ),
        max_size=4,
    )
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_damage_is_an_error(tmp_path: Path, events: list[object]) -> None:
    path = image(tmp_path, CRASH)
    lines = record(path, 100).splitlines()
    text = "\n".join([lines[0], *(json.dumps(event) for event in events), lines[-1]])
    with contextlib.suppress(InvalidInput, CheckFailed, CpuFault):
        replay(tmp_path, path, text)

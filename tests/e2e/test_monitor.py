"""`towline emulate --debug`: sessions from a file, and at a terminal."""

import io
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emulator import image_file
from emulator.board import Board
from emulator.debug import cdb
from emulator.debug.monitor import Monitor
from emulator.debug.source import Sources
from firmware.asm2464pd.image import wrap
from sdk.errors import UsageError
from towline.cli import main

SOURCES = Path(__file__).parents[2] / "firmware" / "asm2464pd" / "src"


@pytest.fixture
def session(capfd, monkeypatch):
    """Runs commands on our firmware; returns the exit code, the output and the errors."""

    def run(commands, *options):
        monkeypatch.setattr(sys, "stdin", io.StringIO(commands))
        code = main(["emulate", "firmware", "--debug", *options])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def board():
    board = Board.of("firmware")
    yield board
    board.close()


def line_of(file, text):
    """The number of the line with a text: the test does not depend on what is above it."""
    lines = (SOURCES / file).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def said(out, command):
    """The monitor's answer to a command."""
    match = re.search(rf"^\(towline\) {re.escape(command)}$\n(.*?)(?=^\(towline\)|\Z)", out, re.M | re.S)
    assert match is not None, out
    return match[1]


def test_a_session_stops_at_a_line_prints_and_steps(session):
    line = line_of("main.c", "pcie_tune();")
    code, out, _ = session(
        f"break main.c:{line}\ncontinue\nprint USB_MODE\nprint PC\nstep\nbacktrace\nfinish\nnext\n"
        "set USB_MODE = 1\nprint USB_MODE\nset R7 = 0x12\nprint R7\ninfo breakpoints\nquit\n"
    )
    assert code == 0
    assert re.search(rf"breakpoint 1, at 0.0000\d+ s\n0x.... in start \(\) at main.c:{line}\n", out)
    assert re.search(r"USB_MODE = 0x.*\n +xdata 0xcc30, .*\n +\S+ +\[\d", said(out, "print USB_MODE"))
    assert "in pcie_tune () at pcie.c:" in said(out, "step")
    assert re.search(r"#0 .* pcie_tune.*\n#1 .* start.*\n#2 .* main ", said(out, "backtrace"))
    assert "in start () at main.c:" in said(out, "finish")
    assert "usb_start();" in said(out, "next"), "the source line that comes next"
    assert "R7 = 18 (0x12)" in out
    assert "reached 1 times" in out


def test_watchpoints_time_and_the_end_of_the_run(session):
    code, out, _ = session(
        "continue 2ms\nprint uptime\ntrace on usb\nwatch USB_LINK_EVENTS\ncontinue\ndelete\n"
        "tbreak usb_interrupt\ncontinue\nbacktrace\ntrace\ncontinue\ncontinue 1ms\nquit\n",
        "--for",
        "200ms",
    )
    assert code == 0
    assert "the time has elapsed, at 0.00200" in said(out, "continue 2ms")
    assert "watchpoint 1, USB_LINK_EVENTS: 00 -> " in out
    assert f"at usb.c:{line_of('usb.c', 'u8 plane = CPU_DPX;')}\n" in out, "the first statement, and no push"
    assert re.search(r"#0 .*usb_interrupt.*\n#1 .*interrupted here", said(out, "backtrace"))
    assert "---- stopped ----" in said(out, "trace")
    assert "the run is over, at 0.20" in out
    assert "the run is over, at 0.201" in said(out, "continue 1ms")


def test_a_time_that_the_end_of_the_run_has_overtaken_is_forgotten(session):
    code, out, _ = session("continue 5ms\ncontinue 10ms\nquit\n", "--for", "1ms", "--no-host")
    assert code == 0
    assert "the run is over, at 0.001" in said(out, "continue 5ms")
    assert "the run is over, at 0.011" in said(out, "continue 10ms")
    assert "the time has elapsed" not in out


def test_the_world_goes_on_after_a_stop_in_a_request(session):
    line = line_of("vendor.c", "control_send(length);")
    commands = f"break vendor.c:{line}\ncontinue\nbacktrace\nprint setup\n"
    commands += "print setup.value_high\nprint length\ncontinue\n"
    code, out, _ = session(commands, "--control", "C0:E4:9100:0:1", "--for", "220ms")
    assert code == 0
    frames = said(out, "backtrace")
    assert re.search(r"usb_interrupt .*\n#\d  0x.*\(interrupted here\)", frames)
    assert " main " in frames.splitlines()[-1]
    assert "request = 228 (0xe4)" in said(out, "print setup")
    assert "setup.value_high = 145 (0x91)" in out
    assert "length = 1 (0x0001)" in out
    assert "C0:E4:9100:0:1 03" in out


WRONG = [
    ("frobnicate", "no command 'frobnicate'"),
    ("break nowhere", "no function 'nowhere'"),
    ("break nowhere.c:3", "no code comes from a file nowhere.c"),
    ("break main.c:999999", "main.c:999999 has no code"),
    ("print nonesuch", "there is no nonesuch"),
    ("print setup.nothing", "there is no setup.nothing"),
    ("print serial[4]", "no serial[4]"),
    ("print USB_MODE.NOTHING", "there is no USB_MODE.NOTHING"),
    ("print 1 +", "'+'"),
    ("print", "expression is missing"),
    ("print sfr[0x10]", "sfr 0x10 does not exist"),
    ("print 99999999999", "does not fit"),
    ("print 012", "not a number"),
    ("set R0 = 256", "does not fit"),
    ("set R0", "value is missing"),
    ("set setup = 1", "cannot be set"),
    ("dump nowhere 0", "no space nowhere"),
    ("dump xdata 0xfff0 32", "does not exist"),
    ("dump xdata 0 0", "length of 0"),
    ("watch 5", "no address"),
    ("continue soon", "is not a time"),
    ("step 0", "number of steps"),
    ("step", "line of C"),
    ("finish", "no caller"),
    ("delete 7", "no breakpoint 7"),
    ("info nothing", "info has no topic 'nothing'"),
    ("trace on nothing", "no block nothing"),
    ("directory /nowhere", "/nowhere is not a directory"),
    ("break *0x20000", "not an address of code"),
    ("break *2:0x8000", "not an address of code"),
    ("print " + "*" * 500 + "1", "too long"),
    ("delete " + "1" * 5000, "at most"),
    ("continue " + "9" * 400 + "s", "is not a time"),
    ("set USB_MODE.SUPER_SPEED = 2", "does not fit the 1 bit of"),
    ("set USB_MODE.SUPER_SPEED = job_run", "does not fit"),
    ("s!", "number of steps"),
]


def test_values_are_where_the_chip_has_them(board):
    said = list[str]()
    monitor = Monitor(board, cdb.Variables(), Sources(()), said.append, io.StringIO())
    steps = {
        "set TLP_ADDRESS = 0x12345678": None,
        "dump xdata 0xB218 4": "12 34 56 78",
        "print TLP_ADDRESS": "TLP_ADDRESS = 0x12345678",
        "set BULK_OUT_COUNT = 5": None,
        "print BULK_OUT_COUNT": "BULK_OUT_COUNT = 0x0000",  # it is read-only
        "set PSW = 0x18": None,
        "set R7 = 9": None,
        "print iram[0x1F]": "iram[0x1f] = 9 ",
        "print CPU_PSW.RS": "CPU_PSW.RS = 0x3",
        "set CPU_PSW.RS = 1": None,
        "print PSW": "CPU_PSW = 0x08",
        "set DPTR = 0x1234": None,
        "print DPH": "DPH = 18 (0x12)",
    }
    for command, answer in steps.items():
        said.clear()
        monitor.execute(command)
        assert (answer or "") in "".join(said)
        assert bool(said) is (answer is not None), command


def test_wrong_commands_are_answered(board):
    monitor = Monitor(board, cdb.beside(image_file.locate("firmware")), Sources(()), str, io.StringIO())
    for command, message in WRONG:
        with pytest.raises(UsageError) as refused:
            monitor.execute(command)
        assert message in str(refused.value), command


def test_after_a_wrong_command_in_a_file_the_next_one_runs(session):
    code, out, err = session("# a comment\nfrobnicate\nprint PC\nstep 0\nquit\n")
    assert code == 1
    assert "error: " in said(out, "frobnicate")
    assert "PC = 0" in said(out, "print PC")
    assert "error: " in said(out, "step 0")
    assert "line 2" in err
    assert "instructions" in err, "the run is reported"


def test_a_guard_s_stop_can_be_inspected(tmp_path, capfd, monkeypatch):
    image = tmp_path / "wrong.bin"
    image.write_bytes(wrap(bytes.fromhex("7F03 DFFE A5")))
    monkeypatch.setattr(sys, "stdin", io.StringIO("continue\nprint PC\nstepi\n"))
    assert main(["emulate", str(image), "--debug"]) == 1, "it cannot go on"
    out, err = capfd.readouterr()
    assert "the run has ended: " in out
    assert "A5" in out
    assert "cannot go on" in out
    assert "A5" in err


def test_an_image_without_symbols_can_be_stepped(tmp_path, capfd, monkeypatch):
    image = tmp_path / "plain.bin"
    image.write_bytes(wrap(bytes.fromhex("7F03 DFFE 80FE")))
    monkeypatch.setattr(
        sys, "stdin", io.StringIO("stepi\nprint R7\ndisassemble\nbreak *0x0004\nc\nbt\nstepi 2\n")
    )
    assert main(["emulate", str(image), "--debug"]) == 0
    out, err = capfd.readouterr()
    assert "plain.cdb (of sdcc --debug)" in err
    assert "R7 = 3 (0x03)" in out
    assert "> 0002  df fe" in out
    assert "breakpoint 1, at" in out


C = """
typedef struct { unsigned char kind : 3; unsigned char rest : 5; float scale; } item;
__xdata item items[2];
signed char low = -3;
static void fill(__xdata item *one)
{
    one->kind = 5;
    one->scale = 1.5f;
}
static volatile unsigned char x;
static void spin(unsigned char n)
{
    while (n--)
        x++;
}
void main(void)
{
    for (;;) {
        fill(&items[1]);
        spin(3);
    }
}
"""


@pytest.mark.skipif(shutil.which("sdcc") is None, reason="sdcc is not installed")
def test_a_program_of_one_s_own(tmp_path, capfd, monkeypatch):
    """Bit fields and floats, a function without a prologue, and one that begins with a loop."""
    (tmp_path / "own.c").write_text(C)
    build = tmp_path / "build"
    build.mkdir()
    command = ["sdcc", "-mmcs51", "--debug", "--xram-loc", "0", "../own.c", "-o", "own.ihx"]
    subprocess.run(command, cwd=build, check=True)
    commands = "tbreak fill\ncontinue\nnext\nnext\nbreak spin\nc\nfinish\n"
    commands += "set items[1].rest = 17\nset items[1].rest = 2\nprint items[1]\nprint low\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(commands + "print items[0].rest\nset items[1].rest = 32\n"))
    assert main(["emulate", str(build / "own.ihx"), "--debug", "--no-host"]) == 1
    out = capfd.readouterr().out
    assert "one->kind = 5;" in said(out, "continue")
    assert "in spin ()" in said(out, "c")
    assert "in main ()" in said(out, "finish"), "the loop is not stopped in again"
    assert "items[1] = {kind = 5, rest = 2, scale = 1.5}" in out
    assert "items[0].rest = 0\n" in out
    assert "low = -3 (0xfd)\n" in out
    assert "0x20 does not fit the 5 bits of items[1].rest" in said(out, "set items[1].rest = 32")


def test_the_second_ctrl_c_reaches_a_host_that_hangs(tmp_path, session):
    host = tmp_path / "hangs.py"
    host.write_text(
        "import signal\nfor _ in range(3): signal.raise_signal(signal.SIGINT)\nprint('survived')\n"
    )
    code, out, _ = session("continue\nprint PC\nquit\n", "--host", str(host))
    assert code == 130
    assert "the run has ended: interrupted" in out
    assert "survived" not in out
    assert "PC = 0x" in out


def test_a_closed_stdin_is_refused(capfd, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["emulate", "firmware", "--debug"]) == 2
    assert "stdin" in capfd.readouterr().err


def test_help_names_every_command(board):
    said = list[str]()
    monitor = Monitor(board, cdb.Variables(), Sources(()), said.append, io.StringIO())
    monitor.execute("help")
    assert {line.split()[0] for line in said[:-1]} == set(monitor.commands())
    said.clear()
    monitor.execute("h wat")
    assert "watch EXPRESSION\n" in said[0]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_at_a_terminal(tmp_path):
    """Line editing, Ctrl-C that stops the run and not the monitor, an empty line that steps again."""
    tmux = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null"]
    environment = ["env", "TERM=screen"]
    command = f"{sys.executable} -m towline emulate firmware --debug --for 1000s; echo exit $?; cat"
    subprocess.run([*environment, *tmux, "new-session", "-d", "-x", "150", "-y", "200", command], check=True)

    def screen():
        done = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True, check=True)
        return done.stdout

    def until(text, seconds=120.0):
        end = time.monotonic() + seconds
        while not re.search(text, shown := screen(), re.M):
            if time.monotonic() > end:
                pytest.fail(f"{text} is missing in\n{shown.rstrip()}")
            time.sleep(0.1)

    def press(*keys):
        subprocess.run([*tmux, "send-keys", *keys], check=True)

    try:
        until(r"^\(towline\) *$")
        press("break main.cx", "BSpace", ":36", "Enter")
        until("breakpoint 1 at .* main.c:36")
        press("continue", "Enter")
        until("breakpoint 1, at 0.18")
        press("next", "Enter")
        until(r"^37 .*\n\(towline\) *$")
        press("Enter")
        until(r"^38 .*\n\(towline\) *$")
        press("half a li", "C-c")
        until(r"^38 .*\n\(towline\).*\n\(towline\) *$")
        press("del", "Tab", " 1", "Enter", "continue", "Enter")
        until(r"\(towline\) delete +1")
        time.sleep(1)
        press("C-c")
        until("interrupted, at [0-9.]+ s")
        press("print USB_LINK_SP", "Tab", "Enter")
        until("USB_LINK_SPEED = 0x")
        press("C-d")
        until("exit 0")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)

"""The GDB stub: raw packets, and GDB itself where there is one."""

import contextlib
import re
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree

import pytest

from emulator import image_file, images
from emulator.board import Board
from emulator.debug import cdb
from emulator.debug.debugger import Ended
from emulator.debug.gdb import Gdb
from emulator.debug.memory import address_of
from emulator.debug.registers import PC, REGISTERS
from emulator.debug.source import Sources
from emulator.mcs51.disassembler import decode
from firmware.asm2464pd.image import wrap
from sdk.errors import EnvironmentMissing, TowlineError
from tests.gdb_client import GdbClient
from towline.cli import main

NUMBERS = {register.name: number for number, register in enumerate(REGISTERS)}


class Session:
    """Our firmware under a stub, in a thread of its own, and a client."""

    def __init__(self, endless=False, name="firmware"):
        self.endless = endless
        self.board = Board.of(name)
        image = image_file.locate("firmware")
        self.variables = cdb.beside(image)
        self.stub = Gdb(self.board, 0, self.variables, Sources(images.source_directories("firmware")))
        self.ending: TowlineError | None = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        self.client = GdbClient(self.stub.port)

    def run(self):
        self.stub.wait()
        try:
            self.board.usb.clock.sleep(0.3)
            while self.endless and self.stub.attached:
                self.board.usb.clock.sleep(0.1)
        except TowlineError as problem:
            self.ending = problem
        self.stub.over(None if isinstance(self.ending, Ended) else self.ending)

    def place(self, name):
        function = self.board.symbols.named(name)
        assert function is not None
        return function.start

    def variable(self, name):
        (found,) = self.variables.anywhere(name)
        return address_of(found.space, found.address)

    def close(self):
        self.client.socket.close()
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()
        self.stub.close()
        self.board.close()


@pytest.fixture
def session():
    session = Session()
    yield session
    session.close()


def test_a_session(session):
    client = session.client
    assert "QStartNoAckMode+" in client.ask("qSupported:swbreak+;hwbreak+;vContSupported+")
    client.socket.sendall(b"$g#00")
    assert client.take(1) == b"-", "a wrong checksum"
    assert client.ask("qC") == "QC1"
    client.socket.sendall(b"-")
    assert client.reply() == "QC1", "again"
    assert client.ask("QStartNoAckMode") == "OK"
    client.acknowledge = False
    assert client.ask("vMustReplyEmpty") == ""
    assert client.ask("?").startswith("T05")
    assert client.register(PC) == 0

    tree = ElementTree.fromstring(read_description(client))
    registers = tree.findall("feature/reg")
    assert [int(row.attrib["regnum"]) for row in registers] == list(range(len(registers)))
    bits = sum(int(row.attrib["bitsize"]) for row in registers)
    assert len(client.ask("g")) == bits // 4

    start = session.place("uart_print")
    assert client.ask(f"Z0,{start:x},2") == "OK"
    assert "swbreak:;" in client.ask("vCont;c")
    assert client.register(PC) == start
    assert client.ask(f"z0,{start:x},2") == "OK"
    assert f"{PC:x}:" in client.ask("s")
    assert start < client.register(PC) < start + 8

    uptime = session.variable("uptime")
    assert client.ask(f"Z2,{uptime:x},4") == "OK"
    assert f"watch:{uptime:x};" in client.ask("c")
    value = int.from_bytes(bytes.fromhex(client.ask(f"m{uptime:x},4")), "little")
    assert client.ask(f"z2,{uptime:x},4") == "OK"
    assert f"uptime = {value} (" in client.monitor("print uptime")
    assert "there is no nonesuch" in client.monitor("print nonesuch")

    status = address_of("xdata", 0xB450)
    assert client.ask(f"Z3,{status:x},1") == "OK"
    assert f"rwatch:{status:x};" in client.ask("c")
    assert client.ask(f"z3,{status:x},1") == "OK"

    handler = session.place("usb_interrupt")
    client.ask(f"Z1,{handler:x},2")
    assert "hwbreak:;" in client.ask("C05")
    assert re.search(r"#1 .*interrupted here", client.monitor("backtrace"))
    client.ask(f"z1,{handler:x},2")
    assert client.ask("c") == "W00", "the run is over"


def test_an_interrupt_stops_a_run():
    session = Session(endless=True)
    for _ in range(2):
        session.client.send("vCont;c")
        session.client.interrupt()
        assert session.client.reply().startswith("T02")
    session.client.send("k")
    session.close()
    assert isinstance(session.ending, Ended)


def test_registers_and_memory_can_be_written(session):
    client = session.client
    cpu = session.board.machine.cpu
    assert client.ask(f"P{NUMBERS['A']:x}=5a") == "OK"
    assert client.ask(f"P{NUMBERS['R7']:x}=77") == "OK"
    assert client.ask(f"P{NUMBERS['DPTR']:x}=3412") == "OK"
    assert client.ask(f"P{PC:x}=0280010000000000") == "OK"
    assert (cpu.acc, cpu.iram[7], cpu.dptr, cpu.pc, cpu.bank) == (0x5A, 0x77, 0x1234, 0x8002, 1)
    assert client.register(PC) == 0x18002
    everything = client.ask("g")
    assert client.ask("G" + everything) == "OK"
    assert client.ask("g") == everything
    xdata, iram = address_of("xdata", 0x123), address_of("iram", 0x40)
    assert client.ask(f"M{xdata:x},2:beef") == "OK"
    assert client.ask(b"X%x,2:" % iram + b"\x01}\x03") == "OK", "23 is sent escaped"
    assert client.ask(f"m{xdata:x},2") == "beef"
    assert client.ask(f"m{iram:x},2") == "0123"
    assert client.ask(f"m{address_of('sfr', 0xE0):x},1") == "5a"


WRONG = (
    *(
        "m20000,1",
        "mzz,1",
        "m0",
        "M0,1:00",
        "M820000,2:00",
        "pff",
        "P8=",
        "P20=0000150000000000",
        "P20=0015",
        "G00",
        "Z0,820000,1",
    ),
    *("Z2,900000,1", "qXfer:features:read:target.xml:x", "m820000,ffff", "p", "P", "qRcmd,zz"),
    *("m0,-1", "p-1", "c999999", "s999999", "p1" + 40 * "0"),
)
UNKNOWN = (
    *("", "!", "R00", "qOffsets", "vRun", "Z9,0,1", "Z0,zz", "Z0,-1,1", "qXfer:auxv:read::0,9"),
    *("vCont;", "vCont;t", "vCont;D", "vCont;k", "C5", "czz", "c" + 17 * "f"),
)


def test_wrong_and_unknown_packets_are_answered(session):
    assert {packet: session.client.ask(packet) for packet in WRONG} == dict.fromkeys(WRONG, "E01")
    assert {packet: session.client.ask(packet) for packet in UNKNOWN} == dict.fromkeys(UNKNOWN, "")
    session.client.socket.sendall(b"\x00\xff+++}}}##")
    assert session.client.ask("qC") == "QC1"
    assert "at most" in session.client.monitor("print " + "(" * 5000)
    assert "too long" in session.client.monitor("print " + "(" * 500)
    with pytest.raises(OSError, match=r"refused|reset"):
        GdbClient(session.stub.port).ask("qC")
    assert session.client.ask("s80").startswith("T05"), "from another place"
    assert session.client.register(PC) > 0x80


def test_a_client_that_waits_for_no_answer_is_disconnected(session):
    session.client.send("c")
    with contextlib.suppress(ConnectionError):
        session.client.socket.sendall(b"$m0,1#fa" * 10_000)
        while session.client.socket.recv(1 << 16):
            pass


def test_a_packet_without_end_closes_the_connection(session):
    session.client.socket.sendall(b"$" + b"m" * 0x10001)
    with pytest.raises(OSError, match=r"closed the connection|reset"):
        session.client.take(1)


@pytest.mark.slow
def test_kill_ends_the_run_and_detach_continues_it():
    for packet, clocks in (("k", 0), ("D", 34_000_000)):
        session = Session()
        session.client.ask("Z0,0,1")
        session.client.send(packet)
        if packet == "D":
            assert session.client.reply() == "OK"
        session.thread.join(timeout=60)
        assert isinstance(session.ending, Ended) is (packet == "k")
        assert session.board.machine.clock.now >= clocks
        session.close()


def test_a_fault_of_the_firmware_is_shown_and_ends_the_run(tmp_path):
    image = tmp_path / "wrong.bin"
    image.write_bytes(wrap(bytes.fromhex("7F03 DFFE A5")))
    session = Session(name=image)
    client = session.client
    client.send("c")
    assert "A5" in bytes.fromhex(client.reply().removeprefix("O")).decode()
    assert client.reply() == "S04", "SIGILL"
    assert client.ask("?") == "S04"
    assert client.register(PC) == 4
    assert client.ask("c") == "X09"
    session.close()
    assert "A5" in str(session.ending)


def test_the_run_continues_when_gdb_disconnects(session):
    session.client.ask("Z2,820000,1")
    session.client.socket.close()
    session.thread.join(timeout=60)
    assert session.ending is None
    assert session.board.machine.clock.now >= 34_000_000


@pytest.mark.slow
def test_a_port_that_is_taken_is_refused():
    board = Board.of("firmware")
    stub = Gdb(board, 0, cdb.Variables(), Sources(()))
    with pytest.raises(EnvironmentMissing, match=f"port {stub.port}"):
        Gdb(board, stub.port, cdb.Variables(), Sources(()))
    stub.close()
    board.close()


@pytest.mark.parametrize(
    "options",
    [["--gdb", "x"], ["--gdb", "70000"], ["--gdb", "1", "--debug"], ["--gdb", "1", "--record", "r"]],
)
def test_wrong_options_are_refused(options, capfd):
    assert main(["emulate", "firmware", *options]) == 2
    assert "Traceback" not in capfd.readouterr().err


def read_description(client):
    text, offset = "", 0
    while True:
        part = client.ask(f"qXfer:features:read:target.xml:{offset:x},200")
        text += part[1:]
        offset += len(part) - 1
        if part[0] == "l":
            return text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gdb-multiarch") is None, reason="gdb-multiarch is not installed")
def test_gdb_itself():
    """As far as a GDB without an 8051 goes: everything but source, symbols and the disassembly."""
    command = [sys.executable, "-m", "towline", "emulate", "firmware", "--gdb", "0", "--for", "1ms"]
    towline = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        assert towline.stderr is not None
        port = re.search(r"127.0.0.1:(\d+)", towline.stderr.readline())
        assert port is not None
        board = Board.of("firmware")
        start = board.symbols.named("pcie_power_on")
        assert start is not None
        second = decode(board.machine.cpu.code(0), start.start).following
        steps = [
            f"target remote 127.0.0.1:{port[1]}",
            f"break *{start.start:#x}",
            "continue",
            "info registers pc A R0 DPTR SP",
            "backtrace",
            "stepi",
            "print/x $pc",
            "x/2xb 0x0",
            "set $R0 = 5",
            "print/x $R0",
            "delete",
            "watch *(unsigned char *)0x82b480",
            "continue",
            "monitor print PCIE_LTSSM",
            "monitor backtrace",
            "delete",
            "monitor break main.c:36",
            "continue",
            "kill",
        ]
        words = [word for step in steps for word in ("-ex", step)]
        done = subprocess.run(
            ["gdb-multiarch", "-nx", "-batch", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # where GDB writes what `monitor` answers
            text=True,
            check=False,
            timeout=60,
        )
        out = done.stdout
        assert f"Breakpoint 1, 0x{start.start:016x} in ?? ()" in out, out
        assert re.search(rf"^pc +{start.start:#x}", out, re.M), out
        assert re.search(r"^SP +0x", out, re.M), out
        assert f"$1 = {second:#x}" in out, out
        assert "$2 = 0x5" in out
        assert "Hardware watchpoint 2" in out
        assert "PCIE_LTSSM = 0x" in out
        assert "Program received signal SIGTRAP" in out, "a breakpoint that GDB did not set"
        assert towline.wait(timeout=60) == 0
    finally:
        towline.kill()
        towline.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("sent", ["cc", "cc?", "c!c", "c!!c!", "ccccc", "sc!s?c", "c!ccc!c?"])
def test_a_client_that_waits_for_nothing_and_hangs_up(sent):
    """Packets that still wait when it has gone do not keep the board from going on without it."""
    packets = {"c": b"$vCont;c#a8", "s": b"$vCont;s#b8", "?": b"$?#3f", "!": b"\x03"}
    session = Session(endless=True)
    session.client.socket.sendall(b"".join(packets[each] for each in sent))
    session.close()
    assert session.ending is None

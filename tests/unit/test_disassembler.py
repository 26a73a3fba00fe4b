"""Disassembly, the flow graph, symbols, and the command that shows them."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator import image_file, images, symbols
from emulator.mcs51 import flow, listing
from emulator.mcs51.disassembler import ChipNames, Instruction, Numbers, decode, text
from emulator.mcs51.flow import Kind, Place
from emulator.mcs51.opcodes import OPCODES
from firmware.asm2464pd.image import wrap
from firmware.asm2464pd.registers import ASM2464PD
from sdk.errors import InvalidInput
from tests.unit.test_image_file import hex_file
from towline import cli

needs_sdcc = pytest.mark.skipif(shutil.which("sdcc") is None, reason="sdcc is not installed")

ORIGIN = 0x2000


def space(*parts: tuple[int, str]) -> bytes:
    """64 KiB of CODE with hexadecimal stretches in it."""
    code = bytearray(b"\xff" * 0x10000)
    for address, content in parts:
        data = bytes.fromhex(content)
        code[address : address + len(data)] = data
    return bytes(code)


def graph_of(*parts: tuple[int, str], bank1: tuple[tuple[int, str], ...] = (), **names: Place) -> flow.Graph:
    banks = space(*parts), space(*(part for part in parts if part[0] < 0x8000), *bank1)
    loaded = tuple(bytes(value != 0xFF for value in bank) for bank in banks)
    return flow.analyse(banks, (loaded[0], loaded[1]), {place: name for name, place in names.items()})


# -- instructions -----------------------------------------------------------------------------------------


def sweep(code: bytes, addresses: range) -> Iterator[Instruction]:
    """Instructions one after the other."""
    address = addresses.start
    while address < addresses.stop:
        yield decode(code, address)
        address += OPCODES[code[address]].length


class FromOrigin(Numbers):
    """Targets as an assembler can relocate them."""

    def code(self, address: int) -> str:
        distance = address - ORIGIN
        return f"origin + {distance}" if distance >= 0 else f"origin - {-distance}"


@needs_sdcc
def test_every_opcode_assembles_to_the_bytes_it_came_from(tmp_path):
    choose = random.Random(51)
    body = b"".join(
        bytes([opcode.code]) + choose.randbytes(opcode.length - 1) for opcode in OPCODES for _ in range(4)
    )
    code = space((ORIGIN, body.hex()))
    lines = [f"\t{text(line, FromOrigin())}" for line in sweep(code, range(ORIGIN, ORIGIN + len(body)))]
    source = [".area CODE (ABS,CODE)", f".org 0x{ORIGIN:04x}", "origin:", *lines, ""]
    (tmp_path / "all.asm").write_text("\n".join(source))
    for command in (["sdas8051", "-o", "all.rel", "all.asm"], ["sdld", "-i", "-n", "all.ihx", "all.rel"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert len(lines) == 4 * len(OPCODES)
    assert image_file.load(tmp_path / "all.ihx").banks[0] == code


@given(st.integers(0, 0xFFFF), st.binary(min_size=3, max_size=3))
def test_an_instruction_has_the_bytes_of_its_opcode_even_across_the_end(address, data):
    code = bytearray(0x10000)
    for offset, value in enumerate(data):
        code[(address + offset) & 0xFFFF] = value
    instruction = decode(bytes(code), address)
    assert instruction.data == data[: OPCODES[data[0]].length]
    assert instruction.following == (address + len(instruction.data)) & 0xFFFF
    assert instruction.target is None or 0 <= instruction.target <= 0xFFFF


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("90 91 01", "mov dptr,#0x9101"),
        ("75 93 01", "mov DPX,#0x01"),
        ("75 96 01", "mov CODE_BANK,#0x01"),
        ("D2 AF", "setb IE.EA"),
        ("92 D7", "mov PSW.CY,c"),
        ("A2 E3", "mov c,ACC.3"),
        ("B0 13", "anl c,/0x22.3"),
        ("C2 9A", "clr SCON.RB8"),
        ("D2 F1", "setb B.1"),
        ("D2 F9", "setb 0xF8.1"),
        ("85 30 40", "mov 0x40,0x30"),
        ("85 E0 82", "mov DPL,ACC"),
        ("E1 23", "ajmp 0x2723"),
        ("80 FE", "sjmp main"),
        ("B6 05 FD", "cjne @r0,#0x05,main"),
        ("A5", ".db 0xA5"),
        ("43 C1 80", "orl 0xC1,#0x80"),
    ],
)
def test_names_come_from_the_facts_and_the_labels(content, shown):
    names = ChipNames(ASM2464PD, {ORIGIN: "main"})
    assert text(decode(space((ORIGIN, content)), ORIGIN), names) == shown


# -- flow -------------------------------------------------------------------------------------------------


def test_blocks_end_at_branches_and_begin_at_their_targets():
    # reset: clr a; loop: inc a; cjne a,#5,loop; lcall sub; sjmp .      sub: ret
    graph = graph_of((0, "E4 04 B4 05 FC 12 00 20 80 FE"), (0x20, "22"))
    reset = graph.routines[Place(0, 0)]
    assert [(block.place.address, len(block.instructions)) for block in reset.blocks] == [
        (0, 1),
        (1, 2),
        (5, 1),
        (8, 1),
    ]
    assert [str(place) for place in reset.blocks[1].successors] == ["0x0005", "0x0001"]
    assert reset.blocks[1].clocks == 1 + 4
    assert reset.calls == (Place(0, 0x20),)
    assert [(found.source.address, found.kind) for found in graph.references[Place(0, 1)]] == [
        (2, Kind.BRANCH)
    ]
    assert [(found.source.address, found.kind) for found in graph.references[Place(0, 0x20)]] == [
        (5, Kind.CALL)
    ]
    assert graph.routines[Place(0, 0x20)].name == "sub_0020"


def test_a_vector_is_an_entry_only_if_it_holds_code_of_its_own():
    # Code runs over 0x0003; 0x000B holds zeros, 0x0013 a jump, 0x001B is erased.
    graph = graph_of((0, "00 00 74 01 80 FE"), (0x0B, "00 00 00"), (0x13, "32"))
    assert [routine.name for routine in graph.routines.values()] == ["reset", "int1"]


def test_code_of_a_bank_stays_in_its_bank():
    # A vendor-style trampoline at 0x0311 selects bank 1; main goes through it to 0x8100, which calls 0x8200.
    trampoline = "C0 08 C0 03 C0 E0 C0 82 C0 83 75 08 1B 75 96 01 22"
    graph = graph_of(
        (0, "90 81 00 02 03 11"),
        (0x311, trampoline),
        (0x8200, "80 FE"),
        bank1=((0x8100, "12 82 00 22"), (0x8200, "22")),
    )
    assert list(graph.routines) == [Place(0, 0), Place(1, 0x8100), Place(1, 0x8200)]
    assert [(found.source, found.kind) for found in graph.references[Place(1, 0x8100)]] == [
        (Place(0, 3), Kind.BANK)
    ]
    assert graph.routines[Place(1, 0x8200)].name == "sub_1_8200"
    assert graph.data[0] == {0x8200, 0x8201}
    assert graph.data[1] == set()


VENDOR_SWITCHES = (
    # As the bank-switching code of Keil's linker: push the current bank's switch, push DPTR, select, return.
    (0x300, "C0 08 74 03 C0 E0 C0 82 C0 83 75 08 0A 75 96 00 22"),
    (0x311, "C0 08 74 03 C0 E0 C0 82 C0 83 75 08 1B 75 96 01 22"),
)


def banked(graph: flow.Graph) -> dict[Place, list[Place]]:
    """What is reached by way of the stack, and from where."""
    found = {
        place: [reference.source for reference in references if reference.kind is Kind.BANK]
        for place, references in graph.references.items()
    }
    return {place: sources for place, sources in found.items() if sources}


def test_the_vendors_switches_are_followed_from_stubs_that_have_no_names():
    # 0: lcall 0x400; lcall 0x405; sjmp .      stubs: mov dptr,#f; ajmp switch
    graph = graph_of(
        (0, "12 04 00 12 04 05 80 FE"),
        *VENDOR_SWITCHES,
        (0x400, "90 90 00 61 11"),
        (0x405, "90 91 00 61 00"),
        (0x9100, "E4 22"),
        bank1=((0x9000, "90 91 23 02 03 11"), (0x9123, "22")),
    )
    assert banked(graph) == {
        Place(1, 0x9000): [Place(0, 0x403)],
        Place(0, 0x9100): [Place(0, 0x408)],
        Place(1, 0x9123): [Place(1, 0x9003)],
    }
    assert graph.data == (frozenset(), frozenset())
    assert graph.routines[Place(0, 0x400)].calls == (Place(1, 0x9000),)


@pytest.mark.parametrize(
    ("stub", "switch"),
    [
        # mov dptr,#0x9000; push dpl; push dph; ret to the switch, whose address lies on top
        ("90 90 00 C0 82 C0 83 90 06 00 C0 82 C0 83 22", "75 96 01 22"),
        # the bank in A: mov a,#1; mov dptr,#0x9000; ljmp switch: push dptr; mov CODE_BANK,a; ret
        ("74 01 90 90 00 02 06 00", "C0 82 C0 83 F5 96 22"),
        # orl CODE_BANK,#1 after anl #0
        ("90 90 00 02 06 00", "53 96 00 C0 82 C0 83 43 96 01 22"),
        # the switch jumps on: clr a; jmp @a+dptr
        ("90 90 00 02 06 00", "75 96 01 02 06 20"),
        # r2, r1 hold the address: mov r1,#0; mov r2,#0x90
        ("79 00 7A 90 12 06 00 22", "C0 01 C0 02 75 96 01 22"),
    ],
)
def test_other_ways_through_a_common_switch(stub, switch):
    graph = graph_of((0, stub), (0x600, switch), (0x620, "E4 73"), bank1=((0x9000, "22"),))
    assert Place(1, 0x9000) in graph.routines
    assert Place(1, 0x9000) in banked(graph)


@pytest.mark.parametrize(
    "stub",
    [
        "90 90 00 12 06 40 02 06 00",  # a call on the way may change DPTR
        "90 90 00 A3 02 06 00",  # and so does INC DPTR
        "90 90 00 E0 F5 82 02 06 00",  # a byte from memory
        "90 90 00 C0 00 D0 83 02 06 00",  # R0 by way of the stack
        "74 00 C0 E0 74 90 C0 E0 12 06 10",  # 0x610 returns to where it was called, not to what was pushed
    ],
)
def test_an_address_that_is_not_constant_is_not_followed(stub):
    switch = "C0 82 C0 83 75 96 01 22"
    code = (0, stub), (0x600, switch), (0x610, "75 96 01 22"), (0x640, "22")
    graph = graph_of(*code, bank1=((0x9000, "22"), (0x9001, "22")))
    assert banked(graph) == {}


def test_the_routine_that_selects_the_old_bank_again_is_followed():
    # main pushes 0x700, then goes to bank 1 with DPTR; 0x700: mov CODE_BANK,#0; sjmp .
    graph = graph_of(
        (0, "74 00 C0 E0 74 07 C0 E0 90 90 00 02 06 00"),
        (0x600, "C0 82 C0 83 75 96 01 22"),
        (0x700, "75 96 00 80 FE"),
        bank1=((0x9000, "22"),),
    )
    assert {Place(1, 0x9000), Place(0, 0x700)} <= graph.routines.keys()


@pytest.mark.parametrize(
    "missing", ["C0 82 C0 83 75 96 01 02 00 20", "C0 83 C0 82 75 96 01 22", "C0 82 C0 83 22"]
)
def test_what_only_resembles_a_trampoline_is_not_one(missing):
    graph = graph_of((0, "90 81 00 02 03 11"), (0x20, "80 FE"), (0x311, missing), bank1=((0x8100, "22"),))
    assert Place(1, 0x8100) not in graph.routines


def test_a_table_of_jumps_ends_where_its_nearest_target_begins():
    # mov dptr,#0x10; jmp @a+dptr; at 0x10: sjmp 0x14, sjmp 0x16; at 0x14: sjmp ., no entry
    graph = graph_of((0, "90 00 10 73"), (0x10, "80 02 80 02 80 FE 80 FE"))
    jump = Place(0, 3)
    entries = [
        place.address
        for place, found in graph.references.items()
        if (jump, Kind.TABLE) in [(r.source, r.kind) for r in found]
    ]
    assert entries == [0x10, 0x12]
    assert graph.data[0] == set()


def test_two_tables_of_address_bytes_are_followed():
    # add a,#9; movc a,@a+pc; mov dpl,a; mov a,r7; add a,#6; movc a,@a+pc; mov dph,a; clr a; jmp @a+dptr
    code = "24 0B 83 F5 82 EF 24 07 83 F5 83 E4 73"
    graph = graph_of((0, code), (0x0E, "40 50"), (0x10, "00 00"), (0x40, "22"), (0x50, "22"))
    assert [place.address for place in graph.routines[Place(0, 0)].blocks[0].successors] == [0x40, 0x50]
    assert graph.data[0] == {0x0E, 0x0F, 0x10, 0x11}


def test_a_named_function_is_an_entry_though_nothing_calls_it():
    graph = graph_of((0, "80 FE"), (0x100, "22"), lonely=Place(0, 0x100))
    assert graph.named("lonely") is graph.named("0x0100")
    assert graph.named("lonely").blocks[0].instructions[0].opcode.mnemonic == "RET"
    assert graph.named("unknown") is None


def test_a_named_table_is_not_taken_for_code():
    # mov dptr,#0x100; clr a; movc a,@a+dptr; sjmp .
    graph = graph_of((0, "90 01 00 E4 93 80 FE"), (0x100, "22 22"), table=Place(0, 0x100))
    assert graph.named("table") is None
    assert graph.data[0] == {0x100, 0x101}


@pytest.mark.slow
@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_have_a_graph_that_covers_each_once(content):
    loaded = bytes(len(content) * [1]).ljust(0x10000, b"\0")
    code = content.ljust(0x10000, b"\xff")
    graph = flow.analyse((code, code), (loaded, loaded))
    assert graph.code[0] | graph.data[0] >= set(range(len(content)))
    assert not graph.code[0] & graph.data[0]
    for routine in graph.routines.values():
        assert routine.entry in [block.place for block in routine.blocks]


# -- symbols ----------------------------------------------------------------------------------------------

PROGRAM = {
    "one.c": """\
__xdata unsigned char buffer[16];
static unsigned char helper(unsigned char a) { return a * 3; }
void isr(void) __interrupt(0) { buffer[0]++; }
extern unsigned char other(unsigned char);
void main(void)
{
    *(volatile __xdata unsigned char *)0x9090 = helper(buffer[3]);
    for (;;)
        buffer[1] = other(buffer[2]);
}
""",
    "two.c": """\
static unsigned char helper(unsigned char a) { return a ^ 0x55; }
unsigned char other(unsigned char a) { return helper(a); }
""",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program of two files, linked: its .ihx, with .map and .cdb beside it."""
    directory = tmp_path_factory.mktemp("program")
    for name, source in PROGRAM.items():
        (directory / name).write_text(source)
        command = ["sdcc", "-mmcs51", "--debug", "-c", name]
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
    command = ["sdcc", "-mmcs51", "--debug", "one.rel", "two.rel", "-o", "program.ihx"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return directory / "program.ihx"


@needs_sdcc
def test_functions_lines_and_variables_of_a_compiled_program(program):
    table = symbols.beside(program)
    by_name = {(function.module, function.name): function for function in table.functions}
    assert {
        ("one", "helper"),
        ("two", "helper"),
        ("one", "isr"),
        ("one", "main"),
        ("two", "other"),
    } <= by_name.keys()
    other = by_name["two", "other"]
    assert table.function_at(0, other.start) == table.function_at(0, other.end - 1) == other
    assert table.function_at(1, other.start) == other  # the common half is seen in both banks
    assert str(table.line_at(0, other.start)) == "two.c:2"
    assert {str(table.line_at(*place)) for place in table.addresses("two.c", 2)} == {"two.c:2"}
    assert table.labels()[0, by_name["two", "helper"].start] == "two.helper"
    assert table.named("two.helper") == by_name["two", "helper"]
    buffer = table.variable_at(5)
    assert (buffer.name, buffer.start, buffer.end) == ("buffer", 1, 17)
    assert table.variable_at(17) is None


@needs_sdcc
def test_functions_follow_each_other_without_gap_or_overlap(program):
    functions = symbols.beside(program).functions
    assert all(before.end <= after.start for before, after in pairwise(functions))
    image = image_file.load(program)
    assert all(all(image.loaded[0][function.start : function.end]) for function in functions)


@needs_sdcc
def test_either_file_alone_gives_what_it_has(program):
    from_map = {function.name for function in symbols.load(program.with_suffix(".map")).functions}
    from_cdb = {function.name for function in symbols.load(program.with_suffix(".cdb")).functions}
    assert "main" in from_map & from_cdb
    assert "helper" in from_cdb - from_map
    startup = {"_sdcc_external_startup", "__sdcc_external_startup"}  # sdcc 4.2 and 4.5
    assert startup & (from_map - from_cdb)


def test_a_banked_symbol_is_in_its_bank(tmp_path):
    path = tmp_path / "banked.cdb"
    path.write_text("M:b\nF:G$far$0_0$0({2}DF,SV:S),C,0,0,0,0,0\nL:G$far$0$0:18010\nL:XG$far$0$0:18015\n")
    table = symbols.load(path)
    assert table.functions == (symbols.Function("far", 1, 0x8010, 0x8016),)
    assert table.function_at(0, 0x8010) is None


def test_an_image_without_symbols_has_none_and_a_wrong_file_is_refused(tmp_path):
    assert symbols.beside(tmp_path / "image.ihx") == symbols.Symbols()
    (tmp_path / "image.map").write_text("nothing of the kind\n")
    with pytest.raises(InvalidInput, match="holds no symbols of sdcc's linker"):
        symbols.beside(tmp_path / "image.ihx")


# -- listing ----------------------------------------------------------------------------------------------


def listed(graph: flow.Graph) -> str:
    return listing.Listing(graph, ASM2464PD, symbols.Symbols()).as_text(graph.routines.values())


def test_comments_name_what_dptr_points_at():
    shown = listed(
        graph_of(
            (0, "90 91 01 E0 90 91 06 A3 F0 90 70 03 E0 75 93 01 90 40 92 E0 75 93 00 90 12 34 E0 80 FE")
        )
    )
    comments = [line.split("; ")[1] for line in shown.splitlines() if "; " in line and "from" not in line]
    assert comments == [
        "USB_EVENTS",
        "EP0_REQUEST_VALUE",
        "EP0_REQUEST_VALUE+0x1",
        "BULK_OUT_BUFFER+0x3",
        "PCIE_LINK_RATE",
    ]


def test_a_listing_line_has_address_bytes_clocks_and_text():
    shown = listed(graph_of((0, "E4 04 B4 05 FC 80 F9")))
    assert shown.splitlines() == [
        "/--> reset:                          ; from 0x0005",
        "|        0x0000  E4        1  clr a",
        "|/-> L0001:                          ; from 0x0002",
        "||       0x0001  04        1  inc a",
        "|\\--     0x0002  B4 05 FC  4  cjne a,#0x05,L0001",
        "|    L0005:",
        "\\---     0x0005  80 F9     3  sjmp reset",
    ]


def test_the_command_lists_an_image_as_text_and_as_data(tmp_path, capsys, monkeypatch):
    path = tmp_path / "image.ihx"
    path.write_text(
        hex_file((0, 0, bytes.fromhex("02 00 10")), (0, 0x10, bytes.fromhex("90 91 01 E0 80 FA FF")))
    )
    assert cli.main(["firmware", "disasm", str(path), "--function", "reset"]) == 0
    assert "ljmp L0010" in capsys.readouterr().out
    assert cli.main(["firmware", "disasm", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["kind"] == "Intel HEX"
    assert result["not_reached"] == [{"bank": 0, "start": 0x16, "end": 0x17}]
    block = result["functions"][0]["blocks"][1]
    assert block["from"] == [
        {"bank": 0, "address": 0, "kind": "jump"},
        {"bank": 0, "address": 0x14, "kind": "jump"},
    ]
    assert block["instructions"][0]["comment"] == "USB_EVENTS"
    assert block["clocks"] == 3 + 5 + 3
    assert cli.main(["firmware", "disasm", str(path), "--function", "unknown"]) == 1
    assert "has no function 'unknown'" in capsys.readouterr().err


def test_the_command_finds_a_function_by_any_address_in_it(tmp_path, capsys):
    path = tmp_path / "image.bin"
    path.write_bytes(wrap(bytes.fromhex("12 00 06 80 FE 22 04 90 91 01 22")))
    for name in ("sub_0006", "0x6", "0x0008", "0:0x000A"):
        assert cli.main(["firmware", "disasm", str(path), "--function", name]) == 0
        assert capsys.readouterr().out.startswith("sub_0006: ")
    assert cli.main(["firmware", "disasm", str(path), "--function", "0x0005"]) == 1


@pytest.mark.slow
@needs_sdcc
def test_the_command_knows_the_test_images_by_name(capsys):
    assert cli.main(["firmware", "disasm", "vendor", "--function", "main"]) == 0
    assert "lcall list_run" in capsys.readouterr().out


def test_names_come_from_a_file_that_the_user_gives(tmp_path, capsys):
    path = tmp_path / "image.ihx"
    far = (4, 0, b"\0\1"), (0, 0x8100, bytes.fromhex("04 22"))
    path.write_text(hex_file((0, 0, bytes.fromhex("12 00 06 80 FE FF 22")), *far))
    names = tmp_path / "names.txt"
    names.write_text("# found by hand\nhelper 0x0006\n\nfar_one 8100 1 ; nothing calls it\n")
    command = ["firmware", "disasm", str(path), "--symbols", str(names), "--json"]
    assert cli.main(command) == 0
    functions = json.loads(capsys.readouterr().out)["result"]["functions"]
    assert [(one["name"], one["bank"], one["address"]) for one in functions] == [
        ("reset", 0, 0),
        ("helper", 0, 6),
        ("far_one", 1, 0x8100),
    ]
    names.rename(tmp_path / "names.map")
    assert cli.main(["firmware", "disasm", str(path), "--symbols", str(tmp_path / "names.map")]) == 1


@needs_sdcc
def test_names_come_from_a_linkers_map_elsewhere(tmp_path, capsys):
    built = images.build("storage")
    bare = tmp_path / "bare.ihx"
    bare.write_text(built.ihx.read_text())
    assert cli.main(["firmware", "disasm", str(bare), "--symbols", str(built.map)]) == 0
    named = capsys.readouterr().out
    assert cli.main(["firmware", "disasm", str(built.ihx)]) == 0
    assert named.count("sub_") == capsys.readouterr().out.count("sub_")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, 2),
        ("", 1),
        ("# nothing\n", 1),
        ("main\n", 1),
        ("main here\n", 1),
        ("main 10 2\n", 1),
        ("main 1FFFF 1\n", 1),
        ("main 20000\n", 1),
        ("main -1\n", 1),
        ("main 10 0 0\n", 1),
    ],
)
def test_a_file_that_lists_no_names_is_refused(tmp_path, capsys, content, code):
    path, names = tmp_path / "image.bin", tmp_path / "names.sym"
    path.write_bytes(wrap(bytes.fromhex("04 80 FE")))
    if content is not None:
        names.write_text(content)
    assert cli.main(["firmware", "disasm", str(path), "--symbols", str(names)]) == code
    assert "names.sym" in capsys.readouterr().err


def test_a_foreign_map_beside_an_image_only_costs_the_names(tmp_path, capsys):
    path = tmp_path / "image.bin"
    path.write_bytes(wrap(bytes.fromhex("04 80 FE")))
    (tmp_path / "image.map").write_text("nothing of the kind\n")
    for command in (["firmware", "disasm", str(path)], ["emulate", str(path), "--for", "1us"]):
        assert cli.main(command) == 0
        assert "no names are known" in capsys.readouterr().err


def test_a_block_that_two_functions_share_is_listed_once():
    shown = listed(graph_of((0, "11 07 11 0A 80 FE"), (7, "04 80 03"), (0xA, "14 80 00"), (0xD, "22")))
    assert shown.count("  ret") == 1
    assert "; shares blocks that are listed with sub_0007" in shown


@needs_sdcc
def test_a_compiled_program_is_reached_but_for_unused_returns(program):
    image, table = image_file.load(program), symbols.beside(program)
    graph = flow.analyse(image.banks, image.loaded, listing.names_of(table))
    assert graph.named("two.helper") is not None
    assert [reference.kind for reference in graph.references[graph.named("isr").entry]] == [Kind.JUMP]
    rest = [image.banks[0][address] for address in graph.data[0]]
    assert set(rest) <= {0x22, 0x00}  # RET behind a loop that never ends; sdcc 4.5 aligns with NOPs
    shown = listing.Listing(graph, ASM2464PD, table).as_text(graph.routines.values())
    assert "; USB_ADDRESS" in shown
    assert "; buffer+0x2" in shown
    assert "one.c:7" in shown

"""The DSP's code in blocks, against a program assembled for it."""

import pytest

from dsp.hexagon import disassembly
from dsp.hexagon.disassembly import Program, labels
from sdk import toolchain
from sdk.errors import InvalidArtifact

SOURCE = """
  .globl _start
  .text
_start: { jumpr r31 }
f:                              // two nested hardware loops, a branch around, a call
  { loop1(.Louter,#4); r2 = #0 }
.Louter:
  { loop0(.Linner,#8) }
.Linner:
  { r2 = add(r2,#1); r3 = add(r3,#2) }:endloop0
  { r4 = add(r4,#1); r5 = add(r5,#1) }:endloop1
  { p0 = cmp.eq(r2,#32); if (!p0.new) jump:nt .Lout }
  { call g }
.Lout:
  { r0 = r2; jumpr r31 }
g:
  { allocframe(#8) }
  { dealloc_return }

  .data
  .p2align 2
network:
  .word 0, 4096, 128, 999, 0, 1, 1, 2, 0, 0, layers, calls
layers: .word 0,1,0,0, 1,2,0,0
calls: .word g,0, f,0, g,0
"""
MEMORY = {"margin": 128, "weights": 999, "arena": 4090}


@pytest.fixture(scope="module")
def elf(tmp_path_factory):
    directory = tmp_path_factory.mktemp("hexagon")
    (directory / "f.s").write_text(SOURCE)
    command = ["--target=hexagon", "-mcpu=hexagonv65", "-mhvx=v65", "-c"]
    toolchain.run("clang", [*command, "-o", directory / "f.o", directory / "f.s"])
    toolchain.run("lld", ["-m", "hexagonelf", "-s", "-o", directory / "f.elf", directory / "f.o"])
    return (directory / "f.elf").read_bytes()


def test_layers_lead_to_their_kernels_and_blocks_follow_jumps_and_loops(elf):
    program = Program(elf, "v65")
    [[g], [f, again]] = program.kernels(MEMORY)
    assert again == g
    blocks = program.blocks(f)
    names = labels(blocks)
    flow = {names[block.address]: [names[place] for place in block.successors] for block in blocks}
    assert flow == {
        "entry": ["L1"],
        "L1": ["L2"],  # loop0 is set up, once a round of the outer loop
        "L2": ["L2", "L3"],
        "L3": ["L1", "L4"],
        "L4": ["L6", "L5"],
        "L5": ["L6"],
        "L6": [],
    }
    [packet] = blocks[2].packets
    assert {"r2 = add(r2,#1)", "r3 = add(r3,#2)"} <= set(packet.lines)
    assert packet.ends == (0,)
    assert not any("endloop" in line for line in packet.lines)
    [only] = program.blocks(g)
    assert only.successors == ()


def test_a_listing_has_arrows_for_jumps_and_hardware_loops(elf):
    program = Program(elf, "v65")
    [_, [f, _]] = program.kernels(MEMORY)
    blocks = program.blocks(f)
    listed = disassembly.as_text(blocks).splitlines()
    assert [line[:5] for line in listed if line.endswith(("endloop0", "endloop1", "L2:", "L6:"))] == [
        "|/-> ", "|\\-- ", "\\--- ", " \\-> ",
    ]  # fmt: skip
    data = disassembly.as_data(blocks)
    assert [block["label"] for block in data] == list(labels(blocks).values())
    assert data[2]["successors"] == ["L2", "L3"]
    assert data[2]["packets"][0]["ends_loops"] == [0]


@pytest.mark.parametrize(
    "data", [b"\x7fELF" + bytes(8), b"", b"x" * 100], ids=["cut short", "empty", "other bytes"]
)
def test_a_file_that_is_not_elf_is_refused(data):
    with pytest.raises(InvalidArtifact, match="not an ELF"):
        Program(data, "v65")


def test_damaged_tables_and_code_are_refused(elf, monkeypatch):
    program = Program(elf, "v65")
    with pytest.raises(InvalidArtifact, match="table"):
        program.kernels(MEMORY | {"weights": 998})
    with pytest.raises(InvalidArtifact, match=r"0x10$"):
        program.blocks(0x10)
    monkeypatch.setattr(disassembly, "PACKETS", 3)
    with pytest.raises(Exception, match="more than 3 packets"):
        program.blocks(program.kernels(MEMORY)[1][0])

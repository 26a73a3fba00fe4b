"""Decoding: what LLVM's text says comes through, and code becomes basic blocks."""

import random
import re
import threading

import pytest

from emulator.amdgpu.isa import flow
from emulator.amdgpu.isa.decode import Undecodable, decoder, parse
from emulator.amdgpu.isa.emit import Refused
from sdk.disassembler import Disassembler
from tests.unit.amdgpu_shader_bench import build
from tests.unit.amdgpu_shader_kernels import KERNELS

REACH = 1024
"""Bytes before a kernel's entry in which its functions are."""
CHIPS = ("gfx1100", "gfx1201")


def written(instruction):
    """An instruction as text again, from its parts alone."""
    if instruction.pair:
        halves = [written(half) for half in instruction.pair]
        return " :: ".join(half.replace("v_", "v_dual_", 1) for half in halves)
    suffix = f"_{instruction.encoding}" if instruction.encoding not in ("", "vopd") else ""
    operands = list(instruction.operands)
    if instruction.encoding == "vopd" and instruction.mnemonic == "v_cndmask_b32":
        operands.pop()
    parts = ", ".join(map(operand_text, operands))
    modifiers = "".join(f" {modifier_text(*item)}" for item in instruction.modifiers.items())
    return " ".join(f"{instruction.mnemonic}{suffix} {parts}{modifiers}".split())


def operand_text(operand):
    bank = {"v": "v", "s": "s"}.get(operand.kind)
    if bank and operand.kind == "s" and operand.index >= 106:
        names = {106: "vcc_lo", 107: "vcc_hi", 125: "m0", 126: "exec_lo", 127: "exec_hi"}
        if operand.index in names:
            text = {(106, 2): "vcc", (126, 2): "exec"}.get(
                (operand.index, operand.count), names[operand.index]
            )
            return decorated(operand, text)
        bank, index = "ttmp", operand.index - 108
    else:
        index = operand.index
    if bank:
        text = f"{bank}{index}" if operand.count == 1 else f"{bank}[{index}:{index + operand.count - 1}]"
        return decorated(operand, text + (f".{operand.half}" if operand.half else ""))
    if operand.kind == "literal":
        return decorated(operand, f"{operand.value:#x}")
    return decorated(operand, operand.name)


def decorated(operand, text):
    text = f"|{text}|" if operand.abs else text
    text = f"sext({text})" if operand.sext else text
    return f"-{text}" if operand.neg else text


def modifier_text(name, value):
    if value is True:
        return name
    if isinstance(value, tuple):
        return f"{name}:[{','.join(map(str, value))}]"
    return f"{name}:{value:#x}" if name.endswith("_mask") else f"{name}:{value}"


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_every_part_of_the_text_is_kept(chip):
    seen = set()
    for name, source in KERNELS.items():
        code = build(chip, source)
        image = code.image[code.descriptor(name)[0] - REACH :]
        program = flow.read(decoder(chip), lambda at, size, image=image: image[at + REACH :][:size])
        for instruction in program.instructions:
            if instruction.code >> 23 & 0x1FF == 0x17F or "swizzle" in instruction.text:
                continue
            assert written(instruction) == " ".join(instruction.text.split())
            seen.add(instruction.mnemonic)
    assert len(seen) > 60


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("v_fma_f32 v3, |v3|, 0.15915494, -v6 clamp mul:2", lambda i: (
            i.operands[1].abs and i.operands[2].value == 0.15915494 and i.operands[3].neg
            and i.modifiers == {"clamp": True, "mul": 2})),
        ("v_add_nc_u32_dpp v0, v1, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0x3", lambda i: (
            i.dpp and i.mnemonic == "v_add_nc_u32" and i.bits("quad_perm") == (1, 0, 3, 2)
            and i.number("bank_mask") == 3)),
        ("v_cndmask_b32_e64_dpp v0, -|v1|, v2, s[2:3] dpp8:[7,6,5,4,3,2,1,0]", lambda i: (
            i.encoding == "e64_dpp" and i.operands[1].neg and i.operands[1].abs
            and i.operands[3].count == 2 and i.bits("dpp8")[0] == 7)),
        ("v_dual_cndmask_b32 v3, v3, v6 :: v_dual_fmac_f32 v2, 0x40490fdb, v5", lambda i: (
            [half.mnemonic for half in i.pair] == ["v_cndmask_b32", "v_fmac_f32"]
            and i.pair[0].operands[3].index == 106 and i.pair[1].operands[1].value == 0x40490FDB)),
        ("v_mov_b16_e32 v5.h, v6.l", lambda i: (i.operands[0].half, i.operands[1].half) == ("h", "l")),
        ("global_load_b32 v1, v[2:3], off offset:-16 th:TH_LOAD_NT scope:SCOPE_DEV", lambda i: (
            i.operands[2].kind == "off" and i.number("offset") == -16 and i.modifiers["th"] == "TH_LOAD_NT")),
        ("tbuffer_load_format_x v1, v0, s[0:3], 0 format:[BUF_FMT_16_SINT] offen", lambda i: (
            i.modifiers == {"format": "[BUF_FMT_16_SINT]", "offen": True})),
        ("s_load_b64 s[4:5], s[0:1], -0x8", lambda i: i.operands[2].value == 0xFFFF_FFF8),
        ("s_mov_b32 ttmp9, null", lambda i: i.operands[0].index == 117 and i.operands[1].kind == "null"),
        ("v_sub_f16_e64 v0, neg(1.0), v1", lambda i: i.operands[1].neg and i.operands[1].value == 1.0),
        ("v_add_f32_e64 v0, -16, -v1", lambda i: (i.operands[1].value, i.operands[1].neg) == (-16, False)),
        ("s_mov_b32 s0, src_shared_base", lambda i: i.operands[1].name == "src_shared_base"),
        ("global_wb scope:SCOPE_SE", lambda i: i.operands == () and i.modifiers == {"scope": "SCOPE_SE"}),
        ("s_getreg_b32 s0, hwreg(HW_REG_MODE, 0, 4)", lambda i: (
            i.operands[1].name == "hwreg(HW_REG_MODE, 0, 4)")),
    ],
)  # fmt: skip
def test_forms(text, check):
    assert check(parse(text, 0, bytes(8)))


@pytest.mark.parametrize("chip", CHIPS)
def test_what_is_not_an_instruction(chip):
    with pytest.raises(Undecodable, match="ffffffff"):
        decoder(chip).decode(b"\xff" * 20, 64)


@pytest.mark.parametrize("word", [0x0100_0000, 0x7F00_0000], ids=["v_illegal", "v_nop"])
def test_instructions_without_operands_have_no_high_halves(word):
    with pytest.raises(Undecodable, match=f"{word:08x}"):
        decoder("gfx1100").decode(word.to_bytes(4, "little") + bytes(16), 0)


def words(*values):
    return b"".join(value.to_bytes(4, "little") for value in values).ljust(1024, b"\0")


def test_blocks_end_at_branches_and_start_at_targets():
    # s_cmp_eq_u32 s0, 0; s_cbranch_scc1 +1; s_nop 0; s_branch -3 (to s_nop's predecessor); s_endpgm
    code = words(0xBF068000, 0xBFA20002, 0xBF800000, 0xBFA0FFFC, 0xBFB00000)
    program = flow.read(decoder("gfx1100"), lambda address, size: code[address : address + size])
    assert {start: block.successors for start, block in program.blocks.items()} == {
        0: (16, 8),
        8: (0,),
        16: (),
    }
    assert [len(block.instructions) for block in program.blocks.values()] == [2, 2, 1]


def test_code_that_runs_into_data_is_refused_with_its_place():
    code = words(0xBF800000, 0xFFFFFFFF)
    with pytest.raises(Refused, match="no instruction of gfx1201: ffffffff") as caught:
        flow.read(decoder("gfx1201"), lambda address, size: code[address : address + size])
    assert caught.value.address == 4


def test_a_jump_to_an_unknown_target_is_refused():
    code = words(0xBE804802)  # s_setpc_b64 s[2:3]
    with pytest.raises(Refused, match="where it goes is not known"):
        flow.read(decoder("gfx1100"), lambda address, size: code[address : address + size])


def test_only_reachable_code_is_fetched():
    fetched = []

    def fetch(address, size):
        fetched.append(address)
        return words(0xBFB00000)[:size]

    flow.read(decoder("gfx1100"), fetch)
    assert fetched == [0]


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_halves_are_those_of_llvm_where_it_has_them(chip):
    """Random words of VOP1 and VOP2, against the instructions that LLVM 19 decodes with real-true16."""
    draw, seen = random.Random(chip), 0
    llvm = Disassembler("AMDGPU", "amdgcn-amd-amdhsa", chip, "+real-true16")
    for _ in range(3000):
        low = draw.choice(
            (0x3F << 25 | draw.getrandbits(25), draw.randrange(48, 62) << 25 | draw.getrandbits(25))
        )
        data = (low | 0x100 | draw.getrandbits(32) << 32).to_bytes(20, "little")
        text = llvm.disassemble(data)[1]
        wanted = re.findall(r"v(\d+)\.([lh])", text)
        if not wanted or "/*" in text:
            continue
        operands = decoder(chip).decode(data, 0).operands
        assert [(str(each.index), each.half or "l") for each in operands if each.kind == "v"] == wanted
        seen += 1
    assert seen > 200


def test_several_cards_in_one_process_share_a_disassembler():
    """Threads of two cards decode at the same time; each gets the text of its own instruction."""
    llvm = Disassembler("AMDGPU", "amdgcn-amd-amdhsa", "gfx1100")
    words = [0xBF800000 + number for number in range(8)]  # s_nop 0 to 7
    wrong: list[str] = []

    def decode(word: int) -> None:
        for _ in range(1500):
            size, text = llvm.disassemble(word.to_bytes(4, "little"))
            if (size, text) != (4, f"s_nop {word & 7}"):
                wrong.append(text)

    threads = [threading.Thread(target=decode, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []

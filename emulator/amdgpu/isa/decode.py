"""Code bytes to instructions, through the disassembler of the LLVM that clang came with.

LLVM's text is regular: a mnemonic with its encoding as a suffix, operands between commas, modifiers between
spaces. SOPP's immediates are not read from the text, which spells them out in words, but from the code; and
so is what the text leaves out (see `fields`).
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace

from emulator.amdgpu.isa import fields
from emulator.amdgpu.isa.fields import Reading
from emulator.amdgpu.isa.operands import EXEC, M0, TTMP, VCC, Instruction, Modifier, Operand
from sdk.disassembler import Disassembler

TRIPLE = "amdgcn-amd-amdhsa"

LONGEST = 20
"""Bytes of the longest instruction: MIMG with all its address words."""

_SUFFIXES = ("_e64_dpp", "_dpp", "_e64", "_e32")
_SOPP = 0x17F
"""Bits 31:23 of SOPP: RDNA3 and RDNA4 ISA manuals, "Scalar Program Flow"."""
_NAMED = {
    "vcc_lo": ("s", VCC, 1),
    "vcc_hi": ("s", VCC + 1, 1),
    "vcc": ("s", VCC, 2),
    "m0": ("s", M0, 1),
    "exec_lo": ("s", EXEC, 1),
    "exec_hi": ("s", EXEC + 1, 1),
    "exec": ("s", EXEC, 2),
    "null": ("null", 0, 1),
    "off": ("off", 0, 1),
}
_REGISTER = re.compile(r"(v|s|ttmp)(?:(\d+)|\[(\d+)(?::(\d+))?\])(?:\.([lh]))?$")
_INTEGER = re.compile(r"-?\d+$")
_HEX = re.compile(r"-?0x[0-9a-f]+$")
_FLOAT = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?$")
_MODIFIER = re.compile(r"([a-z_0-9]+)(?::(.+))?$")
_LIST = re.compile(r"\[([-\d,]+)\]$")


class Undecodable(Exception):
    """Bytes that are not an instruction of the chip, or one whose text does not say all that it does.

    Attributes:
        address: from the entry of the kernel.
    """

    def __init__(self, address: int, why: str) -> None:
        super().__init__(why)
        self.address = address


class Decoder:
    """Disassembler of one chip.

    Args:
        chip: as LLVM calls it: gfx1100, gfx1201, ...

    Raises:
        EnvironmentMissing: there is no libLLVM with the AMDGPU target.
        ToolMissing: there is no clang.
    """

    def __init__(self, chip: str) -> None:
        self.chip = chip
        self._llvm = Disassembler("AMDGPU", TRIPLE, chip)

    def read(self, data: bytes) -> Reading:
        """The first instruction, and what LLVM's text of it leaves out; size 0 if LLVM decodes none."""
        size = len(data)
        return fields.read(
            int.from_bytes(data, "little"),
            lambda word: self._llvm.disassemble(word.to_bytes(size, "little")),
        )

    def disassemble(self, data: bytes) -> tuple[int, str]:
        """Size and LLVM's text of the first instruction; size 0 if there is none."""
        found = self.read(data)
        return (found.size, found.text) if found.valid else (0, "")

    def decode(self, data: bytes, address: int) -> Instruction:
        """The first instruction of `data`, which is at `address`. Raises Undecodable."""
        found = self.read(data)
        if not found.size:
            words = " ".join(f"{int.from_bytes(data[at : at + 4], 'little'):08x}" for at in (0, 4))
            raise Undecodable(address, f"no instruction of {self.chip}: {words}")
        if not found.valid or fields.WARNING in found.text:
            raise Undecodable(address, f"{found.text}: an operand that the instruction cannot have")
        if found.silent:
            raise Undecodable(address, f"{found.text}: {found.silent} is set, but the instruction has none")
        instruction = parse(found.text, address, data[: found.size])
        return _amended(instruction, found) if found.high or any(found.op_sel) else instruction


def _amended(instruction: Instruction, found: Reading) -> Instruction:
    """With the high halves and the op_sel that LLVM was not given."""
    operands, text = list(instruction.operands), instruction.text
    for position in found.high:
        operand = operands[position]
        name = f"{operand.name}.h"
        before = sum(1 for each in operands[: position % len(operands)] if each.name == operand.name)
        text = _nth(text, operand.name, before, name)
        operands[position] = replace(operand, name=name, half="h")
    modifiers = dict(instruction.modifiers)
    if any(found.op_sel):
        modifiers["op_sel"] = found.op_sel
        text += f" op_sel:[{','.join(map(str, found.op_sel))}]"
    return replace(instruction, operands=tuple(operands), modifiers=modifiers, text=text)


def _nth(text: str, name: str, number: int, other: str) -> str:
    """A text with one register renamed: the one after `number` more of that name."""
    places = [found.start() for found in re.finditer(rf"\b{name}\b(?!\.)", text)]
    at = places[min(number, len(places) - 1)]
    return text[:at] + other + text[at + len(name) :]


def parse(text: str, address: int, data: bytes) -> Instruction:
    """An instruction from LLVM's text and its bytes."""
    code, size = int.from_bytes(data, "little"), len(data)
    text = text.split("//", 1)[0].strip()
    if " :: " in text:
        halves = tuple(_half(half.strip(), address, size, code) for half in text.split(" :: "))
        mnemonic = " :: ".join(half.mnemonic for half in halves)
        return Instruction(address, size, mnemonic, "vopd", (), {}, code, text, halves)
    name, _, rest = text.partition(" ")
    mnemonic, encoding = _split_suffix(name)
    if code >> 23 & 0x1FF == _SOPP:
        return Instruction(
            address, size, mnemonic, "", (Operand("int", value=code & 0xFFFF),), {}, code, text
        )
    operands, modifiers = _operands(rest.strip())
    return Instruction(address, size, mnemonic, encoding, operands, modifiers, code, text)


def _half(text: str, address: int, size: int, code: int) -> Instruction:
    """One half of a VOPD pair, under the mnemonic of its VOP2 or VOP1 twin."""
    name, _, rest = text.partition(" ")
    mnemonic = name.replace("v_dual_", "v_", 1)
    operands, modifiers = _operands(rest)
    if mnemonic == "v_cndmask_b32":  # VOPD has no room to name it
        operands = (*operands, _register("vcc_lo"))
    return Instruction(address, size, mnemonic, "vopd", operands, modifiers, code, text)


def _split_suffix(name: str) -> tuple[str, str]:
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix), suffix[1:]
    return name, ""


def _operands(text: str) -> tuple[tuple[Operand, ...], dict[str, Modifier]]:
    """Operands, and the modifiers that follow the last one."""
    operands: list[Operand] = []
    modifiers: dict[str, Modifier] = {}
    for part in _split(text, ","):
        first, *words = _split(part, " ")
        operand = _operand(first)
        if operand.kind == "special" and ":" in first:  # no operands at all, modifiers alone
            words.insert(0, first)
        else:
            operands.append(operand)
        for word in words:
            _add_modifier(modifiers, word)
    return tuple(operands), modifiers


def _split(text: str, separator: str) -> list[str]:
    """Parts between separators outside of brackets, without the empty ones."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter in "[(":
            depth += 1
        elif letter in "])":
            depth -= 1
        elif letter == separator and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _operand(text: str) -> Operand:
    """One operand with what is done to it."""
    neg = absolute = sext = False
    while True:
        if text.startswith(("neg(", "sext(", "abs(")):
            kind, _, text = text[:-1].partition("(")
            neg, absolute, sext = neg or kind == "neg", absolute or kind == "abs", sext or kind == "sext"
        elif text.startswith("|"):
            text, absolute = text.strip("|"), True
        elif text.startswith("-") and not text[1:2].isdigit():
            text, neg = text[1:], True
        else:
            return _register(text, neg, absolute, sext)


def _register(text: str, neg: bool = False, absolute: bool = False, sext: bool = False) -> Operand:
    if found := _REGISTER.match(text):
        kind, one, first, last, half = found.groups()
        index = int(one or first)
        count = int(last) - index + 1 if last else 1
        if kind == "ttmp":
            kind, index = "s", index + TTMP
        return Operand(kind, index, count, 0, text, half or "", neg, absolute, sext)
    if text in _NAMED:
        kind, index, count = _NAMED[text]
        return Operand(kind, index, count, 0, text, "", neg, absolute, sext)
    if _INTEGER.match(text):
        return Operand("int", 0, 1, int(text), text, "", neg, absolute, sext)
    if _HEX.match(text):
        return Operand("literal", 0, 1, int(text, 16) & 0xFFFF_FFFF, text, "", neg, absolute, sext)
    if _FLOAT.match(text):
        return Operand("float", 0, 1, float(text), text, "", neg, absolute, sext)
    return Operand("special", 0, 1, 0, text, "", neg, absolute, sext)


def _add_modifier(modifiers: dict[str, Modifier], word: str) -> None:
    found = _MODIFIER.match(word)
    if not found:
        return
    name, value = found.groups()
    if value is None:
        modifiers[name] = True
    elif items := _LIST.match(value):
        modifiers[name] = tuple(int(item, 0) for item in items[1].split(","))
    elif _INTEGER.match(value) or _HEX.match(value):
        modifiers[name] = int(value, 0)
    else:
        modifiers[name] = value


@functools.cache
def decoder(chip: str) -> Decoder:
    """The disassembler of a chip; one for the process."""
    return Decoder(chip)

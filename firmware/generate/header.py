"""The chip's facts as a C header for sdcc.

Every access is volatile: sdcc merges two reads of a plain pointer, and a FIFO then loses bytes. Names are
those of the facts. A register of one byte is an lvalue under its name, one of two bytes has `_LOW` and
`_HIGH`, a longer one `_0` (least significant) and up; beyond eight bytes it is an array. The name of a field
is its mask, `_SHIFT` its lowest bit, and a named value is shifted to its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firmware.asm2464pd import bot, flash_layout, image, spi, supply, wire
from firmware.asm2464pd.describe import ByteRegister, Memory, Space
from firmware.asm2464pd.registers import ASM2464PD, BLOCKS
from firmware.protocol import commands, requests
from sdk.facts.registers import MACRO, FactError, Field, macro
from sdk.facts.structures import Struct

REGENERATE = "python -m firmware.generate"

_OPENING = f"""\
/* The ASM2464PD: registers, memory, requests, structures, flash. Generated, do not edit: {REGENERATE}
 *
 * NAME                a register of one byte; NAME_LOW, NAME_HIGH of two; NAME_0 (least significant) up
 * NAME_FIELD          its mask; NAME_FIELD_SHIFT its lowest bit; NAME_FIELD_VALUE a value in place
 * NAME_ADDRESS        of a register in the PHY plane, which MOVX reaches with CPU_DPX = 1
 * NAME_BIT            a bit of an SFR
 */
#ifndef ASM2464PD_H
#define ASM2464PD_H
"""
_CLOSING = "#endif\n"

_ARRAY = 8
"""A register with more bytes than this is an array."""


STRUCTS: tuple[Struct, ...] = (
    *wire.USB_STRUCTS,
    *requests.STRUCTS,
    *wire.PCIE_STRUCTS,
    *commands.STRUCTS,
    *(command.cdb for command in bot.COMMANDS),
    image.HEADER,
    image.TRAILER,
    *flash_layout.STRUCTS,
)
"""Every structure of the chip and of the protocol."""


class _Names:
    """The names in use, so that no two facts define the same macro."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        if not MACRO.fullmatch(name):
            raise FactError(f"{name}: not named like a C macro")
        if name in self._taken:
            raise FactError(f"{name}: two facts define this C name")
        self._taken.add(name)
        return name


def c_header() -> str:
    """The header's text.

    Raises:
        FactError: two facts define the same C name.
    """
    names = _Names()
    sections: list[tuple[str, Iterable[str]]] = [
        ("Special function registers", _registers(names, BLOCKS["cpu"])),
        *(
            (f"Registers: {block}", _registers(names, registers))
            for block, registers in BLOCKS.items()
            if block != "cpu"
        ),
        ("Memory", _memories(names, ASM2464PD.memories)),
        ("Vendor requests (bRequest)", _requests(names)),
        ("Command lists", _lists(names)),
        ("Mass-storage vendor commands (first byte of the CDB)", _commands(names)),
        ("Structures: sizes and offsets", _structs(names)),
        ("Image and flash", _flash(names)),
        ("Supply monitor", _supply(names)),
    ]
    body = "\n".join(f"/* {title} */\n" + "".join(f"{line}\n" for line in lines) for title, lines in sections)
    return f"{_OPENING}\n{body}\n{_CLOSING}"


def _define(names: _Names, name: str, value: str) -> str:
    return f"#define {names.take(name)} {value}"


def _number(value: int, size: int) -> str:
    """A C constant of `size` bytes."""
    return f"0x{value:0{2 * size}X}" + ("u" if size == 2 else "ul" if size > 2 else "")


def _xdata(address: int) -> str:
    return f"(*(volatile __xdata unsigned char *)0x{address:04X})"


def _registers(names: _Names, registers: Iterable[ByteRegister]) -> Iterator[str]:
    for register in registers:
        if register.space is Space.SFR:
            yield f"__sfr __at (0x{register.address:02X}) {names.take(register.name)};"
            yield from _bits(names, register)
        elif register.space is Space.XDATA:
            yield from _lvalues(names, register)
        else:
            yield _define(names, f"{register.name}_ADDRESS", _number(register.address, 2))
        if register.size <= 4:
            for field in register.fields:
                yield from _field(names, register.name, field, register.size)


def _bits(names: _Names, register: ByteRegister) -> Iterator[str]:
    """The bits of an SFR whose address ends in 0 or 8, which have addresses of their own."""
    if register.address % 8 == 0:
        for field in register.fields:
            if field.width == 1:
                name = names.take(f"{register.name}_{field.name}_BIT")
                yield f"__sbit __at (0x{register.address + field.bit:02X}) {name};"


def _lvalues(names: _Names, register: ByteRegister) -> Iterator[str]:
    name = register.name
    if register.size > _ARRAY:
        yield _define(names, name, f"((volatile __xdata unsigned char *)0x{register.address:04X})")
        yield _define(names, f"{name}_SIZE", str(register.size))
        return
    for address in register.addresses:
        place = register.shift(address) // 8
        suffix = "" if register.size == 1 else f"_{place}"
        if register.size == 2:
            suffix = "_HIGH" if place else "_LOW"
        yield _define(names, name + suffix, _xdata(address))


def _field(names: _Names, owner: str, field: Field, size: int) -> Iterator[str]:
    """Mask, shift and values; a field that is the whole register needs no mask."""
    name = f"{owner}_{field.name}"
    if field.width < 8 * size:
        yield _define(names, name, _number(field.mask, size))
        if field.width > 1 and field.bit:
            yield _define(names, f"{name}_SHIFT", str(field.bit))
    for value, label in field.values.items():
        yield _define(names, f"{name}_{macro(label)}", _number(field.put(value), size))


def _memories(names: _Names, memories: Iterable[Memory]) -> Iterator[str]:
    for memory in memories:
        if memory.space is Space.XDATA:
            yield _define(names, memory.name, f"((volatile __xdata unsigned char *)0x{memory.address:04X})")
        yield _define(names, f"{memory.name}_SIZE", _number(memory.size, 2 if memory.size < 0x10000 else 4))
        if memory.pcie is not None:
            yield _define(names, f"{memory.name}_PCIE", _number(memory.pcie, 4))


def _requests(names: _Names) -> Iterator[str]:
    for request in requests.REQUESTS:
        name = f"REQUEST_{request.name}"
        yield _define(names, name, _number(request.code, 1))
        yield _define(names, f"{name}_TYPE", _number(request.request_type, 1))
        for word, fields in (("VALUE", request.value), ("INDEX", request.index)):
            for field in fields:
                yield from _field(names, f"{name}_{word}", field, 2)


def _lists(names: _Names) -> Iterator[str]:
    yield _define(names, "API_LEVEL", _number(commands.API_LEVEL, 2))
    yield _define(names, "LIST_BYTES", _number(commands.LIST_BYTES, 2))
    yield _define(names, "RESULT_BYTES", _number(commands.RESULT_BYTES, 2))
    yield _define(names, "LIST_MICROSECONDS", _number(commands.MICROSECONDS, 4))
    for opcode in commands.OPCODES:
        yield _define(names, f"OPCODE_{opcode.name}", _number(opcode.code, 1))


def _commands(names: _Names) -> Iterator[str]:
    for command in bot.COMMANDS:
        yield _define(names, command.cdb.name, _number(command.opcode, 1))


def _structs(names: _Names) -> Iterator[str]:
    for struct in STRUCTS:
        yield from _struct(names, struct)


def _struct(names: _Names, struct: Struct) -> Iterator[str]:
    yield _define(names, f"{struct.name}_SIZE", str(struct.size))
    for member in struct.members:
        name = f"{struct.name}_{member.name.upper()}"
        yield _define(names, f"{name}_OFFSET", str(struct.offset(member.name)))
        if member.fixed is not None:
            yield _define(names, f"{name}_FIXED", _number(member.fixed, member.size))
        for value, label in member.values.items():
            yield _define(names, f"{name}_{macro(label)}", _number(value, member.size))
        for field in member.fields:
            yield from _field(names, name, field, member.size)


def _flash(names: _Names) -> Iterator[str]:
    for region in flash_layout.REGIONS:
        yield _define(names, region.name, _number(region.address, 4))
        yield _define(names, f"{region.name}_SIZE", _number(region.size, 4))
    for area in image.CODE_AREAS:
        yield _define(names, area.name, _number(area.address, 2))
        yield _define(names, f"{area.name}_BODY", _number(area.body.start, 4))
        yield _define(names, f"{area.name}_SIZE", _number(len(area.body), 2))
    for command in spi.SpiCommand:
        yield _define(names, f"SPI_{command.name}", _number(command, 1))
    yield _define(names, "SPI_ADDRESS_BYTES", str(spi.ADDRESS_BYTES))


def _supply(names: _Names) -> Iterator[str]:
    yield _define(names, "SENSOR_ADDRESS", _number(supply.ADDRESS, 1))
    for register in supply.SensorRegister:
        yield _define(names, f"SENSOR_{register.name}", _number(register, 1))
    yield _define(names, "SENSOR_SHUNT_MICROOHMS", str(supply.SHUNT_MICROOHMS))
    yield _define(names, "SENSOR_SHUNT_NANOVOLTS", str(supply.SHUNT_NANOVOLTS))

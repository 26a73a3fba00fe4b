"""The expressions of `print`: variables of the C, registers of the chip and their fields, memory.

    job.left   table[3]   *from   &setup   USB_EVENTS   USB_EVENTS.BULK   xdata[0x9101]   PC   DPTR   R7   42

A name is looked up as in C, in the function that runs, its file, and globally; then among the CPU's registers
and the chip's. A value knows its place, so that it can be changed and watched.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from emulator.debug.cdb import Type, Variable, Variables
from emulator.debug.debugger import Debugger
from emulator.debug.memory import SPACES, linked
from emulator.trace import describe
from firmware.asm2464pd.describe import ByteRegister, Space
from firmware.asm2464pd.registers import ASM2464PD
from sdk.errors import UsageError
from sdk.facts.registers import Field

_TOKEN = re.compile(r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)|([A-Za-z_]\w*)|(->|[.\[\]*&()]))")
_BYTE = Type("integer", 1)
_WORD = Type("integer", 2)
_SFRS = {"A": 0xE0, "B": 0xF0, "SP": 0x81, "DPL": 0x82, "DPH": 0x83, "DPX": 0x93}
MAX_TOKENS = 64
"""The most tokens of an expression."""
MAX_ELEMENTS = 64
"""Elements of an array that are printed."""
_PRINTABLE = range(0x20, 0x7F)
_POINTED = {0x00: "xdata", 0x40: "iram", 0x60: "xdata", 0x80: "code"}
"""Memory by the third byte of sdcc's generic pointers."""


@dataclass(frozen=True)
class Value:
    """A value, and where it is stored.

    Attributes:
        type: C type.
        data: its bytes, least significant first.
        what: its expression.
        space: of `emulator.debug.memory`; "" if it has no address.
        address: in that space.
        register: the register of the chip, if it is one or a field of one.
        field: the field of that register, if it is one.
        put: changes it; None if it cannot be changed.
    """

    type: Type
    data: bytes
    what: str
    space: str = ""
    address: int = 0
    register: ByteRegister | None = None
    field: Field | None = None
    put: Callable[[int], None] | None = None

    @property
    def number(self) -> int:
        """As an integer.

        Raises:
            UsageError: it is a structure or an array.
        """
        if self.type.kind in ("struct", "array"):
            raise UsageError(f"{self.what} is not a number")
        if self.type.kind == "bits":
            return int.from_bytes(self.data, "little") >> self.type.bit & (1 << self.type.width) - 1
        return int.from_bytes(self.data, "little", signed=self.type.signed)


class Evaluator:
    """Evaluates expressions at the place where the CPU is stopped.

    Args:
        debugger: of the board.
        variables: of the image.
    """

    def __init__(self, debugger: Debugger, variables: Variables) -> None:
        self._debugger = debugger
        self._memory = debugger.memory
        self._cpu = debugger.board.machine.cpu
        self._bus = debugger.board.machine.bus
        self._variables = variables

    def value(self, text: str) -> Value:
        """The value of an expression.

        Raises:
            UsageError: it is not an expression, or names something that does not exist.
        """
        tokens = list(_tokens(text))
        if len(tokens) > MAX_TOKENS:
            raise UsageError("the expression is too long", hint=f"the limit is {MAX_TOKENS} tokens")
        parser = _Parser(self, tokens)
        found = parser.prefixed()
        parser.end()
        return found

    @property
    def scope(self) -> tuple[str, str]:
        """Module and function where the CPU is, "" for none."""
        function = self._debugger.board.symbols.function_at(self._cpu.bank, self._cpu.pc)
        return (function.module, function.name) if function is not None else ("", "")

    # -- names ------------------------------------------------------------------------------------------

    def named(self, name: str) -> Value:
        """The value of a name."""
        variable = self._variables.find(name, *self.scope)
        if variable is None:
            found = self._variables.anywhere(name)
            variable = found[0] if len(found) == 1 else None
            if len(found) > 1 and name.upper() not in _SFRS:
                modules = ", ".join(sorted(entry.module for entry in found))
                raise UsageError(f"{name} is in several files: {modules}", hint="stop in one of them")
        if variable is not None:
            return self.of_variable(variable)
        if (value := self._core(name.upper())) is not None:
            return value
        for candidate in (name, f"CPU_{name}"):
            if (register := _register(candidate)) is not None:
                return self.of_register(register)
        function = self._debugger.board.symbols.named(name)
        if function is not None:
            place = linked(function.bank, function.start)
            return Value(Type("function", 2), place.to_bytes(3, "little"), name, "code", place)
        raise UsageError(f"there is no {name}", hint=self._similar(name))

    def of_variable(self, variable: Variable) -> Value:
        """The value of a variable.

        Raises:
            UsageError: its place is unknown.
        """
        if variable.space == "registers":
            return self._in_registers(variable)
        if not variable.space:
            if variable.type.kind == "bits":
                raise UsageError(f"{variable.name} is a __bit: sdcc does not record where its linker put it")
            raise UsageError(
                f"{variable.name} has no place: it was optimised away, or is in registers that are not named"
            )
        return self.at(variable.type, variable.space, variable.address, variable.name)

    def at(self, kind: Type, space: str, address: int, what: str) -> Value:
        """The value at an address, as a type.

        Raises:
            UsageError: there is no such address, or the type has no size.
        """
        if kind.kind == "function":
            return Value(kind, address.to_bytes(3, "little"), what, space, address)
        if kind.size == 0:
            raise UsageError(f"{what} has no size")

        def put(number: int) -> None:
            if kind.kind == "bits":
                old = int.from_bytes(self._memory.read(space, address, kind.size), "little")
                number = _inserted(old, number, kind.bit, kind.width, what)
            self._memory.write(space, address, _packed(number, kind.size, what))

        data = self._memory.read(space, address, kind.size)
        scalar = kind.kind in ("integer", "pointer", "bits")
        return Value(kind, data, what, space, address, put=put if scalar else None)

    def of_register(self, register: ByteRegister) -> Value:
        """The value of a register of the chip."""
        space = register.space.value
        data = self._memory.read(space, register.address, register.size)
        number = int.from_bytes(data, "little" if register.little else "big")

        def put(value: int) -> None:
            packed = _packed(value, register.size, register.name)
            self._memory.write(space, register.address, packed if register.little else packed[::-1])

        ordered = number.to_bytes(register.size, "little")
        kind = Type("integer", register.size)
        return Value(kind, ordered, register.name, space, register.address, register, put=put)

    def _core(self, name: str) -> Value | None:
        """A register of the 8051 by the manual's name."""
        cpu = self._cpu
        if name in _SFRS:
            return self.at(_BYTE, "sfr", _SFRS[name], name)
        if re.fullmatch(r"R[0-7]", name):
            return self.at(_BYTE, "iram", (cpu.psw & 0x18) + int(name[1]), name)
        if name == "PC":
            return Value(Type("function", 2), cpu.pc.to_bytes(2, "little"), "PC", put=self._set_pc)
        if name == "DPTR":
            return self.at(_WORD, "sfr", _SFRS["DPL"], "DPTR")
        return None

    def _set_pc(self, value: int) -> None:
        self._cpu.pc = int.from_bytes(_packed(value, 2, "PC"), "little")

    def _in_registers(self, variable: Variable) -> Value:
        """A variable in registers: what these hold now, which may belong to another one by now."""
        places = []
        for name in variable.registers:
            value = self._core({"a": "A", "b": "B", "dpl": "DPL", "dph": "DPH"}.get(name, name.upper()))
            if value is None:
                raise UsageError(f"{variable.name} is in {name}, which cannot be read")
            places.append(value)

        def put(number: int) -> None:
            for place, byte in zip(places, _packed(number, len(places), variable.name), strict=True):
                if place.put is not None:
                    place.put(byte)

        data = b"".join(place.data[:1] for place in places)
        return Value(variable.type, data, variable.name, put=put)

    def _similar(self, name: str) -> str:
        known = [*self._variables.names, *(register.name for register in ASM2464PD)]
        near = [entry for entry in known if name.lower() in entry.lower()]
        return f"similar: {', '.join(near[:5])}" if near else "info registers and info variables list them"

    # -- operators --------------------------------------------------------------------------------------

    def part(self, value: Value, name: str) -> Value:
        """`value.name`: a member of a structure, or a field of a register."""
        what = f"{value.what}.{name}"
        if value.register is not None:
            return self._field(value, value.register, name)
        if name not in value.type.members:
            members = ", ".join(value.type.members)
            hint = f"it has {members}" if members else "it is not a structure"
            raise UsageError(f"there is no {what}", hint=hint)
        offset, kind = value.type.members[name]
        return self.at(kind, value.space, value.address + offset, what)

    def _field(self, value: Value, register: ByteRegister, name: str) -> Value:
        part = next((entry for entry in register.fields if entry.name == name.upper()), None)
        if part is None:
            names = ", ".join(entry.name for entry in register.fields)
            hint = f"it has {names}" if names else "no fields of it are known"
            raise UsageError(f"there is no {value.what}.{name}", hint=hint)

        what = f"{value.what}.{part.name}"

        def put(number: int) -> None:
            if value.put is not None:
                value.put(_inserted(value.number, number, part.bit, part.width, what))

        kind = Type("bits", register.size, bit=part.bit, width=part.width)
        return Value(kind, value.data, what, value.space, value.address, register, part, put)

    def item(self, value: Value, index: int) -> Value:
        """`value[index]` of an array or a pointer."""
        what = f"{value.what}[{index}]"
        if value.type.target is None:
            raise UsageError(f"{value.what} is neither an array nor a pointer")
        size = max(value.type.target.size, 1)
        if value.type.kind == "pointer":
            space, address = self._pointed(value)
            return self.at(value.type.target, space, address + index * size, what)
        if index >= value.type.size // size:
            raise UsageError(f"{value.what} has {value.type.size // size} elements: there is no {what}")
        return self.at(value.type.target, value.space, value.address + index * size, what)

    def _pointed(self, value: Value) -> tuple[str, int]:
        """Where a pointer points."""
        if value.type.space != "generic":
            return value.type.space, value.number
        kind = _POINTED.get(value.data[2])
        if kind is None:
            raise UsageError(f"{value.what} points nowhere: its memory byte is {value.data[2]:#04x}")
        return kind, int.from_bytes(value.data[:2], "little")

    # -- as text ----------------------------------------------------------------------------------------

    def text(self, value: Value) -> str:
        """A value as text: of a register, a line for each field."""
        if value.register is not None and value.field is None:
            return self._register_text(value, value.register)
        if value.field is not None:
            name = value.field.values.get(value.number)
            return f"{value.what} = {value.number:#x}" + (f" ({name})" if name else "")
        return f"{value.what} = {self._plain(value)}"

    def _register_text(self, value: Value, register: ByteRegister) -> str:
        number, digits = value.number, 2 + 2 * register.size
        head = f"{register.name} = {number:#0{digits}x}  {describe(register, number)}".rstrip()
        rows = [
            f"{head}",
            f"  {register.space.value} {register.address:#06x}, {register.evidence.value}: {register.doc}",
        ]
        for part in register.fields:
            content = part.get(number)
            bits = f"{part.bit}" if part.width == 1 else f"{part.bit + part.width - 1}:{part.bit}"
            meaning = part.values.get(content, "")
            rows.append(f"  {part.name:<24} [{bits}] = {content:#x}  {meaning or part.doc}".rstrip())
        return "\n".join(rows)

    def _plain(self, value: Value) -> str:
        kind = value.type
        if kind.kind == "struct":
            members = (self.part(value, name) for name in kind.members)
            rows = (f"{member.what.rpartition('.')[2]} = {self._plain(member)}" for member in members)
            return "{" + ", ".join(rows) + "}"
        if kind.kind == "array" and kind.target is not None:
            return self._array(value, kind.target)
        if kind.kind == "pointer":
            space, address = ("?", value.number) if not value.data else self._pointed_or_null(value)
            return f"{space} {address:#06x}" + self._symbol(space, address)
        if kind.kind == "function":
            return f"{value.number:#06x}" + self._symbol("code", value.number)
        number = value.number
        if kind.kind == "bits":
            return f"{number}"
        if kind.kind == "float":
            return f"{struct.unpack('<f', value.data)[0]:g}"
        return f"{number} ({number & (1 << 8 * kind.size) - 1:#0{2 + 2 * kind.size}x})"

    def _pointed_or_null(self, value: Value) -> tuple[str, int]:
        try:
            return self._pointed(value)
        except UsageError:
            return "nowhere", value.number

    def _symbol(self, space: str, address: int) -> str:
        board = self._debugger.board
        if space == "code" and (function := board.symbols.function_at(address >> 16, address & 0xFFFF)):
            return (
                f" <{function.name}+{address - function.start:#x}>"
                if address != function.start
                else f" <{function.name}>"
            )
        if space == "xdata" and (register := board.machine.bus.facts.at(Space.XDATA, address)):
            return f" <{register.name}>"
        return ""

    def _array(self, value: Value, target: Type) -> str:
        count = value.type.size // target.size if target.size else 0
        if target.kind == "integer" and target.size == 1:
            data = value.data[:MAX_ELEMENTS]
            text = data.rstrip(b"\0")
            if text and all(byte in _PRINTABLE or byte in b"\r\n\t" for byte in text):
                return repr(text.decode("ascii"))[1:-1].join('""')
            return data.hex(" ") + (" ..." if count > MAX_ELEMENTS else "")
        shown = [self._plain(self.item(value, index)) for index in range(min(count, MAX_ELEMENTS))]
        return "[" + ", ".join(shown) + (", ..." if count > MAX_ELEMENTS else "") + "]"


class _Parser:
    """Recursive descent: prefix operators, then a name and its suffixes."""

    def __init__(self, evaluator: Evaluator, tokens: list[str]) -> None:
        self._evaluator = evaluator
        self._tokens = tokens

    def prefixed(self) -> Value:
        if self._take("*"):
            return self._evaluator.item(self.prefixed(), 0)
        if self._take("&"):
            value = self.prefixed()
            if not value.space:
                raise UsageError(f"{value.what} has no address")
            kind = Type("pointer", 3, space=value.space, target=value.type)
            return Value(kind, value.address.to_bytes(3, "little"), f"&{value.what}")
        return self._followed()

    def end(self) -> None:
        if self._tokens:
            raise UsageError(f"{self._tokens[0]!r} is not expected there", hint="help print has examples")

    def _followed(self) -> Value:
        value = self._primary()
        while True:
            if self._take("."):
                value = self._evaluator.part(value, self._name())
            elif self._take("->"):
                value = self._evaluator.part(self._evaluator.item(value, 0), self._name())
            elif self._take("["):
                value = self._evaluator.item(value, self._index())
            else:
                return value

    def _primary(self) -> Value:
        if self._take("("):
            value = self.prefixed()
            self._expect(")")
            return value
        token = self._tokens.pop(0) if self._tokens else ""
        if token[:1].isdigit():
            number = _number(token)
            return Value(Type("integer", 4), _packed(number, 4, token), token)
        if not token or not (token[0].isalpha() or token[0] == "_"):
            raise UsageError(
                "an expression is missing" if not token else f"no expression begins with {token!r}"
            )
        if token in SPACES and self._take("["):
            address = self._index()
            return self._evaluator.at(_BYTE, token, address, f"{token}[{address:#x}]")
        return self._evaluator.named(token)

    def _index(self) -> int:
        index = self.prefixed().number
        self._expect("]")
        if index < 0:
            raise UsageError(f"{index} is not an index")
        return index

    def _name(self) -> str:
        return self._tokens.pop(0) if self._tokens else ""

    def _take(self, token: str) -> bool:
        if self._tokens[:1] == [token]:
            del self._tokens[0]
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise UsageError(f"{token!r} is missing")


def _tokens(text: str) -> Iterator[str]:
    place = 0
    text = text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise UsageError(f"{text[place:].strip()!r} is not understood", hint="help print has examples")
        yield next(group for group in match.groups() if group is not None)
        place = match.end()


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise UsageError(f"{text!r} is not a number", hint="decimal without leading zeros, or 0x1f") from None


def _packed(number: int, size: int, what: str) -> bytes:
    if not -(1 << 8 * size - 1) <= number < 1 << 8 * size:
        raise UsageError(f"{number:#x} does not fit the {size} byte{'s' if size > 1 else ''} of {what}")
    return (number & (1 << 8 * size) - 1).to_bytes(size, "little")


def _inserted(whole: int, number: int, bit: int, width: int, what: str) -> int:
    """`whole` with some bits of it changed."""
    if not 0 <= number < 1 << width:
        raise UsageError(f"{number:#x} does not fit the {width} bit{'s' if width > 1 else ''} of {what}")
    return whole & ~((1 << width) - 1 << bit) | number << bit


def _register(name: str) -> ByteRegister | None:
    try:
        return ASM2464PD[name]
    except KeyError:
        return None

"""Checks of the descriptors: every field by its rule (`fields`), and the rules between descriptors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from sdk.errors import DeviceFailed
from usbgpu.conform import fields
from usbgpu.conform.bench import REFUSAL, Bench, equal, fail, require
from usbgpu.conform.check import Check, Need, Section
from usbgpu.conform.fields import (
    BOS,
    CAPABILITIES,
    CAPABILITY,
    COMPANION,
    CONFIGURATION,
    DEVICE,
    ENDPOINT,
    INTERFACE,
    LAYOUTS,
    OTHER_SPEED,
    QUALIFIER,
    STRING,
    Field,
    Layout,
    Place,
)
from usbgpu.transport import Speed, Stalled

NAMES = {DEVICE: "device", CONFIGURATION: "configuration", BOS: "BOS", QUALIFIER: "qualifier"}
"""Descriptors that many checks rely on."""
LONGEST = 0x0400
"""More bytes than any descriptor here has; one control transfer."""
ENGLISH = 0x0409
FULL_SPEED_PACKETS = (8, 16, 32, 64)
"""Sizes of bulk packets (USB 2.0, 5.8.3)."""
TEN_GIGABITS = 10**10
RESERVED_OF_SUBLINKS = 0x3F00
SERIAL_DIGITS = set("0123456789ABCDEF")
LEAST_SERIAL = 12


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The descriptors of a device.

    Attributes:
        device: the device descriptor.
        configurations: each with what belongs to it.
        bos: the binary object store, empty if the device has none.
        qualifier: the device qualifier, empty if it is refused.
    """

    device: bytes
    configurations: tuple[bytes, ...]
    bos: bytes
    qualifier: bytes


def parts(data: bytes) -> Iterator[bytes]:
    """Split a sequence of descriptors; one with an impossible length takes all that is left."""
    place = 0
    while place + 2 <= len(data):
        length = data[place]
        if length < 2:
            length = len(data) - place
        yield data[place : place + length]
        place += length


def read(bench: Bench) -> Descriptors:
    """Read all of them. Raises as `relied_on`; a BOS or qualifier that is refused is empty."""
    return Descriptors(_device(bench), _configurations(bench), _store(bench), _qualifier(bench))


def configuration(bench: Bench, index: int = 0) -> bytes:
    """A configuration with what belongs to it. Raises as `relied_on`."""
    return _relied_on(bench, CONFIGURATION, index)


def _device(bench: Bench) -> bytes:
    return _relied_on(bench, DEVICE)


def _configurations(bench: Bench) -> tuple[bytes, ...]:
    device = _device(bench)
    count = device[17] if len(device) > 17 else 0
    return tuple(configuration(bench, index) for index in range(count))


def _store(bench: Bench) -> bytes:
    """The BOS."""
    return _relied_on(bench, BOS, refusable=True)


def _qualifier(bench: Bench) -> bytes:
    return _relied_on(bench, QUALIFIER, refusable=True) if bench.high else b""


def _relied_on(bench: Bench, kind: int, index: int = 0, *, refusable: bool = False) -> bytes:
    """A descriptor that many checks read; one that may be refused is empty then."""
    with bench.relied_on(f"GET_DESCRIPTOR({NAMES[kind]} {index})"):
        return optional(bench, kind, index) if refusable else get(bench, kind, index)


def _all_of(bench: Bench, kind: int) -> list[bytes]:
    """The descriptors of one type, capabilities under CAPABILITY, in order; reads no others than it must."""
    match kind:
        case fields.DEVICE:
            return [_device(bench)]
        case fields.QUALIFIER:
            return [raw for raw in (_qualifier(bench),) if raw]
        case fields.BOS | fields.CAPABILITY:
            sources: tuple[bytes, ...] = (_store(bench),)
        case _:
            sources = _configurations(bench)
    return [raw for source in sources for raw in parts(source) if raw[1] == kind]


def get(bench: Bench, kind: int, index: int = 0, length: int = LONGEST, language: int = 0) -> bytes:
    """GET_DESCRIPTOR."""
    return bench.device.control_in(0x80, 6, kind << 8 | index, language, length, timeout=REFUSAL)


def optional(bench: Bench, kind: int, index: int = 0) -> bytes:
    """A descriptor that may be refused; then it is empty."""
    try:
        return get(bench, kind, index)
    except Stalled:
        return b""


# -- every field ----------------------------------------------------------------------------------------


def _field_check(
    section: Section, kind: int, layout: Layout, each: Field, capability: int | None = None
) -> Check:
    def run(bench: Bench) -> None:
        findings = []
        for number, raw in enumerate(_chosen(_all_of(bench, kind), capability)):
            if len(raw) < each.offset + each.size:
                findings.append(f"{layout.name} {number} ends before it")
            elif not each.holds(each.value(raw), Place(raw, bench.high)):
                findings.append(f"{layout.name} {number} has {each.value(raw):#x}")
        require(not findings, "; ".join(findings))

    needs = frozenset({Need.SUPER}) if kind == COMPANION else frozenset()
    needs |= frozenset({Need.HIGH}) if kind == QUALIFIER else frozenset()
    return Check(section.name, f"{layout.name}: {each.name}", f"{layout.source}: {each.says}", run, needs)


def _chosen(raws: list[bytes], capability: int | None) -> list[bytes]:
    return raws if capability is None else [raw for raw in raws if len(raw) > 2 and raw[2] == capability]


def _field_checks() -> Section:
    section = Section("descriptor fields")
    for kind, layout in LAYOUTS.items():
        section.checks += [_field_check(section, kind, layout, each) for each in fields.exercised(layout)]
    for capability, layout in CAPABILITIES.items():
        section.checks += [
            _field_check(section, CAPABILITY, layout, each, capability) for each in fields.exercised(layout)
        ]
    return section


FIELDS = _field_checks()

# -- together -------------------------------------------------------------------------------------------

SETS = Section("descriptor sets")


@SETS("wTotalLength", "9.6.3 and 9.6.2: bytes of all that is returned with the descriptor")
def _total_lengths(bench: Bench) -> None:
    for raw in (*_configurations(bench), _store(bench)):
        if raw:
            equal(f"wTotalLength of type {raw[1]}", int.from_bytes(raw[2:4], "little"), len(raw))
            lengths = [piece[0] for piece in parts(raw)]
            equal(f"sum of the lengths within type {raw[1]}", sum(lengths), len(raw))


@SETS("bNumInterfaces", "9.6.3, 9.6.5: the number of interfaces, which are numbered from 0")
def _interface_count(bench: Bench) -> None:
    for raw in _configurations(bench):
        numbers = {piece[2] for piece in parts(raw) if piece[1] == INTERFACE}
        equal("the interface numbers", sorted(numbers), list(range(raw[4])))


@SETS("bAlternateSetting", "9.6.5: numbered from 0 within an interface")
def _alternates(bench: Bench) -> None:
    for raw in _configurations(bench):
        settings: dict[int, list[int]] = {}
        for piece in parts(raw):
            if piece[1] == INTERFACE:
                settings.setdefault(piece[2], []).append(piece[3])
        for number, found in settings.items():
            equal(f"the alternate settings of interface {number}", found, list(range(len(found))))


@SETS("bNumEndpoints", "9.6.5: the number of endpoint descriptors after the interface's")
def _endpoint_counts(bench: Bench) -> None:
    for setting, endpoints in _settings(_configurations(bench)):
        equal(f"endpoints of {_setting(setting)}", len(endpoints), setting[4])


@SETS("endpoint addresses", "9.6.6: no two of a setting are equal")
def _unique_endpoints(bench: Bench) -> None:
    for setting, endpoints in _settings(_configurations(bench)):
        addresses = [endpoint[2] for endpoint in endpoints]
        require(len(addresses) == len(set(addresses)), f"{_setting(setting)} names an endpoint twice")


@SETS("endpoints in use", "contract: bulk EP 0x02 OUT and EP 0x81 IN in the first setting")
def _endpoints_in_use(bench: Bench) -> None:
    _, endpoints = next(_settings(_configurations(bench)), (b"", []))
    bulk = {endpoint[2] for endpoint in endpoints if endpoint[3] & 3 == fields.BULK}
    require({0x02, 0x81} <= bulk, f"the bulk endpoints are {', '.join(map(hex, sorted(bulk))) or 'none'}")


@SETS("companions", "9.6.7: one right behind each endpoint descriptor", Need.SUPER)
def _companions(bench: Bench) -> None:
    for raw in _configurations(bench):
        pieces = [*parts(raw), b"\0\0"]
        for one, following in itertools.pairwise(pieces):
            if one[1] == ENDPOINT and following[1] != COMPANION:
                fail(f"EP {one[2]:#04x} has no companion")


@SETS("no companions", "9.6.7: only at SuperSpeed", Need.HIGH)
def _no_companions(bench: Bench) -> None:
    require(not _all_of(bench, COMPANION), "there is a companion descriptor at High Speed")


@SETS("bNumDeviceCaps", "9.6.2: the number of capabilities that follow")
def _capability_count(bench: Bench) -> None:
    bos = _bos(bench)
    equal("the number of capabilities", len([raw for raw in parts(bos) if raw[1] == CAPABILITY]), bos[4])


@SETS("capabilities", "9.6.2: USB 2.0 extension and SuperSpeed in every BOS; SuperSpeedPlus at 10 Gb/s")
def _capabilities(bench: Bench) -> None:
    found = [raw[2] for raw in parts(_bos(bench)) if raw[1] == CAPABILITY and len(raw) > 2]
    needed = {fields.USB2_EXTENSION, fields.SUPERSPEED}
    if bench.device.speed is Speed.SUPER_PLUS:
        needed.add(fields.SUPERSPEED_PLUS)
    missing = [CAPABILITIES[kind].name for kind in sorted(needed - set(found))]
    require(not missing, f"missing: {', '.join(missing)}")
    require(len(found) == len(set(found)), "a capability is listed twice")


@SETS(
    "sublink attributes",
    "9.6.2.5: in pairs of both directions, the one of wFunctionalitySupport and this link's speed among them",
)
def _sublinks(bench: Bench) -> None:
    for raw in parts(_bos(bench)):
        if raw[1] != CAPABILITY or raw[2] != fields.SUPERSPEED_PLUS:
            continue
        words = [int.from_bytes(raw[place : place + 4], "little") for place in range(12, len(raw), 4)]
        require(words and len(words) % 2 == 0, f"{len(words)} sublink attributes")
        for receive, transmit in zip(words[::2], words[1::2], strict=True):
            equal("speed id of the transmit sublink", transmit & 0xF, receive & 0xF)
            equal("direction of a pair", (receive >> 7 & 1, transmit >> 7 & 1), (0, 1))
            equal("reserved bits of a pair", (receive | transmit) & RESERVED_OF_SUBLINKS, 0)
        if bench.device.speed is Speed.SUPER_PLUS:
            fast = [word for word in words if word >> 14 & 3 == 1 and _bits_per_second(word) >= TEN_GIGABITS]
            require(len(fast) > 1, "no pair has the SuperSpeedPlus protocol and 10 Gb/s")
        ids = {word & 0xF for word in words}
        require(raw[8] & 0xF in ids, "wFunctionalitySupport names a speed id that is not listed")
        require(
            len(ids) - 1 == raw[4] >> 5 & 0xF | (raw[5] & 1) << 3,
            "SSIC is not the number of speed ids less 1",
        )


@SETS("same device at both speeds", "9.6.2: the SuperSpeed capability names the speed of this link")
def _named_speed(bench: Bench) -> None:
    for raw in parts(_bos(bench)):
        if raw[1] == CAPABILITY and raw[2] == fields.SUPERSPEED:
            bit = 2 if bench.high else 3
            require(int.from_bytes(raw[4:6], "little") >> bit & 1, "wSpeedsSupported leaves out this link's")


# -- strings --------------------------------------------------------------------------------------------

STRINGS = Section("strings")


def _names(bench: Bench) -> dict[str, int]:
    """The string indices that descriptors give, by field."""
    found = read(bench)
    names = dict(zip(("iManufacturer", "iProduct", "iSerialNumber"), found.device[14:17], strict=True))
    for raw in found.configurations:
        names[f"iConfiguration of {raw[5]}"] = raw[6]
    for setting, _ in _settings(found.configurations):
        names[f"iInterface of {_setting(setting)}"] = setting[8]
    return {name: index for name, index in names.items() if index}


@STRINGS("languages", "9.6.9: index 0 lists the languages, English among them")
def _languages(bench: Bench) -> None:
    raw = get(bench, STRING, 0, 255)
    require(len(raw) >= 4 and len(raw) % 2 == 0, f"{len(raw)} bytes")
    equal("length and type", tuple(raw[:2]), (len(raw), STRING))
    languages = {int.from_bytes(raw[place : place + 2], "little") for place in range(2, len(raw), 2)}
    require(ENGLISH in languages, f"{ENGLISH:#06x} is not listed")


@STRINGS("named strings", "9.6.9: every index in a descriptor names a string in UTF-16LE")
def _named_strings(bench: Bench) -> None:
    for name, index in _names(bench).items():
        try:
            raw = get(bench, STRING, index, 255, ENGLISH)
        except DeviceFailed as problem:
            fail(f"{name} ({index}): {problem.message}")
        require(len(raw) >= 4 and len(raw) % 2 == 0, f"{name} has {len(raw)} bytes")
        equal(f"length and type of {name}", tuple(raw[:2]), (len(raw), STRING))
        try:
            text = raw[2:].decode("utf-16-le")
        except UnicodeDecodeError:
            fail(f"{name} is not UTF-16LE")
        require(text.isprintable(), f"{name} is {text!r}")


@STRINGS("other indices", "9.4.3: a string that does not exist is a request error")
def _no_string(bench: Bench) -> None:
    unused = max(_names(bench).values(), default=0) + 1
    bench.refuses(0x80, 6, STRING << 8 | unused, ENGLISH, 255)
    bench.refuses(0x80, 6, STRING << 8 | 0xEE, ENGLISH, 255)


@STRINGS("serial number", "mass storage BOT 1.0, 4.1.1: 12 hexadecimal digits at least", Need.STORAGE)
def _storage_serial(bench: Bench) -> None:
    text = bench.device.string(_device(bench)[16]) or ""
    digits = len(text) >= LEAST_SERIAL and set(text) <= SERIAL_DIGITS
    require(digits, f"the serial number is {text!r}")


@STRINGS("product", "contract: begins with custom, which existing hosts look for", Need.VENDOR)
def _product(bench: Bench) -> None:
    require(bench.identity.product.startswith("custom"), f"the product string is {bench.identity.product!r}")


# -- how they are read ----------------------------------------------------------------------------------

READING = Section("reading descriptors")


@READING("short reads", "9.4.3: as many bytes as are requested, or all of the descriptor")
def _short_reads(bench: Bench) -> None:
    kinds = [(DEVICE, 0), (CONFIGURATION, 0), (BOS, 0), (STRING, 0), (STRING, 2)]
    for kind, index in kinds:
        whole = (
            _relied_on(bench, kind, index, refusable=True) if kind in NAMES else optional(bench, kind, index)
        )
        for length in (1, 2, 8, 9, 18, 64, 255):
            if whole:
                part = get(bench, kind, index, length, ENGLISH if kind == STRING else 0)
                equal(f"{length} bytes of type {kind} index {index}", part, whole[:length])


@READING("reading twice", "9.4.3: a descriptor does not change")
def _twice(bench: Bench) -> None:
    equal("the descriptors of the second reading", read(bench), read(bench))


@READING("other descriptors", "9.4.3: types that cannot be requested, or do not exist, are request errors")
def _refused_types(bench: Bench) -> None:
    count = _device(bench)[17]
    for kind, index in (
        (INTERFACE, 0),
        (ENDPOINT, 0),
        (COMPANION, 0),
        (CONFIGURATION, count),
        (0xEE, 0),
        (0, 0),
    ):
        bench.refuses(0x80, 6, kind << 8 | index, 0, 64)


@READING("qualifier at SuperSpeed", "9.4.3: the device qualifier is a request error", Need.SUPER)
def _qualifier_super(bench: Bench) -> None:
    bench.refuses(0x80, 6, QUALIFIER << 8, 0, 10)
    bench.refuses(0x80, 6, OTHER_SPEED << 8, 0, 9)


@READING("qualifier", "USB 2.0, 9.6.2: a High Speed device has one", Need.HIGH)
def _qualifier_high(bench: Bench) -> None:
    require(_qualifier(bench), "the device qualifier is refused")


@READING("other speed", "USB 2.0, 9.6.4: as many configurations as the qualifier says, of type 7", Need.HIGH)
def _other_speed(bench: Bench) -> None:
    qualifier = _qualifier(bench)
    count = qualifier[8] if len(qualifier) > 8 else 0
    for index in range(count):
        raw = optional(bench, OTHER_SPEED, index)
        require(len(raw) >= 9, f"configuration {index} of the other speed is refused")
        equal("its type", raw[1], OTHER_SPEED)
        equal("its wTotalLength", int.from_bytes(raw[2:4], "little"), len(raw))
        for piece in parts(raw):
            if piece[1] == ENDPOINT and piece[3] & 3 == fields.BULK:
                size = int.from_bytes(piece[4:6], "little")
                require(size in FULL_SPEED_PACKETS, f"EP {piece[2]:#04x} has packets of {size} at Full Speed")
    bench.refuses(0x80, 6, OTHER_SPEED << 8 | count, 0, 64)


SECTIONS = (FIELDS, SETS, STRINGS, READING)


# -- inside ---------------------------------------------------------------------------------------------


def _settings(configurations: tuple[bytes, ...]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each alternate setting's interface descriptor, with its endpoints'."""
    for raw in configurations:
        setting, endpoints = b"", list[bytes]()
        for piece in parts(raw):
            if piece[1] == INTERFACE:
                if setting:
                    yield setting, endpoints
                setting, endpoints = piece, []
            elif piece[1] == ENDPOINT:
                endpoints.append(piece)
        if setting:
            yield setting, endpoints


def _bits_per_second(sublink: int) -> int:
    """The lane speed of a sublink attribute: a mantissa, and an exponent of 1000."""
    return int((sublink >> 16) * 1000 ** (sublink >> 4 & 3))


def _setting(raw: bytes) -> str:
    return f"interface {raw[2]} setting {raw[3]}"


def _bos(bench: Bench) -> bytes:
    """The BOS, which a device that is capable of SuperSpeed has at every speed."""
    bos = _store(bench)
    require(len(bos) >= 5, "there is no BOS descriptor")
    return bos

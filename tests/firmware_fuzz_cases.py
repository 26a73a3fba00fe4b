"""Random cases: sequences of a few scenes, and variations of cases that were kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from random import Random

from emulator.core.clock import clocks
from emulator.faults import Fault
from emulator.pcie.endpoint import OFFSETS
from emulator.usb.wire import Setup
from firmware.protocol import commands, requests
from firmware.protocol.commands import LIST_HEADER
from firmware.protocol.requests import VENDOR_IN, VENDOR_OUT
from tests.firmware_fuzz_actions import (
    CODES,
    IN,
    OUT,
    PATIENCE,
    RAM,
    REGISTERS,
    Action,
    Bulk,
    Commands,
    Control,
    Device,
    Drop,
    GiveUp,
    LinkDown,
    Operation,
    Perst,
    Reset,
    SetUp,
    Storm,
    Wait,
    Wire,
)  # fmt: skip

RAM_SIZE = 0x20_0000
DEAD, LATE, STALE, SHADOW = range(RAM + RAM_SIZE // 2, RAM + RAM_SIZE, RAM_SIZE // 8)
"""Ranges of the RAM whose reads are never completed, completed late, or only after they were given up."""
_SPAN = RAM_SIZE // 8 - 1
FAULTS = (
    Fault("pcie-dead", low=DEAD, high=DEAD + _SPAN),
    Fault("pcie-late", low=LATE, high=LATE + _SPAN, length=clocks(300e-6)),
    Fault("pcie-stale", low=STALE, high=STALE + _SPAN, length=clocks(51e-3)),
    Fault("pcie-stale", low=SHADOW, high=SHADOW + _SPAN, length=clocks(2e-3)),
)
"""Of every board."""

STANDARD = (
    *(Setup(0x80, 6, kind << 8, 0, length) for kind in (1, 2, 3, 6, 7, 15) for length in (4, 18, 64, 512)),
    *(Setup(0x80, 6, 0x300 | index, 0x409, 255) for index in range(5)),
    *(Setup(0x80 | who, 0, 0, index, 2) for who, index in ((0, 0), (1, 0), (2, 0), (2, OUT), (2, IN))),
    *(Setup(0x00, 9, value, 0, 0) for value in (0, 1, 1, 1, 2)),
    *(Setup(0x02, code, 0, place, 0) for code in (1, 3) for place in (OUT, IN, 5)),
    *(Setup(0x00, code, feature, 0, 0) for code in (1, 3) for feature in (48, 49, 2)),
    *(Setup(0x01, code, 0, 0, 0) for code in (1, 3, 11)),
    Setup(0x00, 5, 9, 0, 0), Setup(0x80, 8, 0, 0, 1), Setup(0x81, 10, 0, 0, 1), Setup(0x00, 48, 0, 0, 6),
    Setup(0x00, 49, 40, 0, 0), Setup(0x01, 11, 1, 0, 0), Setup(0x00, 7, 0x100, 0, 18),
)  # fmt: skip
OURS = tuple((request.request_type, request.code, request.lengths) for request in requests.REQUESTS)
BUFFERS = (0x7000, 0x8000, 0x9E00, 0xA000, 0xB000, 0xB800, 0xD800, 0xF000)
REGISTER_BLOCKS = (
    *(0x9000, 0x9080, 0x9090, 0x90E0, 0x9100, 0x9300, 0xB200, 0xB210, 0xB250, 0xB280, 0xB450, 0xB480),
    *(0xC000, 0xC400, 0xC420, 0xC640, 0xC8A0, 0xCC28, 0xE760),
)
CONFIGURATION = (0x04, 0x44, 0x05, 0x45)
MEMORY = (0x00, 0x40, 0x20, 0x60)
LENGTH_HIGH = LIST_HEADER.offset("length") + 1


def _patience(random: Random, usual: int = PATIENCE) -> int:
    """Mostly enough; sometimes so short that a transfer is interrupted in any phase."""
    return usual if random.random() < 0.8 else random.randrange(1, 12_000)


def _when(random: Random) -> int:
    return random.choice((random.randrange(2_000), random.randrange(100_000)))


def _memory(random: Random, *, slow: bool = True) -> int:
    """A PCIe memory address."""
    place = 4 * random.randrange(0x400)
    choice = random.random()
    if choice < 0.5:
        return RAM + random.choice((place, place, 0xFFF0 + (place & 12), RAM_SIZE + place))
    if choice < 0.75:
        return REGISTERS + random.choice((*OFFSETS.values(), 0x80))
    if choice < 0.80:
        return random.choice((0x7000_0000, 0xFFFF_FFFC, (1 << 64) - 8, 0)) + (place & 4)
    if choice < 0.85:
        return RAM + random.randrange(0x1000)
    if not slow:
        return LATE + place
    return random.choice((LATE, LATE, SHADOW, STALE, DEAD)) + place


def _configuration(random: Random) -> int:
    return (
        random.randrange(7) << 24
        | random.choice((0, 1 << 16, 1 << 19))
        | random.choice((0, 4, 0x10, 0x18, 0x3C))
    )


def _xdata(random: Random) -> int:
    """An XDATA address, the second plane in bit 16."""
    chosen = random.random()
    if chosen < 0.3:
        return random.choice(BUFFERS) + random.randrange(512)
    if chosen < 0.75:
        return random.choice(REGISTER_BLOCKS) + random.randrange(32)
    return random.randrange(0x20000)


def _value(random: Random) -> int:
    return random.choice(
        (0, 1, 0xFFFF_FFFF, random.getrandbits(8), random.getrandbits(32), 1 << random.randrange(32))
    )


# -- scenes ---------------------------------------------------------------------------------------------


def _standard(random: Random) -> list[Action]:
    return [
        Control(random.choice(STANDARD), patience=_patience(random)) for _ in range(random.randrange(1, 4))
    ]


def _any_setup(random: Random) -> Setup:
    """An existing request with at most one member changed, or a random one."""
    if random.random() < 0.1:
        return Setup.unpack(
            random.randbytes(6) + bytes((random.choice((0, 1, 12, 64, 200)), random.choice((0, 0, 2))))
        )
    if random.random() < 0.5:
        setup = random.choice(STANDARD)
    else:
        kind, code, lengths = random.choice(OURS)
        value, index = (
            random.choice((0, 1, _value(random) & 0xFFFF)),
            random.choice((0, 1, _value(random) & 0xFFFF)),
        )
        setup = Setup(kind, code, value, index, random.choice((lengths[0], lengths[-1], 2 * lengths[-1])))
    match random.randrange(6):
        case 0:
            return replace(setup, request_type=setup.request_type ^ 1 << random.randrange(8))
        case 1:
            return replace(setup, request=random.getrandbits(8))
        case 2:
            return replace(setup, value=setup.value ^ 1 << random.randrange(16))
        case 3:
            return replace(setup, index=setup.index ^ 1 << random.randrange(16))
        case 4:
            return replace(setup, length=random.choice((0, 1, 11, 12, 13, 63, 64, 65, 512, 513, 1024)))
        case _:
            return setup


def _malformed(random: Random) -> list[Action]:
    return [
        Control(_any_setup(random), random.randbytes(12), _patience(random))
        for _ in range(random.randrange(1, 4))
    ]


def _wire(random: Random) -> list[Action]:
    stages = "".join(random.choices("oOiiss", k=random.randrange(6)))
    setup = _any_setup(random)
    if random.random() < 0.1:  # answered by full packets, and an empty one that may never be fetched
        setup = Setup(VENDOR_IN, requests.XDATA_READ.code, BUFFERS[-1], 0, 1024)
    return [Wire(setup, stages, random.choice((0, 50, 300, 2000, 20000)))]


def _memory_access(random: Random) -> list[Action]:
    actions: list[Action] = []
    for _ in range(random.randrange(1, 5)):
        place, plane = _xdata(random) & 0xFFFF, random.choice((0, 0, 0, 1, 1, 2)) << 8
        if random.random() < 0.4:
            length = random.choice((1, 4, 64, 65, 512, 600))
            setup = Setup(VENDOR_IN, requests.XDATA_READ.code, place, plane, length)
        else:
            setup = Setup(VENDOR_OUT, requests.XDATA_WRITE.code, place, plane | _value(random) & 0xFF, 0)
        actions.append(Control(setup, patience=_patience(random)))
    return actions


def _start(random: Random, mode: int, kind: int, address: int, value: int) -> Control:
    data = address.to_bytes(8, "little") + value.to_bytes(4, "little")
    enables = random.choice((15, 15, 15, 3, 0, 8))
    setup = Setup(VENDOR_OUT, requests.TLP_START.code, enables << 8 | kind, mode, len(data))
    return Control(setup, data, _patience(random))


def _single(random: Random) -> list[Action]:
    actions: list[Action] = []
    for _ in range(random.randrange(1, 4)):
        kind = random.choice((*CONFIGURATION, *MEMORY, *MEMORY, *MEMORY))
        place = _configuration(random) if kind in CONFIGURATION else _memory(random)
        actions.append(_start(random, 0, kind, place, _value(random)))
        if random.random() < 0.7:
            status = Setup(VENDOR_IN, requests.TLP_STATUS.code, 0, 0, 8)
            actions.append(Control(status, patience=_patience(random, clocks(10e-3))))
    return actions


def _bulk(random: Random) -> list[Action]:
    size = random.choice((0, 1, 4, 13, 31, 512, 1024, 1028, 2048, 4096, 4 * random.randrange(2000)))
    endpoint = random.choice((OUT, IN, OUT, IN, OUT, IN, 0x83))
    return [Bulk(endpoint, size, _patience(random), random.random() < 0.3)]


def _stream(random: Random) -> list[Action]:
    mode = random.choice((1, 2))
    kind = random.choice((0x60, 0x40, 0x20, 0x60) if mode == 1 else (0x20, 0x00, 0x20, 0x05))
    dwords = random.choice((0, 1, 2, 128, 256, 300, 1000, 0xFFFF_FFFF))
    slow = random.random() < 0.15
    actions: list[Action] = [_start(random, mode, kind, _memory(random, slow=slow), dwords)]
    for _ in range(random.randrange(1, 3)):
        size = random.choice((4 * dwords & 0x1FFF, 4 * dwords & 0x1FFF, 4, 6, 512, 1024, 2048))
        actions.append(Bulk(OUT if mode == 1 else IN, size, _patience(random), random.random() < 0.3))
    return actions


def _slots(random: Random) -> list[Action]:
    sectors, to_host = random.choice((0, 1, 3, 32, 40)), random.random() < 0.5
    value = to_host << 15 | sectors
    index = random.choice((0, 1, 2, 2, 32)) << 8 | random.choice((0, 1, 16, 31, 32))
    actions: list[Action] = [
        Control(Setup(VENDOR_OUT, requests.SRAM_DMA.code, value, index, 0), patience=_patience(random))
    ]
    if to_host:
        actions.append(Device(_when(random), 0x0082_200C, 0))
    size = 512 * sectors + random.choice((0, 0, 0, -3, 512))
    actions.append(Bulk(IN if to_host else OUT, max(size, 0), _patience(random), random.random() < 0.3))
    return actions


def _power(random: Random) -> list[Action]:
    setup = Setup(VENDOR_OUT, requests.PCIE_POWER.code, random.choice((0, 1)), 0, 0)
    return [Control(setup, patience=random.choice((5_000, PATIENCE, clocks(0.16))))]


def _info(random: Random) -> list[Action]:
    return [Control(Setup(VENDOR_IN, requests.INFO.code, 0, 0, 32), patience=_patience(random))]


def _sound(random: Random) -> tuple[list[Operation], list[int]]:
    """An operation that succeeds, so that the list continues."""
    opcode = random.choice(commands.OPCODES)
    code, name, count, value = opcode.code, opcode.name, 0, 0
    address, mask, payload = RAM + 4 * random.randrange(0x8000), 0, []
    match name:
        case "CONFIG_WRITE" | "CONFIG_READ":
            address, value = random.randrange(5) << 24 | 4, 6
        case "BLOCK_WRITE" | "FIFO_WRITE":
            count = random.choice((1, 127, 128, 254, 255, 256, 700))
            payload = [count]
        case "BLOCK_READ" | "FIFO_READ" | "FILL":
            count = random.choice((1, 2, 5, 127, 128, 255, 256, 257, 900))
        case "DELAY" | "WRITE":
            value = random.randrange(2000)
        case "MODIFY":
            value, mask = random.getrandbits(32), random.getrandbits(32)
        case "XDATA_WRITE" | "XDATA_READ":
            address, count = (
                0xD800 + random.randrange(256) | random.choice((0, 1)) << 16,
                random.randrange(1, 40),
            )
        case "SLOT_OUT" | "SLOT_IN":
            address, count, value = random.randrange(1, 31), 2, random.choice((1, 2, 40))
            payload = [-value] if name == "SLOT_OUT" else []
        case "FENCE":
            address, value, mask = 4 * random.randrange(1, 8), random.choice((0, 0, 1)), random.choice((0, 1))
        case "LOOP":
            inner, rounds = [_sound(random) for _ in range(2)], random.choice((1, 2, 3))
            if any(one.opcode == code for part, _ in inner for one in part):
                return [], []  # they do not nest
            operations = [Operation(code, amount=rounds), *(one for part, _ in inner for one in part)]
            return [*operations, Operation(CODES["END"])], [one for _, part in inner for one in part] * rounds
        case "END":
            return [], []
        case "SYNC":
            payload = [0]
    return [Operation(code, address, value, count, 15, mask, random.choice((0, 800, 40_000)))], payload


def _operation(random: Random) -> tuple[list[Operation], list[int]]:
    """An operation, with those that go with it, and their payload."""
    opcode = random.choice(commands.OPCODES)
    code, name, count, value = opcode.code, opcode.name, 0, _value(random)
    enables = random.choice((15, 15, 15, 15, 5, 0, 0x1F))
    mask, timeout = _value(random), random.choice((0, 1, 300, 700, 2000, 35_000, 1 << 26))
    slow = random.random() < 0.1
    address, payload = _memory(random, slow=slow), []
    match name:
        case "CONFIG_WRITE" | "CONFIG_READ":
            address = _configuration(random)
        case "BLOCK_WRITE" | "FIFO_WRITE":
            count = random.choice((0, 1, 2, 127, 128, 254, 255, 256, 300, 1100))
            payload = [count] if count else []
        case "BLOCK_READ" | "FIFO_READ" | "FILL":
            count = random.choice((0, 1, 2, 3, 128, 256, 300, 900, 1100, 3000))
            address = _memory(random, slow=slow and count < 4)
        case "DELAY":
            value = random.choice((0, 3, 499, 500, 1200, 31_000, 1 << 26))
        case "XDATA_WRITE" | "XDATA_READ":
            address, count = _xdata(random), random.choice((0, 1, 4, 7, 64, 700))
        case "SLOT_OUT" | "SLOT_IN":
            address, count = random.choice((0, 1, 16, 31, 32)), random.choice((0, 1, 2, 3))
            value = random.choice((0, 1, 4, 32, 60))
            payload = [-value] if name == "SLOT_OUT" and value else []
        case "FENCE":
            address, value = (
                4 * random.randrange(8) + random.choice((0, 0, 0, 0, 2, 0xFFC, 0x1000)),
                random.randrange(3),
            )
        case "LOOP":
            inner = [_operation(random) for _ in range(random.randrange(3))]
            rounds = random.choice((0, 1, 2, 5))
            operations = [Operation(code, amount=rounds), *(one for part, _ in inner for one in part)]
            return [*operations, Operation(CODES["END"])], [one for _, part in inner for one in part] * rounds
        case "SYNC":
            payload = [0]
    if random.random() < 0.02:
        code = random.randrange(256)
    return [Operation(code, address, value, count, enables, mask, timeout)], payload


def _place(random: Random) -> int:
    """A place in a list, early or anywhere."""
    return random.choice((random.randrange(24), random.randrange(1 << 15)))


def _list(random: Random) -> Commands:
    few = random.choice((1, 2, 3, 5, 12))
    make = random.choice((_sound, _sound, _operation))
    parts = [make(random) for _ in range(random.randrange(few + 1))]
    if make is _sound and random.random() < 0.5:
        parts.append(_operation(random))
    if random.random() < 0.03:
        parts = parts[:1] * random.randrange(400, 1100)
    operations = tuple(one for part, _ in parts for one in part)
    payload = tuple(one for _, part in parts for one in part)[:8]
    damage: tuple[tuple[int, int], ...] = ()
    if random.random() < 0.02:  # more operations than fit, and a header with that length
        operations, payload = (Operation(CODES["DELAY"]),) * 1022, (1100, 1100)
        damage = ((LENGTH_HIGH, random.choice((0x20, 0x40, 0x80))),)
    elif random.random() < 0.25:
        places = random.randrange(1, 3)
        damage = tuple((_place(random), 1 << random.randrange(8)) for _ in range(places))
    return Commands(
        operations,
        payload,
        ahead=random.choice((0,) * 12 + (1, -1)),
        damage=damage,
        cut=random.choice((0,) * 8 + (1, 8, 700)),
        answer=random.choice((0x4000, 0x4000, 0x4000, 1, 512, 1024, 16)),
        patience=_patience(random, clocks(4e-3)),
        keep=random.random() < 0.25,
    )


def _unread(random: Random) -> list[Action]:
    """A list with more results than the host reads."""
    code = CODES[random.choice(("BLOCK_READ", "FIFO_READ", "XDATA_READ"))]
    place = BUFFERS[-1] if code == CODES["XDATA_READ"] else RAM
    read = Operation(code, place, amount=random.choice((1021, 2000, 9000)))
    opened = Setup(VENDOR_OUT, requests.LIST.code, 1, 0, 0)
    return [
        Control(opened),
        Commands((read,), answer=random.choice((16, 1024, 2048)), keep=True),
        Wait(800_000),
    ]


def _lists(random: Random) -> list[Action]:
    actions: list[Action] = []
    if random.random() < 0.85:
        opened = Setup(VENDOR_OUT, requests.LIST.code, 1, random.choice((0, 7, 0xFFFF)), 0)
        actions.append(Control(opened, patience=_patience(random)))
    for _ in range(random.randrange(1, 4)):
        if random.random() < 0.2:
            actions.append(Device(_when(random), 0x0020_0000 + 4 * random.randrange(8), random.randrange(4)))
        if random.random() < 0.1:
            actions.append(Device(_when(random), 0x0082_200C, 0))
        actions.append(_list(random))
    return actions


def _mishap(random: Random) -> list[Action]:
    """An event on the links during the other actions."""
    when = _when(random)
    return [
        random.choice(
            (
                Drop(when, random.choice((1_000, 400_000))),
                Storm(when, random.randrange(200_000)),
                LinkDown(when),
                Reset(),
                Wait(when),
                GiveUp(),
                Perst(random.random() < 0.4),
            )
        )
    ]


def _set_up(random: Random) -> list[Action]:
    return [SetUp()]


_SCENES: dict[Callable[[Random], Sequence[Action]], int] = {
    _standard: 8,
    _malformed: 8,
    _wire: 8,
    _memory_access: 6,
    _single: 8,
    _bulk: 5,
    _stream: 10,
    _slots: 5,
    _power: 2,
    _info: 1,
    _lists: 24,
    _unread: 2,
    _mishap: 14,
    _set_up: 5,
}
"""Scenes, and the weight of each."""


def _scene(random: Random) -> Sequence[Action]:
    return random.choices(tuple(_SCENES), tuple(_SCENES.values()))[0](random)


def fresh(random: Random) -> tuple[Action, ...]:
    """A new case."""
    return tuple(action for _ in range(random.randrange(1, 6)) for action in _scene(random))


def varied(random: Random, case: tuple[Action, ...], other: tuple[Action, ...]) -> tuple[Action, ...]:
    """A variation of a case."""
    actions = list(case)
    for _ in range(random.randrange(1, 4)):
        place = random.randrange(len(actions) + 1)
        match random.randrange(6):
            case 0:
                actions[place:place] = _scene(random)
            case 1:
                del actions[place : place + 1]
            case 2:
                actions[place:place] = other[random.randrange(len(other)) :][:3] if other else ()
            case 3:
                actions[place:place] = _mishap(random)
            case _ if actions:
                place = min(place, len(actions) - 1)
                actions[place] = _changed(random, actions[place])
    return tuple(actions[:24])


def _changed(random: Random, action: Action) -> Action:
    """An action with one member different."""
    if isinstance(action, Commands):
        fewer = action.operations[: random.randrange(len(action.operations) + 1)]
        extra, payload = _operation(random)
        changes: tuple[dict[str, object], ...] = (
            {"operations": fewer},
            {"operations": (*action.operations, *extra), "payload": (*action.payload, *payload)},
            {"damage": ((random.randrange(1 << 12), 1 << random.randrange(8)),)},
            {"damage": ()},
            {"answer": random.choice((0x4000, 1, 512))},
            {"patience": _when(random)},
            {"keep": not action.keep},
            {"cut": random.choice((0, 1, 4, 512))},
        )
        return replace(action, **random.choice(changes))  # type: ignore[arg-type]
    if isinstance(action, Control):
        setup = action.setup
        name = random.choice(("value", "index", "length"))
        value = getattr(setup, name) ^ 1 << random.randrange(16 if name != "length" else 10)
        return random.choice(
            (replace(action, setup=replace(setup, **{name: value})), replace(action, patience=_when(random)))
        )
    numbers = [part.name for part in fields(action) if isinstance(getattr(action, part.name), int)]  # type: ignore[arg-type]
    numbers = [name for name in numbers if name in {"delay", "length", "patience", "gap", "value"}]
    if not numbers:
        return action
    return replace(action, **{random.choice(numbers): _when(random)})  # type: ignore[type-var]

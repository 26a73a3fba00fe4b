"""Damaged firmware images, flash dumps and symbols, with their sums made right again or not."""

from __future__ import annotations

import random
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from emulator import image_file, images, symbols
from emulator.asm2464pd import rom
from emulator.asm2464pd.flash_chip import OTP_SIZE, SIZE, FlashChip
from emulator.board import Board
from emulator.core.clock import Scheduler
from emulator.image_file import CodeImage, Kind
from emulator.mcs51 import flow, listing
from emulator.options import Options
from firmware import check
from firmware.asm2464pd import flash_layout, image
from firmware.asm2464pd.registers import ASM2464PD
from tests.campaigns.campaign import Case, Surface
from tests.campaigns.damage import damaged, number
from usbgpu.flash import plan

NAMES = ("calibration", "storage")
"""Images of the emulator, of 3 and 11 KB of code: to follow their code takes a twentieth of a second."""
FOLLOWED, BOOTED = 0.03, 0.02
"""Shares of the images that are disassembled, and of the flash dumps with which a board is switched on."""

Mutate = Callable[[bytes, random.Random], bytes]


def _followed(found: CodeImage, names: symbols.Symbols) -> None:
    """What `firmware disasm` does."""
    graph = flow.analyse(found.banks, found.loaded, listing.names_of(names))
    listing.Listing(graph, ASM2464PD, names).as_text(list(graph.routines.values()))


def _hex(data: bytes, rng: random.Random) -> bytes:
    """Intel HEX with records changed, their sums right; now and then with bytes changed."""
    lines = data.split()
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        record = bytearray.fromhex(lines[at][1:-2].decode())
        match rng.randrange(6):
            case 0:
                record[rng.randrange(len(record))] = number(rng) & 0xFF
            case 1:
                record[3] = rng.randrange(8)
            case 2:
                record[1:3] = (number(rng) & 0xFFFF).to_bytes(2, "big")
            case 3:
                record[0] = (len(record) - 4 + rng.choice((-1, 0, 1))) & 0xFF
                record[4:4] = rng.randbytes(rng.choice((0, 1, 300)))
            case 4:
                lines.insert(rng.randrange(len(lines)), lines[at])
                continue
            case 5 if len(lines) > 1:
                del lines[at]
                continue
        line = (
            f":{record.hex().upper()}{-sum(record) & 0xFF:02X}" if rng.random() < 0.9 else ":" + record.hex()
        )
        lines[at] = line.encode()
    made = rng.choice((b"\n", b"\r\n", b"\n\n", b" ")).join(lines) + b"\n"
    return damaged(made, rng) if rng.random() < 0.15 else made


def _wrapped(data: bytes, rng: random.Random) -> bytes:
    """A wrapped image with another body, or fields around it that are wrong."""
    body = damaged(image.unwrap(data), rng)
    body = body * rng.choice((1, 1, 1, 30)) if body else data
    if rng.random() < 0.6 and len(body) <= image.MAX_BODY:
        return image.wrap(body) + rng.choice((b"", b"", bytes(100), b"\xff" * 5000))
    found = bytearray(data)
    at = rng.choice((0, len(found) - image.TRAILER.size))
    width = rng.choice((1, 2, 4))
    found[at : at + width] = (number(rng) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return bytes(found)


def _plain(data: bytes, rng: random.Random) -> bytes:
    """A plain binary: damaged behind its first jump, too long, or something that begins otherwise."""
    match rng.randrange(6):
        case 0:
            return (data[:3] + damaged(data[3:], rng)) * rng.choice((1, 30, 60))
        case 1:
            first = rng.choice((b"\x7fELF", b"PK\3\4", b":", b":0200", b"\x80", b"\1", b"\2\0", b"GIF8", b""))
            return first + data[rng.choice((0, len(first))) :][: rng.choice((0, 1, 2, 16, 100_000))]
        case 2:
            return rng.choice((b"// a text\n" * 9, bytes(data[:40].hex(), "ascii"), b"\xff" * 300))
        case 3:
            return damaged(data, rng)
    return data[:3] + damaged(data[3:], rng)


def _is_held(body: bytes, found: CodeImage) -> bool:
    """Whether CODE space has all of a body, as the description of the image cuts it."""
    areas = ((0, 0, 0x8000), (0, 0x8000, 0xFF6B), (1, 0xFF6B, len(body)))
    return all(
        found.banks[bank][address : address + len(part)] == part
        for bank, start, stop in areas
        if (part := body[start:stop])
        for address in (min(start, 0x8000),)
    )


@contextmanager
def _images(scratch: Path, originals: list[bytes], mutate: Mutate) -> Iterator[Case]:
    """Images read, checked and, some of them, disassembled."""
    path = scratch / "image"
    known = []
    for data in originals:
        path.write_bytes(data)
        known.append((data, image_file.load(path).banks))

    def case(rng: random.Random) -> str | None:
        data, banks = rng.choice(known)
        sealed = rng.random() < 0.7
        changed = (mutate if sealed else damaged)(data, rng)
        path.write_bytes(changed)
        check.check(changed)
        found = image_file.load(path)
        if not sealed and found.kind is Kind.WRAPPED and found.banks != banks:
            return "damage was taken"
        if any(len(bank) != image.CODE_SIZE for bank in (*found.banks, *found.loaded)):
            return "banks of another size"
        if found.kind is Kind.BINARY and not _is_held(changed, found):
            return "a part of it is nowhere in CODE space"
        if rng.random() < FOLLOWED:
            _followed(found, symbols.Symbols())
        return None

    yield case


def _built() -> list[images.Built]:
    return [images.build(name) for name in NAMES]


@contextmanager
def intel_hex(scratch: Path) -> Iterator[Case]:
    with _images(scratch, [built.ihx.read_bytes() for built in _built()], _hex) as case:
        yield case


def _bodies() -> list[bytes]:
    return [image.body(found.banks, found.loaded) for found in (image_file.load(one.ihx) for one in _built())]


@contextmanager
def wrapped(scratch: Path) -> Iterator[Case]:
    with _images(scratch, [image.wrap(body) for body in _bodies()], _wrapped) as case:
        yield case


@contextmanager
def binary(scratch: Path) -> Iterator[Case]:
    with _images(scratch, _bodies(), _plain) as case:
        yield case


def _dump(data: bytes, rng: random.Random) -> bytes:
    """A flash whose configuration and image are changed, their sums right, or cut at another length."""
    found = bytearray(data)
    for index, region in enumerate((flash_layout.CONFIG_0, flash_layout.CONFIG_1)):
        if rng.random() < 0.5:
            block = damaged(bytes(found[region.address : region.address + region.size]), rng, 2)
            block = block[: region.size].ljust(region.size, b"\xff")
            sealed = rng.random() < 0.7
            found[region.address : region.address + region.size] = (
                flash_layout.seal(index, block) if sealed else block
            )
    if rng.random() < 0.6:
        start = flash_layout.IMAGE.address
        made = _wrapped(bytes(found[start : start + image.size(data[start:])]), rng)
        found[start : start + len(made)] = made
    match rng.randrange(6):
        case 0:
            del found[rng.randrange(len(found)) :]
        case 1:
            del found[-OTP_SIZE - 1 :]
        case 2:
            found[-1] = rng.randrange(256)
    return bytes(found)


_KEPT = SIZE + OTP_SIZE


def _is_sound(contents: bytes, body: bytes) -> bool:
    """Whether a body is what the flash's length, sum and CRC say."""
    place = flash_layout.IMAGE.address
    length = int.from_bytes(contents[place : place + 4], "little")
    stored = contents[place + 4 : place + 4 + length]
    trailer = contents[place + 4 + length :][:6]
    return body == stored and trailer == struct.pack("<BBI", 0xA5, sum(body) & 0xFF, zlib.crc32(body))


@contextmanager
def flash(scratch: Path) -> Iterator[Case]:
    """Flash dumps: restored as a chip, read as an image, planned to be written; some boards switched on."""
    path, originals = scratch / "flash", []
    for built in _built():
        board = Board(image_file.load(built.ihx), Options(port=None, flash=path))
        board.close()
        originals.append(path.read_bytes())

    def case(rng: random.Random) -> str | None:
        data = rng.choice(originals)
        changed = _dump(data, rng) if rng.random() < 0.8 else damaged(data[:20_000], rng) + data[20_000:]
        used = changed[: plan.AREA]
        plan.image_in(used)
        plan.config_in(used)
        check.check(used)
        chip = FlashChip.restore(Scheduler(), changed)
        if chip.contents + chip.otp != changed[: len(chip.contents) + OTP_SIZE].ljust(_KEPT, b"\xff"):
            return "the chip holds something else than the file"
        if isinstance(body := rom.find_image(chip), bytes) and not _is_sound(changed, body):
            return "a damaged image would be run"
        if rng.random() < BOOTED:
            path.write_bytes(changed)
            board = Board(None, Options(flash=path))
            board.machine.run(1_000_000)
            board.close()
        else:
            path.write_bytes(used)
            image_file.load(path)
        return None

    yield case


NUMBER = re.compile(rb"[0-9A-F]{2,8}|\d+")


def _lines(data: bytes, rng: random.Random) -> bytes:
    """A text of records with numbers, names and lines changed."""
    lines = data.split(b"\n")
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0 | 1 if numbers := list(NUMBER.finditer(lines[at])):
                one = rng.choice(numbers)
                value = rng.choice(
                    (b"%X" % (abs(number(rng)) % (1 << 40)), b"0" * 8, b"9" * 5000, b"", b"-1")
                )
                lines[at] = lines[at][: one.start()] + value + lines[at][one.end() :]
            case 2:
                lines[at] = damaged(lines[at], rng)
            case 3:
                lines.insert(at, rng.choice(lines))
            case 4:
                del lines[at]
                lines = lines or [b""]
            case 5:
                lines[at] = lines[at].replace(b"$", rng.choice((b"", b"$$", b":")), 1)
    return b"\n".join(lines)


@contextmanager
def cdb(scratch: Path) -> Iterator[Case]:
    """Symbols and lines beside an image, or a list of names; some listings with them."""
    sets = []
    for built in _built():
        listings = sorted(built.cdb.parent.glob("*.rst"))
        sets.append((built.ihx, {path.name: path.read_bytes() for path in (built.map, built.cdb, *listings)}))
    names = b"main 0x2F81\nfar_handler 8100 1\n; a comment\n" + b"f%d %X\n" * 5 % tuple(range(10))

    def case(rng: random.Random) -> str | None:
        if rng.random() < 0.15:
            path = scratch / "names.txt"
            path.write_bytes(_lines(names, rng) if rng.random() < 0.8 else damaged(names, rng))
            symbols.given(path).labels()
            return None
        ihx, files = rng.choice(sets)
        chosen = rng.choice(sorted(files))
        paths = []
        for name, data in files.items():
            paths.append(scratch / name)
            paths[-1].write_bytes(_lines(data, rng) if name == chosen else data)
        found = symbols.load(*paths)
        found.labels()
        for address in rng.sample(range(1 << 16), 20):
            found.line_at(rng.randrange(2), address)
            found.variable_at(address)
        for line in found.lines[:3]:
            found.addresses(line.file, line.line)
        if rng.random() < FOLLOWED:
            _followed(image_file.load(ihx), found)
        return None

    yield case


SURFACES = (
    Surface("hex", "firmware in Intel HEX: read and checked; some disassembled", intel_hex, slice=150),
    Surface("wrapped", "a wrapped firmware image: the same", wrapped, slice=150),
    Surface("binary", "firmware as a plain binary: the same", binary, slice=150),
    Surface("flash", "a flash dump: read, checked, restored as a chip; some boards boot it", flash, slice=50),
    Surface("cdb", "symbols and lines of firmware: read and asked; some disassembled with", cdb, slice=80),
)

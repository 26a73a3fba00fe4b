"""Damaged pictures and arrays, as a network's inputs."""

from __future__ import annotations

import ast
import io
import itertools
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from sdk.graph import Tensor
from sdk.preprocess import Preprocessing
from sdk.samples import arrays
from tests.campaigns.campaign import Case, Surface
from tests.campaigns.damage import damaged, number, zipped

RECIPES = (
    Preprocessing((24, 32), None, "RGB", 1.0, (0.0,) * 3, (1.0,) * 3),
    Preprocessing((32, 32), 40, "GRAY", 1 / 255, (0.5,), (0.5,), "NHWC", True),
)
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def _originals() -> list[tuple[str, bytes]]:
    """(format, file) of small pictures in every format and mode that cameras, phones and tools write."""
    rng = np.random.default_rng(0)
    smooth = np.add.outer(np.arange(48) * 4, np.arange(64) * 2)[..., None] + np.array([0, 20, 40])
    picture = Image.fromarray(((smooth + rng.integers(0, 20, smooth.shape)) % 256).astype(np.uint8))
    modes = {mode: picture.convert(mode) for mode in ("RGB", "L", "1", "P", "RGBA", "CMYK", "LA")}
    modes["I;16"] = Image.fromarray(smooth[..., 0].astype(np.uint16) * 97)
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds = [
        *(("PNG", mode, {}) for mode in ("RGB", "L", "1", "P", "RGBA", "LA", "I;16")),
        ("PNG", "RGB", {"exif": exif}),
        *(("JPEG", mode, {}) for mode in ("RGB", "L", "CMYK")),
        *(
            ("JPEG", "RGB", options)
            for options in ({"progressive": True}, {"exif": exif}, {"subsampling": 2})
        ),
        ("GIF", "P", {}),
        ("GIF", "P", {"save_all": True, "append_images": [modes["P"]], "interlace": True}),
        *(("TIFF", mode, {}) for mode in ("RGB", "L", "1", "I;16", "CMYK", "P")),
        *(
            ("TIFF", "RGB", {"compression": f"tiff_{method}"})
            for method in ("lzw", "jpeg", "adobe_deflate", "deflate")
        ),
        *(("TIFF", "1", {"compression": method}) for method in ("group3", "group4", "packbits")),
        *(("BMP", mode, {}) for mode in ("RGB", "L", "1", "P", "RGBA")),
        *(("WEBP", "RGBA", {"lossless": lossless}) for lossless in (True, False)),
        ("PPM", "RGB", {}),
    ]
    found = []
    for kind, mode, options in kinds:
        file = io.BytesIO()
        modes[mode].save(file, kind, **options)
        found.append((kind, file.getvalue()))
    return found


def _png(data: bytes, rng: random.Random) -> bytes:
    """A PNG with chunks changed, their lengths and checksums right."""
    chunks, at = [], len(SIGNATURE)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    for _ in range(rng.randint(1, 3)):
        index = rng.randrange(len(chunks))
        name, body = chunks[index]
        match rng.randrange(7):
            case 0:
                name, body = chunks[0]
                index, fields = 0, list(struct.unpack(">IIBBBBB", body.ljust(13, b"\0")[:13]))
                which = rng.randrange(7)
                fields[which] = number(rng) & (0xFFFF_FFFF if which < 2 else rng.choice((0xFF, 7, 3)))
                body = struct.pack(">IIBBBBB", *fields)
            case 1:
                body = damaged(body, rng)
            case 2:
                chunks.insert(rng.randrange(len(chunks)), (name, body))
            case 3 if len(chunks) > 1:
                chunks.pop(index)
                continue
            case 4 if name == b"IDAT":
                body = zlib.compress(damaged(zlib.decompress(body), rng)) if _inflates(body) else body
            case 5:
                extra = rng.choice((b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"acTL", b"fcTL", b"PLTE", b"tRNS"))
                text = b"a\0\0" + zlib.compress(b" " * rng.choice((10, 1 << 20, 1 << 24)))
                chunks.insert(1, (extra, rng.choice((text, rng.randbytes(26), b"", bytes(300)))))
                continue
            case _:
                name = rng.choice((b"IDAT", b"IEND", b"PLTE", b"zzzz", rng.randbytes(4)))
        chunks[min(index, len(chunks) - 1)] = (name, body)
    parts = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    ]
    return SIGNATURE + b"".join(parts)


def _inflates(body: bytes) -> bool:
    try:
        return bool(zlib.decompress(body))
    except zlib.error:
        return False


def _jpeg(data: bytes, rng: random.Random) -> bytes:
    """A JPEG with segments changed, their lengths right."""
    segments, at = [], 2
    while data[at] == 0xFF and data[at + 1] != 0xDA:
        (length,) = struct.unpack_from(">H", data, at + 2)
        segments.append((data[at + 1], data[at + 4 : at + 2 + length]))
        at += 2 + length
    index = rng.randrange(len(segments))
    marker, body = segments[index]
    match rng.randrange(5):
        case 0:
            index, (marker, body) = next(
                (i, one) for i, one in enumerate(segments) if one[0] in (0xC0, 0xC1, 0xC2)
            )
            size = struct.pack(">HH", number(rng) & 0xFFFF, number(rng) & 0xFFFF)
            body = rng.choice((body[:1] + size + body[5:], damaged(body, rng)))
        case 1 | 2:
            body = damaged(body, rng)
        case 3:
            segments.insert(rng.randrange(len(segments)), (marker, body))
        case 4:
            marker = rng.choice((0xE1, 0xE2, 0xC4, 0xDB, 0xDD, 0xFE, rng.randrange(0xC0, 0xFF)))
    segments[index] = marker, body[:65533]
    head = b"".join(bytes((0xFF, mark)) + struct.pack(">H", len(one) + 2) + one for mark, one in segments)
    return data[:2] + head + (data[at:] if rng.random() < 0.7 else damaged(data[at:], rng))


def _tiff(data: bytes, rng: random.Random) -> bytes:
    """A TIFF with a field of its directory changed."""
    found = bytearray(data)
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    for _ in range(rng.randint(1, 2)):
        entry = at + 2 + 12 * rng.randrange(count)
        place, form = rng.choice(((0, "<H"), (2, "<H"), (4, "<I"), (8, "<I"), (8, "<I"), (8, "<H")))
        mask = 0xFFFF if form == "<H" else 0xFFFF_FFFF
        struct.pack_into(form, found, entry + place, number(rng) & mask)
    return bytes(found)


def _head(data: bytes, rng: random.Random) -> bytes:
    """A file with numbers of its first bytes changed, where sizes stand."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 2)):
        at, width = rng.randrange(min(len(found), 64)), rng.choice((1, 2, 4))
        found[at : at + width] = (number(rng) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return bytes(found)


STRUCTURED: dict[str, Callable[[bytes, random.Random], bytes]] = {"PNG": _png, "JPEG": _jpeg, "TIFF": _tiff}


@contextmanager
def picture(scratch: Path) -> Iterator[Case]:
    """Pictures as inputs, by both recipes."""
    originals = _originals()

    def case(rng: random.Random) -> str | None:
        kind, data = rng.choice(originals)
        mutate = rng.choice((damaged, STRUCTURED.get(kind, _head), STRUCTURED.get(kind, _head), _head))
        path = scratch / "picture"
        path.write_bytes(mutate(data, rng))
        for recipe in RECIPES:
            found = recipe.apply(path)
            if found.shape != recipe.shape or not np.isfinite(found).all():
                return f"an input of {found.shape}"
        return None

    yield case


DESCRIPTIONS = (
    "<f4",
    ">f4",
    "<f8",
    "|u1",
    "|i1",
    "<i4",
    "<f2",
    "|O",
    "|V8",
    "<U9",
    "|b1",
    "<c8",
    "<M8[s]",
    "x",
)


def _npy(array: np.ndarray, rng: random.Random) -> bytes:
    """An .npy whose header has fields changed, its length right; or with bytes changed."""
    file = io.BytesIO()
    np.save(file, array)
    data = file.getvalue()
    if rng.random() < 0.3:
        return damaged(data, rng) if rng.random() < 0.7 else data
    (length,) = struct.unpack_from("<H", data, 8)
    header, body = ast.literal_eval(data[10 : 10 + length].decode()), data[10 + length :]
    match rng.randrange(8):
        case 0:
            header["descr"] = rng.choice((*DESCRIPTIONS, [("a", "<f4")], 5, None))
        case 1:
            header["fortran_order"] = rng.choice((True, 1, "x", None))
        case 2 | 3:
            shape = list(header["shape"])
            shape[rng.randrange(len(shape))] = number(rng)
            header["shape"] = tuple(shape)
        case 4:
            header["shape"] = rng.choice(
                ((), (0,), [4, 4], (1,) * 40, (-1, 3), (1 << 62, 4), 5, ("1",), (1.0,))
            )
        case 5:
            header.pop(rng.choice(list(header)))
        case 6:
            header["x" if rng.random() < 0.5 else "descr"] = "a" * rng.choice((1, 9000, 60_000))
        case 7:
            body = body[: rng.randrange(len(body))] if rng.random() < 0.5 else body + bytes(100)
    text = (
        repr(header)
        if rng.random() < 0.95
        else rng.choice(("(" * 5000, "{" * 90, "", "1+" * 3000 + "1", "\0"))
    )
    encoded = text.encode("latin1") + b"\n"
    version = 2 if len(encoded) > 65535 or rng.random() < 0.2 else 1
    start = struct.pack("<H" if version == 1 else "<I", len(encoded))
    return b"\x93NUMPY" + bytes((rng.choice((version,) * 9 + (3, 9)), 0)) + start + encoded + body


@contextmanager
def array(scratch: Path) -> Iterator[Case]:
    """Arrays as inputs: .npy, .npz, and .npz compressed."""
    rng = np.random.default_rng(0)
    tensors = {"x": Tensor("x", (1, 3, 4, 4), "float32"), "y": Tensor("y", (2, 5), "float32")}
    values = {name: rng.random((3 * t.shape[0], *t.shape[1:]), np.float32) for name, t in tensors.items()}

    def case(rng: random.Random) -> str | None:
        if alone := rng.random() < 0.4:
            data = _npy(values["x"], rng)
        else:
            members = {f"{name}.npy": _npy(value, rng) for name, value in values.items()}
            data = zipped(members, rng, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))
            data = damaged(data, rng) if rng.random() < 0.3 else data
        path = scratch / "inputs"
        path.write_bytes(data)
        inputs = {"x": tensors["x"]} if alone else tensors
        for sample in itertools.islice(arrays(str(path), inputs), 10):
            for name, found in sample.feeds.items():
                if found.shape != tensors[name].shape:
                    return f"an array of {found.shape} for {name}"
        return None

    yield case


SURFACES = (
    Surface("picture", "a picture file: prepared by two recipes", picture, slice=200),
    Surface("array", "an .npy or .npz of inputs: its first samples are read", array, slice=700),
)

"""Pictures of all kinds, recipes as users write them, and inputs unlike the calibration's."""

import contextlib
import dataclasses
import json
import os
import struct
import sys
import time
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sdk.errors import EnvironmentMissing, InvalidInput, TowlineError, UsageError
from sdk.preprocess import InputStatistics, Preprocessing, default_for, parse, require_shape

IMAGENET = default_for((1, 3, 224, 224))
GREY = default_for((1, 1, 32, 32))
PIXELS = dataclasses.replace(default_for((1, 3, 8, 8)), short_side=8, scale=1.0, mean=(0,) * 3, std=(1,) * 3)


def noise(width, height, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def natural(seed):
    """A picture with the 1/f spectrum, brightness and contrast that photographs have."""
    generator = np.random.default_rng(seed)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(224), np.fft.fftfreq(224)))
    spectrum = generator.standard_normal((3, 224, 224)) + 1j * generator.standard_normal((3, 224, 224))
    waves = np.fft.ifft2(spectrum / np.maximum(frequency, 1 / 224)).real
    waves = waves[:1] + 0.3 * waves
    waves = (waves - waves.mean()) / waves.std()
    pixels = generator.uniform(70, 180) + generator.uniform(35, 75) * waves
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8).transpose(1, 2, 0))


@pytest.mark.parametrize("size", [(224, 224), (640, 480), (480, 641), (97, 333), (256, 256), (1, 50)])
def test_geometry_is_resize_then_centre_crop(size):
    picture = noise(*size)
    short = min(size)
    resized = picture.resize(tuple(int(256 * side / short) for side in size), Image.Resampling.BILINEAR)
    left, top = round((resized.width - 224) / 2), round((resized.height - 224) / 2)
    expected = np.asarray(resized.crop((left, top, left + 224, top + 224))).astype(np.int32)
    raw = dataclasses.replace(IMAGENET, scale=1.0, mean=(0.0,) * 3, std=(1.0,) * 3)
    found = raw.apply(picture)[0].transpose(1, 2, 0)
    assert np.abs(found - expected).max() <= 1


def test_imagenet_normalisation_and_layouts():
    picture = Image.new("RGB", (300, 200), (255, 0, 51))
    values = IMAGENET.apply(picture)
    assert values.shape == (1, 3, 224, 224)
    assert values.dtype == np.float32
    for channel, expected in enumerate([(1 - 0.485) / 0.229, -0.456 / 0.224, (0.2 - 0.406) / 0.225]):
        np.testing.assert_allclose(values[0, channel], expected, rtol=1e-5)
    nhwc = dataclasses.replace(IMAGENET, layout="NHWC")
    np.testing.assert_array_equal(nhwc.apply(picture), values.transpose(0, 2, 3, 1))
    bgr = dataclasses.replace(IMAGENET, colour="BGR", mean=(0.0,) * 3, std=(1.0,) * 3)
    np.testing.assert_allclose(bgr.apply(picture)[0, :, 0, 0], [0.2, 0, 1], rtol=1e-6)


def test_short_side_none_stretches_and_invert_inverts():
    picture = noise(50, 20)
    expected = np.asarray(picture.convert("L").resize((32, 32), Image.Resampling.BILINEAR)) / np.float32(255)
    np.testing.assert_allclose(GREY.apply(picture)[0, 0], expected, rtol=1e-6)
    inverted = dataclasses.replace(GREY, invert=True)
    np.testing.assert_allclose(inverted.apply(picture) + GREY.apply(picture), 1, rtol=1e-6)


def wide_grey():
    return Image.fromarray(np.full((9, 9), 40000, np.uint16))


def palette_with_transparency():
    picture = Image.new("P", (9, 9), 1)
    picture.putpalette([10, 20, 30, 200, 100, 0])
    picture.info["transparency"] = 1
    return picture


@pytest.mark.parametrize(
    ("picture", "colour"),
    [
        (Image.new("L", (9, 9), 77), (77, 77, 77)),
        (Image.new("1", (9, 9), 1), (255, 255, 255)),
        (Image.new("RGBA", (9, 9), (200, 0, 0, 0)), (255, 255, 255)),
        (Image.new("RGBA", (9, 9), (200, 0, 0, 255)), (200, 0, 0)),
        (Image.new("RGBA", (9, 9), (0, 0, 0, 128)), (127, 127, 127)),
        (Image.new("LA", (9, 9), (0, 0)), (255, 255, 255)),
        (Image.new("CMYK", (9, 9), (0, 255, 255, 0)), (255, 0, 0)),
        (palette_with_transparency(), (255, 255, 255)),
        (wide_grey(), (156, 156, 156)),
        (Image.new("I", (9, 9), 40000), (156, 156, 156)),
    ],
    ids=["grey", "1 bit", "clear", "opaque", "half", "grey clear", "cmyk", "palette", "16 bit", "32 bit"],
)
def test_every_kind_of_picture(picture, colour, tmp_path):
    np.testing.assert_array_equal(PIXELS.apply(picture)[0, :, 4, 4], colour)
    if picture.mode not in ("CMYK", "I"):
        picture.save(tmp_path / "picture.png")
        np.testing.assert_array_equal(PIXELS.apply(tmp_path / "picture.png")[0, :, 4, 4], colour)


def test_exif_orientation_is_applied(tmp_path):
    upright = Image.new("RGB", (8, 8), "black")
    upright.paste((255, 255, 255), (0, 0, 8, 4))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    upright.rotate(90).save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(PIXELS.apply(tmp_path / "turned.png"), PIXELS.apply(upright))


def png_claiming(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


def jpeg(tmp_path):
    noise(200, 200).save(tmp_path / "whole.jpg")
    return (tmp_path / "whole.jpg").read_bytes()


@pytest.mark.parametrize(
    "damage", ["empty", "text", "cut", "bomb", "header only", "missing", "directory", "float"]
)
def test_what_is_not_a_picture_is_refused_with_its_path(damage, tmp_path):
    path = tmp_path / "bad.png"
    match damage:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("not a picture")
        case "cut":
            path.write_bytes(jpeg(tmp_path)[:3000])
        case "bomb":
            path.write_bytes(png_claiming(60000, 60000))
        case "header only":
            path.write_bytes(png_claiming(100, 100)[:40])
        case "directory":
            path.mkdir()
        case "float":
            path = tmp_path / "bad.tiff"
            Image.new("F", (9, 9), 0.5).save(path)
    with pytest.raises(InvalidInput) as caught:
        IMAGENET.apply(path)
    assert caught.value.where == str(path)
    assert "Traceback" not in caught.value.message


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(position=st.integers(0, 10**6), value=st.integers(0, 255), keep=st.floats(0.01, 1))
def test_a_damaged_file_never_raises_anything_else(position, value, keep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    data = bytearray(jpeg(folder))
    data[position % len(data)] = value
    (folder / "damaged.jpg").write_bytes(data[: int(keep * len(data))])
    with contextlib.suppress(InvalidInput):
        assert np.isfinite(GREY.apply(folder / "damaged.jpg")).all()


def test_without_pillow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(EnvironmentMissing) as caught:
        GREY.apply("picture.png")
    assert caught.value.hint == "pip install 'towline[compile]'"


def test_an_extreme_aspect_ratio_costs_no_more_than_its_pixels():
    started = time.monotonic()
    assert IMAGENET.apply(Image.new("RGB", (1, 60000))).shape == IMAGENET.shape
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("shape", [(1, 3, 224, 224), (1, 224, 192, 3), (1, 1, 28, 28)])
def test_default_gives_the_networks_input(shape):
    recipe = default_for(shape)
    assert recipe.apply(noise(300, 310)).shape == recipe.shape == shape
    assert Preprocessing.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


@pytest.mark.parametrize("shape", [(1, 4, 32, 32), (1, 100), (2, 3, 32, 32)])
def test_default_refuses_what_is_not_a_picture(shape):
    with pytest.raises(InvalidInput, match="not one picture"):
        default_for(shape)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", [224]),
        ("size", [0, 224]),
        ("size", 224),
        ("size", [224, "x"]),
        ("size", [True, True]),
        ("short_side", 100),
        ("short_side", 256.5),
        ("colour", "CMYK"),
        ("colour", ["RGB"]),
        ("scale", 0),
        ("scale", "1/255"),
        ("scale", float("nan")),
        pytest.param("scale", 10**400, id="scale-huge"),
        ("scale", 1e39),
        ("scale", 1e-60),
        ("std", [1, 1e-60, 1]),
        ("mean", [0, 10**400, 0]),
        ("size", [10**400, 1]),
        ("mean", [0.5]),
        ("mean", None),
        ("std", [1, 0, 1]),
        ("std", [1, -1, 1]),
        ("layout", "CHW"),
        ("invert", 1),
        ("surplus", 1),
    ],
)
def test_an_invalid_recipe_is_refused_by_field(field, value):
    with pytest.raises(InvalidInput, match=field):
        Preprocessing.from_json(IMAGENET.to_json() | {field: value})


def test_an_incomplete_recipe_is_refused():
    document = IMAGENET.to_json()
    del document["mean"]
    with pytest.raises(InvalidInput, match="'mean' is missing"):
        Preprocessing.from_json(document)
    with pytest.raises(InvalidInput):
        Preprocessing.from_json([1])


def test_parse_names_and_files(tmp_path):
    shape = (1, 3, 224, 224)
    assert parse("imagenet", shape) == IMAGENET
    assert parse("unit", shape).std == (1.0, 1.0, 1.0)
    values = parse("symmetric", shape).apply(Image.new("RGB", (9, 9), (0, 255, 255)))
    np.testing.assert_allclose(values[0, :, 0, 0], [-1, 1, 1], atol=1e-6)
    file = tmp_path / "mine.json"
    file.write_text('{"short_side": null, "colour": "BGR"}')
    assert parse(str(file), shape) == dataclasses.replace(IMAGENET, short_side=None, colour="BGR")


def test_parse_refusals(tmp_path):
    shape = (1, 3, 224, 224)
    with pytest.raises(UsageError, match="no preprocessing named 'imagnet'"):
        parse("imagnet", shape)
    with pytest.raises(InvalidInput, match="three channels"):
        parse("imagenet", (1, 1, 28, 28))
    file = tmp_path / "bad.json"
    for text in (
        "{",
        "[]",
        '{"size": [192, 192]}',
        '{"std": [0, 1, 1]}',
        '{"sise": 3}',
        "\udcff",
        '{"scale": 1' + "0" * 400 + "}",
        "[" * 100_000,
    ):
        file.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(InvalidInput) as caught:
            parse(str(file), shape)
        assert caught.value.where == str(file)


def test_require_shape():
    require_shape(IMAGENET, [1, 3, 224, 224])
    with pytest.raises(InvalidInput, match="the network takes"):
        require_shape(IMAGENET, (1, 3, 192, 192))


@pytest.fixture(scope="module")
def photographs():
    return [IMAGENET.apply(natural(seed)) for seed in range(24)]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 24])
def test_no_warning_on_calibration_inputs(photographs, count):
    statistics = InputStatistics.of(photographs[:count], "NCHW")
    assert [statistics.unlike_calibration(array) for array in photographs[:count]] == [None] * count


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 8])
def test_no_warning_on_other_natural_pictures(photographs, count):
    statistics = InputStatistics.of(photographs[:count], "NCHW")
    assert [statistics.unlike_calibration(array) for array in photographs] == [None] * 24


@pytest.mark.parametrize("count", [1, 8])
def test_warnings(photographs, count):
    statistics = InputStatistics.of(photographs[:count], "NCHW")
    pixels = np.asarray(natural(3), np.float32).transpose(2, 0, 1)[None]
    assert "span" in statistics.unlike_calibration(pixels)
    assert "nearly constant" in statistics.unlike_calibration(np.zeros((1, 3, 224, 224), np.float32))
    broken = photographs[0].copy()
    broken[0, 1, 5, 5] = np.nan
    assert "NaN" in statistics.unlike_calibration(broken)
    batch = np.concatenate([photographs[0], pixels])
    assert "span" in statistics.unlike_calibration(batch)


@pytest.mark.parametrize(
    "value", [[[0.5], [0.5, 0.5]], "picture", None, {}, 0.5, [0.5], np.zeros((0, 3, 9, 9))]
)
def test_what_is_not_an_input(photographs, value):
    with pytest.raises(InvalidInput):
        InputStatistics.of(photographs[:2], "NCHW").unlike_calibration(value)


def test_a_list_is_an_input_too(photographs):
    statistics = InputStatistics.of(photographs[:1], "NCHW")
    assert statistics.unlike_calibration(photographs[0].tolist()) is None


def test_a_pipe_is_not_a_picture(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(InvalidInput, match="not a regular file"):
        IMAGENET.apply(tmp_path / "pipe.png")


def test_a_shifted_channel_warns(photographs):
    statistics = InputStatistics.of(photographs, "NCHW")
    shifted = photographs[0] / 4
    shifted[:, 2] += 2
    assert "channel 2" in statistics.unlike_calibration(shifted)


def test_statistics_round_trip_and_damage(photographs):
    statistics = InputStatistics.of(photographs, "NCHW")
    document = json.loads(json.dumps(statistics.to_json()))
    assert InputStatistics.from_json(document) == statistics
    bad = [
        {**document, "count": 0},
        {**document, "channel_axis": 7},
        {**document, "mean": [0.0]},
        {**document, "mean": 5},
        {**document, "mean": None},
        {**document, "mean": [10**400] * 3},
        {**document, "contrast_high": 10**400},
        {**document, "channel_axis": None},
        {key: [] if isinstance(value, list) else value for key, value in document.items()},
        {**document, "std": "x"},
        {**document, "maximum": [None] * 3},
        {**document, "contrast_low": None},
        {key: value for key, value in document.items() if key != "std"},
        [],
        None,
    ]
    for damaged in bad:
        with pytest.raises(TowlineError):
            InputStatistics.from_json(damaged)


def test_statistics_are_those_of_numpy(photographs):
    statistics = InputStatistics.of(photographs, "NCHW")
    stack = np.concatenate(photographs).astype(np.float64)
    np.testing.assert_allclose(statistics.mean, stack.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(statistics.std, stack.std(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(statistics.maximum, stack.max(axis=(0, 2, 3)))
    np.testing.assert_allclose(statistics.mean_low, stack.mean(axis=(2, 3)).min(axis=0))


@pytest.mark.parametrize("size", [(13_000, 13_000), (1 << 26, 2)])
def test_a_huge_picture_is_refused_before_it_is_decoded(tmp_path, size):
    """A PNG's header states its size; behind it nothing need be."""
    header = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    path = tmp_path / "huge.png"
    path.write_bytes(data + struct.pack(">I", 4) + b"IDAT" + bytes(8))
    with pytest.raises(InvalidInput) as caught:
        IMAGENET.apply(path)
    assert caught.value.hint == "scale the picture down"


def gif(width, height, inner=(1, 1)):
    frame = struct.pack("<BHHHHB", 0x2C, 0, 0, *inner, 0)
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6) + frame + b"\2\2\x4c\1\0;"


def tiff(width, height):
    fields = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: 1}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in fields.items())
    return b"II*\0" + struct.pack("<IH", 8, len(fields)) + entries + bytes(4)


HUGE = {
    "gif": gif(13_000, 13_000),
    "frame of a gif": gif(1, 1, (13_000, 13_000)),
    "tiff": tiff(13_000, 13_000),
    "bmp": b"BM" + struct.pack("<IIIIiiHHIIIIII", 54, 0, 54, 40, 13_000, 13_000, 1, 24, *[0] * 6),
    "ppm": b"P6 13000 13000 255\n",
    "jpeg": b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 11, 8, 13_000, 13_000, 1) + b"\1\x11\0\xff\xda\0\2",
    "webp": b"RIFF"
    + struct.pack("<I", 18)
    + b"WEBPVP8L"
    + struct.pack("<IBI", 5, 0x2F, 12_999 * 0x4001)
    + b"\0",
}


@pytest.mark.parametrize("kind", HUGE)
def test_a_huge_picture_of_any_format_is_refused(tmp_path, kind):
    path = tmp_path / "huge"
    path.write_bytes(HUGE[kind])
    with pytest.raises(InvalidInput) as caught:
        IMAGENET.apply(path)
    assert caught.value.hint == "scale the picture down"


def test_a_file_that_a_program_would_draw_is_no_picture(tmp_path, monkeypatch):
    """Pillow gives PostScript to Ghostscript."""
    path = tmp_path / "cat.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")
    assert Image.open(path).format == "EPS"
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("it was run"))
    with pytest.raises(InvalidInput):
        IMAGENET.apply(path)

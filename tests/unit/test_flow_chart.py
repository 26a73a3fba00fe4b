"""Pictures of control flow: what they show, for each processor, and that dot draws them."""

import json
import re
import shutil
import xml.etree.ElementTree as ET

import pytest

from sdk import flow_chart
from sdk.errors import UsageError
from sdk.flow_chart import Arrow, Box, Chart, Kind, arrows, as_dot, as_svg
from towline.cli import main

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz's dot is not installed")


def texts(svg):
    return [node.text for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def edges(dot):
    """Arrows by the first lines of their boxes."""
    names = dict(re.findall(r'^  (b\d+) \[label="([^"\\]*?):?\\l', dot, re.MULTILINE))
    return {(names[a], names[b]) for a, b in re.findall(r"^  (b\d+) -> (b\d+) ", dot, re.MULTILINE)}


def test_an_arrow_shows_how_execution_continues():
    ways = [("next", 12), ("ahead", 40), ("self", 8), ("back", 2)]
    kinds = {arrow.target: arrow.kind for arrow in arrows("block", 8, ways, 12)}
    assert kinds == {"next": Kind.NEXT, "ahead": Kind.JUMP, "self": Kind.BACK, "back": Kind.BACK}


def test_long_blocks_and_lines_are_cut_and_say_so():
    dot = as_dot(Chart("t", [Box("b", [f"line {number}" for number in range(1000)]), Box("w", ["x" * 500])]))
    assert "... 956 more ..." in dot
    assert "line 35\\l" in dot
    assert "line 36\\l" not in dot
    assert "line 999\\l" in dot
    assert max(map(len, re.findall("x+", dot))) == flow_chart.WIDEST - 3


@needs_dot
def test_what_dot_and_xml_would_read_comes_out_as_it_is():
    odd = 'mov "a" \\l <b> & {c|d} ü \\N'
    chart = Chart(
        'of "it"',
        [Box("entry", [odd, "  behind"], entry=True), Box("L1")],
        [Arrow("entry", "L1", Kind.BACK)] * 2,
    )
    svg = as_svg(chart)
    assert {'of "it"', "entry:", "L1", odd, "\u00a0\u00a0behind"} <= set(texts(svg))
    assert svg.count(b'class="edge"') == 1
    assert svg.count(b'class="node"') == 2


@needs_dot
def test_every_colour_has_one_for_dark_pages():
    boxes = [Box("entry", entry=True), *(Box(kind.name) for kind in Kind)]
    chart = Chart("t", boxes, [Arrow("entry", kind.name, kind) for kind in Kind])
    svg = as_svg(chart)
    root = ET.fromstring(svg)
    style = next(root.iter("{http://www.w3.org/2000/svg}style")).text
    assert "prefers-color-scheme:dark" in style
    for node in root.iter():
        for kind in {"fill", "stroke"} & set(node.keys()):
            assert node.get(kind) in ("none", "transparent") or f'[{kind}="{node.get(kind)}"]' in style
        if node.tag.endswith("}text"):
            assert node.get("fill"), "text would stay black"


def test_the_legend_has_the_arrows_that_are_drawn():
    blocks = [Box("a", entry=True), Box("b")]
    for kind in Kind:
        heading = re.search("label=<(.*)>$", as_dot(Chart("t", blocks, [Arrow("a", "b", kind)])), re.M)[1]
        assert [one for one in Kind if one.meaning in heading] == [kind]
    assert "shaded: x" in as_dot(Chart("t", blocks, shaded="x"))
    assert "shaded" not in as_dot(Chart("t", blocks[1:]))


def test_an_arrow_to_nowhere_is_left_out():
    assert "->" not in as_dot(Chart("t", [Box("a")], [Arrow("a", "b"), Arrow("b", "a")]))


@pytest.mark.parametrize("name", ["x.png", "x", ""])
def test_other_suffixes_are_refused(name):
    with pytest.raises(UsageError):
        flow_chart.write(name, Chart("t", []))


@pytest.fixture
def drawn(tmp_path, capfd):
    """Runs a command with --graph; the DOT text, and the document."""

    def draw(*arguments):
        path = tmp_path / "graph.dot"
        assert main([*arguments, "--graph", str(path), "--json"]) == 0
        return path.read_text(), json.loads(capfd.readouterr().out)["result"]

    return draw


@pytest.fixture
def loop_image(tmp_path):
    """f counts R7 down and returns; main calls it forever. Not at vectors, hence by its entry's address."""
    code = bytearray(b"\xff" * 0x60)
    code[0:3] = bytes.fromhex("020030")
    code[0x30:0x35] = bytes.fromhex("12005080FB")
    code[0x50:0x55] = bytes.fromhex("7F05DFFE22")
    path = tmp_path / "loop.bin"
    path.write_bytes(code)
    return str(path)


def test_a_function_of_the_8051(drawn, loop_image):
    dot, document = drawn("firmware", "disasm", loop_image, "--function", "0x50")
    assert "djnz r7,L0052" in dot
    assert edges(dot) >= {("L0052", "L0052"), ("L0052", "L0054")}
    assert document["boxes"] == 3
    assert Kind.BACK.attributes in dot


def test_the_calls_of_an_image(drawn, loop_image):
    dot, document = drawn("firmware", "disasm", loop_image)
    assert len(edges(dot)) == document["arrows"] == 1
    assert "style=dashed" in dot


@pytest.fixture
def chain_image(tmp_path):
    """Reset leads to f, which calls g, which calls h; another h's caller is an interrupt."""
    code = bytearray(b"\xff" * 0x70)
    code[0:3] = bytes.fromhex("020030")
    code[3:7] = bytes.fromhex("12006032")
    code[0x30:0x35] = bytes.fromhex("12004080FB")
    code[0x40:0x44] = bytes.fromhex("12005022")
    code[0x50:0x54] = bytes.fromhex("12006022")
    code[0x60] = 0x22
    path = tmp_path / "chain.bin"
    path.write_bytes(code)
    return str(path)


def test_calls_are_followed_so_deep(drawn, chain_image):
    def calls(*arguments):
        return edges(drawn("firmware", "disasm", chain_image, *arguments)[0])

    first, second, third = ("reset", "sub_0040"), ("sub_0040", "sub_0050"), ("sub_0050", "sub_0060")
    interrupt = ("int0", "sub_0060")
    assert calls() == {first, second, third, interrupt}
    assert calls("--depth", "1") == {first, interrupt}
    assert calls("--depth", "2") == {first, second, interrupt, third}, "both ends are shown"
    assert calls("--function", "reset", "--depth", "2") == {first, second}
    assert calls("--function", "0x50", "--depth", "9") == {third}
    dot, _ = drawn("firmware", "disasm", chain_image, "--function", "reset", "--depth", "1")
    assert "and 1 more call" in dot


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("firmware", "disasm", "x.bin", "--graph", "x.png"), ".svg or .dot"),
        (("gpu", "disasm", "x.co", "--graph", "/nowhere/x.svg"), "does not exist"),
        (("firmware", "disasm", "x.bin", "--depth", "2"), "--graph"),
        (("inspect", "net.onnx", "--graph", "x.svg"), "compile it first"),
        (("inspect", "net.onnx", "--layer", "a"), "compile it first"),
    ],
)
def test_what_cannot_be_drawn_is_refused(capfd, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.tow").touch()
    (tmp_path / "net.onnx").touch()
    assert main(list(arguments)) in (1, 2)
    assert said in capfd.readouterr().err
    assert not list(tmp_path.glob("x.*"))


def test_without_dot_the_install_command_is_shown(capfd, monkeypatch, tmp_path, loop_image):
    monkeypatch.setenv("TOWLINE_DOT", "/nowhere/dot")
    assert main(["firmware", "disasm", loop_image, "--graph", str(tmp_path / "x.svg")]) == 3
    assert "apt-get install graphviz" in capfd.readouterr().err

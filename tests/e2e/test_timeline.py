"""Timelines and waveforms of whole runs, read back by strict readers."""

import json
import signal
import subprocess
import sys

import pytest
from vcd.reader import TokenKind, tokenize

from emulator import board
from emulator.core.clock import HZ
from sdk import artifact
from sdk.flow_chart import Kind
from sdk.target import OpenOptions
from tests.chrome_reader import read
from towline.cli import main, run_trace

BRIDGE, PORT = "bridge ASM2464PD", "USB port of the host"
BOOTED = "220ms"
UNIT = int(10**11 / HZ)
"""Units of 10 ps in a clock."""


def waves(path):
    """(scope, signal) -> its changes as (clock, value)."""
    names, found, scope, now = {}, {}, [], 0
    with path.open("rb") as stream:
        for token in tokenize(stream):
            match token.kind:
                case TokenKind.TIMESCALE:
                    assert (token.timescale.magnitude, token.timescale.unit.value) == (10, "ps")
                case TokenKind.SCOPE:
                    scope.append(token.scope.ident)
                case TokenKind.UPSCOPE:
                    scope.pop()
                case TokenKind.VAR:
                    names[token.var.id_code] = (scope[-1], token.var.reference)
                    found[scope[-1], token.var.reference] = []
                case TokenKind.CHANGE_TIME:
                    assert token.time_change >= now
                    assert token.time_change % UNIT == 0
                    now = token.time_change
                case TokenKind.CHANGE_SCALAR:
                    found[names[token.scalar_change.id_code]].append(
                        (now // UNIT, int(token.scalar_change.value))
                    )
                case TokenKind.CHANGE_VECTOR:
                    found[names[token.vector_change.id_code]].append((now // UNIT, token.vector_change.value))
    return found


@pytest.mark.slow
def test_a_run_as_waves_and_as_a_timeline(capfd, tmp_path):
    vcd, trace = tmp_path / "run.vcd", tmp_path / "run.json"
    arguments = ["emulate", "vendor", "--for", BOOTED, "--control", "C0:E4:9100:0:1", "--json"]
    assert main([*arguments, "--vcd", str(vcd), "--trace-out", str(trace)]) == 0
    seen = json.loads(capfd.readouterr().out)["result"]
    assert main(arguments) == 0
    assert seen == json.loads(capfd.readouterr().out)["result"], "tracing changes the run"

    signals = waves(vcd)
    states = [value for _, value in signals["link", "PCIE_LTSSM"]]
    assert states[0] == 0
    assert states[-1] == 0x78, "L0"
    asserted = [clock for clock, level in signals["cpu", "INT0"] if level]
    handled = [clock for clock, level in signals["cpu", "handler_int0"] if level]
    assert asserted
    assert len(handled) >= len(asserted)
    assert signals["usb", "USB_PHY_CONTROL_SS_UP"][-1][1] == 1

    rows = read(trace)
    cpu = rows[BRIDGE]["8051"]
    assert cpu.named("main")[0].end * HZ // 10**9 >= seen["clocks"] - 1, "main never ends"
    interrupts = cpu.named("int0")
    assert len(interrupts) == len(handled)
    assert {one.category for one in interrupts} == {"interrupt"}
    assert [one.start * HZ // 10**9 for one in interrupts] == pytest.approx(handled, abs=1)
    assert any(one.category == "loop" for one in cpu.slices), "waiting is folded"
    assert any(one.name.startswith("C0 E4 9100 0000, 1 byte") for one in rows[PORT]["EP0"].slices)
    assert trace.stat().st_size < 2_000_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--vcd-signals", "usb"], "give --vcd too"),
        (["--vcd", "a.vcd", "--vcd-signals", "PCIE_LTSM"], "PCIE_LTSSM"),
        (["--vcd", "a.vcd", "--vcd-signals", "CPU_TL0"], "no register, field or block 'CPU_TL0'"),
        (["--vcd", "a.vcd", "--vcd-signals", ","], "a list that is not empty"),
        (["--vcd", ""], "--vcd needs a name"),
        (["--trace-out", ""], "--trace-out needs a name"),
        (["--vcd", "same", "--trace-out", "same"], "the same file for --vcd and --trace-out"),
    ],
)
def test_wrong_options_are_refused(capfd, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert main(["emulate", "vendor", *arguments]) == 2
    assert said in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_signals_are_chosen_by_name_and_a_replay_shows_the_same(capfd, tmp_path):
    first, again, recording = tmp_path / "a.vcd", tmp_path / "b.vcd", tmp_path / "r.txt"
    chosen = ["--vcd-signals", "TLP_STATUS,PCIE_LTSSM.*,interrupts,dma,usb,CPU_IE.EX0,CPU_TCON,CPU_P0"]
    arguments = ["--for", BOOTED, "--record", str(recording), "--vcd", str(first), *chosen]
    assert main(["emulate", "vendor", *arguments]) == 0
    assert main(["emulate", "vendor", "--replay", str(recording), "--vcd", str(again), *chosen]) == 0
    signals = waves(first)
    assert {scope for scope, _ in signals} == {"tlp", "link", "interrupts", "dma", "usb", "cpu"}
    assert [name for scope, name in signals if scope == "link"] == ["PCIE_LTSSM_STATE"]
    assert waves(again) == signals
    assert signals["cpu", "CPU_P0"] == [(0, 0xFF)]
    asserted = [clock for clock, level in signals["cpu", "INT0"] if level]
    pending = [clock for clock, value in signals["cpu", "CPU_TCON"] if value & 2]
    assert pending
    for clock in pending:
        assert any(0 <= clock - edge < 10 for edge in asserted), "IE0 follows its line"
    assert [value for _, value in signals["cpu", "CPU_IE_EX0"]][:3] == [0, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("image", ["storage", "firmware"])
def test_ctrl_c_keeps_valid_files(tmp_path, image):
    vcd, trace = tmp_path / "run.vcd", tmp_path / "run.json"
    (tmp_path / "drive.py").write_text("print('up', flush=True)\nwhile True: board.usb.clock.sleep(1e-3)\n")
    command = [sys.executable, "-m", "towline", "emulate", image, "--host", "drive.py"]
    process = subprocess.Popen(
        [*command, "--vcd", str(vcd), "--trace-out", str(trace)],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert any(line == "up\n" for line in process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
        process.communicate()
    assert read(trace)[BRIDGE]["8051"].slices
    assert waves(vcd)["cpu", "INT0"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drive.py", "run.json", "run.vcd"]


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The built-in model for some targets, unquantised calibration and all, and a picture."""
    directory = tmp_path_factory.mktemp("network")
    assert main(["demo", "--files", str(directory)]) == 0
    pictures = sorted((directory / "pictures").iterdir())
    for picture in pictures[10:]:
        picture.unlink()
    model = str(directory / "q.onnx")
    assert (
        main(
            ["quantize", str(directory / "net.onnx"), "--calibrate", str(directory / "pictures"), "-o", model]
        )
        == 0
    )

    def compiled(target):
        path = directory / f"{target}.tow"
        assert main(["compile", model, "--target", target, "-o", str(path)]) == 0
        return str(path), str(pictures[0])

    return compiled


@pytest.mark.slow
@pytest.mark.usefixtures("quiet_card")
def test_a_network_on_a_card_is_a_slice_a_layer(network, tmp_path, capfd):
    path, picture = network("amd-gfx1100")
    trace = tmp_path / "run.json"
    assert main(["run", path, "--input", picture, "--input", picture, "--trace-out", str(trace)]) == 0
    rows = read(trace)
    card = rows["card gfx1100"]
    slices = [one.name for one in card["compute pipe 0 queue 0"].slices]
    layers = [name for name in slices if name != run_trace.CHECK]
    assert run_trace.CHECK in slices
    assert layers.count("stem") == 2, "one for each inference"
    assert not any(name.startswith("kernel ") for name in layers)
    half = len(layers) // 2
    assert layers[:half] == layers[half:]
    assert len(set(layers)) == half, "layers of the same kernel have names of their own"
    assert card["sdma queue 0"].named("COPY_LINEAR")
    sent = [one for name, row in rows[PORT].items() if name.startswith("EP 0x") for one in row.slices]
    assert rows[BRIDGE]["slot DMA"].slices
    for moved in rows[BRIDGE]["slot DMA"].slices:
        assert any(one.start < moved.end <= one.end for one in sent), "it ends with its transfer"
    assert {one.depth for one in rows[BRIDGE]["TLPs"].slices} == {0}
    assert rows[BRIDGE]["TLPs"].instants
    assert min(one.start for one in rows[BRIDGE]["8051"].slices) == 0, "from power-on"
    assert card["events: psp"].instants, "bring-up is there"
    config, upload, kernels = (
        row.slices[0].start
        for row in (rows[BRIDGE]["TLPs"], rows[PORT]["EP 0x02 OUT"], card["compute pipe 0 queue 0"])
    )
    assert upload < config < kernels, "one axis"

    trace.unlink()

    def interrupted():
        with run_trace.opened(str(trace), artifact.load(path), None, OpenOptions()) as session:
            session.run(session.prepare(picture))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert read(trace)["card gfx1100"]["compute pipe 0 queue 0"].named("stem")
    assert not board.watchers

    picture = tmp_path / "project.dot"
    assert main(["inspect", path, "--graph", str(picture), "--layer", "block1/project"]) == 0
    dot = picture.read_text()
    assert "v_wmma_i32_16x16x16_iu8" in dot
    (entry,) = (line for line in dot.splitlines() if "penwidth=2," in line)
    assert '"entry:' in entry
    assert Kind.BACK.attributes in dot
    capfd.readouterr()
    assert main(["inspect", path, "--layer", "block1/project"]) == 0
    assert "v_wmma_i32_16x16x16_iu8" in capfd.readouterr().out


@pytest.mark.slow
def test_a_network_on_the_dsp_is_a_row_of_layers_in_packets(network, tmp_path, capfd):
    path, picture = network("hexagon-v65")
    trace = tmp_path / "run.json"
    assert main(["run", path, "--input", picture, "--trace-out", str(trace)]) == 0
    [(process, rows)] = read(trace).items()
    assert "not time" in process
    layers = rows["layers"].slices
    assert layers[0].name == "stem"
    assert all(one.end - one.start == one.args["packets"] for one in layers)
    assert [one.start for one in layers[1:]] == [one.end for one in layers[:-1]]
    capfd.readouterr()
    picture = tmp_path / "stem.dot"
    assert main(["inspect", path, "--graph", str(picture), "--layer", "block1/project"]) == 0
    assert "vrmpy" in picture.read_text()
    capfd.readouterr()
    assert main(["inspect", path, "--layer", "block1/project", "--json"]) == 0
    [kernel] = json.loads(capfd.readouterr().out)["result"]["kernels"]
    assert [block["label"] for block in kernel["blocks"]][:2] == ["entry", "L1"]
    assert main(["inspect", path, "--layer", "block1/project"]) == 0
    assert "vrmpy" in capfd.readouterr().out
    assert main(["inspect", path, "--layer", "nothing"]) == 2
    assert "layers: stem, " in capfd.readouterr().err


@pytest.mark.slow
def test_what_counts_nothing_has_no_timeline(network, tmp_path, capfd):
    path, picture = network("c")
    trace = tmp_path / "run.json"
    assert main(["run", path, "--input", picture, "--trace-out", str(trace)]) == 1
    assert "counts nothing" in capfd.readouterr().err
    assert not trace.exists()

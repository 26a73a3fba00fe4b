"""`towline stream`: sources, what it prints, exit codes; checks that see planted bugs."""

import json
from pathlib import Path

import numpy as np
import pytest

from sdk import artifact, compiler
from sdk.graph import MatMul
from sdk.stream import Stream
from tests.chrome_reader import read
from tests.plain_graphs import PlainBuilder
from tests.stream_device import NAME, Script, StreamTarget, register
from tests.unit.test_states import recurrent_network, renamed
from towline.cli import main


@pytest.fixture(scope="module", autouse=True)
def networks(tmp_path_factory):
    """plain.tow, y = 2 x + 1 of [1, 4]; states.tow, `recurrent_network`; bytes.tow, of uint8 [1, 6, 4]."""
    directory = tmp_path_factory.mktemp("stream")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TOWLINE_DEVICE", raising=False)
        register(patch, directory / "site")
        patch.chdir(directory)
        b = PlainBuilder(3)
        x = b.input((1, 4))
        y = b.map(lambda v: v * 2.0 + 1.0, x)
        artifact.save(compiler.compile(renamed(b.graph(y), {x: "x", y: "y"}), NAME), "plain.tow")
        artifact.save(compiler.compile(recurrent_network(), NAME), "states.tow")
        b = PlainBuilder(3)
        x = b.input((1, 6, 4), "uint8")
        y = b.map(lambda v: v + 1, x)
        artifact.save(compiler.compile(renamed(b.graph(y), {x: "x", y: "y"}), NAME), "bytes.tow")
        b = PlainBuilder(3)
        x = b.input((1, 4))
        y = b.node(MatMul, (x, b.constant((4, 5))), transposed=False)
        artifact.save(compiler.compile(renamed(b.graph(y), {x: "x", y: "y"}), NAME), "wide.tow")
        yield


@pytest.fixture(autouse=True)
def script(monkeypatch):
    """What the emulated devices do."""
    found = Script()
    monkeypatch.setattr(StreamTarget, "script", found)
    return found


def call(capsys, *argv):
    """(exit code, frames, events, the last document, stderr)."""
    code = main(["stream", *argv, "--json"])
    captured = capsys.readouterr()
    whole = captured.out.startswith("{\n")  # an error of the command line
    lines = [json.loads(line) for line in ([captured.out] if whole else captured.out.splitlines())]
    frames = [line["frame"] for line in lines if "frame" in line]
    events = [line["event"] for line in lines if "event" in line]
    return code, frames, events, lines[-1], captured.err


def test_random_frames_at_a_rate(capsys):
    code, frames, events, document, _ = call(
        capsys, "plain.tow", "--rate", "20", "--deadline", "45ms", "--frames", "30", "--check"
    )
    assert code == 0
    assert [frame["frame"] for frame in frames] == list(range(30))
    assert [event["kind"] for event in events] == ["running"]
    result = document["result"]
    assert result["frames"] == {"ok": 30, "late": 0, "fallback": 0, "dropped": 0, "lost": 0}
    assert result["wrong"] == 0
    assert result["check"]["compared"] == 30
    assert result["latency_ms"] == {"p50": 10, "p95": 10, "p99": 10, "max": 10}
    assert result["rate"] == pytest.approx(20)


def test_what_is_piped_gets_lines_without_json(capsys):
    assert main(["stream", "plain.tow", "--frames", "2"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["ok"] for line in lines[-1:]] == [True]
    assert len(lines) == 4


def test_a_source_that_is_shorter_begins_again(capsys):
    np.savez("clip.npz", x=np.arange(12, dtype=np.float32).reshape(3, 4))
    code, frames, _, _, _ = call(capsys, "plain.tow", "clip.npz", "--frames", "7")
    assert code == 0
    assert [frame["name"] for frame in frames] == [f"clip.npz[{n % 3}]" for n in range(7)]
    code, frames, _, _, _ = call(capsys, "plain.tow", "clip.npz")
    assert len(frames) == 3


def test_a_folder_of_arrays(capsys, tmp_path):
    for number in (2, 1):
        np.save(tmp_path / f"{number}.npy", np.zeros((1, 4), np.float32))
    code, frames, _, _, _ = call(capsys, "plain.tow", "--input", str(tmp_path))
    assert code == 0
    assert [frame["name"] for frame in frames] == [str(tmp_path / f"{number}.npy") for number in (1, 2)]


def test_raw_video_of_a_network_that_takes_bytes(capsys, tmp_path):
    (tmp_path / "v.yuv").write_bytes(bytes(range(48)))
    code, frames, _, document, _ = call(
        capsys, "bytes.tow", str(tmp_path / "v.yuv"), "--raw", "4x4:nv12", "--check"
    )
    assert code == 0
    assert len(frames) == 2
    assert document["result"]["wrong"] == 0


@pytest.mark.parametrize(
    ("argv", "code", "where"),
    [
        (["bytes.tow", "v.yuv", "--raw", "4x4"], "usage", "--raw 4x4"),
        (["bytes.tow", "v.yuv", "--raw", "3x8:nv12"], "usage", "--raw 3x8:nv12"),
        (["bytes.tow", "v.yuv", "--raw", "8x8:nv12"], "invalid-input", "v.yuv"),
        (["plain.tow", "v.yuv", "--raw", "4x4:nv12"], "usage", "--raw 4x4:nv12"),
        (["bytes.tow", "--raw", "4x4:nv12"], "usage", "--raw"),
        (["plain.tow", "none.npz"], "usage", "none.npz"),
        (["plain.tow", "--rate", "0"], "usage", "--rate"),
        (["plain.tow", "--deadline", "45"], "usage", "--deadline"),
        (["plain.tow", "--fallback", "none.tow@emulated"], "usage", "none.tow"),
        (["plain.tow", "--fallback", "wide.tow"], "usage", "output y"),
        (["plain.tow", "--check-against", "wide.tow"], "usage", ""),
        (["plain.tow", "--shadow"], "usage", ""),
        (["plain.tow", "--torture", "5", "--frames", "5"], "usage", "--torture"),
        (["plain.tow", "--timeline", "none/t.json"], "output-failed", "none/t.json"),
    ],
)
def test_wrong_arguments(capsys, argv, code, where):
    Path("v.yuv").write_bytes(bytes(48))
    exit_code, frames, _, document, _ = call(capsys, *argv)
    assert exit_code in (1, 2)
    assert document["error"]["code"] == code
    assert where in document["error"]["message"]
    assert frames == []


def test_a_frame_of_another_size_in_mid_stream(capsys, tmp_path):
    for number, shape in enumerate([(1, 4), (1, 4), (1, 5)]):
        np.save(tmp_path / f"{number}.npy", np.zeros(shape, np.float32))
    code, frames, _, document, _ = call(capsys, "plain.tow", str(tmp_path))
    assert code == 1
    assert document["error"]["code"] == "invalid-input"
    assert "2.npy" in document["error"]["message"]
    assert document["result"]["frames"]["ok"] == len(frames) == 2


@pytest.mark.slow
def test_torture(capsys, monkeypatch):
    monkeypatch.setattr("sdk.stream.torture.EVERY", 25)
    code, frames, _, document, _ = call(
        *(capsys, "states.tow", "--rate", "20", "--deadline", "45ms", "--torture", "200", "--check"),
        *("--checkpoint-states", "16", "--seed", "3"),
    )
    result = document["result"]
    assert code == 0
    assert len(frames) == 200
    assert (result["wrong"], result["frames"]["lost"], result["missed"]) == (0, 0, 0)
    planned = {one["fault"]: one for one in result["torture"]}
    assert sum(one["planned"] for one in planned.values()) == 8
    assert planned["nothing"]["recovered"] == 0
    assert all(0 < one["recovered"] <= one["planned"] for kind, one in planned.items() if kind != "nothing")
    assert len(result["recoveries"]) == sum(one["recovered"] for one in planned.values())
    assert any(not one["states"] for one in result["recoveries"])
    assert {one["kind"] for one in result["events"]} == {"running", "recovering"}


@pytest.mark.parametrize("bug", ["order", "double"])
def test_a_planted_bug_is_wrong(capsys, script, bug):
    # The witness is another such device, and has the script, too; but it submits nothing.
    script.bugs, script.failures = (bug,), {7: "collect"}
    code, _, _, document, _ = call(capsys, "states.tow", "--frames", "20", "--depth", "3", "--check")
    assert code == 1
    assert document["error"]["code"] == "check-failed"
    assert document["result"]["wrong"] > 0


def test_compared_with_another_session(capsys):
    code, _, _, document, _ = call(
        capsys, "states.tow", "--frames", "5", "--check-against", "states.tow@fragile"
    )
    assert code == 0
    assert document["result"]["check"]["against"] == [f"{NAME} on fragile"]
    assert document["result"]["wrong"] == 0


def test_a_fallback_and_a_device_that_is_gone(capsys, script):
    class Away(list):
        """Of the first device alone."""

        def __iter__(self):
            return iter([(0.5, 1e9)])

    script.away = Away()
    clean = Script()
    opened = []

    def by_turns(self, device, options=None):
        from tests.stream_device import StreamDevice

        opened.append(StreamDevice(clean if opened else script))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamTarget, "open", by_turns)
        code, frames, events, document, _ = call(
            capsys,
            "plain.tow",
            "--rate",
            "20",
            "--frames",
            "60",
            "--fallback",
            "plain.tow",
            "--patience",
            "1s",
        )
        assert code == 0
        assert [event["kind"] for event in events] == ["running", "recovering", "degraded", "gone"]
        assert document["result"]["frames"]["fallback"] > 40
        opened.clear()
        code, frames, events, document, _ = call(
            capsys, "plain.tow", "--rate", "20", "--frames", "60", "--patience", "1s"
        )
    assert code == 1
    assert document["error"]["code"] == "device-failed"
    assert document["result"]["frames"]["ok"] > 5
    assert len(frames) == sum(document["result"]["frames"].values())


def test_ctrl_c_prints_the_summary(capsys, monkeypatch):
    run = Stream.run

    def interrupted(self, frames):
        for result in run(self, frames):
            yield result
            if result.frame == 4:
                raise KeyboardInterrupt

    monkeypatch.setattr(Stream, "run", interrupted)
    code, frames, _, document, _ = call(capsys, "plain.tow", "--frames", "50", "--timeline", "t.json")
    assert code == 130
    assert document["error"]["code"] == "interrupted"
    assert document["result"]["frames"]["ok"] == len(frames) == 5
    assert document["result"]["frames"]["lost"] == 0
    read(Path("t.json"))


def test_a_timeline(capsys, script):
    script.failures = {7: "collect"}
    code, *_ = call(capsys, "plain.tow", "--frames", "12", "--depth", "3", "--timeline", "t.json")
    assert code == 0
    trace = json.loads(Path("t.json").read_text())["traceEvents"]
    begun = [event["name"] for event in trace if event["ph"] == "B"]
    assert [name for name in begun if name.startswith("frame")] == [f"frame {n}" for n in range(12)]
    assert [name for name in begun if not name.startswith("frame")] == ["running", "recovering", "running"]


def test_the_link_s_share_and_what_a_late_frame_is_spent_on(capsys, script):
    script.compute = 0.05
    code, _, _, document, _ = call(capsys, "plain.tow", "--rate", "20", "--deadline", "45ms", "--frames", "9")
    assert code == 0
    assert document["result"]["link"] == {"floor_ms": 5.0, "share": pytest.approx(0.1)}
    assert "b (Conv): 75%" in document["result"]["costliest"]
    code, _, _, document, _ = call(capsys, "states.tow", "--frames", "9")
    assert document["result"]["link"]["floor_ms"] == 2.0
    assert "costliest" not in document["result"]


def test_faults_that_were_planned_are_reported(capsys, monkeypatch):
    monkeypatch.setattr(
        "tests.stream_device.FragileDevice.faults", lambda self: [("a@1s", 1.0), ("b@9s", None)]
    )
    code, _, _, document, _ = call(capsys, "plain.tow", "--frames", "2")
    assert code == 0
    assert document["result"]["faults"] == [{"fault": "a@1s", "fired": 1.0}, {"fault": "b@9s", "fired": None}]


def test_frames_that_do_not_overlap_are_remarked_on(capsys):
    b = PlainBuilder(3)
    x = b.input((1, 4))
    y = b.map(lambda v: v * 2.0 + 1.0, x)
    artifact.save(compiler.compile(renamed(b.graph(y), {x: "x", y: "y"}), "c"), "c.tow")
    code, _, _, document, err = call(capsys, "c.tow", "--frames", "2")
    assert code == 0
    assert document["result"]["overlaps"] is False
    assert "overlap" in err

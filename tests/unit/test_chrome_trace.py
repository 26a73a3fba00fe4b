"""Chrome traces: what is written is what a strict reader reads."""

import pytest

from sdk import chrome_trace
from sdk.errors import OutputFailed
from tests.chrome_reader import read


def test_slices_nest_and_end_with_their_track(tmp_path):
    path = tmp_path / "t.json"
    with chrome_trace.writing(path, {"of": "a test"}) as trace:
        track = trace.track("one", "cpu")
        track.begin(1_001, 'main "quoted" \\ ü', "function", {"n": 3})
        track.slice(2_000, 2_000, "nothing", "function")
        track.instant(2_500, "event", "x")
        trace.track("two", "cpu").slice(0, 10**12 + 1, "long", "x")
        assert trace.track("one", "cpu") is track
    rows = read(path)
    assert list(rows) == ["one", "two"]
    inner, outer = rows["one"]["cpu"].slices
    assert (inner.name, inner.start, inner.end, inner.depth) == ("nothing", 2_000, 2_000, 1)
    assert (outer.name, outer.start, outer.end) == ('main "quoted" \\ ü', 1_001, 2_500), (
        "ended with the last event"
    )
    assert outer.args == {"n": 3}
    assert rows["one"]["cpu"].instants == [(2_500, "event")]
    assert rows["two"]["cpu"].slices[0].end == 10**12 + 1


def test_what_overlaps_gets_lanes_of_its_own(tmp_path):
    path = tmp_path / "t.json"
    with chrome_trace.writing(path) as trace:
        lanes = trace.lanes("card", "queue")
        for start, end in ((0, 10), (5, 12), (10, 20), (12, 21), (9, 22), (22, 23)):
            lanes.slice(start, end, f"{start}", "kernel")
    rows = {name: [(one.start, one.end) for one in row.slices] for name, row in read(path)["card"].items()}
    assert rows == {
        "queue": [(0, 10), (10, 20), (22, 23)],
        "queue (2)": [(5, 12), (12, 21)],
        "queue (3)": [(9, 22)],
    }


def test_a_file_is_whole_or_absent(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("before")
    with pytest.raises(ZeroDivisionError), chrome_trace.writing(path) as trace:
        trace.track("a", "b").slice(0, 1 // 0, "never")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OutputFailed), chrome_trace.writing(tmp_path / "no" / "t.json"):
        pass

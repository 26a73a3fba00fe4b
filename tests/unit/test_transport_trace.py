"""Traces: recorded, read, and replayed in place of the device."""

from __future__ import annotations

import json

import pytest

from sdk.errors import InvalidInput, OutputFailed
from tests.contract.loopback_function import BULK, ECHO, LOOPBACK, REFUSED, SINK
from tests.unit.test_transport import Rig
from usbgpu import transport
from usbgpu.transport import Abandoned, Differs, Stalled, TimedOut, trace

OUT, IN = 0x40, 0xC0


def program(device) -> list:
    """Calls with every outcome, and what each returned or raised."""
    found = [device.identify().serial, device.speed, device.place, device.packet_size]
    device.control_out(OUT, ECHO, data=b"there")
    found.append(device.control_in(IN, ECHO, length=64))
    device.control_out(OUT, BULK, LOOPBACK)
    room = bytearray(3000)
    back = [device.submit(device.in_call(room)), device.submit(device.in_call(bytearray(1024)))]
    device.bulk_out(bytes(range(250)) * 12)
    device.bulk_out(b"short")
    back[0].result()
    found += [bytes(room), back[0].received, back[1].result(), bytes(back[1].call.into[: back[1].received])]
    device.bulk_out(bytes(1024))
    for act in (
        lambda: device.control_in(IN, REFUSED, 1, 2, 4),
        lambda: device.bulk_in(4096, timeout=0.5),
        lambda: device.bulk_out(bytes(4096), timeout=0.25),
    ):
        try:
            act()
        except (Stalled, TimedOut) as problem:
            found.append((type(problem), str(problem), getattr(problem, "data", None)))
            found.append(getattr(problem, "transferred", None))
    device.reset()
    device.control_out(OUT, BULK, SINK)
    device.control_out(0x02, 3, 0, 2)
    sent = [device.submit(device.out_call(bytes(2048))) for _ in range(2)]
    for each, kind in zip(sent, (Stalled, Abandoned), strict=True):
        with pytest.raises(kind) as problem:
            each.result()
        found.append(str(problem.value))
    device.clear_halt(2)
    device.clock.sleep(1.0)
    return found


@pytest.fixture
def recorded(tmp_path):
    """A trace, and what the program found."""
    path = tmp_path / "trace.jsonl"
    with Rig().attach() as device, trace.record(device, path):
        found = program(device)
    return path, found


def test_a_recording_answers_as_the_device_did(recorded):
    path, found = recorded
    with transport.open(f"replay:{path}") as device:
        assert device.name == f"replay:{path}"
        assert device.is_emulated
        assert program(device) == found
        assert device.remaining == 0
        assert device.clock.now() > 1.0
        with pytest.raises(Differs, match="ends before control C0:A0:0:0:4"):
            device.control_in(IN, ECHO, length=4)


def test_the_recording_of_a_replay_is_the_same(recorded, tmp_path):
    path, _ = recorded
    again = tmp_path / "again.jsonl"
    with transport.open(f"replay:{path}") as device, trace.record(device, again):
        program(device)

    def calls(path):
        lines = sorted(
            (line for line in map(json.loads, path.read_text().splitlines()[1:])), key=lambda x: x["n"]
        )
        first = lines[0]["n"]
        return [{**line, "t": None, "n": line["n"] - first} for line in lines]

    assert calls(again) == calls(path)


def test_the_first_call_that_differs_is_refused(recorded):
    path, _ = recorded
    device = transport.open(f"replay:{path}")
    device.identify()
    with pytest.raises(Differs) as differs:
        device.control_out(OUT, ECHO, data=b"here")
    assert "control 40:A0:0:0:4 (68 65 72 65); recorded is control 40:A0:0:0:5 (74 68" in str(differs.value)
    assert ", line " in str(differs.value)
    device.control_out(
        OUT, ECHO, data=b"there", timeout=99
    )  # the entry is still there; its time-out may differ
    device.control_in(IN, ECHO, length=64)
    device.control_out(OUT, BULK, LOOPBACK)
    device.submit(device.in_call(bytearray(3000)))
    device.submit(device.in_call(bytearray(1024)))
    with pytest.raises(
        Differs, match=r"3000 bytes with SHA-256 [0-9a-f]{16}\.\.\.; recorded is EP 0x02, 3000"
    ):
        device.bulk_out(bytes(3000))


def test_payloads_are_kept_as_digests_unless_all_is_requested(recorded, tmp_path):
    path, _ = recorded
    entries = list(trace.entries(path.read_text().splitlines()))
    assert any(isinstance(entry.sent, trace.Digest) and entry.sent.size == 3000 for entry in entries)
    assert path.stat().st_size < 10_000
    whole = tmp_path / "whole.jsonl"
    with Rig().attach() as device, trace.record(device, whole, whole=True):
        program(device)
    entries = list(trace.entries(whole.read_text().splitlines()))
    assert not any(isinstance(entry.sent, trace.Digest) for entry in entries)
    assert any(entry.sent == bytes(range(250)) * 12 for entry in entries)


def test_a_block_that_fails_leaves_its_trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    with pytest.raises(Stalled), Rig().attach() as device, trace.record(device, path):
        device.control_in(IN, REFUSED, length=1)
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["outcome"] == "stalled"
    assert last["message"]
    assert [each.name for each in tmp_path.iterdir()] == ["trace.jsonl"]


def test_a_trace_that_cannot_be_written(tmp_path):
    with (
        Rig().attach() as device,
        pytest.raises(OutputFailed),
        trace.record(device, tmp_path / "nowhere" / "trace.jsonl"),
    ):
        pytest.fail("the block began")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], "empty"),
        (lambda lines: ["{}"], "version 1"),
        (lambda lines: ["[]"], "line 1 is not"),
        (lambda lines: ['{"trace":1}'], "line 1 does not describe"),
        (lambda lines: [lines[0], lines[1][:20]], "line 2 is not"),
        (lambda lines: [lines[0], '{"call":{"kind":"control","into":1},"outcome":"ok"}'], "unknown"),
        (lambda lines: [lines[0], '{"call":{"kind":"reset"},"outcome":"ok","t":[1]}'], "line 2"),
        (lambda lines: [lines[0], '{"call":{"kind":"control","value":1.5},"outcome":"ok"}'], "line 2"),
        (lambda lines: [lines[0], '{"call":{"kind":"reset"},"outcome":"ok","n":1e999}'], "line 2"),
        (lambda lines: [lines[0], "[" * 100_000], "line 2"),
        (lambda lines: [lines[0], '{"call":{"kind":"reset"},"outcome":"ok","data":{"bytes":9}}'], "line 2"),
        (
            lambda lines: [
                lines[0],
                '{"call":{"kind":"reset"},"outcome":"ok","data":{"bytes":9,"zlib":"eJwDAAAAAAE="}}',
            ],
            "another length",
        ),
    ],
)
def test_damaged_traces_are_refused(recorded, tmp_path, change, message):
    lines = recorded[0].read_text().splitlines()
    path = tmp_path / "other.jsonl"
    path.write_text("".join(f"{line}\n" for line in change(lines)))
    with pytest.raises(InvalidInput, match=message):
        transport.open(f"replay:{path}")


def test_files_that_are_not_traces(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        transport.open(f"replay:{tmp_path / 'nothing'}")
    with pytest.raises(InvalidInput, match="cannot be read"):
        transport.open(f"replay:{tmp_path}")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(InvalidInput, match="trace"):
        transport.open(f"replay:{tmp_path / 'binary'}")

"""A strict reader of Chrome traces, for the events that ours have: what Perfetto imports without an error."""

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Slice:
    name: str
    start: int
    end: int
    category: str
    args: dict
    depth: int


@dataclass
class Row:
    """A thread: its finished slices in order of their ends, and its instants; times in ns."""

    slices: list[Slice] = field(default_factory=list)
    instants: list[tuple[int, str]] = field(default_factory=list)

    def named(self, name: str) -> list[Slice]:
        return [one for one in self.slices if one.name == name]


def read(path: Path) -> dict[str, dict[str, Row]]:
    """Rows by process and thread name. An AssertionError says what is wrong."""
    document = json.loads(path.read_text())
    assert document["displayTimeUnit"] == "ns"
    processes: dict[int, str] = {}
    threads: dict[tuple[int, int], str] = {}
    rows: dict[tuple[int, int], Row] = {}
    stacks: dict[tuple[int, int], list[Slice]] = {}
    last: dict[tuple[int, int], int] = {}
    for event in document["traceEvents"]:
        where = event["pid"], event["tid"]
        if event["ph"] == "M":
            if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                assert where not in threads
                threads[where] = event["args"]["name"]
            else:
                assert event["name"] in ("process_sort_index", "thread_sort_index")
                assert isinstance(event["args"]["sort_index"], int)
            continue
        assert where in threads, event
        assert event["pid"] in processes, event
        time = round(event["ts"] * 1000)
        assert last.get(where, 0) <= time, f"time goes back: {event}"
        last[where] = time
        row, stack = rows.setdefault(where, Row()), stacks.setdefault(where, [])
        match event["ph"]:
            case "B":
                stack.append(Slice(event["name"], time, -1, event["cat"], event.get("args", {}), len(stack)))
            case "E":
                assert stack, f"nothing to end: {event}"
                assert event["name"] == stack[-1].name, f"the end of another slice: {event}"
                stack[-1].end = time
                row.slices.append(stack.pop())
            case "i":
                assert event["s"] == "t"
                row.instants.append((time, event["name"]))
            case other:
                raise AssertionError(f"an event of kind {other}")
    assert not any(stacks.values()), "slices without an end"
    found: dict[str, dict[str, Row]] = {}
    for (pid, tid), row in rows.items():
        found.setdefault(processes[pid], {})[threads[pid, tid]] = row
    return found

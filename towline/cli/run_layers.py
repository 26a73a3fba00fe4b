"""`towline run -v`: the layers that cost most, as the device counts."""

from __future__ import annotations

from sdk.report import stderr_width, table
from sdk.session import Session

COUNTERS = {
    "packets": "packets",
    "wave_instructions": "wave instructions",
    "device_us": "microseconds on the device",
    "issue_slots": "issue slots",
}
"""The counter of a layer's cost, and its name in words; the first that a device counts is shown."""

SHOWN = 10


def costliest(session: Session) -> str | None:
    """The most expensive layer, in a sentence; None as `most_expensive`."""
    layers = session.profile().layers
    for counter, words in COUNTERS.items():
        counts = [layer.counters.get(counter, 0) for layer in layers]
        if any(counts):
            most = max(range(len(counts)), key=counts.__getitem__)
            share = f"{counts[most] / sum(counts):.0%} of all {words}"
            return f"the most expensive layer is {layers[most].name} ({layers[most].op}): {share}"
    return None


def most_expensive(session: Session) -> str | None:
    """The layers with the highest counts; None where the device counts no cost by layer.

    Counting takes one more inference, on inputs at their zero-points; the counts depend on no input.
    """
    layers = session.profile().layers
    counter = next((name for name in COUNTERS if any(name in layer.counters for layer in layers)), None)
    if counter is None:
        return None
    counts = {index: layer.counters.get(counter, 0) for index, layer in enumerate(layers)}
    total = sum(counts.values())
    order = sorted(counts, key=lambda index: -counts[index])[:SHOWN]
    rows = [
        (layers[index].name, layers[index].op, counts[index], 100 * counts[index] / total if total else None)
        for index in order
    ]
    words = COUNTERS[counter]
    title = (
        f"the {len(rows)} most expensive of {len(layers)} layers, by {words} ({total:,.0f} in all layers), "
        "counted in one more inference:"
    )
    return f"{title}\n{table(('layer', 'operator', words, 'share %'), rows, width=stderr_width())}"

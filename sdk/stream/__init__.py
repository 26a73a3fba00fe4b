"""Networks on streams of frames: a rate, deadlines, several frames in flight, recovery from failures.

`stream` has the machine; `chain` knows what is in flight on a session, and the way of its states; `feed`
takes frames when they are due; `standby` is the fallback; `care` looks after the device's heat and power, of
which `pace` decides what the heat allows; `records` and `summary` are what is reported;
`replay` computes results again, and compares.
"""

from sdk.stream.pace import Limits
from sdk.stream.records import Event, Inference, Notice, Recovered, Result, State, Status, Times
from sdk.stream.stream import Stream
from sdk.stream.summary import Summary

__all__ = [
    "Event",
    "Inference",
    "Limits",
    "Notice",
    "Recovered",
    "Result",
    "State",
    "Status",
    "Stream",
    "Summary",
    "Times",
]

"""Networks on streams of frames: a rate, deadlines, several frames in flight, recovery from failures.

`stream` has the machine; `chain` knows what is in flight on a session, and the way of its states; `feed`
takes frames when they are due; `standby` is the fallback; `records` and `summary` are what is reported;
`replay` computes results again, and compares.
"""

from sdk.stream.records import Event, Inference, Recovered, Result, State, Status, Times
from sdk.stream.stream import Stream
from sdk.stream.summary import Summary

__all__ = ["Event", "Inference", "Recovered", "Result", "State", "Status", "Stream", "Summary", "Times"]

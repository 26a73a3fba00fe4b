"""The process behind an emulated session: closing it ends whoever waits for its answer."""

import os
import signal
import subprocess
import threading

import pytest

from sdk.child import Child
from sdk.errors import DeviceFailed


def test_closing_ends_a_thread_that_waits_for_an_answer():
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child = Child(process, lambda status: DeviceFailed(f"it stopped: {status}"))
    os.kill(process.pid, signal.SIGSTOP)
    waits = threading.Event()
    problems = []

    def ask():
        try:
            with child.exchange(b"?"):
                waits.set()
                child.receive(1)
        except DeviceFailed as problem:
            problems.append(problem)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert waits.wait(20)
    closing = threading.Thread(target=child.close, daemon=True)
    closing.start()
    closing.join(20)
    asking.join(20)
    try:
        assert not closing.is_alive()
        assert ["-9" in str(problem) for problem in problems] == [True]
    finally:
        process.kill()
    with pytest.raises(DeviceFailed, match="closed"), child.exchange(b"?"):
        pass

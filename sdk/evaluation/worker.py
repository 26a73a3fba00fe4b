"""A process that evaluates items one after the other: `main`, which `spread` starts.

Messages are pickles behind their length, 8 bytes, little-endian. The first one is the Job, and is not
answered; each later one is an Item, answered with its Record or with the exception that it caused. The
process ends with its input.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from sdk.errors import InternalError, TowlineError

LENGTH = struct.Struct("<Q")


def framed(message: Any) -> bytes:
    """A message as it is sent."""
    data = pickle.dumps(message)
    return LENGTH.pack(len(data)) + data


def received(read: Callable[[int], bytes]) -> Any:
    """The next message.

    Raises:
        EOFError: there is none.
    """
    (length,) = LENGTH.unpack(_exactly(read, LENGTH.size))
    return pickle.loads(_exactly(read, length))


def _exactly(read: Callable[[int], bytes], count: int) -> bytes:
    data = read(count)
    if len(data) != count:
        raise EOFError
    return data


def _serve(given: BinaryIO, answers: BinaryIO) -> None:
    from sdk.evaluation.compute import Evaluator

    job = received(given.read)
    evaluator = None
    try:
        while True:
            item = received(given.read)
            try:
                evaluator = evaluator or Evaluator(job)
                answer: Any = evaluator.evaluate(item)
            except TowlineError as problem:
                answer = problem
            except Exception as problem:  # a bug of ours; it travels as text, whatever it holds
                answer = InternalError(
                    f"{type(problem).__name__}: {problem}", where=f"evaluating {item.name}"
                )
            answers.write(framed(answer))
            answers.flush()
    except EOFError:
        pass
    finally:
        if evaluator is not None:
            evaluator.close()


def main() -> None:
    """Serve standard input; what else is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, answers)

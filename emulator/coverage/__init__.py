"""Which lines and branches of a firmware have run, summed over any number of boards, processes and runs.

    program = Program.of("firmware")
    with transport.attach(board.backend()) as device:
        recording = Recording(board, program.build)
        ...
    print(Report(program, recording.taken()).text())

`data` is what has been counted, by address, and its file; `recording` gets it from a board's CPU;
`environment` does that for every board of a process, if TOWLINE_COVERAGE names a file; `program` knows what
can be reached, and where it comes from; `report` and `page` put the two together.
"""

from emulator.coverage.data import PLACES, Coverage, build_of
from emulator.coverage.page import page
from emulator.coverage.program import Program, Side
from emulator.coverage.recording import Recording
from emulator.coverage.report import Report

__all__ = ["PLACES", "Coverage", "Program", "Recording", "Report", "Side", "build_of", "page"]

"""A terminal of 80 columns: a `towline` command in a pseudo-terminal, and what is seen there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

COLUMNS, ROWS = 80, 30
_CODE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Screen:
    """Lines as they are seen; it knows what rich sends, and refuses the rest."""

    def __init__(self):
        self.lines = [""]
        self.row = self.column = 0

    def feed(self, text):
        at = 0
        while at < len(text):
            if (code := _CODE.match(text, at)) is not None:
                self._control(code[1], code[2])
                at = code.end()
                continue
            self._character(text[at])
            at += 1

    def _control(self, arguments, letter):
        count = int(arguments) if arguments.isdigit() else 1
        if letter == "A":
            self.row = max(0, self.row - count)
        elif letter == "K":
            assert arguments == "2"
            self.lines[self.row] = ""
        else:
            assert letter in "mhl", letter  # colours, and the cursor's visibility

    def _character(self, one):
        if one == "\r":
            self.column = 0
        elif one == "\n":
            self.row += 1
            if self.row == len(self.lines):
                self.lines.append("")
        else:
            assert one.isprintable(), repr(one)
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + one + line[self.column + 1 :]
            self.column += 1

    @property
    def text(self):
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


class Terminal:
    """A `towline` command in a pseudo-terminal."""

    def __init__(self, *argv, **environment):
        self.screen = Screen()
        self.raw = ""
        self._own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "towline", *argv],
            stdin=other,
            stdout=other,
            stderr=other,
            env=os.environ | {"TERM": "xterm"} | environment,
            start_new_session=True,
        )
        os.close(other)

    def until(self, wanted, seconds=20.0):
        """Read until the screen has a text. Returns the screen's text."""
        end = time.monotonic() + seconds
        while wanted not in self.screen.text:
            assert time.monotonic() < end, self.screen.text
            if not self.read(0.2):
                assert wanted in self.screen.text, self.screen.text
        return self.screen.text

    def interrupt(self):
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def end(self, seconds=20.0):
        """Wait for its end: the exit code."""
        deadline = time.monotonic() + seconds
        while self.read(0.2):
            assert time.monotonic() < deadline
        return self.process.wait(seconds)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._own)

    def read(self, seconds):
        """Take what it writes within these seconds; False once it has ended."""
        ready, _, _ = select.select([self._own], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._own, 1 << 16).decode()
        except OSError:
            return False
        self.raw += data
        self.screen.feed(data)
        return bool(data)

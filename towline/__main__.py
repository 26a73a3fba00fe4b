"""The entry point of `towline` and of `python -m towline`.

Importing the command line takes a moment; Ctrl-C during it is an interruption like any other.
"""

import sys


def main() -> int:
    """Run the command line; the exit code."""
    try:
        from towline.cli import main as command_line

        return command_line()
    except KeyboardInterrupt:
        print("towline: error: interrupted; nothing half-written is left", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())

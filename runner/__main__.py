"""The commands `sbx` and `sbx-runner`, and `python -m runner`."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Runs the command line and ends with its exit code; an error is one message, never a stack trace."""
    signal.signal(signal.SIGTERM, _terminated)
    # There are none, and looking for them at the import of pydantic costs a tenth of a start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    arguments = sys.argv[1:]
    try:
        if arguments in ([], ["-h"], ["--help"]):
            from runner.cli.table import root_help

            sys.stdout.write(root_help())
            code = 0 if arguments else 2
        elif arguments == ["--version"]:
            from runner import __version__

            print(f"sbx {__version__}")
            code = 0
        elif arguments[:1] == ["_complete"]:
            from runner.cli.names import complete

            code = complete(arguments[1:])
        else:
            from runner.cli.app import run

            code = run(arguments)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        code = 0
    _leave(code)


def _terminated(number: int, frame: FrameType | None) -> None:
    from runner.errors import Interrupted

    raise Interrupted(signal.Signals(number))


def _leave(code: int) -> None:
    """Ends the process. A reader that went away is no reason for a message at the interpreter's end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()

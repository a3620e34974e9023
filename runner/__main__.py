"""The commands `sbx` and `sbx-runner`, and `python -m runner`."""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Runs the command line and ends with its exit code; an error is one message, never a stack trace."""
    _open_closed()
    # Starting makes many objects that stay; looking through them again and again costs a tenth of it.
    gc.set_threshold(100_000, 20, 20)
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


def _open_closed() -> None:
    """Gives /dev/null to a standard stream that the caller closed: the next file opened would take its number, and be
    read or written in its place."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115 - a descriptor, for good


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

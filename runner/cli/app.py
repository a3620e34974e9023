"""All commands, put together, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import errno
import signal
from difflib import get_close_matches

import typer
from typer._click.exceptions import ClickException

from runner.cli.failing import report
from runner.cli.lazy import Commands
from runner.errors import Interrupted, SbxError, UsageError

app = typer.Typer(
    cls=Commands,
    name="sbx",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.callback()
def _root() -> None:
    """`--help` and `--version` of `sbx` itself are answered before any of this is imported (`runner.__main__`)."""


EXEC_FAILED = 125
"""Of `sbx exec`: sbx or the engine failed. Any other code is the command's own, as `docker exec` has it."""


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
"""What the system says when it is the user's disk that refuses."""


def asks_for_json(arguments: list[str]) -> bool:
    """Errors are to be JSON on stdout. What `exec` hands to its command is not for us."""
    if arguments[:1] == ["exec"]:
        return False
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in ours or "--events" in ours


def _message(error: ClickException) -> str:
    near = getattr(error, "possibilities", None)
    name = getattr(error, "option_name", "")
    if name:
        closest = get_close_matches(name, near or (), n=1, cutoff=0.0)
        return f"there is no option {name}" + (f"; did you mean {closest[0]}?" if closest else "")
    return error.format_message()


def _usage(error: ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path} --help` shows what it takes" if context else "`sbx --help`"


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code."""
    as_json = asks_for_json(arguments)
    try:
        result = app(args=arguments, prog_name="sbx", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        interrupted = Interrupted(signal.SIGINT)
        if as_json:
            report(interrupted, as_json=True)
        return interrupted.exit_code
    except ClickException as error:
        usage = UsageError(_message(error), hint=_usage(error))
        report(usage, as_json=as_json)
        return EXEC_FAILED if arguments[0] == "exec" else usage.exit_code
    except SbxError as error:
        report(error, as_json=as_json)
        return EXEC_FAILED if arguments[0] == "exec" else error.exit_code
    except Exception as error:
        report(_unexpected(error), as_json=as_json)
        return EXEC_FAILED if arguments[0] == "exec" else 1


def _unexpected(error: Exception) -> SbxError:
    """A mistake of ours, or a disk that is full. The trace goes to a file, for a report; the user gets one message."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        where = str(error.filename or "") or "the output"
        return SbxError(f"{where} cannot be written: {error.strerror}", hint="free some space, or write elsewhere")
    import traceback

    from runner.gateway.redaction import masked
    from runner.session.state import Folders, private

    text = masked("".join(traceback.format_exception(error)))
    try:
        path = private(Folders.of().state) / "last-crash.txt"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(text)
        hint = f"this is a mistake in sbx; the trace is in {path}"
    except OSError:
        hint = "this is a mistake in sbx"
    return SbxError(masked(f"{type(error).__name__}: {error}"), hint=hint)

"""All commands, put together, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import sys

import typer
from typer._click.exceptions import ClickException

from runner.cli.failing import report
from runner.cli.lazy import Commands
from runner.errors import SbxError

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


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code."""
    try:
        result = app(args=arguments, prog_name="sbx", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except typer.Exit as leaving:
        return leaving.exit_code
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except ClickException as error:
        error.show(sys.stderr)
        return 2
    except SbxError as error:
        report(error, as_json="--json" in arguments or "--events" in arguments)
        return error.exit_code
    except Exception as error:
        report(_unexpected(error), as_json="--json" in arguments)
        return 1


def _unexpected(error: Exception) -> SbxError:
    """A mistake of ours. Its trace goes to a file, for a report; the user gets one message."""
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

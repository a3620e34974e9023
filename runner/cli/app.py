"""All commands, put together, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import sys

import typer
from typer._click.exceptions import ClickException

from runner import __version__
from runner.cli import doctor, log
from runner.cli import run as run_command
from runner.cli.failing import report
from runner.errors import SbxError

app = typer.Typer(
    name="sbx",
    help="Run an LLM agent, its tool calls and its hooks inside a throwaway hardened container.",
    epilog="Try it: sbx run hooks-demo --demo -p 'Which files are here?'    Then: sbx doctor",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"sbx {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


app.command("run")(run_command.run)
app.command("log")(log.log)
app.command("report")(log.report)
app.add_typer(log.session_app, name="session")
app.command("doctor")(doctor.doctor)


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

    from runner.session.state import Folders, private

    text = "".join(traceback.format_exception(error))
    try:
        path = private(Folders.of().state) / "last-crash.txt"
        path.write_text(text)
        hint = f"this is a mistake in sbx; the trace is in {path}"
    except OSError:
        hint = "this is a mistake in sbx"
    return SbxError(f"{type(error).__name__}: {error}", hint=hint)

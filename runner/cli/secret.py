"""`sbx secret`: which secrets kits may use, where they come from, and to which domains they may go."""

from __future__ import annotations

import json
import os
import sys

import typer

secret_app = typer.Typer(help="Credentials for kits: bind, list, remove, check.", no_args_is_help=True)

MAX_SECRET = 64 * 1024
"""Most bytes of a secret."""


@secret_app.command("set")
def set_secret(
    service: str = typer.Argument(..., help="The service, as kits name it."),
    domain: list[str] = typer.Option([], "--domain", help="HOST[:PORT] that the secret may go to. Repeatable."),
    env: str = typer.Option("", "--env", help="Take it from this variable of sbx's environment at each run."),
    file: str = typer.Option("", "--file", help="Take it from this file at each run."),
    command: str = typer.Option("", "--command", help="Take it from this command's output at each run."),
) -> None:
    """Bind a secret. Without --env, --file or --command it is read from stdin, on a terminal without echo, and kept."""
    from runner.errors import UsageError
    from runner.gateway import bindings
    from runner.gateway.credentials import credentials_path, load

    sources = [("env", [env]), ("file", [file]), ("command", _words(command))]
    given = [(kind, words) for kind, words in sources if any(words)]
    if len(given) > 1:
        raise UsageError("one of --env, --file and --command")
    bindings.secret_path(service, os.environ)
    earlier = load(credentials_path(os.environ)).get(service)
    domains = domain or ([pattern.text for pattern in earlier.domains] if earlier else [])
    if not domains:
        raise UsageError("say where the secret may go: --domain HOST", hint="a kit must not choose where a token goes")
    if given:
        kind, words = given[0]
        bindings.bind(service, kind, words, domains, os.environ)
        if not (kind == "file" and words[0] == str(bindings.secret_path(service, os.environ))):
            bindings.secret_path(service, os.environ).unlink(missing_ok=True)
    else:
        path = bindings.keep(service, _read(service), os.environ)
        bindings.bind(service, "file", [str(path)], domains, os.environ)
    print(f"{service}: bound, for {', '.join(domains)}")


@secret_app.command("ls")
def list_secrets(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """List what is bound: where each secret comes from and where it may go. No secret is read or shown."""
    from runner.frontends.safe import safe_line
    from runner.gateway.credentials import credentials_path, load

    found = load(credentials_path(os.environ))
    rows = [
        {
            "service": name,
            "kind": binding.kind,
            "source": list(binding.source),
            "domains": [pattern.text for pattern in binding.domains],
        }
        for name, binding in sorted(found.items())
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        source = " ".join(row["source"]) if row["kind"] != "command" else row["source"][0]
        print(safe_line(f"{row['service']:<20} {row['kind']:<8} {source:<40} {', '.join(row['domains'])}", 400))


@secret_app.command("rm")
def remove_secrets(services: list[str] = typer.Argument(..., help="Services.")) -> None:
    """Remove bindings, and the secrets that are kept here."""
    from runner.gateway import bindings

    for service in services:
        bindings.unbind(service, os.environ)
        print(service)


@secret_app.command("check")
def check_secrets(
    services: list[str] = typer.Argument(None, help="Services; all when left out."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> int:
    """Say of each binding whether its secret can be had. It is fetched and not shown. Code 2: one cannot."""
    from runner.errors import ConfigError, NotFoundError
    from runner.frontends.safe import safe_line
    from runner.gateway.credentials import credentials_path, load

    found = load(credentials_path(os.environ))
    wanted = list(services or sorted(found))
    rows: list[dict[str, object]] = []
    for name in wanted:
        if name not in found:
            raise NotFoundError(f"no credential {name!r} is bound", hint=f"bound are: {', '.join(found) or 'none'}")
        try:
            found[name].fetch(os.environ)
            rows.append({"service": name, "ok": True, "problem": ""})
        except ConfigError as error:
            rows.append({"service": name, "ok": False, "problem": error.message})
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(safe_line(f"{row['service']}: {'ok' if row['ok'] else row['problem']}", 400))
    return 0 if all(row["ok"] for row in rows) else 2


def _words(command: str) -> list[str]:
    import shlex

    from runner.errors import UsageError

    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--command: {error}") from None


def _read(service: str) -> str:
    """The secret, from stdin; a terminal does not show it."""
    from runner.errors import UsageError

    if sys.stdin.isatty():
        import getpass

        return getpass.getpass(f"The secret for {service}: ").strip()
    raw = sys.stdin.buffer.read(MAX_SECRET + 1)
    if len(raw) > MAX_SECRET:
        raise UsageError(f"the secret is over {MAX_SECRET} bytes")
    try:
        return raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise UsageError("the secret is not UTF-8") from None

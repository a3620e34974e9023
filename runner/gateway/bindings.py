"""Writes `credentials.yaml`, and keeps secrets that the user gave to `sbx` itself.

A kept secret is a file of its own beside it, `secrets/SERVICE`, readable by its owner only; the binding names it as
any other file. What a person wrote in `credentials.yaml` stays, comments too: only the service's own lines change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, NotFoundError, UsageError
from runner.gateway.credentials import Binding, credentials_path, load
from runner.gateway.redaction import SHORTEST

SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def secret_path(service: str, environ: Mapping[str, str]) -> Path:
    """Where a kept secret lies. Raises UsageError for what cannot be a service's name."""
    if not SERVICE.fullmatch(service):
        raise UsageError(f"{service!r} is not a service's name: letters, digits, . _ -")
    return credentials_path(environ).parent / "secrets" / service


def keep(service: str, secret: str, environ: Mapping[str, str]) -> Path:
    """Keeps a secret; its file is made private before anything is in it.

    Raises:
        UsageError: it is too short to be masked, or cannot stand in a header.
    """
    if len(secret) < SHORTEST or not secret.isascii() or not secret.isprintable():
        raise UsageError(f"a secret has at least {SHORTEST} characters, printable ASCII ones")
    path = secret_path(service, environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    _write(path, secret + "\n")
    return path


def bind(service: str, kind: str, source: list[str], domains: list[str], environ: Mapping[str, str]) -> Binding:
    """Binds a service, in place of an earlier binding.

    Args:
        kind: `env`, `file` or `command`.
        source: the variable, the path, or the command's words.

    Raises:
        ConfigError: the file, or the new binding, is wrong; the file is then as it was.
    """
    secret_path(service, environ)
    path = credentials_path(environ)
    entry: dict[str, Any] = {kind: source if kind == "command" else source[0], "domains": domains}
    before = _text(path)
    _replace(path, before, service, entry)
    try:
        return load(path)[service]
    except ConfigError:
        _write(path, before) if before else path.unlink()
        raise


def unbind(service: str, environ: Mapping[str, str]) -> None:
    """Removes a service's binding, and the secret if it was kept here. Raises NotFoundError."""
    path = credentials_path(environ)
    found = load(path)
    kept = secret_path(service, environ)
    if service not in found and not kept.exists():
        raise NotFoundError(f"no credential {service!r} is bound", hint=f"bound are: {', '.join(found) or 'none'}")
    if service in found:
        _replace(path, _text(path), service, None)
    kept.unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        raise ConfigError("the file cannot be read", place=str(path)) from None


def _replace(path: Path, text: str, service: str, entry: dict[str, Any] | None) -> None:
    """Takes the service's lines out, and puts the new ones at the end."""
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        raise ConfigError("the file cannot be read as YAML", place=str(path)) from None
    lines = text.splitlines(keepends=True)
    if isinstance(node, yaml.MappingNode):
        if node.flow_style:
            document = yaml.safe_load(text)
            document.pop(service, None)
            lines = yaml.safe_dump(document, sort_keys=False).splitlines(keepends=True) if document else []
        else:
            for key, value in node.value:
                if key.value == service:
                    end = value.end_mark.line + (1 if value.end_mark.column else 0)
                    # A mapping ends where the next thing begins: what is a comment or empty before that stays.
                    while end > key.start_mark.line + 1 and not lines[end - 1].startswith((" ", "\t", "-")):
                        end -= 1
                    del lines[key.start_mark.line : end]
                    break
    elif node is not None:
        raise ConfigError("must be a mapping of services", place=str(path))
    text = "".join(lines)
    if text and not text.endswith("\n"):
        text += "\n"
    if entry is not None:
        text += yaml.safe_dump({service: entry}, sort_keys=False)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(path, text)


def _write(path: Path, text: str) -> None:
    """Writes a file of mode 0600 whole, or not at all."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)

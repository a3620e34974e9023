"""Which of the model's URLs is used, once a session: the first where a model server answers.

A URL is taken when `GET {url}/models` answers with a list of models. "Nobody is there" (refused, unresolvable, no
connection in time, refused by the gateway) means "next". Whatever does answer there decides: an error of a real
server, or a page of something else, is reported and not stepped over, or a prompt would go to another server than the
user meant.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from runner.guest.model import failure
from runner.guest.model.client import LOADING_POLL, RETRIED
from runner.guest.model.failure import ModelFailure
from runner.guest.model.items import Waiting
from runner.guest.model.reading import no_model_server
from runner.guest.model.transport import connection_failure
from runner.guest.model.waiting import NEWS_EVERY, Patience, Silence, abandon

PROBE_TIMEOUT = 5.0
"""Seconds for one question about the context window; its failure is no error."""
MAX_MODELS = 20
"""Names that a warning lists."""
MAX_LIST = 4 * 1024 * 1024
"""Most bytes of a model list or a probe's answer."""
BUSY_TRIES = 5
"""Questions for the list of models to a server that says that it is busy."""

STUB_PROPS = frozenset({"llmman"})
"""Providers whose `/props` is a stub that says nothing true."""


@dataclass(frozen=True)
class Resolved:
    """The model server of this session."""

    url: str
    model: str
    """The model's name: the configured one, or the first listed."""
    models: tuple[str, ...]
    """What the server lists."""
    tried: tuple[tuple[str, str], ...]
    """(url, reason) of those that did not answer, in order."""
    warnings: tuple[str, ...]
    context_window: int
    """Tokens, 0 when nobody tells."""


async def resolve(
    urls: Sequence[str],
    client: httpx.AsyncClient,
    *,
    model: str = "",
    provider: str = "",
    context_window: int = 0,
    first_token_timeout: float = 180.0,
    on_wait: Callable[[Waiting], None] = lambda waiting: None,
    news_every: float = NEWS_EVERY,
    loading_poll: float = LOADING_POLL,
) -> Resolved:
    """Finds the server.

    Args:
        urls: base URLs in the order they are tried.
        model: the configured name; empty takes the first listed.
        context_window: tokens, as configured; wins over what the server tells.
        first_token_timeout: seconds that one URL may take, a model that loads included.
        on_wait: told while a server lets us wait.

    Raises:
        ModelFailure: none answered, or one did and is no usable model server; lists every URL with its own reason.
    """
    tried: list[tuple[str, str]] = []
    for url in (u.rstrip("/") for u in urls):
        patience = Patience(first_token_timeout, news_every)
        try:
            entries = await _models(client, url, patience, on_wait, loading_poll)
        except _Next as reason:
            tried.append((url, str(reason)))
            continue
        except ModelFailure as failed:
            tried.append((url, failed.message.removeprefix(f"{url}: ")))
            raise ModelFailure(failed.kind, _listed("the model server is of no use", tried), hint=failed.hint) from None
        return await _resolved(client, url, entries, tried, model, provider, context_window)
    hint = "start the model server, or set baseUrl in agent.yaml; `--demo` runs without a model"
    raise ModelFailure("unreachable", _listed("no model server answers", tried), hint=hint)


class _Next(Exception):
    """Nobody is at this URL."""


def _listed(what: str, tried: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"{what}:", *(f"  {url}: {reason}" for url, reason in tried)])


async def _models(
    client: httpx.AsyncClient,
    url: str,
    patience: Patience,
    on_wait: Callable[[Waiting], None],
    loading_poll: float,
) -> list[Any]:
    busy = 0
    while True:
        task = asyncio.create_task(_get(client, f"{url}/models"))
        try:
            while not await patience.step(task):
                on_wait(Waiting(round(patience.quiet, 1), f"{url} has not answered yet"))
            status, headers, body = task.result()
            why = _wait_reason(status, body)
            if not why:
                return _entries(url, status, headers, body)
            busy += not failure.is_loading(why)
            if busy >= BUSY_TRIES:
                raise ModelFailure("busy", f"{url}: HTTP {status}: {why}")
            on_wait(Waiting(round(patience.quiet, 1), f"{url}: {why}"))
            pause = asyncio.create_task(asyncio.sleep(loading_poll))
            try:
                while not await patience.step(pause):
                    pass
            finally:
                await abandon(pause)
        except httpx.HTTPError as error:
            failed = connection_failure(error, url)
            if failed.kind in ("unreachable", "refused"):
                raise _Next(failed.message.removeprefix(f"{url}: ")) from None
            raise failed from None
        except Silence as silence:
            raise ModelFailure(
                "timeout",
                f"{url}: not ready within {silence.seconds:g} s (firstTokenTimeout)",
                hint="raise the timeout",
            ) from None
        finally:
            await abandon(task)


def _wait_reason(status: int, body: bytes) -> str:
    """Why an answer may be another one soon; empty when it will not."""
    if status not in RETRIED or failure.is_page("", body):
        return ""
    return failure.error_text(body) or f"HTTP {status}"


def _entries(url: str, status: int, headers: httpx.Headers, body: bytes) -> list[Any]:
    if 300 <= status < 400:
        raise no_model_server(body, f"HTTP {status}, a redirect to {headers.get('location', 'nowhere')}")
    if failure.is_page(headers.get("content-type", ""), body):
        raise no_model_server(body, f"HTTP {status}, {failure.first_line(body)}")
    if status != 200:
        hint = "the server wants a key" if status in (401, 403) else ""
        raise ModelFailure("http", f"{url}: HTTP {status}: {failure.error_text(body)}", hint=hint)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise no_model_server(body) from None
    entries = document.get("data") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise no_model_server(body)
    return entries


async def _resolved(
    client: httpx.AsyncClient,
    url: str,
    entries: list[Any],
    tried: list[tuple[str, str]],
    model: str,
    provider: str,
    context_window: int,
) -> Resolved:
    by_name = {name: entry for entry in entries if (name := _name(entry))}
    warnings = []
    if model and by_name and model not in by_name and f"{model}:latest" not in by_name:
        names = list(by_name)
        more = f" and {len(names) - MAX_MODELS} more" if len(names) > MAX_MODELS else ""
        warnings.append(f"the server does not list the model {model!r}; it lists {', '.join(names[:MAX_MODELS])}{more}")
    if not model:
        if not by_name:
            tried.append((url, "lists no model"))
            raise ModelFailure("http", _listed("no model is named, and the server lists none", tried), hint="set model")
        model = next(iter(by_name))
    window = context_window
    if not window:
        entry = by_name.get(model) or by_name.get(f"{model}:latest") or {}
        window, warning = await _window(client, url, model, provider, entry if isinstance(entry, dict) else {})
        warnings += [warning] if warning else []
    return Resolved(url, model, tuple(by_name), tuple(tried), tuple(warnings), window)


def _name(entry: object) -> str:
    if isinstance(entry, dict):
        entry = entry.get("id") or entry.get("name") or entry.get("model")
    return entry if isinstance(entry, str) else ""


async def _window(
    client: httpx.AsyncClient, url: str, model: str, provider: str, entry: dict[str, Any]
) -> tuple[int, str]:
    """(tokens, warning): what the server truly serves, by the server's own way of telling it."""
    if tokens := _positive(entry.get("max_model_len")):
        return tokens, ""  # vLLM
    root = url.removesuffix("/v1")
    owner = str(entry.get("owned_by", "")).lower()
    if provider == "llamacpp" or (owner == "llamacpp" and provider not in STUB_PROPS):
        props = await _probe(client, "GET", f"{root}/props")
        settings = props.get("default_generation_settings")
        return _positive(settings.get("n_ctx")) if isinstance(settings, dict) else 0, ""
    if provider == "ollama" or owner == "library":
        return _ollama(await _probe(client, "POST", f"{root}/api/show", {"model": model}))
    if provider == "lmstudio" or owner == "organization_owner":
        return _lm_studio(await _probe(client, "GET", f"{root}/api/v0/models"), model), ""
    return 0, ""


def _ollama(shown: dict[str, Any]) -> tuple[int, str]:
    parameters = shown.get("parameters")
    for line in parameters.splitlines() if isinstance(parameters, str) else ():
        name, _, value = line.strip().partition(" ")
        if name == "num_ctx" and value.strip().isdigit():
            return int(value), ""
    info = shown.get("model_info")
    for key, value in info.items() if isinstance(info, dict) else ():
        if str(key).endswith(".context_length") and (tokens := _positive(value)):
            return tokens, (
                f"Ollama tells the model's own context of {tokens} tokens and may serve less, cutting prompts without "
                "a word: set num_ctx or OLLAMA_CONTEXT_LENGTH there, and contextWindow in agent.yaml"
            )
    return 0, ""


def _lm_studio(listed: dict[str, Any], model: str) -> int:
    entries = listed.get("data")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("id") == model:
            return _positive(entry.get("loaded_context_length")) or _positive(entry.get("max_context_length"))
    return 0


def _positive(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


async def _probe(client: httpx.AsyncClient, method: str, url: str, body: object = None) -> dict[str, Any]:
    """A probe's answer; empty when there is none that can be used."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT):
            status, _, answer = await _get(client, url, method=method, body=body)
        document = json.loads(answer) if status == 200 else None
    except (httpx.HTTPError, TimeoutError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


async def _get(
    client: httpx.AsyncClient, url: str, *, method: str = "GET", body: object = None
) -> tuple[int, httpx.Headers, bytes]:
    async with client.stream(method, url, json=body) as response:
        parts, size = [], 0
        async for chunk in response.aiter_bytes():
            parts.append(chunk)
            size += len(chunk)
            if size > MAX_LIST:
                break
        return response.status_code, response.headers, b"".join(parts)

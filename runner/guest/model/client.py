"""One request to the model: sent, retried where that helps, streamed, bounded, cancelled at once.

A request is retried only before its first byte of an answer. What a stream has begun is finished or failed, never
switched or repeated: the user has seen it.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import httpx
import tenacity

from runner.guest.model import failure
from runner.guest.model.answer import Accumulator, AnswerTooLarge
from runner.guest.model.failure import ModelFailure
from runner.guest.model.history import to_request
from runner.guest.model.items import Item, Notice, ReasoningDelta, Retrying, TextDelta, ToolSpec, Waiting
from runner.guest.model.reading import MAX_ERROR_BODY, Events, Reader, no_model_server, reader_for
from runner.guest.model.sse import EventTooLarge
from runner.guest.model.transport import Refused, connection_failure
from runner.guest.model.waiting import NEWS_EVERY, Patience, Silence, abandon

AFTER_FINISH = 5.0
"""Seconds that a server may take from the finish reason to the end of its stream."""
LOADING_POLL = 1.0
"""Seconds between two requests while the server says that it loads the model."""
RETRIED = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses that pass by themselves."""
NEEDED = frozenset({"model", "messages", "tools", "stream"})
"""Keys that are never left out of a request."""
CHARACTERS_A_TOKEN = 4
"""For an estimate where the server counted nothing."""
NEARLY_FULL = 0.9
"""Part of the context window from which on an empty answer means overflow."""


@dataclass(frozen=True)
class Retry:
    """How a request that the server could not take is tried again."""

    attempts: int = 6
    first: float = 0.5
    """Seconds before the second attempt; doubled each time, with as much jitter again."""
    longest: float = 15.0
    """Seconds between two attempts, at most."""
    total: float = 60.0
    """Seconds from the first attempt to the last, at most; a Retry-After beyond it fails at once."""


class _TryAgain(Exception):
    def __init__(self, failed: ModelFailure, after: float = 0.0) -> None:
        super().__init__(failed.message)
        self.failed = failed
        self.after = after


class _StillLoading(Exception):
    pass


class _KeysRefused(Exception):
    def __init__(self, keys: list[str], text: str) -> None:
        super().__init__(text)
        self.keys = keys


class Model:
    """A model on a server that `resolve` found.

    Args:
        client: from `transport.client`.
        url: the base URL, without a slash at its end.
        name: the model's name, as the server lists it.
        sampling: sent with every request; `stream: false` in it asks for whole answers.
        first_token_timeout: seconds until the first real delta, retries and a model that loads included.
        watchdog_timeout: seconds of silence between two deltas.
        context_window: tokens, 0 when unknown.
        retry: bounds of the retries.
        news_every: seconds between two Waiting items.
        loading_poll: seconds between two requests while the server loads the model.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        name: str,
        *,
        sampling: Mapping[str, Any] | None = None,
        first_token_timeout: float = 180.0,
        watchdog_timeout: float = 180.0,
        context_window: int = 0,
        retry: Retry | None = None,
        news_every: float = NEWS_EVERY,
        loading_poll: float = LOADING_POLL,
    ) -> None:
        self.url = url.rstrip("/")
        self.name = name
        self.context_window = context_window
        self._client = client
        self._sampling = dict(sampling or {})
        self._stream = self._sampling.pop("stream", True) is not False
        self._first_token_timeout = first_token_timeout
        self._watchdog_timeout = watchdog_timeout
        self._retry = retry or Retry()
        self._news_every = news_every
        self._loading_poll = loading_poll
        self._dropped: set[str] = set()

    async def stream(
        self,
        history: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        model: str = "",
        more: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Item, None]:
        """Asks for the next answer and yields it as it comes; the last item is the Answer.

        Cancelling the task that iterates closes the connection. A reader that stops early closes the iterator
        (`contextlib.aclosing`).

        Args:
            history: messages as `history` describes; sent by its rules.
            tools: offered in this order.
            model: another model of the same server, for this request.
            more: further keys of this request, such as `response_format`.

        Raises:
            ModelFailure: with what had arrived of the answer.
        """
        sampling = {**self._sampling, **(more or {})}
        request = to_request(history, tools, model=model or self.name, sampling=sampling, stream=self._stream)
        for key in self._dropped:
            request.pop(key, None)
        patience = Patience(self._first_token_timeout, self._news_every)
        pause = 0.0
        attempts = 0

        async def note(seconds: float) -> None:
            nonlocal pause
            pause = seconds  # slept below, where it can be told

        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._retry.attempts) | tenacity.stop_before_delay(self._retry.total),
            wait=self._pause,
            retry=tenacity.retry_if_exception_type(_TryAgain),
            sleep=note,
            reraise=True,
        )
        again: _TryAgain | None = None
        try:
            async for attempt in retrying:
                attempts += 1
                if again:
                    yield Retrying(attempts, str(again), round(pause, 3))
                    await asyncio.sleep(pause)
                again = None
                try:
                    async with aclosing(self._attempt(request, tools, patience)) as items:
                        async for item in items:
                            yield item
                except _TryAgain as error:
                    again = error
                with attempt:
                    if again:
                        raise again
        except _TryAgain as error:
            raise _given_up(error.failed, attempts) from None

    def _pause(self, state: tenacity.RetryCallState) -> float:
        growing = tenacity.wait_exponential(multiplier=self._retry.first, max=self._retry.longest)
        base = growing(state) + tenacity.wait_random(0, self._retry.first)(state)
        error = state.outcome.exception() if state.outcome else None
        return max(base, error.after if isinstance(error, _TryAgain) else 0.0)

    async def _attempt(
        self, request: dict[str, Any], tools: Sequence[ToolSpec], patience: Patience
    ) -> AsyncGenerator[Item, None]:
        """One attempt, with what needs no attempt of its own: a model that loads, a key that is dropped."""
        dropped = False
        while True:
            try:
                async with aclosing(self._once(request, tools, patience)) as items:
                    async for item in items:
                        yield item
                return
            except _StillLoading as loading:
                yield Waiting(round(patience.quiet, 1), f"the server loads the model: {loading}")
                rest = asyncio.create_task(asyncio.sleep(self._loading_poll))
                try:
                    while not await patience.step(rest):
                        pass
                except Silence as silence:
                    raise ModelFailure(
                        "timeout",
                        f"{self.url} was still loading the model after {silence.seconds:g} s (firstTokenTimeout)",
                        hint="raise firstTokenTimeout in agent.yaml, or load the model beforehand",
                    ) from None
                finally:
                    await abandon(rest)
            except _KeysRefused as refused:
                if dropped:
                    raise ModelFailure("http", f"{self.url} answered HTTP 400: {refused}") from None
                dropped = True
                for key in refused.keys:
                    self._dropped.add(key)
                    request.pop(key, None)
                yield Notice(f"the server does not take {', '.join(refused.keys)}; left out from now on ({refused})")

    async def _once(
        self, request: dict[str, Any], tools: Sequence[ToolSpec], patience: Patience
    ) -> AsyncGenerator[Item, None]:
        """One HTTP request."""
        accumulator = Accumulator()
        body = json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        task = asyncio.create_task(self._send(body))
        try:
            while not await patience.step(task):
                yield Waiting(round(patience.quiet, 1), "the server has not answered yet")
            response = task.result()
            if response.status_code != 200:
                raise self._meaning(response, await _error_body(response, patience), request)
            async with aclosing(self._read(response, accumulator, patience)) as items:
                async for item in items:
                    yield item
            if accumulator.written_call(tools):
                yield Notice("the model wrote a tool call as text; it is shown and was not run")
            if failed := self._nothing(accumulator, len(body)):
                raise failed
            yield accumulator.answer(tools)
        except Silence as silence:
            raise _with_partial(self._silent(silence, accumulator), accumulator) from None
        except (AnswerTooLarge, EventTooLarge) as error:
            raise _with_partial(ModelFailure("too-large", str(error)), accumulator) from None
        except httpx.HTTPError as error:
            failed = connection_failure(error, self.url, begun=task.done() and not task.exception())
            if failed.kind == "unreachable" and isinstance(error, Refused):
                raise _TryAgain(failed) from None
            raise _with_partial(failed, accumulator) from None
        except ModelFailure as failed:
            raise _with_partial(failed, accumulator) from None
        finally:
            await abandon(task)
            if not task.cancelled() and not task.exception():
                await task.result().aclose()

    async def _send(self, body: bytes) -> httpx.Response:
        accept = "text/event-stream" if self._stream else "application/json"
        headers = {"content-type": "application/json", "accept": accept}
        request = self._client.build_request("POST", f"{self.url}/chat/completions", content=body, headers=headers)
        return await self._client.send(request, stream=True)

    async def _read(
        self, response: httpx.Response, accumulator: Accumulator, patience: Patience
    ) -> AsyncGenerator[Item, None]:
        reader: Reader | None = None
        head = b""
        try:
            async with aclosing(_chunks(response, patience)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Waiting):
                        yield chunk
                        continue
                    if reader is None:
                        head += chunk
                        reader = reader_for(head, ended=False)
                        if reader is None:
                            continue
                        chunk = head
                    for item in self._take(reader, chunk, accumulator, patience):
                        yield item
                    if reader.done:
                        break
        except (Silence, httpx.HTTPError):
            if not accumulator.finish:
                raise
            # all that matters has come
        else:
            if reader is None:
                reader = reader_for(head, ended=True) or Events()
                for item in self._take(reader, head, accumulator, patience):
                    yield item
            if not reader.done:
                for item in self._take(reader, None, accumulator, patience):
                    yield item
        for item in accumulator.close():
            yield item
        if not accumulator.finish and accumulator.deltas and not (reader and reader.done):
            raise ModelFailure("broken", "the answer broke off: the stream ended without a finish reason")

    def _take(
        self, reader: Reader, chunk: bytes | None, accumulator: Accumulator, patience: Patience
    ) -> Iterator[TextDelta | ReasoningDelta]:
        deltas, finish = accumulator.deltas, accumulator.finish
        for document in reader.take(chunk):
            yield from accumulator.take(document)
        if deltas != accumulator.deltas:
            patience.heard(self._watchdog_timeout)
        if finish != accumulator.finish:
            patience.heard(min(AFTER_FINISH, self._watchdog_timeout))

    # ---- what went wrong

    def _meaning(self, response: httpx.Response, body: bytes, request: Mapping[str, Any]) -> Exception:
        status = response.status_code
        if 300 <= status < 400:
            return no_model_server(body, f"HTTP {status}, a redirect to {response.headers.get('location', 'nowhere')}")
        if failure.is_page(response.headers.get("content-type", ""), body):
            return no_model_server(body, f"HTTP {status}, {failure.first_line(body)}")
        text = failure.error_text(body) or response.reason_phrase
        said = f"{self.url} answered HTTP {status}: {text}"
        if status == 413 or (status != 429 and failure.is_overflow(text)):
            return ModelFailure("overflow", f"the conversation does not fit the model's context: {text}")
        if status == 503 and failure.is_loading(text):
            return _StillLoading(text)
        if status in RETRIED and "insufficient_quota" not in text:
            return _TryAgain(ModelFailure("busy", said), _retry_after(response))
        if status in (400, 422) and (keys := failure.keys_named(text, request.keys() - NEEDED)):
            return _KeysRefused(sorted(keys), text)
        hint = "the server wants a key: see the provider's part of the documentation" if status in (401, 403) else ""
        return ModelFailure("http", said, hint=hint)

    def _nothing(self, accumulator: Accumulator, sent: int) -> ModelFailure | None:
        """The failure when the answer holds nothing to show or run."""
        if not accumulator.empty:
            return None
        limited = any(self._sampling.get(key) for key in ("max_tokens", "max_completion_tokens"))
        cut_off = accumulator.finish == "length"
        if cut_off and accumulator.reasoned:
            return None  # reasoning that was cut off
        prompt = accumulator.usage.get("prompt_tokens") or sent // CHARACTERS_A_TOKEN
        full = self.context_window and prompt >= NEARLY_FULL * self.context_window
        if full or (cut_off and not limited):
            return ModelFailure(
                "overflow",
                f"the model answered with nothing: about {prompt} tokens do not fit its context"
                + (f" of {self.context_window}" if self.context_window else ""),
            )
        what = "with reasoning only, and no answer" if accumulator.reasoned else "with nothing at all"
        return ModelFailure(
            "empty", f"the model answered {what}" + (" (max_tokens left no room)" if cut_off else ""), hint="ask again"
        )

    def _silent(self, silence: Silence, accumulator: Accumulator) -> ModelFailure:
        if accumulator.deltas:
            said = f"{self.url} went silent in mid-answer for {silence.seconds:g} s (watchdogTimeout)"
        else:
            said = f"{self.url} sent no token within {silence.seconds:g} s (firstTokenTimeout)"
        return ModelFailure("timeout", said, hint="raise the timeout in agent.yaml if the model is only slow")


def _given_up(failed: ModelFailure, attempts: int) -> ModelFailure:
    times = f" (given up after {attempts} attempts)" if attempts > 1 else ""
    return ModelFailure(failed.kind, failed.message + times, partial=failed.partial, hint=failed.hint)


async def _chunks(response: httpx.Response, patience: Patience) -> AsyncGenerator[bytes | Waiting, None]:
    """A body's bytes as they come, and news while they do not. Raises Silence and httpx.HTTPError."""
    async with aclosing(cast("AsyncGenerator[bytes, None]", response.aiter_bytes())) as body:
        while True:
            task = asyncio.create_task(_next(body))
            try:
                while not await patience.step(task):
                    yield Waiting(round(patience.quiet, 1), "the server is silent")
                chunk = task.result()
            finally:
                await abandon(task)
            if chunk is None:
                return
            yield chunk


async def _next(body: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(body, None)


async def _error_body(response: httpx.Response, patience: Patience) -> bytes:
    """The beginning of an error's body; less when the connection breaks."""
    body = b""
    with contextlib.suppress(Silence, httpx.HTTPError):
        async with aclosing(_chunks(response, patience)) as chunks:
            async for chunk in chunks:
                body += chunk if isinstance(chunk, bytes) else b""
                if len(body) >= MAX_ERROR_BODY:
                    break
    return body[:MAX_ERROR_BODY]


def _with_partial(failed: ModelFailure, accumulator: Accumulator) -> ModelFailure:
    if failed.partial is None and accumulator.deltas:
        accumulator.close()
        failed.partial = accumulator.answer()
    return failed


def _retry_after(response: httpx.Response) -> float:
    value = response.headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0

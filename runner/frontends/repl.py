"""The conversation on a terminal.

One prompt is always there. While no turn runs, a line is a question; while one runs, it steers; while a person is
asked, it is the answer. What a session says scrolls above the prompt; the answer's unfinished line and the spinner
stand in the prompt itself, since text without a line end cannot be put above it.

Ctrl-C ends the turn that runs, Ctrl-D the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, create_app_session
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth

from runner.errors import SbxError, TurnError
from runner.frontends.banner import banner_lines
from runner.frontends.history import PassedHistory
from runner.frontends.render import Renderer, error_lines
from runner.frontends.safe import safe, safe_line, strict
from runner.frontends.session import SessionLike
from runner.frontends.terminal import Output, Styled, painted
from runner.wire.messages import Ask, Event

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.12
REDRAW_SECONDS = 0.03
"""The prompt is drawn no more often than this, however fast the answer comes."""
CANCEL_SECONDS = 10.0
"""How long the end of the program waits for a turn to end."""
CONSENT_LINES = 400
"""Lines of a call's input that are shown for consent."""
STREAMED = 8 * 1024 * 1024
"""Characters of an answer that are remembered as shown."""
CHOICES = ("once", "session", "reject", "never")

HELP = (
    ("/new", "begin a fresh conversation in the same sandbox"),
    ("/compact", "have the model sum the conversation up, to make room"),
    ("/log", "show this session's record"),
    ("/help", "this list"),
    ("/quit", "end (so does Ctrl-D)"),
)


@dataclass(frozen=True)
class Command:
    """A further slash command. `run` gets the rest of the line and returns what to show."""

    help: str
    run: Callable[[str], Awaitable[Sequence[Styled]]]


class _Scroll:
    """What stands above the prompt. Written at once, from the event loop only, with the prompt taken away meanwhile.

    prompt_toolkit's own ways do not fit: `patch_stdout` writes from a thread, which at times meets the prompt half
    drawn; `run_in_terminal` leaves the raw mode for a moment, in which a Ctrl-D is lost and a Ctrl-C is a signal.
    """

    def __init__(self, output: Output, app: Application[Any]):
        self.output = output
        self._app = app

    def lines(self, lines: Iterable[Styled]) -> None:
        self.write("".join(painted(line, self.output.colour) + "\n" for line in lines))

    def write(self, text: str) -> None:
        if not text:
            return
        if not self._app.is_running:
            self.output.write(text)
            return
        renderer = self._app.renderer
        renderer.erase()
        self.output.write(text)
        renderer.reset()
        renderer.request_absolute_cursor_position()
        self._app.invalidate()


@dataclass
class _Question:
    """A person is asked, and has not answered."""

    ask: Ask
    answer: asyncio.Future[dict[str, Any]]


class Repl:
    """The front end of a person on a terminal.

    Args:
        session: started already.
        history: the file of typed lines (`Folders.history`).
        log: gives the lines of `/log`.
        commands: further slash commands by name, without the slash.
    """

    def __init__(
        self,
        session: SessionLike,
        history: Path,
        *,
        log: Callable[[], Sequence[Styled]] | None = None,
        commands: Mapping[str, Command] | None = None,
    ):
        self._session = session
        self._history = PassedHistory(history)
        self._log = log
        self._commands = dict(commands or {})
        self._renderer = Renderer(waits=None, commentary=False)
        self._turn: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._question: _Question | None = None
        self._asking = asyncio.Lock()
        self._done = False
        self._stale = False
        self._failure: BaseException | None = None
        self._draft = ""
        self._steered: list[str] = []
        """Lines for the turn that runs, of which no event has said that it took them."""
        self._asked = False
        self._partial = ""
        self._streamed: list[str] = []
        """What was shown of the answer, up to `STREAMED` characters; in pieces, for a long one comes in many."""
        self._streamed_size = 0
        self._status = ""
        self._since = 0.0
        self._prompt: PromptSession[str | None]
        self._out: _Scroll

    async def run(self) -> int:
        """Converse until the person leaves. Returns the exit code; what is not an SbxError is raised."""
        loop = asyncio.get_running_loop()
        self._session.on_ask = self._ask
        with create_app_session():
            output = Output(sys.stdout)
            self._prompt = PromptSession(
                history=self._history,
                key_bindings=self._keys(),
                erase_when_done=True,
                color_depth=None if output.colour else ColorDepth.DEPTH_1_BIT,
                enable_open_in_editor=False,
            )
            self._prompt.app.min_redraw_interval = REDRAW_SECONDS
            self._out = _Scroll(output, self._prompt.app)
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
            try:
                self._out.lines(banner_lines(self._session.banner))
                self._out.lines([Styled("  /help lists the commands", "dim")])
                # Raw from the first prompt to the last, so that no key is lost between two.
                with self._prompt.app.input.raw_mode():
                    await self._lines()
            finally:
                loop.remove_signal_handler(signal.SIGINT)
                await self._end()
        if isinstance(self._failure, SbxError):
            return int(self._failure.exit_code)
        if self._failure is not None:
            raise self._failure
        return 0

    # ---- lines typed ------------------------------------------------------------------------------------------------

    async def _lines(self) -> None:
        while not self._done:
            self._stale = False
            draft = "" if self._question else self._draft
            if not self._question:
                self._draft = ""
            try:
                line = await self._prompt.prompt_async(
                    self._message, default=draft, handle_sigint=False, pre_run=self._check
                )
            except EOFError:
                return
            if line is not None:
                await self._line(line)

    async def _line(self, line: str) -> None:
        if self._question is not None:
            self._reply(self._question, line)
            return
        if not line.strip():
            return
        self._break_line()
        self._out.lines([Styled("› " + "\n  ".join(safe(line).split("\n")), "bold")])
        name, _, rest = line.strip().partition(" ")
        if re.fullmatch(r"/[a-z-]+", name):
            await self._command(name[1:], rest.strip())
        elif self._turn is not None:
            self._steered.append(line)
            await self._session.steer(line)
        else:
            self._start(line)

    async def _command(self, name: str, rest: str) -> None:
        if name in ("quit", "exit"):
            self._done = True
        elif name == "help":
            self._out.lines(self._help())
        elif name == "log":
            lines = self._log() if self._log else [Styled("this session has no record", "dim")]
            self._out.lines(lines)
        elif name not in ("new", "compact") and name not in self._commands:
            self._out.lines([Styled(f"there is no /{name}; /help lists what there is", "yellow")])
        elif self._turn is not None:
            self._out.lines([Styled("a turn runs; Ctrl-C ends it", "yellow")])
        elif name == "compact":
            self._start_turn(self._session.compact(), "compacting")
            self._completed = True  # what is typed meanwhile is the next question
        else:
            try:
                if name == "new":
                    await self._session.new()
                    self._out.lines([Styled("a fresh conversation", "dim")])
                else:
                    self._out.lines(await self._commands[name].run(rest))
            except SbxError as error:
                self._fail(error)

    def _help(self) -> list[Styled]:
        further = [(f"/{name}", command.help) for name, command in sorted(self._commands.items())]
        lines = [Styled(f"  {name:<12} {text}", "dim") for name, text in sorted([*HELP, *further])]
        keys = "  Ctrl-C ends the turn, Ctrl-D the program; a line typed while a turn runs steers it"
        return [*lines, Styled(keys, "dim")]

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            self._interrupt()

        return keys

    def _interrupt(self) -> None:
        if self._turn is not None:
            self._status = "ending the turn"
            self._later(self._session.cancel())
            if self._question is not None:
                self._settle(self._question, _nothing(self._question.ask))
        elif self._prompt.app.is_running and self._prompt.default_buffer.text:
            self._prompt.default_buffer.reset()
        else:
            self._out.lines([Styled("Ctrl-D or /quit ends", "dim")])

    def _later(self, work: Awaitable[None]) -> None:
        async def do() -> None:
            try:
                await work
            except SbxError as error:
                self._fail(error)

        task = asyncio.create_task(do())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # ---- a turn -----------------------------------------------------------------------------------------------------

    def _start(self, prompt: str) -> None:
        self._start_turn(self._session.ask(prompt), "thinking")

    def _start_turn(self, events: AsyncIterator[Event], status: str) -> None:
        self._begin(status)
        self._asked = self._completed = False
        self._turn = asyncio.create_task(self._run_turn(events))

    async def _run_turn(self, events: AsyncIterator[Event]) -> None:
        self._partial = ""
        self._forget_streamed()
        spinner = asyncio.create_task(self._spin())
        try:
            async for event in events:
                self._event(event)
        except SbxError as error:
            self._fail(error)
        except Exception as error:
            self._failure, self._done = error, True
        finally:
            self._break_line()
            spinner.cancel()
            self._turn = None
            self._status = ""
            if not self._done:
                self._late_lines()
            self._wake()

    def _late_lines(self) -> None:
        """Lines that came too late for their turn, such as while its last hooks ran, are the next question."""
        late, self._steered = self._steered, []
        if late and self._completed:
            self._start("\n".join(late))
        else:
            self._out.lines(Styled(f"not taken: {safe_line(line)}", "yellow") for line in late)

    def _event(self, event: Event) -> None:
        data = event.data
        match event.name:
            case "turn.question":
                self._history.passed(str(data.get("prompt", "")))
                self._taken()
            case "turn.blocked":
                self._taken()
            case "model.request":
                self._begin("waiting for the model")
                self._forget_streamed()
            case "model.wait":
                self._status = safe_line(str(data.get("why") or "waiting for the model"), 60)
            case "model.reasoning":
                if self._status != "thinking":
                    self._begin("thinking")
            case "model.delta":
                self._stream(str(data.get("text", "")))
                return
            case "model.retry":
                self._forget_streamed()
            case "tool.start":
                self._begin(f"running {safe_line(str(data.get('name', '')), 40)}")
            case "turn.end":
                self._completed = data.get("status") in ("completed", "stopped")
                self._break_line()
                answer = str(data.get("answer") or "")
                if answer.strip() and not self._was_shown(answer.strip()):
                    self._out.write(safe(answer.rstrip("\n")) + "\n")
        lines = self._renderer.lines(event)
        if lines:
            self._break_line()
            self._out.lines(lines)

    def _taken(self) -> None:
        if self._asked and self._steered:
            self._steered.pop(0)
        self._asked = True

    def _stream(self, text: str) -> None:
        if not self._streamed:
            self._begin("answering")
        if self._streamed_size <= STREAMED:
            self._streamed.append(text)
            self._streamed_size += len(text)
        self._partial += text
        ended, newline, rest = self._partial.rpartition("\n")
        size = shutil.get_terminal_size()
        room = max(200, size.columns * size.lines // 3)
        if newline:
            self._partial = rest
            self._out.write(safe(ended + "\n"))
        text, begin = self._partial, 0
        while len(text) - begin > room:
            # More than the prompt can hold: broken at a space, as the terminal itself would.
            at = text.rfind(" ", begin, begin + room) + 1 or begin + room
            self._out.write(safe(text[begin:at]).rstrip() + "\n")
            begin = at
        self._partial = text[begin:]
        self._prompt.app.invalidate()

    def _forget_streamed(self) -> None:
        self._streamed.clear()
        self._streamed_size = 0

    def _was_shown(self, answer: str) -> bool:
        shown = "".join(self._streamed).strip()
        return answer.startswith(shown) if self._streamed_size > STREAMED else answer == shown

    def _break_line(self) -> None:
        if self._partial:
            self._out.write(safe(self._partial) + "\n")
            self._partial = ""

    def _begin(self, status: str) -> None:
        self._status = status
        self._since = time.monotonic()

    async def _spin(self) -> None:
        while True:
            await asyncio.sleep(FRAME_SECONDS)
            self._prompt.app.invalidate()

    def _fail(self, error: SbxError) -> None:
        self._out.lines(error_lines(error))
        if not isinstance(error, TurnError):
            self._failure, self._done = error, True
            self._wake()

    # ---- questions to the person ------------------------------------------------------------------------------------

    async def _ask(self, ask: Ask) -> dict[str, Any]:
        async with self._asking:
            self._break_line()
            self._out.lines(_consent_lines(ask) if ask.kind == "consent" else _question_lines(ask))
            question = _Question(ask, asyncio.get_running_loop().create_future())
            self._question = question
            # What was typed so far was not meant as the answer: it comes back afterwards.
            self._wake()
            try:
                return await question.answer
            finally:
                self._question = None
                self._wake()

    def _reply(self, question: _Question, line: str) -> None:
        word = line.strip()
        if question.ask.kind != "consent":
            self._out.lines([Styled(f"› {safe(word)}", "bold")])
            self._settle(question, {"answer": word})
            return
        fitting = [choice for choice in CHOICES if word and choice.startswith(word.lower())]
        if len(fitting) == 1:
            self._out.lines([Styled(f"› {fitting[0]}", "bold")])
            self._settle(question, {"choice": fitting[0]})
        else:
            self._out.lines([Styled(f"answer with one of: {', '.join(CHOICES)}", "yellow")])

    def _settle(self, question: _Question, answer: dict[str, Any]) -> None:
        if not question.answer.done():
            question.answer.set_result(answer)
        if self._question is question:
            self._question = None

    # ---- the prompt -------------------------------------------------------------------------------------------------

    def _message(self) -> StyleAndTextTuples:
        parts: StyleAndTextTuples = []
        if self._partial:
            parts.append(("", safe(self._partial) + "\n"))
        if self._question is not None:
            word = "run it? once, session, reject, never" if self._question.ask.kind == "consent" else "answer"
            parts.append(("bold", f"{word} › "))
            return parts
        if self._turn is not None:
            passed = time.monotonic() - self._since
            frame = FRAMES[int(passed / FRAME_SECONDS) % len(FRAMES)]
            parts.append(("ansibrightblack", f"{frame} {self._status} {passed:.0f} s "))
        parts.append(("bold", "› "))
        return parts

    def _wake(self) -> None:
        """Have the prompt begin anew with what is now to be shown; the text in it is kept."""
        self._stale = True
        app = self._prompt.app
        if app.is_running and app.future is not None and not app.future.done():
            if text := self._prompt.default_buffer.text:
                self._draft = text
            app.exit(result=None)

    def _check(self) -> None:
        """A wake that came while no prompt was there counts for the one that begins."""
        if self._stale:
            self._wake()

    async def _end(self) -> None:
        if self._question is not None:
            self._settle(self._question, _nothing(self._question.ask))
        if self._turn is not None:
            with contextlib.suppress(SbxError):
                await self._session.cancel()
        if (turn := self._turn) is not None:
            _, running = await asyncio.wait([turn], timeout=CANCEL_SECONDS)
            for each in running:
                each.cancel()
                await asyncio.wait([each], timeout=CANCEL_SECONDS)
        for each in [*self._background]:
            each.cancel()


def _nothing(ask: Ask) -> dict[str, Any]:
    return {"choice": "reject"} if ask.kind == "consent" else {"answer": None}


def _consent_lines(ask: Ask) -> list[Styled]:
    """The call as it will run, whole, with every invisible character shown."""
    data = ask.data
    name = strict(str(data.get("name", ""))[:200]).replace("\n", "\\n")
    arguments = data.get("input")
    lines = [Styled(f"{name} asks to run:", "yellow")]
    if name == "bash" and isinstance(arguments, dict) and isinstance(arguments.get("command"), str):
        text = strict(arguments["command"])
        further = {key: value for key, value in arguments.items() if key != "command"}
        text += "\n" + strict(json.dumps(further, ensure_ascii=False)) if further else ""
    else:
        text = strict(json.dumps(arguments, ensure_ascii=False, indent=2))
    shown = text.split("\n")
    lines.extend(Styled(f"  {each}") for each in shown[:CONSENT_LINES])
    if len(shown) > CONSENT_LINES:
        lines.append(Styled(f"  … {len(shown) - CONSENT_LINES} MORE LINES ARE NOT SHOWN", "red"))
    if why := str(data.get("why") or ""):
        lines.append(Styled(f"  because: {safe_line(why)}", "dim"))
    return lines


def _question_lines(ask: Ask) -> list[Styled]:
    lines = [Styled(safe(str(ask.data.get("question", ""))[:10_000]), "yellow")]
    choices = ask.data.get("choices")
    lines.extend(Styled(f"  - {safe_line(str(each))}") for each in (choices if isinstance(choices, list) else ()))
    return lines

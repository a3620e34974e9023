"""What every Python hook in this folder shares: read one JSON object from stdin, hand it on, print the answer.

The same code serves a hook that is started for each event (input ends) and one with `persistent: true` (one line in,
one line out): when the first line is a whole JSON object it is answered at once, and reading goes on. Errors name the
hook and the kind of trouble, never the input, which may hold what the hook is there to hide.
"""

import json
import os
import sys

TOO_LARGE = 64 * 1024 * 1024
"""Bytes of one event; more cannot be meant."""


class HookError(Exception):
    """What went wrong, in words that hold nothing of the event and may be shown."""


def serve(name, handle, failing="error"):
    """Answers events until the input ends.

    Args:
        name: the hook's name, for messages.
        handle: takes the event as a dict; returns the answer as a dict, or None for "continue".
        failing: the `action` to answer when the event cannot be read or `handle` raises. A hook that judges tool
            calls says `deny`; any other says `error`, and its `onError` decides.
    """

    def answer(data):
        try:
            event = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
            if not isinstance(event, dict):
                raise HookError("the event is not an object")
            return handle(event)
        except HookError as error:
            why = str(error)
        except (ValueError, RecursionError):
            why = "the event is not JSON in UTF-8"
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else type(error).__name__
        except Exception as error:  # a guard must say no rather than die; the text may hold the event
            why = type(error).__name__
        return {"action": failing, "reason": f"{name}: {why}"}

    stdin = sys.stdin.buffer
    first = stdin.readline(TOO_LARGE)
    if first.endswith(b"\n") and _is_object(first):
        line = first
        while line:
            if line.strip():
                _say(answer(line) or {})
            line = stdin.readline(TOO_LARGE)
        return
    data = first + stdin.read(TOO_LARGE - len(first) + 1)
    if len(data) > TOO_LARGE:
        _say({"action": failing, "reason": f"{name}: the event is too large"})
        return
    result = answer(data)
    if result:
        _say(result)


def tool_of(event):
    """The event's tool as `(name, input)`.

    Raises:
        HookError: there is none, or it is not what the protocol says.
    """
    tool = event.get("tool")
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not isinstance(tool.get("input"), dict):
        raise HookError("the event has no tool")
    return tool["name"], tool["input"]


def folder_of(event):
    """The workspace's path.

    Raises:
        HookError: the event has none.
    """
    cwd = event.get("cwd")
    if not isinstance(cwd, str) or not cwd.startswith("/"):
        raise HookError("the event has no cwd")
    return cwd


def _say(result):
    try:
        # ASCII only: a lone surrogate in an output would break UTF-8.
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away: nothing left to tell
        os._exit(0)


def _is_object(data):
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


def _no_constant(name):
    raise ValueError(name)

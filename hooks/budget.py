#!/usr/bin/env python3
"""preGeneration and preToolCall: ends a turn that spent its tokens or its seconds.

Usage, on both events: `python3 "$SBX_HOOKS_DIR/budget.py" --seconds 300 --tokens 50000`; either may be left out.

The question starts the count. Before each tool call the time since then, and the tokens, are compared with the budget;
a call that comes too late is denied and the turn ends after it. Tokens are those that the event tells in `usage`; where
it tells none, they are estimated from the size of the calls, four characters a token, and the reason says "about".
"""

import argparse
import json
import time

from hook_io import HookError, serve, tool_of
from turn_state import State

CHARACTERS_A_TOKEN = 4


def positive(text):
    number = float(text)
    if not 0 < number < 1e12:
        raise ValueError(text)
    return number


def spent_tokens(event):
    """Tokens of the turn so far, or None where the event does not tell."""
    usage = event.get("usage")
    if not isinstance(usage, dict):
        return None
    numbers = [usage.get(key) for key in ("total_tokens", "prompt_tokens", "completion_tokens")]
    total, prompt, completion = (n if type(n) in (int, float) else None for n in numbers)
    if total is not None:
        return total
    return None if prompt is None and completion is None else (prompt or 0) + (completion or 0)


def handler(seconds, tokens):
    def handle(event):
        state = State("budget", event)
        name = event.get("event")
        now = time.monotonic()
        if name in ("preGeneration", "UserPromptSubmit"):
            state.save({"start": now, "estimate": 0})
            return None
        if name not in ("preToolCall", "PreToolUse"):
            raise HookError("it belongs to preGeneration and preToolCall")
        _, arguments = tool_of(event)
        value = state.load()
        start = value.get("start")
        estimate = value.get("estimate", 0)
        if not isinstance(start, (int, float)) or not isinstance(estimate, (int, float)) or start > now:
            # The question was not seen: the count starts here.
            start, estimate = now, 0
        estimate += len(json.dumps(arguments)) // CHARACTERS_A_TOKEN
        state.save({"start": start, "estimate": estimate})
        if seconds is not None and now - start >= seconds:
            return over(f"{now - start:.0f} of {seconds:.0f} seconds")
        if tokens is not None:
            told = spent_tokens(event)
            spent = estimate if told is None else told
            if spent >= tokens:
                return over(f"{'about ' if told is None else ''}{spent:.0f} of {tokens:.0f} tokens")
        return None

    return handle


def over(what):
    return {"action": "deny", "reason": f"the turn's budget is spent: {what}", "terminate": True}


def main():
    parser = argparse.ArgumentParser(description="Ends a turn that spent its budget.", allow_abbrev=False)
    parser.add_argument("--seconds", type=positive)
    parser.add_argument("--tokens", type=positive)
    options = parser.parse_args()
    if options.seconds is None and options.tokens is None:
        parser.error("give --seconds, --tokens or both")
    serve("budget", handler(options.seconds, options.tokens))


if __name__ == "__main__":
    main()

"""Takes each rule of the model client out in turn, and fails where the rule's row stays green.

    python -m tests.conformance.model_servers.mutations [NAME…]

A mutation is a piece of source replaced in a copy of the tree; then only its row runs, directly, in both forms.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
MODEL = Path("runner/guest/model")
WITHIN = 120
"""Seconds for one row."""


class Mutation(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    row: str
    """Name of the test that must fail; may be the beginning of several."""


MUTATIONS = (
    Mutation(
        "the first name counts", "answer.py", "call.name = call.name or name", "call.name += name", "a_repeated_name"
    ),
    Mutation(
        "an empty name is none", "answer.py", "call.name = call.name or name", "call.name = name", "an_empty_name_later"
    ),
    Mutation(
        "arguments are joined", "answer.py", "call.parts.append(given)", "call.parts[:] = [given]", "name_id_and_first"
    ),
    Mutation(
        "a new id is a new call",
        "answer.py",
        "return call_id != current.id",
        "return False",
        "two_calls_under_one_index",
    ),
    Mutation(
        "a whole object ends a call",
        "answer.py",
        "return bool(not call_id and not current.id and name",
        "return bool(False and name",
        "whole_calls_without_ids",
    ),
    Mutation("ids are unique", "answer.py", "and building.id not in seen", "", "an_id_that_comes_twice"),
    Mutation(
        "an object is arguments", "answer.py", "if isinstance(given, dict):", "if False:", "arguments_as_an_object"
    ),
    Mutation(
        "nothing is {}", "arguments.py", "if not raw.strip():", "if False:", "empty_arguments_are_an_empty_object"
    ),
    Mutation("null is {}", "arguments.py", "if value is None:", "if False:", "empty_arguments_are_an_empty_object"),
    Mutation(
        "the schema is checked",
        "answer.py",
        "elif wrong := arguments.check(tool.parameters, value):",
        'elif wrong := "":',
        "empty_arguments_are_checked",
    ),
    Mutation(
        "malformed is an error",
        "answer.py",
        "    except arguments.Malformed as malformed:",
        "    except arguments.Malformed as malformed:\n        value = {}",
        "malformed_arguments",
    ),
    Mutation(
        "a finish reason decides nothing",
        "answer.py",
        "        for building in self._calls:",
        '        for building in self._calls if self.finish == "tool_calls" else []:',
        "tool_calls_count_whatever",
    ),
    Mutation(
        "length is cut off",
        "answer.py",
        'cut_off = self.finish in ("length", "max_tokens")',
        "cut_off = False",
        "an_answer_cut_off",
    ),
    Mutation("a cut-off call does not run", "answer.py", "    if cut_off:\n", "    if False:\n", "a_cut_off_call"),
    Mutation(
        "unknown tools are named",
        "answer.py",
        "elif tool is None:",
        "elif False:",
        "a_call_to_a_tool_that_does_not_exist",
    ),
    Mutation(
        "a written call is told",
        "client.py",
        "if accumulator.written_call(tools):",
        "if False:",
        "a_call_written_as_text",
    ),
    Mutation("nothing is an error", "client.py", "if not accumulator.empty:", "if True:", "a_turn_with_nothing_at_all"),
    Mutation(
        "reasoning is apart",
        "answer.py",
        '_REASONING = ("reasoning_content", "reasoning", "thinking")',
        "_REASONING = ()",
        "reasoning_in_its_own_field",
    ),
    Mutation("think is apart", "thinking.py", "if text.startswith(begin):", "if False:", "a_think_block"),
    Mutation(
        "reasoning stays here",
        "history.py",
        '_append(sent, {"role": "assistant", "content": _text(message)}',
        '_append(sent, {**message, "content": _text(message)}',
        "reasoning_is_never_sent_back",
    ),
    Mutation(
        "no choices, no matter",
        "answer.py",
        "        for choice in choices:",
        "        for choice in [choices[0]]:",
        "chunks_that_carry",
    ),
    Mutation(
        "DONE is not needed",
        "client.py",
        "if not accumulator.finish and accumulator.deltas",
        "if accumulator.deltas",
        "the_end_of_the_stream_after",
    ),
    Mutation(
        "an open end is an end",
        "client.py",
        "            if not accumulator.finish:\n                raise",
        "            raise",
        "a_stream_that_stays_open",
    ),
    Mutation(
        "errors in the stream count", "reading.py", 'if document.get("error") or', "if", "an_error_object_in_mid_stream"
    ),
    Mutation(
        "what arrived is kept",
        "client.py",
        "if failed.partial is None and accumulator.deltas:",
        "if False:",
        "a_cut_connection_is_an_error",
    ),
    Mutation(
        "a stream that ends is cut",
        "client.py",
        "if not accumulator.finish and accumulator.deltas and not (reader and reader.done):",
        "if False:",
        "a_stream_that_just_ends",
    ),
    Mutation("an error's text is found", "failure.py", 'for key in ("error",', "for key in (", "the_text_of_an_error"),
    Mutation(
        "loading is waited for",
        "client.py",
        "if status == 503 and failure.is_loading(text):",
        "if False:",
        "a_model_that_loads",
    ),
    Mutation(
        "only real deltas reset the timer",
        "client.py",
        "        if deltas != accumulator.deltas:",
        "        if True:",
        "comments_and_empty_deltas",
    ),
    Mutation(
        "the watchdog bounds silence",
        "client.py",
        "patience.heard(self._watchdog_timeout)",
        "patience.heard(60)",
        "silence_between_deltas",
    ),
    Mutation(
        "busy is retried",
        "client.py",
        'if status in RETRIED and "insufficient_quota" not in text:',
        "if False:",
        "a_busy_server",
    ),
    Mutation(
        "retries are bounded",
        "client.py",
        "tenacity.stop_after_attempt(self._retry.attempts)",
        "tenacity.stop_after_attempt(9)",
        "retries_are_bounded",
    ),
    Mutation(
        "Retry-After is kept to",
        "client.py",
        "return max(base, error.after",
        "return max(base, 0 * error.after",
        "retry_after_is_kept_to",
    ),
    Mutation(
        "a named key is dropped", "client.py", "if status in (400, 422) and", "if False and", "a_key_that_a_400_names"
    ),
    Mutation(
        "a key is dropped once",
        "client.py",
        "                if dropped:",
        "                if False:",
        "a_400_after_a_dropped_key",
    ),
    Mutation(
        "overflow is recognised",
        "client.py",
        "if status == 413 or (status != 429 and failure.is_overflow(text)):",
        "if False:",
        "context_overflow",
    ),
    Mutation(
        "nothing may be overflow",
        "client.py",
        "if full or (cut_off and not limited):",
        "if False:",
        "nothing_at_all_near_the_end",
    ),
    Mutation("a redirect is no server", "client.py", "if 300 <= status < 400:", "if False:", "what_is_no_model_server"),
    Mutation(
        "a page is no server",
        "failure.py",
        'return "text/html" in content_type.lower() or',
        "return False and",
        "what_is_no_model_server",
    ),
    Mutation(
        "each call has its output",
        "history.py",
        'outputs.get(c["id"], DID_NOT_RUN)',
        'outputs[c["id"]]',
        "history_keeps",
    ),
    Mutation(
        "sent arguments are JSON",
        "history.py",
        'return value if isinstance(json.loads(value), dict) else "{}"',
        "return value",
        "history_keeps",
    ),
    Mutation("routing text is found", "answer.py", "if found := leaked(value):", 'if found := "":', "routing_text"),
    Mutation(
        "an unlisted model is told",
        "resolve.py",
        "if model and by_name and model not in by_name",
        "if False",
        "a_model_that_is_not_listed",
    ),
)


def main(names: list[str]) -> int:
    wanted = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        green = [text for text in pool.map(survivor, wanted) if text]
    print(f"\n{len(wanted) - len(green)} of {len(wanted)} rules are held by their row")
    print("\n".join(green))
    return 1 if green else 0


def survivor(mutation: Mutation) -> str:
    """Why a mutation was not noticed; empty when its row failed."""
    with tempfile.TemporaryDirectory(prefix="sbx-mutation-") as folder:
        tree = Path(folder)
        for part in ("runner", "tests"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        path = tree / MODEL / mutation.file
        source = path.read_text(encoding="utf-8")
        if source.count(mutation.old) != 1:
            return (
                f"{mutation.name}: {mutation.file} holds {mutation.old!r} {source.count(mutation.old)} times, not once"
            )
        path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "tests/conformance/model_servers",
        ]
        done = subprocess.run(
            [*command, "-k", f"{mutation.row} and direct"], cwd=tree, capture_output=True, text=True, timeout=WITHIN
        )
    print("." if done.returncode == 1 else "G", end="", flush=True)
    if done.returncode == 1 and " failed" in done.stdout:
        return ""
    return f"{mutation.name}: {mutation.row} ended with {done.returncode}: {done.stdout.strip().splitlines()[-1:]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

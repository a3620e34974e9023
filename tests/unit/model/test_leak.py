"""The leak guard: finds routing text beside its marker, and lets a hundred thousand honest arguments pass."""

from __future__ import annotations

import random

import pytest

from runner.guest.model.leak import leaked


@pytest.mark.parametrize(
    "text",
    [
        "ls -la assistant to=functions.bash",
        "ls commentary to=functions.bash json",
        "echo hi<|start|>assistant<|channel|>analysis to=functions.write_file",
        "assistantcommentary to=functions.bash <|constrain|>json",
        "cat x to=functions.bash<|channel|>commentary",
        "pytest -q to=functions.bash json commentary",
        "user to=functions.read_file",
        "git status to=functions.bash code_output",
        "echo done to=functions.bash 天天中彩票",
        "echo done 彩神争霸 to=functions.bash",
        "make test to=functions.run_tests ლარი",
    ],
)
def test_a_marker_with_its_neighbour_is_found(text: str) -> None:
    assert leaked({"command": text})


def test_a_leak_is_found_in_any_string_however_deep() -> None:
    assert leaked({"edits": [{"old": "a", "new": "b analysis to=functions.edit_file"}]})


@pytest.mark.parametrize(
    "text",
    [
        "to=functions.bash",
        "grep -rn 'to=functions.' src/",
        "The header to=functions.get_weather names the tool that is called.",
        "In the harmony format, `to=functions.x` stands in the header.",
        "Ask the assistant: what does to=functions.x mean?",
        "a commentary on how to=functions.x is parsed",
        "print(f'to=functions.{name}')",
        "what does the assistant to=functions.x header do?",
        "to=functions.x 是什么意思? 我想知道这个标记在提示词里的作用。",
        "что такое to=functions.bash и зачем он нужен",
        "set recipient to=functions.lookup; users see it",
        "analysis: the recipient, to=functions.lookup, was wrong",
    ],
)
def test_a_text_that_talks_about_the_marker_passes(text: str) -> None:
    assert leaked({"text": text}) == ""


# ---- the corpus: written from what people and models put into arguments, none of it from the guard's pattern

_PATHS = [
    "src/main.py",
    "./a b.txt",
    "/etc/hosts",
    "docs/使い方.md",
    "notes/заметки.txt",
    "C:\\Temp\\x.log",
    "../up.js",
]
_WORDS = (
    "the user asked for analysis of commentary and the assistant answered with code output in json for every channel "
    "function functions tool call route message header recipient to from with final system developer"
).split()
_FOREIGN = [
    "天气很好",
    "これは例です",
    "пример текста",
    "مثال قصير",
    "ตัวอย่าง",
    "예시 문장",
    "παράδειγμα",
    "उदाहरण",
    "דוגמה",
]
_COMMANDS = [
    "grep -rn '{w}' {p}",
    "sed -i 's/{w}/{v}/' {p}",
    "git commit -m '{w} {v}: {f}'",
    "curl -s 'http://localhost:8000/?to={w}&user={v}'",
    "python -c \"print('{f}', '{w}')\"",
    "find . -name '*{w}*' | xargs wc -l # {f}",
    "awk -F= '$1==\"to\" {{print $2}}' {p}",
    "cat {p} | jq '.functions.{w} // \"{v}\"'",
    "mail -s '{w}' --to={v} < {p}",
]
_CODE = [
    "def {w}({v}):\n    return functions.{v}('{f}')\n",
    "const {w} = await functions.{v}({{to: '{w}', user: \"{f}\"}});\n",
    "# {f}\nassistant = Assistant(channel='{w}', to='{v}')\n",
    '<message role="assistant" to="{w}">{f}</message>',
    "| user | assistant |\n|---|---|\n| {w} | {f} {v} |",
    '{{"role": "assistant", "recipient": "functions.{w}", "content": "{f}"}}',
]
_TALK = [
    "The marker `to=functions.{w}` should never reach {p}.",
    "grep -c 'to=functions.{w}' {p}",
    "if 'to=functions.{w}' in text: raise ValueError('{v}')",
    "why does my model print to=functions.{w}? {v} {w}",
    "- `to=functions.{w}`: {f}",
    "assert parse('to=functions.{w}') == '{w}'",
    "{f}：`to=functions.{w}`。{f}",
]


def corpus(count: int) -> list[dict[str, object]]:
    rng = random.Random(20261130)

    def fill(template: str) -> str:
        words = rng.sample(_WORDS, 2)
        return template.format(w=words[0], v=words[1], p=rng.choice(_PATHS), f=rng.choice(_FOREIGN))

    def prose() -> str:
        words = rng.choices(_WORDS, k=rng.randint(3, 40))
        if rng.random() < 0.3:
            words.insert(rng.randrange(len(words)), rng.choice(_FOREIGN))
        return " ".join(words)

    made: list[dict[str, object]] = []
    for _ in range(count):
        kind = rng.random()
        if kind < 0.4:
            made.append({"command": fill(rng.choice(_COMMANDS))})
        elif kind < 0.7:
            made.append({"path": rng.choice(_PATHS), "content": fill(rng.choice(_CODE)) + prose()})
        elif kind < 0.9:
            made.append({"text": prose(), "items": [prose(), {"note": rng.choice(_FOREIGN)}]})
        else:
            made.append({"content": f"{prose()}. {fill(rng.choice(_TALK))}\n{prose()}"})
    return made


def test_a_hundred_thousand_honest_arguments_pass() -> None:
    arguments = corpus(100_000)
    assert len(arguments) == 100_000
    assert sum("to=functions." in str(a) for a in arguments) > 5_000, "the corpus must talk about the marker too"
    assert [a for a in arguments if leaked(a)] == []

"""What `sbx COMMAND --help` shows below the options, and the reference page too; a test reads each with its command.

`KIT` stands for any kit, `NAME` for a sandbox's name.
"""

from __future__ import annotations

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "run": (
        ("sbx run hooks-demo", "talk to the demo agent"),
        ('sbx run hooks-demo --demo -p "Which files are here?"', "one question, scripted model"),
        ("sbx run ./my-kit ~/project -p @question.txt --json", "your kit and folder; the result as JSON"),
        ("sbx run KIT -p - --timeout 600 --check 'make test' < q", "code 7 when the check fails, 124 when late"),
        ("sbx run NAME", "go on in a sandbox that is there"),
    ),
    "batch": (
        (
            "sbx batch questions.jsonl -j 8 > results.jsonl",
            "a question a line in, a result a line out",
        ),
        ("sbx batch questions.yaml --sandbox KIT --output r.jsonl --junit r.xml", "for CI"),
        ("sbx batch questions.jsonl --resume r.jsonl", "run what has no result yet"),
    ),
    "create": (("sbx create KIT . --name work --network bridge", "made, not started"),),
    "ls": (
        ("sbx ls", "all, by name"),
        ("sbx ls --format '{{.name}} {{.state}}'", "a line each, for scripts"),
    ),
    "exec": (
        ("sbx exec NAME ls -la", "in the workspace, as its owner"),
        ("tar c . | sbx exec NAME tar x -C /tmp", "stdin, stdout and the code are the command's"),
        ("sbx exec -t NAME top", "with a terminal"),
    ),
    "shell": (
        ("sbx shell NAME", "bash in the workspace"),
        ("sbx shell --entrypoint NAME", "the agent that a public kit was written for"),
    ),
    "diff": (
        ("sbx diff NAME", "a patch, for git apply"),
        ("sbx diff NAME --name-only src/", "which files below src"),
    ),
    "apply": (
        ("sbx apply NAME", "all but what you have changed too"),
        ("sbx apply NAME src/ --interactive", "asks about each file"),
    ),
    "export": (("sbx export NAME ./by-agent", "all files, and the git history"),),
    "cp": (
        ("sbx cp NAME:report.txt .", "out; relative paths start at the workspace"),
        ("sbx cp ./data NAME:/tmp/", "in; belongs to the workspace's owner"),
        ("sbx cp NAME:/home/agent/.cache/. ./cache", "a folder's content"),
    ),
    "inspect": (("sbx inspect NAME", "each control, and what differs from the default"),),
    "stats": (("sbx stats --json", "every sandbox that runs, as JSON"),),
    "start": (("sbx start NAME", "held in the background until `sbx stop NAME`"),),
    "stop": (("sbx stop NAME", "its home stays"),),
    "rm": (
        ("sbx rm NAME", "with its home"),
        ("sbx rm --all", "every idle one of yours"),
    ),
    "prune": (("sbx prune --dry-run", "what dead runs left behind"),),
    "completion": (
        ('eval "$(sbx completion bash)"', "in ~/.bashrc"),
        ("sbx completion fish | source", "in ~/.config/fish/config.fish"),
    ),
    "log": (("sbx log", "the last session"), ("sbx log --hooks", "each hook that ran, and its verdict")),
    "report": (("sbx report -o run.html", "the last session as one page"),),
    "doctor": (("sbx doctor", "one line a check, each with what to do"),),
}


def shown(name: str) -> str:
    """The examples of a command as text; empty where there are none."""
    rows = EXAMPLES.get(name, ())
    width = max((len(line) for line, _ in rows), default=0)
    return "\n".join(["Examples:", *(f"  {line:<{width}}   {what}" for line, what in rows)]) if rows else ""

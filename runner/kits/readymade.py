"""Hooks to try: the ready-made ones with their samples, and files of the user's.

A sample is what a ready-made hook is given and what it answers; `hooks/samples/README.md` describes the files.
"""

from __future__ import annotations

import datetime
import json
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import NotFoundError, UsageError
from runner.kits.agent import FILE_NAME
from runner.kits.data import data_folder
from runner.kits.document import nearest, read_text

INTERPRETERS = {".js": "node", ".mjs": "node", ".cjs": "node", ".py": "python3", ".sh": "sh", ".bash": "bash"}
LIBRARIES = frozenset({"hook_io.js", "hook_io.py", "shell_parser.py", "turn_state.py"})
"""Files in `hooks/` that hooks import."""
PLAYGROUND = "playground"
MAX_FILE = 8 * 1024 * 1024
"""Bytes of a hook's file."""


@dataclass(frozen=True)
class Program:
    """What to run, and where its files come from."""

    name: str
    command: str
    """For `sh -c`, without arguments."""
    file: Path
    ready_made: bool
    needs_tools: bool
    """It needs Node or jq, which the base image has not."""


@dataclass(frozen=True)
class Sample:
    """One case: the event, the arguments, the answer. `${WORKSPACE}` and `${TODAY}` still stand in the texts."""

    name: str
    given: str
    args: str
    answer: str

    def filled(self, text: str, workspace: str, today: datetime.date) -> Any:
        """One of the texts as what it stands for.

        Args:
            workspace: as the hook sees it.
            today: the day where the hook runs.
        """
        day = f"{today:%A}, {today:%Y-%m-%d}"
        return json.loads(text.replace("${WORKSPACE}", workspace).replace("${TODAY}", day))


def find_program(reference: str) -> Program:
    """A ready-made hook by its name, with or without its ending, or a file.

    Raises:
        NotFoundError: neither is there; near names are told.
        UsageError: nobody knows how to run the file.
    """
    if "/" not in reference and not reference.startswith("."):
        folder = data_folder("hooks")
        known = {path.name: path for path in _ready_made(folder)}
        for name, path in known.items():
            if reference in (name, path.stem):
                command = f'{INTERPRETERS[path.suffix]} "$SBX_HOOKS_DIR/{name}"'
                return Program(path.stem, command, path, True, path.suffix != ".py")
        if not Path(reference).exists():
            near = nearest(reference, [path.stem for path in known.values()])
            hint = f"did you mean {near}?" if near else f"ready-made: {', '.join(sorted(known))}; or a file"
            raise NotFoundError(f"there is neither a ready-made hook nor a file {reference!r}", hint=hint)
    path = Path(reference).expanduser()
    if not path.is_file():
        what = "is not a file" if path.exists() else "there is no such file"
        raise NotFoundError(what, place=reference)
    if path.stat().st_size > MAX_FILE:
        raise UsageError(f"is over {MAX_FILE // 1024**2} MiB", place=reference)
    quoted = f'"$MM_CONFIG_DIR"/{shlex.quote(path.name)}'
    with path.open("rb") as file:
        has_interpreter = file.read(2) == b"#!"
    if has_interpreter and path.stat().st_mode & 0o111:
        return Program(path.stem, quoted, path, False, b"node" in _first_line(path))
    if path.suffix not in INTERPRETERS:
        raise UsageError(
            "nobody knows how to run it",
            place=reference,
            hint="make it executable with a #! line, or end it .js .py .sh",
        )
    program = INTERPRETERS[path.suffix]
    return Program(path.stem, f"{program} {quoted}", path, False, program == "node")


def samples(program: Program) -> list[Sample]:
    """The samples of a ready-made hook, by name.

    Raises:
        UsageError: the hook is not a ready-made one.
    """
    if not program.ready_made:
        raise UsageError("--samples: only ready-made hooks have samples", place=str(program.file))
    folder = data_folder("hooks") / "samples" / program.name
    found = []
    for given in sorted(folder.glob("*.in.json")):
        case = given.name.removesuffix(".in.json")
        args = folder / f"{case}.args.json"
        answer = read_text(folder / f"{case}.out.json")
        found.append(Sample(case, read_text(given), read_text(args) if args.exists() else "[]", answer))
    return found


def with_arguments(command: str, arguments: Sequence[str]) -> str:
    """The command with arguments, quoted."""
    return " ".join([command, *map(shlex.quote, arguments)])


def lay_kit(program: Program, folder: Path) -> None:
    """Puts into an empty folder what `MM_CONFIG_DIR` is to hold: the file, or all that lies beside its `agent.yaml`."""
    if program.ready_made:
        return
    if (program.file.parent / FILE_NAME).exists():
        for path in program.file.parent.iterdir():
            if path.name in (PLAYGROUND, "files", ".git"):
                continue
            if path.is_dir():
                shutil.copytree(path, folder / path.name, symlinks=True)
            elif path.is_file():
                shutil.copy(path, folder / path.name)
    else:
        shutil.copy(program.file, folder / program.file.name)


def lay_playground(folder: Path) -> None:
    """Makes a folder a fresh copy of the demo's workspace, which the samples are about."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    source = data_folder("sbx") / "hooks-demo" / PLAYGROUND
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".mm"))


def _ready_made(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in INTERPRETERS and path.name not in LIBRARIES)


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(200)

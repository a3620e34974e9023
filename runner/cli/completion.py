"""`sbx completion SHELL`: a script for bash, zsh or fish.

Commands and options are written into the script, so that completing them starts no program at all; names of kits,
sandboxes and sessions are asked for with `sbx _complete KIND`, which imports next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import typer

KIND_OF_NAMES = {
    "run": "kits sandboxes",
    "create": "kits",
    "exec": "sandboxes",
    "shell": "sandboxes",
    "cp": "sandboxes",
    "inspect": "sandboxes",
    "stats": "sandboxes",
    "start": "sandboxes",
    "stop": "sandboxes",
    "rm": "sandboxes",
    "log": "sessions",
    "report": "sessions",
    "session": "sessions",
}
"""What the arguments of a command name."""


@dataclass(frozen=True)
class Flag:
    """One option: its names, whether a value follows, and its help."""

    names: tuple[str, ...]
    valued: bool
    help: str


@dataclass(frozen=True)
class Described:
    """One command as the script needs it. `words` are its own commands, when it is a group."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...] = ()


def completion(shell: str = typer.Argument(..., help="bash, zsh or fish.")) -> None:
    """Print a script that completes commands, options and names."""
    from runner.errors import UsageError

    writers = {"bash": bash, "zsh": zsh, "fish": fish}
    if shell not in writers:
        raise UsageError(f"{shell!r} is none of bash, zsh, fish", hint='for example: eval "$(sbx completion bash)"')
    print(writers[shell](describe()), end="")


def describe() -> list[Described]:
    """Every command that is listed, with its options."""
    from runner.cli.lazy import load
    from runner.cli.table import COMMANDS

    found = []
    for name, entry in COMMANDS.items():
        if entry.hidden:
            continue
        command = load(name, entry)
        below = getattr(command, "commands", {})
        every = [*command.params, *(p for each in below.values() for p in each.params)]
        flags = {
            tuple(sorted((*p.opts, *p.secondary_opts), key=len)): Flag(
                tuple(sorted((*p.opts, *p.secondary_opts), key=len)),
                not getattr(p, "is_flag", False),
                getattr(p, "help", "") or "",
            )
            for p in every
            if p.param_type_name == "option"
        }
        found.append(Described(name, entry.help, tuple(flags.values()), tuple(below)))
    return found


def bash(commands: list[Described]) -> str:
    """For bash 4 and newer."""
    cases = []
    for each in commands:
        options = " ".join([*(n for f in each.flags for n in f.names), "--help"])
        valued = " ".join(n for f in each.flags if f.valued for n in f.names)
        kind, words = KIND_OF_NAMES.get(each.name, ""), " ".join(each.words)
        cases.append(f'        {each.name}) options="{options}" valued="{valued}" kind="{kind}" words="{words}" ;;')
    listed = " ".join(each.name for each in commands)
    return f"""\
# Completion of sbx for bash: eval "$(sbx completion bash)"
_sbx() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} options= valued= kind= words=
    local IFS=$' \\t\\n'
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W "{listed} --help --version" -- "$cur"))
        return
    fi
    case ${{COMP_WORDS[1]}} in
{chr(10).join(cases)}
    esac
    case " $valued " in *" $prev "*)
        COMPREPLY=($(compgen -f -- "$cur"))
        return ;;
    esac
    case $cur in
        -*) COMPREPLY=($(compgen -W "$options" -- "$cur")) ;;
        */* | .* | ~*) COMPREPLY=($(compgen -f -- "$cur")) ;;
        *)
            if [[ -n $words && $COMP_CWORD -eq 2 ]]; then
                COMPREPLY=($(compgen -W "$words" -- "$cur"))
            elif [[ -n $kind ]]; then
                COMPREPLY=($(compgen -W "$(sbx _complete $kind 2>/dev/null)" -- "$cur"))
            fi
            [[ ${{#COMPREPLY[@]}} -eq 0 ]] && COMPREPLY=($(compgen -f -- "$cur")) ;;
    esac
}}
complete -o filenames -F _sbx sbx
"""


def zsh(commands: list[Described]) -> str:
    """For zsh, with the descriptions it shows."""
    described = "\n".join(f"        {_quoted(f'{c.name}:{c.help}')}" for c in commands)
    cases = []
    for each in commands:
        flags = " ".join(
            _quoted(f"{n}[{_plain(f.help)}]" + (":value:_files" if f.valued else ""))
            for f in each.flags
            for n in f.names
        )
        kind = KIND_OF_NAMES.get(each.name, "")
        rest = f"'*:name:{{_sbx_names {kind}}}'" if kind else "'*:file:_files'"
        first = f"'1:command:({' '.join(each.words)})' " if each.words else ""
        cases.append(f"        {each.name}) _arguments -S {flags} {first}{rest} ;;")
    return f"""\
#compdef sbx
# Completion of sbx for zsh: source <(sbx completion zsh), after compinit
_sbx_names() {{
    local -a names
    names=(${{(f)"$(sbx _complete "$@" 2>/dev/null)"}})
    compadd -a names
    _files
}}
_sbx() {{
    local -a commands
    commands=(
{described}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=${{words[2]}}
    shift words
    (( CURRENT-- ))
    case $command in
{chr(10).join(cases)}
    esac
}}
compdef _sbx sbx
"""


def fish(commands: list[Described]) -> str:
    """For fish 3 and newer."""
    lines = ["# Completion of sbx for fish: sbx completion fish | source", "complete -c sbx -f"]
    for each in commands:
        lines.append(f"complete -c sbx -n __fish_use_subcommand -a {each.name} -d {_quoted(each.help)}")
        seen = f"-n '__fish_seen_subcommand_from {each.name}'"
        for flag in each.flags:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in flag.names)
            value = " -r -F" if flag.valued else ""
            lines.append(f"complete -c sbx {seen} {names}{value} -d {_quoted(_plain(flag.help))}")
        if each.words:
            lines.append(f"complete -c sbx {seen} -a {_quoted(' '.join(each.words))}")
        if kind := KIND_OF_NAMES.get(each.name):
            lines.append(f"complete -c sbx {seen} -F -a '(sbx _complete {kind} 2>/dev/null)'")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Help without what a completion's grammar would read."""
    return "".join(c for c in text if c not in "[]:\\`$\n")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"

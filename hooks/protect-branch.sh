#!/bin/sh
# preToolCall, matcher ^bash$: denies `git commit`, `git merge` and `git push` while `main` or `master` is checked out,
# and a forced push at any time. Needs jq (mixin cli-tools).
#
# The branch is read from .git/HEAD and not asked of git: git runs programs that the repository's own configuration
# names, and that configuration is the tools' to write.

deny() {
    printf '{"action":"deny","reason":"%s"}\n' "$1"
    exit 0
}

command -v jq >/dev/null || deny "protect-branch: jq is not installed, so nothing can be checked"
event=$(cat)
command=$(printf '%s' "$event" | jq -er '.tool.input.command | strings' 2>/dev/null) ||
    deny "protect-branch: the event has no command"
cwd=$(printf '%s' "$event" | jq -er '.cwd | strings' 2>/dev/null) || cwd=.

matches() { printf '%s' "$command" | tr '\n' ';' | grep -Eq "$1"; }

git='(^|[^[:alnum:]_./-])git([[:space:]]+-[^[:space:]]+([[:space:]]+[^-[:space:]][^[:space:]]*)?)*[[:space:]]+'
if matches "${git}push[^;&|]*[[:space:]](--force([[:space:]=-]|$)|-[a-zA-Z]*f|\\+)"; then
    deny "a forced push is not allowed"
fi
if matches "${git}(commit|merge|push|rebase|cherry-pick|revert|am)([[:space:];]|$)"; then
    head=
    { IFS= read -r head <"$cwd/.git/HEAD"; } 2>/dev/null
    case ${head#ref: refs/heads/} in
    main | master) deny "commits to ${head#ref: refs/heads/} are not allowed; make a branch first" ;;
    "") [ ! -e "$cwd/.git" ] || deny "protect-branch: the branch cannot be read" ;;
    esac
fi

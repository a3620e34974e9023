#!/bin/sh
# preGeneration, `user: owner`: adds the branch and the changed files of the workspace's repository to the question.
# Needs git and jq (mixin cli-tools). It runs as the owner, as the tools do: git may run what the repository configures.

most=30 # lines of `git status`

cat >/dev/null # the event is not needed; it must be read all the same, or a large one would end in a broken pipe
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || exit 0
branch=$(git symbolic-ref --short -q HEAD || echo "no branch")
changes=$(git -c core.quotePath=true status --porcelain 2>/dev/null)
count=$(printf '%s' "$changes" | grep -c .)
{
    printf 'Git branch: %s. ' "$branch"
    if [ "$count" -eq 0 ]; then
        printf 'Nothing is changed.'
    else
        printf 'Changed files: %s\n' "$count"
        printf '%s\n' "$changes" | head -n "$most"
    fi
} | jq -Rsc '{context: .}'

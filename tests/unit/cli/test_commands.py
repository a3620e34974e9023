import inspect

import pytest

from runner.cli.lazy import load
from runner.cli.table import COMMANDS


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    command = load(name, COMMANDS[name])
    assert COMMANDS[name].help == inspect.cleandoc(command.help or "").splitlines()[0]

"""A run flows one way: each package imports only those before it."""

from __future__ import annotations

import ast
from pathlib import Path

import runner

ORDER = "errors wire kits engine images sandbox gateway session frontends launch cli".split()
ROOT = Path(runner.__file__).parent


def imported(path: Path) -> set[str]:
    """The packages of `runner` that a module imports, wherever in it; for types alone does not count."""
    found = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("runner"):
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return found


def test_imports_go_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for at, package in enumerate(ORDER)
        for path in (ROOT / package).rglob("*.py")
        for name in sorted(imported(path))
        if name in ORDER and ORDER.index(name) > at
    ]
    assert wrong == []


def test_what_runs_in_the_container_imports_nothing_of_the_host() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / "guest").rglob("*.py")
        for name in sorted(imported(path) - {"guest", "wire", "__version__"})
    ]
    assert wrong == []

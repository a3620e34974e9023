"""`credentials.yaml` as `sbx secret` writes it: the user's own text stays, and nothing is readable by others."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import ConfigError, NotFoundError, UsageError
from runner.gateway import bindings
from runner.gateway.credentials import credentials_path, load

BEFORE = """# mine
first:
  env: A_TOKEN        # from the shell
  domains: [a.example]

# about echo
echo:
  env: E
  domains:
  - b.example
# about last
last: {env: Z_TOKEN, domains: [z.example]}
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "sbx"
    folder.mkdir()
    path = folder / "credentials.yaml"
    path.write_text(BEFORE)
    path.chmod(0o600)
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def text(environ: dict[str, str]) -> str:
    return credentials_path(environ).read_text()


def test_a_new_binding_goes_behind_and_all_else_stays(environ: dict[str, str]) -> None:
    bindings.bind("new", "env", ["NEW_TOKEN"], ["n.example:8443"], environ)
    assert text(environ).startswith(BEFORE)
    found = load(credentials_path(environ))
    assert list(found) == ["first", "echo", "last", "new"]
    assert (found["new"].kind, found["new"].source, found["new"].domains[0].first) == ("env", ("NEW_TOKEN",), 8443)


def test_a_binding_is_replaced_and_comments_stay(environ: dict[str, str]) -> None:
    bindings.bind("echo", "command", ["pass", "show", "echo"], ["c.example"], environ)
    found = load(credentials_path(environ))
    assert found["echo"].source == ("pass", "show", "echo")
    assert {"first", "last"} < set(found)
    for comment in ("# mine", "# from the shell", "# about echo", "# about last"):
        assert comment in text(environ)


@pytest.mark.parametrize("service", ["first", "echo", "last"])
def test_a_binding_is_removed_alone(environ: dict[str, str], service: str) -> None:
    bindings.unbind(service, environ)
    assert set(load(credentials_path(environ))) == {"first", "echo", "last"} - {service}
    with pytest.raises(NotFoundError):
        bindings.unbind(service, environ)


def test_a_binding_that_is_wrong_leaves_the_file_as_it_was(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        bindings.bind("echo", "env", ["X"], ["https://no.example"], environ)
    assert text(environ) == BEFORE


@pytest.mark.parametrize("service", ["../evil", "a/b", "", ".hidden", "x" * 65])
def test_a_service_is_no_path(environ: dict[str, str], service: str) -> None:
    with pytest.raises(UsageError):
        bindings.keep(service, "a-long-secret", environ)


@pytest.mark.parametrize("secret", ["short", "with\nline-breaks", "ümlaut-secret"])
def test_what_cannot_be_masked_or_sent_is_not_kept(environ: dict[str, str], secret: str) -> None:
    with pytest.raises(UsageError) as caught:
        bindings.keep("echo", secret, environ)
    assert secret not in str(caught.value)


def test_a_kept_secret_is_its_owners_alone_also_where_a_link_lies_in_its_place(
    environ: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    folder = tmp_path / "sbx" / "secrets"
    folder.mkdir(mode=0o755)
    (folder / "echo").symlink_to(elsewhere)
    path = bindings.keep("echo", "a-long-secret", environ)
    assert (path.read_text(), elsewhere.read_text()) == ("a-long-secret\n", "untouched")
    assert (path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)

"""`sbx policy`: what may leave a sandbox, by which rule, and what was decided."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.launch.network import Outgoing

policy_app = typer.Typer(
    help="What may leave a sandbox: check a host, list the rules, show the log.", no_args_is_help=True
)

KIT = typer.Option("", "--kit", help="The rules of a run of this kit.")
NETWORK = typer.Option("none", "--network", help="The preset: none, packages or open.")
ALLOW = typer.Option([], "--allow", help="As with run.")
DENY = typer.Option([], "--deny", help="As with run.")
RESOLVE = typer.Option([], "--resolve", help="As with run.")
GRANT = typer.Option([], "--grant", help="As with run: network opens what the kit asks for.")
INSTALL = typer.Option(False, "--install", help="The rules of the kit's build, not of its run.")
AS_JSON = typer.Option(False, "--json", help="Print JSON.")


@policy_app.command("check")
def check(
    places: list[str] = typer.Argument(..., metavar="HOST[:PORT]...", help="Without a port, 443."),
    kit: str = KIT,
    network: str = NETWORK,
    allow: list[str] = ALLOW,
    deny: list[str] = DENY,
    resolve: list[str] = RESOLVE,
    grant: list[str] = GRANT,
    install: bool = INSTALL,
    as_json: bool = AS_JSON,
) -> int:
    """Say whether a run could reach a host, by which rule, and where that rule comes from. Code 6: it could not."""
    import asyncio

    from runner.errors import UsageError
    from runner.frontends.safe import safe_line
    from runner.gateway.names import BadName, HostPort, split_port
    from runner.gateway.policy import DEFAULT_PORT, judge
    from runner.gateway.proxy import resolve as look_up
    from runner.launch.network import BRIDGE

    if network == BRIDGE:
        raise UsageError("--network bridge goes past the gateway: nothing is decided there")
    policy = _outgoing(kit, network, allow, deny, resolve, grant, install).policy
    wanted = []
    for place in places:
        try:
            host, port = split_port(place)
            if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536)):
                raise BadName
        except BadName:
            raise UsageError(f"{place!r} is not HOST or HOST:PORT", hint="a port is 1 to 65535") from None
        wanted.append((place, host, int(port or DEFAULT_PORT)))

    async def decide() -> list[dict[str, object]]:
        answers = []
        for place, host, port in wanted:
            verdict = await judge(policy, host, port, look_up)
            decision = verdict.decision
            answers.append(
                {
                    "asked": place,
                    "host": str(verdict.host if verdict.host is not None else host),
                    "port": port,
                    "allowed": decision.allowed,
                    "rule": decision.rule,
                    "source": decision.source,
                    "reason": decision.reason,
                    "addresses": [str(address) for address in verdict.addresses],
                    "unresolved": verdict.unresolved,
                }
            )
            said = HostPort(verdict.host if verdict.host is not None else host, port)
            if not as_json:
                word = "allowed" if decision.allowed else "denied"
                print(
                    f"{word:<8} {safe_line(str(said))}  by {safe_line(decision.rule)}  ({safe_line(decision.source)})"
                )
                if not decision.allowed:
                    print(f"         {safe_line(decision.reason)}")
                elif verdict.unresolved:
                    print(f"         {safe_line(verdict.unresolved)}")
        return answers

    answers = asyncio.run(decide())
    if as_json:
        print(json.dumps(answers, indent=2))
    return 0 if all(answer["allowed"] for answer in answers) else 6


@policy_app.command("ls")
def list_rules(
    kit: str = KIT,
    network: str = NETWORK,
    allow: list[str] = ALLOW,
    deny: list[str] = DENY,
    resolve: list[str] = RESOLVE,
    grant: list[str] = GRANT,
    install: bool = INSTALL,
    as_json: bool = AS_JSON,
) -> None:
    """List the rules in force, with the groups resolved: deny wins, a bound is never widened, the rest is closed."""
    from runner.frontends.safe import safe_line
    from runner.launch.network import rule_lines, rule_rows

    outgoing = _outgoing(kit, network, allow, deny, resolve, grant, install)
    policy = outgoing.policy
    if as_json:
        rules = [dict(zip(("kind", "rule", "source"), row, strict=True)) for row in rule_rows(policy)]
        print(json.dumps({"preset": policy.preset, "rules": rules, "closed": policy.closed}, indent=2))
        return
    print(f"preset   {policy.preset}")
    for line in rule_lines(policy):
        print(safe_line(line))
    if policy.closed:
        print("nothing may leave")


@policy_app.command("log")
def show_log(
    session: str = typer.Argument(None, help="A session's id, its beginning or its end; the last one when left out."),
    as_json: bool = typer.Option(False, "--json", help="Print the log's lines as they are."),
) -> None:
    """Show what the gateway decided in a session: one line a request."""
    from runner.frontends.safe import safe_line
    from runner.gateway.decisions import read_log
    from runner.gateway.names import BadName, HostPort, normalise
    from runner.launch.network import LOG
    from runner.session.sessions import find_session
    from runner.session.state import Folders

    path = find_session(Folders.of(), session) / LOG
    if not path.exists():
        return
    if as_json:
        print(path.read_text(encoding="utf-8"), end="")
        return
    for entry in read_log(path):
        try:
            place = str(HostPort(normalise(entry.host), entry.port))
        except BadName:
            place = f"{entry.host}:{entry.port}"
        size = f"{entry.sent}↑ {entry.received}↓"
        facts = [
            f"by {entry.rule}" if entry.rule else "",
            f"call {entry.call}" if entry.call else "",
            f"via {entry.via}" if entry.via else "",
            f"credential {entry.credential}" if entry.credential else "",
            entry.reason if entry.outcome != "allowed" else "",
        ]
        line = f"{entry.time}  {entry.outcome:<8} {entry.method:<8} {place:<40} {size:<16}"
        print(safe_line(f"{line} {'; '.join(fact for fact in facts if fact)}".rstrip(), 1000))


def _outgoing(
    kit: str,
    network: str,
    allow: Sequence[str],
    deny: Sequence[str],
    resolve: Sequence[str],
    grant: Sequence[str],
    install: bool,
) -> Outgoing:
    """The network of a run with these options. A grant that is missing is no error here: the rules tell it."""
    from runner.errors import UsageError
    from runner.gateway import grants, rules
    from runner.kits.plan import Network
    from runner.launch.network import Asked, Outgoing, engine_network

    engine_network(network)
    for name in grant:
        if name not in grants.NAMES:
            raise UsageError(f"--grant {name}: no such grant", hint=f"the grants are: {', '.join(grants.NAMES)}")
    if install and not kit:
        raise UsageError("--install goes with --kit")
    files = rules.load(rules.policy_paths(os.environ))
    lists = Network()
    if kit:
        from runner.kits.compose import compose
        from runner.kits.find import Finder

        lists = compose(kit, finder=Finder(dict(os.environ))).network
    granted = "network" in grant and not grants.forbidden("network", files)
    asked = Asked(network, allow, deny, resolve, granted=granted)
    policy = rules.build(
        network,
        allow=allow,
        deny=deny,
        resolve=resolve,
        kits=lists,
        kits_granted=granted or install,
        install=install,
        files=files,
        environ=os.environ,
    )
    return Outgoing(asked, policy)

"""What answers a run's model requests: the server behind the relay, or the built-in scripted one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.gateway.model import ModelRelay
    from runner.launch.network import Opened
    from runner.launch.options import Options
    from runner.launch.prepared import Prepared
    from runner.scripted.server import ScriptedServer
    from runner.wire.agent import Agent


def scripted_model(prepared: Prepared) -> ScriptedServer:
    """The built-in scripted model, for this kit's own script where it has one."""
    from runner import scripted
    from runner.scripted.script import load_script
    from runner.scripted.server import ScriptedServer

    folder = prepared.what.folder
    own = folder / "demo.yaml" if folder else None
    path = own if own and own.exists() else Path(scripted.__file__).with_name("demo.yaml")
    return ScriptedServer(load_script(path))


def key_of(prepared: Prepared, options: Options) -> str:
    """The model server's key."""
    from runner.launch.network import model_key

    if options.demo:
        return ""
    return model_key(prepared.what.agent.provider.key, prepared.agent.provider, prepared.agent.urls, options.environ)


def relay(agent: Agent, way: Opened, options: Options) -> ModelRelay:
    from runner.gateway.model import ModelRelay
    from runner.launch.network import model_proxy

    return ModelRelay(agent.urls, way.key, proxy=model_proxy(agent.urls, options.environ), masks=way.masks)

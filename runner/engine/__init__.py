"""The Docker engine: where it is, how it is asked, and what is wrong when it cannot be.

    endpoint   which socket: DOCKER_HOST, the active Docker context, the default
    client     connect, ask with a bound, translate failures
    sight      whether the engine sees this machine's folders, and under which paths
    doctor     one check a line, each with what to do

Nothing here imports the Docker SDK until `Engine.api` is first read: it costs 0.2 s.
"""

from runner.engine.client import Engine, connect
from runner.engine.endpoint import Endpoint, Tls, endpoint

__all__ = ["Endpoint", "Engine", "Tls", "connect", "endpoint"]
